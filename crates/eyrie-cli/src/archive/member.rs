//! The members of an archive.

use std::ops::Range;

use eyrie::{InodeFlags, Stat};

use crate::copy::Xattrs;

/// Bytes of a block. Headers and data begin at multiples of this size.
pub(super) const BLOCK_BYTES: usize = 512;

/// One entry of an archive.
#[derive(Debug)]
pub(super) struct Member {
    /// The name as the archive has it.
    pub name: Vec<u8>,
    /// The attributes. A member that was read from an archive has 0 for the file system, the inode number and
    /// the allocated bytes, 1 link, and the modification time as the time of change.
    pub stat: Stat,
    pub xattrs: Xattrs,
    pub flags: InodeFlags,
    pub body: Body,
}

/// The kind of a member, and the data that only this kind has.
#[derive(Debug)]
pub(super) enum Body {
    Directory,
    /// A file of `stat.size` bytes. Bytes outside these ranges are 0.
    File(Vec<Range<u64>>),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A hard link to an earlier member of this name. Its `stat.size` is 0.
    Link(Vec<u8>),
    /// A pipe or a device. `stat.kind` tells which.
    Special,
}
