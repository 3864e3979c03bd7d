//! KVFS: keys and values in one directory.
//!
//! A store is a directory and a value is a file, so any program can open the values as files. A put replaces
//! the whole value: a reader sees either the old bytes or the new ones. Permissions are checked once, when
//! the store is opened. Each change of a store is one Op of the engine, so a crash leaves it whole or undone.
//!
//! ```
//! # use eyrie::{Credentials, Kvfs, PosixExt};
//! # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
//! # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
//! # let fs = volume.files(Credentials::of_process());
//! fs.create_dir("/store")?;
//! let store = Kvfs::open(&fs, "/store")?;
//! store.put("colour", "blue")?;
//! assert_eq!(store.get("colour")?.as_deref(), Some(&b"blue"[..]));
//! assert_eq!(fs.read("/store/colour")?, b"blue");
//! assert!(store.erase("colour")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod change;
mod scan;

pub use change::Outcome;
pub use scan::{Scan, ScanInPlace, ScanValues};

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use eyrie_engine::access::{self, Protection};
use eyrie_engine::op::{NAME_MAX, VALUE_MAX};
use eyrie_engine::{Engine, FileView, Kind, ObjectId, Owner, Version};
use eyrie_medium::epoch::{self, Guard};

use crate::kept::KeptId;
use crate::key_value::{Batch, BoxedEntries, BoxedKeys, KeyRange, KeyValueStore, Order};
use crate::posix::Posix;
use crate::retry;
use crate::stamps::Clock;
use crate::view::View;
use crate::{Error, OpenFlags, Pxfs, Result};

/// A map from keys to values, kept in one directory. A key is 1 to 255 bytes of any kind. A value is 0 bytes
/// to 64 MiB long. Each put, erase and batch is one step: whole or undone, also after an error or a crash.
///
/// A clone is cheap, and shares the open directory, which is closed when the last clone is dropped. So a
/// store can be a field of a structure, and threads can have clones:
///
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// # let store = volume.store("/", eyrie::Credentials::root())?;
/// let writer = std::thread::spawn({
///     let store = store.clone();
///     move || store.put("colour", "blue")
/// });
/// writer.join().expect("no panic")?;
/// assert!(store.contains_key("colour")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Kvfs<E: Engine> {
    store: Arc<OpenStore<E>>,
}

/// An open directory of keys.
struct OpenStore<E: Engine> {
    engine: Arc<E>,
    dir: KeptId,
    owner: Owner,
    /// True if limits of quotas do not stop the user.
    may_exceed_limits: bool,
    clock: Clock,
}

impl<E: Engine> Kvfs<E> {
    /// Opens the store in the directory `path`, which must exist. The user and group of `pxfs` own every new
    /// value. If the directory has the set-group-id bit, new values get the directory's group instead. The
    /// permission bits of a new value are 0o666 without those of the umask.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// use eyrie::{Credentials, Kvfs, PosixExt};
    ///
    /// let files = volume.files(Credentials::of_process());
    /// files.create_dir("/eggs")?;
    /// let eggs = Kvfs::open(&files, "/eggs")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`]. `ENOTDIR` if `path` is not a directory. `EACCES` unless the credentials may read,
    /// write and search the directory.
    pub fn open(pxfs: &Pxfs<E>, path: impl AsRef<Path>) -> Result<Kvfs<E>> {
        let path = path.as_ref();
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let handle = pxfs.open(path.into(), flags, 0).map_err(|error| error.at(path))?;
        let (engine, who) = (Arc::clone(pxfs.engine()), pxfs.credentials());
        let usable = retry::call(&*engine, |_| {
            let protection = access::protection(&*engine, handle.current(&*engine)?, who)?;
            access::check_store(who, &protection)?;
            // The directory may get or lose its default ACL while the store is open. The umask therefore
            // always applies, and the engine adds the ACL that a new value inherits.
            let protection = Protection { has_default_acl: false, ..protection };
            Ok(access::owner_of_new(who, &protection, Kind::File, 0o666))
        });
        match usable {
            // The store keeps the directory open in place of the handle, and closes it when the store is
            // dropped.
            Ok(owner) => {
                let (dir, clock) = (handle.into_kept(), pxfs.clock());
                let may_exceed_limits = access::may_exceed_limits(pxfs.credentials());
                Ok(Kvfs { store: Arc::new(OpenStore { dir, engine, owner, may_exceed_limits, clock }) })
            }
            Err(error) => {
                pxfs.close(handle)?;
                Err(Error::from_engine(error, "open").at(path))
            }
        }
    }

    /// Returns a copy of the value of `key`, or `None` if the key does not exist.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// assert_eq!(store.get("colour")?.as_deref(), Some(&b"blue"[..]));
    /// assert_eq!(store.get("size")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for an empty key, and for a key that names a device, pipe, socket or symbolic link.
    /// `ENAMETOOLONG` for a key of more than 255 bytes. `EISDIR` if the key names a directory. `EFBIG` if a
    /// program made the file larger than 64 MiB. `EIO` if the medium fails or the volume is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Replaces the contents of `out` with the value of `key`, and reuses the memory of `out`. If the key
    /// does not exist, leaves `out` empty and returns false. After an error the contents of `out` are
    /// unspecified.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// let mut value = Vec::new();
    /// assert!(store.get_into("colour", &mut value)?);
    /// assert_eq!(value, b"blue");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        let key = key.as_ref();
        self.call_on(key, "get", |pin| {
            out.clear();
            let Some(id) = self.find(key)? else { return Ok(false) };
            match self.lent(id, pin)? {
                Some(bytes) => out.extend_from_slice(bytes),
                None => self.copy(id, out)?,
            }
            Ok(true)
        })
    }

    /// Returns the value of `key` without a copy if the engine can lend the stored bytes, else a copy. The
    /// bytes do not change as long as `pin` lives, even if a put replaces the value meanwhile. [`Kvfs::pin`]
    /// takes a pin. Inspect a volume from an untrusted source first: see [`File::view`](crate::File::view).
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// let pin = store.pin();
    /// let colour = store.get_in_place("colour", &pin)?.expect("it was put");
    /// store.put("colour", "green")?;
    /// assert_eq!(&colour[..], b"blue");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn get_in_place<'a>(&'a self, key: impl AsRef<[u8]>, pin: &'a Guard) -> Result<Option<View<'a>>> {
        let key = key.as_ref();
        self.call_on(key, "get", |_| {
            let Some(id) = self.find(key)? else { return Ok(None) };
            self.value_of(id, pin).map(Some)
        })
    }

    /// Takes a pin for [`Kvfs::get_in_place`]. Storage that is freed while the pin lives is reused only after
    /// the pin is dropped.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// let pin = store.pin();
    /// assert!(store.get_in_place("colour", &pin)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pin(&self) -> Guard {
        epoch::pin()
    }

    /// Returns the version of the value of `key`, or `None` if the key does not exist. Every change of the
    /// value, by any call, changes the version. [`Version`] has the details.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// let seen = store.version("colour")?;
    /// store.put("colour", "blue")?;
    /// assert_ne!(store.version("colour")?, seen);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Kvfs::get`], without `EFBIG`.
    pub fn version(&self, key: impl AsRef<[u8]>) -> Result<Option<Version>> {
        let key = key.as_ref();
        let version = |id| self.store.engine.version(id);
        self.call_on(key, "version", |_| self.find(key)?.map(version).transpose())
    }

    /// Returns a copy of the value of `key`, and the version of the value. [`Kvfs::put_if`] changes the value
    /// only if it still has this version:
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// # use eyrie::{Condition, Outcome};
    /// store.put("visits", [0])?;
    /// let outcome = loop {
    ///     let (value, version) = store.get_with_version("visits")?.expect("it was put");
    ///     let outcome = store.put_if("visits", [value[0] + 1], Condition::Version(version))?;
    ///     if outcome == Outcome::Done {
    ///         break outcome;
    ///     }
    /// };
    /// assert_eq!(store.get("visits")?.as_deref(), Some(&[1][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// In a volume, this call waits for no other call, with one exception. If a call on files has made or
    /// changed the file, this call may wait for a change of the file that is in progress.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn get_with_version(&self, key: impl AsRef<[u8]>) -> Result<Option<(Vec<u8>, Version)>> {
        let key = key.as_ref();
        self.call_on(key, "get", |pin| {
            let Some(id) = self.find(key)? else { return Ok(None) };
            loop {
                let version = self.store.engine.version(id)?;
                let value = self.value_of(id, pin)?;
                if self.store.engine.version(id)? == version {
                    return Ok(Some((value.into_vec(), version)));
                }
            }
        })
    }

    /// Returns the length of the value of `key` in bytes, or `None` if the key does not exist. Reads no byte
    /// of the value.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// assert_eq!((store.value_len("colour")?, store.value_len("size")?), (Some(4), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Kvfs::get`], without `EFBIG`.
    pub fn value_len(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        let key = key.as_ref();
        self.call_on(key, "value_len", |_| {
            let id = self.find(key)?;
            Ok(id.map(|id| self.store.engine.attributes(id)).transpose()?.map(|attributes| attributes.size))
        })
    }

    /// Returns true if `key` has a value.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// assert!(!store.contains_key("colour")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Kvfs::get`], without `EFBIG`.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.call_on(key, "contains_key", |_| Ok(self.find(key)?.is_some()))
    }

    /// Returns the number of entries of the directory. A subdirectory counts as one entry.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// assert_eq!(store.len()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `EIO` if the medium fails.
    pub fn len(&self) -> Result<u64> {
        Ok(self.call("len", |_| self.store.engine.attributes(self.store.dir()?))?.size)
    }

    /// Returns true if the directory has no entries.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// assert!(store.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `EIO` if the medium fails.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the object that holds the value of `key`.
    #[inline]
    fn find(&self, key: &[u8]) -> eyrie_engine::Result<Option<ObjectId>> {
        use eyrie_engine::Error as Engine;
        match key.len() {
            0 => return Err(Engine::Invalid("a key must have at least one byte")),
            1..=NAME_MAX => {}
            _ => return Err(Engine::NameTooLong),
        }
        match self.store.engine.lookup(self.store.dir()?, key)? {
            Some(id) if id.is_directory() => Err(Engine::IsDirectory),
            Some(id) if id.kind() != Kind::File => {
                Err(Engine::Invalid("the key names something other than a regular file"))
            }
            found => Ok(found),
        }
    }

    /// Returns the bytes of the object `id`, in place if the engine can lend them.
    #[inline]
    fn value_of<'a>(&'a self, id: ObjectId, pin: &'a Guard) -> eyrie_engine::Result<View<'a>> {
        Ok(match self.lent(id, pin)? {
            Some(bytes) => View::InPlace(bytes),
            None => {
                let mut bytes = Vec::new();
                self.copy(id, &mut bytes)?;
                View::Copied(bytes)
            }
        })
    }

    /// Returns all bytes of the object `id` in place, if the engine can lend them.
    #[inline]
    fn lent<'a>(&'a self, id: ObjectId, pin: &'a Guard) -> eyrie_engine::Result<Option<&'a [u8]>> {
        // The engine does not lend a file whole if the file is larger than the longest value. The caller then
        // calls `copy`, which refuses the file.
        Ok(self.store.engine.view(id, (0, VALUE_MAX as u64), pin)?.and_then(FileView::whole))
    }

    /// Reads all bytes of `id` as they were at one moment.
    fn copy(&self, id: ObjectId, out: &mut Vec<u8>) -> eyrie_engine::Result<()> {
        loop {
            let size = self.store.engine.attributes(id)?.size;
            // Any program may write the file, so the file may be larger than the longest value, and larger
            // than memory.
            let size = usize::try_from(size).ok().filter(|&size| size <= VALUE_MAX);
            let Some(size) = size else { return Err(eyrie_engine::Error::TooLarge) };
            // The buffer has one byte more than the value. If the read fills the buffer, the value has grown
            // since its size was read.
            out.resize(size + 1, 0);
            let count = self.store.engine.read(id, 0, out)?;
            out.truncate(count);
            if count <= size {
                return Ok(());
            }
        }
    }

    /// Makes a call on one key. Its error names the key.
    #[inline]
    fn call_on<T>(
        &self,
        key: &[u8],
        operation: &'static str,
        attempt: impl FnMut(&Guard) -> eyrie_engine::Result<T>,
    ) -> Result<T> {
        retry::call(&*self.store.engine, attempt).map_err(|error| error_on(key, operation, error))
    }

    /// Makes a call as [`retry::call`] does.
    #[inline]
    fn call<T>(
        &self,
        operation: &'static str,
        attempt: impl FnMut(&Guard) -> eyrie_engine::Result<T>,
    ) -> Result<T> {
        retry::call(&*self.store.engine, attempt).map_err(|error| Error::from_engine(error, operation))
    }
}

/// Returns the error of a call on a key.
#[cold]
fn error_on(key: &[u8], operation: &'static str, error: eyrie_engine::Error) -> Error {
    Error::from_engine(error, operation).at(OsStr::from_bytes(key))
}

impl<E: Engine> OpenStore<E> {
    /// Returns the directory.
    #[inline]
    fn dir(&self) -> eyrie_engine::Result<ObjectId> {
        self.dir.get(&*self.engine)
    }
}

impl<E: Engine> Drop for OpenStore<E> {
    fn drop(&mut self) {
        self.engine.close(self.dir.raw());
    }
}

/// The copy shares the open directory.
impl<E: Engine> Clone for Kvfs<E> {
    fn clone(&self) -> Self {
        Kvfs { store: Arc::clone(&self.store) }
    }
}

impl<E: Engine> fmt::Debug for Kvfs<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kvfs").field("dir", &self.store.dir.raw()).finish_non_exhaustive()
    }
}

impl<E: Engine> KeyValueStore for Kvfs<E> {
    fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.get_into(key, out)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(key)
    }

    fn contains_key(&self, key: &[u8]) -> Result<bool> {
        self.contains_key(key)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(key, value).map(drop)
    }

    fn erase(&self, key: &[u8]) -> Result<bool> {
        self.erase(key)
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        self.commit(batch)
    }

    fn scan(&self, range: KeyRange, order: Order) -> Result<BoxedKeys<'_>> {
        Ok(Box::new(self.scan(range, order)))
    }

    fn scan_values(&self, range: KeyRange, order: Order) -> Result<BoxedEntries<'_>> {
        Ok(Box::new(self.scan_values(range, order)))
    }
}

#[cfg(test)]
mod tests;
