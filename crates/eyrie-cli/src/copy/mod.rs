//! Copies of trees between any two file systems that have the calls of [`eyrie::Posix`].
//!
//! One thread walks the source ([`eyrie::Walk`]) and makes directories, symbolic links and special files
//! ([`TargetTree`]). Two worker threads copy the files that the walk finds. A hard link is made when its file
//! is complete. A directory gets its attributes when all its entries are complete, because each new entry
//! changes the times of the directory. An archive is written from an [`eyrie::Walk`], too, and is loaded
//! through [`TargetTree`].
//!
//! Invariants:
//! - A path is reported as copied only when it is complete in the target: bytes, and owner, extended
//!   attributes, mode and times as far as the target accepts them.
//! - If the copy of a file fails, the incomplete copy is removed from the target.
//! - A copied tree may be deeper than the longest path. Below the root of the tree, a call gets one name in
//!   an open directory, or a path of bounded length to the first name of a file (`links::reach`). The number
//!   of directories of the host that are open at a time has the same bound for every tree.
//! - An entry that cannot be read or made is reported and counted, and the copy continues. The copy ends if
//!   the target is full, above a quota, read-only or broken, or if the root directory cannot be made. Owners,
//!   times and extended attributes that cannot be kept are only counted.

mod attributes;
mod existing;
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
mod workers;
mod xattrs;

pub use existing::copy_attributes;
pub use file::{CHUNK_BYTES, DataRuns, PAGE_BYTES, Reflink, open_entry};
pub use progress::{Progress, Tally};
pub use reporter::{Reporter, Style, bar, print_line};
pub use side::{CopyError, OnSide};
pub use spot::Spot;
pub use target::TargetTree;
pub use tree::{Job, copy_tree};
pub use xattrs::{Xattrs, comparable as comparable_xattrs, read as read_xattrs};
