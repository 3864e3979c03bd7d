//! Locks of writers: a fixed table of mutexes, striped by object id.
//!
//! A directory has a lock for each shard of its entries ([`SHARDS`]), each in a stripe of its own. An Op on
//! an entry holds the lock of the entry's shard. An Op on the directory itself, such as a change of its
//! attributes or its removal, holds the locks of all shards. Therefore the holder of any shard may rely on
//! the directory's header. Growth moves entries of one bucket only, and holds the lock of the shard of this
//! bucket. Therefore the holder of a shard may rely on the buckets of the shard. Growth that changes the
//! shard of an entry holds the locks of all shards.
//!
//! With one call, an Op locks all objects that it changes or creates, in the order of the table. Growth may
//! need one more lock later, but the Op does not wait for this lock. Therefore no two Ops deadlock. Each
//! stripe also counts the Ops that ended under it. An Op that has looked entries up without locks compares
//! the count under its locks with the count from before the look-ups. So it detects another Op that ended
//! meanwhile.
//!
//! An Op that changes an entry must lock the object that the entry names. Before a look-up, the Op knows
//! neither this object nor the shard of the entry. Therefore the Op [peeks](Scm::peek) without a lock, then
//! locks, and then [confirms](Scm::confirm) that the entry and its shard are unchanged.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, MutexGuard, interleave, lock, prefetch, try_lock, wait};
use smallvec::SmallVec;

use super::Scm;
use crate::object::collection::{Collection, FoundEntry, SHARDS};
use crate::object::header::{Cold, Hot};
use crate::spread::spread;
use crate::{Error, ObjectId, Result};

/// Number of stripes. The number is so large that two Ops on different objects rarely need the same stripe.
pub(super) const STRIPES: usize = 4096;
/// Maximum number of attempts to get a lock before a reader continues without it. These attempts take a few
/// microseconds.
const ATTEMPTS: u32 = 100;

/// A mutex, and the number of Ops that ended under it.
#[derive(Default)]
struct Stripe {
    mutex: Mutex<()>,
    ended: AtomicU64,
}

/// The table of stripes.
pub(super) struct Locks {
    stripes: Box<[Stripe]>,
}

impl Default for Locks {
    fn default() -> Locks {
        Locks { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }
}

/// The lock that an Op on an entry of a directory needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryLock {
    /// The lock of the shard with this stripe. This lock is enough for a change of the entry.
    Shard(usize),
    /// The locks of all shards. The Op may also make the directory grow.
    Directory(ObjectId),
}

impl EntryLock {
    /// Returns the shard of `dir` whose lock this is, or `None` if it is the lock of all shards.
    #[inline]
    pub(super) fn shard(self, dir: ObjectId) -> Option<usize> {
        let EntryLock::Shard(stripe) = self else { return None };
        Some((stripe + STRIPES - stripe_of(dir)) % STRIPES / (STRIPES / SHARDS))
    }
}

/// The locks that one Op holds. A drop of this value ends the Op.
pub(super) struct HeldLocks<'a> {
    /// The list is on the stack up to this length: the shards of a new directory, its entry, and one more
    /// lock.
    stripes: SmallVec<[(&'a Stripe, MutexGuard<'a, ()>); SHARDS + 2]>,
}

/// Returns the stripe of an object. For a directory, this is the stripe of its first shard.
#[inline]
pub(super) fn stripe_of(id: ObjectId) -> usize {
    spread(id, STRIPES)
}

/// Returns the stripe of a shard of a directory. The stripes of the shards are far apart in the table, so
/// that no two of them are in one cache line.
#[inline]
fn stripe_of_shard(dir: ObjectId, shard: usize) -> usize {
    (stripe_of(dir) + shard * (STRIPES / SHARDS)) % STRIPES
}

/// Returns the stripes of an object: one stripe, or those of all shards of a directory.
fn stripes_of(id: ObjectId) -> impl Iterator<Item = usize> {
    let has_shards = id.is_directory() && !broken(SafetyRule::DirectoryOpLocksEveryShard);
    (0..if has_shards { SHARDS } else { 1 }).map(move |shard| stripe_of_shard(id, shard))
}

impl Locks {
    /// Locks an object for a reader. Returns `None` if other threads hold the lock during all attempts. The
    /// reader changes no object, so it does not count as an Op.
    pub(super) fn try_hold(&self, id: ObjectId) -> Option<SmallVec<[MutexGuard<'_, ()>; SHARDS]>> {
        let try_one = |index: usize| {
            (0..ATTEMPTS).find_map(|attempt| {
                let held = try_lock(&self.stripes[index].mutex);
                if held.is_none() {
                    wait(attempt);
                }
                held
            })
        };
        stripes_of(id).map(try_one).collect()
    }

    /// Waits for the Op that holds the lock of an object, if such an Op exists. The caller changes no object,
    /// so it does not count as an Op.
    pub(super) fn wait_for(&self, id: ObjectId) {
        stripes_of(id).for_each(|index| drop(lock(&self.stripes[index].mutex)));
    }

    /// Waits for each Op that holds a lock.
    pub(super) fn wait_for_all(&self) {
        self.stripes.iter().for_each(|stripe| drop(lock(&stripe.mutex)));
    }

    /// Locks all objects.
    pub(super) fn hold_everything(&self) -> HeldLocks<'_> {
        let mut held = HeldLocks { stripes: SmallVec::new() };
        self.stripes.iter().for_each(|stripe| held.add(stripe));
        held
    }

    /// Locks these objects.
    #[inline]
    pub(super) fn hold(&self, ids: &[ObjectId]) -> HeldLocks<'_> {
        match *ids {
            // Most Ops on one object need no sorting.
            [id] if !id.is_directory() => {
                let mut held = HeldLocks { stripes: SmallVec::new() };
                held.add(&self.stripes[stripe_of(id)]);
                held
            }
            _ => self.hold_all(&[], ids),
        }
    }

    /// Locks an entry and an object.
    #[inline]
    pub(super) fn hold_entry(&self, entry: EntryLock, id: ObjectId) -> HeldLocks<'_> {
        match entry {
            EntryLock::Shard(one) if !id.is_directory() => {
                let other = stripe_of(id);
                let mut held = HeldLocks { stripes: SmallVec::new() };
                // The cache misses of the two stripes then overlap.
                prefetch(&self.stripes[one.max(other)]);
                held.add(&self.stripes[one.min(other)]);
                if one != other {
                    held.add(&self.stripes[one.max(other)]);
                }
                held
            }
            _ => self.hold_all(&[entry], &[id]),
        }
    }

    /// Locks these entries and objects, in the order of their stripes.
    pub(super) fn hold_all(&self, entries: &[EntryLock], ids: &[ObjectId]) -> HeldLocks<'_> {
        let mut held = HeldLocks { stripes: SmallVec::new() };
        let mut indices: SmallVec<[usize; 16]> = SmallVec::new();
        for &entry in entries {
            match entry {
                EntryLock::Shard(index) => indices.push(index),
                EntryLock::Directory(dir) => stripes_of(dir).for_each(|index| indices.push(index)),
            }
        }
        for &id in ids {
            stripes_of(id).for_each(|index| indices.push(index));
        }
        indices.iter().for_each(|&index| prefetch(&self.stripes[index]));
        indices.sort_unstable();
        // Two objects may share a stripe. The mutex of a stripe can be locked only once.
        indices.dedup();
        indices.iter().for_each(|&index| held.add(&self.stripes[index]));
        held
    }

    /// Locks one more shard of `dir` for an Op that holds the stripe `held`. Returns `None` if another Op
    /// holds the shard. The Op does not take this lock in the order of the table, so a wait could be a
    /// deadlock. If `held` is the stripe of this shard, the result is an empty set of locks.
    pub(super) fn try_hold_shard(&self, dir: ObjectId, shard: usize, held: usize) -> Option<HeldLocks<'_>> {
        let index = stripe_of_shard(dir, shard);
        let mut more = HeldLocks { stripes: SmallVec::new() };
        if index != held {
            let stripe = &self.stripes[index];
            more.stripes.push((stripe, try_lock(&stripe.mutex)?));
        }
        Some(more)
    }

    /// Returns the number of Ops that have ended on this object and on the other objects of its stripes.
    pub(super) fn ended(&self, id: ObjectId) -> u64 {
        stripes_of(id).map(|index| self.ended_under(index)).fold(0, u64::wrapping_add)
    }

    /// Returns the number of Ops that have ended under a stripe.
    #[inline]
    fn ended_under(&self, index: usize) -> u64 {
        interleave();
        self.stripes[index].ended.load(Ordering::Acquire)
    }
}

impl Stripe {
    /// Counts one more Op that has ended. The caller holds the mutex.
    fn end(&self) {
        // Only the holder of the mutex stores the count. With release ordering, a reader that sees the new
        // count also sees the changes of the Op.
        self.ended.store(self.ended.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl<'a> HeldLocks<'a> {
    #[inline]
    fn add(&mut self, stripe: &'a Stripe) {
        self.stripes.push((stripe, lock(&stripe.mutex)));
    }

    /// Unlocks the shard of an entry, and counts the Op as ended there. Does nothing if the object `kept`
    /// shares the stripe of the shard, or if `entry` is the lock of all shards. The Op has committed, and its
    /// remaining work concerns only the object `kept`. Other Ops on the shard need not wait for this work.
    pub(super) fn release(&mut self, locks: &'a Locks, entry: EntryLock, kept: ObjectId) {
        let EntryLock::Shard(index) = entry else { return };
        let released = &locks.stripes[index];
        let place = self.stripes.iter().position(|(stripe, _)| std::ptr::eq(*stripe, released));
        if stripes_of(kept).all(|stripe| stripe != index)
            && let Some(place) = place
        {
            let (stripe, guard) = self.stripes.swap_remove(place);
            stripe.end();
            drop(guard);
        }
    }
}

impl Drop for HeldLocks<'_> {
    fn drop(&mut self) {
        self.stripes.iter().for_each(|(stripe, _)| stripe.end());
    }
}

/// A locked directory whose entries will change.
#[derive(Clone, Copy)]
pub(super) struct LockedParent {
    pub(super) id: ObjectId,
    /// The lock that the Op holds.
    pub(super) lock: EntryLock,
    pub(super) hot: Hot,
    /// Version of the directory's times. New stamps of bucket pages get this version.
    pub(super) times_version: u32,
    /// True if new objects inherit ACLs.
    pub(super) has_default_acl: bool,
    /// Project id that new objects inherit, or 0. Always 0 in a volume that counts no usage.
    pub(super) project: u32,
}

/// An entry that was looked up without a lock.
pub(super) struct PeekedEntry {
    /// Stripe of the entry's shard.
    stripe: usize,
    /// Number of Ops on the shard that had ended before the look-up.
    ended: u64,
    found: Option<FoundEntry>,
}

impl PeekedEntry {
    #[cfg(test)]
    pub(super) fn entry(&self) -> Option<FoundEntry> {
        self.found
    }

    /// Returns the object that the entry names, if the entry exists.
    pub(super) fn id(&self) -> Option<ObjectId> {
        self.found.map(|found| found.id)
    }

    /// Returns the lock of the entry.
    pub(super) fn lock(&self) -> EntryLock {
        EntryLock::Shard(self.stripe)
    }
}

impl Scm {
    /// Returns the state of a directory. The caller holds `lock`, the lock of an entry of the directory.
    /// Refuses a removed directory that is still open, because such a directory takes no entries.
    #[inline]
    pub(super) fn parent(&self, id: ObjectId, lock: EntryLock) -> Result<LockedParent> {
        let parent = self.parent_even_if_removed(id, lock)?;
        if parent.hot.selector.unlinked() { Err(Error::NotFound) } else { Ok(parent) }
    }

    /// Returns the state of a directory, which may be a removed one that is still open. The caller holds
    /// `lock`.
    #[inline]
    pub(super) fn parent_even_if_removed(&self, id: ObjectId, lock: EntryLock) -> Result<LockedParent> {
        if !id.is_directory() {
            return Err(Error::NotDirectory);
        }
        let (hot, cold) = self.header(id)?.hot_and_cold(self.medium())?;
        let has_default_acl = cold.flags & Cold::DEFAULT_ACL != 0;
        let project = if cold.project != 0 && self.has_quotas() { cold.project } else { 0 };
        Ok(LockedParent { id, lock, hot, times_version: cold.times_version, has_default_acl, project })
    }

    /// Looks up the entry of `name` without a lock. The Op then locks the entry and the object, and
    /// [confirms](Scm::confirm) the entry.
    #[inline]
    pub(super) fn peek(&self, dir: ObjectId, name: &[u8]) -> Result<PeekedEntry> {
        let (mut stripe, mut ended) = (0, 0);
        let found = self.volume.read_entry_in_shard(dir, name, |shard| {
            stripe = stripe_of_shard(dir, shard);
            ended = self.locks.ended_under(stripe);
        })?;
        Ok(PeekedEntry { stripe, ended, found })
    }

    /// Returns the peeked entry as it is under the lock of the parent. Returns `None` if the name now refers
    /// to another object, if the entry was added or removed since the look-up, or if the Op holds the lock of
    /// another shard. `Some(None)` means that the name still has no entry.
    #[inline]
    pub(super) fn confirm(
        &self,
        parent: &LockedParent,
        name: &[u8],
        peeked: &PeekedEntry,
    ) -> Result<Option<Option<FoundEntry>>> {
        // The caller holds the lock, so no other Op on the shard is running. If none has ended since the
        // look-up either, the entry is unchanged, and no second look-up is needed. Growth that moves the
        // entry or changes its shard holds this lock, so the name is also still in this shard.
        if self.locks.ended_under(peeked.stripe) == peeked.ended {
            return Ok(Some(peeked.found));
        }
        let collection = Collection::new(&self.volume, parent.hot.root);
        if let EntryLock::Shard(stripe) = parent.lock
            && stripe_of_shard(parent.id, collection.shard(name)?) != stripe
            && !broken(SafetyRule::EntryIsInItsLockedShard)
        {
            return Ok(None);
        }
        // In a large directory, the other Ops have probably changed other pages.
        if let Some(found) = &peeked.found
            && collection.is_unchanged(name, found)?
        {
            return Ok(Some(peeked.found));
        }
        let found = self.find(&parent.hot, name)?;
        Ok((found.map(|found| found.id) == peeked.id()).then_some(found))
    }
}
