//! The host's file system.
use crate::Result;
use crate::posix::{Access, ListEntry, OpenFlags, Posix, SetTime, Stat, StatVfs, Whence};
use eyrie_engine::{Kind, RenameMode};
use std::os::fd::OwnedFd;
use std::path::Path;
/// The calls of [`Posix`] as system calls, under a directory of the host.
#[derive(Debug)]
pub struct Host {
    root: OwnedFd,
}
impl Host {
    /// The file system under the directory `root`.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn new(root: impl AsRef<Path>) -> Result<Host> {
        unimplemented!()
    }
}
/// Keys and values as files of a host directory: get is open, read, close; put is create, write, rename.
#[derive(Debug)]
pub struct HostStore {
    root: OwnedFd,
}
impl Posix for Host {
    type Handle = OwnedFd;
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
