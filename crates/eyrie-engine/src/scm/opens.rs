//! Open counts, and objects that lost their last name while open.
//!
//! Counts are striped by object id: an orphan whose stripe is shared with another open object waits for both.
//!
//! Opening and unlinking agree without a lock: an opener counts first and then looks whether the object is marked
//! unlinked; an unlinker marks first and then looks at the count. So one of them sees the other.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use eyrie_medium::sync::{Mutex, lock, prefetch};

use super::locks::spread;
use crate::ObjectId;

const STRIPES: usize = 1 << 16;

/// The table.
pub struct Opens {
    counts: Box<[AtomicU32]>,
    orphans: Mutex<Vec<ObjectId>>,
    orphan_count: AtomicUsize,
}

impl Default for Opens {
    fn default() -> Opens {
        Opens {
            counts: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(),
            orphans: Mutex::new(Vec::new()),
            orphan_count: AtomicUsize::new(0),
        }
    }
}

impl Opens {
    fn count(&self, id: ObjectId) -> &AtomicU32 {
        &self.counts[spread(id, STRIPES)]
    }

    /// Asks the processor for the count, which [`Opens::is_closed`] is soon asked for.
    #[inline]
    pub fn prefetch(&self, id: ObjectId) {
        prefetch(self.count(id));
    }

    /// Counts an open; the caller then looks whether the object is unlinked.
    pub fn add(&self, id: ObjectId) {
        let count = self.count(id);
        prefetch(count);
        count.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a close; whether orphans may be waiting for it.
    #[must_use]
    pub fn remove(&self, id: ObjectId) -> bool {
        let before = self.count(id).fetch_sub(1, Ordering::SeqCst);
        before == 1 && self.orphan_count.load(Ordering::SeqCst) != 0
    }

    /// Whether nobody has the object open; asked after it was marked unlinked.
    pub fn is_closed(&self, id: ObjectId) -> bool {
        // An exchange, so that the mark is visible before the count is read.
        self.count(id).fetch_add(0, Ordering::SeqCst) == 0
    }

    /// Keeps an unlinked object until its last close.
    pub fn add_orphan(&self, id: ObjectId) {
        let mut orphans = lock(&self.orphans);
        orphans.push(id);
        self.orphan_count.store(orphans.len(), Ordering::SeqCst);
    }

    /// Whether somebody has this unlinked object open: then whoever has counted an open of it keeps it too.
    pub fn is_orphan(&self, id: ObjectId) -> bool {
        lock(&self.orphans).contains(&id)
    }

    /// The unlinked objects that somebody has open.
    pub fn orphans(&self) -> Vec<ObjectId> {
        lock(&self.orphans).clone()
    }

    /// Takes one orphan, if nobody has it open any more.
    pub fn take_if_closed(&self, id: ObjectId) -> bool {
        let mut orphans = lock(&self.orphans);
        let Some(index) = orphans.iter().position(|&orphan| orphan == id) else { return false };
        if !self.is_closed(id) {
            return false;
        }
        orphans.swap_remove(index);
        self.orphan_count.store(orphans.len(), Ordering::SeqCst);
        true
    }

    /// Takes the orphans that nobody has open any more.
    pub fn take_closed(&self) -> Vec<ObjectId> {
        let mut orphans = lock(&self.orphans);
        let (closed, open) = orphans.drain(..).partition(|&id| self.is_closed(id));
        *orphans = open;
        self.orphan_count.store(orphans.len(), Ordering::SeqCst);
        closed
    }
}
