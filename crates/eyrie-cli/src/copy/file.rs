//! Copies of the bytes of one file. If the file has more than one page and its file system can seek holes,
//! the copy has the same holes.

use std::ops::Range;

use eyrie::{Errno, File, Posix, Stat, Whence};

use super::side::{OnSide, Side};

/// Maximum number of bytes that are read and written in one step.
pub const CHUNK_BYTES: usize = 8 << 20;
/// Bytes of a page. A file of one page or less is copied without a search for holes.
const PAGE_BYTES: u64 = 4096;

/// Returns the next range from `offset` on that has data, or `None` if no data follows.
///
/// # Errors
/// As [`Posix::seek`].
pub fn next_run<S: Posix>(source: &S, file: &File<'_, S>, offset: u64) -> eyrie::Result<Option<Range<u64>>> {
    match source.seek(file.handle(), offset, Whence::Data) {
        Ok(start) => Ok(Some(start..source.seek(file.handle(), start, Whence::Hole)?)),
        Err(error) if error.errno() == Errno::NXIO => Ok(None),
        Err(error) => Err(error),
    }
}

/// Copies all bytes of a file, which had the attributes `stat` before it was opened. Returns the number of
/// copied bytes, without holes.
///
/// The number of allocated blocks may be an estimate, so it does not show if a file has holes. The function
/// therefore seeks holes in the source. A file of one page or less is read to its end instead, because most
/// files of procfs and sysfs report a size of 0 or of one page, whatever number of bytes they have.
pub(super) fn copy_bytes<S: Posix, D: Posix>(
    input: &File<'_, S>,
    source: &S,
    output: &File<'_, D>,
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
    let mut offset = 0;
    let mut bytes = 0;
    loop {
        let run = match next_run(source, input, offset) {
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
fn copy_range<S: Posix, D: Posix>(
    input: &File<'_, S>,
    output: &File<'_, D>,
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
