//! Locks of writers: a fixed table of mutexes, striped by object id.
//!
//! An Op locks all objects that it changes or creates at once, in the order of the table, so that no two
//! Ops deadlock. Each stripe also counts the Ops that ended under it. A reader of several words compares
//! the count before and after, and so notices an Op that ended meanwhile.
//!
//! An Op that changes an entry must know which object the entry names before it can lock that object. So it
//! [peeks](Scm::peek), locks, and [confirms](Scm::confirm) that the entry is the same.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::sync::{Mutex, MutexGuard, lock, prefetch, try_lock, wait};
use smallvec::SmallVec;

use super::Scm;
use crate::object::collection::FoundEntry;
use crate::object::header::Hot;
use crate::{Error, ObjectId, Result};

/// Stripes of the table. So many that two Ops of different objects seldom meet.
pub(super) const STRIPES: usize = 4096;
/// Attempts to get a lock before a reader continues without it: a few microseconds.
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

/// The locks that one Op holds. Dropping them ends the Op.
pub(super) struct HeldLocks<'a> {
    stripes: SmallVec<[(&'a Stripe, MutexGuard<'a, ()>); 4]>,
}

/// Spreads ids over a table of `len` places, a power of two. Ids are multiples of 64 plus a kind, so the
/// low bits are shifted out and the rest is multiplied with 2^64 divided by the golden ratio.
pub(super) fn spread(id: ObjectId, len: usize) -> usize {
    let mixed = (id.place() >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize & (len - 1)
}

/// The stripe of an object.
#[inline]
pub(super) fn stripe_of(id: ObjectId) -> usize {
    spread(id, STRIPES)
}

impl Locks {
    /// Locks an object for a reader, unless an Op keeps the lock. The reader changes nothing, so it does
    /// not count as an Op.
    pub(super) fn try_hold(&self, id: ObjectId) -> Option<MutexGuard<'_, ()>> {
        (0..ATTEMPTS).find_map(|attempt| {
            let held = try_lock(&self.stripes[stripe_of(id)].mutex);
            if held.is_none() {
                wait(attempt);
            }
            held
        })
    }

    /// Locks these objects.
    pub(super) fn hold(&self, ids: &[ObjectId]) -> HeldLocks<'_> {
        let mut held = HeldLocks { stripes: SmallVec::new() };
        // Most Ops lock one object, and need no sorting.
        if let [id] = ids {
            held.add(&self.stripes[stripe_of(*id)]);
            return held;
        }
        let mut indices: SmallVec<[usize; 8]> = SmallVec::new();
        for &id in ids {
            let index = stripe_of(id);
            prefetch(&self.stripes[index]);
            indices.push(index);
        }
        indices.sort_unstable();
        // Two objects may share a stripe, whose mutex can be locked only once.
        indices.dedup();
        for index in indices {
            held.add(&self.stripes[index]);
        }
        held
    }

    /// Number of Ops on this object, or on others of its stripe, that have ended.
    pub(super) fn ended(&self, id: ObjectId) -> u64 {
        self.stripes[stripe_of(id)].ended.load(Ordering::Acquire)
    }
}

impl<'a> HeldLocks<'a> {
    #[inline]
    fn add(&mut self, stripe: &'a Stripe) {
        self.stripes.push((stripe, lock(&stripe.mutex)));
    }
}

impl Drop for HeldLocks<'_> {
    fn drop(&mut self) {
        for (stripe, _) in &self.stripes {
            // Only the holder of the mutex stores the count. Release ordering shows the Op's changes to a
            // reader that sees the new count.
            stripe.ended.store(stripe.ended.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }
}

/// A locked directory whose entries are about to change.
#[derive(Clone, Copy)]
pub(super) struct LockedParent {
    pub(super) id: ObjectId,
    pub(super) hot: Hot,
    /// The version of the directory's times for which its bucket times are valid.
    pub(super) times_version: u32,
}

/// An entry that was looked up without a lock.
pub(super) struct PeekedEntry {
    /// Number of Ops on the directory that had ended before the look-up.
    ended: u64,
    found: Option<FoundEntry>,
}

impl PeekedEntry {
    /// The object that the entry names, if the entry exists.
    pub(super) fn id(&self) -> Option<ObjectId> {
        self.found.map(|found| found.id)
    }
}

impl Scm {
    /// The state of a directory whose lock is held. A removed directory that is still open takes no
    /// entries.
    pub(super) fn parent(&self, id: ObjectId) -> Result<LockedParent> {
        if !id.is_directory() {
            return Err(Error::NotDirectory);
        }
        let (hot, cold) = self.header(id)?.hot_and_cold(self.medium())?;
        if hot.selector.unlinked() {
            return Err(Error::NotFound);
        }
        Ok(LockedParent { id, hot, times_version: cold.times_version })
    }

    /// The entry of `name`, looked up without a lock. The Op then locks directory and object, and
    /// [confirms](Scm::confirm) the entry.
    pub(super) fn peek(&self, dir: ObjectId, name: &[u8]) -> Result<PeekedEntry> {
        let ended = self.locks.ended(dir);
        Ok(PeekedEntry { ended, found: self.read_entry(dir, name)? })
    }

    /// The peeked entry as it is under the directory's lock; `None` if it names another object now.
    #[inline]
    pub(super) fn confirm(
        &self,
        parent: &LockedParent,
        name: &[u8],
        peeked: &PeekedEntry,
    ) -> Result<Option<Option<FoundEntry>>> {
        // No Op on the directory ended since the look-up, and none is running: the entry is unchanged, and
        // no second look-up is needed.
        if self.locks.ended(parent.id) == peeked.ended {
            return Ok(Some(peeked.found));
        }
        let found = self.find(&parent.hot, name)?;
        Ok((found.map(|found| found.id) == peeked.id()).then_some(found))
    }
}
