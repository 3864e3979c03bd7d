//! A tree like that of sources: many small files in nested directories.

use std::path::Path;

use eyrie::{Kind, OpenFlags, Posix, SetTime, Target, Time};

use super::files::{make_dir, read_file, write_all};
use crate::error::Result;
use crate::method::{Stopwatch, ThreadPart};
use crate::values::{Chooser, Pattern};

/// Mean size of a file, in bytes.
pub(super) const FILE_BYTES: u64 = 12 << 10;
/// Number of files in a directory `module-*`, and number of such directories in a directory `part-*`.
const WIDTH: u64 = 16;
/// The time of every imported file, in seconds since 1970.
const SECONDS: i64 = 1_000_000_000;
/// The eight bytes for which a patch searches. It compares each whole word of a file with them. No file has
/// them, so a patch fails if it finds them.
const NEEDLE: [u8; 8] = *b"a needle";

/// A file of the tree.
struct TreeFile {
    path: String,
    bytes: usize,
    version: u32,
}

/// The tree of one thread, and the bytes that it should have.
pub(super) struct Tree {
    first: u64,
    directories: Vec<String>,
    files: Vec<TreeFile>,
    buffer: Vec<u8>,
    chooser: Chooser,
    /// The order in which `load` reads the files. The field keeps its memory for the next round.
    order: Vec<usize>,
}

impl Tree {
    /// Describes a tree in `directory`, which exists. `files` is the number of files of all threads.
    pub fn new(directory: &str, files: u64, part: ThreadPart) -> Tree {
        let count = part.share(files);
        let mut chooser = Chooser::new(part.thread);
        let root = format!("{directory}/tree-{}", part.thread);
        let mut directories = vec![root.clone()];
        let mut described = Vec::new();
        for number in 0..count {
            let (below, above) = (number / WIDTH, number / WIDTH / WIDTH);
            let path = format!("{root}/part-{above:04}/module-{below:06}");
            if number % WIDTH == 0 {
                if below % WIDTH == 0 {
                    directories.push(format!("{root}/part-{above:04}"));
                }
                directories.push(path.clone());
            }
            let bytes = chooser.gamma(FILE_BYTES) as usize;
            described.push(TreeFile { path: format!("{path}/source-{number:08}.c"), bytes, version: 0 });
        }
        let first = part.thread << 32;
        Tree { first, directories, files: described, buffer: Vec::new(), chooser, order: Vec::new() }
    }

    fn pattern(&self, file: usize) -> Pattern {
        Pattern::new(self.first + file as u64, self.files[file].version)
    }

    fn is_right(&self, file: usize, found: &[u8]) -> bool {
        found.len() == self.files[file].bytes && self.pattern(file).matches(found, 0)
    }

    /// Makes all directories and files. An import also sets the mode and the time of each file.
    pub fn unpack<P: Posix + Clone>(&mut self, fs: &P, import: bool, watch: &mut Stopwatch) -> Result<()> {
        let directories = &self.directories;
        watch.time(directories.len(), |at| make_dir(fs, &directories[at]))?;
        for file in 0..self.files.len() {
            self.files[file].version += 1;
            let TreeFile { path, bytes, .. } = &self.files[file];
            let (pattern, path) = (self.pattern(file), Path::new(path));
            self.buffer.resize(*bytes, 0);
            pattern.fill(&mut self.buffer, 0);
            watch.time(1, |_| {
                let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
                let handle = fs.open(path.into(), flags, 0o600)?;
                write_all(fs, &handle, &self.buffer, 0)?;
                if import {
                    let time = SetTime::from(Time { seconds: SECONDS, nanoseconds: 0 });
                    fs.chmod(Target::Open(&handle), 0o644)?;
                    fs.utimens(Target::Open(&handle), time, time)?;
                }
                Ok(fs.close(handle)?)
            })?;
            watch.touch(file as u64);
        }
        Ok(())
    }

    /// Reads every file, searches it for [`NEEDLE`], and writes the whole file with new bytes.
    pub fn patch<P: Posix>(&mut self, fs: &P, watch: &mut Stopwatch) -> Result<()> {
        let mut new = Vec::new();
        for file in 0..self.files.len() {
            let bytes = self.files[file].bytes;
            self.buffer.resize(bytes + 1, 0);
            new.resize(bytes, 0);
            Pattern::new(self.first + file as u64, self.files[file].version + 1).fill(&mut new, 0);
            let path = Path::new(&self.files[file].path);
            let (mut count, mut needles) = (0, 0);
            watch.time(1, |_| {
                count = read_file(fs, path, &mut self.buffer)?;
                let words = self.buffer[..count].as_chunks::<8>().0;
                needles += words.iter().filter(|word| **word == NEEDLE).count();
                let handle = fs.open(path.into(), OpenFlags::WRITE | OpenFlags::TRUNCATE, 0)?;
                write_all(fs, &handle, &new, 0)?;
                Ok(fs.close(handle)?)
            })?;
            watch.touch(file as u64);
            let right = self.is_right(file, &self.buffer[..count]) && needles == 0;
            watch.require(right, || format!("file {file} of the tree is wrong"))?;
            self.files[file].version += 1;
        }
        Ok(())
    }

    /// Lists every directory and reads the attributes of every file, as `git status` does.
    pub fn status<P: Posix>(&self, fs: &P, watch: &mut Stopwatch) -> Result<()> {
        let (mut sizes, mut names, mut late) = (0, 0, 0);
        let files = self.files.len() as u64;
        watch.time_whole(files, || {
            for directory in &self.directories {
                let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
                let handle = fs.open(Path::new(directory).into(), flags, 0)?;
                fs.list(&handle, 0, &mut |entry| {
                    names += u64::from(entry.kind == Kind::File);
                    true
                })?;
                fs.close(handle)?;
            }
            for file in &self.files {
                let stat = fs.stat(Target::NoFollow(Path::new(&file.path).into()))?;
                sizes += stat.size;
                late += u64::from(stat.modified.seconds != SECONDS);
            }
            Ok(())
        })?;
        (0..files).for_each(|file| watch.touch(file));
        let wanted = self.files.iter().map(|file| file.bytes as u64).sum::<u64>();
        watch.require(sizes == wanted && names == files && late == 0, || {
            format!("{names} names instead of {files}, {sizes} bytes instead of {wanted}, {late} wrong times")
        })
    }

    /// Reads all files in random order, each once, as a data loader does.
    pub fn load<P: Posix>(&mut self, fs: &P, watch: &mut Stopwatch) -> Result<()> {
        self.order.clear();
        self.order.extend(0..self.files.len());
        for at in (1..self.order.len()).rev() {
            self.order.swap(at, self.chooser.below(at as u64 + 1) as usize);
        }
        for at in 0..self.order.len() {
            let file = self.order[at];
            self.buffer.resize(self.files[file].bytes + 1, 0);
            let (path, mut count) = (Path::new(&self.files[file].path), 0);
            watch.time(1, |_| {
                count = read_file(fs, path, &mut self.buffer)?;
                Ok(())
            })?;
            watch.touch(file as u64);
            let right = self.is_right(file, &self.buffer[..count]);
            watch.require(right, || format!("file {file} of the tree is wrong"))?;
        }
        Ok(())
    }

    fn compare<P: Posix>(&mut self, fs: &P, watch: &mut Stopwatch) -> Result<()> {
        for file in 0..self.files.len() {
            watch.check()?;
            self.buffer.resize(self.files[file].bytes + 1, 0);
            let count = read_file(fs, Path::new(&self.files[file].path), &mut self.buffer)?;
            let right = self.is_right(file, &self.buffer[..count]);
            watch.require(right, || format!("file {file} of the tree is wrong before its removal"))?;
        }
        Ok(())
    }

    /// Compares all files, because no other row reads the bytes of a patch. Then removes all files and
    /// directories.
    pub fn remove<P: Posix>(&mut self, fs: &P, watch: &mut Stopwatch) -> Result<()> {
        self.compare(fs, watch)?;
        let files = &self.files;
        watch.time(files.len(), |at| Ok(fs.unlink(Path::new(&files[at].path).into())?))?;
        let last = self.directories.len();
        watch.time(last, |at| Ok(fs.rmdir(Path::new(&self.directories[last - 1 - at]).into())?))?;
        (0..files.len() as u64).for_each(|file| watch.touch(file));
        Ok(())
    }
}
