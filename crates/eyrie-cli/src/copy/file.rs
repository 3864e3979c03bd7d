//! Copies of the bytes of one file. If the file has more than one page and its file system can seek holes,
//! the copy has the same holes.

use std::any::Any;
use std::ops::Range;

use eyrie::{Dir, Errno, Error, File, OpenFlags, Posix, PosixClones, Stat, WalkEntry, Whence};

use super::side::{CopyError, OnSide};

/// Maximum number of bytes of one read or write.
pub const CHUNK_BYTES: usize = 8 << 20;
/// Bytes of a page. A file of one page or less is read to its end, without a search for holes. The reported
/// size of such a file may be wrong: most files of procfs and sysfs report a size of 0 or of one page,
/// whatever number of bytes they have.
pub const PAGE_BYTES: u64 = 4096;

/// Opens the file of a walk for reading. Another program may have replaced the file since the walk found it.
/// Therefore the call follows no symbolic link, and does not wait for the writer of a FIFO.
///
/// # Errors
/// As [`Posix::open`]. `ESTALE` if the entry is no longer a file.
pub fn open_entry<S: Posix + Clone>(entry: &WalkEntry<S>) -> eyrie::Result<File<Dir<S>>> {
    let flags = OpenFlags::READ | OpenFlags::NOFOLLOW | OpenFlags::NONBLOCK;
    let handle = entry.dir().open(entry.name().into(), flags, 0)?;
    let file = File::from_handle(entry.dir().clone(), handle, false);
    if !file.metadata()?.is_file() {
        return Err(Error::with_reason(Errno::STALE, "open", "another program replaced the file meanwhile"));
    }
    Ok(file)
}

/// The ranges of a file that have data, in order. If the file system cannot seek holes, the whole file is one
/// range.
///
/// The ranges that [`DataRuns::next`] returns have together at most [`Posix::data_bytes_max`] bytes. A file
/// of a damaged volume may claim more, because the nodes of its tree may name the same page very many times.
pub struct DataRuns<'a, S: Posix + Clone> {
    file: &'a File<S>,
    size: u64,
    /// Number of bytes of data that may follow.
    room: u64,
    end: u64,
}

impl<'a, S: Posix + Clone> DataRuns<'a, S> {
    /// Starts before the first range of a file.
    ///
    /// # Errors
    /// As [`Posix::stat`]. `EISDIR` for a directory.
    pub fn new(file: &'a File<S>) -> eyrie::Result<DataRuns<'a, S>> {
        let stat = file.metadata()?;
        if stat.is_dir() {
            return Err(Error::new(Errno::ISDIR, "read"));
        }
        Ok(DataRuns { file, size: stat.size, room: file.file_system().data_bytes_max(), end: 0 })
    }

    /// Returns the next range, or `None` if no data follows.
    ///
    /// # Errors
    /// As [`Posix::seek`]. `EIO` if the file has more data than its volume has room for.
    pub fn next(&mut self) -> eyrie::Result<Option<Range<u64>>> {
        let seek = |from, whence| self.file.file_system().seek(self.file.handle(), from, whence);
        let Some(Range { start, end }) = range_from(self.end, self.size, seek)? else { return Ok(None) };
        self.end = end;
        let why = "damaged file: it has more data than its volume has room for; run `eyrie fsck`";
        let room = self.room.checked_sub(end.saturating_sub(start));
        self.room = room.ok_or_else(|| Error::with_reason(Errno::IO, "read", why))?;
        Ok(Some(start..end))
    }
}

/// Returns the first range of data from the offset `from` on, or `None` if no data follows. `size` is the
/// size of the file, which is one range if its file system cannot seek holes.
fn range_from(
    from: u64,
    size: u64,
    seek: impl Fn(u64, Whence) -> eyrie::Result<u64>,
) -> eyrie::Result<Option<Range<u64>>> {
    let range = seek(from, Whence::Data).and_then(|start| Ok(start..seek(start, Whence::Hole)?));
    match range.as_ref().map_err(Error::errno) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) if from < size => Ok(Some(from..size)),
        // If only the second seek finds no data, another program has made the file shorter meanwhile.
        Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
        _ => range.map(Some),
    }
}

/// Decides if a copy shares the storage of its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Reflink {
    /// Share storage where the file system can, and copy bytes elsewhere
    #[default]
    Auto,
    /// Share storage, or fail
    Always,
    /// Copy all bytes
    Never,
}

/// Gives the bytes of a file to its copy. Returns the number of bytes.
pub(super) fn fill<S: PosixClones + Clone + 'static, D: PosixClones + Clone + 'static>(
    input: &File<Dir<S>>,
    output: &File<Dir<D>>,
    stat: &Stat,
    reflink: Reflink,
    buffer: &mut Vec<u8>,
) -> Result<u64, CopyError> {
    if reflink == Reflink::Never {
        return copy_bytes(input, output, stat, buffer);
    }
    match clone_bytes(input, output) {
        Ok(()) => Ok(stat.size),
        Err(error) if reflink == Reflink::Always => Err(error).writing(),
        // The usual cause is a file system that cannot make clones. If the error has another cause, such as a
        // full volume, the copy of the bytes fails, too.
        Err(_) => copy_bytes(input, output, stat, buffer),
    }
}

/// Makes `output` a clone of `input`.
fn clone_bytes<S: PosixClones + Clone + 'static, D: PosixClones + Clone + 'static>(
    input: &File<Dir<S>>,
    output: &File<Dir<D>>,
) -> eyrie::Result<()> {
    // Files of file systems of different types, such as the host and a volume, share no storage.
    match (output as &dyn Any).downcast_ref::<File<Dir<S>>>() {
        Some(output) => output.clone_range((input, 0), 0, 0),
        None => Err(Error::new(Errno::XDEV, "clone_range")),
    }
}

/// Copies all bytes of a file, which had the attributes `stat` before it was opened. Returns the number of
/// copied bytes, without holes.
///
/// The number of allocated blocks may be an estimate, so it does not show if a file has holes. The function
/// therefore seeks holes in the source, except in a file of one page or less.
fn copy_bytes<S: Posix + Clone, D: Posix + Clone>(
    input: &File<S>,
    output: &File<D>,
    stat: &Stat,
    buffer: &mut Vec<u8>,
) -> Result<u64, CopyError> {
    let room = usize::try_from(stat.size.saturating_add(1)).unwrap_or(usize::MAX);
    let room = room.clamp(PAGE_BYTES as usize, CHUNK_BYTES);
    if buffer.len() < room {
        buffer.resize(room, 0);
    }
    if stat.size <= PAGE_BYTES {
        return copy_range(input, output, 0..u64::MAX, buffer);
    }
    let mut runs = DataRuns::new(input).reading()?;
    let mut offset = 0;
    let mut bytes = 0;
    while let Some(run) = runs.next().reading()? {
        let copied = copy_range(input, output, run.clone(), buffer)?;
        bytes += copied;
        offset = run.end;
        // The file ends inside the range, for example because another program has made the file shorter.
        if copied < run.end - run.start {
            break;
        }
    }
    let size = input.metadata().reading()?.size;
    if offset < size {
        output.set_len(size).writing()?;
    }
    Ok(bytes)
}

/// Copies the part of `range` that lies before the end of the file. Returns the number of bytes.
fn copy_range<S: Posix + Clone, D: Posix + Clone>(
    input: &File<S>,
    output: &File<D>,
    range: Range<u64>,
    buffer: &mut [u8],
) -> Result<u64, CopyError> {
    let mut offset = range.start;
    while offset < range.end {
        CopyError::check_interrupt()?;
        let room = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(buffer.len());
        let count = input.read_at(&mut buffer[..room], offset).reading()?;
        if count == 0 {
            break;
        }
        output.write_all_at(&buffer[..count], offset).writing()?;
        offset += count as u64;
    }
    Ok(offset - range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_file_that_gets_shorter_between_two_seeks_ends() {
        let error = |errno| Err(Error::new(errno, "seek"));
        let shorter = |_, whence| if whence == Whence::Data { Ok(4096) } else { error(Errno::NXIO) };
        assert_eq!(range_from(0, 8192, shorter).unwrap(), None);
        let unable = |_, _| error(Errno::INVAL);
        assert_eq!(range_from(4096, 8192, unable).unwrap(), Some(4096..8192));
        assert_eq!(range_from(8192, 8192, unable).unwrap(), None);
        assert_eq!(range_from(0, 8192, |_, _| error(Errno::IO)).unwrap_err().errno(), Errno::IO);
    }
}
