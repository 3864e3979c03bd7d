//! The turns of the threads that serve a mount of a volume in memory.
//!
//! The kernel wakes a sleeping thread for each request. A wake-up takes longer than most requests, and the
//! woken thread may take the processor of the program that waits for the reply. So as few threads as possible
//! *read* requests, usually one, and all others are *parked*. A reading thread stays awake for some
//! microseconds after a reply, because a program that makes one call after the other sends its next request
//! soon. If requests come faster than the readers take them, a parked thread becomes a reader.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A reader waits awake for this time. A wake-up takes about as long.
const PATIENCE: Duration = Duration::from_micros(50);
/// After so many replies in a row with a next request already waiting, a further thread reads.
const BACKLOG: u32 = 4;

/// The turns of the threads of one mount.
#[derive(Debug)]
pub(crate) struct Turns {
    device: OwnedFd,
    state: Mutex<State>,
    unparked: Condvar,
}

#[derive(Debug)]
struct State {
    /// Threads that read requests or work on them, of those that take part. It is 0 before the first reply,
    /// and a thread parks only if another one is left.
    readers: usize,
    parked: usize,
    /// Parked threads that should read.
    called: usize,
    /// Replies in a row after which a request was waiting.
    backlog: u32,
    /// True when the mount has ended, so all threads leave.
    ended: bool,
}

thread_local! {
    /// The turns in which this thread takes part, from its first reply on. The end of the thread means the
    /// end of the mount.
    static TURN: RefCell<Option<TurnOfThread>> = const { RefCell::new(None) };
}

/// The place of a thread in the turns of a mount.
struct TurnOfThread(Arc<Turns>);

impl Drop for TurnOfThread {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.unparked.notify_all();
    }
}

impl Turns {
    pub(crate) fn new(device: OwnedFd) -> Turns {
        let state = State { readers: 0, parked: 0, called: 0, backlog: 0, ended: false };
        Turns { device, state: Mutex::new(state), unparked: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics with this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a parked thread read, because the caller's request may take long.
    pub(crate) fn pass_on(&self) {
        let mut state = self.state();
        if state.readers == 1 {
            self.call_one(&mut state);
        }
    }

    fn call_one(&self, state: &mut State) {
        if state.parked > state.called {
            state.called += 1;
            state.readers += 1;
            self.unparked.notify_one();
        }
    }

    /// Returns when this thread should read the next request. The thread has just replied to a request.
    pub(crate) fn next(self: &Arc<Turns>) {
        TURN.with_borrow_mut(|turn| {
            turn.get_or_insert_with(|| {
                self.state().readers += 1;
                TurnOfThread(Arc::clone(self))
            });
        });
        let waiting = self.has_request();
        let mut state = self.state();
        if waiting {
            state.backlog += 1;
            if state.backlog >= BACKLOG {
                state.backlog = 0;
                self.call_one(&mut state);
            }
        } else {
            state.backlog = 0;
            if state.readers > 1 {
                return self.park(state);
            }
            drop(state);
            let started = Instant::now();
            while started.elapsed() < PATIENCE && !self.has_request() {}
        }
    }

    /// True if a request waits, or the mount has ended.
    fn has_request(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut devices = [PollFd::new(&self.device, PollFlags::IN)];
        // After an error, the next read of the session tells of it.
        !matches!(poll(&mut devices, Some(&at_once)), Ok(0))
    }

    fn park(&self, mut state: MutexGuard<'_, State>) {
        state.readers -= 1;
        state.parked += 1;
        while state.called == 0 && !state.ended {
            state = self.unparked.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.called = state.called.saturating_sub(1);
        state.parked -= 1;
    }
}
