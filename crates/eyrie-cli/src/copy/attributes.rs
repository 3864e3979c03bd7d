//! Owners, extended attributes, modes and times of copies.

use std::path::Path;

use eyrie::{Errno, File, Posix, SetTime, Stat};

use super::{On, Progress, Side, Xattrs, xattrs};

/// The bits of a mode by which programs run as their owner and group.
const SET_ID: u16 = 0o6000;

/// Gives an open file the owner of `want`, extended attributes, and mode and times of `want`, in this order: a change of
/// owner takes set-id bits away, and a mode may forbid to set the others.
pub(super) fn set_on_file<D: Posix>(
    target: &D,
    file: &File<'_, D>,
    path: &Path,
    want: &Stat,
    extended: &Xattrs,
    progress: &Progress<'_>,
) -> Result<(), Side> {
    let have = file.metadata().writing()?;
    let mode = set_owner(target, path, want, &have, progress)?;
    xattrs::set(target, path, extended, progress);
    if have.mode != mode {
        file.set_mode(mode).writing()?;
    }
    file.set_times(SetTime::To(want.accessed), SetTime::To(want.modified)).writing()
}

/// As [`set_on_file`], for what is not opened to be copied. Symbolic links have no mode to set.
pub(super) fn set_on_path<D: Posix>(
    target: &D,
    path: &Path,
    want: &Stat,
    extended: &Xattrs,
    progress: &Progress<'_>,
) -> Result<(), Side> {
    let have = target.lstat(path).writing()?;
    let mode = set_owner(target, path, want, &have, progress)?;
    xattrs::set(target, path, extended, progress);
    if !want.is_symlink() && have.mode != mode {
        target.chmod(path, mode).writing()?;
    }
    target.lutimens(path, SetTime::To(want.accessed), SetTime::To(want.modified)).writing()
}

/// Gives something its owner, and tells the mode that it may then have. Not being allowed to give files away is no failure:
/// only root is. But then a program that ran as its owner must not run as whoever copied it.
fn set_owner<D: Posix>(
    target: &D,
    path: &Path,
    want: &Stat,
    have: &Stat,
    progress: &Progress<'_>,
) -> Result<u16, Side> {
    if (have.uid, have.gid) == (want.uid, want.gid) {
        return Ok(want.mode);
    }
    match target.lchown(path, Some(want.uid), Some(want.gid)) {
        Ok(()) => Ok(want.mode),
        Err(error) if error.errno() == Errno::PERM => {
            progress.owner_lost();
            Ok(want.mode & !SET_ID)
        }
        Err(error) => Err(error).writing(),
    }
}
