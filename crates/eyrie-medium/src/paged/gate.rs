//! The gate between Ops and cuts: a cut is made while no Op is under way.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::Pager;
use crate::epoch;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};
use crate::turns;

/// Counters that threads are spread over.
const SHARDS: usize = 64;
/// Looks at the gate before sleeping.
const SPINS: u32 = 200;

#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicUsize);

thread_local! {
    /// Gates that this thread holds, of any volume.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Counts Ops in, and keeps them out while a cut is made.
pub(super) struct Turnstile {
    closed: AtomicBool,
    inside: [Padded; SHARDS],
}

impl Default for Turnstile {
    fn default() -> Turnstile {
        Turnstile { closed: AtomicBool::new(false), inside: std::array::from_fn(|_| Padded::default()) }
    }
}

/// Held while an Op is under way: no cut is made meanwhile.
#[must_use = "an Op is under way for as long as its gate lives"]
pub(crate) struct Passage<'a>(&'a AtomicUsize);

/// What [`crate::Medium::enter`] gives.
#[must_use = "an Op is under way for as long as its gate lives"]
pub struct Gate<'a>(#[allow(dead_code, reason = "held for their drops")] Option<(epoch::Guard, Passage<'a>)>);

impl<'a> Gate<'a> {
    pub(crate) fn new(passage: Passage<'a>) -> Gate<'a> {
        Gate(Some((epoch::pin(), passage)))
    }

    /// A gate that keeps nothing out.
    pub(crate) fn free() -> Gate<'a> {
        Gate(None)
    }
}

fn pause(attempt: u32) {
    turns::wait();
    if attempt < SPINS {
        std::hint::spin_loop();
    } else if attempt < 2 * SPINS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Turnstile {
    fn enter(&self) -> Passage<'_> {
        let inside = &self.inside[epoch::thread_index() % SHARDS].0;
        debug_assert_eq!(HELD.get(), 0, "an Op within an Op would wait for itself when a cut is made");
        for attempt in 0.. {
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

    /// Runs `cut` while nobody is inside.
    pub(super) fn alone<T>(&self, cut: impl FnOnce() -> T) -> T {
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

    /// Whether the calling thread is inside a gate.
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

impl Pager {
    /// Lets an Op in, when there is room for what it may change.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`] once a drain has failed.
    pub(crate) fn enter(&self) -> Result<Passage<'_>, Fault> {
        while self.is_swamped() {
            self.refuse_if_failed()?;
            self.bell.ring();
            self.refuse_if_forked()?;
            turns::wait();
            std::thread::sleep(Duration::from_micros(200));
        }
        self.refuse_if_failed()?;
        Ok(self.turnstile.enter())
    }

    /// Whether so much is to be drained that more has to wait.
    fn is_swamped(&self) -> bool {
        self.dirty_pages.load(Ordering::Relaxed) > self.limit() / 2
            || self.recorded_bytes() > self.journal_bytes / 2
    }
}
