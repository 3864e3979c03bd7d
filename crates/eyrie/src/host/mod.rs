//! The file system of the host, behind the calls of [`Posix`].
//!
//! Each call of [`Posix`] is one system call, and its paths are relative to a directory descriptor. So
//! benchmarks compare volume and host fairly, and tests can compare a volume with the kernel. Exceptions:
//! - `list` is one `lseek(2)`, as many `getdents64(2)` as the listing needs, and one `fstatat(2)` for each
//!   entry whose kind the host does not state. `list` moves the position of the descriptor.
//! - `append_range` is one `pwritev2(2)` and one `lseek(2)`.
//! - `readlink` repeats `readlinkat(2)` with a larger buffer if the target is long.
//! - `truncate` and the calls on extended attributes of a path go through `/proc/self/fd`, unless the path
//!   begins at the root and the root is `/`. `truncate(2)` has no variant with a directory descriptor, and
//!   the calls on extended attributes have such variants only since Linux 6.13. `access` and `link` of an
//!   open file also go through `/proc/self/fd`.
//! - `chmod`, `truncate` and `access` of a path whose last symbolic link is not followed first call
//!   `fstatat(2)`. A variant that does not follow the link is missing, or exists only in newer kernels.
//! - `statvfs` of a path first opens the path, because `statfs(2)` takes no directory descriptor.
//! - `set_inode_flags` first reads the old flags, because it keeps those that Eyrie does not have.

mod birth;
mod clones;
mod convert;
mod locks;
mod projects;
mod space;
mod store;
#[cfg(feature = "testing")]
mod users;

pub use store::HostStore;

use std::ffi::{CString, OsStr};
use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use eyrie_engine::{FallocateMode, InodeFlags, Kind, RenameMode, XattrMode};
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RawDir, RenameFlags, Uid};
use rustix::io::{self, ReadWriteFlags};

use convert::{
    fallocate_flags, file_type, inode_flags, kind_of_entry, mode_bits, named, open_flags, stat_from,
    timestamps, with_inode_flags, xattr_flags,
};

use crate::posix::{Access, ListEntry, OpenFlags, PathAt, Posix, SetTime, Stat, StatVfs, Target, Whence};
use crate::{Errno, Error, Result};

/// Bytes of the buffer for directory entries: the size that glibc uses.
const LIST_BUFFER: usize = 32 << 10;

/// The calls of [`Posix`] as system calls under a directory of the host.
///
/// Unlike in a volume, `..` and absolute symbolic links lead out of that directory, unless the directory is
/// `/`. The umask of the process applies, and the mount options decide about access times.
///
/// ```
/// # use eyrie::{Host, PosixExt};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// fs.write("/egg", "blue")?;
/// assert_eq!(std::fs::read(place.path().join("egg"))?, b"blue");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    root: Arc<OwnedFd>,
    /// True if the root is `/`, so that absolute paths need no change.
    root_is_slash: bool,
    /// The directory whose names are the numbers of the open files of this process.
    open_files: &'static str,
}

impl Host {
    /// Opens the directory `root` as a file system.
    ///
    /// ```
    /// let root = eyrie::Host::new("/")?;
    /// # Ok::<(), eyrie::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn new(root: impl AsRef<Path>) -> Result<Host> {
        let root = root.as_ref();
        let root_is_slash = root == Path::new("/");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = named("open", fs::open(root, flags, Mode::empty())).map_err(|error| error.at(root))?;
        Ok(Host { root: Arc::new(root), root_is_slash, open_files: "/proc/self/fd" })
    }

    /// Makes all earlier changes durable, in the whole host file system that contains the root.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.write("/egg", "blue")?;
    /// fs.sync()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `syncfs(2)`.
    pub fn sync(&self) -> Result<()> {
        // `self.root` is opened with `O_PATH`, which `syncfs` refuses.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = named("syncfs", fs::openat(&*self.root, ".", flags, Mode::empty()))?;
        named("syncfs", fs::syncfs(root))
    }

    /// Returns the path relative to the root descriptor.
    #[inline]
    fn relative<'p>(&self, path: &'p Path) -> &'p OsStr {
        let bytes = path.as_os_str().as_bytes();
        if self.root_is_slash || bytes.first() != Some(&b'/') {
            return path.as_os_str();
        }
        match bytes.iter().position(|&byte| byte != b'/') {
            Some(start) => OsStr::from_bytes(&bytes[start..]),
            None => OsStr::new("."),
        }
    }

    /// Returns the directory descriptor and the path for a system call.
    #[inline]
    fn place<'a>(&'a self, path: PathAt<'a, OwnedFd>) -> (BorrowedFd<'a>, &'a OsStr) {
        match path.dir {
            Some(dir) if !path.path.is_absolute() => (dir.as_fd(), path.path.as_os_str()),
            _ => (self.root.as_fd(), self.relative(path.path)),
        }
    }

    /// Returns the path for a call that takes no directory descriptor.
    fn whole_path(&self, path: PathAt<'_, OwnedFd>) -> io::Result<Vec<u8>> {
        let (dir, path) = self.place(path);
        if path.is_empty() {
            return Err(io::Errno::NOENT);
        }
        // If the root is `/`, the path does not lead through `/proc`. So the calls also work in a container
        // without procfs. An absolute path does not become longer, so a path of the maximum length is still
        // accepted.
        match dir.as_raw_fd() == self.root.as_raw_fd() && self.root_is_slash {
            true if path.as_bytes().starts_with(b"/") => Ok(path.as_bytes().to_vec()),
            true => Ok([b"/", path.as_bytes()].concat()),
            false => Ok([self.descriptor_path(dir).as_bytes(), b"/", path.as_bytes()].concat()),
        }
    }

    /// Returns a path that leads to an open file.
    fn descriptor_path(&self, file: BorrowedFd<'_>) -> String {
        format!("{}/{}", self.open_files, file.as_raw_fd())
    }

    fn lstat(&self, operation: &'static str, path: PathAt<'_, OwnedFd>) -> Result<Stat> {
        let (dir, path) = self.place(path);
        named(operation, fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW)).map(|stat| stat_from(&stat))
    }
}

impl Posix for Host {
    type Handle = OwnedFd;

    /// Many hosts limit a process to 1024 descriptors, and a copy runs several walks.
    fn open_dirs_max(&self) -> usize {
        64
    }

    fn has_mounts(&self) -> bool {
        true
    }

    fn data_bytes_max(&self) -> u64 {
        u64::MAX
    }

    #[inline]
    fn open(&self, path: PathAt<'_, OwnedFd>, flags: OpenFlags, mode: u16) -> Result<OwnedFd> {
        let flags = named("open", open_flags(flags))?;
        let (dir, path) = self.place(path);
        named("open", fs::openat(dir, path, flags, mode_bits(mode)))
    }

    #[inline]
    fn close(&self, handle: OwnedFd) -> Result<()> {
        drop(handle);
        Ok(())
    }

    #[inline]
    fn read_at(&self, handle: &OwnedFd, out: &mut [u8], offset: u64) -> Result<usize> {
        named("read", io::pread(handle, out, offset))
    }

    #[inline]
    fn write_at(&self, handle: &OwnedFd, data: &[u8], offset: u64) -> Result<usize> {
        named("write", io::pwrite(handle, data, offset))
    }

    #[inline]
    fn append(&self, handle: &OwnedFd, data: &[u8]) -> Result<usize> {
        named("write", io::pwritev2(handle, &[IoSlice::new(data)], 0, ReadWriteFlags::APPEND))
    }

    fn append_range(&self, handle: &OwnedFd, data: &[u8]) -> Result<Range<u64>> {
        // With this offset, the call moves the position of the descriptor to the end of the written bytes.
        const AT_POSITION: u64 = u64::MAX;
        let written = io::pwritev2(handle, &[IoSlice::new(data)], AT_POSITION, ReadWriteFlags::APPEND);
        let count = named("write", written)? as u64;
        // The bytes are written, so an error of `lseek` must not become an error of this call.
        let end = fs::seek(handle, fs::SeekFrom::Current(0)).unwrap_or(count);
        Ok(end.saturating_sub(count)..end)
    }

    #[inline]
    fn stat(&self, file: Target<'_, OwnedFd>) -> Result<Stat> {
        match file {
            Target::Follow(path) => {
                let (dir, path) = self.place(path);
                named("stat", fs::statat(dir, path, AtFlags::empty())).map(|stat| stat_from(&stat))
            }
            Target::NoFollow(path) => self.lstat("stat", path),
            Target::Open(handle) => named("stat", fs::fstat(handle)).map(|stat| stat_from(&stat)),
        }
    }

    fn truncate(&self, file: Target<'_, OwnedFd>, size: u64) -> Result<()> {
        // The kernel checks the size before the path.
        if i64::try_from(size).is_err() {
            return Err(Error::new(Errno::INVAL, "truncate"));
        }
        let path = match file {
            Target::Open(handle) => return named("truncate", fs::ftruncate(handle, size)),
            Target::NoFollow(path) if self.lstat("truncate", path)?.is_symlink() => {
                return Err(Error::new(Errno::LOOP, "truncate"));
            }
            Target::Follow(path) | Target::NoFollow(path) => named("truncate", self.whole_path(path))?,
        };
        let path = CString::new(path).map_err(|_| Error::new(Errno::INVAL, "truncate"))?;
        named("truncate", eyrie_medium::truncate(&path, size))
    }

    fn fallocate(&self, handle: &OwnedFd, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        named("fallocate", fs::fallocate(handle, fallocate_flags(mode), offset, length))
    }

    fn copy_file_range(&self, from: (&OwnedFd, u64), to: (&OwnedFd, u64), length: u64) -> Result<u64> {
        clones::copy_file_range(from, to, length)
    }

    fn mkdir(&self, path: PathAt<'_, OwnedFd>, mode: u16) -> Result<()> {
        let (dir, path) = self.place(path);
        named("mkdir", fs::mkdirat(dir, path, mode_bits(mode)))
    }

    fn rmdir(&self, path: PathAt<'_, OwnedFd>) -> Result<()> {
        let (dir, path) = self.place(path);
        named("rmdir", fs::unlinkat(dir, path, AtFlags::REMOVEDIR))
    }

    #[inline]
    fn unlink(&self, path: PathAt<'_, OwnedFd>) -> Result<()> {
        let (dir, path) = self.place(path);
        named("unlink", fs::unlinkat(dir, path, AtFlags::empty()))
    }

    #[inline]
    fn rename_with(
        &self,
        from: PathAt<'_, OwnedFd>,
        to: PathAt<'_, OwnedFd>,
        mode: RenameMode,
    ) -> Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.place(from), self.place(to));
        let flags = RenameFlags::from_bits_retain(mode.flags());
        named("rename", fs::renameat_with(from_dir, from, to_dir, to, flags))
    }

    fn link(&self, existing: Target<'_, OwnedFd>, path: PathAt<'_, OwnedFd>) -> Result<()> {
        let (dir, path) = self.place(path);
        let linked = match existing {
            Target::Follow(existing) => {
                let (from, existing) = self.place(existing);
                fs::linkat(from, existing, dir, path, AtFlags::SYMLINK_FOLLOW)
            }
            Target::NoFollow(existing) => {
                let (from, existing) = self.place(existing);
                fs::linkat(from, existing, dir, path, AtFlags::empty())
            }
            // Only privileged programs may link a descriptor itself (`AT_EMPTY_PATH`).
            Target::Open(file) => {
                fs::linkat(fs::CWD, self.descriptor_path(file.as_fd()), dir, path, AtFlags::SYMLINK_FOLLOW)
            }
        };
        named("link", linked)
    }

    fn symlink(&self, target: &Path, path: PathAt<'_, OwnedFd>) -> Result<()> {
        let (dir, path) = self.place(path);
        named("symlink", fs::symlinkat(target, dir, path))
    }

    fn readlink(&self, link: Target<'_, OwnedFd>) -> Result<Vec<u8>> {
        let target = match link {
            Target::Follow(path) | Target::NoFollow(path) => {
                let (dir, path) = self.place(path);
                fs::readlinkat(dir, path, Vec::new())
            }
            Target::Open(link) => fs::readlinkat(link, "", Vec::new()),
        };
        named("readlink", target).map(CString::into_bytes)
    }

    fn chmod(&self, file: Target<'_, OwnedFd>, mode: u16) -> Result<()> {
        match file {
            Target::Open(handle) => named("chmod", fs::fchmod(handle, mode_bits(mode))),
            Target::NoFollow(path) if self.lstat("chmod", path)?.is_symlink() => {
                Err(Error::new(Errno::OPNOTSUPP, "chmod"))
            }
            Target::Follow(path) | Target::NoFollow(path) => {
                let (dir, path) = self.place(path);
                named("chmod", fs::chmodat(dir, path, mode_bits(mode), AtFlags::empty()))
            }
        }
    }

    fn chown(&self, file: Target<'_, OwnedFd>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        let owned = match file {
            Target::Follow(path) => {
                let (dir, path) = self.place(path);
                fs::chownat(dir, path, uid, gid, AtFlags::empty())
            }
            Target::NoFollow(path) => {
                let (dir, path) = self.place(path);
                fs::chownat(dir, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
            Target::Open(handle) => fs::fchown(handle, uid, gid),
        };
        named("chown", owned)
    }

    fn utimens(&self, file: Target<'_, OwnedFd>, accessed: SetTime, modified: SetTime) -> Result<()> {
        let times = named("utimens", timestamps(accessed, modified))?;
        let set = match file {
            Target::Follow(path) => {
                let (dir, path) = self.place(path);
                fs::utimensat(dir, path, &times, AtFlags::empty())
            }
            Target::NoFollow(path) => {
                let (dir, path) = self.place(path);
                fs::utimensat(dir, path, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            Target::Open(handle) => fs::futimens(handle, &times),
        };
        named("utimens", set)
    }

    fn mknod(&self, path: PathAt<'_, OwnedFd>, kind: Kind, mode: u16, device: u64) -> Result<()> {
        // The C library also refuses numbers of more than 32 bits. Linux would ignore the upper 32 bits.
        if device > u32::MAX.into() {
            return Err(Error::new(Errno::INVAL, "mknod"));
        }
        let (dir, path) = self.place(path);
        named("mknod", fs::mknodat(dir, path, file_type(kind), mode_bits(mode), device))
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
            let kind = match kind_of_entry(handle, &entry) {
                // Another program has removed the entry meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                kind => named("getdents", kind)?,
            };
            let shown = ListEntry { name, kind, inode: entry.ino(), next: entry.next_entry_cookie() };
            if !visit(shown) {
                break;
            }
        }
        Ok(())
    }

    fn access(&self, file: Target<'_, OwnedFd>, access: Access) -> Result<()> {
        let mut wanted = fs::Access::EXISTS;
        wanted.set(fs::Access::READ_OK, access.contains(Access::READ));
        wanted.set(fs::Access::WRITE_OK, access.contains(Access::WRITE));
        wanted.set(fs::Access::EXEC_OK, access.contains(Access::EXECUTE));
        let effective = access.contains(Access::EFFECTIVE);
        let flags = if effective { AtFlags::EACCESS } else { AtFlags::empty() };
        let checked = match file {
            // Every user has all rights on a symbolic link.
            Target::NoFollow(path) if self.lstat("access", path)?.is_symlink() => Ok(()),
            Target::Follow(path) | Target::NoFollow(path) => {
                let (dir, path) = self.place(path);
                fs::accessat(dir, path, wanted, flags)
            }
            Target::Open(file) => fs::accessat(fs::CWD, self.descriptor_path(file.as_fd()), wanted, flags),
        };
        named("access", checked)
    }

    fn getxattr(&self, file: Target<'_, OwnedFd>, name: &[u8], out: &mut [u8]) -> Result<usize> {
        let path = |path| named("getxattr", self.whole_path(path));
        let size = match (file, out.is_empty()) {
            (Target::Follow(file), true) => fs::getxattr_query(path(file)?, name),
            (Target::Follow(file), false) => fs::getxattr(path(file)?, name, out),
            (Target::NoFollow(file), true) => fs::lgetxattr_query(path(file)?, name),
            (Target::NoFollow(file), false) => fs::lgetxattr(path(file)?, name, out),
            (Target::Open(handle), true) => fs::fgetxattr_query(handle, name),
            (Target::Open(handle), false) => fs::fgetxattr(handle, name, out),
        };
        named("getxattr", size)
    }

    fn listxattr(&self, file: Target<'_, OwnedFd>, out: &mut [u8]) -> Result<usize> {
        let path = |path| named("listxattr", self.whole_path(path));
        let size = match (file, out.is_empty()) {
            (Target::Follow(file), true) => fs::listxattr_query(path(file)?),
            (Target::Follow(file), false) => fs::listxattr(path(file)?, out),
            (Target::NoFollow(file), true) => fs::llistxattr_query(path(file)?),
            (Target::NoFollow(file), false) => fs::llistxattr(path(file)?, out),
            (Target::Open(handle), true) => fs::flistxattr_query(handle),
            (Target::Open(handle), false) => fs::flistxattr(handle, out),
        };
        named("listxattr", size)
    }

    fn setxattr(&self, file: Target<'_, OwnedFd>, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let path = |path| named("setxattr", self.whole_path(path));
        let set = match file {
            Target::Follow(file) => fs::setxattr(path(file)?, name, value, xattr_flags(mode)),
            Target::NoFollow(file) => fs::lsetxattr(path(file)?, name, value, xattr_flags(mode)),
            Target::Open(handle) => fs::fsetxattr(handle, name, value, xattr_flags(mode)),
        };
        named("setxattr", set)
    }

    fn removexattr(&self, file: Target<'_, OwnedFd>, name: &[u8]) -> Result<()> {
        let path = |path| named("removexattr", self.whole_path(path));
        let removed = match file {
            Target::Follow(file) => fs::removexattr(path(file)?, name),
            Target::NoFollow(file) => fs::lremovexattr(path(file)?, name),
            Target::Open(handle) => fs::fremovexattr(handle, name),
        };
        named("removexattr", removed)
    }

    fn seek(&self, handle: &OwnedFd, offset: u64, whence: Whence) -> Result<u64> {
        let to = match whence {
            Whence::Data => fs::SeekFrom::Data(offset),
            Whence::Hole => fs::SeekFrom::Hole(offset),
        };
        named("lseek", fs::seek(handle, to))
    }

    fn inode_flags(&self, handle: &OwnedFd) -> Result<InodeFlags> {
        named("getflags", fs::ioctl_getflags(handle)).map(inode_flags)
    }

    fn set_inode_flags(&self, handle: &OwnedFd, flags: InodeFlags) -> Result<()> {
        let old = named("setflags", fs::ioctl_getflags(handle))?;
        named("setflags", fs::ioctl_setflags(handle, with_inode_flags(old, flags)))
    }

    fn fsync(&self, handle: &OwnedFd) -> Result<()> {
        named("fsync", fs::fsync(handle))
    }

    fn fdatasync(&self, handle: &OwnedFd) -> Result<()> {
        named("fdatasync", fs::fdatasync(handle))
    }

    fn statvfs(&self, file: Target<'_, OwnedFd>) -> Result<StatVfs> {
        self.space(file)
    }
}

#[cfg(test)]
mod tests;
