//! The thread that waits in the kernel for the answer to a request, as `/proc` shows it.
//!
//! The crate `fuser` tells the mount neither the system call of a request nor the signals of its thread.
//! `/proc` has both for threads of this pid namespace. But this process can see the system call of a thread
//! only if it may trace the thread.

use std::fs::{read_link, read_to_string};
use std::thread::sleep;
use std::time::Duration;

/// Number of looks at a thread that does not wait yet, and the pause after each of them: some 20 ms, several
/// time slices of the scheduler.
const LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_micros(100);
/// Bit of SIGKILL in the lists of signals.
const KILL: u64 = 1 << 8;
/// Numbers of flock(2) on common architectures of Linux. On no architecture does one of these numbers stand
/// for another call that locks.
const FLOCK: [u64; 3] = [32, 73, 143];
/// Numbers of fcntl(2) and fcntl64(2).
const FCNTL: [u64; 5] = [25, 55, 72, 204, 221];
/// `F_GETLK`, `F_SETLK`, `F_SETLKW`, and their numbers for 32-bit programs.
const OF_PROCESS: [u64; 6] = [5, 6, 7, 12, 13, 14];
/// `F_OFD_GETLK`, `F_OFD_SETLK`, `F_OFD_SETLKW`.
const OF_OPEN_FILE: [u64; 3] = [36, 37, 38];

/// The system call of a request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockCall {
    /// flock(2).
    Flock,
    /// fcntl(2) for a lock of the process.
    OfProcess,
    /// fcntl(2) for a lock of the open file.
    OfOpenFile,
}

/// A thread that waits for the answer to a request. `None` if this process cannot see the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CallingThread(Option<u32>);

impl CallingThread {
    /// Returns the thread with the number that a request has. The number is 0 for a thread of an outer pid
    /// namespace.
    pub(super) fn new(thread: u32, sees_threads: bool) -> CallingThread {
        CallingThread((thread != 0 && sees_threads).then_some(thread))
    }

    /// Returns the system call in which the thread waits. `None` if this process may not know it.
    pub(super) fn call(self) -> Option<LockCall> {
        let path = format!("/proc/{}/syscall", self.0?);
        call_of(&text_of_waiting(|| read_to_string(&path).ok())?)
    }

    /// Returns the same thread if its signals can be seen, and no thread otherwise.
    pub(super) fn with_visible_signals(self) -> CallingThread {
        CallingThread(self.0.filter(|thread| read_to_string(format!("/proc/{thread}/status")).is_ok()))
    }

    /// True if a signal ends the wait of a thread [with visible
    /// signals](CallingThread::with_visible_signals), or if the thread has ended.
    pub(super) fn is_interrupted(self) -> bool {
        let status = |thread| read_to_string(format!("/proc/{thread}/status"));
        self.0.is_some_and(|thread| status(thread).map_or(true, |status| has_signal(&status)))
    }
}

/// Returns the contents of a file `syscall` once its thread waits. The kernel hands a request over before the
/// thread sleeps, so the thread may still be running, or be ready to run on a busy processor.
fn text_of_waiting(read: impl Fn() -> Option<String>) -> Option<String> {
    for _ in 0..LOOKS {
        let text = read()?;
        if text != "running\n" {
            return Some(text);
        }
        sleep(PAUSE);
    }
    None
}

/// True if the numbers of threads in `/proc` are those of the pid namespace of this process.
pub(super) fn sees_threads() -> bool {
    let own = read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    own == Some(std::process::id())
}

/// Reads a file `syscall`: the number of the call and its arguments.
fn call_of(text: &str) -> Option<LockCall> {
    let mut words = text.split_whitespace();
    let call: u64 = words.next()?.parse().ok()?;
    if FLOCK.contains(&call) {
        return Some(LockCall::Flock);
    }
    let command = words.nth(1)?.strip_prefix("0x")?;
    let command = u64::from_str_radix(command, 16).ok().filter(|_| FCNTL.contains(&call))?;
    match command {
        command if OF_PROCESS.contains(&command) => Some(LockCall::OfProcess),
        command if OF_OPEN_FILE.contains(&command) => Some(LockCall::OfOpenFile),
        _ => None,
    }
}

/// Reads a file `status`. True if a signal is pending that the thread neither blocks nor ignores.
///
/// A signal to the process counts for its first thread alone. The kernel chooses one thread of the process,
/// which is the first thread unless that thread blocks the signal. If this function returned true for a
/// thread that the kernel has not chosen, the system call would fail with an error that no program knows. A
/// signal that ends the process is pending in each thread.
fn has_signal(status: &str) -> bool {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default()
    };
    let signals = |name| u64::from_str_radix(field(name), 16).unwrap_or_default();
    let is_first = field("Pid") == field("Tgid");
    let of_process = if is_first { signals("ShdPnd") } else { 0 };
    let heard = !(signals("SigBlk") | signals("SigIgn")) | KILL;
    (signals("SigPnd") | of_process) & heard != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_for_locks_are_read() {
        assert_eq!(call_of("73 0x3 0x6 0x0 0x0 0x0 0x0 0x7ffe 0x7f3d\n"), Some(LockCall::Flock));
        assert_eq!(call_of("72 0x3 0x7 0x7ffd 0x0 0x0 0x0 0x7ffe 0x7f3d\n"), Some(LockCall::OfProcess));
        assert_eq!(call_of("72 0x3 0x26 0x7ffd 0x0 0x0 0x0 0x7ffe 0x7f3d\n"), Some(LockCall::OfOpenFile));
        for other in ["", "running\n", "-1 0x7ffe 0x7f3d\n", "3 0x7 0x6 0x0\n", "72 0x3 0x1 0x0\n", "72\n"] {
            assert_eq!(call_of(other), None, "{other}");
        }
    }

    #[test]
    fn thread_that_does_not_wait_yet_is_looked_at_again() {
        let looks = std::cell::Cell::new(0);
        let read = |waits_after: u32| {
            looks.set(0);
            text_of_waiting(|| {
                looks.set(looks.get() + 1);
                Some(if looks.get() > waits_after { "73 0x3\n" } else { "running\n" }.to_owned())
            })
        };
        assert_eq!((read(3).as_deref(), looks.get()), (Some("73 0x3\n"), 4));
        assert_eq!((read(u32::MAX), looks.get()), (None, LOOKS));
        assert_eq!(text_of_waiting(|| None), None);
    }

    #[test]
    fn signals_that_interrupt_are_read() {
        let status = |tid: u32, own: u64, shared: u64, blocked: u64, ignored: u64| {
            format!(
                "Name:\tx\nTgid:\t7\nPid:\t{tid}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t\
                 {blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        assert!(!has_signal(&status(7, 0, 0, 0, 0)));
        assert!(has_signal(&status(7, 2, 0, 0, 0)) && has_signal(&status(7, 0, 2, 0, 0)));
        assert!(!has_signal(&status(7, 2, 2, 2, 0)) && !has_signal(&status(7, 2, 2, 0, 2)));
        // A signal to the process may be for another thread.
        assert!(has_signal(&status(8, 2, 0, 0, 0)) && !has_signal(&status(8, 0, 2, 0, 0)));
        assert!(has_signal(&status(8, KILL, KILL, u64::MAX, 0)));
    }

    #[test]
    fn threads_that_are_not_visible_have_neither_calls_nor_signals() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert!(sees_threads());
        for hidden in [CallingThread::new(0, true), CallingThread::new(own, false)] {
            assert_eq!((hidden, hidden.call()), (CallingThread(None), None));
            assert!(!hidden.with_visible_signals().is_interrupted());
        }
        let here = CallingThread::new(own, true);
        assert_eq!(here.with_visible_signals(), here);
        assert!(!here.is_interrupted());
        // No thread has this number.
        let gone = CallingThread::new(u32::MAX >> 1, true);
        assert_eq!(gone.with_visible_signals(), CallingThread(None));
        assert!(gone.is_interrupted());
    }
}
