//! The open directories on the way from the root of a walk down into a tree.
//!
//! Each call below that root names one component, so a tree may be deeper than the longest path. The ladder
//! keeps at most [`Posix::HANDLES`] of the directories open. A directory that was closed is opened again as
//! `..` of the directory below it. If `..` is another directory than before, the lower directory was moved
//! meanwhile.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use eyrie_engine::Kind;
use rustix::io::Errno;

use super::{OpenFlags, Posix, Stat};
use crate::{Error, Result};

/// The file system in which a name is looked up: that of the caller, or the same file system with an open
/// directory as its root.
#[derive(Debug)]
pub enum Base<'a, P> {
    /// The file system that the caller gave.
    Given(&'a P),
    /// That file system with an open directory as its root.
    Directory(Arc<P>),
}

impl<P> Clone for Base<'_, P> {
    fn clone(&self) -> Self {
        match self {
            Base::Given(fs) => Base::Given(fs),
            Base::Directory(fs) => Base::Directory(Arc::clone(fs)),
        }
    }
}

impl<P> Deref for Base<'_, P> {
    type Target = P;

    fn deref(&self) -> &P {
        match self {
            Base::Given(fs) => fs,
            Base::Directory(fs) => fs,
        }
    }
}

/// The numbers of file system and inode, which identify an object.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(stat: &Stat) -> Identity {
    (stat.file_system, stat.inode)
}

/// A directory of a ladder.
#[derive(Debug)]
struct Rung<P> {
    /// `None` while the directory is closed, because too many others are open.
    directory: Option<Arc<P>>,
    /// The identity of the directory, if this ladder may close it and open it again.
    identity: Option<Identity>,
}

/// The directories from the start of a walk to its current one.
#[derive(Debug)]
pub struct Ladder<'a, P> {
    start: &'a P,
    rungs: Vec<Rung<P>>,
}

impl<'a, P: Posix> Ladder<'a, P> {
    /// Makes a ladder whose first step leads down from the root of `start`.
    pub fn new(start: &'a P) -> Ladder<'a, P> {
        Ladder { start, rungs: Vec::new() }
    }

    /// Returns the number of steps down from the start.
    pub fn depth(&self) -> usize {
        self.rungs.len()
    }

    /// Returns the last directory of the ladder as a file system. At depth 0 this is the start.
    ///
    /// # Errors
    /// `ESTALE` if the directory could not be opened again.
    pub fn here(&self) -> Result<Base<'a, P>> {
        match self.rungs.last() {
            None => Ok(Base::Given(self.start)),
            Some(Rung { directory: Some(directory), .. }) => Ok(Base::Directory(Arc::clone(directory))),
            Some(Rung { directory: None, .. }) => Err(Error::new(Errno::STALE, "open")),
        }
    }

    /// Enters the directory `name` of the last directory. The handle that `visit` gets is closed afterwards.
    /// Only the first step follows a symbolic link.
    ///
    /// # Errors
    /// As [`Ladder::here`], [`Posix::open`] and [`Posix::at`]. After an error the ladder is unchanged.
    pub fn down(&mut self, name: &Path, visit: impl FnOnce(&P, &P::Handle)) -> Result<()> {
        let here = self.here()?;
        let mut flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        // Another program may replace a directory below the start by a link that leads out of the tree.
        flags.set(OpenFlags::NOFOLLOW, !self.rungs.is_empty());
        let rung = open(&*here, name, flags, visit)?;
        self.rungs.push(rung);
        let far = self.rungs.len().checked_sub(P::HANDLES).and_then(|far| far.checked_sub(1));
        if let Some(far) = far {
            self.rungs[far].directory = None;
        }
        Ok(())
    }

    /// Climbs from the last directory to the one above.
    ///
    /// # Errors
    /// As [`Posix::open`]. `ESTALE` if the directory was moved meanwhile. After an error [`Ladder::here`]
    /// fails, too.
    pub fn up(&mut self) -> Result<()> {
        let left = self.rungs.pop();
        let Some(Rung { directory: around @ None, identity }) = self.rungs.last_mut() else { return Ok(()) };
        let moved = || Error::with_reason(Errno::STALE, "open", "the directory was moved meanwhile");
        let below = left.and_then(|rung| rung.directory).ok_or_else(moved)?;
        let again = open(&*below, Path::new(".."), OpenFlags::READ | OpenFlags::DIRECTORY, |_, _| {})?;
        // A walk that continued in another directory would remove or copy files that the caller did not name.
        if again.identity != *identity {
            return Err(moved());
        }
        *around = again.directory;
        Ok(())
    }
}

fn open<P: Posix>(
    fs: &P,
    name: &Path,
    flags: OpenFlags,
    visit: impl FnOnce(&P, &P::Handle),
) -> Result<Rung<P>> {
    let handle = fs.open(name, flags, 0)?;
    let rung = fs.at(&handle).and_then(|directory| {
        let known = if P::HANDLES < usize::MAX { Some(identity(&fs.fstat(&handle)?)) } else { None };
        Ok(Rung { directory: Some(Arc::new(directory)), identity: known })
    });
    if rung.is_ok() {
        visit(fs, &handle);
    }
    fs.close(handle)?;
    rung
}

/// Returns the identity of the directory `name`, or `None` for any other kind of file. `kind` and `inode`
/// come from the directory entry. The entry of a mount point has the inode number of the covered directory.
/// So on a file system with mounts, this function reads the attributes of the directory itself.
pub(super) fn identity_of<P: Posix>(fs: &P, name: &Path, kind: Kind, inode: u64) -> Result<Option<Identity>> {
    match kind {
        Kind::Directory if P::MOUNTS => fs.lstat(name).map(|stat| Some(identity(&stat))),
        Kind::Directory => Ok(Some((0, inode))),
        _ => Ok(None),
    }
}
