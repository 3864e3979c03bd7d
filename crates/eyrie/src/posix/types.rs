//! Arguments and results of the calls.

use eyrie_engine::{Attributes, Kind, ObjectId, Time};

bitflags::bitflags! {
    /// How to open: at least one of `READ` and `WRITE`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct OpenFlags: u16 {
        /// For reading.
        const READ = 1;
        /// For writing.
        const WRITE = 2;
        /// Creates the file if there is none (`O_CREAT`).
        const CREATE = 4;
        /// With `CREATE`: fails if there is one, be it a symbolic link (`O_EXCL`).
        const EXCLUSIVE = 8;
        /// Cuts the file to size 0 (`O_TRUNC`).
        const TRUNCATE = 16;
        /// Every write goes to the end (`O_APPEND`).
        const APPEND = 32;
        /// Fails unless it is a directory (`O_DIRECTORY`).
        const DIRECTORY = 64;
        /// Fails if the last component is a symbolic link (`O_NOFOLLOW`).
        const NOFOLLOW = 128;
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The time of the call (`UTIME_NOW`).
    Now,
    /// Leaves it as it is (`UTIME_OMIT`).
    Omit,
    /// This time.
    To(Time),
}

/// What [`Posix::seek`](super::Posix::seek) looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// Bytes that were written (`SEEK_DATA`).
    Data,
    /// Bytes that never were, or the end (`SEEK_HOLE`).
    Hole,
}

/// The attributes of a file, as `stat` tells them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Number of the file system that it is on, which the host gives; 0 in a volume.
    pub file_system: u64,
    /// Inode number: unique among the objects of its file system that exist.
    pub inode: u64,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, at most 0o7777.
    pub mode: u16,
    /// Number of names; for a directory 2 and its subdirectories.
    pub links: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Number of the device, for a device.
    pub device: u64,
    /// Bytes of a file or of a symbolic link's target; for directories whatever the file system counts.
    pub size: u64,
    /// Bytes of storage that it occupies.
    pub allocated: u64,
    /// Last access, as far as the file system keeps it.
    pub accessed: Time,
    /// Last change of bytes or entries.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
}

impl Stat {
    /// What `stat` tells of object `id`.
    #[inline]
    pub fn new(id: ObjectId, attributes: &Attributes) -> Stat {
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

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }
}

/// One entry of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListEntry<'a> {
    /// Its name, without `/`.
    pub name: &'a [u8],
    /// What it is.
    pub kind: Kind,
    /// Its inode number.
    pub inode: u64,
    /// Where a listing goes on after this entry.
    pub next: u64,
}

/// Space of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatVfs {
    /// Bytes of the blocks that the counts are in.
    pub block_size: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that are free.
    pub blocks_free: u64,
    /// Objects that there are or can be.
    pub files: u64,
    /// Objects that can still be made.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u64,
}
