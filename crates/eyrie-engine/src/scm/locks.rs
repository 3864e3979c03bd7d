//! Locks of writers: a fixed table of mutexes, striped by object id.
//!
//! With one call, an Op locks all objects that it changes or creates, in the order of the table. Therefore no
//! two Ops deadlock. Each stripe also counts the Ops that ended under it. A reader of several words compares
//! the count before and after its reads, and so detects an Op that ended meanwhile.
//!
//! An Op that changes an entry must lock the object that the entry names. The Op does not know this object
//! before a look-up. Therefore the Op [peeks](Scm::peek) without a lock, then locks, and then
//! [confirms](Scm::confirm) that the entry is unchanged.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::sync::{Mutex, MutexGuard, lock, prefetch, try_lock, wait};
use smallvec::SmallVec;

use super::Scm;
use crate::id::spread;
use crate::object::collection::{Collection, FoundEntry};
use crate::object::header::{Cold, Hot};
use crate::{Error, ObjectId, Result};

/// Number of stripes. The number is so large that two Ops on different objects rarely need the same stripe.
pub(super) const STRIPES: usize = 4096;
/// Maximum number of attempts to get a lock before a reader continues without it. These attempts take a few
/// microseconds.
const ATTEMPTS: u32 = 100;

#[derive(Default)]
/// A mutex, and the number of Ops that ended under it.
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

/// The locks that one Op holds. A drop of this value ends the Op.
pub(super) struct HeldLocks<'a> {
    stripes: SmallVec<[(&'a Stripe, MutexGuard<'a, ()>); 4]>,
}

/// Returns the stripe of an object.
#[inline]
pub(super) fn stripe_of(id: ObjectId) -> usize {
    spread(id, STRIPES)
}

impl Locks {
    /// Locks an object for a reader. Returns `None` if other threads hold the lock during all attempts. The
    /// reader changes no object, so it does not count as an Op.
    pub(super) fn try_hold(&self, id: ObjectId) -> Option<MutexGuard<'_, ()>> {
        (0..ATTEMPTS).find_map(|attempt| {
            let held = try_lock(&self.stripes[stripe_of(id)].mutex);
            if held.is_none() {
                wait(attempt);
            }
            held
        })
    }

    /// Waits for the Op that holds the lock of an object, if such an Op exists. The caller changes no object,
    /// so it does not count as an Op.
    pub(super) fn wait_for(&self, id: ObjectId) {
        drop(lock(&self.stripes[stripe_of(id)].mutex));
    }

    /// Locks these objects, in the order of their stripes.
    pub(super) fn hold(&self, ids: &[ObjectId]) -> HeldLocks<'_> {
        let mut held = HeldLocks { stripes: SmallVec::new() };
        // Most Ops lock one or two objects and need no sorting.
        match *ids {
            [id] => {
                held.add(&self.stripes[stripe_of(id)]);
                return held;
            }
            [one, other] => {
                let (one, other) = (stripe_of(one), stripe_of(other));
                prefetch(&self.stripes[one.max(other)]);
                held.add(&self.stripes[one.min(other)]);
                if one != other {
                    held.add(&self.stripes[one.max(other)]);
                }
                return held;
            }
            _ => {}
        }
        let mut indices: SmallVec<[usize; 8]> = SmallVec::new();
        for &id in ids {
            let index = stripe_of(id);
            prefetch(&self.stripes[index]);
            indices.push(index);
        }
        indices.sort_unstable();
        // Two objects may share a stripe. The mutex of a stripe can be locked only once.
        indices.dedup();
        for index in indices {
            held.add(&self.stripes[index]);
        }
        held
    }

    /// Returns the number of Ops that have ended on this object and on the other objects of its stripe.
    pub(super) fn ended(&self, id: ObjectId) -> u64 {
        self.stripes[stripe_of(id)].ended.load(Ordering::Acquire)
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

    /// Ends the Op for one object, unless the object `kept` shares its stripe. The Op has committed, and its
    /// remaining work does not concern the object. Other Ops on the object need not wait for this work.
    pub(super) fn release(&mut self, locks: &'a Locks, id: ObjectId, kept: ObjectId) {
        let released = &locks.stripes[stripe_of(id)];
        let place = self.stripes.iter().position(|(stripe, _)| std::ptr::eq(*stripe, released));
        if stripe_of(id) != stripe_of(kept)
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
    pub(super) hot: Hot,
    /// Version of the directory's times. New stamps of bucket pages get this version.
    pub(super) times_version: u32,
    /// True if new objects inherit ACLs.
    pub(super) has_default_acl: bool,
}

/// An entry that was looked up without a lock.
pub(super) struct PeekedEntry {
    /// Number of Ops on the directory that had ended before the look-up.
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
}

impl Scm {
    /// Returns the state of a directory. The caller holds the directory's lock. Refuses a removed directory
    /// that is still open, because such a directory takes no entries.
    #[inline]
    pub(super) fn parent(&self, id: ObjectId) -> Result<LockedParent> {
        let parent = self.parent_even_if_removed(id)?;
        if parent.hot.selector.unlinked() { Err(Error::NotFound) } else { Ok(parent) }
    }

    /// Returns the state of a directory, which may be a removed one that is still open. The caller holds the
    /// directory's lock.
    #[inline]
    pub(super) fn parent_even_if_removed(&self, id: ObjectId) -> Result<LockedParent> {
        if !id.is_directory() {
            return Err(Error::NotDirectory);
        }
        let (hot, cold) = self.header(id)?.hot_and_cold(self.medium())?;
        let has_default_acl = cold.flags & Cold::DEFAULT_ACL != 0;
        Ok(LockedParent { id, hot, times_version: cold.times_version, has_default_acl })
    }

    /// Looks up the entry of `name` without a lock. The Op then locks the directory and the object, and
    /// [confirms](Scm::confirm) the entry.
    pub(super) fn peek(&self, dir: ObjectId, name: &[u8]) -> Result<PeekedEntry> {
        let ended = self.locks.ended(dir);
        Ok(PeekedEntry { ended, found: self.volume.read_entry(dir, name)? })
    }

    /// Returns the peeked entry as it is under the directory's lock. Returns `None` if the name now refers to
    /// another object, or if the entry was added or removed since the look-up. `Some(None)` means that the
    /// name still has no entry.
    #[inline]
    pub(super) fn confirm(
        &self,
        parent: &LockedParent,
        name: &[u8],
        peeked: &PeekedEntry,
    ) -> Result<Option<Option<FoundEntry>>> {
        // The caller holds the lock, so no other Op on the directory is running. If none has ended since the
        // look-up either, the entry is unchanged, and no second look-up is needed.
        if self.locks.ended(parent.id) == peeked.ended {
            return Ok(Some(peeked.found));
        }
        // In a large directory, the other Ops have probably changed other pages.
        if let Some(found) = &peeked.found
            && Collection::new(&self.volume, parent.hot.root).is_unchanged(name, found)?
        {
            return Ok(Some(peeked.found));
        }
        let found = self.find(&parent.hot, name)?;
        Ok((found.map(|found| found.id) == peeked.id()).then_some(found))
    }
}
