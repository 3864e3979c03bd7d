//! Walks of trees: the one way to look at everything below a directory.
//!
//! Entries of a directory come by name, so that the same tree is always told in the same order.
//!
//! Invariants:
//! - A walk ends, whatever a damaged volume says. It notes every directory that it enters, and reports a further name of
//!   one instead of entering it again. A volume has one name for each directory. A host may have several, because of
//!   mounts, so there the note of a directory is dropped when it is left.
//! - No call names more than one component below the root of the walk ([`Ladder`]).
//! - A walk keeps its directories and the names in those around it, and nothing of other entries.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use eyrie_engine::Kind;
use rustix::io::Errno;

use super::ladder::{Base, Identity, Ladder, identity_of};
use super::{Posix, Stat};
use crate::{Error, Result};

/// An entry of a tree.
#[derive(Debug)]
pub struct Found<'a, P> {
    /// Its path under the root of the walk, which has the empty path itself.
    pub relative: PathBuf,
    /// Levels under the root.
    pub depth: usize,
    /// Its kind, according to the entry that names it.
    pub kind: Kind,
    /// Its inode number, according to the same entry.
    pub inode: u64,
    /// True if it is the last entry of its directory.
    pub last: bool,
    base: Base<'a, P>,
    name: PathBuf,
}

impl<'a, P: Posix> Found<'a, P> {
    /// The file system in which [`Found::name`] names the entry.
    pub fn base(&self) -> &Base<'a, P> {
        &self.base
    }

    /// Its name in [`Found::base`]. The root of a walk has the path that was given.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Its own attributes. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Posix::lstat`].
    pub fn stat(&self) -> Result<Stat> {
        self.base.lstat(&self.name)
    }
}

/// One step of a walk.
#[derive(Debug)]
pub enum Step<'a, P> {
    /// An entry. The entries of a directory follow it at once.
    Found(Found<'a, P>),
    /// A directory whose entries have all been told.
    Left(Found<'a, P>),
    /// An entry that cannot be read, by its path under the root of the walk.
    Failed(PathBuf, Error),
}

struct Entry {
    name: OsString,
    kind: Kind,
    inode: u64,
}

/// A directory that the walk is in.
struct Level {
    /// Its name in the directory around it.
    name: PathBuf,
    inode: u64,
    last: bool,
    identity: Option<Identity>,
    /// True if the ladder has a step for it.
    entered: bool,
    /// The entries that are still to be told.
    entries: IntoIter<Entry>,
}

/// A walk, which begins with its root.
pub struct Walk<'a, P> {
    fs: &'a P,
    ladder: Ladder<'a, P>,
    /// The root, until it is told.
    first: Option<Entry>,
    /// The directory that was told last, if its entries are next.
    entering: Option<Level>,
    levels: Vec<Level>,
    /// The path of the innermost level.
    path: PathBuf,
    visited: HashSet<Identity>,
    wanted: fn(&OsStr) -> bool,
}

impl<P> std::fmt::Debug for Walk<'_, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<'a, P: Posix> Walk<'a, P> {
    /// A walk through `root`.
    ///
    /// # Errors
    /// As [`Posix::lstat`].
    pub fn new(fs: &'a P, root: &Path) -> Result<Walk<'a, P>> {
        let stat = fs.lstat(root).map_err(|error| error.at(root))?;
        let first = Entry { name: root.into(), kind: stat.kind, inode: stat.inode };
        Ok(Walk {
            fs,
            ladder: Ladder::new(fs),
            first: Some(first),
            entering: None,
            levels: Vec::new(),
            path: PathBuf::new(),
            visited: HashSet::new(),
            wanted: |_| true,
        })
    }

    /// The same walk without the entries below its root whose name is not `wanted`.
    #[must_use]
    pub fn only(mut self, wanted: fn(&OsStr) -> bool) -> Walk<'a, P> {
        self.wanted = wanted;
        self
    }

    /// Passes over the entries of the directory that was told last, which is then not left either.
    pub fn prune(&mut self) {
        self.forget_entering();
    }

    /// Takes note that a directory that was left is gone, so that another may have its inode number.
    fn forget(&mut self, inode: u64) {
        if !P::MOUNTS {
            self.visited.remove(&(0, inode));
        }
    }

    fn forget_entering(&mut self) {
        if let Some(Level { identity: Some(identity), .. }) = self.entering.take()
            && P::MOUNTS
        {
            self.visited.remove(&identity);
        }
    }

    fn tell(&mut self, base: Base<'a, P>, entry: Entry, relative: PathBuf, last: bool) -> Step<'a, P> {
        let Entry { name, kind, inode } = entry;
        let name = PathBuf::from(name);
        match identity_of(&*base, &name, kind, inode) {
            Ok(None) => {}
            Ok(Some(identity)) if self.visited.insert(identity) => {
                let (name, entries) = (name.clone(), Vec::new().into_iter());
                let identity = Some(identity);
                self.entering = Some(Level { name, inode, last, identity, entered: false, entries });
            }
            Ok(identity) => return Step::Failed(relative, self.two_names(identity)),
            Err(error) => return Step::Failed(relative, error),
        }
        Step::Found(Found { relative, depth: self.levels.len(), kind, inode, last, base, name })
    }

    /// The error of a directory that was entered before.
    #[cold]
    fn two_names(&self, identity: Option<Identity>) -> Error {
        let inside = self.levels.iter().any(|level| level.identity == identity);
        if P::MOUNTS {
            let reason = "this directory is one that the walk is inside, perhaps by a bind mount";
            return Error::with_reason(Errno::LOOP, "walk", reason);
        }
        let reason = if inside {
            "damaged: this directory contains itself; repair the volume with `eyrie fsck --repair`"
        } else {
            "damaged: this directory has another name, too, unless it was moved meanwhile; repair the volume with `eyrie fsck --repair`"
        };
        Error::with_reason(Errno::IO, "walk", reason)
    }

    /// Goes into a directory, as far as its entries can be read.
    fn enter(&mut self, mut level: Level) -> Option<Step<'a, P>> {
        let mut entries = Vec::new();
        let mut listed = Ok(());
        let wanted = self.wanted;
        let opened = self.ladder.down(&level.name, |fs, handle| {
            listed = fs.list(handle, 0, &mut |entry| {
                if wanted(OsStr::from_bytes(entry.name)) {
                    let name = OsString::from_vec(entry.name.to_vec());
                    entries.push(Entry { name, kind: entry.kind, inode: entry.inode });
                }
                true
            });
        });
        level.entered = opened.is_ok();
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        level.entries = entries.into_iter();
        if !self.levels.is_empty() {
            self.path.push(&level.name);
        }
        self.levels.push(level);
        let failed = opened.and(listed).err()?;
        Some(Step::Failed(self.path.clone(), failed))
    }

    /// Leaves the innermost directory.
    fn leave(&mut self) -> Option<Step<'a, P>> {
        let level = self.levels.pop()?;
        if let (true, Some(identity)) = (P::MOUNTS, level.identity) {
            self.visited.remove(&identity);
        }
        let relative = self.path.clone();
        self.path.pop();
        let climbed = if level.entered { self.ladder.up() } else { Ok(()) };
        let base = match climbed.and_then(|()| self.ladder.here()) {
            Ok(base) => base,
            Err(error) => {
                // No directory around can be reached any more.
                self.levels.clear();
                return Some(Step::Failed(std::mem::take(&mut self.path), error));
            }
        };
        let Level { name, inode, last, .. } = level;
        let (depth, kind) = (self.levels.len(), Kind::Directory);
        Some(Step::Left(Found { relative, depth, kind, inode, last, base, name }))
    }
}

impl<'a, P: Posix> Iterator for Walk<'a, P> {
    type Item = Step<'a, P>;

    fn next(&mut self) -> Option<Step<'a, P>> {
        if let Some(root) = self.first.take() {
            return Some(self.tell(Base::Given(self.fs), root, PathBuf::new(), true));
        }
        if let Some(level) = self.entering.take()
            && let Some(failed) = self.enter(level)
        {
            return Some(failed);
        }
        let entries = &mut self.levels.last_mut()?.entries;
        let Some(entry) = entries.next() else { return self.leave() };
        let last = entries.len() == 0;
        let relative = self.path.join(&entry.name);
        match self.ladder.here() {
            Ok(base) => Some(self.tell(base, entry, relative, last)),
            Err(error) => Some(Step::Failed(relative, error)),
        }
    }
}

/// Removes everything below `path`, and `path` itself unless it is the root of the file system. After damage it goes on
/// with what is elsewhere, and gives the first error at the end.
pub(super) fn remove_all<P: Posix>(fs: &P, path: &Path) -> Result<()> {
    let mut damage = None;
    let mut walk = Walk::new(fs, path)?;
    while let Some(step) = walk.next() {
        let (relative, result) = match step {
            Step::Found(found) if found.kind == Kind::Directory => continue,
            Step::Found(found) => {
                let result = found.base().unlink(found.name());
                (found.relative, result)
            }
            Step::Left(found) if found.name().components().all(|part| part.as_os_str() == "/") => continue,
            Step::Left(found) => {
                let result = found.base().rmdir(found.name());
                if result.is_ok() {
                    walk.forget(found.inode);
                }
                (found.relative, result)
            }
            Step::Failed(relative, error) => (relative, Err(error)),
        };
        match result {
            Ok(()) => {}
            Err(error) if matches!(error.errno(), Errno::IO | Errno::STALE) => {
                damage.get_or_insert_with(|| error.at(path.join(relative)));
            }
            // A directory stays that has something damaged in it.
            Err(error) if error.errno() == Errno::NOTEMPTY && damage.is_some() => {}
            Err(error) => return Err(error.at(path.join(relative))),
        }
    }
    damage.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;
    use crate::posix::ladder::identity;

    #[test]
    fn a_directory_of_the_host_that_comes_again_is_a_loop() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("again")).expect("a directory");
        let host = Host::new(dir.path()).expect("a directory");
        let mut walk = Walk::new(&host, Path::new(".")).expect("a directory");
        // A bind mount would give the directory this identity.
        walk.visited.insert(identity(&host.lstat(Path::new("again")).expect("a directory")));
        let failed = walk.find_map(|step| match step {
            Step::Failed(path, error) => Some((path, error)),
            _ => None,
        });
        let (path, error) = failed.expect("the directory is reported");
        assert_eq!((path.as_path(), error.errno()), (Path::new("again"), Errno::LOOP));
        assert!(!error.to_string().contains("repair"), "{error}");
    }
}
