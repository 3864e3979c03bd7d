//! `catd`: the calls with which the paper about SpanFS (ATC 2015) measures metadata: create, append with
//! `fsync`, truncate and delete, each of many files in a directory.

use eyrie::{OpenFlags, Posix, Target};

use super::files::{BLOCK_BYTES, NEW, make_dir, read_file, write_all};
use super::micro::thousands;
use crate::error::Result;
use crate::method::{FileWork, Plan, RowPlan, Stopwatch, Targets, ThreadPart, Worker};
use crate::run::{Workload, file_workers};
use crate::side::Side;
use crate::values::{NAME_NUMBERS, NumberedName, Pattern};

/// Number of calls that are timed together.
const TIMED_CALLS: u64 = 16;
/// The rows, in their order.
const ROWS: [&str; 4] = ["create", "append 4 KiB + fsync", "truncate", "delete"];

/// The workload.
#[derive(Clone, Copy, Debug)]
pub struct Catd {
    files: u64,
}

impl Catd {
    /// Makes the workload with `files` files for each thread. The paper has 10,000.
    pub fn new(files: u64) -> Catd {
        Catd { files }
    }
}

impl Workload for Catd {
    fn title(&self) -> String {
        "bench catd".to_owned()
    }

    fn notes(&self) -> Vec<String> {
        let files = thousands(self.files);
        vec![format!("each thread has {files} files in a round, in a directory of its own unless shared")]
    }

    fn bytes(&self, threads: u64) -> u64 {
        // Each thread has its own files. Runs with up to 16 threads get volumes of the same size.
        self.files * threads.max(16) * BLOCK_BYTES as u64 + (64 << 20)
    }

    fn most_threads(&self) -> u64 {
        NAME_NUMBERS / self.files.max(1)
    }

    fn plan(&self, _threads: u64) -> Plan {
        let row = |name: &&str| RowPlan::new(*name, Targets::each("files", self.files));
        Plan { groups: vec![ROWS.iter().map(row).collect()] }
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        file_workers(self, side, parts)
    }
}

/// The work of one thread.
struct CatdWorker<P> {
    fs: P,
    files: u64,
    first: u64,
    names: NumberedName,
    buffer: Vec<u8>,
}

impl FileWork for Catd {
    fn worker<P>(&self, fs: P, directory: String, part: ThreadPart) -> Result<Box<dyn Worker>>
    where
        P: Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync,
    {
        make_dir(&fs, &directory)?;
        let names = NumberedName::new(&format!("{directory}/file-"));
        let buffer = vec![0; BLOCK_BYTES + 1];
        Ok(Box::new(CatdWorker { fs, files: self.files, first: part.thread * self.files, names, buffer }))
    }
}

impl<P: Posix> CatdWorker<P> {
    fn size(&mut self, number: u64) -> Result<u64> {
        Ok(self.fs.stat(Target::NoFollow(self.names.path(number).into()))?.size)
    }
}

impl<P: Posix + Send> Worker for CatdWorker<P> {
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        let (fs, end) = (&self.fs, self.first + self.files);
        for first in (self.first..end).step_by(TIMED_CALLS as usize) {
            let count = TIMED_CALLS.min(end - first);
            if row == 1 {
                // The files of these calls all get the same bytes, also in later rounds. The comparison still
                // notices a lost append, because each round makes the files anew.
                Pattern::new(first, 0).fill(&mut self.buffer[..BLOCK_BYTES], 0);
            }
            let (names, data) = (&mut self.names, &self.buffer[..BLOCK_BYTES]);
            watch.time(count as usize, |at| {
                let path = names.path(first + at as u64);
                match row {
                    0 => fs.close(fs.open(path.into(), NEW, 0o644)?)?,
                    1 => {
                        let handle = fs.open(path.into(), OpenFlags::WRITE | OpenFlags::APPEND, 0)?;
                        write_all(fs, &handle, data, 0)?;
                        fs.fsync(&handle)?;
                        fs.close(handle)?;
                    }
                    2 => fs.truncate(path.into(), 0)?,
                    _ => fs.unlink(path.into())?,
                }
                Ok(())
            })?;
            (first..first + count).for_each(|number| watch.touch(number - self.first));
        }
        for number in self.first..end {
            match row {
                0 | 2 => {
                    let size = self.size(number)?;
                    watch.require(size == 0, || format!("file {number} has {size} bytes"))?;
                }
                1 => {
                    let first = number - (number - self.first) % TIMED_CALLS;
                    let found = read_file(&self.fs, self.names.path(number), &mut self.buffer)?;
                    let right =
                        found == BLOCK_BYTES && Pattern::new(first, 0).matches(&self.buffer[..found], 0);
                    watch.require(right, || format!("file {number} is wrong"))?;
                }
                _ => {
                    let found = self.size(number);
                    watch.require(found.is_err(), || format!("file {number} still exists"))?;
                }
            }
            if number % 1024 == 0 {
                watch.check()?;
            }
        }
        Ok(true)
    }

    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let found = self.size(self.first);
        watch.require(found.is_err(), || "the first file is left".to_owned())
    }
}
