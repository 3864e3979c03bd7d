//! What write-backs have brought to memory: the witness of tests that no store is forgotten.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::addr::LINE_SIZE;
use crate::copy;

/// The bytes of a medium as far as they are sure to have reached it: written back, and then fenced by the thread that did
/// it. A clone is the same record, which outlives the medium.
#[derive(Clone)]
pub struct WrittenBack {
    state: Arc<Mutex<State>>,
}

struct State {
    /// Where the segment is mapped; a number, because nothing is reached through it.
    base: usize,
    bytes: Vec<u8>,
    /// Written back since the last fence of its thread: by whom, where, and what.
    pending: Vec<(ThreadId, usize, Vec<u8>)>,
    lines: u64,
}

impl WrittenBack {
    /// A record that begins with what is in memory.
    ///
    /// # Safety
    /// `len` bytes at `base` are mapped.
    pub(crate) unsafe fn new(base: *const u8, len: usize) -> WrittenBack {
        let mut bytes = vec![0; len];
        // SAFETY: the vector is as long as the mapped range.
        unsafe { copy::copy(bytes.as_mut_ptr(), base, len) };
        let state = State { base: base.addr(), bytes, pending: Vec::new(), lines: 0 };
        WrittenBack { state: Arc::new(Mutex::new(state)) }
    }

    /// Takes whole lines over, as they are now, at the next fence of this thread.
    ///
    /// # Safety
    /// They are mapped, in the range that the record began with.
    pub(crate) unsafe fn lines(&self, first: *const u8, len: usize) {
        let mut bytes = vec![0; len];
        // SAFETY: the vector is as long as the lines.
        unsafe { copy::copy(bytes.as_mut_ptr(), first, len) };
        let mut state = self.lock();
        let at = first.addr() - state.base;
        state.pending.push((thread::current().id(), at, bytes));
        state.lines += len as u64 / LINE_SIZE;
    }

    /// Makes what this thread wrote back count.
    pub(crate) fn fence(&self) {
        let mut state = self.lock();
        let mine = thread::current().id();
        let State { bytes, pending, .. } = &mut *state;
        for (_, at, lines) in pending.extract_if(.., |(thread, ..)| *thread == mine) {
            bytes[at..at + lines.len()].copy_from_slice(&lines);
        }
    }

    /// A copy of the bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// How many lines were written back so far, each as often as it was.
    pub fn line_count(&self) -> u64 {
        self.lock().lines
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
