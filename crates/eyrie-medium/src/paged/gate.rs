//! The gate between Ops and cuts: a drain makes its cut while no Op is in progress.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::epoch;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};
use crate::sync::schedule;

/// Number of counters of Ops. Each thread uses one of them, so that Ops of different threads seldom change
/// the same cache line.
const SHARDS: usize = 64;
/// Attempts that spin before the first yield. The same number of attempts then yields before the first sleep.
const SPINS: u32 = 200;

/// A counter in a pair of cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicUsize);

/// The room of one Op in the journal, in bytes.
#[derive(Clone, Copy)]
struct Room {
    given: u64,
    left: u64,
}

thread_local! {
    /// Number of gates of paged volumes that this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// The room of the Op that this thread runs.
    static ROOM: Cell<Room> = const { Cell::new(Room { given: 0, left: 0 }) };
}

/// Takes `bytes` of the room of this thread's Op, before a change that needs them in the journal.
///
/// # Errors
/// [`Fault::OpTooLarge`] if the Op has less room left.
pub(super) fn spend(bytes: u64) -> Result<(), Fault> {
    let Room { given, left } = ROOM.get();
    match left.checked_sub(bytes) {
        Some(left) => {
            ROOM.set(Room { given, left });
            Ok(())
        }
        None if broken(SafetyRule::OpStaysWithinItsRoom) => Ok(()),
        None => Err(Fault::OpTooLarge { needed: given - left + bytes }),
    }
}

/// Gives this thread's Op more room.
pub(super) fn give(bytes: u64) {
    let Room { given, left } = ROOM.get();
    ROOM.set(Room { given: given + bytes, left: left + bytes });
}

/// Counts the Ops in progress, and keeps new Ops waiting while a drain makes its cut.
pub(super) struct Turnstile {
    closed: AtomicBool,
    inside: [Padded; SHARDS],
}

impl Default for Turnstile {
    fn default() -> Turnstile {
        Turnstile { closed: AtomicBool::new(false), inside: std::array::from_fn(|_| Padded::default()) }
    }
}

/// The entry of one Op in the turnstile. No drain makes a cut while this value lives.
#[must_use = "an Op is in progress for as long as its gate lives"]
pub(crate) struct Passage<'a> {
    inside: &'a AtomicUsize,
    _reservation: Reservation<'a>,
}

/// Room in the journal that is reserved for one Op until this value is dropped.
pub(super) struct Reservation<'a> {
    /// Sum of all reservations.
    reserved: &'a AtomicU64,
    bytes: u64,
}

impl<'a> Reservation<'a> {
    /// Adds `bytes` to the sum of all reservations. Also returns the new sum.
    pub(super) fn new(reserved: &'a AtomicU64, bytes: u64) -> (Reservation<'a>, u64) {
        let before = reserved.fetch_add(bytes, Ordering::SeqCst);
        (Reservation { reserved, bytes }, before + bytes)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.reserved.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// The right to change a medium, and the result of [`crate::Medium::enter`]. The gate of a paged medium also
/// pins an epoch, so that no page that the Op has used is evicted before the Op ends.
#[must_use = "an Op is in progress for as long as its gate lives"]
pub struct Gate<'a>(#[allow(dead_code, reason = "held for their drops")] Option<(epoch::Guard, Passage<'a>)>);

impl<'a> Gate<'a> {
    pub(crate) fn new(passage: Passage<'a>) -> Gate<'a> {
        Gate(Some((epoch::pin(), passage)))
    }

    /// Makes a gate of a medium without cuts.
    pub(crate) fn free() -> Gate<'a> {
        Gate(None)
    }
}

/// Waits a moment: spins, later yields, and at last sleeps.
fn pause(attempt: u32) {
    schedule::wait();
    if attempt < SPINS {
        std::hint::spin_loop();
    } else if attempt < 2 * SPINS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Turnstile {
    /// Waits until the turnstile is open, and counts an Op, which gets the reserved room.
    pub(super) fn enter<'a>(&'a self, reservation: Reservation<'a>) -> Passage<'a> {
        let inside = &self.inside[epoch::thread_index() % SHARDS].0;
        debug_assert_eq!(HELD.get(), 0, "an Op within an Op would wait for itself when a cut is made");
        for attempt in 0.. {
            // An Op first counts itself and then loads `closed`. A cut first stores `closed` and then loads
            // the counters. All four accesses are in one total order (`SeqCst`). So either the cut sees this
            // Op in a counter, or the Op sees that the turnstile is closed and leaves.
            inside.fetch_add(1, Ordering::SeqCst);
            if !self.closed.load(Ordering::SeqCst) {
                break;
            }
            inside.fetch_sub(1, Ordering::SeqCst);
            pause(attempt);
        }
        HELD.set(HELD.get() + 1);
        ROOM.set(Room { given: reservation.bytes, left: reservation.bytes });
        Passage { inside, _reservation: reservation }
    }

    /// True while a cut waits for the Ops inside.
    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Runs `cut` while no Op is in progress.
    pub(super) fn alone<T>(&self, cut: impl FnOnce() -> T) -> T {
        // From here on new Ops wait. The loop waits for Ops that were counted before.
        self.closed.store(true, Ordering::SeqCst);
        for inside in &self.inside {
            let mut attempt = 0;
            while inside.0.load(Ordering::SeqCst) != 0 && !broken(SafetyRule::CutWaitsForOps) {
                pause(attempt);
                attempt += 1;
            }
        }
        let result = cut();
        self.closed.store(false, Ordering::SeqCst);
        result
    }
}

/// Returns true if the calling thread holds a gate of any paged volume.
pub(super) fn holds_gate() -> bool {
    HELD.get() > 0
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
