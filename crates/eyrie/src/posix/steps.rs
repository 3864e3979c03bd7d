//! The functions of `PosixExt` that make several calls.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::{File, OpenOptions, Posix, Stat, Target};
use crate::{Errno, Error, Result};

/// Bytes of the first buffer for an extended attribute or a list of names. Most values and lists fit, so one
/// call is enough.
const FIRST_BUFFER: usize = 256;
/// Bytes of the buffer of `PosixExt::read` beyond the size of the file. The call that finds the end of the
/// file needs a buffer with room, so without these bytes the buffer would grow once more.
const SLACK: usize = 32;
/// Bytes that `PosixExt::copy` reads and writes at a time.
const COPY_PART: usize = 1 << 20;
/// Maximum number of symbolic links that `PosixExt::canonicalize` follows, as in the calls of Linux.
const LINKS_MAX: u32 = 40;

fn open<P: Posix + Clone>(fs: &P, path: &Path) -> Result<File<P>> {
    OpenOptions::new(fs.clone()).read(true).open(path)
}

fn symlink_metadata<P: Posix>(fs: &P, path: &Path) -> Result<Stat> {
    fs.stat(Target::NoFollow(path.into())).map_err(|error| error.at(path))
}

/// Reads all bytes of a file.
pub(super) fn read<P: Posix + Clone>(fs: &P, path: &Path) -> Result<Vec<u8>> {
    let file = open(fs, path)?;
    let size = file.metadata().map_err(|error| error.at(path))?.size;
    let mut bytes = Vec::new();
    let mut filled = 0;
    loop {
        // The size is only a hint: files of `/proc` have size 0, and another program may append
        // meanwhile.
        if filled == bytes.len() {
            let more = usize::try_from(size).unwrap_or(0).saturating_sub(filled);
            let more = more.max(filled).saturating_add(SLACK);
            // A sparse file may be larger than memory.
            if bytes.try_reserve_exact(more).is_err() {
                return Err(Error::new(Errno::NOMEM, "read").at(path));
            }
            bytes.resize(filled + more, 0);
        }
        match file.read_at(&mut bytes[filled..], filled as u64).map_err(|error| error.at(path))? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Makes a directory and the missing directories above it.
pub(super) fn create_dir_all<P: Posix + Clone>(fs: &P, path: &Path) -> Result<()> {
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

/// Copies the bytes and the permission bits of a file.
pub(super) fn copy<P: Posix + Clone>(fs: &P, from: &Path, to: &Path) -> Result<u64> {
    let source = open(fs, from)?;
    let stat = source.metadata().map_err(|error| error.at(from))?;
    if !stat.is_file() {
        return Err(Error::with_reason(Errno::INVAL, "copy", "not a regular file").at(from));
    }
    let same = |other: Stat| (other.file_system, other.inode) == (stat.file_system, stat.inode);
    if fs.stat(to.into()).is_ok_and(same) {
        return Err(Error::with_reason(Errno::INVAL, "copy", "both paths lead to one file").at(to));
    }
    // The owner can write the new file until it is complete, whatever its permission bits will be.
    let options =
        OpenOptions::new(fs.clone()).write(true).create(true).truncate(true).mode(stat.mode & 0o777 | 0o200);
    let target = options.open(to)?;
    let mut part = vec![0; COPY_PART.min(usize::try_from(stat.size).unwrap_or(COPY_PART)).max(1)];
    let mut copied = 0;
    loop {
        match source.read_at(&mut part, copied).map_err(|error| error.at(from))? {
            0 => break,
            count => {
                target.write_all_at(&part[..count], copied).map_err(|error| error.at(to))?;
                copied += count as u64;
            }
        }
    }
    target.set_mode(stat.mode).map_err(|error| error.at(to))?;
    target.close().map_err(|error| error.at(to))?;
    Ok(copied)
}

/// Returns the absolute path of a file, without symbolic links, `.` and `..`.
pub(super) fn canonicalize<P: Posix + Clone>(fs: &P, path: &Path) -> Result<PathBuf> {
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
