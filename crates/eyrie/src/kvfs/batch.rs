//! Batches: several changes of a store in one step.

use std::collections::BTreeMap;

use eyrie_engine::{Engine, Kind, ObjectId, Op};

use super::{Kvfs, check_value};
use crate::Result;
use crate::names::check_key;

/// Puts and erases of one store that are committed together: a crash leaves all of them or none. Of several
/// changes of one key, only the last takes effect.
#[derive(Debug)]
#[must_use = "a batch changes nothing before it is committed"]
pub struct Batch<'a, E: Engine> {
    store: &'a Kvfs<E>,
    /// The new value of each key, or `None` to erase the key.
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
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

    /// Makes all changes of the batch, or none if the call returns an error.
    ///
    /// # Errors
    /// As [`Kvfs::put`]. `EINVAL` if two keys of the batch name one file, as hard links do.
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
        let mut reserved = BTreeMap::new();
        let result = self.reserve(&mut reserved).and_then(|()| self.apply(&reserved));
        if result.is_err() {
            reserved.into_values().for_each(|id| self.store.engine.unreserve(id));
        }
        result
    }

    /// Reserves an id for each key that gets a value. The engine gives back the ids of keys that exist.
    fn reserve<'k>(&'k self, reserved: &mut BTreeMap<&'k [u8], ObjectId>) -> eyrie_engine::Result<()> {
        for key in self.changes.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| key) {
            reserved.insert(key, self.store.engine.reserve(Kind::File)?);
        }
        Ok(())
    }

    fn apply(&self, reserved: &BTreeMap<&[u8], ObjectId>) -> eyrie_engine::Result<()> {
        let &Kvfs { dir, owner, clock, .. } = self.store;
        let time = clock.stamp_of_any();
        let ops: Vec<Op<'_>> = self
            .changes
            .iter()
            .filter_map(|(name, value)| {
                Some(match value {
                    Some(data) => Op::Put { dir, name, id: *reserved.get(&**name)?, owner, data, time },
                    None => Op::Erase { dir, name, time },
                })
            })
            .collect();
        self.store.engine.apply(&Op::Batch { dir, ops: &ops, time })?;
        Ok(())
    }
}
