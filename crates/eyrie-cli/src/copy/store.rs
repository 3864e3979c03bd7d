//! Makes entries in a target, and gives them their attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use eyrie::{File, Posix, PosixExt, Stat};

use super::{On, Progress, Side, Tally, Xattrs, attributes, under};
use crate::failure;

/// Where an entry goes.
pub struct Spot<'s, D> {
    /// The target, or the target as seen from a directory in it.
    pub target: &'s D,
    /// The name of the entry there.
    pub name: &'s Path,
    /// The path of the entry under the root of the tree.
    pub relative: &'s Path,
}

/// The tree of the target that is being made.
pub struct Store<'a> {
    root: &'a Path,
    /// Is told of everything that is complete.
    pub progress: Progress<'a>,
}

impl<'a> Store<'a> {
    /// The tree `root` of a target, of which nothing is there yet.
    pub fn new(root: &'a Path, progress: Progress<'a>) -> Store<'a> {
        Store { root, progress }
    }

    /// The path in the target.
    pub fn path(&self, relative: &Path) -> PathBuf {
        under(self.root, relative)
    }

    /// Makes a directory for its entries to come; [`Store::finish_directory`] makes it what it is to be.
    pub fn directory<D: Posix>(&self, spot: &Spot<'_, D>) -> eyrie::Result<()> {
        spot.target.mkdir(spot.name, 0o700)
    }

    /// Gives a directory its attributes when all that goes into it is there, because that changes its times.
    pub fn finish_directory<D: Posix>(
        &self,
        spot: &Spot<'_, D>,
        stat: &Stat,
        xattrs: &Xattrs,
    ) -> Result<(), Side> {
        attributes::set_on_path(spot, stat, xattrs, &self.progress)?;
        self.progress.completed(stat.kind, &self.path(spot.relative), 0);
        Ok(())
    }

    /// Makes a file with the attributes `stat` and `xattrs`; `fill` writes its bytes and tells how many. After an error there is none.
    pub fn file<D: Posix>(
        &self,
        spot: &Spot<'_, D>,
        stat: &Stat,
        xattrs: &Xattrs,
        fill: impl FnOnce(&File<'_, D>) -> Result<u64, Side>,
    ) -> Result<(), Side> {
        // Its owner may set extended attributes only while it may write.
        let mode = stat.mode & 0o777 | 0o200;
        let options = spot.target.options().write(true).create_new(true).mode(mode);
        let file = options.open(spot.name).writing()?;
        let result = fill(&file).and_then(|bytes| {
            attributes::set_on_file(spot, &file, stat, xattrs, &self.progress)?;
            Ok(bytes)
        });
        let closed = file.close().writing();
        match result.and_then(|bytes| closed.map(|()| bytes)) {
            Ok(bytes) => {
                self.progress.completed(stat.kind, &self.path(spot.relative), bytes);
                Ok(())
            }
            Err(side) => take_back(spot, side),
        }
    }

    /// Makes a symbolic link.
    pub fn symlink<D: Posix>(
        &self,
        spot: &Spot<'_, D>,
        stat: &Stat,
        xattrs: &Xattrs,
        target: &[u8],
    ) -> Result<(), Side> {
        spot.target.symlink(OsStr::from_bytes(target), spot.name).writing()?;
        self.finish(spot, stat, xattrs)
    }

    /// Makes a pipe, a socket or a device.
    pub fn special<D: Posix>(&self, spot: &Spot<'_, D>, stat: &Stat, xattrs: &Xattrs) -> Result<(), Side> {
        spot.target.mknod(spot.name, stat.kind, stat.mode & 0o777, stat.device).writing()?;
        self.finish(spot, stat, xattrs)
    }

    /// Makes a further name of what is at `first`.
    pub fn link<D: Posix>(&self, first: &Spot<'_, D>, spot: &Spot<'_, D>) -> eyrie::Result<()> {
        first.target.link_at(first.name, spot.target, spot.name)?;
        self.progress.linked(&self.path(spot.relative));
        Ok(())
    }

    /// Ends the copy.
    ///
    /// # Errors
    /// As [`Progress::outcome`].
    pub fn outcome(self) -> failure::Result<Tally> {
        self.progress.outcome(self.root)
    }

    fn finish<D: Posix>(&self, spot: &Spot<'_, D>, stat: &Stat, xattrs: &Xattrs) -> Result<(), Side> {
        match attributes::set_on_path(spot, stat, xattrs, &self.progress) {
            Ok(()) => {
                self.progress.completed(stat.kind, &self.path(spot.relative), 0);
                Ok(())
            }
            Err(side) => take_back(spot, side),
        }
    }
}

/// Nothing is left that is not whole. The first error is the one to tell.
fn take_back<D: Posix>(spot: &Spot<'_, D>, side: Side) -> Result<(), Side> {
    let _ = spot.target.unlink(spot.name);
    Err(side)
}
