//! Archives: a tree as one stream of bytes, in the pax format of POSIX, which current `tar` programs read.
//!
//! The attributes for which the header of a member has no room are in records before the header:
//!
//! - the times of access and modification, with their nanoseconds;
//! - names and link targets of more than 100 bytes;
//! - large sizes, and large user and group ids;
//! - inode flags, in the form of the `tar` programs of BSD;
//! - extended attributes, in the form of GNU tar;
//! - project ids, which other programs ignore.
//!
//! Files with holes are stored in version 1.0 of GNU tar's sparse format: a list of the ranges that have
//! data, followed by the data. The reader refuses a list that is too long. So a file with 2^22 ranges or more
//! is stored with zeros in place of its holes. If its volume could not hold that much data, the file is
//! refused instead.
//!
//! The name of a member is `./`, followed by its path under the root. Each further name of an object is a
//! hard link to its first name. The reader also accepts the older formats of GNU tar, with all versions of
//! the sparse format.
//!
//! The headers are those of the crate `tar`. This module does not use that crate's iterator over members,
//! because the iterator cuts records at newlines, which names and attributes may contain.
//!
//! Invariants:
//! - No archive can write outside the directory that it is loaded into. Names with `..` are refused, and
//!   absolute names begin in that directory. Below that directory, a load enters only directories that it
//!   made itself.
//! - Memory grows only with the bytes that an archive has. A size that an archive merely claims leads to the
//!   allocation of at most 8 MiB, for the buffer of a file.
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
