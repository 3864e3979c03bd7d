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
pub use std::{
    sync::{Mutex, MutexGuard},
    thread_local,
};

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
    std::hint::spin_loop();
}

/// Locks `mutex`. A panic elsewhere does not poison it: what a lock guards on a medium is always whole.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
