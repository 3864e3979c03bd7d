//! Copies trees between any two file systems that have the calls of [`Posix`].
//!
//! One thread walks the source ([`eyrie::Walk`]) and makes directories, symbolic links and special files ([`Store`]);
//! [`WORKERS`] threads copy the files that it finds. A hard link follows when its file is there, and the attributes of
//! a directory when all its entries are there, because these change its times. Archives are written from the same walk
//! and loaded through the same store.
//!
//! Invariants:
//! - A path is announced only when all of it is in the target: bytes, owner, extended attributes, mode
//!   and times.
//! - A file that cannot be copied whole is removed again.
//! - A tree may be deeper than a path may be long: each call gets one name in an open directory ([`Spot`]). The number
//!   of directories that are open at once has a bound, whatever the tree looks like.
//! - What cannot be read or made is reported and counted, and the copy goes on; a full or failing target ends it.
//!   Extended attributes that cannot be kept are only counted.

mod attributes;
mod file;
mod links;
mod progress;
mod store;
#[cfg(test)]
mod tests;
mod tree;
mod watch;
mod xattrs;

pub use file::next_run;
pub use progress::{Progress, Tally};
pub use store::{Spot, Store};
pub use tree::copy_tree;
pub use watch::{Watch, bar};
pub use xattrs::{Xattrs, read as read_xattrs};

use std::path::{Path, PathBuf};

use eyrie::Errno;

use crate::failure;

/// Threads that copy files.
const WORKERS: usize = 2;
/// Most bytes that are read and written at once.
pub const CHUNK_BYTES: usize = 8 << 20;

/// What to copy, and where to.
pub struct Job<'a, S, D> {
    /// The file system to read.
    pub source: &'a S,
    /// What to copy of it.
    pub from: &'a Path,
    /// The file system to write.
    pub target: &'a D,
    /// The name of the copy, which must be free.
    pub to: &'a Path,
    /// A directory of the source to leave out.
    pub except: Option<&'a Path>,
    /// Who is told.
    pub watch: &'a Watch,
}

/// `base/relative`, without the slash that joining an empty path would leave.
pub fn under(base: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { base.to_owned() } else { base.join(relative) }
}

/// Why an entry could not be copied.
#[derive(Debug)]
pub enum Side {
    /// The source cannot be read there.
    Source(String),
    /// The target does not take it.
    Target(String),
    /// The target takes nothing more.
    Fatal(String),
}

/// Says on which side.
pub trait On<T> {
    /// An error of the source.
    fn reading(self) -> Result<T, Side>;
    /// An error of the target.
    fn writing(self) -> Result<T, Side>;
}

impl<T> On<T> for eyrie::Result<T> {
    fn reading(self) -> Result<T, Side> {
        self.map_err(|error| Side::Source(failure::reason(&error)))
    }

    fn writing(self) -> Result<T, Side> {
        self.map_err(|error| {
            let why = failure::reason(&error);
            match error.errno() {
                Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS => Side::Fatal(why),
                _ => Side::Target(why),
            }
        })
    }
}
