//! Archives: a tree as one stream of bytes, in the format that POSIX calls pax and every `tar` reads.
//!
//! What the header of a member cannot say is in a record before it: times with nanoseconds and before 1970, names of
//! more than 100 bytes, large owners and sizes, extended attributes as GNU tar has them. Files with holes are stored as GNU tar stores them in this format,
//! version 1.0: a list of what has bytes, then these bytes. Members are named from the root, which is `./`; a further
//! name of a member is a hard link to it. Archives of the older formats of GNU tar are read too, with holes of all
//! its versions.
//!
//! The headers are those of the crate `tar`. Its iterator over members is not used, because it cuts records at
//! newlines, which names and attributes may have in them.
//!
//! Invariants:
//! - Whatever an archive says, nothing is written outside the directory that it is loaded into: names with `..` are
//!   refused, absolute ones begin in that directory, and only directories that the load made itself are gone through.
//! - What an archive claims takes no memory; only what it has does.
//! - What ends early is never taken for a whole: an archive that is not complete has no end mark.

mod dump;
mod load;
mod pax;
mod read;
mod sparse;
#[cfg(test)]
mod tests;
mod write;

pub use dump::dump;
pub use load::load;

use std::ops::Range;

use eyrie::Stat;

use crate::copy::Xattrs;

/// Bytes of a block; headers and data begin with one.
const BLOCK_BYTES: usize = 512;

/// One thing in an archive.
#[derive(Debug)]
struct Member {
    /// Its name as it was written.
    name: Vec<u8>,
    /// Its attributes, as far as archives have them.
    stat: Stat,
    xattrs: Xattrs,
    body: Body,
}

/// What a member is.
#[derive(Debug)]
enum Body {
    Directory,
    /// A file of `stat.size` bytes, which are 0 but for these ranges.
    File(Vec<Range<u64>>),
    /// With its target.
    Symlink(Vec<u8>),
    /// A further name of the member of this name.
    Link(Vec<u8>),
    /// A pipe or a device, as `stat.kind` has it.
    Special,
}
