//! Ids that outlive a session with a service. In the next session, the id of an object that was removed may
//! name another object. So each id is kept with the generation of its object, and the first use in a new
//! session compares the generations.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::{Engine, Error, ListedEntry, ObjectId, Result};
use eyrie_medium::epoch;
use eyrie_medium::rules::{SafetyRule, broken};

/// The id of an object that its holder keeps open.
#[derive(Debug)]
pub(crate) struct KeptId {
    id: ObjectId,
    /// The [session](Engine::session) in which the id was last known to name the object.
    session: AtomicU64,
    /// The generation of the object. 0 if the engine has no sessions.
    generation: u64,
}

impl KeptId {
    /// Keeps the id of an object that the engine has just opened.
    ///
    /// # Errors
    /// `Stale` if the session has ended.
    #[inline]
    pub(crate) fn new(engine: &impl Engine, id: ObjectId) -> Result<KeptId> {
        let session = engine.session();
        let generation = if session == 0 { 0 } else { engine.generation(id)? };
        Ok(KeptId { id, session: AtomicU64::new(session), generation })
    }

    /// Returns the id, without a check that it still names the object.
    pub(crate) fn raw(&self) -> ObjectId {
        self.id
    }

    /// Returns the generation of the object. 0 if the engine has no sessions.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the id. If the session has changed, first checks that the id still names the object.
    ///
    /// # Errors
    /// `Stale` if the id names another object or none in the present session.
    #[inline]
    pub(crate) fn get(&self, engine: &impl Engine) -> Result<ObjectId> {
        let session = engine.session();
        if session == self.session.load(Ordering::Relaxed) {
            Ok(self.id)
        } else {
            self.confirm(engine, session)
        }
    }

    #[cold]
    fn confirm(&self, engine: &impl Engine, session: u64) -> Result<ObjectId> {
        // The claims of the client protect the object for the whole session, so one check a session is
        // enough.
        let is_same = engine.generation(self.id)? == self.generation;
        if !is_same && !broken(SafetyRule::KeptIdIsCompared) {
            return Err(Error::Stale);
        }
        self.session.store(session, Ordering::Relaxed);
        Ok(self.id)
    }
}

/// Lists a directory as [`Engine::list`] does, under a pin. If the session changes, the listing goes on after
/// the last visited entry, in the directory that `dir` returns in the new session. A caller that already
/// holds a pin gets `Stale` instead, because all ids under one pin belong to one session.
#[inline]
pub(crate) fn list<E: Engine, R>(
    engine: &E,
    dir: impl Fn() -> std::result::Result<ObjectId, R>,
    cookie: u64,
    visit: &mut dyn FnMut(ListedEntry<'_>) -> bool,
) -> std::result::Result<(), R>
where
    R: From<Error>,
{
    let mut next = cookie;
    loop {
        let pin = epoch::pin();
        let session = engine.session();
        let listed = engine.list(dir()?, next, &mut |entry| {
            next = entry.next;
            visit(entry)
        });
        drop(pin);
        match listed {
            Err(Error::Stale) if engine.session() != session => {}
            listed => return Ok(listed?),
        }
    }
}
