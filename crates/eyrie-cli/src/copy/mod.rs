//! Copies of trees between any two file systems that have the calls of [`eyrie::Posix`].
//!
//! One thread walks the source ([`eyrie::Walk`]) and makes directories, symbolic links and special files
//! ([`TargetTree`]). Two worker threads copy the files that the walk finds. A hard link is made when its file
//! is complete. A directory gets its attributes when all its entries are complete, because each new entry
//! changes the times of the directory. Archives are written from the same walk and loaded through the same
//! [`TargetTree`].
//!
//! Invariants:
//! - A path is reported only when it is complete in the target: bytes, owner, extended attributes, mode and
//!   times.
//! - A file that cannot be copied whole is removed again.
//! - A tree may be deeper than the longest path, because each call gets one name in an open directory
//!   ([`Spot`]). The number of directories that are open at a time has the same bound for every tree.
//! - An entry that cannot be read or made is reported and counted, and the copy continues. A full or failing
//!   target ends the copy. Extended attributes that cannot be kept are only counted.

mod attributes;
mod file;
mod links;
mod lock;
mod progress;
mod reporter;
mod side;
mod spot;
mod target;
#[cfg(test)]
mod tests;
mod tree;
mod xattrs;

pub use file::{CHUNK_BYTES, next_run};
pub use progress::{Progress, Tally};
pub use reporter::{Reporter, bar};
pub use side::{OnSide, Side};
pub use spot::Spot;
pub use target::TargetTree;
pub use tree::{Job, copy_tree};
pub use xattrs::{Xattrs, read as read_xattrs};
