//! Assigns redo slots to threads. Counters let readers notice that a redo record is being applied.
//!
//! A writer holds a slot while the slot holds its record. A reader of several words takes no slot. It
//! compares the counters of started and finished records before and after its read, as with a sequence lock.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::epoch::thread_index;
use eyrie_medium::sync::{Mutex, lock, try_lock, wait};

use crate::Result;
use crate::tables::layout::REDO_SLOTS;

/// The locks of the redo slots, and the counters of started and finished applications of records.
#[derive(Default)]
pub(crate) struct RedoSlots {
    slots: [Mutex<()>; REDO_SLOTS],
    started: AtomicU64,
    finished: AtomicU64,
}

impl RedoSlots {
    /// Runs `read`, and repeats it until a run overlapped with no application of a record. Returns the result
    /// of that run. That run saw each Op whole or not at all.
    #[inline(always)]
    pub(crate) fn stable<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let mut attempt = 0_u32;
        loop {
            // `finished` is loaded first, so that equal counts mean that no record was being applied when
            // `started` was loaded. If `started` is still the same after the read, no record was begun during
            // the read.
            let finished = self.finished.load(Ordering::Acquire);
            let started = self.started.load(Ordering::Acquire);
            if started == finished {
                let result = read();
                if self.started.load(Ordering::Acquire) == started {
                    return result;
                }
            }
            wait(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Runs `apply` with a redo slot: the slot at this thread's index if it is free, otherwise any free slot.
    /// Waits if all slots are in use.
    pub(crate) fn with_slot<T>(&self, apply: impl FnOnce(usize) -> T) -> T {
        let first = thread_index() % REDO_SLOTS;
        let free = (0..REDO_SLOTS).map(|n| (first + n) % REDO_SLOTS).find_map(|index| {
            let held = try_lock(&self.slots[index])?;
            Some((index, held))
        });
        // If all slots are in use, the thread waits for the slot at its index.
        let (index, _held) = free.unwrap_or_else(|| (first, lock(&self.slots[first])));
        apply(index)
    }

    /// Runs `apply`, which applies a record. Readers of several words wait until `apply` has returned or
    /// panicked.
    pub(crate) fn applying<T>(&self, apply: impl FnOnce() -> T) -> T {
        struct FinishOnDrop<'a>(&'a AtomicU64);
        impl Drop for FinishOnDrop<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.started.fetch_add(1, Ordering::AcqRel);
        let _finish = FinishOnDrop(&self.finished);
        apply()
    }
}
