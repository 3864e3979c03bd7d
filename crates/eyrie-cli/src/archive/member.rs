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
    /// The attributes. An archive stores only some attributes. In a member that was read from an archive, the
    /// file system, the inode number and the allocated bytes are 0, the number of links is 1, and the time of
    /// change is the time of modification.
    pub stat: Stat,
    pub xattrs: Xattrs,
    pub flags: InodeFlags,
    /// Project id of the tree to which the object belongs, or 0.
    pub project: u32,
    pub body: Body,
}

/// The kind of a member, and the data that only this kind has.
#[derive(Debug)]
pub(super) enum Body {
    Directory,
    /// A file of `stat.size` bytes, with its ranges of data. Bytes outside these ranges are 0.
    File(Vec<Range<u64>>),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A hard link to an earlier member, which has this name. The `stat.size` of the link is 0.
    Link(Vec<u8>),
    /// A pipe or a device: see `stat.kind`.
    Special,
}
