//! The gate between Ops and cuts: a cut is made while no Op is in progress.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::epoch;
use crate::rules::{SafetyRule, broken};
use crate::sync::schedule;

/// Counters that threads are spread over, so that Ops of different threads seldom share a cache line.
const SHARDS: usize = 64;
/// Attempts that spin before the first yield, and attempts that yield before the first sleep.
const SPINS: u32 = 200;

#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicUsize);

thread_local! {
    /// Gates of any volume that this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Counts the Ops inside, and keeps new ones out while a cut is made.
pub(super) struct Turnstile {
    closed: AtomicBool,
    inside: [Padded; SHARDS],
}

impl Default for Turnstile {
    fn default() -> Turnstile {
        Turnstile { closed: AtomicBool::new(false), inside: std::array::from_fn(|_| Padded::default()) }
    }
}

/// Held while an Op is in progress: no cut is made meanwhile.
#[must_use = "an Op is in progress for as long as its gate lives"]
pub(crate) struct Passage<'a>(&'a AtomicUsize);

/// The right to change a medium; the result of [`crate::Medium::enter`]. It also pins the thread, so that no
/// page leaves memory under a change.
#[must_use = "an Op is in progress for as long as its gate lives"]
pub struct Gate<'a>(#[allow(dead_code, reason = "held for their drops")] Option<(epoch::Guard, Passage<'a>)>);

impl<'a> Gate<'a> {
    pub(crate) fn new(passage: Passage<'a>) -> Gate<'a> {
        Gate(Some((epoch::pin(), passage)))
    }

    /// A gate of a medium without cuts.
    pub(crate) fn free() -> Gate<'a> {
        Gate(None)
    }
}

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
    pub(super) fn enter(&self) -> Passage<'_> {
        let inside = &self.inside[epoch::thread_index() % SHARDS].0;
        debug_assert_eq!(HELD.get(), 0, "an Op within an Op would wait for itself when a cut is made");
        for attempt in 0.. {
            // Count first, then look. A cut closes first, then reads the counters. Both use one total order,
            // so either the cut sees this Op, or the Op sees the closed gate and leaves.
            inside.fetch_add(1, Ordering::SeqCst);
            if !self.closed.load(Ordering::SeqCst) {
                break;
            }
            inside.fetch_sub(1, Ordering::SeqCst);
            pause(attempt);
        }
        HELD.set(HELD.get() + 1);
        Passage(inside)
    }

    /// Runs `cut` while no Op is inside.
    pub(super) fn alone<T>(&self, cut: impl FnOnce() -> T) -> T {
        // New Ops turn back from here on; the loop waits for those that were counted before.
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

    /// Returns true if the calling thread is inside a gate.
    pub(super) fn is_mine(&self) -> bool {
        HELD.get() > 0
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
