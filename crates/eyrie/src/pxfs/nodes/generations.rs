//! The generations of held nodes, for engines with sessions. In a later session, the id of an object that was
//! removed may name another object.

use std::collections::HashMap;
use std::sync::Mutex;

use eyrie_engine::holds::HoldTable;
use eyrie_engine::{Engine, Error, ObjectId, Result};
use eyrie_medium::sync::unpoisoned;

use super::Nodes;

/// The generation of a node, and the [session](Engine::session) in which its id was last confirmed.
#[derive(Clone, Copy)]
struct KnownGeneration {
    generation: u64,
    session: u64,
}

/// The generations of the held nodes. Without sessions, the table stays empty.
#[derive(Default)]
pub(super) struct Generations(Mutex<HashMap<ObjectId, KnownGeneration>>);

impl Generations {
    /// Keeps the generation of a node that is now held.
    #[inline]
    pub(super) fn add(&self, engine: &impl Engine, id: ObjectId, generation: u64) {
        match engine.session() {
            0 => {}
            session => _ = unpoisoned(self.0.lock()).insert(id, KnownGeneration { generation, session }),
        }
    }

    /// Drops the generation of a node after the end of its last hold.
    #[inline]
    pub(super) fn remove(&self, engine: &impl Engine, id: ObjectId, held: &HoldTable) {
        if engine.session() != 0 {
            // Another thread first takes its hold, and then adds the generation. So `held` has the node
            // already, or that thread adds the generation after this mutex is free.
            let mut known = unpoisoned(self.0.lock());
            if !held.contains(id) {
                known.remove(&id);
            }
        }
    }

    /// Checks that ids still name the held nodes. The caller holds a pin. The check accepts ids that are not
    /// held.
    ///
    /// # Errors
    /// `Stale` if an id names another object or none.
    #[inline]
    pub(super) fn confirm(&self, engine: &impl Engine, ids: &[ObjectId]) -> Result<()> {
        match engine.session() {
            0 => Ok(()),
            session => ids.iter().try_for_each(|&id| self.confirm_in(engine, session, id)),
        }
    }

    fn confirm_in(&self, engine: &impl Engine, session: u64, id: ObjectId) -> Result<()> {
        let known = unpoisoned(self.0.lock()).get(&id).copied();
        let Some(known) = known.filter(|known| known.session != session) else { return Ok(()) };
        // The claims of the client protect the object for the whole session, so one check a session is
        // enough.
        if engine.birth(id)?.generation != known.generation {
            return Err(Error::Stale);
        }
        if let Some(entry) = unpoisoned(self.0.lock()).get_mut(&id)
            && entry.generation == known.generation
        {
            entry.session = session;
        }
        Ok(())
    }
}

impl<E: Engine> Nodes<E> {
    /// True if `session`, the session in which the calling function has begun, has ended. Calls under the
    /// same pin then fail, whatever object they name.
    pub(super) fn has_ended(&self, session: u64) -> bool {
        let engine = self.engine();
        let is_stale = || matches!(engine.birth(engine.root()), Err(Error::Stale));
        session != 0 && (engine.session() != session || is_stale())
    }
}
