//! The requests that wait for locks, and the thread that repeats them. The same thread replies to the
//! requests that were granted.
//!
//! One thread repeats all waiting requests, in the order of their arrival. It repeats them at once when a
//! lock of this mount ends. It also repeats them after pauses, because it gets no notice when another lock of
//! the volume ends. If a signal interrupts the caller of a request, the request fails with `EINTR`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyrie::{LockWaiter, ObjectId};
use fuser::{Errno, Notifier, ReplyEmpty};

use super::{FileLocks, Understood};
use crate::answer::Answer;

/// The first pause, and the longest one. Each pause is twice as long as the one before.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    request: Understood,
    /// `None` if the caller does not wait for the lock.
    waiter: Option<LockWaiter>,
    /// The time from which on the request is refused.
    until: Option<Instant>,
    reply: ReplyEmpty,
    /// Time of the last look at the signals of the caller.
    looked: Instant,
}

/// The waiting requests of a mount.
#[derive(Debug, Default)]
pub(super) struct Waits {
    state: Mutex<WaitQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitQueue {
    arrived: Vec<Waiting>,
    /// The files of which the kernel must forget the pages, each with the request that was granted, if any.
    stale: Vec<(ObjectId, Option<ReplyEmpty>)>,
    /// True if the thread has requests to repeat.
    is_busy: bool,
    /// True if a lock has ended since the thread began to repeat its requests.
    is_woken: bool,
    has_ended: bool,
}

impl Waiting {
    pub(super) fn new(
        request: Understood,
        waiter: Option<LockWaiter>,
        until: Option<Instant>,
        reply: ReplyEmpty,
    ) -> Waiting {
        Waiting { request, waiter, until, reply, looked: Instant::now() }
    }

    /// Repeats the request. Returns `None` if it continues to wait.
    fn attempt(&mut self, locks: &FileLocks) -> Option<Answer<()>> {
        match locks.attempt(&self.request, self.waiter.as_ref()) {
            Err(Errno::EAGAIN) => {}
            done => return Some(done),
        }
        let now = Instant::now();
        if self.until.is_some_and(|until| until <= now) {
            return Some(Err(Errno::EAGAIN));
        }
        if now.duration_since(self.looked) >= PAUSES.1 {
            self.looked = now;
            return self.request.caller.is_interrupted().then_some(Err(Errno::EINTR));
        }
        None
    }

    /// Ends the wait with this result.
    fn end(self, locks: &FileLocks, kernel: &Notifier, result: Answer<()>) {
        match result {
            Ok(()) => locks.forget_now(kernel, self.request.asked.id, Some(self.reply)),
            Err(error) => {
                if let Some(waiter) = &self.waiter {
                    locks.nodes.end_wait(waiter);
                }
                self.reply.error(error);
            }
        }
    }
}

impl Waits {
    fn state(&self) -> MutexGuard<'_, WaitQueue> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, waiting: Waiting) {
        self.state().arrived.push(waiting);
        self.changed.notify_one();
    }

    /// Lets the thread make the kernel forget the pages of a file, and then reply to a request that was
    /// granted.
    pub(super) fn add_stale(&self, id: ObjectId, granted: Option<ReplyEmpty>) {
        self.state().stale.push((id, granted));
        self.changed.notify_one();
    }

    /// Makes the thread repeat all requests, because a lock has ended.
    pub(super) fn wake(&self) {
        let mut state = self.state();
        if state.is_busy {
            state.is_woken = true;
            self.changed.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.state().has_ended = true;
        self.changed.notify_one();
    }

    /// Repeats the waiting requests, and replies to the granted ones, until [`stop`](Waits::stop). Then ends
    /// them, and all locks of the mount.
    pub(super) fn run(&self, locks: &FileLocks, kernel: &Notifier) {
        let (mut all, mut pause): (Vec<Waiting>, Duration) = (Vec::new(), PAUSES.0);
        loop {
            let mut state = self.state();
            state.is_busy = !all.is_empty();
            let nothing = |state: &mut WaitQueue| {
                state.arrived.is_empty() && state.stale.is_empty() && !state.has_ended
            };
            state = if all.is_empty() {
                self.changed.wait_while(state, nothing).unwrap_or_else(PoisonError::into_inner)
            } else {
                let is_idle = |state: &mut WaitQueue| nothing(state) && !state.is_woken;
                let waited = self.changed.wait_timeout_while(state, pause, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
            if state.has_ended {
                all.append(&mut state.arrived);
                break;
            }
            let is_new = std::mem::take(&mut state.is_woken) || !state.arrived.is_empty();
            pause = if is_new { PAUSES.0 } else { (2 * pause).min(PAUSES.1) };
            all.append(&mut state.arrived);
            state.is_busy = true;
            let stale = std::mem::take(&mut state.stale);
            drop(state);
            stale.into_iter().for_each(|(id, granted)| locks.forget_now(kernel, id, granted));
            all = attempt_all(all, locks, kernel);
        }
        let stale = std::mem::take(&mut self.state().stale);
        stale.into_iter().filter_map(|(_, granted)| granted).for_each(|reply| reply.error(Errno::ENOTCONN));
        all.into_iter().for_each(|waiting| waiting.end(locks, kernel, Err(Errno::ENOTCONN)));
        locks.end_all();
    }
}

/// Repeats requests, and returns those that continue to wait.
fn attempt_all(all: Vec<Waiting>, locks: &FileLocks, kernel: &Notifier) -> Vec<Waiting> {
    let mut left = Vec::with_capacity(all.len());
    for mut waiting in all {
        match waiting.attempt(locks) {
            Some(result) => waiting.end(locks, kernel, result),
            None => left.push(waiting),
        }
    }
    left
}
