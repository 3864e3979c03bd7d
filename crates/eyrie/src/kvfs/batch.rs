//! Batches: several changes of a store in one step.

use std::collections::BTreeMap;

use eyrie_engine::{Engine, Kind, ObjectId, Op};
use eyrie_medium::epoch;

use super::{Kvfs, check_key, check_value};
use crate::Result;

/// Puts and erases of one store that are committed together: a crash leaves all of them or none. Of several
/// changes of one key, only the last counts.
#[derive(Debug)]
#[must_use = "a batch changes nothing before it is committed"]
pub struct Batch<'a, E: Engine> {
    store: &'a Kvfs<E>,
    /// The new value of each key, or `None` to erase the key.
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// A reserved id, and the object that its key named before.
struct Reserved {
    id: ObjectId,
    before: Option<ObjectId>,
}

impl<E: Engine> Kvfs<E> {
    /// Makes an empty batch. [`Batch::commit`] makes its changes.
    pub fn batch(&self) -> Batch<'_, E> {
        Batch { store: self, changes: BTreeMap::new() }
    }
}

impl<E: Engine> Batch<'_, E> {
    /// Sets the value of `key`.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.insert(key.into(), Some(value.into()));
        self
    }

    /// Removes `key`, if it exists.
    pub fn erase(&mut self, key: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.insert(key.into(), None);
        self
    }

    /// Returns the number of keys that the batch changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns true if the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Makes all changes, or none if it returns an error.
    ///
    /// # Errors
    /// As [`Kvfs::put`].
    pub fn commit(self) -> Result<()> {
        for (key, value) in &self.changes {
            check_key(key, "batch")?;
            check_value(value.as_deref().unwrap_or_default(), "batch")?;
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        self.store.call("batch", || self.attempt())
    }

    fn attempt(&self) -> eyrie_engine::Result<()> {
        // While the pin is held, no freed id is reused. So if a key has the same id before and after the
        // commit, no other thread has replaced the object of that key.
        let _pin = epoch::pin();
        let mut reserved = BTreeMap::new();
        let result = self.reserve(&mut reserved).and_then(|()| self.apply(&reserved));
        let failed = result.is_err();
        for (key, Reserved { id, before }) in reserved {
            // The engine does not report which puts of a batch used their ids. A put of an existing key keeps
            // the old id. If the key no longer has the old id, the put may have used the new id, so the new
            // id is not given back. If the put did not use it, the new id stays reserved until the volume is
            // closed.
            let unused =
                before.is_some() && self.store.engine.lookup(self.store.dir, key).ok() == Some(before);
            if failed || unused {
                self.store.engine.unreserve(id);
            }
        }
        result
    }

    fn reserve<'k>(&'k self, reserved: &mut BTreeMap<&'k [u8], Reserved>) -> eyrie_engine::Result<()> {
        let engine = &self.store.engine;
        for key in self.changes.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| key) {
            let before = engine.lookup(self.store.dir, key)?;
            reserved.insert(key, Reserved { id: engine.reserve(Kind::File)?, before });
        }
        Ok(())
    }

    fn apply(&self, reserved: &BTreeMap<&[u8], Reserved>) -> eyrie_engine::Result<()> {
        let &Kvfs { dir, owner, clock, .. } = self.store;
        let time = clock.stamp_of_any();
        let ops: Vec<Op<'_>> = self
            .changes
            .iter()
            .filter_map(|(name, value)| {
                Some(match value {
                    Some(data) => Op::Put { dir, name, id: reserved.get(&**name)?.id, owner, data, time },
                    None => Op::Erase { dir, name, time },
                })
            })
            .collect();
        self.store.engine.apply(&Op::Batch { dir, ops: &ops, time })?;
        Ok(())
    }
}
