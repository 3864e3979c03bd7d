//! The entries of the target: this module makes them and sets their attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use eyrie::{Dir, File, Posix, PosixExt, Stat, Target};

use super::attributes;
use super::progress::{Progress, Tally};
use super::side::{CopyError, OnSide};
use super::spot::Spot;
use super::xattrs::Xattrs;
use crate::failure;
use crate::place::join;

/// The tree that a copy or a load makes in the target.
pub struct TargetTree<'a> {
    root: &'a Path,
    /// Counts and reports the entries.
    pub progress: Progress<'a>,
}

impl<'a> TargetTree<'a> {
    /// Starts the tree `root` of a target. The root of a copy does not exist yet. The root of a load may be
    /// an empty directory. Only [`copy_attributes`](super::copy_attributes) starts with a root that may have
    /// entries.
    pub fn new(root: &'a Path, progress: Progress<'a>) -> TargetTree<'a> {
        TargetTree { root, progress }
    }

    /// Returns the path in the target for a path under the root of the tree.
    pub fn path(&self, relative: &Path) -> PathBuf {
        join(self.root, relative)
    }

    /// Makes a directory. [`TargetTree::finish_directory`] sets its attributes later. Until then only its
    /// owner may use the directory.
    pub fn directory<D: Posix + Clone>(&self, spot: &Spot<'_, D>) -> eyrie::Result<()> {
        spot.target.mkdir(spot.name.into(), 0o700)
    }

    /// Sets the attributes of a directory. All its entries must be complete, because each new entry changes
    /// the times of the directory.
    pub fn finish_directory<D: Posix + Clone>(
        &self,
        spot: &Spot<'_, D>,
        stat: &Stat,
        xattrs: &Xattrs,
    ) -> Result<(), CopyError> {
        attributes::set_on_path(spot, stat, xattrs, &self.progress)?;
        self.progress.completed(stat.kind, &self.path(spot.relative), 0);
        Ok(())
    }

    /// Makes a file with the attributes `stat` and `xattrs`. `fill` writes the bytes and returns their
    /// number. If an error follows the creation of the file, the file is removed.
    pub fn file<D: Posix + Clone>(
        &self,
        spot: &Spot<'_, D>,
        stat: &Stat,
        xattrs: &Xattrs,
        fill: impl FnOnce(&File<Dir<D>>) -> Result<u64, CopyError>,
    ) -> Result<(), CopyError> {
        // Only a user who may write the file may set its extended attributes.
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
            Err(error) => remove_partial(spot, error),
        }
    }

    /// Makes a symbolic link.
    pub fn symlink<D: Posix + Clone>(
        &self,
        spot: &Spot<'_, D>,
        stat: &Stat,
        xattrs: &Xattrs,
        target: &[u8],
    ) -> Result<(), CopyError> {
        spot.target.symlink(Path::new(OsStr::from_bytes(target)), spot.name.into()).writing()?;
        self.finish(spot, stat, xattrs)
    }

    /// Makes a pipe, a socket or a device.
    pub fn special<D: Posix + Clone>(
        &self,
        spot: &Spot<'_, D>,
        stat: &Stat,
        xattrs: &Xattrs,
    ) -> Result<(), CopyError> {
        spot.target.mknod(spot.name.into(), stat.kind, stat.mode & 0o777, stat.device).writing()?;
        self.finish(spot, stat, xattrs)
    }

    /// Makes `spot` a hard link to `first`.
    pub fn link<D: Posix + Clone>(&self, first: &Spot<'_, D>, spot: &Spot<'_, D>) -> eyrie::Result<()> {
        let fs = spot.target.file_system();
        fs.link(Target::NoFollow(first.target.path_at(first.name)), spot.target.path_at(spot.name))?;
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

    fn finish<D: Posix + Clone>(
        &self,
        spot: &Spot<'_, D>,
        stat: &Stat,
        xattrs: &Xattrs,
    ) -> Result<(), CopyError> {
        match attributes::set_on_path(spot, stat, xattrs, &self.progress) {
            Ok(()) => {
                self.progress.completed(stat.kind, &self.path(spot.relative), 0);
                Ok(())
            }
            Err(error) => remove_partial(spot, error),
        }
    }
}

/// Removes an entry that is not complete. Returns the error that made the copy fail, and ignores an error of
/// the removal.
fn remove_partial<D: Posix + Clone>(spot: &Spot<'_, D>, error: CopyError) -> Result<(), CopyError> {
    let _ = spot.target.unlink(spot.name.into());
    Err(error)
}
