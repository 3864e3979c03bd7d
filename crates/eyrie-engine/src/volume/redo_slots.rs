//! Assigns redo slots to threads. A writer holds the lock of a slot while its record is in the slot. A reader
//! of several words takes no slot: it compares counts of the [board](crate::board).

use eyrie_medium::epoch::thread_index;
use eyrie_medium::sync::{Mutex, lock, try_lock};

use crate::tables::layout::REDO_SLOTS;

/// The locks of the redo slots.
#[derive(Default)]
pub(crate) struct RedoSlots {
    slots: [Mutex<()>; REDO_SLOTS],
}

impl RedoSlots {
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
}
