//! Copies one file: bytes where there are bytes, holes where there are holes.

use std::path::Path;

use eyrie::{Errno, File, Posix, PosixExt, Stat, Whence};

use super::{CHUNK_BYTES, On, Side, Tally, attributes};

/// The smallest hole.
const PAGE_BYTES: u64 = 4096;

/// Where in the source a file is, and where it goes.
pub(super) struct Ends<'a, S, D> {
    pub(super) source: &'a S,
    pub(super) from: &'a Path,
    pub(super) target: &'a D,
    pub(super) to: &'a Path,
}

/// Makes the file `to`, which must not exist, with bytes and attributes of `from`, which had the attributes `stat`
/// before it was read. The number of bytes. After an error there is no `to`.
pub(super) fn copy_file<S: Posix, D: Posix>(
    ends: &Ends<'_, S, D>,
    stat: &Stat,
    buffer: &mut Vec<u8>,
    tally: &Tally,
) -> Result<u64, Side> {
    let input = ends.source.options().read(true).no_follow(true).open(ends.from).reading()?;
    let options = ends.target.options().write(true).create_new(true).mode(stat.mode & 0o777);
    let output = options.open(ends.to).writing()?;
    let result = copy_bytes(&input, ends.source, &output, stat, buffer).and_then(|bytes| {
        attributes::set_on_file(ends.target, &output, ends.to, stat, tally)?;
        Ok(bytes)
    });
    let closed = output.close().writing();
    let result = result.and_then(|bytes| closed.map(|()| bytes));
    if result.is_err() {
        // The first error is the one to tell.
        let _ = ends.target.unlink(ends.to);
    }
    result
}

/// Asks for holes whatever the storage that a file is said to occupy, because that may be an estimate. Only files of a
/// page have none; kernel files that claim no size, or a page, are read to their end.
fn copy_bytes<S: Posix, D: Posix>(
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
        return copy_range(input, output, 0, u64::MAX, buffer);
    }
    let mut offset = 0;
    let mut bytes = 0;
    loop {
        let start = match source.seek(input.handle(), offset, Whence::Data) {
            Ok(start) => start,
            Err(error) if error.errno() == Errno::NXIO => break,
            Err(error) if offset == 0 && matches!(error.errno(), Errno::INVAL | Errno::OPNOTSUPP) => {
                return copy_range(input, output, 0, u64::MAX, buffer);
            }
            Err(error) => return Err(Side::Source(error)),
        };
        let end = source.seek(input.handle(), start, Whence::Hole).reading()?;
        let copied = copy_range(input, output, start, end, buffer)?;
        bytes += copied;
        offset = end;
        if copied < end - start {
            break;
        }
    }
    let size = input.metadata().reading()?.size;
    if offset < size {
        output.set_len(size).writing()?;
    }
    Ok(bytes)
}

/// The bytes from `start` to `end`, or to the end of the file. Their number.
fn copy_range<S: Posix, D: Posix>(
    input: &File<'_, S>,
    output: &File<'_, D>,
    start: u64,
    end: u64,
    buffer: &mut [u8],
) -> Result<u64, Side> {
    let mut offset = start;
    while offset < end {
        let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
        let count = input.read_at(&mut buffer[..room], offset).reading()?;
        if count == 0 {
            break;
        }
        output.write_all_at(&buffer[..count], offset).writing()?;
        offset += count as u64;
    }
    Ok(offset - start)
}
