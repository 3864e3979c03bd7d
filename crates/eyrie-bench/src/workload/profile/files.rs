//! The profiles on files.

use std::path::Path;

use eyrie::{OpenFlags, Posix, Target};

use super::set::FileSet;
use super::{Filebench, Profile};
use crate::error::{Error, Result};
use crate::method::{FileWork, Stopwatch, ThreadPart, Worker};
use crate::workload::files::{MIB, NEW, make_dir, make_file, read_file, read_whole, write_all};

/// Buffers of a thread. A pass of `webserver` uses one for the append to the log, and ten for its reads. The
/// other profiles use fewer.
const BUFFERS: usize = 11;

/// The work of one thread on files.
struct FileProfile<P: Posix> {
    work: Filebench,
    part: ThreadPart,
    fs: P,
    set: FileSet,
    /// The open log, until the final comparison closes it.
    log: Option<P::Handle>,
    buffers: [Vec<u8>; BUFFERS],
}

impl FileWork for Filebench {
    fn worker<P>(&self, fs: P, directory: String, part: ThreadPart) -> Result<Box<dyn Worker>>
    where
        P: Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync,
    {
        make_dir(&fs, &directory)?;
        let mut set = FileSet::new(self.numbers, part, directory);
        for file in 0..set.members.len() {
            // Only the first file of each directory makes the directory. The number of this file is a
            // multiple of the width.
            if set.depth == 0 || !(file as u64).is_multiple_of(set.numbers.width) {
                continue;
            }
            let path = set.path(file).to_owned();
            // The path before a slash is a directory to make. The filter leaves out the directory of the
            // thread and those above it, which exist.
            for (at, _) in path.match_indices('/').filter(|(at, _)| *at > set.directory.len()) {
                make_dir(&fs, &path[..at])?;
            }
        }
        let log = format!("{}/log-{}", set.directory, part.thread);
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let log = fs.open(Path::new(&log).into(), flags, 0o644)?;
        let buffers = Default::default();
        Ok(Box::new(FileProfile { work: self.clone(), part, fs, set, log: Some(log), buffers }))
    }
}

fn closed_log() -> Error {
    Error::wrong("the log is closed")
}

impl<P: Posix> FileProfile<P> {
    /// Makes the files that exist at the start.
    fn make(&mut self, watch: &mut Stopwatch) -> Result<()> {
        for _ in 0..self.set.start() {
            let file = self.set.add();
            let bytes = self.set.file_bytes();
            self.set.members[file].bytes = Some(bytes);
            let content = self.set.content(file);
            let path = self.set.path(file);
            watch.time(1, |_| make_file(&self.fs, path.as_ref(), content, bytes, &mut self.buffers[0]))?;
            watch.touch(file as u64);
        }
        Ok(())
    }

    /// Makes one pass of the profile's loop, and compares the results.
    fn pass(&mut self, watch: &mut Stopwatch) -> Result<()> {
        match self.work.profile {
            Profile::Fileserver => self.fileserver(watch),
            Profile::Webserver => self.webserver(watch),
            Profile::Webproxy => self.webproxy(watch),
            Profile::Varmail => self.varmail(watch),
        }
    }

    fn fileserver(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let [content, more, read, ..] = &mut self.buffers;
        let set = &mut self.set;
        let (bytes, append) = (set.file_bytes(), set.append_bytes());
        let made = set.add();
        set.append(made, bytes, content);
        let appended = set.choose();
        let offset = set.append(appended, append, more);
        let chosen = set.choose();
        set.room(chosen, read);
        let size = set.members[chosen].bytes;
        let chosen_content = set.content(chosen);
        let removed = set.remove();
        let examined = set.choose();
        let size_examined = set.members[examined].bytes.unwrap_or(0) as u64;
        let paths = [made, appended, chosen, removed, examined].map(|file| set.path(file).to_owned());
        let [made_path, appended_path, chosen_path, removed_path, examined_path] =
            paths.each_ref().map(Path::new);
        let (mut count, mut found) = (0, 0);
        let fs = &self.fs;
        watch.time(1, |_| {
            let handle = fs.open(made_path.into(), NEW, 0o644)?;
            for (at, part) in (0..).zip(content.chunks(MIB)) {
                write_all(fs, &handle, part, at * MIB as u64)?;
            }
            fs.close(handle)?;
            let handle = fs.open(appended_path.into(), OpenFlags::WRITE, 0)?;
            write_all(fs, &handle, more, offset)?;
            fs.close(handle)?;
            count = read_file(fs, chosen_path, read)?;
            fs.unlink(removed_path.into())?;
            found = fs.stat(Target::Follow(examined_path.into()))?.size;
            Ok(())
        })?;
        for file in [made, appended, chosen, removed, examined] {
            watch.touch(file as u64);
        }
        let right = size == Some(count) && chosen_content.matches(&read[..count], 0);
        watch.require(right, || format!("file {chosen} has wrong bytes"))?;
        watch.require(found == size_examined, || format!("file {examined} has {found} bytes"))
    }

    fn webserver(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let chosen: [usize; 10] = std::array::from_fn(|_| self.set.choose());
        let paths = chosen.map(|file| self.set.path(file).to_owned());
        let [more, reads @ ..] = &mut self.buffers;
        for (file, read) in chosen.into_iter().zip(&mut *reads) {
            self.set.room(file, read);
        }
        let offset = self.set.log(more);
        let log = self.log.as_ref().ok_or_else(closed_log)?;
        let mut counts = [0; 10];
        watch.time(1, |_| {
            for ((path, read), count) in paths.iter().zip(&mut *reads).zip(&mut counts) {
                *count = read_file(&self.fs, path.as_ref(), read)?;
            }
            write_all(&self.fs, log, more, offset)
        })?;
        for ((file, read), count) in chosen.into_iter().zip(&*reads).zip(counts) {
            self.set.require(file, &read[..count], watch)?;
        }
        Ok(())
    }

    fn webproxy(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let removed = self.set.remove();
        let removed_path = self.set.path(removed).to_owned();
        let made = self.set.add();
        let made_path = self.set.path(made).to_owned();
        let [content, more, reads @ ..] = &mut self.buffers;
        let bytes = self.set.append_bytes();
        self.set.append(made, bytes, content);
        let chosen: [usize; 5] = std::array::from_fn(|_| self.set.choose());
        let paths = chosen.map(|file| self.set.path(file).to_owned());
        for (file, read) in chosen.into_iter().zip(&mut *reads) {
            self.set.room(file, read);
        }
        let has_log = self.work.numbers.log;
        let offset = if has_log { self.set.log(more) } else { 0 };
        let log = self.log.as_ref().ok_or_else(closed_log)?;
        let (mut counts, fs) = ([0; 5], &self.fs);
        watch.time(1, |_| {
            fs.unlink(Path::new(&removed_path).into())?;
            let handle = fs.open(Path::new(&made_path).into(), NEW, 0o644)?;
            write_all(fs, &handle, content, 0)?;
            fs.close(handle)?;
            for ((path, read), count) in paths.iter().zip(&mut *reads).zip(&mut counts) {
                *count = read_file(fs, path.as_ref(), read)?;
            }
            if has_log { write_all(fs, log, more, offset) } else { Ok(()) }
        })?;
        watch.touch(made as u64);
        watch.touch(removed as u64);
        for ((file, read), count) in chosen.into_iter().zip(&*reads).zip(counts) {
            self.set.require(file, &read[..count], watch)?;
        }
        Ok(())
    }

    fn varmail(&mut self, watch: &mut Stopwatch) -> Result<()> {
        let removed = self.set.remove();
        let removed_path = self.set.path(removed).to_owned();
        let made = self.set.add();
        let [first, second, mail, read, ..] = &mut self.buffers;
        let (bytes, more) = (self.set.append_bytes(), self.set.append_bytes());
        self.set.append(made, bytes, first);
        let answered = self.set.choose();
        self.set.room(answered, mail);
        let (content, size) = (self.set.content(answered), self.set.members[answered].bytes);
        let offset = self.set.append(answered, more, second);
        let chosen = self.set.choose();
        self.set.room(chosen, read);
        let paths = [made, answered, chosen].map(|file| self.set.path(file).to_owned());
        let [made_path, answered_path, chosen_path] = paths.each_ref().map(Path::new);
        let (mut counts, fs) = ([0; 2], &self.fs);
        watch.time(1, |_| {
            fs.unlink(Path::new(&removed_path).into())?;
            let handle = fs.open(made_path.into(), NEW, 0o644)?;
            write_all(fs, &handle, first, 0)?;
            fs.fsync(&handle)?;
            fs.close(handle)?;
            let handle = fs.open(answered_path.into(), OpenFlags::READ | OpenFlags::WRITE, 0)?;
            counts[0] = read_whole(fs, &handle, mail)?;
            write_all(fs, &handle, second, offset)?;
            fs.fsync(&handle)?;
            fs.close(handle)?;
            counts[1] = read_file(fs, chosen_path, read)?;
            Ok(())
        })?;
        watch.touch(made as u64);
        watch.touch(answered as u64);
        watch.touch(removed as u64);
        let right = size == Some(counts[0]) && content.matches(&mail[..counts[0]], 0);
        watch.require(right, || format!("file {answered} has wrong bytes"))?;
        self.set.require(chosen, &read[..counts[1]], watch)
    }
}

impl<P: Posix + Send> Worker for FileProfile<P>
where
    P::Handle: Send,
{
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
        let buffer = &mut self.buffers[0];
        for file in 0..self.set.members.len() {
            watch.check()?;
            self.set.room(file, buffer);
            let path = self.set.path(file).to_owned();
            if self.set.members[file].bytes.is_some() {
                let count = read_file(&self.fs, path.as_ref(), buffer)?;
                self.set.require(file, &buffer[..count], watch)?;
            } else {
                let found = self.fs.stat(Target::NoFollow(Path::new(&path).into()));
                watch.require(found.is_err(), || format!("file {file} was removed, but exists"))?;
            }
        }
        if let Some(log) = self.log.take() {
            // If the log has begun again at its start, earlier bytes follow its end. They are not compared.
            buffer.resize(self.set.log_bytes, 0);
            let count = read_whole(&self.fs, &log, buffer)?;
            self.fs.close(log)?;
            let right = count == buffer.len() && self.set.log_content().matches(buffer, 0);
            watch.require(right, || "the log has wrong bytes".to_owned())?;
        }
        Ok(())
    }
}
