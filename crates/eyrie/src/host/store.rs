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

/// Keys and values as files of a host directory, with the calls of [`Kvfs`](crate::Kvfs) that get, put and
/// erase one key. A get opens, reads and closes the file. A put creates, writes and closes a temporary file
/// and renames it, so a reader sees either the old value or the new one.
///
/// The names of the files are those of [`crate::names`]. The host limits these names to 255 bytes.
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

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::with_capacity(FIRST_READ);
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Replaces `out` by the value of `key`. Returns false if the key does not exist. One system call reads
    /// the value if the capacity of `out` is larger than the value.
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`.
    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
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

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// As `open(2)`, `write(2)` and `rename(2)`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
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
    /// As `unlink(2)`.
    pub fn erase(&self, key: impl AsRef<[u8]>) -> Result<bool> {
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
