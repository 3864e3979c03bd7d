//! KVFS: keys and values in one directory.
//!
//! A store is a directory and a value is a file, so any program can open the values as files. A put replaces
//! the whole value: a reader sees either the old bytes or the new ones. Permissions are checked once, when
//! the store is opened.
//!
//! ```
//! # use std::sync::Arc;
//! # use eyrie::{Credentials, Kvfs, PosixExt, Pxfs, Time};
//! # use eyrie_engine::{Kind, ObjectId, Owner, model::Model};
//! # let root = ObjectId::new(64, Kind::Directory);
//! # let engine = Model::new(root, Owner { mode: 0o755, uid: 0, gid: 0 }, Time::default());
//! # let fs = Pxfs::new(Arc::new(engine), Credentials::root());
//! fs.create_dir("/store")?;
//! let store = Kvfs::open(&fs, "/store")?;
//! store.put("colour", "blue")?;
//! assert_eq!(store.get("colour")?.as_deref(), Some(&b"blue"[..]));
//! assert_eq!(fs.read("/store/colour")?, b"blue");
//! assert!(store.erase("colour")?);
//! # Ok::<(), eyrie::Error>(())
//! ```

mod batch;
mod scan;

pub use batch::Batch;
pub use scan::Scan;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use eyrie_engine::access::{self, Protection, Rights};
use eyrie_engine::op::{NAME_MAX, VALUE_MAX};
use eyrie_engine::{Engine, Kind, ObjectId, Op, Owner};
use eyrie_medium::epoch::{self, Guard};
use rustix::io::Errno;

use crate::names::check_key;
use crate::posix::Posix;
use crate::retry::Retries;
use crate::stamps::Clock;
use crate::{Error, OpenFlags, Pxfs, Result};

/// A map from keys to values, kept in one directory. A key is 1 to 255 bytes of any kind. A value is 0 bytes
/// to 64 MiB long. Each put, erase and batch is one step: whole or undone, also after an error or a crash.
pub struct Kvfs<E: Engine> {
    engine: Arc<E>,
    dir: ObjectId,
    owner: Owner,
    clock: Clock,
}

impl<E: Engine> Kvfs<E> {
    /// Opens the store in the directory `path`, which must exist. The user and group of `pxfs` own every new
    /// value. If the directory has the set-group-id bit, new values get the directory's group instead. The
    /// permission bits of a new value are 0o666 without those of the umask.
    ///
    /// # Errors
    /// As [`Posix::open`]. `ENOTDIR` if `path` is not a directory. `EACCES` unless the credentials may read,
    /// write and search the directory.
    pub fn open(pxfs: &Pxfs<E>, path: impl AsRef<Path>) -> Result<Kvfs<E>> {
        let path = path.as_ref();
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let handle = pxfs.open(path, flags, 0).map_err(|error| error.at(path))?;
        let (engine, who, dir) = (Arc::clone(pxfs.engine()), pxfs.credentials(), handle.id());
        let usable = engine.owner(dir).and_then(|Owner { mode, uid, gid }| {
            let protection = Protection { kind: Kind::Directory, mode, uid, gid };
            access::check(who, &protection, Rights::all())?;
            Ok(access::owner_of_new(who, &protection, Kind::File, 0o666))
        });
        match usable {
            // The store keeps the directory open in place of the handle, and closes it when the store is
            // dropped.
            Ok(owner) => Ok(Kvfs { engine, dir, owner, clock: pxfs.clock() }),
            Err(error) => {
                pxfs.close(handle)?;
                Err(Error::from_engine(error, "open").at(path))
            }
        }
    }

    /// Returns a copy of the value of `key`, or `None` if the key does not exist.
    ///
    /// # Errors
    /// `EINVAL` for an empty key, and for a key that names a device, pipe, socket or symbolic link.
    /// `ENAMETOOLONG` for a key of more than 255 bytes. `EISDIR` if the key names a directory. `EFBIG` if a
    /// program made the file larger than 64 MiB, and the engine cannot lend its bytes. `EIO` if the medium
    /// fails or the volume is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let pin = epoch::pin();
        Ok(self.get_in_place(key, &pin)?.map(Value::into_vec))
    }

    /// Replaces the contents of `out` by the value of `key`, and reuses the memory of `out`. If the key does
    /// not exist, leaves `out` empty and returns false. After an error the contents of `out` are unspecified.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        let pin = epoch::pin();
        out.clear();
        self.call("get", || {
            let Some(id) = self.find(key.as_ref())? else { return Ok(false) };
            match self.engine.view(id, &pin)? {
                Some(bytes) => out.extend_from_slice(bytes),
                None => self.copy(id, out)?,
            }
            Ok(true)
        })
    }

    /// Returns the value of `key` without a copy if the engine can lend the stored bytes, else a copy. The
    /// bytes do not change as long as `pin` lives, even if a put replaces the value meanwhile. [`Kvfs::pin`]
    /// takes a pin.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn get_in_place<'a>(&'a self, key: impl AsRef<[u8]>, pin: &'a Guard) -> Result<Option<Value<'a>>> {
        self.call("get", || {
            let Some(id) = self.find(key.as_ref())? else { return Ok(None) };
            Ok(Some(match self.engine.view(id, pin)? {
                Some(bytes) => Value::InPlace(bytes),
                None => {
                    let mut bytes = Vec::new();
                    self.copy(id, &mut bytes)?;
                    Value::Copied(bytes)
                }
            }))
        })
    }

    /// Takes a pin for [`Kvfs::get_in_place`]. Storage that is freed while the pin lives is reused only after
    /// the pin is dropped.
    pub fn pin(&self) -> Guard {
        epoch::pin()
    }

    /// Returns true if `key` has a value.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let _pin = epoch::pin();
        self.call("get", || Ok(self.find(key.as_ref())?.is_some()))
    }

    /// Sets the value of `key`. Returns true if the key is new.
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`, `EISDIR` and `EIO` as [`Kvfs::get`]. `EFBIG` for a value of more than 64
    /// MiB. `ENOSPC` if the volume is full. `EROFS` if its disk has failed. `ENOENT` if the directory of the
    /// store was removed.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (name, data) = (key.as_ref(), value.as_ref());
        check_key(name, "put")?;
        check_value(data, "put")?;
        let id = self.call("put", || self.engine.reserve(Kind::File))?;
        let put =
            Op::Put { dir: self.dir, name, id, owner: self.owner, data, time: self.clock.stamp_of_any() };
        let applied = self.call("put", || self.engine.apply(&put));
        match applied {
            Ok(applied) if applied.created => Ok(true),
            Ok(_) => {
                self.engine.unreserve(id);
                Ok(false)
            }
            Err(error) => {
                self.engine.unreserve(id);
                Err(error)
            }
        }
    }

    /// Removes `key`. Returns false if the key did not exist.
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`, `EISDIR` and `EIO` as [`Kvfs::get`]. `EROFS` if the disk of the volume has
    /// failed.
    pub fn erase(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let name = key.as_ref();
        check_key(name, "erase")?;
        let erase = Op::Erase { dir: self.dir, name, time: self.clock.stamp_of_any() };
        self.call("erase", || match self.engine.apply(&erase) {
            Ok(_) => Ok(true),
            // A call of another thread may have removed the key, and that removal may not be durable yet.
            // This call reports that the key is missing, so the call waits until the removal is durable.
            Err(eyrie_engine::Error::NotFound) => self.engine.wait_for(self.dir).map(|()| false),
            Err(error) => Err(error),
        })
    }

    /// Returns the number of entries of the directory. A subdirectory counts as one entry.
    ///
    /// # Errors
    /// `EIO`.
    pub fn len(&self) -> Result<u64> {
        let _pin = epoch::pin();
        Ok(self.call("len", || self.engine.attributes(self.dir))?.size)
    }

    /// Returns true if the directory has no entries.
    ///
    /// # Errors
    /// `EIO`.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the object that holds the value of `key`.
    #[inline]
    fn find(&self, key: &[u8]) -> eyrie_engine::Result<Option<ObjectId>> {
        use eyrie_engine::Error as Engine;
        match key.len() {
            0 => return Err(Engine::Invalid("a key has at least one byte")),
            1..=NAME_MAX => {}
            _ => return Err(Engine::NameTooLong),
        }
        match self.engine.lookup(self.dir, key)? {
            Some(id) if id.is_directory() => Err(Engine::IsDirectory),
            Some(id) if id.kind() != Kind::File => Err(Engine::Invalid("the key names no file")),
            found => Ok(found),
        }
    }

    /// Reads all bytes of `id` as they were at one moment.
    fn copy(&self, id: ObjectId, out: &mut Vec<u8>) -> eyrie_engine::Result<()> {
        loop {
            let size = self.engine.attributes(id)?.size;
            // Any program may write the file, so the file may be larger than the longest value, and larger
            // than memory.
            let size = usize::try_from(size).ok().filter(|&size| size <= VALUE_MAX);
            let Some(size) = size else { return Err(eyrie_engine::Error::TooLarge) };
            // The buffer has one byte more than the value. If the read fills the buffer, the value has grown
            // since its size was read.
            out.resize(size + 1, 0);
            let count = self.engine.read(id, 0, out)?;
            out.truncate(count);
            if count <= size {
                return Ok(());
            }
        }
    }

    /// Runs `attempt`, and repeats it after an error as long as [`Retries`] allows.
    #[inline]
    fn call<T>(
        &self,
        operation: &'static str,
        mut attempt: impl FnMut() -> eyrie_engine::Result<T>,
    ) -> Result<T> {
        let mut retries = Retries::default();
        loop {
            match attempt() {
                Ok(result) => return Ok(result),
                Err(error) if retries.allows(&error, &*self.engine) => {}
                Err(error) => return Err(Error::from_engine(error, operation)),
            }
        }
    }
}

impl<E: Engine> Drop for Kvfs<E> {
    fn drop(&mut self) {
        self.engine.close(self.dir);
    }
}

impl<E: Engine> std::fmt::Debug for Kvfs<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kvfs").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// The bytes of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// The bytes where they are stored.
    InPlace(&'a [u8]),
    /// A copy of the bytes.
    Copied(Vec<u8>),
}

impl Value<'_> {
    /// Returns the bytes as a vector. Bytes in place are copied.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Value::InPlace(bytes) => bytes.to_vec(),
            Value::Copied(bytes) => bytes,
        }
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Value::InPlace(bytes) => bytes,
            Value::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

fn check_value(value: &[u8], operation: &'static str) -> Result<()> {
    if value.len() > VALUE_MAX {
        return Err(Error::with_reason(Errno::FBIG, operation, "a value has at most 64 MiB"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
