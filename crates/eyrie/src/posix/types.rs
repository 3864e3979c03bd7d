//! Arguments and results of the calls of [`Posix`](super::Posix).

use std::time::SystemTime;

use eyrie_engine::access::Rights;
use eyrie_engine::{Attributes, Kind, ObjectId, Time};

use crate::{Errno, Error, Result};

bitflags::bitflags! {
    /// Flags of an open: at least one of `READ`, `WRITE` and `PATH`.
    ///
    /// ```
    /// use eyrie::OpenFlags;
    ///
    /// let new = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    /// assert!(new.contains(OpenFlags::CREATE));
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct OpenFlags: u16 {
        /// Opens for reading.
        const READ = 1;
        /// Opens for writing.
        const WRITE = 2;
        /// Makes the file if it is missing (`O_CREAT`).
        const CREATE = 4;
        /// With `CREATE`: fails if the name exists, even as a symbolic link (`O_EXCL`).
        const EXCLUSIVE = 8;
        /// Sets the size to 0 (`O_TRUNC`).
        const TRUNCATE = 16;
        /// Writes at the end of the file, and ignores the offset of a write (`O_APPEND`).
        const APPEND = 32;
        /// Fails unless the path leads to a directory (`O_DIRECTORY`).
        const DIRECTORY = 64;
        /// Fails if the last component is a symbolic link (`O_NOFOLLOW`).
        const NOFOLLOW = 128;
        /// Does not wait for the other end of a pipe of the host (`O_NONBLOCK`). A volume opens a pipe only
        /// with `PATH`.
        const NONBLOCK = 256;
        /// Makes a file without a name in the file system of the directory that the path leads to
        /// (`O_TMPFILE`). Needs `WRITE`, and excludes `CREATE`. [`Posix::link`](super::Posix::link) can give
        /// the file a name, unless the open also has `EXCLUSIVE`.
        const TEMPORARY = 512;
        /// Makes each write through the handle durable before the write returns (`O_SYNC`), as by
        /// [`Posix::fsync`](super::Posix::fsync).
        const SYNC = 1024;
        /// Makes each write through the handle durable before the write returns (`O_DSYNC`), as by
        /// [`Posix::fdatasync`](super::Posix::fdatasync).
        const DATA_SYNC = 2048;
        /// Asks the host to bypass its page cache (`O_DIRECT`). In a volume the flag has no effect, except
        /// that a directory is refused, as on tmpfs.
        const DIRECT = 4096;
        /// Opens the object of a path for neither reading nor writing (`O_PATH`). This open needs no rights
        /// on the object, which may be of any kind. The handle serves for `stat`, `statvfs`, `access`,
        /// `link`, `readlink` and reads of the time of creation, and as the directory where other paths
        /// begin. Other calls refuse it with `EBADF`. With this flag, only three of the other flags have an
        /// effect. `DIRECTORY` works as in other opens, and `TEMPORARY` works as `DIRECTORY`. With
        /// `NOFOLLOW`, the open of a symbolic link opens the link itself.
        const PATH = 8192;
        /// With this flag, no read through the handle sets an access time (`O_NOATIME`). Only the owner of
        /// the object, and a user with `CAP_FOWNER`, may use this flag. By default, no read in a volume sets
        /// an access time: see [`Pxfs::with_access_times`](crate::Pxfs::with_access_times).
        const NOATIME = 16384;
    }
}

bitflags::bitflags! {
    /// The rights that [`Posix::access`](super::Posix::access) checks, and the user whose rights they are. An
    /// empty set of rights checks only that the path exists.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
    /// fs.access("/egg".into(), Access::READ | Access::WRITE)?; // of the real user
    /// fs.access("/egg".into(), Access::READ | Access::EFFECTIVE)
    /// # }
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Access: u8 {
        /// Reads a file, or lists a directory (`R_OK`).
        const READ = 4;
        /// Writes a file, or makes and removes entries of a directory (`W_OK`).
        const WRITE = 2;
        /// Executes a file, or walks through a directory (`X_OK`).
        const EXECUTE = 1;
        /// Checks the rights of the effective user and group, with the effective capabilities, as other calls
        /// do (`AT_EACCESS`). Without this flag the check uses the real user and the real group. If the real
        /// user is root, the check uses the permitted capabilities, and otherwise no capabilities.
        const EFFECTIVE = 8;
    }
}

// `Access::rights` copies the bits, so both types must use the same bits.
const _: () = {
    assert!(Access::READ.bits() == Rights::READ.bits() && Access::WRITE.bits() == Rights::WRITE.bits());
    assert!(Access::EXECUTE.bits() == Rights::EXECUTE.bits());
};

impl Access {
    /// Returns the rights, without the choice of the user.
    pub(crate) fn rights(self) -> Rights {
        Rights::from_bits_truncate(self.bits())
    }
}

/// A time to set.
///
/// ```
/// # use eyrie::*; fn f(fs: &Host) -> Result<()> {
/// fs.set_times("/egg", SetTime::Omit, SetTime::To(Time::new(1_000_000_000, 0)))?;
/// fs.set_times("/egg", SetTime::Now, std::time::SystemTime::UNIX_EPOCH.into())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The time is set to that of the call (`UTIME_NOW`).
    Now,
    /// The time stays unchanged (`UTIME_OMIT`).
    Omit,
    /// The time is set to this value.
    To(Time),
}

impl From<Time> for SetTime {
    fn from(time: Time) -> SetTime {
        SetTime::To(time)
    }
}

impl From<SystemTime> for SetTime {
    fn from(time: SystemTime) -> SetTime {
        SetTime::To(time.into())
    }
}

/// The kind of range that [`Posix::seek`](super::Posix::seek) finds.
///
/// ```
/// # use eyrie::*; fn f(fs: &Host, file: <Host as Posix>::Handle) -> Result<()> {
/// let data = fs.seek(&file, 0, Whence::Data)?;
/// let hole = fs.seek(&file, data, Whence::Hole)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// Bytes that were written (`SEEK_DATA`).
    Data,
    /// Bytes that were never written or were freed again, or the end of the file (`SEEK_HOLE`).
    Hole,
}

/// The attributes of a file, as `stat` returns them. A method with the name of a method of
/// [`std::fs::Metadata`] has the same meaning.
///
/// # Examples
/// ```
/// # use eyrie::{Host, PosixExt};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// fs.write("/egg", "blue")?;
/// let stat = fs.metadata("/egg")?;
/// assert!(stat.is_file() && stat.len() == 4);
/// println!("{:o}, {} s old", stat.mode, stat.modified()?.elapsed()?.as_secs());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// Number of the file system, as the host assigns it. 0 in a volume.
    pub file_system: u64,
    /// Inode number, unique among the existing objects of the file system.
    pub inode: u64,
    /// The kind of the file.
    pub kind: Kind,
    /// Permission bits. No bits above 0o7777 are set.
    pub mode: u16,
    /// Number of names of the file. For a directory of a volume: 2, and one more for each subdirectory.
    pub links: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the group of the file.
    pub gid: u32,
    /// Number of the device, if the file is a device.
    pub device: u64,
    /// Bytes of a file, or of the target of a symbolic link. For a directory the meaning depends on the file
    /// system.
    pub size: u64,
    /// Bytes of storage that the file occupies. For a sparse file of many pieces in a volume, the number may
    /// include holes.
    pub allocated: u64,
    /// Time of the last access, if the file system keeps it up to date.
    pub accessed: Time,
    /// Time of the last change of bytes or entries.
    pub modified: Time,
    /// Time of the last change of bytes, entries or attributes.
    pub changed: Time,
}

impl Stat {
    /// Makes the attributes of a file of this kind. All numbers and times are 0.
    ///
    /// # Examples
    /// ```
    /// use eyrie::{Kind, Stat};
    ///
    /// let mut stat = Stat::new(Kind::Directory);
    /// stat.mode = 0o755;
    /// assert!(stat.is_dir());
    /// ```
    pub fn new(kind: Kind) -> Stat {
        let epoch = Time::default();
        Stat {
            file_system: 0,
            inode: 0,
            kind,
            mode: 0,
            links: 0,
            uid: 0,
            gid: 0,
            device: 0,
            size: 0,
            allocated: 0,
            accessed: epoch,
            modified: epoch,
            changed: epoch,
        }
    }

    /// Makes the result of `stat` from the attributes of the object `id`.
    #[inline]
    pub(crate) fn of_object(id: ObjectId, attributes: &Attributes) -> Stat {
        Stat {
            file_system: 0,
            inode: id.raw(),
            kind: attributes.kind,
            mode: attributes.mode,
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            device: attributes.device,
            size: attributes.size,
            allocated: attributes.allocated,
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
        }
    }

    /// Returns true for a regular file.
    ///
    /// ```
    /// # use eyrie::{Kind, Stat};
    /// assert!(Stat::new(Kind::File).is_file());
    /// ```
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Returns true for a directory.
    ///
    /// ```
    /// # use eyrie::{Kind, Stat};
    /// assert!(Stat::new(Kind::Directory).is_dir());
    /// ```
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Returns true for a symbolic link.
    ///
    /// ```
    /// # use eyrie::{Kind, Stat};
    /// assert!(Stat::new(Kind::Symlink).is_symlink());
    /// ```
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }

    /// Returns the [`size`](Stat::size).
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) -> Result<()> {
    /// println!("{} bytes", files.metadata("/egg")?.len());
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::len_without_is_empty, reason = "`std::fs::Metadata` has no `is_empty` either")]
    pub fn len(&self) -> u64 {
        self.size
    }

    /// Returns the time of the last change of bytes or entries.
    ///
    /// ```
    /// # use eyrie::*; fn f(stat: Stat) -> std::result::Result<(), Box<dyn std::error::Error>> {
    /// let age = stat.modified()?.elapsed()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EOVERFLOW` if the standard library cannot express the time.
    pub fn modified(&self) -> Result<SystemTime> {
        system_time(self.modified)
    }

    /// Returns the time of the last access, if the file system keeps it up to date.
    ///
    /// ```
    /// # use eyrie::*; fn f(stat: Stat) -> Result<()> {
    /// let read_since = stat.accessed()? > stat.modified()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Stat::modified`].
    pub fn accessed(&self) -> Result<SystemTime> {
        system_time(self.accessed)
    }

    /// Returns the time of the last change of bytes, entries or attributes.
    ///
    /// ```
    /// # use eyrie::*; fn f(stat: Stat) -> Result<()> {
    /// let changed = stat.changed()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Stat::modified`].
    pub fn changed(&self) -> Result<SystemTime> {
        system_time(self.changed)
    }
}

pub(super) fn system_time(time: Time) -> Result<SystemTime> {
    time.to_system_time().ok_or_else(|| Error::new(Errno::OVERFLOW, "stat"))
}

/// One entry of a listing.
///
/// ```
/// # use eyrie::*; fn f(fs: &Host, nest: <Host as Posix>::Handle) -> Result<()> {
/// let mut directories = 0;
/// fs.list(&nest, 0, &mut |entry| {
///     directories += u32::from(entry.kind == Kind::Directory);
///     true
/// })
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListEntry<'a> {
    /// The name of the entry, without `/`.
    pub name: &'a [u8],
    /// The kind of the file.
    pub kind: Kind,
    /// The inode number of the file.
    pub inode: u64,
    /// The cookie with which a listing continues after this entry.
    pub next: u64,
}

/// The total and the free space of a file system, or of a tree with a quota.
///
/// In a volume, an object of a tree with a quota shows the limits of the tree as the size of the file system,
/// as on XFS and ext4. The size is the soft limit, or the hard limit if the tree has no soft limit. A client
/// of a service sees the space of the volume instead, unless the client is root.
///
/// # Examples
/// ```
/// # use eyrie::{Host, Posix};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// let space = fs.statvfs("/".into())?;
/// println!("{} bytes are free", space.blocks_free * space.block_size);
/// if !fs.has_mounts() {
///     println!("a file has at most {} bytes of data", fs.data_bytes_max());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StatVfs {
    /// Bytes of one block. The next two fields count such blocks.
    pub block_size: u64,
    /// Number of blocks of the file system.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Number of objects that exist or can still be made.
    pub files: u64,
    /// Number of objects that can still be made.
    pub files_free: u64,
    /// Maximum length of a name, in bytes.
    pub name_max: u64,
}
