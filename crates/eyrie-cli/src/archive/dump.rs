//! Writes a tree as an archive.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie::{File, Kind, Posix, PosixExt, Stat, Walk, WalkEntry, WalkStep};

use super::member::{Body, Member};
use super::sparse::{MOST_RUNS, whole};
use super::write::ArchiveWriter;
use crate::copy::{CHUNK_BYTES, OnSide, Progress, Side, Xattrs, next_run, read_xattrs};
use crate::failure::reason_of_io;

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
/// As [`Walk::new`].
pub fn dump<S: Posix>(
    source: &S,
    root: &Path,
    output: impl Write,
    progress: &Progress<'_>,
) -> eyrie::Result<()> {
    let walk = Walk::new(source, root)?;
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
        if let Err(side) = result {
            progress.failed(&relative, &side);
        }
    }
    if progress.stopped() {
        return Ok(());
    }
    if let Err(side) = written(dumper.archive.finish()) {
        progress.failed(Path::new(""), &side);
    }
    Ok(())
}

/// Makes a failed write fatal, because the rest of the archive cannot be written, either.
fn written(result: io::Result<()>) -> Result<(), Side> {
    result.map_err(|error| Side::Fatal(reason_of_io(&error)))
}

/// Returns the name in the archive. Names begin at the root, which is `./`. Names of directories below the
/// root end with a slash.
fn name_of<S>(entry: &WalkEntry<'_, S>) -> Vec<u8> {
    let mut name = [b"./", entry.relative.as_os_str().as_bytes()].concat();
    if entry.kind == Kind::Directory && entry.depth > 0 {
        name.push(b'/');
    }
    name
}

impl<W: Write> Dumper<W> {
    fn enter<S: Posix>(&mut self, entry: &WalkEntry<'_, S>, progress: &Progress<'_>) -> Result<(), Side> {
        let stat = entry.stat().reading()?;
        let several = stat.links > 1 && !stat.is_dir();
        let name = name_of(entry);
        if let Some(first) = self.first.get(&stat.inode).filter(|_| several) {
            let body = Body::Link(first.clone());
            let member = Member { name, stat: Stat { size: 0, ..stat }, xattrs: Xattrs::new(), body };
            written(self.archive.member(&member))?;
            progress.linked(Path::new(OsStr::from_bytes(&member.name)));
            return Ok(());
        }
        let xattrs = read_xattrs(&**entry.base(), entry.name(), progress);
        let kept = xattrs.len();
        let bytes = self.store(entry, name.clone(), stat, xattrs)?;
        (0..kept).for_each(|_| progress.xattr_kept());
        progress.completed(stat.kind, Path::new(OsStr::from_bytes(&name)), bytes);
        if several {
            self.first.insert(stat.inode, name);
        }
        Ok(())
    }

    /// Writes one entry. Returns the number of bytes of a file that are stored.
    fn store<S: Posix>(
        &mut self,
        entry: &WalkEntry<'_, S>,
        name: Vec<u8>,
        stat: Stat,
        xattrs: Xattrs,
    ) -> Result<u64, Side> {
        let body = match stat.kind {
            Kind::File => {
                let options = entry.base().options().read(true).no_follow(true);
                let file = options.open(entry.name()).reading()?;
                return self.file(&**entry.base(), &file, name, stat, xattrs);
            }
            Kind::Directory => Body::Directory,
            Kind::Symlink => Body::Symlink(entry.base().readlink(entry.name()).reading()?),
            Kind::Fifo | Kind::CharDevice | Kind::BlockDevice => Body::Special,
            Kind::Socket => return Err(Side::Target("archives have no sockets".to_owned())),
        };
        written(self.archive.member(&Member { name, stat, xattrs, body }))?;
        Ok(0)
    }

    fn file<S: Posix>(
        &mut self,
        source: &S,
        file: &File<'_, S>,
        name: Vec<u8>,
        stat: Stat,
        xattrs: Xattrs,
    ) -> Result<u64, Side> {
        let mut runs = Vec::new();
        let mut offset = 0;
        while let Some(run) = next_run(source, file, offset).reading()? {
            offset = run.end;
            runs.push(run);
            // The reader refuses a list of more than `MOST_RUNS` ranges, and `encode` may add one range for a
            // hole at the end of the file. So a file with `MOST_RUNS` ranges or more is stored with zeros in
            // place of its holes.
            if runs.len() >= MOST_RUNS {
                runs = whole(stat.size);
                break;
            }
        }
        let member = Member { name, stat, xattrs, body: Body::File(runs) };
        written(self.archive.member(&member))?;
        let Body::File(runs) = member.body else { return Ok(0) };
        let mut bytes = 0;
        let mut first_error = None;
        for run in runs {
            let mut offset = run.start;
            while offset < run.end {
                let room = usize::try_from(run.end - offset).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                self.buffer.resize(room.max(self.buffer.len()), 0);
                let chunk = &mut self.buffer[..room];
                if let Err(side) = read(file, chunk, offset) {
                    // The header has the size of the file, so zeros replace the bytes that cannot be read.
                    chunk.fill(0);
                    first_error.get_or_insert(side);
                }
                written(self.archive.data(chunk))?;
                offset += room as u64;
                bytes += room as u64;
            }
        }
        match first_error {
            Some(side) => Err(side),
            None => Ok(bytes),
        }
    }
}

fn read<S: Posix>(file: &File<'_, S>, chunk: &mut [u8], offset: u64) -> Result<(), Side> {
    file.read_exact_at(chunk, offset).reading().map_err(|side| match side {
        Side::Source(why) => Side::Source(format!("{why}; the archive has zeros in place of these bytes")),
        side => side,
    })
}
