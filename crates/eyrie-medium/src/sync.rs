//! The synchronisation that a scheduler under test may replace.
//!
//! With the `shuttle` feature, locks and thread-locals are shuttle's and every access to a medium is a scheduling
//! point, so that shuttle explores interleavings of the code that ships.

#[cfg(feature = "shuttle")]
pub use shuttle::{
    sync::{Mutex, MutexGuard},
    thread_local,
};
#[cfg(not(feature = "shuttle"))]
pub use std::thread_local;

#[cfg(not(feature = "shuttle"))]
pub use crate::mutex::{Mutex, MutexGuard};

/// A point at which a scheduler under test may run another thread; nothing otherwise.
#[inline(always)]
pub fn interleave() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
}

/// Waits a moment for another thread, in a loop that a test may also schedule.
#[inline]
pub fn spin() {
    interleave();
    crate::turns::wait();
    std::hint::spin_loop();
}

/// As [`spin`], for a loop that has gone round `attempt` times: before long it lets other threads have the processor.
#[inline]
pub fn wait(attempt: u32) {
    if attempt < 100 {
        spin();
    } else {
        interleave();
        crate::turns::wait();
        std::thread::yield_now();
    }
}

/// Locks `mutex`. A panic elsewhere does not poison it; what is on the medium is whole at any moment.
#[cfg(not(feature = "shuttle"))]
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Locks `mutex`.
#[cfg(feature = "shuttle")]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks `mutex` if nobody holds it.
#[cfg(not(feature = "shuttle"))]
#[inline]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock()
}

/// Locks `mutex` if nobody holds it.
#[cfg(feature = "shuttle")]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock().ok()
}

/// Asks the processor to fetch the line of a value that is about to be changed: a locked instruction begins its miss only when
/// all loads before it have ended.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_line(std::ptr::from_ref(value).cast());
}

/// Asks the processor to fetch the line of an address, whatever is there.
#[inline(always)]
pub(crate) fn prefetch_line(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
