//! Copies trees between any two file systems that have the calls of [`Posix`].
//!
//! One thread walks the source and makes directories, symbolic links and special files; [`WORKERS`] threads copy the
//! files that it finds. Hard links follow when all files are there, and the attributes of directories last, because
//! everything before changes their times.
//!
//! Invariants:
//! - A path is announced only when all of it is in the target: bytes, owner, mode and times.
//! - A file that cannot be copied whole is removed again.
//! - What cannot be read or made is reported and counted, and the copy goes on; a full or failing target ends it.

mod attributes;
mod file;
#[cfg(test)]
mod tests;
mod walk;
mod watch;

pub use walk::copy_tree;
pub use watch::{Watch, bar};

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie::{Errno, Kind, Posix};
use serde_json::{Value, json};

use crate::failure;
use crate::text;

/// Threads that copy files.
const WORKERS: usize = 2;
/// Most bytes that are read and written at once.
const CHUNK_BYTES: usize = 8 << 20;

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
    /// Tells apart devices of the source, because inode numbers are unique on one only.
    pub device: &'a (dyn Fn(&Path) -> u64 + Sync),
    /// A directory of the source to leave out.
    pub except: Option<&'a Path>,
    /// Who is told.
    pub watch: &'a Watch,
}

impl<S: Posix, D: Posix> Job<'_, S, D> {
    /// The path in the source of what lies at `relative`.
    fn source_path(&self, relative: &Path) -> PathBuf {
        under(self.from, relative)
    }

    /// The path in the target of what lies at `relative`.
    fn target_path(&self, relative: &Path) -> PathBuf {
        under(self.to, relative)
    }
}

/// `base/relative`, without the slash that joining an empty path would leave.
fn under(base: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { base.to_owned() } else { base.join(relative) }
}

/// What was copied. Counts of entries, but for `bytes`.
#[derive(Debug, Default)]
pub struct Tally {
    files: AtomicU64,
    directories: AtomicU64,
    symlinks: AtomicU64,
    links: AtomicU64,
    others: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    owners_lost: AtomicU64,
}

impl Tally {
    fn add(&self, kind: Kind) {
        let counter = match kind {
            Kind::File => &self.files,
            Kind::Directory => &self.directories,
            Kind::Symlink => &self.symlinks,
            _ => &self.others,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Entries that were copied, hard links included.
    pub fn entries(&self) -> u64 {
        [&self.files, &self.directories, &self.symlinks, &self.links, &self.others]
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }

    /// Bytes of the files that were copied.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Entries that could not be copied.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The counts for a script.
    pub fn json(&self) -> Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "entries": self.entries(),
            "files": count(&self.files),
            "directories": count(&self.directories),
            "symlinks": count(&self.symlinks),
            "hard_links": count(&self.links),
            "special_files": count(&self.others),
            "bytes": self.bytes(),
            "failed": self.failed(),
            "owners_not_kept": count(&self.owners_lost),
        })
    }

    /// The counts in words.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        for (counter, one, many) in [
            (&self.files, "file", "files"),
            (&self.directories, "directory", "directories"),
            (&self.symlinks, "symbolic link", "symbolic links"),
            (&self.links, "hard link", "hard links"),
            (&self.others, "special file", "special files"),
        ] {
            let count = counter.load(Ordering::Relaxed);
            if count > 0 {
                parts.push(text::counted(count, one, many));
            }
        }
        let mut summary = format!(
            "{}, {} ({})",
            text::counted(self.entries(), "entry", "entries"),
            text::size(self.bytes()),
            parts.join(", ")
        );
        let lost = self.owners_lost.load(Ordering::Relaxed);
        if lost > 0 {
            summary.push_str(&format!(
                "; {} with another owner, because only root can give files away",
                text::count(lost)
            ));
        }
        summary
    }
}

/// On which side an error happened.
#[derive(Debug)]
enum Side {
    Source(eyrie::Error),
    Target(eyrie::Error),
}

impl Side {
    /// Whether nothing more can be written after this.
    fn is_fatal(&self) -> bool {
        match self {
            Side::Source(_) => false,
            Side::Target(error) => {
                matches!(error.errno(), Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS)
            }
        }
    }

    fn reason(&self) -> String {
        match self {
            Side::Source(error) => failure::reason(error),
            Side::Target(error) => format!("in the target: {}", failure::reason(error)),
        }
    }
}

/// Says on which side.
trait On<T> {
    fn reading(self) -> Result<T, Side>;
    fn writing(self) -> Result<T, Side>;
}

impl<T> On<T> for eyrie::Result<T> {
    fn reading(self) -> Result<T, Side> {
        self.map_err(Side::Source)
    }

    fn writing(self) -> Result<T, Side> {
        self.map_err(Side::Target)
    }
}
