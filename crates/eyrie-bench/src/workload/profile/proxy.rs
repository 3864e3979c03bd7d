//! The profile `webproxy` with put, get and erase in place of files.

use super::Filebench;
use super::set::FileSet;
use crate::error::Result;
use crate::keys::KeySession;
use crate::method::{Stopwatch, ThreadPart, Worker};

/// Largest size of the log, in bytes. If an append would make the log larger, the log is emptied first. The
/// limit is lower than for a log in a file, because each append puts the whole value.
const LOG_VALUE_BYTES: usize = 64 << 10;

/// The work of one thread of `webproxy` with keys: put, get and erase.
pub(super) struct ProxyKeys {
    work: Filebench,
    part: ThreadPart,
    session: Box<dyn KeySession>,
    set: FileSet,
    /// Five for the reads of a pass, one for the new value, and one for the log.
    buffers: [Vec<u8>; 7],
}

impl ProxyKeys {
    pub fn new(work: Filebench, part: ThreadPart, session: Box<dyn KeySession>, set: FileSet) -> ProxyKeys {
        ProxyKeys { work, part, session, set, buffers: Default::default() }
    }

    fn key(file: u64) -> [u8; 8] {
        file.to_be_bytes()
    }

    fn make(&mut self, watch: &mut Stopwatch) -> Result<()> {
        for _ in 0..self.set.start() {
            let file = self.set.add();
            let bytes = self.set.file_bytes();
            self.set.append(file, bytes, &mut self.buffers[0]);
            let key = ProxyKeys::key(self.set.first + file as u64);
            watch.time(1, |_| self.session.put(&key, &self.buffers[0]))?;
            watch.touch(file as u64);
        }
        Ok(())
    }

    fn pass(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let set = &mut self.set;
        let removed = set.remove();
        let made = set.add();
        let [value, logged, reads @ ..] = &mut self.buffers;
        let bytes = set.append_bytes();
        set.append(made, bytes, value);
        let chosen: [usize; 5] = std::array::from_fn(|_| set.choose());
        let more = if self.work.numbers.log { set.append_bytes() } else { 0 };
        // The keys of files count up from 0, and those of logs count down from the largest number.
        let (first, log) = (set.first, ProxyKeys::key(u64::MAX - set.first));
        let key = |file: usize| ProxyKeys::key(first + file as u64);
        let session = &mut self.session;
        let content = set.log_content();
        let mut erased = false;
        watch.time(1, |_| {
            erased = session.erase(&key(removed))?;
            session.put(&key(made), value)?;
            for (file, read) in chosen.into_iter().zip(&mut *reads) {
                session.get(&key(file), read)?;
            }
            if more > 0 {
                // An append is a get, a change and a put. The change needs the value of the get, so the time
                // of the change counts, too.
                session.get(&log, logged)?;
                if logged.len() + more > LOG_VALUE_BYTES {
                    logged.clear();
                }
                let size = logged.len();
                logged.resize(size + more, 0);
                content.fill(&mut logged[size..], size as u64);
                session.put(&log, logged)?;
            }
            Ok(())
        })?;
        watch.touch(made as u64);
        watch.touch(removed as u64);
        watch.require(erased, || format!("key {removed} was not there"))?;
        watch.require(content.matches(logged, 0), || "the log has wrong bytes".to_owned())?;
        for (file, read) in chosen.into_iter().zip(&*reads) {
            set.require(file, read, watch)?;
        }
        Ok(())
    }
}

impl Worker for ProxyKeys {
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        if row == 0 {
            self.make(watch)?;
        } else {
            for _ in 0..self.part.share(self.work.passes) {
                self.pass(watch)?;
            }
        }
        Ok(true)
    }

    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        for file in 0..self.set.members.len() {
            watch.check()?;
            let exists =
                self.session.get(&ProxyKeys::key(self.set.first + file as u64), &mut self.buffers[0])?;
            if self.set.members[file].bytes.is_some() {
                self.set.require(file, &self.buffers[0], watch)?;
            } else {
                watch.require(!exists, || format!("key {file} was erased, but exists"))?;
            }
        }
        Ok(())
    }
}
