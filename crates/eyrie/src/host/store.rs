//! Keys and values as plain files of the host, as programs without a key-value store keep them.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::Kind;
use rustix::fs::{self, AtFlags, Mode, OFlags, RawDir};
use rustix::io;

use super::convert::{kind_of_entry, named, stat_from};
use super::{Host, LIST_BUFFER};
use crate::key_value::scan::{KeyScan, ListKeys, VisitKey};
use crate::key_value::{Batch, BoxedKeys, KeyChange, KeyRange, KeyValueStore, Order};
use crate::{Errno, Error, Result, names};

/// Bytes of the first buffer for a value, and the least number of bytes by which a full buffer grows.
const FIRST_READ: usize = 4096;
/// Maximum number of bytes that one `read(2)` returns, even if the file has more.
const READ_MAX: usize = 0x7fff_f000;

/// The number of the next temporary file. Several stores of the process may have one directory open, so all
/// of them share this number.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Keys and values as files of a host directory, for comparison with a [`Kvfs`](crate::Kvfs).
///
/// The calls are those of the trait [`KeyValueStore`]. They have the same results as those of a `Kvfs`, with
/// these differences:
/// - `put` does not tell if the key is new, because the host would need another system call to find out.
/// - `put` makes several system calls. A reader sees either the old value or the new one, but a crash may
///   leave a temporary file, whose name begins with `%kv%`. Nothing makes the value durable.
/// - `commit` makes the changes of a batch one after another. It refuses a batch with conditions.
/// - A value may have more than 64 MiB.
/// - The host limits the *file names* of keys to 255 bytes, so the limit for a key with escaped bytes is
///   lower.
/// - A get of a key that names a symbolic link, device or pipe opens that file. `put` replaces such a key,
///   and `erase` removes it. In a volume these calls fail with `EINVAL`.
///
/// There is no counterpart of `get_in_place`, versions, conditional changes, `len` or `is_empty`.
///
/// A get opens, reads and closes the file. A put creates, writes and closes a temporary file and renames it.
/// The names of the files are those of [`crate::names`].
///
/// ```
/// use eyrie::HostStore;
///
/// # let dir = std::env::temp_dir().join(format!("doc-host-store-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// let store = HostStore::open(&dir)?;
/// store.put("colour", "blue")?;
/// assert_eq!(store.get("colour")?.as_deref(), Some(&b"blue"[..]));
/// assert_eq!(std::fs::read(dir.join("colour"))?, b"blue");
/// assert!(store.erase("colour")?);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostStore {
    dir: OwnedFd,
}

impl Host {
    /// Opens the store in the directory `path`, which must exist.
    ///
    /// ```
    /// # use eyrie::{Host, PosixExt};
    /// # let place = tempfile::tempdir()?;
    /// # let fs = Host::new(place.path())?;
    /// fs.create_dir("/eggs")?;
    /// let eggs = fs.store("/eggs")?;
    /// eggs.put("heron", "blue")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn store(&self, path: impl AsRef<Path>) -> Result<HostStore> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = named("open", fs::openat(&*self.root, self.relative(path), flags, Mode::empty()));
        dir.map(HostStore::over).map_err(|error| error.at(path))
    }
}

impl HostStore {
    /// Opens the store in the directory `path`, which must exist.
    ///
    /// ```
    /// # use eyrie::*; fn f() -> Result<()> {
    /// let store = HostStore::open("/var/lib/birds")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(path: impl AsRef<Path>) -> Result<HostStore> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = named("open", fs::open(path, flags, Mode::empty())).map_err(|error| error.at(path))?;
        Ok(HostStore::over(dir))
    }

    /// Makes the store of an open directory.
    pub(super) fn over(dir: OwnedFd) -> HostStore {
        HostStore { dir }
    }

    /// Returns the value of `key`, or `None` if the key does not exist.
    ///
    /// ```
    /// # use eyrie::*; fn f(store: &HostStore) -> Result<()> {
    /// let colour = store.get("colour")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for an empty key. `ENAMETOOLONG` for a key, or a file name of a key, of more than 255 bytes.
    /// `EISDIR` if the key names a directory. Other errors as `open(2)` and `read(2)`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::with_capacity(FIRST_READ);
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Replaces the contents of `out` with the value of `key`. Returns false if the key does not exist. One
    /// `read(2)` gets the whole value if the capacity of `out` is larger than the value.
    ///
    /// ```
    /// # use eyrie::*; fn f(store: &HostStore) -> Result<()> {
    /// let mut value = Vec::with_capacity(4096);
    /// let found = store.get_into("colour", &mut value)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`HostStore::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        names::check_key(key.as_ref(), "get")?;
        let name = names::encode(key.as_ref());
        let file = match fs::openat(&self.dir, &*name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(io::Errno::NOENT) => return Ok(false),
            opened => named("get", opened)?,
        };
        loop {
            if out.len() == out.capacity() {
                out.reserve(FIRST_READ);
            }
            let room = out.capacity() - out.len();
            let count = named("get", io::read(&file, rustix::buffer::spare_capacity(out)))?;
            if is_last(count, room) {
                return Ok(true);
            }
        }
    }

    /// Returns true if `key` has a value.
    ///
    /// ```
    /// # use eyrie::*; fn f(store: &HostStore) -> Result<()> {
    /// let is_known = store.contains_key("colour")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`HostStore::get`], with `stat(2)` in place of `open(2)` and `read(2)`.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        names::check_key(key.as_ref(), "contains_key")?;
        match fs::statat(&self.dir, &*names::encode(key.as_ref()), AtFlags::empty()) {
            Err(io::Errno::NOENT) => Ok(false),
            stat => match stat_from(&named("contains_key", stat)?).kind {
                Kind::Directory => Err(Error::new(Errno::ISDIR, "contains_key")),
                _ => Ok(true),
            },
        }
    }

    /// Sets the value of `key`. After an error the key has its old value.
    ///
    /// ```
    /// # use eyrie::*; fn f(store: &HostStore) -> Result<()> {
    /// store.put("colour", "blue")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`HostStore::get`], `open(2)`, `write(2)` and `rename(2)`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        names::check_key(key.as_ref(), "put")?;
        let (temporary, file) = named("put", self.temporary_file())?;
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

    /// Makes a temporary file. Returns its name and the open file.
    fn temporary_file(&self) -> io::Result<(String, OwnedFd)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            // No key has this file name, because the name begins with `names::MARK` and decodes to no key.
            let name = format!("%kv%{:x}-{:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            match fs::openat(&self.dir, &*name, flags, Mode::from_raw_mode(0o666)) {
                // A process with the same id has made the file: a process that was killed, or a process of
                // another container.
                Err(io::Errno::EXIST) => {}
                opened => return opened.map(|file| (name, file)),
            }
        }
    }

    /// Removes `key`. Returns false if the key did not exist.
    ///
    /// ```
    /// # use eyrie::*; fn f(store: &HostStore) -> Result<()> {
    /// let existed = store.erase("colour")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`HostStore::get`] and `unlink(2)`.
    pub fn erase(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        names::check_key(key.as_ref(), "erase")?;
        match fs::unlinkat(&self.dir, &*names::encode(key.as_ref()), AtFlags::empty()) {
            Err(io::Errno::NOENT) => Ok(false),
            result => named("erase", result).map(|()| true),
        }
    }

    /// Makes the changes of a batch one after another, in the order of the keys. An error ends the call, and
    /// the changes before it remain. [`Kvfs::commit`](crate::Kvfs::commit) makes all changes or none.
    ///
    /// ```
    /// # use eyrie::*; fn f(store: &HostStore) -> Result<()> {
    /// let mut batch = Batch::new();
    /// batch.put("colour", "blue").erase("size");
    /// store.commit(&batch)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`HostStore::put`] and [`HostStore::erase`]. `EOPNOTSUPP` for a batch with conditions, which then
    /// changes nothing.
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        if batch.conditions().next().is_some() {
            let why = "the host cannot check a condition and change a key in one step";
            return Err(Error::with_reason(Errno::OPNOTSUPP, "commit", why));
        }
        batch.changes().try_for_each(|(key, change)| match change {
            KeyChange::Put(value) => self.put(key, value),
            KeyChange::Erase => self.erase(key).map(drop),
        })
    }

    /// Returns the keys in `range`. The host decides if a key that is put or erased during the scan appears.
    ///
    /// ```
    /// use eyrie::{HostStore, KeyRange, Order};
    ///
    /// # let dir = std::env::temp_dir().join(format!("doc-host-scan-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// let store = HostStore::open(&dir)?;
    /// store.put("b", "2")?;
    /// store.put("a", "1")?;
    /// let keys = store.scan(KeyRange::all(), Order::ByKey)?.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)`. The items of the iterator have the errors of `getdents(2)`.
    pub fn scan(
        &self,
        range: KeyRange,
        order: Order,
    ) -> Result<impl Iterator<Item = Result<Vec<u8>>> + Send + use<>> {
        // The position of a listing belongs to the open directory, so each scan opens the directory again.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = named("scan", fs::openat(&self.dir, ".", flags, Mode::empty()))?;
        Ok(KeyScan::new(ListedDirectory(dir), range, order).map(|found| found.map(|(key, ())| key)))
    }
}

/// An open directory of the host whose files are values.
struct ListedDirectory(OwnedFd);

impl ListKeys for ListedDirectory {
    type Object = ();

    fn list(&self, from: u64, visit: &mut VisitKey<'_, ()>) -> Result<()> {
        named("scan", fs::seek(&self.0, fs::SeekFrom::Start(from)))?;
        let mut buffer = [MaybeUninit::uninit(); LIST_BUFFER];
        let mut entries = RawDir::new(&self.0, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = named("scan", entry)?;
            let Some(key) = names::decode(entry.file_name().to_bytes()) else { continue };
            let kind = match kind_of_entry(&self.0, &entry) {
                Err(io::Errno::NOENT) => continue,
                kind => named("scan", kind)?,
            };
            if kind == Kind::File && !visit(&key, (), entry.next_entry_cookie()) {
                break;
            }
        }
        Ok(())
    }
}

impl KeyValueStore for HostStore {
    fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.get_into(key, out)
    }

    fn contains_key(&self, key: &[u8]) -> Result<bool> {
        self.contains_key(key)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(key, value)
    }

    fn erase(&self, key: &[u8]) -> Result<bool> {
        self.erase(key)
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        self.commit(batch)
    }

    fn scan(&self, range: KeyRange, order: Order) -> Result<BoxedKeys<'_>> {
        Ok(Box::new(self.scan(range, order)?))
    }
}

/// True if a read that got `count` bytes into a buffer of `room` bytes has met the end of the file.
fn is_last(count: usize, room: usize) -> bool {
    count < room.min(READ_MAX)
}

fn write_all(file: &OwnedFd, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        data = &data[io::write(file, data)?..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_of_the_most_bytes_is_not_the_last() {
        for (count, room, last) in [
            (0, 1, true),
            (4095, 4096, true),
            (4096, 4096, false),
            (READ_MAX - 1, 1 << 31, true),
            (READ_MAX, 1 << 31, false),
        ] {
            assert_eq!(is_last(count, room), last, "{count} {room}");
        }
    }
}
