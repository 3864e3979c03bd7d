//! The thread that makes the host provide memory ahead of need, in huge pages.
//!
//! The thread touches only ranges that were requested and that no other thread uses. The first request starts
//! the thread, and dropping the medium ends the thread. Requests fail in a forked child, if the host refuses
//! to start the thread, and after a panic of the thread. The program's signal handlers do not run on this
//! thread, except handlers of signals that report a fault (such as `SIGBUS`).

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::host;
use crate::mapping::Mapping;
use crate::sync::unpoisoned;

/// A finished or withdrawn request: the offset of the range, and true if the host has provided its memory.
pub(crate) type ProvideResult = (u64, bool);

/// The requests to the thread, from submission to the caller's [`Provider::take`].
#[derive(Default)]
struct Requests {
    asked: VecDeque<u64>,
    is_busy: bool,
    results: VecDeque<ProvideResult>,
    /// True if the thread must end, or ends because of a panic.
    stop: bool,
}

impl Requests {
    /// Withdraws the requests that the thread has not begun.
    fn withdraw(&mut self) {
        self.results.extend(self.asked.drain(..).map(|offset| (offset, false)));
    }
}

#[derive(Default)]
struct RequestQueue {
    state: Mutex<Requests>,
    changed: Condvar,
}

impl RequestQueue {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        // Between the first and the last change under the lock, no code can panic: such code only assigns
        // fields and moves elements of queues. So no panic leaves the state half changed.
        unpoisoned(self.state.lock())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, Requests>) -> MutexGuard<'a, Requests> {
        unpoisoned(self.changed.wait(state))
    }
}

/// The thread and its queue of requests.
pub(crate) struct Provider {
    queue: Arc<RequestQueue>,
    /// The thread: `None` before the first request, `Some(None)` if the host did not start the thread.
    thread: Mutex<Option<Option<JoinHandle<()>>>>,
    process: u32,
}

impl Provider {
    pub(crate) fn new() -> Provider {
        Provider { queue: Arc::default(), thread: Mutex::default(), process: std::process::id() }
    }

    /// Returns false in a forked child. The child does not have the thread, and its copy of the queue's lock
    /// may be locked for ever.
    fn is_here(&self) -> bool {
        std::process::id() == self.process
    }

    /// Requests the huge page at `offset` of `mapping`. Returns false if no thread can provide it. Only the
    /// first call uses `mapping`, so all calls must pass the same mapping.
    pub(crate) fn ask(&self, mapping: &Arc<Mapping>, offset: u64) -> bool {
        let mapping = Arc::clone(mapping);
        // A failure needs no report. The call that needs the range provisions the range itself, and gets the
        // error.
        self.ask_for(offset, move |offset| mapping.provision_huge_page(offset).is_ok())
    }

    /// Works like [`Provider::ask`], with a function that provides the range at an offset and returns true,
    /// or returns false if the host cannot provide it.
    fn ask_for(&self, offset: u64, provision: impl Fn(u64) -> bool + Send + 'static) -> bool {
        if !self.is_here() {
            return false;
        }
        let mut thread = unpoisoned(self.thread.lock());
        let thread = thread.get_or_insert_with(|| {
            let queue = Arc::clone(&self.queue);
            let builder = std::thread::Builder::new().name("eyrie-growth".to_string());
            host::call(|| builder.spawn(move || provide(&queue, provision))).ok()
        });
        if thread.is_none() {
            return false;
        }
        let mut state = self.queue.lock();
        if !state.stop {
            state.asked.push_back(offset);
            self.queue.changed.notify_all();
        }
        !state.stop
    }

    /// Takes the oldest finished or withdrawn request. Returns `None` if there is no such request, and always
    /// in a forked child.
    pub(crate) fn take(&self) -> Option<ProvideResult> {
        if self.is_here() { self.queue.lock().results.pop_front() } else { None }
    }

    /// Withdraws the requests that the thread has not begun, and waits for the request in progress. Does
    /// nothing in a forked child.
    pub(crate) fn recall(&self) {
        if !self.is_here() {
            return;
        }
        let mut state = self.queue.lock();
        state.withdraw();
        while state.is_busy {
            state = self.queue.wait(state);
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let is_here = self.is_here();
        let thread = unpoisoned(self.thread.get_mut());
        let Some(thread) = thread.take().flatten() else { return };
        if !is_here {
            // The handle names a thread of the parent process. This process cannot join it. Dropping the
            // handle would call `pthread_detach` for a thread that this process does not have.
            return std::mem::forget(thread);
        }
        self.queue.lock().stop = true;
        self.queue.changed.notify_all();
        // A panic of the thread was already reported by the panic hook.
        let _ = thread.join();
    }
}

/// Blocks signals on this thread, so that the program's signal handlers run on the program's own threads.
/// Signals that report a fault of this thread stay unblocked.
fn block_signals() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set, and every call gets a valid pointer to the set. Only the mask
    // of this thread changes.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Lets this thread run on every processor on which the first thread of the process may run. A new thread
/// inherits the processors of the thread that starts it, which a program may have pinned to one processor.
fn use_all_processors() {
    if let Ok(processors) = sched_getaffinity(Some(rustix::process::getpid())) {
        // If the kernel refuses, the thread may have to wait for its processor, and then provides memory
        // late.
        let _ = sched_setaffinity(None, &processors);
    }
}

/// The request in progress. Dropping the value ends the request, also if the call to the host panics.
/// Otherwise [`Provider::recall`] would wait for ever.
struct RequestInProgress<'q> {
    queue: &'q RequestQueue,
    result: ProvideResult,
}

impl Drop for RequestInProgress<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.is_busy = false;
        state.results.push_back(self.result);
        if std::thread::panicking() {
            // The panic ends the thread, so no thread can provide the other requests.
            state.stop = true;
            state.withdraw();
        }
        self.queue.changed.notify_all();
    }
}

/// Runs the thread: provides the requested ranges until the medium is dropped.
fn provide(queue: &RequestQueue, provision: impl Fn(u64) -> bool) {
    block_signals();
    use_all_processors();
    let mut state = queue.lock();
    while !state.stop {
        let Some(offset) = state.asked.pop_front() else {
            state = queue.wait(state);
            continue;
        };
        // The lock is released for the call to the host, which may take milliseconds. `is_busy` makes
        // `recall` wait for this range.
        state.is_busy = true;
        drop(state);
        let mut request = RequestInProgress { queue, result: (offset, false) };
        request.result.1 = provision(offset);
        drop(request);
        state = queue.lock();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rustix::thread::CpuSet;

    use super::*;

    #[test]
    fn thread_leaves_the_processor_of_its_starter() {
        let first = rustix::thread::sched_getaffinity(Some(rustix::process::getpid())).expect("a process");
        let pinned = std::thread::spawn(move || {
            let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| first.is_set(cpu)).expect("a processor");
            let mut one = CpuSet::new();
            one.set(cpu);
            sched_setaffinity(None, &one).expect("the processor is permitted");
            let (send, found) = channel();
            let provider = Provider::new();
            assert!(provider.ask_for(0, move |_| send.send(sched_getaffinity(None)).is_ok()));
            assert_eq!(found.recv().expect("the thread runs").expect("a thread"), first);
        });
        pinned.join().expect("the checks hold");
    }

    #[test]
    fn panic_of_the_thread_withdraws_all_requests() {
        let provider = Provider::new();
        let ((begin, begun), (go, wait)) = (channel(), channel::<()>());
        let provision = move |_| {
            begin.send(()).expect("the test waits");
            wait.recv().expect("the test sends");
            panic!("on purpose")
        };
        assert!(provider.ask_for(0, provision));
        begun.recv().expect("the thread begins the request");
        assert!(provider.ask_for(1, |_| true), "the thread runs");
        go.send(()).expect("the thread waits");
        provider.recall();
        let mut results: Vec<_> = std::iter::from_fn(|| provider.take()).collect();
        results.sort_unstable();
        assert_eq!(results, [(0, false), (1, false)]);
        assert!(!provider.ask_for(2, |_| true), "no thread can provide it");
        assert_eq!(provider.take(), None);
    }
}
