//! The bytes of one file: bytes where there are bytes, holes where there are holes.

use std::ops::Range;

use eyrie::{Errno, File, Posix, Stat, Whence};

use super::{CHUNK_BYTES, On, Side};

/// The smallest hole.
const PAGE_BYTES: u64 = 4096;

/// The first bytes from `offset` on that are no hole.
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

/// Copies all bytes of a file, which had the attributes `stat` before it was opened. Their number.
///
/// Asks for holes whatever the storage that a file is said to occupy, because that may be an estimate. Only files of a
/// page have none; kernel files that claim no size, or a page, are read to their end.
pub(super) fn copy_bytes<S: Posix, D: Posix>(
    input: &File<'_, S>,
    source: &S,
    output: &File<'_, D>,
    stat: &Stat,
    buffer: &mut Vec<u8>,
) -> Result<u64, Side> {
    let room = usize::try_from(stat.size.saturating_add(1)).unwrap_or(usize::MAX);
    let room = room.clamp(4096, CHUNK_BYTES);
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

/// The bytes of `range`, as far as the file goes. Their number.
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
