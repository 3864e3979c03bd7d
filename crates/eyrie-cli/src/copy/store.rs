//! Makes entries in a target, and gives them their attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use eyrie::{File, Posix, PosixExt, Stat};

use super::{On, Progress, Side, Tally, Xattrs, attributes, under};
use crate::failure;

/// The tree of the target that is being made. Paths are those under its root.
pub struct Store<'a, D> {
    target: &'a D,
    root: &'a Path,
    /// Is told of everything that is complete.
    pub progress: Progress<'a>,
}

impl<'a, D: Posix> Store<'a, D> {
    /// The tree `root` of `target`, of which nothing is there yet.
    pub fn new(target: &'a D, root: &'a Path, progress: Progress<'a>) -> Store<'a, D> {
        Store { target, root, progress }
    }

    /// The path in the target.
    pub fn path(&self, relative: &Path) -> PathBuf {
        under(self.root, relative)
    }

    /// Makes a directory for its entries to come; [`Store::finish_directory`] makes it what it is to be.
    pub fn directory(&self, relative: &Path) -> eyrie::Result<()> {
        self.target.mkdir(self.path(relative), 0o700)
    }

    /// Gives a directory its attributes when all that goes into it is there, because that changes its times.
    pub fn finish_directory(&self, relative: &Path, stat: &Stat, xattrs: &Xattrs) -> Result<(), Side> {
        let path = self.path(relative);
        attributes::set_on_path(self.target, &path, stat, xattrs, &self.progress)?;
        self.progress.completed(stat.kind, &path, 0);
        Ok(())
    }

    /// Makes a file with the attributes `stat` and `xattrs`; `fill` writes its bytes and tells how many. After an error there is none.
    pub fn file(
        &self,
        relative: &Path,
        stat: &Stat,
        xattrs: &Xattrs,
        fill: impl FnOnce(&File<'_, D>) -> Result<u64, Side>,
    ) -> Result<(), Side> {
        let path = self.path(relative);
        // Its owner may set extended attributes only while it may write.
        let mode = stat.mode & 0o777 | 0o200;
        let options = self.target.options().write(true).create_new(true).mode(mode);
        let file = options.open(&path).writing()?;
        let result = fill(&file).and_then(|bytes| {
            attributes::set_on_file(self.target, &file, &path, stat, xattrs, &self.progress)?;
            Ok(bytes)
        });
        let closed = file.close().writing();
        match result.and_then(|bytes| closed.map(|()| bytes)) {
            Ok(bytes) => {
                self.progress.completed(stat.kind, &path, bytes);
                Ok(())
            }
            Err(side) => self.take_back(&path, side),
        }
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, relative: &Path, stat: &Stat, xattrs: &Xattrs, target: &[u8]) -> Result<(), Side> {
        let path = self.path(relative);
        self.target.symlink(OsStr::from_bytes(target), &path).writing()?;
        self.finish(&path, stat, xattrs)
    }

    /// Makes a pipe, a socket or a device.
    pub fn special(&self, relative: &Path, stat: &Stat, xattrs: &Xattrs) -> Result<(), Side> {
        let path = self.path(relative);
        self.target.mknod(&path, stat.kind, stat.mode & 0o777, stat.device).writing()?;
        self.finish(&path, stat, xattrs)
    }

    /// Makes a further name of what is at `first`.
    pub fn link(&self, first: &Path, relative: &Path) -> eyrie::Result<()> {
        let path = self.path(relative);
        self.target.link(self.path(first), &path)?;
        self.progress.linked(&path);
        Ok(())
    }

    /// Ends the copy.
    ///
    /// # Errors
    /// As [`Progress::outcome`].
    pub fn outcome(self) -> failure::Result<Tally> {
        self.progress.outcome(self.root)
    }

    fn finish(&self, path: &Path, stat: &Stat, xattrs: &Xattrs) -> Result<(), Side> {
        match attributes::set_on_path(self.target, path, stat, xattrs, &self.progress) {
            Ok(()) => {
                self.progress.completed(stat.kind, path, 0);
                Ok(())
            }
            Err(side) => self.take_back(path, side),
        }
    }

    /// Nothing is left that is not whole. The first error is the one to tell.
    fn take_back(&self, path: &Path, side: Side) -> Result<(), Side> {
        let _ = self.target.unlink(path);
        Err(side)
    }
}
