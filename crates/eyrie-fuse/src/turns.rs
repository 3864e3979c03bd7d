//! The turns of the threads that serve a mount of a volume in memory.
//!
//! The kernel wakes a sleeping thread for each request. A wake-up takes longer than most requests, and the
//! woken thread may take the processor of the program that waits for the reply. So as few threads as possible
//! *read* requests, usually one, and all others are *parked*. A reading thread stays awake for some
//! microseconds after a reply, because a program that makes one call after the other sends its next request
//! soon. A parked thread becomes a reader if requests come faster than the readers take them, or if all
//! readers work on requests that can take long.
//!
//! Invariant: a thread parks only while another reader is not busy with a long request. If a reader begins a
//! long request and all other readers are busy with long requests, it calls a parked thread. So no request
//! waits for a long request while a thread is parked. If all readers block in requests that were not
//! announced as long, a parked thread takes the waiting request after [`CHECK_INTERVAL`].

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A reader waits awake for this time. A wake-up takes about as long.
const SPIN: Duration = Duration::from_micros(50);
/// After this number of replies in a row, each of which found the next request waiting, a further thread
/// becomes a reader.
const BACKLOG: u32 = 4;
/// A parked thread looks for a waiting request after this time. All readers may be blocked, for example by a
/// lock whose holder, a thread of this process, itself waits for the mount.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The turns of the threads of one mount.
#[derive(Debug)]
pub(crate) struct Turns {
    device: OwnedFd,
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of threads that read requests or work on them. A thread counts from its first call of
    /// [`Turns::with_turn`] on.
    readers: usize,
    /// Number of readers that work on a request that can take long.
    busy: usize,
    parked: usize,
    /// Number of parked threads that were called to read and have not woken yet.
    calls: usize,
    /// Replies in a row after which a request was waiting.
    backlog: u32,
    /// True when a thread has left, usually because the mount has ended. Then no thread stays parked.
    ended: bool,
}

thread_local! {
    /// The turns in which this thread takes part, from its first call of [`Turns::with_turn`] on.
    static TURN: RefCell<Option<TurnOfThread>> = const { RefCell::new(None) };
}

/// The place of a thread in the turns of a mount.
struct TurnOfThread {
    turns: Arc<Turns>,
    /// True while the thread works on a request that can take long.
    is_busy: bool,
    /// True if the latest request of the thread was a forget.
    has_forgotten: bool,
}

impl Drop for TurnOfThread {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.readers -= 1;
        state.busy -= usize::from(self.is_busy);
        state.ended = true;
        self.turns.called.notify_all();
    }
}

impl Turns {
    /// Makes the turns of threads that read requests from this device.
    pub(crate) fn new(device: OwnedFd) -> Turns {
        Turns { device, state: Mutex::default(), called: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with the place of this thread, and with the locked state.
    fn with_turn<T>(
        self: &Arc<Turns>,
        work: impl FnOnce(&mut TurnOfThread, MutexGuard<'_, State>) -> T,
    ) -> T {
        TURN.with_borrow_mut(|turn| {
            let mut state = self.state();
            let turn = turn.get_or_insert_with(|| {
                state.readers += 1;
                TurnOfThread { turns: Arc::clone(self), is_busy: false, has_forgotten: false }
            });
            work(turn, state)
        })
    }

    /// Tells that the request of this thread can take long. If no other thread reads, calls a parked thread.
    pub(crate) fn begin_long(self: &Arc<Turns>) {
        self.with_turn(|turn, mut state| {
            if !turn.is_busy {
                turn.is_busy = true;
                state.busy += 1;
            }
            if state.readers == state.busy {
                self.call_one(&mut state);
            }
        });
    }

    /// Makes a parked thread a reader.
    fn call_one(&self, state: &mut State) {
        if state.parked > state.calls {
            state.calls += 1;
            state.readers += 1;
            self.called.notify_one();
        }
    }

    /// Waits until this thread, which has just ended a request, should read the next one.
    pub(crate) fn next(self: &Arc<Turns>) {
        let waiting = self.has_request();
        let spins = self.with_turn(|turn, mut state| {
            turn.has_forgotten = false;
            if std::mem::take(&mut turn.is_busy) {
                state.busy -= 1;
            }
            if waiting {
                state.backlog += 1;
                if state.backlog >= BACKLOG {
                    state.backlog = 0;
                    self.call_one(&mut state);
                }
                return false;
            }
            state.backlog = 0;
            let is_alone = state.readers - state.busy == 1;
            if !is_alone {
                self.park(state);
            }
            is_alone
        });
        if spins {
            self.spin();
        }
    }

    /// Waits a moment for the next request after a forget, which often follows an unlink. Further forgets in
    /// a row do not wait, because they can be a batch of thousands.
    pub(crate) fn after_forget(self: &Arc<Turns>) {
        let spins = self.with_turn(|turn, state| {
            !std::mem::replace(&mut turn.has_forgotten, true) && state.readers - state.busy == 1
        });
        if spins {
            self.spin();
        }
    }

    fn spin(&self) {
        let started = Instant::now();
        while started.elapsed() < SPIN && !self.has_request() {}
    }

    /// True if a request waits, or the mount has ended.
    fn has_request(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut devices = [PollFd::new(&self.device, PollFlags::IN)];
        // If `poll` fails, the next read of the session reports the failure.
        !matches!(poll(&mut devices, Some(&at_once)), Ok(0))
    }

    /// Waits until this thread should read again.
    fn park(&self, mut state: MutexGuard<'_, State>) {
        state.readers -= 1;
        state.parked += 1;
        loop {
            if state.calls > 0 {
                // The call has counted this thread as a reader.
                state.calls -= 1;
                break;
            }
            if state.ended {
                state.readers += 1;
                break;
            }
            let waited = self.called.wait_timeout(state, CHECK_INTERVAL);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && state.calls == 0 && self.has_request() {
                state.readers += 1;
                break;
            }
        }
        state.parked -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// Time limit for a step that should come immediately.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A pipe stands for the device: a byte in it is a waiting request.
    fn turns() -> (Arc<Turns>, File, File) {
        let (read, write) = std::io::pipe().expect("a pipe");
        let device: OwnedFd = read.into();
        let requests = File::from(device.try_clone().expect("a descriptor"));
        (Arc::new(Turns::new(device)), requests, File::from(OwnedFd::from(write)))
    }

    /// Starts a thread that takes part in the turns with `work`, and then lives until the test ends. The
    /// receiver tells when `work` is done.
    fn thread(turns: &Arc<Turns>, work: impl FnOnce(&Arc<Turns>) + Send + 'static) -> Receiver<()> {
        let (done, is_done) = channel();
        let turns = Arc::clone(turns);
        std::thread::spawn(move || {
            work(&turns);
            let _ = done.send(());
            std::thread::sleep(PATIENCE * 10);
        });
        is_done
    }

    fn wait_for(turns: &Turns, is_so: impl Fn(&State) -> bool) {
        let started = Instant::now();
        while !is_so(&turns.state()) {
            assert!(started.elapsed() < PATIENCE, "{:?}", turns.state());
            std::thread::yield_now();
        }
    }

    #[test]
    fn second_idle_reader_parks_until_a_long_request() {
        let (turns, _requests, _program) = turns();
        turns.next();
        let second = thread(&turns, |turns| turns.next());
        wait_for(&turns, |state| (state.readers, state.parked) == (1, 1));
        turns.begin_long();
        second.recv_timeout(PATIENCE).expect("the second thread reads");
        let state = turns.state();
        assert_eq!((state.readers, state.busy, state.parked), (2, 1, 0));
    }

    #[test]
    fn reader_beside_a_long_request_does_not_park() {
        let (turns, _requests, _program) = turns();
        turns.begin_long();
        let second = thread(&turns, |turns| (0..10).for_each(|_| turns.next()));
        second.recv_timeout(PATIENCE).expect("the second thread goes on");
        let state = turns.state();
        assert_eq!((state.readers, state.busy, state.parked), (2, 1, 0));
    }

    #[test]
    fn every_reader_with_a_long_request_calls_another_one() {
        let (turns, _requests, _program) = turns();
        turns.next();
        let others = [0, 1].map(|_| {
            thread(&turns, |turns| {
                turns.next();
                turns.begin_long();
            })
        });
        wait_for(&turns, |state| (state.readers, state.parked) == (1, 2));
        turns.begin_long();
        for other in others {
            other.recv_timeout(PATIENCE).expect("the thread reads");
        }
        let state = turns.state();
        assert_eq!((state.readers, state.busy, state.parked), (3, 3, 0));
    }

    #[test]
    fn backlog_calls_a_parked_thread() {
        let (turns, mut requests, mut program) = turns();
        turns.next();
        let second = thread(&turns, |turns| turns.next());
        wait_for(&turns, |state| state.parked == 1);
        program.write_all(b"request").expect("a request");
        (0..BACKLOG).for_each(|_| turns.next());
        // Much later the parked thread would look for the request by itself.
        assert_eq!(turns.state().readers, 2);
        second.recv_timeout(PATIENCE).expect("the second thread reads");
        requests.read_exact(&mut [0; 7]).expect("the request");
    }

    #[test]
    fn parked_thread_takes_a_request_that_nobody_reads() {
        let (turns, _requests, mut program) = turns();
        turns.next();
        let second = thread(&turns, |turns| turns.next());
        wait_for(&turns, |state| state.parked == 1);
        // This thread, the only reader, is blocked now.
        program.write_all(b"r").expect("a request");
        second.recv_timeout(PATIENCE).expect("the second thread reads");
    }

    /// The other threads go on, as if the mount had not ended.
    #[test]
    fn counts_stay_right_after_a_thread_has_left() {
        let (turns, _requests, _program) = turns();
        let leaving = Arc::clone(&turns);
        std::thread::spawn(move || leaving.begin_long()).join().expect("no panic");
        turns.next();
        let long = |turns: &Arc<Turns>| {
            (0..3).for_each(|_| turns.next());
            turns.begin_long();
        };
        thread(&turns, long).recv_timeout(PATIENCE).expect("the second thread goes on");
        thread(&turns, long).recv_timeout(PATIENCE).expect("the third thread goes on");
        let state = turns.state();
        assert_eq!((state.readers, state.busy, state.parked), (3, 2, 0));
    }

    #[test]
    fn end_of_a_thread_ends_all_waits() {
        let (turns, _requests, _program) = turns();
        let reader = std::thread::spawn({
            let turns = Arc::clone(&turns);
            move || {
                turns.next();
                wait_for(&turns, |state| state.parked == 1);
            }
        });
        wait_for(&turns, |state| state.readers == 1);
        let second = thread(&turns, |turns| turns.next());
        reader.join().expect("no panic");
        second.recv_timeout(PATIENCE).expect("the second thread leaves");
    }
}
