//! Owners, extended attributes, modes and times of copies.

use std::path::Path;

use eyrie::{Errno, File, Posix, SetTime, Stat};

use super::{On, Progress, Side, Xattrs, xattrs};

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
    set_owner(target, path, want, &have, progress)?;
    xattrs::set(target, path, extended, progress);
    if have.mode != want.mode {
        file.set_mode(want.mode).writing()?;
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
    set_owner(target, path, want, &have, progress)?;
    xattrs::set(target, path, extended, progress);
    if !want.is_symlink() && have.mode != want.mode {
        target.chmod(path, want.mode).writing()?;
    }
    target.lutimens(path, SetTime::To(want.accessed), SetTime::To(want.modified)).writing()
}

/// Not being allowed to give files away is no failure: only root is.
fn set_owner<D: Posix>(
    target: &D,
    path: &Path,
    want: &Stat,
    have: &Stat,
    progress: &Progress<'_>,
) -> Result<(), Side> {
    if (have.uid, have.gid) == (want.uid, want.gid) {
        return Ok(());
    }
    match target.lchown(path, Some(want.uid), Some(want.gid)) {
        Ok(()) => Ok(()),
        Err(error) if error.errno() == Errno::PERM => {
            progress.owner_lost();
            Ok(())
        }
        Err(error) => Err(error).writing(),
    }
}
