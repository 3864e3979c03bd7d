//! A mutex for short critical sections that threads seldom meet in.
//!
//! The standard library's must ask at every unlock whether somebody sleeps, which is a second atomic exchange (about 8 ns
//! of the 17 that a lock and unlock cost). Here nobody is woken: who finds the lock held spins, then yields, then
//! sleeps for moments until it is free. A writer of a very large file may hold an object's lock for milliseconds, so
//! waiting must not burn a processor, but it need not be prompt either.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SPINS: u32 = 100;
const YIELDS: u32 = 20;
const PAUSE: Duration = Duration::from_micros(50);

/// A value that one thread at a time may use.
#[derive(Default)]
pub struct Mutex<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, of which there is one at a time.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The right to use the value, until dropped.
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
}

// SAFETY: sharing a guard shares the value. (Sending one is harmless, too: the lock belongs to no thread.)
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody holds it, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Lazily: a guard that was made and dropped would free the lock of its holder.
        (!self.held.swap(true, Ordering::Acquire)).then(|| MutexGuard { mutex: self })
    }

    /// The value, for whoever has the mutex to itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        let mut tries = 0;
        loop {
            while self.held.load(Ordering::Relaxed) {
                crate::turns::wait();
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
        // SAFETY: the guard holds the mutex, so no other reference to the value exists but through this guard.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
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
    fn a_held_mutex_is_not_taken_twice() {
        let mutex = Mutex::new(());
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }
}
