//! Grace periods: memory that a reader may still see is not reused.
//!
//! The process has one clock. A thread that reads pins the current epoch in a slot of its own. The clock
//! advances only when every pinned slot shows the current epoch. At *e + 2* every pin of epoch *e* is
//! therefore gone, and memory retired in epoch *e* is out of every reader's sight.
//!
//! A pin is one atomic exchange on a cache line that only its thread writes, except for threads without a
//! slot. A guard that is held for a long time only delays the reuse of memory.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use crate::rules::{SafetyRule, broken};
use crate::sync::{interleave, thread_local};

/// Maximum number of threads with a slot. Further threads share [`CROWD`].
const SLOTS: usize = 256;
/// The content of a slot without a pin. The clock starts at 2, so no epoch has this number.
const IDLE: u64 = 0;

/// A slot of one thread. The alignment gives each slot two cache lines, because processors prefetch lines in
/// pairs. So a pin of one thread does not slow another thread's pin.
#[repr(align(128))]
struct PinSlot {
    /// [`IDLE`], or the epoch that the slot's thread has pinned.
    pinned: AtomicU64,
    claimed: AtomicBool,
}

static CLOCK: AtomicU64 = AtomicU64::new(2);
static TABLE: [PinSlot; SLOTS] =
    [const { PinSlot { pinned: AtomicU64::new(IDLE), claimed: AtomicBool::new(false) } }; SLOTS];
/// Number of slots, counted from the first, that threads have ever claimed. The slots after them are idle, so
/// `advance` skips those.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);
/// Number of pins of threads without a slot. Such a pin records no epoch, so the clock stands still while one
/// exists.
static CROWD: AtomicUsize = AtomicUsize::new(0);

/// A time on the process's clock of grace periods.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(u64);

impl Epoch {
    /// Returns true if memory retired in this epoch is out of every reader's sight at time `now`.
    #[inline]
    pub fn is_over(self, now: Epoch) -> bool {
        now.0 >= self.0 + if broken(SafetyRule::RetiredStorageWaitsForReaders) { 1 } else { 2 }
    }
}

/// The slot of one thread, and the number of its nested pins. A thread without a slot pins in [`CROWD`].
struct ThreadPins {
    slot: Cell<usize>,
    depth: Cell<u32>,
}

thread_local! {
    static LOCAL: ThreadPins = const { ThreadPins { slot: Cell::new(usize::MAX), depth: Cell::new(0) } };
}

impl ThreadPins {
    /// Returns the number of this thread's slot, or [`SLOTS`] if it has none. The first call claims a slot.
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
        if self.depth.get() > 0 {
            self.end_pin();
        }
        if let Some(slot) = TABLE.get(self.slot.get()) {
            slot.claimed.store(false, Ordering::Release);
        }
    }
}

/// A pin. While the guard lives, no memory is reused that was reachable at any time since the guard was made.
///
/// ```
/// let pin = eyrie_medium::epoch::pin();
/// // Bytes in place that are read here do not change.
/// drop(pin);
/// ```
#[must_use = "a guard protects nothing once it is dropped"]
#[derive(Debug)]
pub struct Guard {
    /// True if the guard was made while its thread ended. It then has a pin of its own in [`CROWD`].
    ending: bool,
    /// Keeps a guard on its thread, because the guard belongs to the pins of that thread.
    _not_send: PhantomData<*const ()>,
}

/// Pins the current epoch for this thread. Pins nest.
#[inline]
pub fn pin() -> Guard {
    // A thread that is ending has given its slot back, so it pins in the crowd.
    let ending = LOCAL.try_with(ThreadPins::pin).is_err();
    if ending {
        CROWD.fetch_add(1, Ordering::SeqCst);
    }
    Guard { ending, _not_send: PhantomData }
}

impl ThreadPins {
    /// Pins the current epoch for the thread.
    #[inline(always)]
    fn pin(&self) {
        let depth = self.depth.get();
        if depth == 0 {
            // The pin must be visible before this thread reads any protected byte. Otherwise `advance` could
            // miss the pin, and this thread could follow a pointer to reused memory. An exchange does the
            // work of a store and a full fence in less time. A stale value of the clock is harmless: the
            // thread then pins an older epoch, which delays reuse longer.
            match TABLE.get(self.slot()) {
                Some(slot) => slot.pinned.swap(CLOCK.load(Ordering::Relaxed), Ordering::SeqCst),
                None => CROWD.fetch_add(1, Ordering::SeqCst) as u64,
            };
            interleave();
        }
        self.depth.set(depth + 1);
    }

    /// Ends one pin of the thread.
    #[inline(always)]
    fn unpin(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            self.end_pin();
        }
    }

    /// Ends the pin of the thread, after its last guard.
    #[inline(always)]
    fn end_pin(&self) {
        match TABLE.get(self.slot.get()) {
            Some(slot) => slot.pinned.store(IDLE, Ordering::Release),
            None => {
                CROWD.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Returns the number of pins that the thread has in [`CROWD`].
    fn in_crowd(&self) -> usize {
        usize::from(self.depth.get() > 0 && self.slot.get() >= SLOTS)
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.ending {
            CROWD.fetch_sub(1, Ordering::Release);
        } else {
            // A thread that is ending has given its slot back, and the pin with the slot.
            let _ = LOCAL.try_with(ThreadPins::unpin);
        }
    }
}

/// Returns true if the calling thread holds a pin, or is ending.
pub(crate) fn is_pinned() -> bool {
    // A thread that is ending pins in the crowd, which does not record the thread. So the answer is true.
    LOCAL.try_with(|local| local.depth.get() > 0).unwrap_or(true)
}

/// Returns the current epoch.
pub fn now() -> Epoch {
    Epoch(CLOCK.load(Ordering::Acquire))
}

/// Advances the clock by one if every pin is of the current epoch. Returns the epoch that is current then.
pub fn advance() -> Epoch {
    // This fence pairs with the exchange in `pin`: either the scan below sees the pin, or the pinned reader
    // sees every store made before this fence. In the second case the reader finds no pointer to memory that
    // those stores unlinked.
    fence(Ordering::SeqCst);
    let epoch = CLOCK.load(Ordering::Acquire);
    let behind = |slot: &PinSlot| ![IDLE, epoch].contains(&slot.pinned.load(Ordering::Relaxed));
    let claimed = CLAIMED.load(Ordering::SeqCst);
    if CROWD.load(Ordering::Acquire) != 0 || TABLE[..claimed].iter().any(behind) {
        return Epoch(epoch);
    }
    // The scan loads the slots with relaxed ordering. This fence orders the reads of threads that have
    // unpinned before the reuse of memory that the new epoch permits.
    fence(Ordering::Acquire);
    match CLOCK.compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Epoch(epoch + 1),
        Err(now) => Epoch(now),
    }
}

/// Returns the number of the calling thread's slot, by which callers choose one of several shards. Threads
/// without a slot share number 256.
#[inline]
pub fn thread_index() -> usize {
    LOCAL.try_with(ThreadPins::slot).unwrap_or(SLOTS)
}

/// Registers a handler that removes the pins of all other threads in a forked child. The child has none of
/// these threads, so their pins would stop its clock for ever.
fn register_fork_handler() {
    extern "C" fn child() {
        // If this thread is ending, it has no slot. The handler does not know the pins of this thread, so it
        // removes no pin from the crowd.
        let mine = LOCAL.try_with(|local| {
            CROWD.store(local.in_crowd(), Ordering::Relaxed);
            local.slot.get()
        });
        let mine = mine.unwrap_or(SLOTS);
        for (index, slot) in TABLE.iter().enumerate() {
            if index != mine {
                slot.pinned.store(IDLE, Ordering::Relaxed);
                slot.claimed.store(false, Ordering::Relaxed);
            }
        }
    }
    // SAFETY: the handler only stores to atomics and reads cells of a thread-local, and so cannot panic.
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
