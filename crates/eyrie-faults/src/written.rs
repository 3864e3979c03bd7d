//! A record of the bytes that write-backs have brought to persistent memory. Tests compare it with the memory
//! to find stores without a write-back.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use eyrie_medium::sync::unpoisoned;
use eyrie_medium::{Addr, Caller, Fault, LINE_SIZE, Medium, Observer};

/// The durable bytes of a medium: a copy of the medium from when the record began, changed by each line that
/// a thread wrote back before a fence of its own. Clones share the record, and stay valid after the medium is
/// dropped.
#[derive(Clone)]
pub struct WrittenBack {
    state: Arc<Mutex<WriteBacks>>,
}

struct WriteBacks {
    bytes: Vec<u8>,
    /// For each write-back since the last fence of its thread: the thread, the offset and the bytes.
    pending: Vec<(ThreadId, usize, Vec<u8>)>,
    lines: u64,
}

impl WrittenBack {
    /// Returns a copy of the durable bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// Returns the number of lines written back so far.
    pub fn line_count(&self) -> u64 {
        self.lock().lines
    }

    fn lock(&self) -> MutexGuard<'_, WriteBacks> {
        unpoisoned(self.state.lock())
    }
}

impl Observer for WrittenBack {
    fn after_write_back(&self, addr: Addr, bytes: &[u8]) {
        let mut state = self.lock();
        state.pending.push((thread::current().id(), addr.offset() as usize, bytes.to_vec()));
        state.lines += bytes.len() as u64 / LINE_SIZE;
    }

    /// Makes the write-backs of this thread durable.
    fn fence(&self, _: Caller) {
        let mut state = self.lock();
        let mine = thread::current().id();
        let WriteBacks { bytes, pending, .. } = &mut *state;
        for (_, at, lines) in pending.extract_if(.., |(thread, ..)| *thread == mine) {
            bytes[at..at + lines.len()].copy_from_slice(&lines);
        }
    }
}

/// Maps one file of any file system as persistent memory, and records the lines that are written back.
///
/// # Errors
/// [`Fault::Io`] when the host refuses the mapping.
pub fn pmem_anywhere(file: File, len: u64) -> Result<(Medium, WrittenBack), Fault> {
    let medium = Medium::pmem_anywhere(file, len)?;
    let state = WriteBacks { bytes: medium.snapshot(), pending: Vec::new(), lines: 0 };
    let written = WrittenBack { state: Arc::new(Mutex::new(state)) };
    Ok((medium.observed_by(Arc::new(written.clone())), written))
}
