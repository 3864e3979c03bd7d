//! Copies of the bytes of one file. If the file has more than one page and its file system can seek holes,
//! the copy has the same holes.

use std::ops::Range;

use eyrie::{Errno, Error, File, Posix, Stat, Whence};

use super::side::{OnSide, Side};

/// Maximum number of bytes that are read and written in one step.
pub const CHUNK_BYTES: usize = 8 << 20;
/// Bytes of a page. A file of one page or less is copied without a search for holes.
const PAGE_BYTES: u64 = 4096;

/// The ranges of a file that have data, in order. The ranges that [`DataRuns::next`] returns have together at
/// most as many bytes as the volume of the file. A file of a damaged volume may claim more, because the nodes
/// of its tree may name the same page very many times.
pub struct DataRuns<'a, S: Posix + Clone> {
    source: &'a S,
    file: &'a File<S>,
    /// Number of bytes of data that may follow.
    room: u64,
    end: u64,
}

impl<'a, S: Posix + Clone> DataRuns<'a, S> {
    /// Makes the ranges of a file of `source`.
    ///
    /// # Errors
    /// As [`Posix::statvfs`].
    pub fn new(source: &'a S, file: &'a File<S>) -> eyrie::Result<DataRuns<'a, S>> {
        Ok(DataRuns { source, file, room: max_data_bytes(source)?, end: 0 })
    }

    /// Returns the next range, or `None` if no data follows.
    ///
    /// # Errors
    /// As [`Posix::seek`]. `EIO` if the file has more data than its volume has room for.
    pub fn next(&mut self) -> eyrie::Result<Option<Range<u64>>> {
        let start = match self.source.seek(self.file.handle(), self.end, Whence::Data) {
            Ok(start) => start,
            Err(error) if error.errno() == Errno::NXIO => return Ok(None),
            Err(error) => return Err(error),
        };
        self.end = self.source.seek(self.file.handle(), start, Whence::Hole)?;
        let why = "damaged file: it has more data than its volume has room for; run `eyrie fsck`";
        let room = self.room.checked_sub(self.end.saturating_sub(start));
        self.room = room.ok_or_else(|| Error::with_reason(Errno::IO, "read", why))?;
        Ok(Some(start..self.end))
    }
}

/// Returns the maximum number of bytes of data of one file of `source`.
///
/// # Errors
/// As [`Posix::statvfs`].
pub fn max_data_bytes(source: &impl Posix) -> eyrie::Result<u64> {
    // A file system with mounts is that of the host, whose files may share or compress their storage.
    if source.has_mounts() {
        return Ok(u64::MAX);
    }
    let space = source.statvfs()?;
    Ok(space.blocks.saturating_mul(space.block_size))
}

/// Copies all bytes of a file, which had the attributes `stat` before it was opened. Returns the number of
/// copied bytes, without holes.
///
/// The number of allocated blocks may be an estimate, so it does not show if a file has holes. The function
/// therefore seeks holes in the source. A file of one page or less is read to its end instead, because most
/// files of procfs and sysfs report a size of 0 or of one page, whatever number of bytes they have.
pub(super) fn copy_bytes<S: Posix + Clone, D: Posix + Clone>(
    input: &File<S>,
    source: &S,
    output: &File<D>,
    stat: &Stat,
    buffer: &mut Vec<u8>,
) -> Result<u64, Side> {
    let room = usize::try_from(stat.size.saturating_add(1)).unwrap_or(usize::MAX);
    let room = room.clamp(PAGE_BYTES as usize, CHUNK_BYTES);
    if buffer.len() < room {
        buffer.resize(room, 0);
    }
    if stat.size <= PAGE_BYTES {
        return copy_range(input, output, 0..u64::MAX, buffer);
    }
    let mut runs = DataRuns::new(source, input).reading()?;
    let mut offset = 0;
    let mut bytes = 0;
    loop {
        let run = match runs.next() {
            Ok(Some(run)) => run,
            Ok(None) => break,
            Err(error) if offset == 0 && matches!(error.errno(), Errno::INVAL | Errno::OPNOTSUPP) => {
                return copy_range(input, output, 0..u64::MAX, buffer);
            }
            Err(error) => return Err(error).reading(),
        };
        let copied = copy_range(input, output, run.clone(), buffer)?;
        bytes += copied;
        offset = run.end;
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
) -> Result<u64, Side> {
    let mut offset = range.start;
    while offset < range.end {
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
