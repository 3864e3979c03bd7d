//! PXFS: POSIX calls over an engine.

use std::path::Path;
use std::sync::Arc;

use eyrie_engine::access::Credentials;
use eyrie_engine::{Engine, Kind, ObjectId, RenameMode, Time};

use crate::Result;
use crate::posix::{Access, ListEntry, OpenFlags, Posix, SetTime, Stat, StatVfs, Whence};

/// The POSIX calls over an engine, for one set of credentials.
#[derive(Debug)]
pub struct Pxfs<E> {
    engine: Arc<E>,
    credentials: Credentials,
    /// Tells this engine from every other of the process in caches.
    instance: u64,
    clock: fn() -> Time,
}

/// An open file or directory of a [`Pxfs`]. Closed only by [`Posix::close`].
#[derive(Debug)]
#[must_use = "a handle keeps its file until it is closed"]
pub struct Handle {
    id: ObjectId,
    flags: OpenFlags,
}

impl<E: Engine> Pxfs<E> {
    /// The calls over `engine`, made by `credentials`.
    pub fn new(engine: Arc<E>, credentials: Credentials) -> Pxfs<E> {
        Pxfs { engine, credentials, instance: 0, clock: || Time::new(0, 0) }
    }

    /// The same file system for somebody else.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Pxfs<E> {
        Pxfs { engine: Arc::clone(&self.engine), credentials, instance: self.instance, clock: self.clock }
    }
}
impl<E: Engine> Posix for Pxfs<E> {
    type Handle = Handle;
    fn open(&self, path: impl AsRef<Path>, flags: OpenFlags, mode: u16) -> Result<Self::Handle> {
        unimplemented!()
    }
    fn close(&self, handle: Self::Handle) -> Result<()> {
        unimplemented!()
    }
    fn read_at(&self, handle: &Self::Handle, out: &mut [u8], offset: u64) -> Result<usize> {
        unimplemented!()
    }
    fn write_at(&self, handle: &Self::Handle, data: &[u8], offset: u64) -> Result<usize> {
        unimplemented!()
    }
    fn append(&self, handle: &Self::Handle, data: &[u8]) -> Result<usize> {
        unimplemented!()
    }
    fn fstat(&self, handle: &Self::Handle) -> Result<Stat> {
        unimplemented!()
    }
    fn stat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        unimplemented!()
    }
    fn lstat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        unimplemented!()
    }
    fn set_len(&self, handle: &Self::Handle, size: u64) -> Result<()> {
        unimplemented!()
    }
    fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        unimplemented!()
    }
    fn mkdir(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        unimplemented!()
    }
    fn rmdir(&self, path: impl AsRef<Path>) -> Result<()> {
        unimplemented!()
    }
    fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        unimplemented!()
    }
    fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()> {
        unimplemented!()
    }
    fn link(&self, existing: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        unimplemented!()
    }
    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        unimplemented!()
    }
    fn readlink(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        unimplemented!()
    }
    fn chmod(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        unimplemented!()
    }
    fn fchmod(&self, handle: &Self::Handle, mode: u16) -> Result<()> {
        unimplemented!()
    }
    fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        unimplemented!()
    }
    fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        unimplemented!()
    }
    fn utimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()> {
        unimplemented!()
    }
    fn lutimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()> {
        unimplemented!()
    }
    fn futimens(&self, handle: &Self::Handle, accessed: SetTime, modified: SetTime) -> Result<()> {
        unimplemented!()
    }
    fn mknod(&self, path: impl AsRef<Path>, kind: Kind, mode: u16, device: u64) -> Result<()> {
        unimplemented!()
    }
    fn list(
        &self,
        handle: &Self::Handle,
        cookie: u64,
        visit: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<()> {
        unimplemented!()
    }
    fn access(&self, path: impl AsRef<Path>, access: Access) -> Result<()> {
        unimplemented!()
    }
    fn seek(&self, handle: &Self::Handle, offset: u64, whence: Whence) -> Result<u64> {
        unimplemented!()
    }
    fn fsync(&self, handle: &Self::Handle) -> Result<()> {
        unimplemented!()
    }
    fn statvfs(&self) -> Result<StatVfs> {
        unimplemented!()
    }
}
