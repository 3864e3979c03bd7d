//! Writes a tree as an archive.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie::{File, InodeFlags, Kind, OpenFlags, Posix, PosixExt, PosixProjects, Target, WalkEntry, WalkStep};

use super::member::{Body, Member};
use super::sparse::{MAX_RUNS, whole};
use super::write::ArchiveWriter;
use crate::copy::{CHUNK_BYTES, CopyError, DataRuns, OnSide, Progress, Xattrs, open_entry, read_xattrs};
use crate::failure::{reason, reason_of_io};

/// An archive that is being written.
struct Dumper<W> {
    archive: ArchiveWriter<W>,
    /// For each object with several names, the name of its member in the archive.
    first: HashMap<u64, Vec<u8>>,
    buffer: Vec<u8>,
}

/// Writes the tree `root` of `source` to `output`. `progress` counts the entries that could not be stored.
/// After an interrupt, or a failed write of a member, the archive has no end mark.
///
/// # Errors
/// As [`PosixExt::walk`].
pub fn dump<S: PosixProjects + Clone>(
    source: &S,
    root: &Path,
    output: impl Write,
    progress: &Progress<'_>,
) -> eyrie::Result<()> {
    let walk = source.walk(root)?;
    let mut dumper =
        Dumper { archive: ArchiveWriter::new(output), first: HashMap::new(), buffer: Vec::new() };
    for step in walk {
        if progress.stopped() {
            return Ok(());
        }
        let (relative, result) = match step {
            WalkStep::Entry(entry) => {
                let result = dumper.enter(&entry, progress);
                (entry.relative, result)
            }
            WalkStep::Left(_) => continue,
            WalkStep::Failed(relative, error) => (relative, Err(error).reading()),
        };
        if let Err(error) = result {
            progress.failed(&relative, &error);
        }
    }
    if progress.stopped() {
        return Ok(());
    }
    if let Err(error) = written(dumper.archive.finish()) {
        progress.failed(Path::new(""), &error);
    }
    Ok(())
}

/// Makes a failed write fatal, because the rest of the archive cannot be written, either.
fn written(result: io::Result<()>) -> Result<(), CopyError> {
    result.map_err(|error| CopyError::Fatal(reason_of_io(&error)))
}

/// Returns the name of an entry in the archive: `./`, followed by the path under the root. So the root has
/// the name `./`. Names of directories below the root end with a slash.
fn name_of<S: Posix>(entry: &WalkEntry<S>) -> Vec<u8> {
    let mut name = [b"./", entry.relative.as_os_str().as_bytes()].concat();
    if entry.kind == Kind::Directory && entry.depth > 0 {
        name.push(b'/');
    }
    name
}

/// Returns the inode flags of a directory.
fn flags_of_directory<S: Posix + Clone>(entry: &WalkEntry<S>) -> Result<InodeFlags, CopyError> {
    let flags = OpenFlags::READ | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW;
    // The walk reports a directory that cannot be opened, so this function does not report it.
    let Ok(handle) = entry.dir().open(entry.name().into(), flags, 0) else { return Ok(InodeFlags::empty()) };
    flags_of(&File::from_handle(entry.dir().clone(), handle, false))
}

fn flags_of<S: Posix + Clone>(file: &File<S>) -> Result<InodeFlags, CopyError> {
    let lost =
        |error| CopyError::Source(format!("{}; the archive has none of its inode flags", reason(&error)));
    file.inode_flags().map_err(lost)
}

impl<W: Write> Dumper<W> {
    fn enter<S: PosixProjects + Clone>(
        &mut self,
        entry: &WalkEntry<S>,
        progress: &Progress<'_>,
    ) -> Result<(), CopyError> {
        let stat = entry.stat().reading()?;
        let several = stat.links > 1 && !stat.is_dir();
        let name = name_of(entry);
        if let Some(first) = self.first.get(&stat.inode).filter(|_| several) {
            let body = Body::Link(first.clone());
            let mut stat = stat;
            stat.size = 0;
            let (xattrs, flags, project) = (Xattrs::new(), InodeFlags::empty(), 0);
            let mut member = Member { name, stat, xattrs, flags, project, body };
            written(self.archive.member(&mut member))?;
            progress.linked(Path::new(OsStr::from_bytes(&member.name)));
            return Ok(());
        }
        let xattrs = read_xattrs(entry.dir(), entry.name(), progress);
        let kept = xattrs.len();
        let project = entry.dir().project(Target::NoFollow(entry.name().into())).reading()?;
        let (flags, body) = (InodeFlags::empty(), Body::Special);
        let member = Member { name: name.clone(), stat, xattrs, flags, project, body };
        let bytes = self.store(entry, member)?;
        (0..kept).for_each(|_| progress.xattr_kept());
        progress.completed(stat.kind, Path::new(OsStr::from_bytes(&name)), bytes);
        if several {
            self.first.insert(stat.inode, name);
        }
        Ok(())
    }

    /// Sets the flags and the body of `member`, which describes `entry`, and writes `member` to the archive.
    /// Returns the number of stored bytes of a file.
    fn store<S: Posix + Clone>(
        &mut self,
        entry: &WalkEntry<S>,
        mut member: Member,
    ) -> Result<u64, CopyError> {
        let mut flags = Ok(InodeFlags::empty());
        member.body = match member.stat.kind {
            Kind::File => {
                let file = open_entry(entry).reading()?;
                // Another program may have changed or replaced the file since the walk found it.
                member.stat = file.metadata().reading()?;
                return self.file(&file, member);
            }
            Kind::Directory => {
                flags = flags_of_directory(entry);
                Body::Directory
            }
            Kind::Symlink => Body::Symlink(entry.dir().readlink(entry.name().into()).reading()?),
            Kind::Fifo | Kind::CharDevice | Kind::BlockDevice => Body::Special,
            Kind::Socket => return Err(CopyError::Source("archives have no sockets".to_owned())),
        };
        member.flags = flags.as_ref().copied().unwrap_or_default();
        written(self.archive.member(&mut member))?;
        flags.map(|_| 0)
    }

    fn file<S: Posix + Clone>(&mut self, file: &File<S>, mut member: Member) -> Result<u64, CopyError> {
        let size = member.stat.size;
        let mut data = DataRuns::new(file).reading()?;
        let mut runs = Vec::new();
        while let Some(run) = data.next().reading()? {
            runs.push(run);
            // The reader refuses a list of more than `MAX_RUNS` ranges, and `encode` may add one range for a
            // hole at the end of the file. So a file with `MAX_RUNS` ranges or more is stored with zeros in
            // place of its holes. A file is refused if it would then have more data than a file of its file
            // system can have.
            if runs.len() >= MAX_RUNS {
                if size > file.file_system().data_bytes_max() {
                    let why = "too many ranges of data for an archive, and too large without its holes";
                    return Err(CopyError::Source(why.to_owned()));
                }
                runs = whole(size);
                break;
            }
        }
        let flags = flags_of(file);
        member.flags = flags.as_ref().copied().unwrap_or_default();
        member.body = Body::File(runs);
        written(self.archive.member(&mut member))?;
        let Body::File(runs) = member.body else { return Ok(0) };
        let mut bytes = 0;
        let mut first_error = flags.err();
        for run in runs {
            let mut offset = run.start;
            while offset < run.end {
                CopyError::check_interrupt()?;
                let room = usize::try_from(run.end - offset).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                self.buffer.resize(room.max(self.buffer.len()), 0);
                let chunk = &mut self.buffer[..room];
                if let Err(error) = read(file, chunk, offset) {
                    first_error.get_or_insert(error);
                }
                written(self.archive.data(chunk))?;
                offset += room as u64;
                bytes += room as u64;
            }
        }
        match first_error {
            Some(error) => Err(error),
            None => Ok(bytes),
        }
    }
}

/// Fills a chunk with the bytes at `offset`. Bytes that cannot be read become zeros, because the header has
/// the size of the file already. A file that has become shorter lacks the bytes after its new end.
fn read<S: Posix + Clone>(file: &File<S>, chunk: &mut [u8], offset: u64) -> Result<(), CopyError> {
    let mut done = 0;
    let why = loop {
        if done == chunk.len() {
            return Ok(());
        }
        match file.read_at(&mut chunk[done..], offset + done as u64) {
            Ok(0) => break "the file has become shorter".to_owned(),
            Ok(count) => done += count,
            Err(error) => break reason(&error),
        }
    };
    chunk[done..].fill(0);
    Err(CopyError::Source(format!("{why}; the archive has zeros in place of these bytes")))
}

#[cfg(test)]
mod tests {
    use eyrie::Host;

    use super::*;

    #[test]
    fn bytes_after_the_end_are_zeros_and_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::new(directory.path()).unwrap();
        host.write("file", "five!").unwrap();
        let file = host.options().read(true).open("file").unwrap();
        let mut chunk = [1; 4];
        assert!(read(&file, &mut chunk[..3], 2).is_ok());
        assert_eq!(&chunk, b"ve!\x01");
        let failed = read(&file, &mut chunk, 2);
        assert!(
            matches!(&failed, Err(CopyError::Source(why)) if why.starts_with("the file has become shorter"))
        );
        assert_eq!(&chunk, b"ve!\0");
    }
}
