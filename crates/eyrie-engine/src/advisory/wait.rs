//! Waits for locks. A wait can end without the lock: at a deadline, or when another thread cancels it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// The time for which a call may wait for a lock. By default the call does not wait.
///
/// ```
/// # use eyrie_engine::advisory::{Canceller, LockWait};
/// use std::time::{Duration, Instant};
///
/// let canceller = Canceller::new();
/// let second = LockWait::at_most(Duration::from_secs(1)).cancelled_by(&canceller);
/// let calls_of_one_deadline = LockWait::until(Instant::now() + Duration::from_secs(5));
/// let not_at_all = LockWait::NO;
/// # let _ = (second, calls_of_one_deadline, not_at_all);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LockWait<'a> {
    waits: bool,
    deadline: Option<Instant>,
    canceller: Option<&'a Canceller>,
}

impl LockWait<'_> {
    /// Does not wait.
    pub const NO: LockWait<'static> = LockWait { waits: false, deadline: None, canceller: None };
    /// Waits without limit.
    pub const FOREVER: LockWait<'static> = LockWait { waits: true, deadline: None, canceller: None };

    /// Waits until this moment.
    pub fn until(deadline: Instant) -> LockWait<'static> {
        LockWait { deadline: Some(deadline), ..LockWait::FOREVER }
    }

    /// Waits for at most this time.
    pub fn at_most(time: Duration) -> LockWait<'static> {
        LockWait { deadline: Instant::now().checked_add(time), ..LockWait::FOREVER }
    }

    /// Returns the same wait, which `canceller` can end early.
    #[must_use]
    pub fn cancelled_by(self, canceller: &Canceller) -> LockWait<'_> {
        LockWait { waits: self.waits, deadline: self.deadline, canceller: Some(canceller) }
    }

    /// True if the call waits.
    #[doc(hidden)]
    pub fn is_wait(&self) -> bool {
        self.waits
    }

    /// True if the call waits, and has neither a deadline nor a canceller.
    #[doc(hidden)]
    pub fn is_endless(&self) -> bool {
        self.waits && self.deadline.is_none() && self.canceller.is_none()
    }

    /// Returns a waiter, which the canceller of this wait wakes.
    #[doc(hidden)]
    pub fn waiter(&self) -> LockWaiter {
        let waiter = LockWaiter::new(self.canceller.cloned());
        if let Some(canceller) = self.canceller {
            canceller.lock().signals.push(Arc::clone(&waiter.signal));
        }
        waiter
    }

    /// Waits until the table or the canceller wakes the waiter, but at most for the time `limit`, and at most
    /// until the deadline.
    ///
    /// # Errors
    /// `LockCancelled` after a cancellation. `LockTimedOut` after the deadline.
    #[doc(hidden)]
    pub fn pause(&self, waiter: &LockWaiter, limit: Option<Duration>) -> Result<()> {
        if self.canceller.is_some_and(Canceller::is_cancelled) {
            return Err(Error::LockCancelled);
        }
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::LockTimedOut);
        }
        waiter.signal.wait(match (left, limit) {
            (Some(left), Some(limit)) => Some(left.min(limit)),
            (left, limit) => left.or(limit),
        });
        Ok(())
    }
}

/// Ends waits for locks from another thread. A clone ends the same waits.
///
/// ```
/// # use eyrie_engine::advisory::Canceller;
/// let canceller = Canceller::new();
/// let other = canceller.clone();
/// other.cancel();
/// assert!(canceller.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<Mutex<Cancellation>>);

#[derive(Debug, Default)]
struct Cancellation {
    is_cancelled: bool,
    /// The signals of the current waits.
    signals: Vec<Arc<Signal>>,
}

impl Canceller {
    /// Makes a canceller that has cancelled nothing.
    pub fn new() -> Canceller {
        Canceller::default()
    }

    /// Ends all waits with this canceller, including later ones.
    pub fn cancel(&self) {
        let mut state = self.lock();
        state.is_cancelled = true;
        state.signals.iter().for_each(|signal| signal.raise());
    }

    /// True after [`cancel`](Canceller::cancel).
    pub fn is_cancelled(&self) -> bool {
        self.lock().is_cancelled
    }

    fn lock(&self) -> MutexGuard<'_, Cancellation> {
        // A panic while the lock is held leaves a valid list.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits for a lock.
#[derive(Debug)]
pub struct LockWaiter {
    /// Distinguishes the waiter from all others of the process.
    number: u64,
    signal: Arc<Signal>,
    canceller: Option<Canceller>,
}

impl LockWaiter {
    fn new(canceller: Option<Canceller>) -> LockWaiter {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        LockWaiter { number, signal: Arc::default(), canceller }
    }

    /// Returns the number of the waiter, which is unique in the process.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}

impl Drop for LockWaiter {
    fn drop(&mut self) {
        if let Some(canceller) = &self.canceller {
            canceller.lock().signals.retain(|signal| !Arc::ptr_eq(signal, &self.signal));
        }
    }
}

/// Wakes one thread. If the signal is raised before the thread waits, the thread does not wait.
#[derive(Debug, Default)]
pub(super) struct Signal {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl Signal {
    pub(super) fn raise(&self) {
        *self.is_raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.raised.notify_one();
    }

    fn wait(&self, limit: Option<Duration>) {
        let guard = self.is_raised.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guard = match limit {
            Some(limit) => {
                let waited = self.raised.wait_timeout_while(guard, limit, |raised| !*raised);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.raised.wait_while(guard, |raised| !*raised).unwrap_or_else(PoisonError::into_inner),
        };
        *guard = false;
    }
}
