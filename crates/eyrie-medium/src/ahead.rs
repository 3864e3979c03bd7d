//! The thread that has the host provide memory ahead of need, in huge pages.
//!
//! It touches only ranges that it was asked for and that nobody uses. It starts with the first of them and ends with the medium. Where
//! it cannot be started, and in a forked child, nothing is provided ahead.

use std::collections::VecDeque;
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
    provided: Vec<Provided>,
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

    /// Asks for the huge page at `offset`; false where nobody would provide it.
    pub(crate) fn ask(&self, mapping: &Arc<Mapping>, offset: u64) -> bool {
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

    /// The ranges that were finished since the last call.
    pub(crate) fn take(&self) -> Vec<Provided> {
        std::mem::take(&mut self.shared.lock().provided)
    }

    /// Withdraws what nobody has begun, and waits for the rest.
    pub(crate) fn recall(&self) {
        let mut state = self.shared.lock();
        while let Some(offset) = state.asked.pop_front() {
            state.provided.push((offset, false));
        }
        while state.is_busy {
            state = self.shared.wait(state);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // In a forked child the thread is not there, and its lock may be taken for ever.
        if std::process::id() != self.process {
            return;
        }
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take().flatten() {
            // One that panicked has nothing more to tell.
            let _ = thread.join();
        }
    }
}

fn provide(shared: &Shared, mapping: &Mapping) {
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
        state.provided.push((offset, is_there));
        shared.changed.notify_all();
    }
}
