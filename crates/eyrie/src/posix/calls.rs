//! The calls of a POSIX file system.

use std::ops::Range;
use std::path::Path;

use eyrie_engine::{FallocateMode, InodeFlags, Kind, RenameMode, XattrMode};

use super::{Access, ListEntry, OpenFlags, PathAt, SetTime, Stat, StatVfs, Target, Whence};
use crate::Result;

/// The calls of a POSIX file system, with Linux's results.
///
/// A call on a name takes a [`PathAt`]: a path from the root of the file system, or from an open directory. A
/// call on attributes takes a [`Target`]: a path that is followed, a path whose last symbolic link is not
/// followed, or an open file. So `stat` is also `lstat`, `fstat` and `fstatat`. Paths begin at the root of
/// the file system, with or without a leading `/`. In a volume, `..` of the root is the root. Sizes and
/// offsets are in bytes. Permission bits are at most 0o7777. A call that creates a file removes the bits of
/// the umask from the permission bits. An error names the call and its errno.
///
/// Each call on a volume is whole or undone, and a call that fails changes nothing. Two calls are exceptions,
/// because they have several steps: a [`fallocate`](Posix::fallocate) that allocates, zeroes or unshares more
/// than 64 MiB, and a [clone](crate::PosixClones) of more than 1 GiB. An error does not undo their earlier
/// steps. If a medium fails, a call may fail although its whole change was made.
///
/// The trait can be used as an object: `&dyn Posix<Handle = H>` is a file system, too.
/// [`PosixExt`](crate::PosixExt) has functions in the style of [`std::fs`] over this trait.
///
/// # Errors
/// A call on a volume fails with the errno of Linux on tmpfs, except for the differences that
/// [`pxfs`](crate::pxfs) lists. A call on the host fails with the errno of the host's file system, in which
/// the maximum size of a file may be smaller (`EFBIG`). A handle of another volume gives `EBADF`, or `EXDEV`
/// if a path begins at this handle. The methods list only their particular errors.
pub trait Posix {
    /// An open file or directory. The caller must [`close`](Posix::close) it. A dropped [`File`](crate::File)
    /// closes its handle.
    type Handle: std::fmt::Debug + Send + Sync;

    /// Returns the maximum number of directories that one walk keeps open at a time.
    fn open_dirs_max(&self) -> usize;

    /// Returns true if other file systems may be mounted in this one. A directory may then have several
    /// names, and its entry may have another inode number than the directory itself.
    fn has_mounts(&self) -> bool;

    /// Returns a number that is another one for each object that ever had this inode number, or always 0.
    #[doc(hidden)]
    fn generation(&self, _inode: u64) -> u64 {
        0
    }

    /// Returns the maximum number of bytes of data of one file, or `u64::MAX` if it is unknown. A file of a
    /// damaged volume may claim more.
    fn data_bytes_max(&self) -> u64;

    /// Opens a file. With [`OpenFlags::CREATE`], makes a missing file with the permission bits `mode`. With
    /// [`OpenFlags::TEMPORARY`], makes a file without a name, with these bits.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let new = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    /// let handle = fs.open("/egg".into(), new, 0o644)?;
    /// # fs.close(handle)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `openat(2)`.
    fn open(&self, path: PathAt<'_, Self::Handle>, flags: OpenFlags, mode: u16) -> Result<Self::Handle>;

    /// Closes a handle. The last close of a file without a name removes the file.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.close(file)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EBADF` for a handle of another volume. The file of the handle then stays open.
    fn close(&self, handle: Self::Handle) -> Result<()>;

    /// Reads from `offset` on. Returns the number of bytes, which is 0 at and past the end.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// let mut head = [0; 16];
    /// let count = fs.read_at(&file, &mut head, 0)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for an offset of 2^63 or more, and if the range of bytes would end past offset 2^63 - 1.
    /// `EBADF` unless opened for reading. `EISDIR` for a directory.
    fn read_at(&self, handle: &Self::Handle, out: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes at `offset`, or at the end if the file was opened with [`OpenFlags::APPEND`]. Returns the
    /// number of bytes. A call on a served volume writes at most 64 MiB, and one on the host 2 GiB.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// assert_eq!(fs.write_at(&file, b"blue", 100)?, 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for an offset of 2^63 or more, and if the range of bytes would end past offset 2^63 - 1, also
    /// if the file was opened with [`OpenFlags::APPEND`]. `EBADF` unless opened for writing. For an append,
    /// the errors of [`append`](Posix::append). `ENOSPC` if the bytes do not fit: then no byte is written,
    /// unless the file system has [short writes](crate::Pxfs::with_short_writes).
    fn write_at(&self, handle: &Self::Handle, data: &[u8], offset: u64) -> Result<usize>;

    /// Finds the end of the file and writes there, as one atomic step. Returns the number of bytes, which is
    /// less than the length of `data` if only a part of `data` fits below the largest size of a file.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.append(&file, b"one line\n").map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EBADF` unless opened for writing. `EFBIG` if the file has the largest size, 2^63 - 1. `ENOSPC` as for
    /// [`write_at`](Posix::write_at).
    fn append(&self, handle: &Self::Handle, data: &[u8]) -> Result<usize>;

    /// Works as [`append`](Posix::append), and returns the range of the file that has the bytes. The range is
    /// empty if `data` is empty. On the host the call also moves the position of the descriptor, so only one
    /// thread at a time may make this call on one handle.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// let line = fs.append_range(&file, b"one line\n")?;
    /// let mut out = vec![0; 9];
    /// fs.read_at(&file, &mut out, line.start).map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`append`](Posix::append).
    fn append_range(&self, handle: &Self::Handle, data: &[u8]) -> Result<Range<u64>>;

    /// Returns the attributes of a file.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// let linked = fs.stat("/link".into())?;
    /// let link = fs.stat(Target::NoFollow("/link".into()))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `fstatat(2)`.
    fn stat(&self, file: Target<'_, Self::Handle>) -> Result<Stat>;

    /// Sets the size of a file. New bytes are zeros.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.truncate("/egg".into(), 0)?;
    /// fs.truncate(Target::Open(&file), 4096)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for a size of 2^63 or more. For a path, as `truncate(2)`: `EISDIR` for a directory, `ELOOP`
    /// for a symbolic link that is not followed, `EINVAL` for a pipe, socket or device. For an open file, as
    /// `ftruncate(2)`: `EINVAL` unless it is a regular file that was opened for writing.
    fn truncate(&self, file: Target<'_, Self::Handle>, size: u64) -> Result<()>;

    /// Allocates, frees, zeroes, unshares, collapses or inserts `length` bytes of an open file from `offset`
    /// on, as `mode` states. A volume allocates, zeroes or unshares more than 64 MiB in several steps, from
    /// the lowest offset on. An error or a crash leaves each step whole or undone.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.fallocate(&file, FallocateMode::PunchHole, 0, 1 << 20)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for a length of 0, and for an offset or length of 2^63 or more. `EBADF` unless opened for
    /// writing. `EFBIG` if offset and length are smaller than 2^63, but the range, or the file after an
    /// insertion, would end past offset 2^63 - 1. `ENOSPC` if the volume is full. To collapse and to insert:
    /// `EINVAL` unless offset and length are multiples of 4096 and the range begins before the end of the
    /// file. To collapse: `EINVAL` unless the range ends before the end of the file. `EOPNOTSUPP` for a mode
    /// that a file system of the host lacks.
    fn fallocate(&self, handle: &Self::Handle, mode: FallocateMode, offset: u64, length: u64) -> Result<()>;

    /// Copies bytes from one open file to another, or within one file. Returns the number of copied bytes,
    /// which may be smaller than `length`. It is 0 at the end of the source. If both offsets are multiples of
    /// 4096, the files share the storage of whole pages, as after a [clone](crate::PosixClones).
    ///
    /// ```
    /// # use eyrie::*; fn f<P: Posix>(fs: &P, from: &P::Handle, to: &P::Handle) -> Result<()> {
    /// let copied = fs.copy_file_range((from, 0), (to, 0), 1 << 20)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `copy_file_range(2)`.
    fn copy_file_range(
        &self,
        source: (&Self::Handle, u64),
        target: (&Self::Handle, u64),
        length: u64,
    ) -> Result<u64>;

    /// Makes a directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.mkdir("/nest".into(), 0o755)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `mkdirat(2)`.
    fn mkdir(&self, path: PathAt<'_, Self::Handle>, mode: u16) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.rmdir("/nest".into())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `rmdir(2)`.
    fn rmdir(&self, path: PathAt<'_, Self::Handle>) -> Result<()>;

    /// Removes the name of a file that is not a directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.unlink("/egg".into())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `unlinkat(2)`. `EISDIR` for a directory.
    fn unlink(&self, path: PathAt<'_, Self::Handle>) -> Result<()>;

    /// Renames a file. `mode` states if an existing target is replaced, is exchanged with the source, or
    /// makes the call fail, and if a whiteout stays at the old name.
    /// [`PosixExt::rename`](crate::PosixExt::rename) replaces an existing target.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.rename_with("/left".into(), "/right".into(), RenameMode::Exchange)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `renameat2(2)`.
    fn rename_with(
        &self,
        from: PathAt<'_, Self::Handle>,
        to: PathAt<'_, Self::Handle>,
        mode: RenameMode,
    ) -> Result<()>;

    /// Gives a file another name, `path`. With [`Target::NoFollow`], a symbolic link itself gets the name, as
    /// with `link(2)`.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.link(Target::Open(&file), "/name".into())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `linkat(2)`. `ENOENT` for an open file that has lost its last name, and for a temporary file that
    /// was opened with [`OpenFlags::EXCLUSIVE`].
    fn link(&self, existing: Target<'_, Self::Handle>, path: PathAt<'_, Self::Handle>) -> Result<()>;

    /// Makes a symbolic link `path` to `target`, which need not exist.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.symlink("/nest/egg".as_ref(), "/link".into())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `symlinkat(2)`.
    fn symlink(&self, target: &Path, path: PathAt<'_, Self::Handle>) -> Result<()>;

    /// Returns the bytes of the target of a symbolic link. A link at the end of a path is never followed.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// assert_eq!(fs.readlink("/link".into())?, b"/nest/egg");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` if the path names another kind of file. `ENOENT` if an open file is not a symbolic link.
    fn readlink(&self, link: Target<'_, Self::Handle>) -> Result<Vec<u8>>;

    /// Sets the permission bits.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.chmod("/egg".into(), 0o600)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EPERM` unless the caller owns the file or is root. `EOPNOTSUPP` for a symbolic link that is not
    /// followed.
    fn chmod(&self, file: Target<'_, Self::Handle>, mode: u16) -> Result<()>;

    /// Sets user and group. `None` keeps the user or the group.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.chown(Target::NoFollow("/link".into()), None, Some(100))
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EPERM` unless the caller is root, or owns the file and only sets a group that the caller is in.
    fn chown(&self, file: Target<'_, Self::Handle>, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// Sets the times of last access and modification.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.utimens("/egg".into(), SetTime::Omit, SetTime::Now)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EPERM` or `EACCES`, as `utimensat(2)`.
    fn utimens(&self, file: Target<'_, Self::Handle>, accessed: SetTime, modified: SetTime) -> Result<()>;

    /// Makes a regular file, pipe, socket or device. `device` is the number of a device, as `makedev(3)`
    /// makes it.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.mknod("/pipe".into(), Kind::Fifo, 0o600, 0)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EPERM` for a directory, and for a device unless the caller is root or makes a character device with
    /// the number 0. `EINVAL` for a symbolic link, and for a device number of more than 32 bits.
    fn mknod(&self, path: PathAt<'_, Self::Handle>, kind: Kind, mode: u16, device: u64) -> Result<()>;

    /// Calls `visit` with the entries of an open directory, except `.` and `..`, until `visit` returns false.
    /// Begins at the position `cookie`, where 0 is the start. `visit` must not call the file system. On the
    /// host, the listings of one handle share the position of the handle, so only one thread at a time may
    /// list the handle.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.list(&file, 0, &mut |entry| entry.kind != Kind::Fifo) // until a pipe
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ENOTDIR` if the handle is not open on a directory. `ENOENT` for a directory that was removed.
    fn list(
        &self,
        handle: &Self::Handle,
        cookie: u64,
        visit: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<()>;

    /// Checks that the caller has these rights on a file. [`Access::EFFECTIVE`] chooses the effective user.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.access("/egg".into(), Access::READ | Access::WRITE)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EACCES` if a right is missing. Other errors as `faccessat(2)`.
    fn access(&self, file: Target<'_, Self::Handle>, access: Access) -> Result<()>;

    /// Reads the extended attribute `name`. Returns the size of the value, and puts the value at the start of
    /// `out`. If `out` is empty, only returns the size. An open file may be open for reading or for writing.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.getxattr("/egg".into(), b"user.colour", &mut [0; 256]).map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ENODATA` if the attribute does not exist. `ERANGE` if `out` is too small. `EOPNOTSUPP` for a
    /// namespace that the file system lacks. Other errors as `getxattr(2)`.
    fn getxattr(&self, file: Target<'_, Self::Handle>, name: &[u8], out: &mut [u8]) -> Result<usize>;

    /// Lists the names of the extended attributes. Returns the number of bytes, and puts the names at the
    /// start of `out`, each with a NUL at its end. If `out` is empty, only returns the number.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.listxattr("/egg".into(), &mut [0; 256]).map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ERANGE` if `out` is too small. Other errors as `listxattr(2)`.
    fn listxattr(&self, file: Target<'_, Self::Handle>, out: &mut [u8]) -> Result<usize>;

    /// Sets an extended attribute. An open file may be open for reading or for writing.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.setxattr("/egg".into(), b"user.colour", b"blue", XattrMode::Set)?;
    /// fs.removexattr("/egg".into(), b"user.colour")
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EEXIST` and `ENODATA` as `mode` defines them. `ERANGE` unless the name has 1 to 255 bytes. `E2BIG`
    /// for a value of more than 64 KiB. `ENOSPC` if the attributes of the file take too much space. `EPERM`,
    /// `EOPNOTSUPP` and other errors as `setxattr(2)`.
    fn setxattr(
        &self,
        file: Target<'_, Self::Handle>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()>;

    /// Removes an extended attribute. [`Posix::setxattr`] has an example.
    ///
    /// # Errors
    /// `ENODATA` if the attribute does not exist. Other errors as `removexattr(2)`.
    fn removexattr(&self, file: Target<'_, Self::Handle>, name: &[u8]) -> Result<()>;

    /// Returns the first offset from `offset` on that has data or that is in a hole, as `whence` states. The
    /// end of the file counts as a hole.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.seek(&file, 0, Whence::Hole).map(drop) // to the first hole
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ENXIO` for an offset at or past the end of the file, even for an offset of 2^63 or more. `ENXIO` also
    /// if the call seeks data and none follows. In a volume, `EINVAL` for a directory.
    fn seek(&self, handle: &Self::Handle, offset: u64, whence: Whence) -> Result<u64>;

    /// Makes the file as durable as its medium can make it.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.fsync(&file)?;
    /// fs.fdatasync(&file) // need not keep the times
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EIO` if the medium fails. `ENOSPC` if a disk becomes full during the write. After one of these errors
    /// on the medium `paged`, every later call that changes or synchronises the volume fails with `EROFS`.
    fn fsync(&self, handle: &Self::Handle) -> Result<()>;

    /// Works as [`fsync`](Posix::fsync), but need not make times durable. A volume makes them durable, too.
    ///
    /// # Errors
    /// As [`fsync`](Posix::fsync).
    fn fdatasync(&self, handle: &Self::Handle) -> Result<()>;

    /// Returns the inode flags of an open file or directory, without flags that [`InodeFlags`] lacks.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
    /// fs.set_inode_flags(&file, fs.inode_flags(&file)? | InodeFlags::IMMUTABLE)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `FS_IOC_GETFLAGS` of `ioctl(2)`, such as `ENOTTY` for a file system of the host without flags.
    fn inode_flags(&self, handle: &Self::Handle) -> Result<InodeFlags>;

    /// Sets the inode flags of an open file or directory. [`Posix::inode_flags`] has an example.
    ///
    /// # Errors
    /// `EPERM` unless the caller owns the file. A change of a flag also needs `CAP_LINUX_IMMUTABLE`.
    fn set_inode_flags(&self, handle: &Self::Handle, flags: InodeFlags) -> Result<()>;

    /// Returns the space of the file system of `file`, or of a tree with a quota: see [`StatVfs`].
    ///
    /// # Errors
    /// As `statvfs(3)`.
    fn statvfs(&self, file: Target<'_, Self::Handle>) -> Result<StatVfs>;
}
