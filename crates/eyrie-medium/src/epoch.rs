//! Grace periods: memory that a reader may still see is not reused.
//!
//! The process has one clock. A thread that reads pins the current epoch in a slot of its own. The clock
//! advances only when every pinned slot shows the current epoch. At *e + 2* every pin of epoch *e* is
//! therefore gone, and memory retired in epoch *e* is out of every reader's sight.
//!
//! A pin costs one atomic exchange on a line of its own thread. A guard that is held for long only delays
//! reuse.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use crate::rules::{SafetyRule, broken};
use crate::sync::{interleave, thread_local};

/// Threads that can have a slot at one time; further threads share [`CROWD`].
const SLOTS: usize = 256;
/// The content of a slot without a pin. The clock starts at 2, so no epoch has this number.
const IDLE: u64 = 0;

/// A slot of one thread. The alignment gives it two cache lines, which processors prefetch as a pair, so that
/// no pin slows another.
#[repr(align(128))]
struct PinSlot {
    /// [`IDLE`], or the epoch that its thread pinned.
    pinned: AtomicU64,
    claimed: AtomicBool,
}

static CLOCK: AtomicU64 = AtomicU64::new(2);
static TABLE: [PinSlot; SLOTS] =
    [const { PinSlot { pinned: AtomicU64::new(IDLE), claimed: AtomicBool::new(false) } }; SLOTS];
/// Slots that were ever claimed. All others are idle, so `advance` skips them.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);
/// Pins of threads without a slot. They record no epoch, so the clock stands still while there is one.
static CROWD: AtomicUsize = AtomicUsize::new(0);

/// A point of the process's grace-period clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(u64);

impl Epoch {
    /// Returns true if memory retired in this epoch is out of every reader's sight at time `now`.
    #[inline]
    pub fn is_over(self, now: Epoch) -> bool {
        now.0 >= self.0 + if broken(SafetyRule::RetiredStorageWaitsForReaders) { 1 } else { 2 }
    }
}

struct ThreadPins {
    slot: Cell<usize>,
    depth: Cell<u32>,
}

thread_local! {
    static LOCAL: ThreadPins = const { ThreadPins { slot: Cell::new(usize::MAX), depth: Cell::new(0) } };
}

impl ThreadPins {
    #[inline]
    fn slot(&self) -> usize {
        let slot = self.slot.get();
        if slot == usize::MAX { self.claim() } else { slot }
    }

    #[cold]
    fn claim(&self) -> usize {
        static AT_FORK: Once = Once::new();
        AT_FORK.call_once(register_fork_handler);
        let free = |slot: &PinSlot| {
            slot.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let index = TABLE.iter().position(free).unwrap_or(SLOTS);
        CLAIMED.fetch_max((index + 1).min(SLOTS), Ordering::SeqCst);
        self.slot.set(index);
        index
    }
}

impl Drop for ThreadPins {
    fn drop(&mut self) {
        if let Some(slot) = TABLE.get(self.slot.get()) {
            slot.pinned.store(IDLE, Ordering::Release);
            slot.claimed.store(false, Ordering::Release);
        }
    }
}

/// A pin: while it lives, no memory is reused that was reachable at any time since the pin.
#[must_use = "a guard protects nothing once it is dropped"]
#[derive(Debug)]
pub struct Guard {
    /// True if the pin is in [`CROWD`], because the thread has no slot.
    crowd: bool,
    /// Guards belong to their thread's slot.
    _not_send: PhantomData<*const ()>,
}

/// Pins the current epoch for this thread. Pins nest.
#[inline]
pub fn pin() -> Guard {
    // A thread that is being torn down has given its slot back.
    let crowd = LOCAL.try_with(ThreadPins::pin).unwrap_or(true);
    if crowd {
        CROWD.fetch_add(1, Ordering::SeqCst);
    }
    Guard { crowd, _not_send: PhantomData }
}

impl ThreadPins {
    /// Pins the thread's slot. Returns true if the thread has none.
    #[inline(always)]
    fn pin(&self) -> bool {
        let Some(slot) = TABLE.get(self.slot()) else { return true };
        let depth = self.depth.get();
        if depth == 0 {
            // The pin must be visible before any protected byte is read; otherwise `advance` could miss it,
            // and the reader could follow a pointer to reused memory. An exchange is a store and a full fence
            // in one, and costs less than both. A stale clock is harmless: it pins an older epoch, which
            // holds more memory back.
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
            // A thread that is being torn down has given its slot back together with the pin.
            let _ = LOCAL.try_with(ThreadPins::unpin);
        }
    }
}

/// Returns true if the calling thread holds a pin.
pub(crate) fn is_pinned() -> bool {
    // A thread that is being torn down pins in the crowd, which does not record the thread.
    LOCAL.try_with(|local| local.depth.get() > 0).unwrap_or(true)
}

/// The current epoch.
pub fn now() -> Epoch {
    Epoch(CLOCK.load(Ordering::Acquire))
}

/// Advances the clock by one if every pin is of the current epoch. Returns the epoch afterwards.
pub fn advance() -> Epoch {
    // Pairs with the exchange in `pin`: either this scan sees the pin, or the pinned reader sees every store
    // made before this fence, and so no pointer to the memory that those stores unlinked.
    fence(Ordering::SeqCst);
    let epoch = CLOCK.load(Ordering::Acquire);
    let behind = |slot: &PinSlot| ![IDLE, epoch].contains(&slot.pinned.load(Ordering::Relaxed));
    let claimed = CLAIMED.load(Ordering::SeqCst);
    if CROWD.load(Ordering::Acquire) != 0 || TABLE[..claimed].iter().any(behind) {
        return Epoch(epoch);
    }
    // The slots are read relaxed. This fence orders the reads of threads that have unpinned before the reuse
    // that the new epoch permits.
    fence(Ordering::Acquire);
    match CLOCK.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Epoch(epoch + 1),
        Err(now) => Epoch(now),
    }
}

/// A small number of the calling thread, for choosing one of several shards. Threads without a slot share
/// number 256.
#[inline]
pub fn thread_index() -> usize {
    LOCAL.try_with(ThreadPins::slot).unwrap_or(SLOTS)
}

/// Registers a handler that clears the slots of all other threads in a forked child. Those threads do not
/// exist there, and their pins would stop the clock for ever.
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

    /// The process has one clock, so these checks run as one test.
    #[test]
    fn clock_waits_for_every_pin() {
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
