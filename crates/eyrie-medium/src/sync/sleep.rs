//! Sleeps until another thread or process changes a word of shared memory, or a socket.
//!
//! With the feature `shuttle`, a sleeping thread is one that the scheduler of the test does not run. Time
//! then stands still: only a wake or `pass_time` ends a sleep. So a lost wake leaves no thread that can run,
//! and shuttle reports a deadlock.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The name of a word on which threads sleep: the inode of the file of its memory, and the index of the word.
/// The word has the same name in all mappings of the memory.
pub(crate) type WordName = (u64, usize);

#[cfg(not(feature = "shuttle"))]
mod host {
    use rustix::event::Timespec;
    use rustix::thread::futex;

    use super::*;

    /// True if another thread or process can run while this thread spins.
    pub fn can_spin() -> bool {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get) > 1
    }

    /// Returns the number of the processor on which this thread runs now.
    pub fn processor() -> u64 {
        rustix::thread::sched_getcpu() as u64
    }

    /// If `word` is `expected`, sleeps until a wake, but at most for `limit`. May wake early.
    pub(crate) fn sleep_on(word: &AtomicU32, _: WordName, expected: u32, limit: Duration) {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&limit));
    }

    /// Wakes a thread that sleeps on `word`.
    pub(crate) fn wake_one(word: &AtomicU32, _: WordName) {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }

    /// Sleeps for a time.
    pub fn pause(time: Duration) {
        std::thread::sleep(time);
    }

    /// Waits for a socket: calls `look` once with the limit of the wait.
    pub fn wait_for_socket<T>(
        limit: Option<Duration>,
        mut look: impl FnMut(Option<Duration>) -> T,
        _: impl Fn(&T) -> bool,
    ) -> T {
        look(limit)
    }

    /// Tells the scheduler of a test that a socket has changed.
    #[inline(always)]
    pub fn socket_changed() {}
}

#[cfg(feature = "shuttle")]
mod host {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use shuttle::thread::{Thread, current, park};

    use super::super::{interleave, unpoisoned};
    use super::*;

    struct Sleeper {
        word: WordName,
        is_awake: Arc<AtomicBool>,
        thread: Thread,
    }

    /// The sleeping threads. No file has inode 0, so no word in the memory of a file has the name
    /// [`SOCKETS`].
    static SLEEPERS: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
    const SOCKETS: WordName = (0, 0);

    fn sleep(word: WordName) {
        let is_awake = Arc::new(AtomicBool::new(false));
        let sleeper = Sleeper { word, is_awake: Arc::clone(&is_awake), thread: current() };
        unpoisoned(SLEEPERS.lock()).push(sleeper);
        while !is_awake.load(Ordering::SeqCst) {
            park();
        }
    }

    fn wake(most: usize, is_meant: impl Fn(WordName) -> bool) {
        // An unpark is a scheduling point, so it comes after the release of the lock.
        let woken: Vec<Sleeper> =
            unpoisoned(SLEEPERS.lock()).extract_if(.., |sleeper| is_meant(sleeper.word)).take(most).collect();
        for Sleeper { is_awake, thread, .. } in woken {
            is_awake.store(true, Ordering::SeqCst);
            thread.unpark();
        }
    }

    /// Returns false, because the scheduler of a test counts steps.
    pub fn can_spin() -> bool {
        false
    }

    /// Returns 0: all threads of a test have the same processor.
    pub fn processor() -> u64 {
        0
    }

    pub(crate) fn sleep_on(word: &AtomicU32, name: WordName, expected: u32, _: Duration) {
        interleave();
        if word.load(Ordering::SeqCst) == expected {
            sleep(name);
        }
    }

    pub(crate) fn wake_one(_: &AtomicU32, name: WordName) {
        interleave();
        wake(1, |word| word == name);
    }

    /// Lets other threads run.
    pub fn pause(_: Duration) {
        interleave();
    }

    /// Waits for a socket: calls `look` with the limit zero, now and after each change of a socket, until
    /// `is_over` accepts the result. If `limit` is zero, returns the first result. Any other limit never
    /// expires.
    pub fn wait_for_socket<T>(
        limit: Option<Duration>,
        mut look: impl FnMut(Option<Duration>) -> T,
        is_over: impl Fn(&T) -> bool,
    ) -> T {
        interleave();
        loop {
            let found = look(Some(Duration::ZERO));
            if is_over(&found) || limit == Some(Duration::ZERO) {
                return found;
            }
            sleep(SOCKETS);
        }
    }

    /// Wakes the threads that wait for a socket.
    pub fn socket_changed() {
        wake(usize::MAX, |word| word == SOCKETS);
        interleave();
    }

    /// Ends each sleep on a word, as the end of its limit does.
    pub fn pass_time() {
        wake(usize::MAX, |word| word != SOCKETS);
        interleave();
    }
}

pub use host::*;
