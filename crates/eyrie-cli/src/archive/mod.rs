//! Archives: a tree as one stream of bytes, in the pax format of POSIX, which current `tar` programs read.
//!
//! The attributes for which the header of a member has no room are in records before the header:
//!
//! - the times of access and modification, with their nanoseconds;
//! - names and link targets of more than 100 bytes;
//! - large sizes, and large user and group ids;
//! - inode flags, and extended attributes in the form of GNU tar.
//!
//! Files with holes are stored in version 1.0 of GNU tar's sparse format: a list of the ranges that have
//! data, followed by the data. A list of 2^22 ranges or more would be too long. Such a file is stored with
//! zeros in place of its holes. If the file is larger than its volume, it is refused instead.
//!
//! Names of members begin at the root, which is `./`. Each further name of an object is a hard link to its
//! first name. The reader also accepts the older formats of GNU tar, with all versions of the sparse format.
//!
//! The headers are those of the crate `tar`. This module does not use that crate's iterator over members,
//! because the iterator cuts records at newlines, which names and attributes may contain.
//!
//! Invariants:
//! - No archive can write outside the directory that it is loaded into. Names with `..` are refused, and
//!   absolute names begin in that directory. Below that directory, a load enters only directories that it
//!   made itself.
//! - Memory grows only with the bytes that an archive has. For the sizes that an archive claims, at most a
//!   buffer of 8 MiB is allocated.
//! - An archive that ends early is never accepted as a whole one, because its end mark is missing.

mod dump;
mod load;
mod member;
mod pax;
mod read;
mod sparse;
#[cfg(test)]
mod tests;
mod write;

pub use dump::dump;
pub use load::load;
