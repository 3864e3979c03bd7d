//! KVFS: keys and values in one directory.
//!
//! A store is a directory and a value is a file, so a program can open the values of another one as files. A
//! put replaces the whole value: a reader sees the old bytes or the new ones. Rights are checked once, when
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

use crate::posix::Posix;
use crate::retry::Retries;
use crate::stamps::Clock;
use crate::{Error, OpenFlags, Pxfs, Result};

/// A map from keys to values, kept in one directory. Keys are 1 to 255 bytes of any kind, values 0 bytes to
/// 64 MiB.
pub struct Kvfs<E: Engine> {
    engine: Arc<E>,
    dir: ObjectId,
    owner: Owner,
    clock: Clock,
}

impl<E: Engine> Kvfs<E> {
    /// The store in the directory `path`, which must exist. Values that are put belong to the credentials of
    /// `pxfs`, with permission bits 0o666 less their umask.
    ///
    /// # Errors
    /// As [`Posix::open`]; `ENOTDIR`, and `EACCES` unless the credentials may read, write and search the
    /// directory.
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
            // The store takes over the open of the handle, and closes it when it is dropped.
            Ok(owner) => Ok(Kvfs { engine, dir, owner, clock: pxfs.clock() }),
            Err(error) => {
                pxfs.close(handle)?;
                Err(Error::from_engine(error, "open").at(path))
            }
        }
    }

    /// The value of `key`, copied.
    ///
    /// # Errors
    /// `EINVAL` and `ENAMETOOLONG` for an illegal key, `EISDIR` if the key names a directory.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let pin = epoch::pin();
        Ok(self.get_in_place(key, &pin)?.map(Value::into_vec))
    }

    /// Replaces `out` by the value of `key`, and reuses its memory. Returns false, with `out` empty, if there
    /// is none.
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

    /// The value of `key`: in place if the engine can hand out the bytes so, else copied. The bytes do not
    /// change while `pin` ([`eyrie_medium::epoch::pin`], or [`Kvfs::pin`]) lives, even if the key is put
    /// meanwhile.
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

    /// A pin for [`Kvfs::get_in_place`]. Memory that is freed meanwhile is reused only after the pin is
    /// dropped.
    pub fn pin(&self) -> Guard {
        epoch::pin()
    }

    /// True if `key` has a value.
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
    /// As [`Kvfs::get`]; `EFBIG` for more than 64 MiB, `ENOSPC`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (name, data) = (key.as_ref(), value.as_ref());
        check_key(name, "put")?;
        check_value(data)?;
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

    /// Removes `key`. Returns false if there was none.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn erase(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let name = key.as_ref();
        check_key(name, "erase")?;
        let erase = Op::Erase { dir: self.dir, name, time: self.clock.stamp_of_any() };
        self.call("erase", || match self.engine.apply(&erase) {
            Ok(_) => Ok(true),
            // A call of another thread may have removed the key, and may not be durable yet. This call must
            // not return before it is.
            Err(eyrie_engine::Error::NotFound) => self.engine.wait_for(self.dir).map(|()| false),
            Err(error) => Err(error),
        })
    }

    /// The number of entries, directories included.
    ///
    /// # Errors
    /// `EIO`.
    pub fn len(&self) -> Result<u64> {
        let _pin = epoch::pin();
        Ok(self.call("len", || self.engine.attributes(self.dir))?.size)
    }

    /// True if there are no entries.
    ///
    /// # Errors
    /// `EIO`.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The object that holds the value of `key`.
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

    /// Reads all bytes of `id`, as they are at one moment.
    fn copy(&self, id: ObjectId, out: &mut Vec<u8>) -> eyrie_engine::Result<()> {
        loop {
            let size = self.engine.attributes(id)?.size;
            // A program may have made the file, so it may be larger than any value, and than memory.
            let size = usize::try_from(size).ok().filter(|&size| size <= VALUE_MAX);
            let Some(size) = size else { return Err(eyrie_engine::Error::TooLarge) };
            // The buffer has one byte more than the value. If the read fills it, the value has grown since.
            out.resize(size + 1, 0);
            let count = self.engine.read(id, 0, out)?;
            out.truncate(count);
            if count <= size {
                return Ok(());
            }
        }
    }

    /// Makes an attempt, and another one as long as [`Retries`] allows it.
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
    /// The bytes as a vector, copied if they are in place.
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

fn check_key(key: &[u8], operation: &'static str) -> Result<()> {
    match key.len() {
        0 => Err(Error::with_reason(Errno::INVAL, operation, "a key has at least one byte")),
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::with_reason(Errno::NAMETOOLONG, operation, "a key has at most 255 bytes")),
    }
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_MAX {
        return Err(Error::with_reason(Errno::FBIG, "put", "a value has at most 64 MiB"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
