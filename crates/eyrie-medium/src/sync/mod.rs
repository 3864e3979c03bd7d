//! Locks, waits and prefetches. In a test a scheduler can replace the locks and waits.
//!
//! With the feature `shuttle`, locks and thread-locals are those of the crate shuttle, and every access to a
//! medium is a scheduling point. Shuttle then explores interleavings of threads in the code that ships.

#[cfg(not(feature = "shuttle"))]
mod mutex;
mod process;
pub mod schedule;
pub mod sleep;

use std::sync::{LockResult, PoisonError};

#[cfg(feature = "shuttle")]
pub use shuttle::{
    sync::{Mutex, MutexGuard},
    thread_local,
};
#[cfg(not(feature = "shuttle"))]
pub use std::thread_local;

#[cfg(not(feature = "shuttle"))]
pub use mutex::{Mutex, MutexGuard};
pub use process::{HeldByProcess, ProcessLock};

/// Lets the scheduler of a test run another thread. Does nothing without the feature `shuttle`.
#[inline(always)]
pub fn interleave() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
}

/// Waits a moment for another thread. Loops call this so that a test's scheduler can run that thread.
#[inline]
pub fn spin() {
    interleave();
    schedule::wait();
    std::hint::spin_loop();
}

/// As [`spin`], for attempt number `attempt` of a loop. After 100 attempts each wait yields the processor,
/// because the awaited thread may need it.
#[inline]
pub fn wait(attempt: u32) {
    if attempt < 100 {
        spin();
    } else {
        interleave();
        schedule::wait();
        std::thread::yield_now();
    }
}

/// Locks `mutex`. A panic of the holder does not poison the mutex. Each Op commits atomically, so the bytes
/// of the medium are sound at any moment. The allocator in memory may be half changed, so a close after a
/// panic inside an Op leaves the volume to recovery.
#[cfg(not(feature = "shuttle"))]
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Locks `mutex`.
#[cfg(feature = "shuttle")]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Locks `mutex` if no thread holds it.
#[cfg(not(feature = "shuttle"))]
#[inline]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock()
}

/// Locks `mutex` if no thread holds it.
#[cfg(feature = "shuttle")]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock().ok()
}

/// Prefetches the line of a value that is about to be changed. A locked instruction waits for all earlier
/// loads before it fetches the line. The prefetch fetches the line earlier.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_line(std::ptr::from_ref(value).cast());
}

/// Prefetches the line at `place`, which may be any address.
#[inline(always)]
pub(crate) fn prefetch_line(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless: it never faults and changes no byte.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Prefetches the lines of the mapped range of `len` bytes at `place`. The lines go into the second-level
/// cache only: the first level has few buffers for misses, and a copy that runs meanwhile needs them.
#[inline(always)]
pub(crate) fn prefetch_lines(place: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in lines_of(place.addr(), len) {
        // SAFETY: a prefetch of any address is harmless: it never faults and changes no byte.
        unsafe {
            let line = place.with_addr(line * 64).cast();
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(line);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (place, len);
}

/// Returns the numbers of the lines of the range of `len` bytes at `place`, which may be in the middle of a
/// line.
#[cfg(any(target_arch = "x86_64", test))]
#[inline(always)]
fn lines_of(place: usize, len: usize) -> std::ops::Range<usize> {
    place / 64..(place + len).div_ceil(64)
}

/// Returns the guard (or value) of a lock of the standard library, even if a thread panicked while it held
/// the lock. Callers use this function only for values that no panic leaves half changed.
#[inline]
pub fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_unaligned_range_is_prefetched_to_its_last_line() {
        for place in 4096..4096 + 64 {
            for len in 1..300 {
                assert_eq!(lines_of(place, len), place / 64..(place + len - 1) / 64 + 1, "{len} at {place}");
            }
        }
    }
}
