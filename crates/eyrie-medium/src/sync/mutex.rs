//! A mutex for short critical sections with little contention.
//!
//! The mutex of the standard library must check at every unlock for a sleeping waiter. This check takes a
//! second atomic exchange, which is about 8 of the 17 ns of a lock and an unlock. This mutex wakes no thread:
//! a waiter spins, then yields, then sleeps in short steps until the mutex is free. A writer of a very large
//! file may hold an object's lock for milliseconds. So a waiter must not spin all the time, but it may notice
//! the unlock a little late.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::schedule;

/// Attempts that spin before the first yield: about the length of a short critical section.
const SPINS: u32 = 100;
/// Attempts that yield before the first sleep.
const YIELDS: u32 = 20;
/// Length of a sleep. The kernel adds about the same time to each sleep, so a shorter sleep would gain
/// little.
const PAUSE: Duration = Duration::from_micros(50);

/// A value that one thread at a time may use.
#[derive(Default)]
pub struct Mutex<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: code that shares the mutex reaches the value only through a guard, and at most one guard exists at
// a time.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as for Send.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Exclusive access to the value. Dropping the guard unlocks the mutex.
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
}

// SAFETY: sharing a guard only shares the value. (A guard may also be sent to another thread, because the
// lock belongs to no thread.)
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// Makes a free mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until the mutex is free, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Takes the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // `then` builds the guard only if the exchange took the mutex. A guard that was built anyway would
        // unlock the holder's mutex when dropped.
        (!self.held.swap(true, Ordering::Acquire)).then(|| MutexGuard { mutex: self })
    }

    /// Returns the value without locking, because the exclusive borrow excludes other users.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Waits until the mutex is free, and takes it: the path with contention.
    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        let mut tries = 0;
        loop {
            // A waiter only loads the flag until the mutex seems free. An exchange in this loop would take
            // the cache line from the holder each time.
            while self.held.load(Ordering::Relaxed) {
                schedule::wait();
                match tries {
                    0..SPINS => std::hint::spin_loop(),
                    SPINS.. if tries < SPINS + YIELDS => std::thread::yield_now(),
                    _ => std::thread::sleep(PAUSE),
                }
                tries = tries.saturating_add(1);
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.held.store(false, Ordering::Release);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the mutex, so every reference to the value comes from this guard.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`. The guard is borrowed exclusively, so this is the only reference.
        unsafe { &mut *self.mutex.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_holds_the_mutex_at_a_time() {
        let mutex = Mutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut value = mutex.lock();
                        let seen = *value;
                        std::hint::spin_loop();
                        *value = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), 80_000);
    }

    #[test]
    fn try_lock_fails_while_held() {
        let mutex = Mutex::new(());
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }
}
