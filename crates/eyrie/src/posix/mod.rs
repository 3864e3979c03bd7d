//! The calls of a POSIX file system as a trait, and a layer over it in the style of [`std::fs`].
//!
//! [`Posix`] has the calls. [`Pxfs`](crate::Pxfs) implements them over an engine, and [`Host`](crate::Host)
//! by system calls. [`PosixExt`], [`File`] and [`OpenOptions`] are written once, over [`Posix`].

mod ext;
mod file;
mod ladder;
mod types;
mod walk;

pub use ext::{DirEntry, OpenOptions, PosixExt, ReadDir};
/// The rights that [`Posix::access`] checks. Empty rights check that the path exists.
pub use eyrie_engine::access::Rights as Access;
pub use file::File;
pub use ladder::{Base, Ladder};
pub use types::{ListEntry, OpenFlags, SetTime, Stat, StatVfs, Whence};
pub use walk::{Walk, WalkEntry, WalkStep};

use std::path::Path;

use eyrie_engine::{FallocateMode, Kind, RenameMode, XattrMode};

use crate::Result;

/// The calls of a POSIX file system, with Linux's results.
///
/// Paths are resolved from the root of the file system, with or without a leading `/`. In a volume, `..` of
/// the root is the root. Sizes and offsets are in bytes. Permission bits are at most 0o7777. Calls that make
/// a file remove the bits of the umask from its permission bits. An error names the call and its errno.
///
/// Each call on a volume is whole or undone, and a call that fails changes nothing. There is one exception: a
/// [`fallocate`](Posix::fallocate) that allocates or zeroes more than 64 MiB has several steps, and keeps the
/// steps before an error. If a medium fails, the error may come after the whole change.
///
/// # Errors
/// A call on a volume fails with the errno of Linux on tmpfs, except for the differences that
/// [`pxfs`](crate::pxfs) lists. A call on the host fails with the errno of the host's file system, which may
/// allow only smaller files (`EFBIG`). The methods list only their particular errors.
pub trait Posix {
    /// An open file or directory. The caller must [`close`](Posix::close) it. A dropped [`File`] closes its
    /// handle.
    type Handle: std::fmt::Debug;

    /// Maximum number of directories that one walk keeps open at a time.
    const HANDLES: usize;

    /// True if other file systems may be mounted in this one. A directory may then have several names, and
    /// its entry may have another inode number than the directory itself.
    const MOUNTS: bool;

    /// Returns the same file system with the open directory `dir` as its root: every path begins there. `..`
    /// of `dir` is still its parent, and absolute symbolic links still begin at the true root. The result
    /// keeps `dir` open. A call on the result works as the `*at` call of the same name. For example,
    /// [`open`](Posix::open) works as `openat(2)`. But a leading `/` of a path has no effect.
    ///
    /// # Errors
    /// As `dup(2)`. In a volume, `ENOTDIR` if `dir` is not a directory. On the host this call then succeeds,
    /// and later calls on the result return `ENOTDIR`.
    fn at(&self, dir: &Self::Handle) -> Result<Self>
    where
        Self: Sized;

    /// Opens a file. With [`OpenFlags::CREATE`], makes a missing file with the permission bits `mode`.
    ///
    /// # Errors
    /// As `open(2)`.
    fn open(&self, path: impl AsRef<Path>, flags: OpenFlags, mode: u16) -> Result<Self::Handle>;

    /// Closes a handle. The last close of a file without a name removes the file.
    ///
    /// # Errors
    /// None at present.
    fn close(&self, handle: Self::Handle) -> Result<()>;

    /// Reads from `offset` on. Returns the number of bytes, which is 0 at and past the end.
    ///
    /// # Errors
    /// `EINVAL` for an offset of 2^63 or more, and if the range of bytes would end past offset 2^63 - 1.
    /// `EBADF` unless opened for reading. `EISDIR` for a directory.
    fn read_at(&self, handle: &Self::Handle, out: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes at `offset`, or at the end if the file was opened with [`OpenFlags::APPEND`]. Returns the
    /// number of bytes.
    ///
    /// # Errors
    /// `EINVAL` for an offset of 2^63 or more, and if the range of bytes would end past offset 2^63 - 1, also
    /// if the file was opened with [`OpenFlags::APPEND`]. `EBADF` unless opened for writing. For an append,
    /// the errors of [`append`](Posix::append). `ENOSPC` if the volume is full: then no byte is written.
    fn write_at(&self, handle: &Self::Handle, data: &[u8], offset: u64) -> Result<usize>;

    /// Finds the end of the file and writes there, as one atomic step. Returns the number of bytes, which is
    /// less than the length of `data` if all of `data` would not fit below the largest size of a file.
    ///
    /// # Errors
    /// `EBADF` unless opened for writing. `EFBIG` if the file has the largest size, 2^63 - 1. `ENOSPC` if the
    /// volume is full: then no byte is written.
    fn append(&self, handle: &Self::Handle, data: &[u8]) -> Result<usize>;

    /// Returns the attributes of an open file.
    ///
    /// # Errors
    /// As `fstat(2)`.
    fn fstat(&self, handle: &Self::Handle) -> Result<Stat>;

    /// Returns the attributes of the file that `path` leads to through symbolic links.
    ///
    /// # Errors
    /// As `stat(2)`.
    fn stat(&self, path: impl AsRef<Path>) -> Result<Stat>;

    /// Returns the attributes of the file that `path` names. A symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As `lstat(2)`.
    fn lstat(&self, path: impl AsRef<Path>) -> Result<Stat>;

    /// Sets the size of an open file. New bytes are zeros.
    ///
    /// # Errors
    /// `EINVAL` unless the file is a regular file and was opened for writing, and for a size of 2^63 or more.
    fn set_len(&self, handle: &Self::Handle, size: u64) -> Result<()>;

    /// Allocates, frees, zeroes, collapses or inserts `length` bytes of an open file from `offset` on, as
    /// `mode` states. A volume allocates or zeroes more than 64 MiB in several steps, from the lowest offset
    /// on. An error or a crash leaves each step whole or undone.
    ///
    /// # Errors
    /// `EINVAL` for a length of 0, and for an offset or length of 2^63 or more. `EBADF` unless opened for
    /// writing. `EFBIG` if offset and length are smaller than 2^63, but the range, or the file after an
    /// insertion, would end past offset 2^63 - 1. `ENOSPC` if the volume is full. To collapse and to insert:
    /// `EINVAL` unless offset and length are multiples of 4096 and the range begins before the end of the
    /// file. To collapse: `EINVAL` unless the range ends before the end of the file. `EOPNOTSUPP` for a mode
    /// that a file system of the host lacks.
    fn fallocate(&self, handle: &Self::Handle, mode: FallocateMode, offset: u64, length: u64) -> Result<()>;

    /// Sets the size of the file `path`. New bytes are zeros.
    ///
    /// # Errors
    /// `EINVAL` for a size of 2^63 or more, and for a pipe, socket or device. `EISDIR` for a directory. As
    /// `truncate(2)`.
    fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()>;

    /// Makes a directory.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    fn mkdir(&self, path: impl AsRef<Path>, mode: u16) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    fn rmdir(&self, path: impl AsRef<Path>) -> Result<()>;

    /// Removes the name of a file that is not a directory.
    ///
    /// # Errors
    /// As `unlink(2)`. `EISDIR` for a directory.
    fn unlink(&self, path: impl AsRef<Path>) -> Result<()>;

    /// Renames a file. `mode` states if an existing target is replaced, is exchanged with the source, or
    /// makes the call fail.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()>;

    /// Gives the file `existing` another name. If `existing` is a symbolic link, the link itself gets the
    /// name.
    ///
    /// # Errors
    /// As `link(2)`.
    fn link(&self, existing: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()>;

    /// Works as [`link`](Posix::link), but makes the new name `path` in `to`, which must be the same file
    /// system with another [root](Posix::at).
    ///
    /// # Errors
    /// As `linkat(2)`.
    fn link_at(&self, existing: impl AsRef<Path>, to: &Self, path: impl AsRef<Path>) -> Result<()>;

    /// Makes a symbolic link `path` to `target`, which need not exist.
    ///
    /// # Errors
    /// As `symlink(2)`.
    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()>;

    /// Returns the bytes of the target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if the file is not a symbolic link.
    fn readlink(&self, path: impl AsRef<Path>) -> Result<Vec<u8>>;

    /// Sets the permission bits. Symbolic links are followed.
    ///
    /// # Errors
    /// `EPERM` unless the caller owns the file or is root.
    fn chmod(&self, path: impl AsRef<Path>, mode: u16) -> Result<()>;

    /// Sets the permission bits of an open file.
    ///
    /// # Errors
    /// `EPERM` unless the caller owns the file or is root.
    fn fchmod(&self, handle: &Self::Handle, mode: u16) -> Result<()>;

    /// Sets user and group. `None` keeps the present one. Symbolic links are followed.
    ///
    /// # Errors
    /// `EPERM` unless the caller is root, or owns the file and only sets a group that the caller is in.
    fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// Works as [`chown`](Posix::chown), but does not follow a symbolic link at the end.
    ///
    /// # Errors
    /// As [`chown`](Posix::chown).
    fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// Sets the times of last access and modification. Symbolic links are followed.
    ///
    /// # Errors
    /// `EPERM` or `EACCES`, as `utimensat(2)`.
    fn utimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()>;

    /// Works as [`utimens`](Posix::utimens), but does not follow a symbolic link at the end.
    ///
    /// # Errors
    /// As [`utimens`](Posix::utimens).
    fn lutimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()>;

    /// Sets the times of an open file.
    ///
    /// # Errors
    /// As [`utimens`](Posix::utimens).
    fn futimens(&self, handle: &Self::Handle, accessed: SetTime, modified: SetTime) -> Result<()>;

    /// Makes a regular file, pipe, socket or device. `device` is the number of a device, as `makedev(3)`
    /// makes it.
    ///
    /// # Errors
    /// `EPERM` for a directory, and for a device unless the caller is root or makes a character device with
    /// the number 0. `EINVAL` for a symbolic link, and for a device number of more than 32 bits.
    fn mknod(&self, path: impl AsRef<Path>, kind: Kind, mode: u16, device: u64) -> Result<()>;

    /// Calls `visit` with the entries of an open directory, except `.` and `..`, until `visit` returns false.
    /// Begins at the position `cookie`, where 0 is the start. `visit` must not call the file system.
    ///
    /// # Errors
    /// `ENOTDIR` if the handle is not that of a directory. `ENOENT` for a directory that was removed.
    fn list(
        &self,
        handle: &Self::Handle,
        cookie: u64,
        visit: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<()>;

    /// Checks that the caller has these rights on the file that `path` leads to.
    ///
    /// # Errors
    /// `EACCES` if a right is missing. As `access(2)`.
    fn access(&self, path: impl AsRef<Path>, access: Access) -> Result<()>;

    /// Reads the extended attribute `name` of the file that `path` leads to through symbolic links. Returns
    /// the size of the value, and puts the value at the start of `out`. If `out` is empty, only returns the
    /// size.
    ///
    /// # Errors
    /// `ENODATA` if the attribute does not exist. `ERANGE` if `out` is too small. `EOPNOTSUPP` for a
    /// namespace that the file system lacks. As `getxattr(2)`.
    fn getxattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize>;

    /// Works as [`getxattr`](Posix::getxattr), but does not follow a symbolic link at the end.
    ///
    /// # Errors
    /// As [`getxattr`](Posix::getxattr).
    fn lgetxattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize>;

    /// Works as [`getxattr`](Posix::getxattr), but on an open file. The handle may be for reading or for
    /// writing.
    ///
    /// # Errors
    /// As [`getxattr`](Posix::getxattr).
    fn fgetxattr(&self, handle: &Self::Handle, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize>;

    /// Lists the names of the extended attributes of the file that `path` leads to through symbolic links.
    /// Returns the number of bytes, and puts the names at the start of `out`, each with a NUL at its end. If
    /// `out` is empty, only returns the number.
    ///
    /// # Errors
    /// `ERANGE` if `out` is too small. As `listxattr(2)`.
    fn listxattr(&self, path: impl AsRef<Path>, out: &mut [u8]) -> Result<usize>;

    /// Works as [`listxattr`](Posix::listxattr), but does not follow a symbolic link at the end.
    ///
    /// # Errors
    /// As [`listxattr`](Posix::listxattr).
    fn llistxattr(&self, path: impl AsRef<Path>, out: &mut [u8]) -> Result<usize>;

    /// Works as [`listxattr`](Posix::listxattr), but on an open file. The handle may be for reading or for
    /// writing.
    ///
    /// # Errors
    /// As [`listxattr`](Posix::listxattr).
    fn flistxattr(&self, handle: &Self::Handle, out: &mut [u8]) -> Result<usize>;

    /// Sets an extended attribute of the file that `path` leads to through symbolic links.
    ///
    /// # Errors
    /// `EEXIST` and `ENODATA` as `mode` defines them. `ERANGE` unless the name has 1 to 255 bytes. `E2BIG`
    /// for a value of more than 64 KiB. `ENOSPC` if the attributes of the file take too much space. `EPERM`,
    /// `EOPNOTSUPP` and other errors as `setxattr(2)`.
    fn setxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()>;

    /// Works as [`setxattr`](Posix::setxattr), but does not follow a symbolic link at the end.
    ///
    /// # Errors
    /// As [`setxattr`](Posix::setxattr).
    fn lsetxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()>;

    /// Works as [`setxattr`](Posix::setxattr), but on an open file. The handle may be for reading or for
    /// writing.
    ///
    /// # Errors
    /// As [`setxattr`](Posix::setxattr).
    fn fsetxattr(
        &self,
        handle: &Self::Handle,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()>;

    /// Removes an extended attribute of the file that `path` leads to through symbolic links.
    ///
    /// # Errors
    /// `ENODATA` if the attribute does not exist. As `removexattr(2)`.
    fn removexattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()>;

    /// Works as [`removexattr`](Posix::removexattr), but does not follow a symbolic link at the end.
    ///
    /// # Errors
    /// As [`removexattr`](Posix::removexattr).
    fn lremovexattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()>;

    /// Works as [`removexattr`](Posix::removexattr), but on an open file. The handle may be for reading or
    /// for writing.
    ///
    /// # Errors
    /// As [`removexattr`](Posix::removexattr).
    fn fremovexattr(&self, handle: &Self::Handle, name: impl AsRef<[u8]>) -> Result<()>;

    /// Returns the first offset from `offset` on that has data or that is in a hole, as `whence` states. The
    /// end of the file counts as a hole.
    ///
    /// # Errors
    /// `ENXIO` for an offset at or past the end of the file, also for an offset of 2^63 or more. `ENXIO` also
    /// if the call seeks data and none follows. In a volume, `EINVAL` for a directory.
    fn seek(&self, handle: &Self::Handle, offset: u64, whence: Whence) -> Result<u64>;

    /// Makes the file as durable as its medium can make it.
    ///
    /// # Errors
    /// `EIO` if the medium fails. `ENOSPC` if a disk becomes full during the write. After one of these
    /// errors on the medium `paged`, every later call that changes or synchronises the volume fails with
    /// `EROFS`.
    fn fsync(&self, handle: &Self::Handle) -> Result<()>;

    /// Returns the total and the free space of the file system.
    ///
    /// # Errors
    /// As `statvfs(3)`.
    fn statvfs(&self) -> Result<StatVfs>;
}

#[cfg(test)]
mod tests;
