//! The open directories on the way from the root of a walk down into a tree.
//!
//! Each call below that root names one component, so the paths of a tree may be longer than a call accepts.
//! The ladder keeps at most [`Posix::open_dirs_max`] of the directories open. A directory that was closed is
//! opened again as `..` of the directory below it. If `..` is another directory than before, the lower
//! directory was moved meanwhile.

use std::path::Path;

use eyrie_engine::Kind;

use super::{Dir, File, OpenFlags, Posix, Stat, Target};
use crate::{Errno, Error, Result};

/// The numbers of file system and inode, which identify an object. In a walk through a file system without
/// mounts, the first number is the generation of the inode number instead.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(stat: &Stat) -> Identity {
    (stat.file_system, stat.inode)
}

/// A directory of a ladder.
#[derive(Debug)]
struct Rung<P: Posix> {
    /// `None` while the directory is closed, because too many others are open.
    directory: Option<Dir<P>>,
    /// The identity of the directory, if this ladder may close it and open it again.
    identity: Option<Identity>,
}

/// The directories from the start of a walk to its current one. Each step of a ladder names one component. So
/// with a ladder a program can walk through a tree whose paths are longer than a call accepts. After each
/// step, the ladder keeps at most [`Posix::open_dirs_max`] directories open.
///
/// ```
/// # use eyrie::{Host, Ladder, Posix, PosixExt};
/// # let place = tempfile::tempdir()?;
/// # let fs = Host::new(place.path())?;
/// fs.create_dir_all("/nests/north")?;
/// assert!(fs.open_dirs_max() > 2); // so both directories stay open
/// let mut ladder = Ladder::new(fs);
/// ladder.down("nests".as_ref(), |_, _| {})?;
/// ladder.down("north".as_ref(), |_, _| {})?;
/// ladder.here()?.write("egg", "blue")?;
/// ladder.up()?;
/// assert_eq!(ladder.depth(), 1);
/// assert_eq!(ladder.here()?.read("north/egg")?, b"blue");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ladder<P: Posix> {
    start: Dir<P>,
    rungs: Vec<Rung<P>>,
}

impl<P: Posix + Clone> Ladder<P> {
    /// Makes a ladder whose first step leads down from the root of `fs`.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: Host) {
    /// let ladder = Ladder::new(fs);
    /// # }
    /// ```
    pub fn new(fs: P) -> Ladder<P> {
        Ladder { start: Dir::root(fs), rungs: Vec::new() }
    }

    /// Returns the number of steps down from the start.
    ///
    /// ```
    /// # use eyrie::*; fn f(fs: Host) {
    /// assert_eq!(Ladder::new(fs).depth(), 0);
    /// # }
    /// ```
    pub fn depth(&self) -> usize {
        self.rungs.len()
    }

    /// Returns the last directory of the ladder. At depth 0 this is the start.
    ///
    /// ```
    /// # use eyrie::*; fn f(ladder: Ladder<Host>) -> Result<()> {
    /// let names = ladder.here()?.read_dir(".")?.count();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ESTALE` if the directory could not be opened again.
    pub fn here(&self) -> Result<Dir<P>> {
        match self.rungs.last() {
            None => Ok(self.start.clone()),
            Some(Rung { directory: Some(directory), .. }) => Ok(directory.clone()),
            Some(Rung { directory: None, .. }) => Err(Error::new(Errno::STALE, "open")),
        }
    }

    /// Enters the directory `name`, an entry of the last directory, and calls `visit` with the handle of
    /// `name`. Only a step from the start follows a symbolic link.
    ///
    /// ```
    /// # use eyrie::*; fn f(mut ladder: Ladder<Host>) -> Result<()> {
    /// ladder.down("nest".as_ref(), |_, _| {})
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ladder::here`] and [`Posix::open`]. After an error the ladder is unchanged.
    pub fn down(&mut self, name: &Path, visit: impl FnOnce(&P, &P::Handle)) -> Result<()> {
        // Another program may replace a directory below the start with a link that leads out of the tree.
        self.step_down(name, self.rungs.is_empty(), visit)
    }

    /// Works as [`Ladder::down`], but never follows a symbolic link at the end of `name`. Another program may
    /// have replaced the directory with a link since the caller looked at it.
    pub(super) fn down_to(&mut self, name: &Path, visit: impl FnOnce(&P, &P::Handle)) -> Result<()> {
        self.step_down(name, false, visit)
    }

    fn step_down(&mut self, name: &Path, follows: bool, visit: impl FnOnce(&P, &P::Handle)) -> Result<()> {
        let here = self.here()?;
        let mut flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        flags.set(OpenFlags::NOFOLLOW, !follows);
        let rung = open(&here, name, flags, visit)?;
        self.rungs.push(rung);
        let most = self.start.open_dirs_max();
        let to_close = self.rungs.len().checked_sub(most).and_then(|to_close| to_close.checked_sub(1));
        if let Some(to_close) = to_close {
            self.rungs[to_close].directory = None;
        }
        Ok(())
    }

    /// Climbs from the last directory to the directory above it. At the start the call does nothing.
    ///
    /// ```
    /// # use eyrie::*; fn f(mut ladder: Ladder<Host>) -> Result<()> {
    /// ladder.up()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`]. `ESTALE` if the last directory was moved meanwhile, or if an earlier climb has
    /// failed. After an error [`Ladder::here`] fails, too.
    pub fn up(&mut self) -> Result<()> {
        let left = self.rungs.pop();
        let Some(Rung { directory: above @ None, identity }) = self.rungs.last_mut() else { return Ok(()) };
        let stale = |why: &str| Error::with_reason(Errno::STALE, "open", why);
        let below = left.and_then(|rung| rung.directory);
        let below = below.ok_or_else(|| stale("the way up is lost, because an earlier step up failed"))?;
        let again = open(&below, Path::new(".."), OpenFlags::READ | OpenFlags::DIRECTORY, |_, _| {})?;
        // If a walk continued in another directory, it would remove or copy files that the caller did not
        // name.
        if again.identity != *identity {
            return Err(stale("the directory was moved meanwhile"));
        }
        *above = again.directory;
        Ok(())
    }
}

fn open<P: Posix + Clone>(
    dir: &Dir<P>,
    name: &Path,
    flags: OpenFlags,
    visit: impl FnOnce(&P, &P::Handle),
) -> Result<Rung<P>> {
    let fs = dir.file_system();
    let opened = File::from_handle(fs.clone(), dir.open(name.into(), flags, 0)?, false);
    let identity = if fs.open_dirs_max() < usize::MAX { Some(identity(&opened.metadata()?)) } else { None };
    visit(fs, opened.handle());
    Ok(Rung { directory: Some(Dir::at(fs.clone(), opened)), identity })
}

/// Returns the identity of the directory `name`, or `None` for any other kind of file. `kind` and `inode`
/// come from the directory entry. The entry of a mount point has the inode number of the covered directory.
/// So on a file system with mounts, this function reads the attributes of the directory itself. Otherwise it
/// reads the generation, because a new directory may have the inode number of a removed one.
pub(super) fn identity_of<P: Posix>(
    dir: &Dir<P>,
    name: &Path,
    kind: Kind,
    inode: u64,
) -> Result<Option<Identity>> {
    match kind {
        Kind::Directory if dir.has_mounts() => {
            dir.stat(Target::NoFollow(name.into())).map(|stat| Some(identity(&stat)))
        }
        Kind::Directory => Ok(Some((dir.generation(inode), inode))),
        _ => Ok(None),
    }
}
