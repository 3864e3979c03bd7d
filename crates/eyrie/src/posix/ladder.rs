//! A way down into a tree, directory by directory.
//!
//! No call names more than one component, so a tree may be deeper than a path may be long. At most
//! [`Posix::HANDLES`] directories on the way are open at once. A directory that was closed is opened again as `..` of
//! the one below it, and must then be the same directory as before.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use eyrie_engine::Kind;
use rustix::io::Errno;

use super::{OpenFlags, Posix, Stat};
use crate::{Error, Result};

/// The file system that a name is looked up in: the given one, or the same as seen from an open directory.
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

/// The numbers that tell one object from all others.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(stat: &Stat) -> Identity {
    (stat.file_system, stat.inode)
}

/// A directory on the way.
#[derive(Debug)]
struct Rung<P> {
    /// `None` while it is closed, because too many others are open.
    directory: Option<Arc<P>>,
    /// Known where directories are opened again.
    identity: Option<Identity>,
}

/// The open directories from the start of a walk to where it is.
#[derive(Debug)]
pub struct Ladder<'a, P> {
    start: &'a P,
    rungs: Vec<Rung<P>>,
}

impl<'a, P: Posix> Ladder<'a, P> {
    /// A ladder whose first step down starts in `start`.
    pub fn new(start: &'a P) -> Ladder<'a, P> {
        Ladder { start, rungs: Vec::new() }
    }

    /// Number of steps down from the start.
    pub fn depth(&self) -> usize {
        self.rungs.len()
    }

    /// The directory that the ladder ends in.
    ///
    /// # Errors
    /// `ESTALE` when it could not be opened again.
    pub fn here(&self) -> Result<Base<'a, P>> {
        match self.rungs.last() {
            None => Ok(Base::Given(self.start)),
            Some(Rung { directory: Some(directory), .. }) => Ok(Base::Directory(Arc::clone(directory))),
            Some(Rung { directory: None, .. }) => Err(Error::new(Errno::STALE, "open")),
        }
    }

    /// Goes into the directory `name` of the last one, and shows `visit` its handle, which is closed afterwards. A
    /// symbolic link is followed on the first step only.
    ///
    /// # Errors
    /// As [`Posix::open`]; the ladder is then as before.
    pub fn down(&mut self, name: &Path, visit: impl FnOnce(&P, &P::Handle)) -> Result<()> {
        let here = self.here()?;
        let mut flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        flags.set(OpenFlags::NOFOLLOW, !self.rungs.is_empty());
        let rung = open(&*here, name, flags, visit)?;
        self.rungs.push(rung);
        let far = self.rungs.len().checked_sub(P::HANDLES).and_then(|far| far.checked_sub(1));
        if let Some(far) = far {
            self.rungs[far].directory = None;
        }
        Ok(())
    }

    /// Leaves the last directory.
    ///
    /// # Errors
    /// As [`Posix::open`]; `ESTALE` when the directory was moved meanwhile. [`Ladder::here`] then fails, too.
    pub fn up(&mut self) -> Result<()> {
        let left = self.rungs.pop();
        let Some(Rung { directory: around @ None, identity }) = self.rungs.last_mut() else { return Ok(()) };
        let moved = || Error::with_reason(Errno::STALE, "open", "its directory was moved meanwhile");
        let below = left.and_then(|rung| rung.directory).ok_or_else(moved)?;
        let again = open(&*below, Path::new(".."), OpenFlags::READ | OpenFlags::DIRECTORY, |_, _| {})?;
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

/// The identity of a directory that `name` names, which an entry said to be of this kind and number.
pub(super) fn identity_of<P: Posix>(fs: &P, name: &Path, kind: Kind, inode: u64) -> Result<Option<Identity>> {
    match kind {
        Kind::Directory if P::MOUNTS => fs.lstat(name).map(|stat| Some(identity(&stat))),
        Kind::Directory => Ok(Some((0, inode))),
        _ => Ok(None),
    }
}
