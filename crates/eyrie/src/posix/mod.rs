//! The calls of a POSIX file system as a trait, and a friendly layer over it.
//!
//! [`Posix`] has the calls one by one; [`Pxfs`](crate::Pxfs) implements them over an engine and [`Host`](crate::Host)
//! by system calls. [`PosixExt`], [`File`] and [`OpenOptions`] are written once over the trait, in the style of
//! [`std::fs`].

mod ext;
mod file;
mod ladder;
mod types;
mod walk;

pub use ext::{DirEntry, OpenOptions, PosixExt, ReadDir};
/// What [`Posix::access`] asks for; empty asks whether the path exists.
pub use eyrie_engine::access::Rights as Access;
pub use file::File;
pub use ladder::{Base, Ladder};
pub use types::{ListEntry, OpenFlags, SetTime, Stat, StatVfs, Whence};
pub use walk::{Found, Step, Walk};

use std::path::Path;

use eyrie_engine::{FallocateMode, Kind, RenameMode, XattrMode};

use crate::Result;

/// The calls of a POSIX file system, with Linux's results.
///
/// Paths are resolved from the root of the file system, whether or not they begin with `/`; `..` of the root is the
/// root. Sizes and offsets are in bytes; permission bits are at most 0o7777 and are used as given, less the umask of the
/// caller's credentials. An error names the call and its errno.
///
/// # Errors
/// Every call gives the errno that Linux gives on tmpfs; the methods list only what is particular to them.
pub trait Posix {
    /// An open file or directory. It must be given back with [`close`](Posix::close); [`File`] does so by itself.
    type Handle: std::fmt::Debug;

    /// Most directories that one walk keeps open at once.
    const HANDLES: usize;

    /// True if other file systems may be mounted in this one. A directory may then have several names, and its entry
    /// may have another inode number than the directory.
    const MOUNTS: bool;

    /// The same file system with the open directory `dir` as its root: every path begins there. `..` of `dir` is its
    /// parent, and absolute symbolic links lead to where they lead without this. It keeps `dir` open, so a call that
    /// `openat(2)` and the like have is the call of the same name here.
    ///
    /// # Errors
    /// `ENOTDIR`; as `dup(2)`.
    fn at(&self, dir: &Self::Handle) -> Result<Self>
    where
        Self: Sized;

    /// Opens, and creates if [`OpenFlags::CREATE`] says so, with these permission bits.
    ///
    /// # Errors
    /// As `open(2)`.
    fn open(&self, path: impl AsRef<Path>, flags: OpenFlags, mode: u16) -> Result<Self::Handle>;

    /// Closes. A file that lost its last name goes with its last handle.
    ///
    /// # Errors
    /// None known today.
    fn close(&self, handle: Self::Handle) -> Result<()>;

    /// Reads from `offset` on; the number of bytes read, 0 at and past the end.
    ///
    /// # Errors
    /// `EBADF` unless opened for reading, `EISDIR`, `EINVAL` for an offset of 2^63 or more.
    fn read_at(&self, handle: &Self::Handle, out: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes at `offset`, or at the end when opened with [`OpenFlags::APPEND`]; the number of bytes written.
    ///
    /// # Errors
    /// `EBADF` unless opened for writing, `EINVAL` for an offset of 2^63 or more, `EFBIG` at the largest size.
    fn write_at(&self, handle: &Self::Handle, data: &[u8], offset: u64) -> Result<usize>;

    /// Writes at the end, wherever that is by then, in one step; the number of bytes written.
    ///
    /// # Errors
    /// As [`write_at`](Posix::write_at).
    fn append(&self, handle: &Self::Handle, data: &[u8]) -> Result<usize>;

    /// The attributes of an open file.
    ///
    /// # Errors
    /// As `fstat(2)`.
    fn fstat(&self, handle: &Self::Handle) -> Result<Stat>;

    /// The attributes of what `path` names, symbolic links followed.
    ///
    /// # Errors
    /// As `stat(2)`.
    fn stat(&self, path: impl AsRef<Path>) -> Result<Stat>;

    /// The attributes of what `path` names, a last symbolic link not followed.
    ///
    /// # Errors
    /// As `lstat(2)`.
    fn lstat(&self, path: impl AsRef<Path>) -> Result<Stat>;

    /// Cuts an open file to `size`, or extends it with zeros.
    ///
    /// # Errors
    /// `EINVAL` unless it is a regular file opened for writing.
    fn set_len(&self, handle: &Self::Handle, size: u64) -> Result<()>;

    /// Gives storage to `length` bytes of an open file from `offset` on, takes it, or moves what follows, as `mode` says.
    /// Storage of more than 64 MiB comes in several steps, from the lowest offset on, each of them whole or not at all.
    ///
    /// # Errors
    /// `EINVAL` for no bytes, and for an offset or length of 2^63 or more; `EBADF` unless opened for writing; `EFBIG` past
    /// the largest size; `ENOSPC`. To collapse and to insert, `EINVAL` unless both are multiples of 4096, the range begins
    /// before the end of the file, and a collapsed one ends before it. `EOPNOTSUPP` for modes that the file system does not
    /// have, as on the host.
    fn fallocate(&self, handle: &Self::Handle, mode: FallocateMode, offset: u64, length: u64) -> Result<()>;

    /// Cuts the file `path` to `size`, or extends it with zeros.
    ///
    /// # Errors
    /// As `truncate(2)`.
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

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As `unlink(2)`; `EISDIR` for a directory.
    fn unlink(&self, path: impl AsRef<Path>) -> Result<()>;

    /// Renames, replacing what is there, not replacing it, or exchanging both.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()>;

    /// Gives what `existing` names another name; a symbolic link is linked itself, not followed.
    ///
    /// # Errors
    /// As `link(2)`.
    fn link(&self, existing: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()>;

    /// As [`link`](Posix::link), with a `path` in `to`, which is the same file system with another
    /// [root](Posix::at).
    ///
    /// # Errors
    /// As `linkat(2)`.
    fn link_at(&self, existing: impl AsRef<Path>, to: &Self, path: impl AsRef<Path>) -> Result<()>;

    /// Makes a symbolic link `path` to `target`, which need not exist.
    ///
    /// # Errors
    /// As `symlink(2)`.
    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()>;

    /// The target of a symbolic link, in bytes.
    ///
    /// # Errors
    /// `EINVAL` for what is no symbolic link.
    fn readlink(&self, path: impl AsRef<Path>) -> Result<Vec<u8>>;

    /// Sets the permission bits, symbolic links followed.
    ///
    /// # Errors
    /// `EPERM` unless the caller owns it or is root.
    fn chmod(&self, path: impl AsRef<Path>, mode: u16) -> Result<()>;

    /// Sets the permission bits of an open file.
    ///
    /// # Errors
    /// `EPERM` unless the caller owns it or is root.
    fn fchmod(&self, handle: &Self::Handle, mode: u16) -> Result<()>;

    /// Sets user and group (`None` leaves one as it is), symbolic links followed.
    ///
    /// # Errors
    /// `EPERM` unless the caller is root, or owns it and only sets a group it is in.
    fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// As [`chown`](Posix::chown), a last symbolic link not followed.
    ///
    /// # Errors
    /// As [`chown`](Posix::chown).
    fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// Sets the times of last access and modification, symbolic links followed.
    ///
    /// # Errors
    /// `EPERM` or `EACCES`, as `utimensat(2)`.
    fn utimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()>;

    /// As [`utimens`](Posix::utimens), a last symbolic link not followed.
    ///
    /// # Errors
    /// As [`utimens`](Posix::utimens).
    fn lutimens(&self, path: impl AsRef<Path>, accessed: SetTime, modified: SetTime) -> Result<()>;

    /// Sets the times of an open file.
    ///
    /// # Errors
    /// As [`utimens`](Posix::utimens).
    fn futimens(&self, handle: &Self::Handle, accessed: SetTime, modified: SetTime) -> Result<()>;

    /// Makes a regular file, pipe, socket or device; `device` is its number as `makedev(3)` makes it.
    ///
    /// # Errors
    /// `EPERM` for devices unless root, and for directories; `EINVAL` for symbolic links, and for numbers of more than 32
    /// bits.
    fn mknod(&self, path: impl AsRef<Path>, kind: Kind, mode: u16, device: u64) -> Result<()>;

    /// Shows the entries of an open directory from `cookie` on (0 is the start) until `visit` says false. `.` and `..`
    /// are not shown. `visit` must not call the file system.
    ///
    /// # Errors
    /// `ENOTDIR`; `ENOENT` for a directory that was removed.
    fn list(
        &self,
        handle: &Self::Handle,
        cookie: u64,
        visit: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<()>;

    /// Whether the caller may use what `path` names so.
    ///
    /// # Errors
    /// `EACCES` when it may not; else as `access(2)`.
    fn access(&self, path: impl AsRef<Path>, access: Access) -> Result<()>;

    /// The value of the extended attribute `name` of what `path` names, symbolic links followed: its size in bytes.
    /// The value is then at the start of `out`; an empty `out` asks for the size alone.
    ///
    /// # Errors
    /// `ENODATA` when there is none, `ERANGE` when `out` is too small, `EOPNOTSUPP` for namespaces that the file system
    /// does not have; else as `getxattr(2)`.
    fn getxattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize>;

    /// As [`getxattr`](Posix::getxattr), a last symbolic link not followed.
    ///
    /// # Errors
    /// As [`getxattr`](Posix::getxattr).
    fn lgetxattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize>;

    /// As [`getxattr`](Posix::getxattr), of an open file, whatever it was opened for.
    ///
    /// # Errors
    /// As [`getxattr`](Posix::getxattr).
    fn fgetxattr(&self, handle: &Self::Handle, name: impl AsRef<[u8]>, out: &mut [u8]) -> Result<usize>;

    /// The names of the extended attributes of what `path` names, symbolic links followed, a NUL after each: how many
    /// bytes they are. They are then at the start of `out`; an empty `out` asks for their number alone.
    ///
    /// # Errors
    /// `ERANGE` when `out` is too small; else as `listxattr(2)`.
    fn listxattr(&self, path: impl AsRef<Path>, out: &mut [u8]) -> Result<usize>;

    /// As [`listxattr`](Posix::listxattr), a last symbolic link not followed.
    ///
    /// # Errors
    /// As [`listxattr`](Posix::listxattr).
    fn llistxattr(&self, path: impl AsRef<Path>, out: &mut [u8]) -> Result<usize>;

    /// As [`listxattr`](Posix::listxattr), of an open file, whatever it was opened for.
    ///
    /// # Errors
    /// As [`listxattr`](Posix::listxattr).
    fn flistxattr(&self, handle: &Self::Handle, out: &mut [u8]) -> Result<usize>;

    /// Sets an extended attribute of what `path` names, symbolic links followed.
    ///
    /// # Errors
    /// `EEXIST` and `ENODATA` as `mode` has it, `ERANGE` for a name of no or more than 255 bytes, `E2BIG` for a value of
    /// more than 64 KiB, `ENOSPC` when the object has too many, `EPERM`, `EOPNOTSUPP`; else as `setxattr(2)`.
    fn setxattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()>;

    /// As [`setxattr`](Posix::setxattr), a last symbolic link not followed.
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

    /// As [`setxattr`](Posix::setxattr), of an open file, whatever it was opened for.
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

    /// Removes an extended attribute of what `path` names, symbolic links followed.
    ///
    /// # Errors
    /// `ENODATA` when there is none; else as `removexattr(2)`.
    fn removexattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()>;

    /// As [`removexattr`](Posix::removexattr), a last symbolic link not followed.
    ///
    /// # Errors
    /// As [`removexattr`](Posix::removexattr).
    fn lremovexattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()>;

    /// As [`removexattr`](Posix::removexattr), of an open file, whatever it was opened for.
    ///
    /// # Errors
    /// As [`removexattr`](Posix::removexattr).
    fn fremovexattr(&self, handle: &Self::Handle, name: impl AsRef<[u8]>) -> Result<()>;

    /// The next offset from `offset` on with data, or that begins a hole; the end of the file counts as a hole.
    ///
    /// # Errors
    /// `ENXIO` at and past the end, and where no data follows.
    fn seek(&self, handle: &Self::Handle, offset: u64, whence: Whence) -> Result<u64>;

    /// Waits until the file is as durable as the medium can make it.
    ///
    /// # Errors
    /// `EIO` when the medium failed, `ENOSPC` when a disk was full while it was written; `EROFS` once that happened.
    fn fsync(&self, handle: &Self::Handle) -> Result<()>;

    /// Space of the file system.
    ///
    /// # Errors
    /// As `statvfs(3)`.
    fn statvfs(&self) -> Result<StatVfs>;
}
