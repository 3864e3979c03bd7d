//! The functions of `PosixExt` that make several calls.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::file::write_all_at;
use super::{OpenFlags, Posix, Stat, Target};
use crate::{Errno, Error, Result};

/// Bytes of the first buffer for an extended attribute or a list of names. Most values and lists fit, so one
/// call is enough.
const FIRST_BUFFER: usize = 256;
/// Bytes of the buffer of `PosixExt::read` beyond the size of the file. The call that finds the end of the
/// file needs a buffer with room, so without these bytes the buffer would grow once more.
const SLACK: usize = 32;
/// Maximum number of bytes that `PosixExt::copy` reads and writes at a time.
const COPY_PART: usize = 1 << 20;
/// Least number of bytes of the buffer of `PosixExt::copy`. The size of the file is only a hint. Some files
/// of `/proc` return bytes only at offset 0, so the first read needs room for all of them.
const LEAST_COPY_PART: usize = 1 << 16;
/// Maximum number of symbolic links that `PosixExt::canonicalize` follows, as in the calls of Linux.
const LINKS_MAX: u32 = 40;

/// A file that is open during one call. Unlike a [`File`](super::File), it borrows its file system, and
/// allocates no memory.
pub(super) struct OpenInCall<'a, P: Posix> {
    fs: &'a P,
    path: &'a Path,
    /// `None` only after `close` or `drop` has taken the handle.
    pub(super) handle: Option<P::Handle>,
}

impl<'a, P: Posix> OpenInCall<'a, P> {
    fn open(fs: &'a P, path: &'a Path, flags: OpenFlags, mode: u16) -> Result<OpenInCall<'a, P>> {
        let handle = fs.open(path.into(), flags, mode).map_err(|error| error.at(path))?;
        Ok(OpenInCall { fs, path, handle: Some(handle) })
    }

    fn to_read(fs: &'a P, path: &'a Path) -> Result<OpenInCall<'a, P>> {
        OpenInCall::open(fs, path, OpenFlags::READ, 0)
    }

    /// Opens a file for writing, and sets its size to 0. Makes a missing file with the permission bits
    /// `mode`.
    fn to_replace(fs: &'a P, path: &'a Path, mode: u16) -> Result<OpenInCall<'a, P>> {
        OpenInCall::open(fs, path, OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE, mode)
    }

    /// Makes a call on the open file. Its error gets the path.
    pub(super) fn call<T>(&self, call: impl FnOnce(&P, &P::Handle) -> Result<T>) -> Result<T> {
        let Some(handle) = &self.handle else { unreachable!("the file has its handle until it is closed") };
        call(self.fs, handle).map_err(|error| error.at(self.path))
    }

    fn stat(&self) -> Result<Stat> {
        self.call(|fs, handle| fs.stat(Target::Open(handle)))
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        self.call(|fs, handle| fs.read_at(handle, out, offset))
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.call(|fs, handle| write_all_at(fs, handle, data, offset))
    }

    pub(super) fn close(mut self) -> Result<()> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        self.fs.close(handle).map_err(|error| error.at(self.path))
    }
}

impl<P: Posix> Drop for OpenInCall<'_, P> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // Only `close` can report a failure.
            let _ = self.fs.close(handle);
        }
    }
}

fn symlink_metadata<P: Posix>(fs: &P, path: &Path) -> Result<Stat> {
    fs.stat(Target::NoFollow(path.into())).map_err(|error| error.at(path))
}

/// Reads all bytes of a file.
pub(super) fn read<P: Posix>(fs: &P, path: &Path) -> Result<Vec<u8>> {
    let file = OpenInCall::to_read(fs, path)?;
    let size = file.stat()?.size;
    let mut bytes = Vec::new();
    let mut filled = 0;
    loop {
        // The size is only a hint: files of `/proc` have size 0, and another program may append meanwhile.
        if filled == bytes.len() {
            let more = usize::try_from(size).unwrap_or(0).saturating_sub(filled);
            let more = more.max(filled).saturating_add(SLACK);
            // A sparse file may be larger than memory.
            if bytes.try_reserve_exact(more).is_err() {
                return Err(Error::new(Errno::NOMEM, "read").at(path));
            }
            bytes.resize(filled + more, 0);
        }
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Replaces the contents of a file.
pub(super) fn write<P: Posix>(fs: &P, path: &Path, data: &[u8]) -> Result<()> {
    let file = OpenInCall::to_replace(fs, path, 0o666)?;
    file.write_all_at(data, 0)?;
    file.close()
}

/// Makes a directory and the missing directories above it.
pub(super) fn create_dir_all<P: Posix>(fs: &P, path: &Path) -> Result<()> {
    if path.as_os_str().is_empty() || path == Path::new("/") {
        return Ok(());
    }
    match fs.mkdir(path.into(), 0o777) {
        Ok(()) => return Ok(()),
        Err(error) if error.errno() == Errno::NOENT => {}
        Err(_) if fs.stat(path.into()).is_ok_and(|stat| stat.is_dir()) => return Ok(()),
        Err(error) => return Err(error.at(path)),
    }
    if let Some(parent) = path.parent() {
        create_dir_all(fs, parent)?;
    }
    match fs.mkdir(path.into(), 0o777) {
        Err(_) if fs.stat(path.into()).is_ok_and(|stat| stat.is_dir()) => Ok(()),
        result => result.map_err(|error| error.at(path)),
    }
}

/// Opens a file for reading, and a second file, which gets the contents of the first one. Also returns the
/// attributes of the first file, without set-id bits.
pub(super) fn open_pair<'a, P: Posix>(
    fs: &'a P,
    (from, to): (&'a Path, &'a Path),
    operation: &'static str,
) -> Result<(OpenInCall<'a, P>, OpenInCall<'a, P>, Stat)> {
    let source = OpenInCall::to_read(fs, from)?;
    let mut stat = source.stat()?;
    if !stat.is_file() {
        return Err(Error::with_reason(Errno::INVAL, operation, "not a regular file").at(from));
    }
    let same = |other: Stat| (other.file_system, other.inode) == (stat.file_system, stat.inode);
    if fs.stat(to.into()).is_ok_and(same) {
        return Err(Error::with_reason(Errno::INVAL, operation, "both paths lead to one file").at(to));
    }
    // The copy may belong to another user than the source, so it gets no set-id bits.
    stat.mode &= 0o777;
    // The owner can write the new file until it is complete, whatever its permission bits will be.
    let target = OpenInCall::to_replace(fs, to, stat.mode | 0o200)?;
    Ok((source, target, stat))
}

/// Copies the bytes and the permission bits of a file.
pub(super) fn copy<P: Posix>(fs: &P, from: &Path, to: &Path) -> Result<u64> {
    let (source, target, stat) = open_pair(fs, (from, to), "copy")?;
    let mut copied = 0;
    let copy_range = |at: u64| {
        let (from, to) = (source.handle.as_ref()?, target.handle.as_ref()?);
        fs.copy_file_range((from, at), (to, at), stat.size.saturating_sub(at)).ok()
    };
    while let Some(count) = copy_range(copied).filter(|&count| count > 0) {
        copied += count;
    }
    // Reads and writes copy the rest: the bytes of a file of `/proc` (whose size is 0), bytes that another
    // program has appended meanwhile, and all bytes if the file system of the host has no `copy_file_range`.
    let left = usize::try_from(stat.size.saturating_sub(copied)).unwrap_or(COPY_PART);
    let mut part = vec![0; left.clamp(LEAST_COPY_PART, COPY_PART)];
    loop {
        match source.read_at(&mut part, copied)? {
            0 => break,
            count => {
                target.write_all_at(&part[..count], copied)?;
                copied += count as u64;
            }
        }
    }
    // A target that is no regular file, such as the device `/dev/null` of the host, may belong to all
    // programs. So it keeps its permission bits.
    if target.stat()?.is_file() {
        target.call(|fs, handle| fs.chmod(Target::Open(handle), stat.mode))?;
    }
    target.close()?;
    Ok(copied)
}

/// Returns the absolute path of a file, without symbolic links, `.` and `..`.
pub(super) fn canonicalize<P: Posix>(fs: &P, path: &Path) -> Result<PathBuf> {
    // The file must exist, and a file in the place of a directory is an error.
    let file = fs.stat(path.into()).map_err(|error| error.at(path))?;
    let mut rest: Vec<OsString> = parts_in_reverse(path);
    let mut found = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.as_bytes() {
            b"." => {}
            b".." => {
                found.pop();
            }
            _ => {
                found.push(&part);
                if !symlink_metadata(fs, &found)?.is_symlink() {
                    continue;
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(Error::new(Errno::LOOP, "canonicalize").at(path));
                }
                let target = fs.readlink((&*found).into()).map_err(|error| error.at(&found))?;
                let target = PathBuf::from(OsString::from_vec(target));
                found.pop();
                if target.is_absolute() {
                    found = PathBuf::from("/");
                }
                rest.append(&mut parts_in_reverse(&target));
            }
        }
    }
    let same = symlink_metadata(fs, &found)?;
    if (same.file_system, same.inode) != (file.file_system, file.inode) {
        return Err(Error::new(Errno::STALE, "canonicalize").at(path));
    }
    Ok(found)
}

/// Returns the components of a path, the last one first. A leading `/` is not a component.
fn parts_in_reverse(path: &Path) -> Vec<OsString> {
    let parts = path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/');
    parts.filter(|part| !part.is_empty()).map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

/// Returns all bytes that `call` delivers. `call` returns the number of bytes. It fails with `ERANGE` if its
/// buffer is too small. For an empty buffer it returns only the number.
pub(super) fn whole(mut call: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; FIRST_BUFFER];
    loop {
        match call(&mut bytes) {
            Ok(size) => {
                bytes.truncate(size);
                return Ok(bytes);
            }
            // The attribute may grow between the two calls, so the loop repeats until the attribute fits.
            Err(error) if error.errno() == Errno::RANGE => bytes.resize(call(&mut [])?.max(FIRST_BUFFER), 0),
            Err(error) => return Err(error),
        }
    }
}

/// Splits a list of names, each of which ends with a NUL.
pub(super) fn names(list: Vec<u8>) -> Vec<Vec<u8>> {
    list.split_inclusive(|&byte| byte == 0).map(|name| name[..name.len() - 1].to_vec()).collect()
}
