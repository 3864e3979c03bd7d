//! The file system of the host, behind the calls of [`Posix`].
//!
//! Each call of [`Posix`] is one system call, and its paths are relative to a directory descriptor. So
//! benchmarks compare volume and host fairly, and tests can compare a volume with the kernel. There are three
//! exceptions:
//! - `list` is one `lseek(2)`, as many `getdents64(2)` as the listing needs, and one `fstatat(2)` for each
//!   entry whose kind the host does not state.
//! - `readlink` repeats `readlinkat(2)` with a larger buffer if the target is long.
//! - `truncate` and the calls on extended attributes of a path use a path through `/proc/self/fd`, unless the
//!   root is `/`. No variant of `truncate(2)` takes a directory descriptor. Variants of the other calls exist
//!   only since Linux 6.13.

mod convert;
mod store;

pub use store::HostStore;

use std::ffi::{CString, OsStr};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie_engine::access::Credentials;
use eyrie_engine::{FallocateMode, Kind, RenameMode, XattrMode};
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RawDir, RenameFlags, Uid};
use rustix::io::{Errno, ReadWriteFlags};

use convert::{
    fallocate_flags, file_type, kind_of, mode_bits, named, open_flags, stat_from, timestamps, xattr_flags,
};

use crate::posix::{Access, ListEntry, OpenFlags, Posix, SetTime, Stat, StatVfs, Whence};
use crate::{Error, Result};

/// Bytes of the buffer for directory entries: the size that glibc uses.
const LIST_BUFFER: usize = 32 << 10;

/// The calls of [`Posix`] as system calls under a directory of the host.
///
/// Unlike in a volume, `..` and absolute symbolic links lead out of that directory, unless the directory is
/// `/`. The umask of the process applies, and the mount options decide about access times.
#[derive(Debug)]
pub struct Host {
    root: OwnedFd,
    /// True if the root is `/`, so that absolute paths need no change.
    whole: bool,
}

impl Host {
    /// Opens the directory `root` as a file system.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn new(root: impl AsRef<Path>) -> Result<Host> {
        let root = root.as_ref();
        let whole = root == Path::new("/");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            fs::open(root, flags, Mode::empty()).map_err(|errno| Error::new(errno, "open").at(root))?;
        Ok(Host { root, whole })
    }

    /// Opens the store in the directory `path`, which must exist.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn store(&self, path: impl AsRef<Path>) -> Result<HostStore> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = named("open", fs::openat(&self.root, self.relative(path), flags, Mode::empty()));
        dir.map(HostStore::over).map_err(|error| error.at(path))
    }

    /// Makes all earlier changes durable, in the whole host file system that contains the root.
    ///
    /// # Errors
    /// As `syncfs(2)`.
    pub fn sync(&self) -> Result<()> {
        // `self.root` is opened with `O_PATH`, which `syncfs` refuses.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = named("syncfs", fs::openat(&self.root, ".", flags, Mode::empty()))?;
        named("syncfs", fs::syncfs(root))
    }

    /// Gives the calling thread, and no other thread, the user and groups of `credentials`. The umask does
    /// not change. The process must have been started by root. A call with [`Credentials::root`] makes the
    /// thread root again.
    ///
    /// # Errors
    /// `EPERM` unless the process was started by root.
    pub fn become_user(credentials: &Credentials) -> Result<()> {
        let (uid, gid) = (Uid::from_raw(credentials.uid()), Gid::from_raw(credentials.gid()));
        let groups: Vec<Gid> = credentials.groups().iter().copied().map(Gid::from_raw).collect();
        // Setting groups needs the effective user id of root. The saved user id stays that of root, so that
        // the thread can become root again.
        let all = || {
            rustix::thread::set_thread_res_uid(None, Uid::ROOT, None)?;
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_res_gid(gid, gid, Gid::ROOT)?;
            rustix::thread::set_thread_res_uid(uid, uid, Uid::ROOT)
        };
        all().map_err(|errno| Error::new(errno, "setresuid"))
    }

    /// Returns the path relative to the root descriptor.
    #[inline]
    fn relative<'p>(&self, path: &'p Path) -> &'p OsStr {
        let bytes = path.as_os_str().as_bytes();
        if self.whole || bytes.first() != Some(&b'/') {
            return path.as_os_str();
        }
        match bytes.iter().position(|&byte| byte != b'/') {
            Some(start) => OsStr::from_bytes(&bytes[start..]),
            None => OsStr::new("."),
        }
    }

    /// Returns the path for a call that takes no directory descriptor.
    fn whole_path(&self, path: &Path) -> std::result::Result<Vec<u8>, Errno> {
        let root = if self.whole { "/".into() } else { format!("/proc/self/fd/{}/", self.root.as_raw_fd()) };
        match self.relative(path).as_bytes() {
            [] => Err(Errno::NOENT),
            relative => Ok([root.as_bytes(), relative].concat()),
        }
    }

    fn stat_at(&self, operation: &'static str, path: &Path, flags: AtFlags) -> Result<Stat> {
        named(operation, fs::statat(&self.root, self.relative(path), flags)).map(|stat| stat_from(&stat))
    }

    fn own(
        &self,
        operation: &'static str,
        path: &Path,
        owner: (Option<u32>, Option<u32>),
        flags: AtFlags,
    ) -> Result<()> {
        let (uid, gid) = (owner.0.map(Uid::from_raw), owner.1.map(Gid::from_raw));
        named(operation, fs::chownat(&self.root, self.relative(path), uid, gid, flags))
    }
}

impl Posix for Host {
    type Handle = OwnedFd;

    /// Many hosts limit a process to 1024 descriptors, and a copy runs several walks.
    const HANDLES: usize = 64;

    const MOUNTS: bool = true;

    fn at(&self, dir: &OwnedFd) -> Result<Host> {
        let root = named("openat", rustix::io::fcntl_dupfd_cloexec(dir, 0))?;
        Ok(Host { root, whole: false })
    }

    #[inline]
    fn open(&self, path: impl AsRef<Path>, flags: OpenFlags, mode: u16) -> Result<OwnedFd> {
        let flags = named("open", open_flags(flags))?;
        named("open", fs::openat(&self.root, self.relative(path.as_ref()), flags, mode_bits(mode)))
    }

    #[inline]
    fn close(&self, handle: OwnedFd) -> Result<()> {
        drop(handle);
        Ok(())
    }

    #[inline]
    fn read_at(&self, handle: &OwnedFd, out: &mut [u8], offset: u64) -> Result<usize> {
        named("read", rustix::io::pread(handle, out, offset))
    }

    #[inline]
    fn write_at(&self, handle: &OwnedFd, data: &[u8], offset: u64) -> Result<usize> {
        named("write", rustix::io::pwrite(handle, data, offset))
    }

    #[inline]
    fn append(&self, handle: &OwnedFd, data: &[u8]) -> Result<usize> {
        named("write", rustix::io::pwritev2(handle, &[IoSlice::new(data)], 0, ReadWriteFlags::APPEND))
    }

    #[inline]
    fn fstat(&self, handle: &OwnedFd) -> Result<Stat> {
        named("fstat", fs::fstat(handle)).map(|stat| stat_from(&stat))
    }

    #[inline]
    fn stat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat_at("stat", path.as_ref(), AtFlags::empty())
    }

    #[inline]
    fn lstat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat_at("lstat", path.as_ref(), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn set_len(&self, handle: &OwnedFd, size: u64) -> Result<()> {
        named("ftruncate", fs::ftruncate(handle, size))
    }

    fn fallocate(&self, handle: &OwnedFd, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        named("fallocate", fs::fallocate(handle, fallocate_flags(mode), offset, length))
    }

    fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        let path = named("truncate", self.whole_path(path.as_ref()))?;
        let path = CString::new(path).map_err(|_| Error::new(Errno::INVAL, "truncate"))?;
        named("truncate", eyrie_medium::truncate(&path, size))
    }

    fn mkdir(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        named("mkdir", fs::mkdirat(&self.root, self.relative(path.as_ref()), mode_bits(mode)))
    }

    fn rmdir(&self, path: impl AsRef<Path>) -> Result<()> {
        named("rmdir", fs::unlinkat(&self.root, self.relative(path.as_ref()), AtFlags::REMOVEDIR))
    }

    #[inline]
    fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        named("unlink", fs::unlinkat(&self.root, self.relative(path.as_ref()), AtFlags::empty()))
    }

    #[inline]
    fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()> {
        let (from, to) = (self.relative(from.as_ref()), self.relative(to.as_ref()));
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        named("rename", fs::renameat_with(&self.root, from, &self.root, to, flags))
    }

    fn link(&self, existing: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let (existing, path) = (self.relative(existing.as_ref()), self.relative(path.as_ref()));
        named("link", fs::linkat(&self.root, existing, &self.root, path, AtFlags::empty()))
    }

    fn link_at(&self, existing: impl AsRef<Path>, to: &Host, path: impl AsRef<Path>) -> Result<()> {
        let (existing, path) = (self.relative(existing.as_ref()), to.relative(path.as_ref()));
        named("linkat", fs::linkat(&self.root, existing, &to.root, path, AtFlags::empty()))
    }

    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        named("symlink", fs::symlinkat(target.as_ref(), &self.root, self.relative(path.as_ref())))
    }

    fn readlink(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let target = fs::readlinkat(&self.root, self.relative(path.as_ref()), Vec::new());
        named("readlink", target).map(std::ffi::CString::into_bytes)
    }

    fn chmod(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        let path = self.relative(path.as_ref());
        named("chmod", fs::chmodat(&self.root, path, mode_bits(mode), AtFlags::empty()))
    }

    fn fchmod(&self, handle: &OwnedFd, mode: u16) -> Result<()> {
        named("fchmod", fs::fchmod(handle, mode_bits(mode)))
    }

    fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.own("chown", path.as_ref(), (uid, gid), AtFlags::empty())
    }

    fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.own("lchown", path.as_ref(), (uid, gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn utimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()> {
        let times = named("utimens", timestamps(accessed, modified))?;
        let path = self.relative(path.as_ref());
        named("utimens", fs::utimensat(&self.root, path, &times, AtFlags::empty()))
    }

    fn lutimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()> {
        let times = named("lutimens", timestamps(accessed, modified))?;
        let path = self.relative(path.as_ref());
        named("lutimens", fs::utimensat(&self.root, path, &times, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn futimens(&self, handle: &OwnedFd, accessed: SetTime, modified: SetTime) -> Result<()> {
        let times = named("futimens", timestamps(accessed, modified))?;
        named("futimens", fs::futimens(handle, &times))
    }

    fn mknod(&self, path: impl AsRef<Path>, kind: Kind, mode: u16, device: u64) -> Result<()> {
        // The C library also refuses numbers of more than 32 bits. Linux would ignore the upper 32 bits.
        if device > u32::MAX.into() {
            return Err(Error::new(Errno::INVAL, "mknod"));
        }
        let path = self.relative(path.as_ref());
        named("mknod", fs::mknodat(&self.root, path, file_type(kind), mode_bits(mode), device))
    }

    fn list(
        &self,
        handle: &OwnedFd,
        cookie: u64,
        visit: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<()> {
        named("getdents", fs::seek(handle, fs::SeekFrom::Start(cookie)))?;
        let mut buffer = [MaybeUninit::uninit(); LIST_BUFFER];
        let mut entries = RawDir::new(handle, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = named("getdents", entry)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = match kind_of(entry.file_type()) {
                Some(kind) => kind,
                // Some file systems of the host do not store the kind in a directory entry.
                None => {
                    let stat = fs::statat(handle, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                    stat_from(&named("getdents", stat)?).kind
                }
            };
            let shown = ListEntry { name, kind, inode: entry.ino(), next: entry.next_entry_cookie() };
            if !visit(shown) {
                break;
            }
        }
        Ok(())
    }

    fn access(&self, path: impl AsRef<Path>, access: Access) -> Result<()> {
        let mut wanted = fs::Access::EXISTS;
        wanted.set(fs::Access::READ_OK, access.contains(Access::READ));
        wanted.set(fs::Access::WRITE_OK, access.contains(Access::WRITE));
        wanted.set(fs::Access::EXEC_OK, access.contains(Access::EXECUTE));
        let path = self.relative(path.as_ref());
        named("access", fs::accessat(&self.root, path, wanted, AtFlags::empty()))
    }

    fn getxattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize> {
        let name = name.as_ref();
        let path = named("getxattr", self.whole_path(path.as_ref()))?;
        let size =
            if out.is_empty() { fs::getxattr_query(&*path, name) } else { fs::getxattr(&*path, name, out) };
        named("getxattr", size)
    }

    fn lgetxattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize> {
        let name = name.as_ref();
        let path = named("lgetxattr", self.whole_path(path.as_ref()))?;
        let size =
            if out.is_empty() { fs::lgetxattr_query(&*path, name) } else { fs::lgetxattr(&*path, name, out) };
        named("lgetxattr", size)
    }

    fn fgetxattr(&self, handle: &OwnedFd, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize> {
        let name = name.as_ref();
        let size =
            if out.is_empty() { fs::fgetxattr_query(handle, name) } else { fs::fgetxattr(handle, name, out) };
        named("fgetxattr", size)
    }

    fn listxattr(&self, path: impl AsRef<Path>, out: &mut [u8]) -> Result<usize> {
        let path = named("listxattr", self.whole_path(path.as_ref()))?;
        let size = if out.is_empty() { fs::listxattr_query(&*path) } else { fs::listxattr(&*path, out) };
        named("listxattr", size)
    }

    fn llistxattr(&self, path: impl AsRef<Path>, out: &mut [u8]) -> Result<usize> {
        let path = named("llistxattr", self.whole_path(path.as_ref()))?;
        let size = if out.is_empty() { fs::llistxattr_query(&*path) } else { fs::llistxattr(&*path, out) };
        named("llistxattr", size)
    }

    fn flistxattr(&self, handle: &OwnedFd, out: &mut [u8]) -> Result<usize> {
        let size = if out.is_empty() { fs::flistxattr_query(handle) } else { fs::flistxattr(handle, out) };
        named("flistxattr", size)
    }

    fn setxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let path = named("setxattr", self.whole_path(path.as_ref()))?;
        named("setxattr", fs::setxattr(&*path, name.as_ref(), value, xattr_flags(mode)))
    }

    fn lsetxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let path = named("lsetxattr", self.whole_path(path.as_ref()))?;
        named("lsetxattr", fs::lsetxattr(&*path, name.as_ref(), value, xattr_flags(mode)))
    }

    fn fsetxattr(
        &self,
        handle: &OwnedFd,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        named("fsetxattr", fs::fsetxattr(handle, name.as_ref(), value, xattr_flags(mode)))
    }

    fn removexattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let path = named("removexattr", self.whole_path(path.as_ref()))?;
        named("removexattr", fs::removexattr(&*path, name.as_ref()))
    }

    fn lremovexattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let path = named("lremovexattr", self.whole_path(path.as_ref()))?;
        named("lremovexattr", fs::lremovexattr(&*path, name.as_ref()))
    }

    fn fremovexattr(&self, handle: &OwnedFd, name: impl AsRef<[u8]>) -> Result<()> {
        named("fremovexattr", fs::fremovexattr(handle, name.as_ref()))
    }

    fn seek(&self, handle: &OwnedFd, offset: u64, whence: Whence) -> Result<u64> {
        let to = match whence {
            Whence::Data => fs::SeekFrom::Data(offset),
            Whence::Hole => fs::SeekFrom::Hole(offset),
        };
        named("lseek", fs::seek(handle, to))
    }

    fn fsync(&self, handle: &OwnedFd) -> Result<()> {
        named("fsync", fs::fsync(handle))
    }

    fn statvfs(&self) -> Result<StatVfs> {
        let stat = named("statvfs", fs::fstatvfs(&self.root))?;
        Ok(StatVfs {
            block_size: stat.f_frsize,
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            files: stat.f_files,
            files_free: stat.f_ffree,
            name_max: stat.f_namemax,
        })
    }
}

#[cfg(test)]
mod tests;
