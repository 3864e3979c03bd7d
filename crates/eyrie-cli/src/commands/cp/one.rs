//! The copy of one argument: a new copy, the replacement of a file, or the merge of two directories.

use std::path::Path;

use eyrie::{Errno, Kind, RenameMode, Stat};

use crate::copy::{Reflink, Tally};
use crate::endpoint::{Endpoint, copy, copy_attributes};
use crate::failure::{Doing, Failure, Failures, Result, print_error, require_complete};
use crate::{interrupt, place, text};

/// The way in which files are copied.
#[derive(Clone, Copy)]
pub(in crate::commands) struct Copying {
    /// True if directories are copied.
    pub recursive: bool,
    /// True if the entries of a directory are copied into an existing directory with the name of the copy.
    pub merge: bool,
    /// True if an existing directory gets the attributes of its source.
    pub attributes: bool,
    pub existing: Existing,
    /// True if a regular file does not replace a device, a pipe or a socket of the host.
    pub refuses_special: bool,
    pub reflink: Reflink,
    /// True if each copied file is printed.
    pub verbose: bool,
}

/// The treatment of a file that exists in the target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Existing {
    Replace,
    Keep,
    /// The file is replaced if its source is newer.
    Update,
}

/// Copies one file or tree. A copy of a file replaces an existing file, unless `copying` keeps that file.
pub(in crate::commands) fn copy_one(from: &Endpoint, to: &Endpoint, copying: Copying) -> Result<()> {
    let stat = from.lstat().doing("copy", from.shown())?;
    if stat.is_dir() {
        check_directory(from, &stat, to, copying.recursive)?;
    }
    let tally = match existing(to)? {
        None => {
            to.note_made();
            copy(from, to, &to.path, copying.reflink, copying.verbose)?
        }
        Some(there) if stat.is_dir() && there.is_dir() && copying.merge => {
            return merge(from, to, copying);
        }
        Some(there) if keeps(copying.existing, &stat, &there) => return Ok(()),
        Some(there) => {
            check_replacement(from, &stat, to, &there)?;
            if copying.refuses_special && stat.is_file() {
                refuse_special(to)?;
            }
            replace(from, to, copying)?
        }
    };
    report(from, &tally)
}

/// Returns true if the file with the attributes `there` stays, without an error. As with GNU cp, this file
/// may also be a directory, but the source may not.
fn keeps(existing: Existing, stat: &Stat, there: &Stat) -> bool {
    match existing {
        _ if stat.is_dir() => false,
        Existing::Replace => false,
        Existing::Keep => true,
        Existing::Update => there.modified >= stat.modified,
    }
}

/// Reports the parts that a copy lacks.
fn report(from: &Endpoint, tally: &Tally) -> Result<()> {
    if let Some(lost) = tally.lost_xattrs() {
        print_error(&format!("not everything was copied: {}: {lost}", from.shown()));
    }
    require_complete("not everything was copied", from.shown(), tally.failed())
}

/// Copies the entries of the directory `from` into the directory `to`. If an entry cannot be copied, the
/// error is printed, and the next entry follows. Leaves out the storage of the volume `to`. Two names of one
/// file become two files, unless both are below one directory that is new in the target.
fn merge(from: &Endpoint, to: &Endpoint, copying: Copying) -> Result<()> {
    if is_same_file(from, &from.lstat().doing("copy", from.shown())?, to)? {
        return Err(Failure::new("cannot copy", from.shown(), "this is the same directory"));
    }
    let mut failures = Failures::default();
    for name in from.names().doing("list", from.shown())? {
        interrupt::check("cp")?;
        let (from, to) = (from.child(&name), to.child(&name));
        if from.is_storage_of(&to) {
            continue;
        }
        let copied = if to.is_storage_of(&from) {
            Err(Failure::new("cannot copy to", to.shown(), "this is the storage of the source"))
        } else {
            copy_one(&from, &to, copying)
        };
        failures.add(copied)?;
    }
    if copying.attributes {
        failures.add(copy_attributes(from, to).and_then(|tally| report(from, &tally)))?;
    }
    failures.finish()
}

fn is_same_file(from: &Endpoint, stat: &Stat, to: &Endpoint) -> Result<bool> {
    let there = to.lstat().doing("copy to", to.shown())?;
    Ok(from.shares_file_system(to) && (there.file_system, there.inode) == (stat.file_system, stat.inode))
}

/// Fails if the directory `from`, which has the attributes `stat`, must not be copied to `to`.
fn check_directory(from: &Endpoint, stat: &Stat, to: &Endpoint, recursive: bool) -> Result<()> {
    if !recursive {
        return Err(Failure::new("cannot copy", from.shown(), "it is a directory: use -r"));
    }
    if !from.shares_file_system(to) {
        return Ok(());
    }
    if to.path == from.path {
        return Err(Failure::new("cannot copy", from.shown(), "this is the same directory"));
    }
    if to.is_below(stat).doing("copy to", to.shown())? {
        return Err(Failure::new("cannot copy", from.shown(), format_args!("{} is inside it", to.shown())));
    }
    Ok(())
}

/// Returns the attributes of `to`, if it exists.
pub(in crate::commands) fn existing(to: &Endpoint) -> Result<Option<Stat>> {
    match to.lstat() {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.errno() == Errno::NOENT => Ok(None),
        Err(error) => Err(error).doing("copy to", to.shown()),
    }
}

/// Fails unless `from` may replace `to`, which has the attributes `there`. Neither may be a directory, they
/// must not be one name of one file, `from` must not be a link to `to`, and the command must not have made
/// `to` from an earlier source.
fn check_replacement(from: &Endpoint, stat: &Stat, to: &Endpoint, there: &Stat) -> Result<()> {
    if stat.is_dir() || there.is_dir() {
        let why = match (stat.is_dir(), there.is_dir()) {
            (false, true) => "it is a directory, and the source is not: choose another name",
            _ => "it exists already: choose another name, or remove it first",
        };
        return Err(Failure::new("cannot copy to", to.shown(), why));
    }
    if is_same_file(from, stat, to)? && from.is_same_name(to).doing("copy", from.shown())? {
        return Err(Failure::new("cannot copy", from.shown(), "this is the same file"));
    }
    if from.is_link_to(stat, to, there) {
        let why = format_args!("it is a link to {}, which it would replace", to.shown());
        return Err(Failure::new("cannot copy", from.shown(), why));
    }
    to.refuse_made("cannot copy to")
}

/// Fails if a regular file would replace the file `to`, which is a device, a pipe or a socket of the host,
/// such as `/dev/null`, or a link to an open file of a process, such as `/dev/stdout`. cp(1) would write into
/// the device, pipe or file.
fn refuse_special(to: &Endpoint) -> Result<()> {
    if !to.is_on_host() {
        return Ok(());
    }
    let what = match to.stat() {
        _ if std::fs::read_link(&to.path).is_ok_and(|target| target.starts_with("/proc")) => {
            "link to an open file of a process"
        }
        Ok(there) if !matches!(there.kind, Kind::File | Kind::Directory) => text::kind_name(there.kind),
        _ => return Ok(()),
    };
    let why = format!("it is a {what}, which a copy would replace: `eyrie cp FILE -` prints a file");
    Err(Failure::new("cannot copy to", to.shown(), why))
}

/// Replaces the file `to` by a copy of `from`. The copy is made under a temporary name in the same directory,
/// and renamed when it is complete. So a failure leaves the old file unchanged.
fn replace(from: &Endpoint, to: &Endpoint, copying: Copying) -> Result<Tally> {
    let temporary = place::temporary_name(&to.path);
    let replaced = copy_and_rename(from, to, &temporary, copying);
    if !replaced.as_ref().is_ok_and(|tally| tally.failed() == 0) {
        // Perhaps the copy was never made, so an error of its removal is ignored. The first error is
        // reported.
        let _ = to.unlink(&temporary);
    }
    replaced
}

fn copy_and_rename(from: &Endpoint, to: &Endpoint, temporary: &Path, copying: Copying) -> Result<Tally> {
    let tally = copy(from, to, temporary, copying.reflink, copying.verbose)?;
    if tally.failed() == 0 {
        if is_seen_twice(from, to, temporary) {
            return Err(Failure::new("cannot copy", from.shown(), "this is the same file"));
        }
        to.rename(temporary, &to.path, RenameMode::Replace).doing("replace", to.shown())?;
        to.note_made();
    }
    Ok(tally)
}

/// Returns true if `from` and `to` are one name of one file, and one end reaches it through a mount of the
/// served volume. Without this check, a move would copy the file over itself, and then remove it. Inode
/// numbers and times cannot show this, because a copy of a whole volume has the same ones. But the new file
/// `temporary`, which is beside `to`, is also beside `from` only if both ends are in one directory.
fn is_seen_twice(from: &Endpoint, to: &Endpoint, temporary: &Path) -> bool {
    let beside = temporary.file_name().map(|name| from.path.with_file_name(name));
    !from.shares_file_system(to)
        && from.path.file_name() == to.path.file_name()
        && beside.is_some_and(|path| from.lstat_at(&path).is_ok())
}
