//! Keys and values as plain files of the host, as programs without a key-value store keep them.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::convert::named;
use crate::{Error, Result, names};

/// Bytes of the first read of a value whose size is unknown.
const FIRST_READ: usize = 4096;

/// Keys and values as files of a host directory, for comparison with a [`Kvfs`](crate::Kvfs).
///
/// Four calls of [`Kvfs`](crate::Kvfs) exist here: [`get`](HostStore::get),
/// [`get_into`](HostStore::get_into), [`put`](HostStore::put) and [`erase`](HostStore::erase). They have the
/// same results, with these differences:
/// - `put` does not tell if the key is new, because the host would need another system call to find out.
/// - `put` makes several system calls. A reader sees either the old value or the new one, but a crash may
///   leave a temporary file, whose name begins with `%kv%`. Nothing makes the value durable.
/// - A value may have more than 64 MiB.
/// - The host limits the *file names* of keys to 255 bytes, so a key with escaped bytes may have fewer bytes.
/// - A get of a key that names a symbolic link, device or pipe opens that file. `put` replaces such a key,
///   and `erase` removes it. In a volume these calls fail with `EINVAL`.
///
/// There is no counterpart of `contains_key`, `get_in_place`, `scan`, `batch`, `len` and `is_empty`. A
/// program can list the directory instead, and decode the names.
///
/// A get opens, reads and closes the file. A put creates, writes and closes a temporary file and renames it.
/// The names of the files are those of [`crate::names`].
#[derive(Debug)]
pub struct HostStore {
    dir: OwnedFd,
    /// The number of the next temporary file.
    next: AtomicU64,
}

impl HostStore {
    /// Opens the store in the directory `path`, which must exist.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(path: impl AsRef<Path>) -> Result<HostStore> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::open(path, flags, Mode::empty()).map_err(|errno| Error::new(errno, "open").at(path))?;
        Ok(HostStore::over(dir))
    }

    /// Makes the store of an open directory.
    pub(super) fn over(dir: OwnedFd) -> HostStore {
        HostStore { dir, next: AtomicU64::new(0) }
    }

    /// Returns the value of `key`, or `None` if the key does not exist.
    ///
    /// # Errors
    /// `EINVAL` for an empty key. `ENAMETOOLONG` for a key, or a file name of a key, of more than 255 bytes.
    /// `EISDIR` if the key names a directory. As `open(2)` and `read(2)`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::with_capacity(FIRST_READ);
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Replaces `out` by the value of `key`. Returns false if the key does not exist. One system call reads
    /// the value if the capacity of `out` is larger than the value.
    ///
    /// # Errors
    /// As [`HostStore::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        names::check_key(key.as_ref(), "get")?;
        let name = names::encode(key.as_ref());
        let file = match fs::openat(&self.dir, &*name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            opened => named("get", opened)?,
        };
        loop {
            if out.len() == out.capacity() {
                out.reserve(FIRST_READ);
            }
            let room = out.capacity() - out.len();
            let count = named("get", rustix::io::read(&file, rustix::buffer::spare_capacity(out)))?;
            if count < room {
                return Ok(true);
            }
        }
    }

    /// Sets the value of `key`. After an error the key has its old value.
    ///
    /// # Errors
    /// As [`HostStore::get`], `open(2)`, `write(2)` and `rename(2)`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        names::check_key(key.as_ref(), "put")?;
        // No key has this file name, because the name begins with `names::MARK` and decodes to no key.
        let temporary =
            format!("%kv%{:x}-{:x}", std::process::id(), self.next.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = named("put", fs::openat(&self.dir, &*temporary, flags, Mode::from_raw_mode(0o666)))?;
        let done = write_all(&file, value.as_ref()).and_then(|()| {
            drop(file);
            fs::renameat(&self.dir, &*temporary, &self.dir, &*names::encode(key.as_ref()))
        });
        if done.is_err() {
            // The call reports the first error, and ignores an error of this removal.
            let _ = fs::unlinkat(&self.dir, &*temporary, AtFlags::empty());
        }
        named("put", done)
    }

    /// Removes `key`. Returns false if the key did not exist.
    ///
    /// # Errors
    /// As [`HostStore::get`] and `unlink(2)`.
    pub fn erase(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        names::check_key(key.as_ref(), "erase")?;
        match fs::unlinkat(&self.dir, &*names::encode(key.as_ref()), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(false),
            result => named("erase", result).map(|()| true),
        }
    }
}

fn write_all(file: &OwnedFd, mut data: &[u8]) -> rustix::io::Result<()> {
    while !data.is_empty() {
        data = &data[rustix::io::write(file, data)?..];
    }
    Ok(())
}
