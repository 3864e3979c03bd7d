//! `eyrie cp`: copies files between host and volumes, in any direction.

use std::path::Path;

use clap::Args;
use eyrie::{Errno, Stat};

use crate::copy::Tally;
use crate::endpoint::{Endpoint, copy, for_each_source};
use crate::failure::{Doing, Failure, Result, print_error, require_complete};
use crate::place::{self, Place};

/// Copy files to, from, inside or between volumes
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  eyrie cp notes.txt vol:/notes.txt
  eyrie cp -r vol:/share/doc ./doc
  eyrie cp -r one:/data two:/data

Copies keep modes, times, links, holes and extended attributes, as with `cp -a`. Owners are kept if root \
copies. Symbolic links are copied, not followed.
In an existing directory the copy gets the name of its source. An existing file is replaced. An existing \
directory is not.

{}", place::HELP))]
pub struct CpArgs {
    /// Files and directories to copy
    #[arg(value_name = "SOURCE", required = true, value_parser = Place::parser())]
    sources: Vec<Place>,
    /// New name of the copy, or an existing directory to copy into
    #[arg(value_name = "TARGET", value_parser = Place::parser())]
    target: Place,
    /// Copy directories and their contents
    #[arg(long, short)]
    recursive: bool,
}

pub fn run(arguments: CpArgs) -> Result<()> {
    let CpArgs { sources, target, recursive } = arguments;
    for_each_source(&sources, &target, |from, to| copy_one(from, to, recursive))
}

/// Copies one file or tree. A copy of a file replaces an existing file.
pub(super) fn copy_one(from: &Endpoint, to: &Endpoint, recursive: bool) -> Result<()> {
    let stat = from.lstat().doing("copy", from.shown())?;
    if stat.is_dir() {
        check_directory(from, to, recursive)?;
    }
    let tally = match existing(to)? {
        None => copy(from, to, &to.path)?,
        Some(there) => {
            check_replacement(from, &stat, to, &there)?;
            replace(from, to)?
        }
    };
    if let Some(lost) = tally.lost_xattrs() {
        print_error(&format!("not everything was copied: {}: {lost}", from.shown()));
    }
    require_complete("not everything was copied", from.shown(), tally.failed())
}

/// Fails if the directory `from` must not be copied to `to`.
fn check_directory(from: &Endpoint, to: &Endpoint, recursive: bool) -> Result<()> {
    if !recursive {
        return Err(Failure::new("cannot copy", from.shown(), "it is a directory: use -r"));
    }
    if from.is_with(to) && to.path.starts_with(&from.path) {
        return Err(Failure::new("cannot copy", from.shown(), format_args!("{} is inside it", to.shown())));
    }
    Ok(())
}

/// Returns the attributes of `to`, if it exists.
fn existing(to: &Endpoint) -> Result<Option<Stat>> {
    match to.lstat() {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.errno() == Errno::NOENT => Ok(None),
        Err(error) => Err(error).doing("copy to", to.shown()),
    }
}

/// Fails unless `from` may replace `to`, which has the attributes `there`. Neither may be a directory, and
/// both must not be one path of one file system.
fn check_replacement(from: &Endpoint, stat: &Stat, to: &Endpoint, there: &Stat) -> Result<()> {
    if stat.is_dir() || there.is_dir() {
        let why = "it exists already: choose another name, or remove it first";
        return Err(Failure::new("cannot copy to", to.shown(), why));
    }
    if from.is_with(to) && there.inode == stat.inode && from.path == to.path {
        return Err(Failure::new("cannot copy", from.shown(), "this is the same file"));
    }
    Ok(())
}

/// Replaces the file `to` by a copy of `from`. The copy is made under a temporary name in the same directory,
/// and renamed when it is complete. So a failure leaves the old file unchanged.
fn replace(from: &Endpoint, to: &Endpoint) -> Result<Tally> {
    let aside = place::aside(&to.path);
    let replaced = copy_and_rename(from, to, &aside);
    if !replaced.as_ref().is_ok_and(|tally| tally.failed() == 0) {
        // Perhaps the copy was never made, so an error of its removal is ignored. The first error is
        // reported.
        let _ = to.unlink(&aside);
    }
    replaced
}

fn copy_and_rename(from: &Endpoint, to: &Endpoint, aside: &Path) -> Result<Tally> {
    let tally = copy(from, to, aside)?;
    if tally.failed() == 0 {
        to.rename(aside, &to.path).doing("replace", to.shown())?;
    }
    Ok(tally)
}
