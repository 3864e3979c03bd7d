//! Grace periods: memory that readers may still see is not reused under them.
//!
//! One clock for the whole process. A thread that reads pins the current epoch in a slot of its own; the clock
//! moves on only when every pinned slot shows the current epoch. Memory retired in epoch *e* is therefore out of every
//! reader's sight once the clock shows *e + 2*.
//!
//! A pin costs one store, one fence and no shared write. A guard that is held long only delays reuse.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use crate::rules::{SafetyRule, broken};
use crate::sync::{interleave, thread_local};

/// Threads that can hold a slot of their own at one time; any more share [`CROWD`].
const SLOTS: usize = 256;
const IDLE: u64 = 0;

#[repr(align(128))]
struct Slot {
    /// [`IDLE`], or the epoch that its thread pinned.
    pinned: AtomicU64,
    claimed: AtomicBool,
}

static CLOCK: AtomicU64 = AtomicU64::new(2);
static TABLE: [Slot; SLOTS] =
    [const { Slot { pinned: AtomicU64::new(IDLE), claimed: AtomicBool::new(false) } }; SLOTS];
/// Slots that were ever claimed: all others are idle, so the clock need not look at them.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);
/// Pins of threads without a slot. While there is one the clock stands still.
static CROWD: AtomicUsize = AtomicUsize::new(0);

/// A point of the process's grace-period clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(u64);

impl Epoch {
    /// Whether memory retired in this epoch is out of every reader's sight at time `now`.
    #[inline]
    pub fn is_over(self, now: Epoch) -> bool {
        now.0 >= self.0 + if broken(SafetyRule::RetiredStorageWaitsForReaders) { 1 } else { 2 }
    }
}

struct Local {
    slot: Cell<usize>,
    depth: Cell<u32>,
}

thread_local! {
    static LOCAL: Local = const { Local { slot: Cell::new(usize::MAX), depth: Cell::new(0) } };
}

impl Local {
    #[inline]
    fn slot(&self) -> usize {
        let slot = self.slot.get();
        if slot == usize::MAX { self.claim() } else { slot }
    }

    #[cold]
    fn claim(&self) -> usize {
        static AT_FORK: Once = Once::new();
        AT_FORK.call_once(register_fork_handler);
        let free = |slot: &Slot| {
            slot.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let index = TABLE.iter().position(free).unwrap_or(SLOTS);
        CLAIMED.fetch_max((index + 1).min(SLOTS), Ordering::SeqCst);
        self.slot.set(index);
        index
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(slot) = TABLE.get(self.slot.get()) {
            slot.pinned.store(IDLE, Ordering::Release);
            slot.claimed.store(false, Ordering::Release);
        }
    }
}

/// A pin: nothing that was reachable since it was taken is reused while it lives.
#[must_use = "a guard protects nothing once it is dropped"]
#[derive(Debug)]
pub struct Guard {
    /// Pinned in [`CROWD`]: the thread has no slot (any more).
    crowd: bool,
    /// Guards belong to their thread's slot.
    _not_send: PhantomData<*const ()>,
}

/// Pins the current epoch for this thread. Pins nest.
#[inline]
pub fn pin() -> Guard {
    // A thread that is being torn down has no slot any more.
    let crowd = LOCAL.try_with(Local::pin).unwrap_or(true);
    if crowd {
        CROWD.fetch_add(1, Ordering::SeqCst);
    }
    Guard { crowd, _not_send: PhantomData }
}

impl Local {
    /// Pins the thread's slot; whether it has none.
    #[inline(always)]
    fn pin(&self) -> bool {
        let Some(slot) = TABLE.get(self.slot()) else { return true };
        let depth = self.depth.get();
        if depth == 0 {
            // The pin must be visible before anything that it protects is read: an exchange is a store and a full fence
            // in one, and cheaper than the two.
            slot.pinned.swap(CLOCK.load(Ordering::Relaxed), Ordering::SeqCst);
            interleave();
        }
        self.depth.set(depth + 1);
        false
    }

    /// Ends one pin of the thread's slot.
    #[inline(always)]
    fn unpin(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0
            && let Some(slot) = TABLE.get(self.slot.get())
        {
            slot.pinned.store(IDLE, Ordering::Release);
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.crowd {
            CROWD.fetch_sub(1, Ordering::Release);
        } else {
            // A thread that is being torn down has given its slot back, pin and all.
            let _ = LOCAL.try_with(Local::unpin);
        }
    }
}

/// Whether the calling thread holds a pin.
pub(crate) fn is_pinned() -> bool {
    // A thread that is being torn down pins in the crowd, which is not told apart.
    LOCAL.try_with(|local| local.depth.get() > 0).unwrap_or(true)
}

/// The current epoch.
pub fn now() -> Epoch {
    Epoch(CLOCK.load(Ordering::Acquire))
}

/// Moves the clock on by one if every pin is of the current epoch; the epoch it then is.
pub fn advance() -> Epoch {
    fence(Ordering::SeqCst);
    let epoch = CLOCK.load(Ordering::Acquire);
    let behind = |slot: &Slot| ![IDLE, epoch].contains(&slot.pinned.load(Ordering::Relaxed));
    let claimed = CLAIMED.load(Ordering::SeqCst);
    if CROWD.load(Ordering::Acquire) != 0 || TABLE[..claimed].iter().any(behind) {
        return Epoch(epoch);
    }
    fence(Ordering::Acquire);
    match CLOCK.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Epoch(epoch + 1),
        Err(now) => Epoch(now),
    }
}

/// A small number of the calling thread, for picking one of several shards; threads beyond 256 share the last.
#[inline]
pub fn thread_index() -> usize {
    LOCAL.try_with(Local::slot).unwrap_or(SLOTS)
}

/// In a forked child the other threads are gone, and so are their pins.
fn register_fork_handler() {
    extern "C" fn child() {
        let mine = LOCAL.try_with(|local| local.slot.get()).unwrap_or(SLOTS);
        for (index, slot) in TABLE.iter().enumerate() {
            if index != mine {
                slot.pinned.store(IDLE, Ordering::Relaxed);
                slot.claimed.store(false, Ordering::Relaxed);
            }
        }
    }
    // SAFETY: the handler only stores to atomics and reads a cell of a thread-local; it cannot panic.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// The clock is one for the process, so these run as one test.
    #[test]
    fn memory_is_over_only_when_no_pin_can_see_it() {
        let guard = pin();
        let retired = now();
        for _ in 0..10 {
            advance();
        }
        assert!(!retired.is_over(now()), "the clock passed a pin");
        let nested = pin();
        drop(guard);
        for _ in 0..10 {
            advance();
        }
        assert!(!retired.is_over(now()), "the clock passed a nested pin");
        drop(nested);
        while !retired.is_over(advance()) {}

        let held = std::thread::spawn(|| std::mem::forget(pin()));
        held.join().expect("the thread only pins");
        let retired = now();
        while !retired.is_over(advance()) {}
    }
}
