//! Walks a tree of any file system, level by level down and up again.
//!
//! Entries of a directory come by name, so that the same tree is always told in the same order.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use eyrie::{Posix, PosixExt, Stat};

use super::under;

/// An entry of a tree.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its path under the root of the walk, which has the empty path itself.
    pub relative: PathBuf,
    /// Levels under the root.
    pub depth: usize,
    /// Its own attributes, be it a symbolic link.
    pub stat: Stat,
}

/// What a walk comes across.
#[derive(Debug)]
pub enum Step {
    /// An entry. What is in a directory follows it at once.
    Found(Found),
    /// A directory whose entries have all been told.
    Left(Found),
    /// What cannot be read.
    Failed(PathBuf, eyrie::Error),
}

/// A walk, which begins with its root.
pub struct Walk<'a, S> {
    source: &'a S,
    root: &'a Path,
    /// The root, until it is told.
    first: Option<Found>,
    /// The directory that was told last, when its entries are next.
    entering: Option<Found>,
    /// The directories around what is told next, and what is left of each.
    levels: Vec<(Found, IntoIter<OsString>)>,
}

impl<'a, S: Posix> Walk<'a, S> {
    /// A walk through `root`.
    ///
    /// # Errors
    /// When there is no such thing.
    pub fn new(source: &'a S, root: &'a Path) -> eyrie::Result<Walk<'a, S>> {
        let first = Found { relative: PathBuf::new(), depth: 0, stat: source.lstat(root)? };
        Ok(Walk { source, root, first: Some(first), entering: None, levels: Vec::new() })
    }

    /// Passes over what is in the directory that was told last, which is then not left either.
    pub fn prune(&mut self) {
        self.entering = None;
    }

    fn tell(&mut self, found: Found) -> Step {
        self.entering = found.stat.is_dir().then(|| found.clone());
        Step::Found(found)
    }

    /// Goes into a directory, as far as its entries can be read.
    fn enter(&mut self, dir: Found) -> Option<Step> {
        let mut names = Vec::new();
        let result = self.source.read_dir(under(self.root, &dir.relative)).and_then(|listing| {
            for entry in listing {
                names.push(entry?.name().to_owned());
            }
            Ok(())
        });
        names.sort_unstable();
        let failed = result.err().map(|error| Step::Failed(dir.relative.clone(), error));
        self.levels.push((dir, names.into_iter()));
        failed
    }
}

impl<S: Posix> Iterator for Walk<'_, S> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(root) = self.first.take() {
            return Some(self.tell(root));
        }
        if let Some(failed) = self.entering.take().and_then(|dir| self.enter(dir)) {
            return Some(failed);
        }
        let (dir, names) = self.levels.last_mut()?;
        let Some(name) = names.next() else {
            return self.levels.pop().map(|(dir, _)| Step::Left(dir));
        };
        let (relative, depth) = (dir.relative.join(name), dir.depth + 1);
        match self.source.lstat(under(self.root, &relative)) {
            Ok(stat) => Some(self.tell(Found { relative, depth, stat })),
            Err(error) => Some(Step::Failed(relative, error)),
        }
    }
}
