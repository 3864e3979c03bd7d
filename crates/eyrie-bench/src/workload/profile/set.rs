//! The files of one thread, and the bytes that they should have.

use std::fmt::Write;

use super::Numbers;
use crate::error::Result;
use crate::method::{Stopwatch, ThreadPart};
use crate::values::{Chooser, Pattern};

/// Largest size of the log, in bytes. A log that would become larger begins again at its start. In filebench
/// the log grows without end, but then later rounds would have a larger log than earlier ones.
pub(super) const LOG_BYTES: usize = 16 << 20;
/// The first number of the contents of logs. The numbers of the contents of files are lower.
const LOG: u64 = 1 << 50;

/// A file of a set: the version of its content, and its size. The size is `None` if the file does not exist.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetFile {
    pub version: u32,
    pub bytes: Option<usize>,
}

/// The files of one thread.
pub(super) struct FileSet {
    pub numbers: Numbers,
    /// The number of the first file.
    pub first: u64,
    pub members: Vec<SetFile>,
    /// The indices in `members` of the files that exist, and of those that do not.
    existing: Vec<usize>,
    absent: Vec<usize>,
    chooser: Chooser,
    pub directory: String,
    /// Levels of directories between the root of the set and its files.
    pub depth: u32,
    path: String,
    pub log_bytes: usize,
}

impl FileSet {
    pub fn new(numbers: Numbers, part: ThreadPart, directory: String) -> FileSet {
        let files = part.share(numbers.files);
        // A tree in which each directory has the mean number of entries needs this many levels to hold all
        // files. The level of the files counts, too.
        let depth = ((files as f64).ln() / (numbers.width as f64).ln()).ceil() as u32;
        FileSet {
            numbers,
            first: part.thread * files,
            members: vec![SetFile { version: 0, bytes: None }; files as usize],
            existing: Vec::new(),
            absent: (0..files as usize).collect(),
            chooser: Chooser::new(part.thread),
            directory,
            depth: depth.saturating_sub(1),
            path: String::new(),
            log_bytes: 0,
        }
    }

    /// Returns the path of a file. The next call uses the same memory.
    pub fn path(&mut self, file: usize) -> &str {
        self.path.clear();
        self.path.push_str(&self.directory);
        let mut number = file as u64 / self.numbers.width;
        for _ in 0..self.depth {
            // Writing to a string cannot fail.
            let _ = write!(self.path, "/{:04}", number % self.numbers.width);
            number /= self.numbers.width;
        }
        let _ = write!(self.path, "/{:08}", self.first + file as u64);
        &self.path
    }

    pub fn content(&self, file: usize) -> Pattern {
        Pattern::new(self.first + file as u64, self.members[file].version)
    }

    pub fn log_content(&self) -> Pattern {
        Pattern::new(LOG + self.first, 0)
    }

    /// Chooses a file that exists.
    pub fn choose(&mut self) -> usize {
        self.existing[self.chooser.below(self.existing.len() as u64) as usize]
    }

    /// Chooses a file that exists, and notes that it is removed.
    pub fn remove(&mut self) -> usize {
        let at = self.chooser.below(self.existing.len() as u64) as usize;
        let file = self.existing.swap_remove(at);
        self.members[file].bytes = None;
        // The order in `absent` does not matter, because `add` takes one of its files at random. So each
        // absent file is made again at some time.
        self.absent.push(file);
        file
    }

    /// Chooses a file that does not exist, and notes that it is made with no bytes.
    pub fn add(&mut self) -> usize {
        let at = self.chooser.below(self.absent.len() as u64) as usize;
        let file = self.absent.swap_remove(at);
        let member = &mut self.members[file];
        *member = SetFile { version: member.version + 1, bytes: Some(0) };
        self.existing.push(file);
        file
    }

    /// Notes an append to a file, and puts the appended bytes into `out`. Returns the offset of the append.
    pub fn append(&mut self, file: usize, bytes: usize, out: &mut Vec<u8>) -> u64 {
        let content = self.content(file);
        let size = self.members[file].bytes.get_or_insert(0);
        out.resize(bytes, 0);
        content.fill(out, *size as u64);
        let offset = *size as u64;
        *size += bytes;
        offset
    }

    /// Notes an append to the log, and puts the appended bytes into `out`. Returns the offset of the append,
    /// which is 0 if the log begins again at its start.
    pub fn log(&mut self, out: &mut Vec<u8>) -> u64 {
        let bytes = self.append_bytes();
        if self.log_bytes + bytes > LOG_BYTES {
            self.log_bytes = 0;
        }
        let offset = self.log_bytes as u64;
        out.resize(bytes, 0);
        self.log_content().fill(out, offset);
        self.log_bytes += bytes;
        offset
    }

    pub fn append_bytes(&mut self) -> usize {
        self.chooser.below(self.numbers.append_bytes) as usize + 1
    }

    pub fn file_bytes(&mut self) -> usize {
        self.chooser.gamma(self.numbers.file_bytes) as usize
    }

    /// Makes a buffer that is larger than a file, so that a read notices a file that is too long.
    pub fn room(&self, file: usize, out: &mut Vec<u8>) {
        out.resize(self.members[file].bytes.unwrap_or(0) + 1, 0);
    }

    /// Compares the bytes of a whole file.
    pub fn require(&self, file: usize, found: &[u8], watch: &mut Stopwatch) -> Result<()> {
        watch.touch(file as u64);
        let right = self.members[file].bytes == Some(found.len()) && self.content(file).matches(found, 0);
        watch.require(right, || format!("file {file} has wrong bytes"))
    }

    /// Returns the number of files that exist at the start.
    pub fn start(&self) -> u64 {
        self.members.len() as u64 * self.numbers.existing / 100
    }
}
