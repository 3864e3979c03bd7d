//! Functions that several workloads on files share.

use std::path::Path;

use eyrie::{Errno, File, OpenFlags, Posix, PosixExt};

use crate::error::Result;
use crate::values::Pattern;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Bytes of a large read or write.
pub(super) const MIB: usize = 1 << 20;
/// The flags with which a workload makes a file.
pub(super) const NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::EXCLUSIVE);

/// Makes a directory. Threads that share a directory may all make it.
pub(super) fn make_dir<P: Posix + Clone>(fs: &P, path: &str) -> Result<()> {
    match fs.create_dir(path) {
        Err(error) if error.errno() == Errno::EXIST => Ok(()),
        made => Ok(made?),
    }
}

/// Makes a new file with the first `bytes` of a content. `buffer` is reused memory.
pub(super) fn make_file<P: Posix>(
    fs: &P,
    path: &Path,
    content: Pattern,
    bytes: usize,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    buffer.resize(bytes, 0);
    content.fill(buffer, 0);
    let handle = fs.open(path.into(), NEW, 0o644)?;
    let written = write_all(fs, &handle, buffer, 0);
    fs.close(handle)?;
    written
}

/// Writes all bytes at an offset.
pub(super) fn write_all<P: Posix>(
    fs: &P,
    handle: &P::Handle,
    mut data: &[u8],
    mut offset: u64,
) -> Result<()> {
    while !data.is_empty() {
        let count = fs.write_at(handle, data, offset)?;
        data = &data[count..];
        offset += count as u64;
    }
    Ok(())
}

/// Reads a file from its start into `out`, with calls of at most 1 MiB, until its end or the end of `out`.
/// Returns the number of bytes.
pub(super) fn read_whole<P: Posix>(fs: &P, handle: &P::Handle, out: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < out.len() {
        let end = out.len().min(done + MIB);
        let count = fs.read_at(handle, &mut out[done..end], done as u64)?;
        if count == 0 {
            break;
        }
        done += count;
    }
    Ok(done)
}

/// Opens a file, reads it, closes it. Returns the number of bytes.
pub(super) fn read_file<P: Posix>(fs: &P, path: &Path, out: &mut [u8]) -> Result<usize> {
    let handle = fs.open(path.into(), OpenFlags::READ, 0)?;
    let count = read_whole(fs, &handle, out);
    fs.close(handle)?;
    count
}

/// Opens a file for reading and writing, and makes it if it is missing.
pub(super) fn open<P: Posix + Clone>(fs: &P, path: &str) -> Result<File<P>> {
    Ok(fs.options().read(true).write(true).create(true).open(path)?)
}

/// Returns the number of names in a directory.
///
/// # Errors
/// Fails if the listing fails.
pub(super) fn count_names<P: Posix + Clone>(fs: &P, path: &str) -> Result<u64> {
    let mut names = 0;
    for entry in fs.read_dir(path)? {
        entry?;
        names += 1;
    }
    Ok(names)
}
