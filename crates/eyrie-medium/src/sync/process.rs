//! A lock between the threads of one process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::sleep;

/// A lock that a forked child can take although a thread of its parent held it at the fork. That thread does
/// not exist in the child.
#[derive(Debug, Default)]
pub struct ProcessLock(AtomicU32);

/// Holds a [`ProcessLock`]. A drop releases it.
#[must_use = "a drop releases the lock"]
#[derive(Debug)]
pub struct HeldByProcess<'a>(&'a AtomicU32);

impl ProcessLock {
    /// Takes the lock. Waits while another thread of this process holds it.
    pub fn lock(&self) -> HeldByProcess<'_> {
        let mine = std::process::id();
        loop {
            // 0 is a free lock. If the lock has the id of another process, a thread of an ancestor stored
            // this id before a fork. That thread does not exist in this process, so this thread takes the
            // lock.
            let holder = self.0.load(Ordering::Relaxed);
            if holder != mine
                && self.0.compare_exchange(holder, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return HeldByProcess(&self.0);
            }
            sleep::pause(Duration::from_micros(100));
        }
    }
}

impl Drop for HeldByProcess<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
