//! The thread that makes the host provide memory ahead of need, in huge pages.
//!
//! The thread touches only ranges that were requested and that nobody uses. The first request starts the
//! thread, and dropping the medium ends it. Nothing is provided ahead in a forked child, or where the host
//! starts no thread. The program's signals never run on this thread.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use crate::host;
use crate::mapping::Mapping;
use crate::sync::unpoisoned;

/// A finished request: the offset of the range, and true if its memory is there.
pub(crate) type Provided = (u64, bool);

#[derive(Default)]
struct Requests {
    asked: VecDeque<u64>,
    is_busy: bool,
    provided: VecDeque<Provided>,
    stop: bool,
}

#[derive(Default)]
struct RequestQueue {
    state: Mutex<Requests>,
    changed: Condvar,
}

impl RequestQueue {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        // Every change under the lock is a single step, so a panic leaves the state whole.
        unpoisoned(self.state.lock())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, Requests>) -> MutexGuard<'a, Requests> {
        unpoisoned(self.changed.wait(state))
    }
}

/// The thread and its queue of requests.
pub(crate) struct Provider {
    queue: Arc<RequestQueue>,
    /// Started by the first request; `Some(None)` where the host starts no thread.
    thread: Mutex<Option<Option<JoinHandle<()>>>>,
    process: u32,
}

impl Provider {
    pub(crate) fn new() -> Provider {
        Provider { queue: Arc::default(), thread: Mutex::default(), process: std::process::id() }
    }

    /// False in a forked child. There the thread does not exist, and the queue's lock may have been copied
    /// while held.
    fn is_here(&self) -> bool {
        std::process::id() == self.process
    }

    /// Requests the huge page at `offset`. Returns false if no thread would provide it.
    pub(crate) fn ask(&self, mapping: &Arc<Mapping>, offset: u64) -> bool {
        if !self.is_here() {
            return false;
        }
        let mut thread = unpoisoned(self.thread.lock());
        let thread = thread.get_or_insert_with(|| {
            let (queue, mapping) = (Arc::clone(&self.queue), Arc::clone(mapping));
            let builder = std::thread::Builder::new().name("eyrie-growth".to_string());
            host::call(|| builder.spawn(move || provide(&queue, &mapping))).ok()
        });
        if thread.is_some() {
            self.queue.lock().asked.push_back(offset);
            self.queue.changed.notify_all();
        }
        thread.is_some()
    }

    /// Takes the oldest finished request.
    pub(crate) fn take(&self) -> Option<Provided> {
        if self.is_here() { self.queue.lock().provided.pop_front() } else { None }
    }

    /// Withdraws the requests that the thread has not begun, and waits for the one in progress.
    pub(crate) fn recall(&self) {
        if !self.is_here() {
            return;
        }
        let mut state = self.queue.lock();
        while let Some(offset) = state.asked.pop_front() {
            state.provided.push_back((offset, false));
        }
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
            // The handle names a thread of another process.
            return std::mem::forget(thread);
        }
        self.queue.lock().stop = true;
        self.queue.changed.notify_all();
        // A panic of the thread was already reported by the panic hook.
        let _ = thread.join();
    }
}

/// Blocks signals on this thread, so that the program's handlers run on its own threads. Signals for a fault
/// of this thread stay unblocked.
fn leave_signals() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set, and all calls get a valid pointer to it. They change the mask
    // of this thread alone.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

fn provide(queue: &RequestQueue, mapping: &Mapping) {
    leave_signals();
    let mut state = queue.lock();
    while !state.stop {
        let Some(offset) = state.asked.pop_front() else {
            state = queue.wait(state);
            continue;
        };
        // The lock is released meanwhile: the host may take milliseconds. `is_busy` makes `recall` wait for
        // this range.
        state.is_busy = true;
        drop(state);
        // A failure needs no report here: the call that needs the range asks again, and gets the error.
        let is_there = mapping.provision_huge_page(offset).is_ok();
        state = queue.lock();
        state.is_busy = false;
        state.provided.push_back((offset, is_there));
        queue.changed.notify_all();
    }
}
