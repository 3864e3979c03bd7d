//! Owners, extended attributes, modes and times of copies.

use eyrie::{Dir, Errno, Error, File, Posix, SetTime, Stat, Target};

use super::progress::Progress;
use super::side::{CopyError, OnSide};
use super::spot::Spot;
use super::xattrs::{self, Xattrs};

/// The set-id bits of a mode. With these bits, a program runs as the owner or group of its file.
const SET_ID: u16 = 0o6000;
/// The number for which `chown` leaves the user or the group unchanged, and succeeds.
const NO_CHANGE: u32 = u32::MAX;

/// Sets owner, extended attributes, times and mode of an open file, in this order. The owner comes first,
/// because a change of owner removes set-id bits. The mode comes last, because it may forbid the other
/// changes.
pub(super) fn set_on_file<D: Posix + Clone>(
    spot: &Spot<'_, D>,
    file: &File<Dir<D>>,
    want: &Stat,
    extended: &Xattrs,
    progress: &Progress<'_>,
) -> Result<(), CopyError> {
    let have = file.metadata().writing()?;
    let mode = set_owner(spot, want, &have, progress)?;
    xattrs::set(spot, extended, progress);
    set_times(want, progress, |accessed, modified| file.set_times(accessed, modified))?;
    if have.mode != mode {
        file.set_mode(mode).writing()?;
    }
    Ok(())
}

/// Works like [`set_on_file`], for an entry that the copy does not open. Leaves out the mode of a symbolic
/// link.
pub(super) fn set_on_path<D: Posix + Clone>(
    spot: &Spot<'_, D>,
    want: &Stat,
    extended: &Xattrs,
    progress: &Progress<'_>,
) -> Result<(), CopyError> {
    let have = spot.target.stat(Target::NoFollow(spot.name.into())).writing()?;
    let mode = set_owner(spot, want, &have, progress)?;
    xattrs::set(spot, extended, progress);
    set_times(want, progress, |accessed, modified| {
        spot.target.utimens(Target::NoFollow(spot.name.into()), accessed, modified)
    })?;
    if !want.is_symlink() && have.mode != mode {
        spot.target.chmod(spot.name.into(), mode).writing()?;
    }
    Ok(())
}

/// Sets the times of `want`. The target may refuse a time, such as an invalid time from a damaged volume.
/// Instead of a refused time, the copy keeps the time at which it was made. Such a copy is counted, but is
/// not a failure.
fn set_times(
    want: &Stat,
    progress: &Progress<'_>,
    set: impl Fn(SetTime, SetTime) -> eyrie::Result<()>,
) -> Result<(), CopyError> {
    match set(SetTime::To(want.accessed), SetTime::To(want.modified)) {
        Err(error) if matches!(error.errno(), Errno::INVAL | Errno::OVERFLOW | Errno::RANGE) => {
            progress.time_lost();
            // One of the two times may be valid.
            let _ = set(SetTime::Omit, SetTime::To(want.modified));
            let _ = set(SetTime::To(want.accessed), SetTime::Omit);
            Ok(())
        }
        result => result.writing(),
    }
}

/// Sets the owner of the copy, and returns the mode that the copy may have. Only root may give files to other
/// users, so `EPERM` is not a failure. But a copy that does not get the owner of its source loses the set-id
/// bits, because a program with these bits would run with the rights of the user who made the copy.
///
/// Nobody can give a file to the user or group with the number [`NO_CHANGE`], which an archive can name.
fn set_owner<D: Posix + Clone>(
    spot: &Spot<'_, D>,
    want: &Stat,
    have: &Stat,
    progress: &Progress<'_>,
) -> Result<u16, CopyError> {
    if (have.uid, have.gid) == (want.uid, want.gid) {
        return Ok(want.mode);
    }
    let set = if [want.uid, want.gid].contains(&NO_CHANGE) {
        Err(Error::new(Errno::PERM, "chown"))
    } else {
        spot.target.chown(Target::NoFollow(spot.name.into()), Some(want.uid), Some(want.gid))
    };
    match set {
        Ok(()) => Ok(want.mode),
        Err(error) if error.errno() == Errno::PERM => {
            progress.owner_lost();
            Ok(want.mode & !SET_ID)
        }
        Err(error) => Err(error).writing(),
    }
}
