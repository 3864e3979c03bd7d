//! Spare headers: slots that were reserved for a new object and not used, for example because the key existed
//! already.
//!
//! A program that overwrites keys reserves a header and returns it each time. A returned header becomes the
//! spare of its thread, and the next reservation of the thread takes it without a lock. A spare counts as
//! free. Threads with the same index modulo [`PLACES`] share a place for one spare.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::{Addr, epoch};

use super::padded::CachePadded;

/// Number of places: enough for the threads of a busy program, and few enough that spares hold little memory.
const PLACES: usize = 8;
/// Value of an empty place. No header is at address 0.
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

    /// Takes this thread's spare. Usually there is no spare. The load before the swap then saves a locked
    /// instruction.
    #[inline]
    pub(super) fn take(&self) -> Option<Addr> {
        let mine = self.mine();
        if mine.load(Ordering::Relaxed) == NONE {
            return None;
        }
        spare(mine.swap(NONE, Ordering::AcqRel))
    }

    /// Makes a header slot this thread's spare. Returns the spare that it replaces, if one exists.
    #[inline]
    pub(super) fn replace(&self, addr: Addr) -> Option<Addr> {
        spare(self.mine().swap(addr.raw(), Ordering::AcqRel))
    }

    /// Takes all spares.
    pub(super) fn take_all(&self) -> impl Iterator<Item = Addr> + '_ {
        self.0.iter().filter_map(|place| spare(place.0.swap(NONE, Ordering::AcqRel)))
    }

    /// Returns all spares, and leaves them in their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = Addr> + '_ {
        self.0.iter().filter_map(|place| spare(place.0.load(Ordering::Acquire)))
    }
}

#[inline]
fn spare(raw: u64) -> Option<Addr> {
    (raw != NONE).then(|| Addr::from_raw(raw))
}
