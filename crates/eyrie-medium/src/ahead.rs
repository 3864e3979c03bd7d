//! The thread that has the host provide memory ahead of need, in huge pages.
//!
//! It touches only ranges that it was asked for and that nobody uses. It starts with the first of them and ends with the medium. Where
//! it cannot be started, and in a forked child, nothing is provided ahead. The program's signals never run on it.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::mapping::Mapping;
use crate::plan::host_call;

/// A range that was asked for: its offset, and true if its memory is there.
pub(crate) type Provided = (u64, bool);

#[derive(Default)]
struct State {
    asked: VecDeque<u64>,
    is_busy: bool,
    provided: VecDeque<Provided>,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is half changed by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread and what it was asked for.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    /// Started with the first range; `Some(None)` where the host starts no thread.
    thread: Mutex<Option<Option<JoinHandle<()>>>>,
    process: u32,
}

impl Ahead {
    pub(crate) fn new() -> Ahead {
        Ahead { shared: Arc::default(), thread: Mutex::default(), process: std::process::id() }
    }

    /// False in a forked child: the thread is not there, and its lock may be taken for ever.
    fn is_here(&self) -> bool {
        std::process::id() == self.process
    }

    /// Asks for the huge page at `offset`; false where nobody would provide it.
    pub(crate) fn ask(&self, mapping: &Arc<Mapping>, offset: u64) -> bool {
        if !self.is_here() {
            return false;
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = thread.get_or_insert_with(|| {
            let (shared, mapping) = (Arc::clone(&self.shared), Arc::clone(mapping));
            let builder = std::thread::Builder::new().name("eyrie-growth".to_string());
            host_call(|| builder.spawn(move || provide(&shared, &mapping))).ok()
        });
        if thread.is_some() {
            self.shared.lock().asked.push_back(offset);
            self.shared.changed.notify_all();
        }
        thread.is_some()
    }

    /// Takes the oldest of the ranges that are finished.
    pub(crate) fn take(&self) -> Option<Provided> {
        if self.is_here() { self.shared.lock().provided.pop_front() } else { None }
    }

    /// Withdraws what nobody has begun, and waits for the rest.
    pub(crate) fn recall(&self) {
        if !self.is_here() {
            return;
        }
        let mut state = self.shared.lock();
        while let Some(offset) = state.asked.pop_front() {
            state.provided.push_back((offset, false));
        }
        while state.is_busy {
            state = self.shared.wait(state);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let is_here = self.is_here();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take().flatten() else { return };
        if !is_here {
            // The handle names a thread of another process.
            return std::mem::forget(thread);
        }
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        // A thread that panicked has nothing more to tell.
        let _ = thread.join();
    }
}

/// Leaves signals to the program's own threads, but for those of a fault of this thread.
fn leave_signals() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set, and all calls get a valid pointer to it. They change the mask of this thread alone.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

fn provide(shared: &Shared, mapping: &Mapping) {
    leave_signals();
    let mut state = shared.lock();
    while !state.stop {
        let Some(offset) = state.asked.pop_front() else {
            state = shared.wait(state);
            continue;
        };
        state.is_busy = true;
        drop(state);
        // A failure is told to the call that asks again.
        let is_there = mapping.back_huge_page(offset).is_ok();
        state = shared.lock();
        state.is_busy = false;
        state.provided.push_back((offset, is_there));
        shared.changed.notify_all();
    }
}
