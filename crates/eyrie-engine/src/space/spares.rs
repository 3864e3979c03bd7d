//! Spare headers: slots that were reserved for a new object when the object turned out to exist.
//!
//! A program that overwrites keys reserves a header and returns it each time. The spare waits here for the
//! next reservation of its thread, without a lock. It counts as free. Each thread has a place of its own
//! while there are enough places.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::{Addr, epoch};

use super::padded::CachePadded;

/// Number of places: enough for the threads of a busy program, few enough that spares hold little.
const PLACES: usize = 8;
/// No header is at address 0.
const NONE: u64 = 0;

pub(super) struct Spares([CachePadded<AtomicU64>; PLACES]);

impl Spares {
    pub(super) fn new() -> Spares {
        Spares([const { CachePadded(AtomicU64::new(NONE)) }; PLACES])
    }

    #[inline]
    fn mine(&self) -> &AtomicU64 {
        &self.0[epoch::thread_index() % PLACES].0
    }

    /// Takes this thread's spare. The load before the swap keeps the common case, no spare, free of a
    /// locked instruction.
    #[inline]
    pub(super) fn take(&self) -> Option<Addr> {
        let mine = self.mine();
        if mine.load(Ordering::Relaxed) == NONE {
            return None;
        }
        spare(mine.swap(NONE, Ordering::AcqRel))
    }

    /// Makes a header slot this thread's spare, and returns the spare before it.
    #[inline]
    pub(super) fn replace(&self, addr: Addr) -> Option<Addr> {
        spare(self.mine().swap(addr.raw(), Ordering::AcqRel))
    }

    /// Takes all spares.
    pub(super) fn drain(&self) -> impl Iterator<Item = Addr> + '_ {
        self.0.iter().filter_map(|place| spare(place.0.swap(NONE, Ordering::AcqRel)))
    }

    /// All spares.
    pub(super) fn iter(&self) -> impl Iterator<Item = Addr> + '_ {
        self.0.iter().filter_map(|place| spare(place.0.load(Ordering::Acquire)))
    }
}

#[inline]
fn spare(raw: u64) -> Option<Addr> {
    (raw != NONE).then(|| Addr::from_raw(raw))
}
