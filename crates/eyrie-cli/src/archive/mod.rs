//! Archives: a tree as one stream of bytes, in the format that POSIX calls pax and every `tar` reads.
//!
//! A record before a member has the attributes that its header has no room for: times with nanoseconds and
//! before 1970, names of more than 100 bytes, large owners and sizes, and extended attributes as GNU tar
//! writes them. Files with holes are stored as by GNU tar in this format, version 1.0: a list of the ranges
//! that have bytes, then these bytes. Members are named from the root, which is `./`. A second name of a file
//! is a hard link to its first. The older formats of GNU tar are read, too, with all versions of holes.
//!
//! The headers are those of the crate `tar`. Its iterator over members is not used, because it cuts records
//! at newlines, which names and attributes may have in them.
//!
//! Invariants:
//! - No archive can write outside the directory that it is loaded into: names with `..` are refused, absolute
//!   names begin in that directory, and a load enters only directories that it made itself.
//! - Memory is taken for the bytes that an archive has, not for the sizes that it claims.
//! - An archive that ends early is never taken for a whole one, because it has no end mark.

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
