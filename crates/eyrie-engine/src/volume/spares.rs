//! Spare headers: slots that were reserved for objects that turned out to be there.
//!
//! Who overwrites keys takes a header and gives it back each time. A spare waits for its thread to do so again, without a
//! lock. It counts as free. Threads use places of their own as far as there are places.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::{Addr, epoch};

use super::space::Padded;

const PLACES: usize = 8;
/// No header is at address 0.
const NONE: u64 = 0;

pub(super) struct Spares([Padded<AtomicU64>; PLACES]);

impl Spares {
    pub(super) fn new() -> Spares {
        Spares([const { Padded(AtomicU64::new(NONE)) }; PLACES])
    }

    #[inline]
    fn mine(&self) -> &AtomicU64 {
        &self.0[epoch::thread_index() % PLACES].0
    }

    /// Takes this thread's spare.
    #[inline]
    pub(super) fn take(&self) -> Option<Addr> {
        let mine = self.mine();
        if mine.load(Ordering::Relaxed) == NONE {
            return None;
        }
        spare(mine.swap(NONE, Ordering::AcqRel))
    }

    /// Makes a header slot this thread's spare; what was it before.
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
