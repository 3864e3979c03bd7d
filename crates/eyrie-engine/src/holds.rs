//! The table of holds: objects that front-ends keep alive, with an exact count for each.
//!
//! A kernel may remember millions of objects that it has looked up. The table takes some 40 bytes for each
//! held object, and gives memory back as objects are released.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};

use eyrie_medium::sync::{Mutex, lock};

use crate::ObjectId;

/// Number of parts of the table, each with a lock. Two threads rarely need the same part.
const SHARDS: usize = 64;
/// Minimum number of objects for which each part of the table keeps memory when the part shrinks.
const SPARE: usize = 64;

/// Counts of holds, for each object that is held.
pub struct HoldTable {
    shards: Box<[Mutex<HashMap<ObjectId, u64>>]>,
    /// Number of held objects. While it is 0, [`HoldTable::contains`] takes no lock.
    objects: AtomicUsize,
}

impl Default for HoldTable {
    fn default() -> HoldTable {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        HoldTable { shards, objects: AtomicUsize::new(0) }
    }
}

impl HoldTable {
    fn shard(&self, id: ObjectId) -> &Mutex<HashMap<ObjectId, u64>> {
        // Headers lie 256 bytes apart.
        &self.shards[(id.place() >> 8) as usize % SHARDS]
    }

    /// Counts a hold.
    pub fn add(&self, id: ObjectId) {
        let mut shard = lock(self.shard(id));
        let count = shard.entry(id).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.objects.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Removes `count` holds, or all holds if there are fewer. Returns the number of removed holds.
    pub fn remove(&self, id: ObjectId, count: u64) -> u64 {
        let mut shard = lock(self.shard(id));
        let Entry::Occupied(mut entry) = shard.entry(id) else { return 0 };
        let (held, removed) = (*entry.get(), count.min(*entry.get()));
        if removed < held {
            *entry.get_mut() -= removed;
            return removed;
        }
        entry.remove();
        if shard.len() < shard.capacity() / 4 {
            let kept = shard.len() * 2;
            shard.shrink_to(kept.max(SPARE));
        }
        self.objects.fetch_sub(1, Ordering::SeqCst);
        removed
    }

    /// Removes all holds, and returns the held objects with their counts.
    pub fn remove_all(&self) -> Vec<(ObjectId, u64)> {
        let held: Vec<_> = self.shards.iter().flat_map(|shard| std::mem::take(&mut *lock(shard))).collect();
        self.objects.fetch_sub(held.len(), Ordering::SeqCst);
        held
    }

    /// Returns the held objects.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.shards.iter().flat_map(|shard| lock(shard).keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Returns the number of held objects.
    pub fn len(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }

    /// True if no object is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the object is held. A caller that has set the unlinked bit of the object executes a full fence
    /// before this call. Then this call sees a concurrent hold, or the thread that holds the object sees the
    /// bit.
    pub fn contains(&self, id: ObjectId) -> bool {
        self.objects.load(Ordering::SeqCst) != 0 && lock(self.shard(id)).contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn holds_are_counted_for_each_object() {
        let table = HoldTable::default();
        let ids: Vec<ObjectId> = (1..=10_000).map(|place| ObjectId::new(place * 256, Kind::File)).collect();
        for &id in &ids {
            assert!(!table.contains(id));
            table.add(id);
            table.add(id);
        }
        for &id in &ids {
            assert!(table.remove(id, 1) == 1 && table.contains(id));
            assert!(table.remove(id, 5) == 1 && !table.contains(id));
            assert_eq!(table.remove(id, 1), 0, "there is no hold left");
        }
        assert!(table.is_empty());
        table.add(ids[0]);
        assert_eq!((table.len(), table.remove_all()), (1, vec![(ids[0], 1)]));
        assert!(table.is_empty());
        let kept: usize = table.shards.iter().map(|shard| lock(shard).capacity()).sum();
        assert!(kept <= SHARDS * 4 * SPARE, "an empty table keeps memory for {kept} objects");
    }
}
