//! KVFS: keys and values in one directory.
//!
//! A store is a directory and a value is a file, so what one program puts another can open. Values are replaced whole:
//! a reader sees the old bytes or the new ones. Permissions are not checked key by key: who holds a `Kvfs` may use it.

use std::ops::Deref;
use std::sync::Arc;

use eyrie_engine::access::Credentials;
use eyrie_engine::{Engine, ObjectId};

use crate::Result;

/// A map from keys to values, kept in one directory. Keys are 1 to 255 bytes of any kind, values 0 bytes to 64 MiB.
#[derive(Debug)]
pub struct Kvfs<E: Engine> {
    engine: Arc<E>,
    dir: ObjectId,
}

impl<E: Engine> Kvfs<E> {
    /// The store in the directory `path` of a volume, which must exist.
    ///
    /// # Errors
    /// As opening the directory for reading and writing; `ENOTDIR`.
    pub fn open(pxfs: &crate::Pxfs<E>, path: impl AsRef<std::path::Path>) -> Result<Kvfs<E>> {
        unimplemented!()
    }
    /// The value of `key`, copied.
    ///
    /// # Errors
    /// `EINVAL` and `ENAMETOOLONG` for what cannot be a key, `EISDIR` for a directory.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        unimplemented!()
    }
    /// The value of `key` appended to nothing: `out` is replaced, its memory reused. Whether there is one.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        unimplemented!()
    }
    /// The value of `key` in place where the engine can show it so, else copied.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn get_in_place(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueGuard<'_>>> {
        unimplemented!()
    }
    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        unimplemented!()
    }
    /// Sets the value of `key`. Whether the key is new.
    ///
    /// # Errors
    /// As [`Kvfs::get`]; `EFBIG`, `ENOSPC`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        unimplemented!()
    }
    /// Removes `key`. Whether there was one.
    ///
    /// # Errors
    /// As [`Kvfs::get`].
    pub fn erase(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        unimplemented!()
    }
    /// The keys that begin with `prefix` (all for an empty one); in byte order if `sorted`.
    ///
    /// # Errors
    /// `EIO`.
    pub fn scan(&self, prefix: impl AsRef<[u8]>, sorted: bool) -> Result<Scan<'_, E>> {
        unimplemented!()
    }
    /// A batch of changes, none made before [`Batch::commit`].
    pub fn batch(&self) -> Batch<'_, E> {
        unimplemented!()
    }
    /// How many keys there are.
    ///
    /// # Errors
    /// `EIO`.
    pub fn len(&self) -> Result<u64> {
        unimplemented!()
    }
    /// Whether there are none.
    ///
    /// # Errors
    /// `EIO`.
    pub fn is_empty(&self) -> Result<bool> {
        unimplemented!()
    }
}
/// A value that is not reused under the reader while this lives.
#[derive(Debug)]
pub struct ValueGuard<'a> {
    b: &'a [u8],
}
impl Deref for ValueGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.b
    }
}
/// Keys of a store, one after the other.
#[derive(Debug)]
pub struct Scan<'a, E: Engine> {
    s: &'a Kvfs<E>,
}
impl<E: Engine> Iterator for Scan<'_, E> {
    type Item = Result<Vec<u8>>;
    fn next(&mut self) -> Option<Result<Vec<u8>>> {
        unimplemented!()
    }
}
/// Puts and erases that are committed together: all or none.
#[derive(Debug)]
pub struct Batch<'a, E: Engine> {
    s: &'a Kvfs<E>,
}
impl<E: Engine> Batch<'_, E> {
    /// Sets the value of `key`; the last change of a key in a batch counts.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> &mut Self {
        unimplemented!()
    }
    /// Removes `key`, if there is one.
    pub fn erase(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        unimplemented!()
    }
    /// Makes all changes, or on an error none.
    ///
    /// # Errors
    /// As [`Kvfs::put`].
    pub fn commit(self) -> Result<()> {
        unimplemented!()
    }
}
