//! The calls on names.

use std::path::Path;

use eyrie::{OpenFlags, Posix, RenameMode, Target};

use super::{MicroWorker, Scale};
use crate::error::Result;
use crate::method::Stopwatch;
use crate::values::{NAME_NUMBERS, NumberedName, Pattern};
use crate::workload::files::{BLOCK_BYTES, NEW, count_names, make_file, read_file, write_all};

/// Number of calls that are timed together, so that the cost of the clock hardly counts. `write_new` times
/// fewer calls together, because it has memory for fewer blocks.
const TIMED_CALLS: u64 = 64;
/// Numbers of the contents ([`Pattern::new`]) of the first files of the small and of the large directory. The
/// content of file *n* has a number that is higher by *n*. The numbers of the contents of blocks (see
/// `blocks`) are lower, so no file has the bytes of a block.
const FILES: [u64; 2] = [4 << 40, 5 << 40];
/// Number of the content of the first file that `create` makes.
const MADE: u64 = 6 << 40;
/// Maximum number of threads, as in `eyrie bench`.
pub(super) const MOST_THREADS: u64 = 256;
/// Distance between the first numbers of two consecutive threads, so that the names of threads differ in a
/// shared directory.
const PER_THREAD: u64 = NAME_NUMBERS / MOST_THREADS;

/// Splits the numbers below `count` into ranges of at most [`TIMED_CALLS`] numbers. Returns the first number
/// and the length of each range.
fn ranges(count: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..count).step_by(TIMED_CALLS as usize).map(move |first| (first, TIMED_CALLS.min(count - first)))
}

impl<P: Posix + Clone> MicroWorker<P> {
    fn directory(&self, scale: Scale) -> String {
        let below = if scale == Scale::Few { "few" } else { "many" };
        format!("{}/{below}", self.directory)
    }

    /// Returns paths whose last component is `base` and a number.
    fn names(&self, scale: Scale, base: &str) -> NumberedName {
        NumberedName::new(&format!("{}/{base}", self.directory(scale)))
    }

    fn files(&self, scale: Scale) -> u64 {
        self.part.share(self.amounts.files(scale))
    }

    /// Returns the first number of this thread's names.
    fn first(&self) -> u64 {
        self.part.thread * PER_THREAD
    }

    fn random_files(&mut self, scale: Scale) -> Vec<u64> {
        let files = self.files(scale);
        (0..TIMED_CALLS).map(|_| self.chooser.below(files)).collect()
    }

    /// Makes the files of the directory.
    pub(super) fn make(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (first, mut names) = (self.first(), self.names(scale, "file-"));
        for (from, count) in ranges(self.files(scale)) {
            self.write_new(&mut names, FILES[scale as usize], first + from, count, watch)?;
            (from..from + count).for_each(|file| watch.touch(file));
        }
        Ok(())
    }

    /// Creates files with consecutive numbers, each with one block, and closes them. `contents` is the
    /// difference between the number of a file and the number of its content.
    fn write_new(
        &mut self,
        names: &mut NumberedName,
        contents: u64,
        from: u64,
        count: u64,
        watch: &mut Stopwatch,
    ) -> Result<()> {
        let blocks = self.buffers.len() as u64;
        for first in (from..from + count).step_by(blocks as usize) {
            let last = (first + blocks).min(from + count);
            for (block, number) in self.buffers.iter_mut().zip(first..last) {
                Pattern::new(contents + number, 0).fill(block, 0);
            }
            watch.time((last - first) as usize, |at| {
                let handle = self.fs.open(names.path(first + at as u64).into(), NEW, 0o644)?;
                write_all(&self.fs, &handle, &self.buffers[at], 0)?;
                Ok(self.fs.close(handle)?)
            })?;
        }
        Ok(())
    }

    pub(super) fn open(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (first, mut names) = (self.first(), self.names(scale, "file-"));
        for _ in ranges(self.share.names) {
            let files = self.random_files(scale);
            watch.time(files.len(), |at| {
                let handle = self.fs.open(names.path(first + files[at]).into(), OpenFlags::READ, 0)?;
                Ok(self.fs.close(handle)?)
            })?;
            files.into_iter().for_each(|file| watch.touch(file));
        }
        Ok(())
    }

    pub(super) fn stat(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (first, mut names) = (self.first(), self.names(scale, "file-"));
        let mut sizes = [0; TIMED_CALLS as usize];
        for _ in ranges(self.share.names) {
            let files = self.random_files(scale);
            watch.time(files.len(), |at| {
                sizes[at] = self.fs.stat(names.path(first + files[at]).into())?.size;
                Ok(())
            })?;
            for (file, size) in files.into_iter().zip(sizes) {
                watch.touch(file);
                watch.require(size == BLOCK_BYTES as u64, || format!("file {file} has {size} bytes"))?;
            }
        }
        Ok(())
    }

    /// Creates new files, and compares their bytes.
    pub(super) fn create(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let from = self.first() + self.made[scale as usize];
        let mut names = self.names(scale, "new-");
        for (at, count) in ranges(self.share.names) {
            self.write_new(&mut names, MADE, from + at, count, watch)?;
            for number in from + at..from + at + count {
                watch.touch(number - from);
                let found = read_file(&self.fs, names.path(number), &mut self.buffers[0])?;
                let right =
                    found == BLOCK_BYTES && Pattern::new(MADE + number, 0).matches(&self.buffers[0], 0);
                watch.require(right, || format!("new file {number} is wrong"))?;
            }
        }
        Ok(())
    }

    /// Removes the files that `create` made.
    pub(super) fn unlink(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let from = self.first() + self.made[scale as usize];
        let mut names = self.names(scale, "new-");
        for (at, count) in ranges(self.share.names) {
            watch.time(count as usize, |call| {
                Ok(self.fs.unlink(names.path(from + at + call as u64).into())?)
            })?;
            (at..at + count).for_each(|number| watch.touch(number));
        }
        self.made[scale as usize] += self.share.names;
        Ok(())
    }

    /// Renames files and gives them their old names again. Both directions are timed.
    pub(super) fn rename(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (files, offset) = (self.files(scale), self.first());
        let (mut names, mut moved) = (self.names(scale, "file-"), self.names(scale, "two-"));
        for (_, count) in ranges(self.share.names.min(files)) {
            let first = self.renamed[scale as usize];
            let file = |at: usize| offset + (first + at as u64) % files;
            watch.time(count as usize, |at| {
                let (from, to) = (names.path(file(at)), moved.path(file(at)));
                Ok(self.fs.rename_with(from.into(), to.into(), RenameMode::Replace)?)
            })?;
            watch.time(count as usize, |at| {
                let (from, to) = (moved.path(file(at)), names.path(file(at)));
                Ok(self.fs.rename_with(from.into(), to.into(), RenameMode::Replace)?)
            })?;
            for at in 0..count {
                watch.touch((first + at) % files);
            }
            self.renamed[scale as usize] = (first + count) % files;
        }
        Ok(())
    }

    pub(super) fn make_directories(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (first, mut names) = (self.first(), self.names(scale, "dir-"));
        for (from, count) in ranges(self.share.names) {
            watch.time(count as usize, |at| {
                Ok(self.fs.mkdir(names.path(first + from + at as u64).into(), 0o755)?)
            })?;
            (from..from + count).for_each(|number| watch.touch(number));
        }
        Ok(())
    }

    pub(super) fn remove_directories(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (first, mut names) = (self.first(), self.names(scale, "dir-"));
        for (from, count) in ranges(self.share.names) {
            watch.time(count as usize, |at| {
                Ok(self.fs.rmdir(names.path(first + from + at as u64).into())?)
            })?;
            (from..from + count).for_each(|number| watch.touch(number));
        }
        Ok(())
    }

    pub(super) fn symlink(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (first, mut names) = (self.first(), self.names(scale, "link-"));
        let mut targets = NumberedName::new("target-");
        for (from, count) in ranges(self.share.names) {
            watch.time(count as usize, |at| {
                let number = first + from + at as u64;
                Ok(self.fs.symlink(targets.path(number), names.path(number).into())?)
            })?;
            (from..from + count).for_each(|number| watch.touch(number));
        }
        Ok(())
    }

    /// Reads the links that `symlink` made, compares their targets, and removes them.
    pub(super) fn read_link(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (first, mut names) = (self.first(), self.names(scale, "link-"));
        let mut targets = NumberedName::new("target-");
        let mut found = vec![Vec::new(); TIMED_CALLS as usize];
        for (from, count) in ranges(self.share.names) {
            watch.time(count as usize, |at| {
                found[at] = self.fs.readlink(names.path(first + from + at as u64).into())?;
                Ok(())
            })?;
            for (at, found) in found.iter().enumerate().take(count as usize) {
                let number = first + from + at as u64;
                watch.touch(from + at as u64);
                let right = targets.key(number) == &found[..];
                watch.require(right, || format!("link {number} has another target"))?;
                self.fs.unlink(names.path(number).into())?;
            }
        }
        Ok(())
    }

    /// Truncates files of one block to 0 bytes. Only the truncation is timed, not the creation and the
    /// removal of the files.
    pub(super) fn truncate(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let (first, mut names) = (self.first(), self.names(scale, "truncated-"));
        for (from, count) in ranges(self.share.names) {
            let numbers = first + from..first + from + count;
            for number in numbers.clone() {
                let content = Pattern::new(number, 0);
                make_file(&self.fs, names.path(number), content, BLOCK_BYTES, &mut self.buffers[0])?;
            }
            watch.time(count as usize, |at| {
                let path = names.path(first + from + at as u64);
                Ok(self.fs.truncate(path.into(), 0)?)
            })?;
            for number in numbers {
                let size = self.fs.stat(Target::NoFollow(names.path(number).into()))?.size;
                watch.touch(number - first);
                watch.require(size == 0, || format!("file {number} still has {size} bytes"))?;
                self.fs.unlink(names.path(number).into())?;
            }
        }
        Ok(())
    }

    /// Lists the directory. Then compares the number of names, and the sum of the numbers in the names, with
    /// those of the files.
    pub(super) fn list(&mut self, scale: Scale, watch: &mut Stopwatch) -> Result<()> {
        let directory = self.directory(scale);
        let (own, shared) = (self.files(scale), self.part.shared);
        let threads = if shared { 0..self.part.threads } else { self.part.thread..self.part.thread + 1 };
        let files = own * (threads.end - threads.start);
        let numbers = threads.flat_map(|thread| (0..own).map(move |file| thread * PER_THREAD + file));
        let wanted = numbers.fold(0, u64::wrapping_add);
        let (mut count, mut sum) = (0, 0_u64);
        watch.time_whole(files, || {
            let handle =
                self.fs.open(Path::new(&directory).into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0)?;
            self.fs.list(&handle, 0, &mut |entry| {
                if let Some(digits) = entry.name.strip_prefix(b"file-") {
                    count += 1;
                    let digit = |number, digit: &u8| number * 10 + u64::from(digit - b'0');
                    sum = sum.wrapping_add(digits.iter().fold(0, digit));
                }
                true
            })?;
            Ok(self.fs.close(handle)?)
        })?;
        (0..own).for_each(|file| watch.touch(file));
        watch.require(count == files && sum == wanted, || {
            format!("a listing has {count} names (sum of numbers {sum}) instead of {files} (sum {wanted})")
        })
    }

    /// Compares the bytes of each file in both directories with its content, and counts the names.
    pub(super) fn prove_names(&mut self, watch: &mut Stopwatch) -> Result<()> {
        // The buffer is one byte larger than a file, so that a read notices a file that is too long.
        let mut buffer = vec![0; BLOCK_BYTES + 1];
        for scale in [Scale::Few, Scale::Many] {
            if !self.rows.contains(&(super::FileOperation::Make, scale)) {
                continue;
            }
            let (first, files, mut names) = (self.first(), self.files(scale), self.names(scale, "file-"));
            for number in first..first + files {
                if number % 1024 == 0 {
                    watch.check()?;
                }
                let found = read_file(&self.fs, names.path(number), &mut buffer)?;
                let content = Pattern::new(FILES[scale as usize] + number, 0);
                let right = found == BLOCK_BYTES && content.matches(&buffer[..found], 0);
                watch.require(right, || format!("file {number} is wrong"))?;
            }
            let wanted = if self.part.shared { files * self.part.threads } else { files };
            let found = count_names(&self.fs, &self.directory(scale))?;
            watch.require(found == wanted, || format!("{found} names instead of {wanted}"))?;
        }
        Ok(())
    }
}
