//! `eyrie mv`: renames files, and moves them between host and volumes.

use clap::Args;
use eyrie::{Errno, RenameMode, Stat};

use super::cp::{Copying, Existing, copy_one, existing};
use crate::copy::{Reflink, print_line};
use crate::endpoint::{Endpoint, for_each_source};
use crate::failure::{Doing, Failure, Result, reason};
use crate::place::{self, Place};
use crate::volumes::Purpose;

/// Rename or move files
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  eyrie mv vol:/a vol:/b
  eyrie mv vol:/a vol:/dir
  eyrie mv -nv report.txt vol:/reports/

A move inside a volume, or from host to host, is one atomic rename. Any other move copies the files, and \
then removes the originals.

{}", place::HELP))]
pub struct MvArgs {
    /// Files and directories to move
    #[arg(value_name = "SOURCE", required = true, value_parser = Place::parser())]
    sources: Vec<Place>,
    /// New name, or an existing directory to move into
    #[arg(value_name = "TARGET", value_parser = Place::parser())]
    target: Place,
    /// Replace existing files, which is the default
    #[arg(long, short, overrides_with = "no_clobber")]
    force: bool,
    /// Keep existing files, and do not move the files that would replace them
    #[arg(long, short)]
    no_clobber: bool,
    /// Print each file after it is moved
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(arguments: MvArgs) -> Result<()> {
    for_each_source(&arguments.sources, &arguments.target, "mv", Purpose::Change, |from, to| {
        move_one(from, to, arguments.no_clobber, arguments.verbose)
    })
}

fn move_one(from: &Endpoint, to: &Endpoint, no_clobber: bool, verbose: bool) -> Result<()> {
    if from.shares_file_system(to) {
        if rename(from, to, no_clobber)? && verbose {
            print_line(&format!("renamed '{}' -> '{}'", from.shown(), to.shown()));
        }
        return Ok(());
    }
    if no_clobber && existing(to)?.is_some() {
        return Ok(());
    }
    // The storage is not copied into its own volume, but would be removed with the source.
    if to.storage_below(from).is_some() {
        let why = format!("it contains the storage of {}", to.shown());
        return Err(Failure::new("cannot move", from.shown(), why));
    }
    let copying = Copying {
        recursive: true,
        merge: false,
        attributes: false,
        existing: Existing::Replace,
        refuses_special: false,
        reflink: Reflink::Auto,
        verbose,
    };
    copy_one(from, to, copying)?;
    // A copy in a volume must be durable before its source is removed.
    to.sync().doing("make durable", to.shown())?;
    from.remove().doing("remove after copying", from.shown())?;
    if verbose {
        print_line(&format!("removed '{}'", from.shown()));
    }
    Ok(())
}

/// Renames a file in its file system. With `no_clobber`, returns false if the new name exists already, so
/// that the file keeps its old name.
fn rename(from: &Endpoint, to: &Endpoint, no_clobber: bool) -> Result<bool> {
    let place = || format!("{} to {}", from.shown(), to.shown());
    let mode = if no_clobber { RenameMode::NoReplace } else { RenameMode::Replace };
    if !no_clobber
        && let Ok(source) = from.lstat()
        && let Ok(there) = to.lstat()
    {
        if (there.file_system, there.inode) == (source.file_system, source.inode) {
            if from.is_same_name(to).doing("move", place())? {
                return Err(Failure::new("cannot move", place(), "this is the same file"));
            }
            // A rename between two names of one file would do nothing, and leave both.
            if source.links > 1 && !source.is_dir() {
                from.unlink(&from.path).doing("move", place())?;
                to.note_made();
                return Ok(true);
            }
        }
        if from.is_link_to(&source, to, &there) {
            return Err(Failure::new("cannot move", place(), "the source is a link to the target"));
        }
        if !source.is_dir() {
            to.refuse_made("cannot move to")?;
        }
    }
    match from.rename(&from.path, &to.path, mode) {
        Err(error) if no_clobber && error.errno() == Errno::EXIST => Ok(false),
        Err(error) => {
            let is_of_kinds =
                matches!(error.errno(), Errno::ISDIR | Errno::NOTDIR | Errno::EXIST | Errno::NOTEMPTY);
            let known = match error.errno() {
                Errno::INVAL => reason_of_cycle(from, to),
                _ if is_of_kinds => reason_of_refusal(from, to),
                _ => None,
            };
            let why = known.unwrap_or_else(|| reason(&error));
            Err(Failure::of_errno(error.errno(), "cannot move", place(), why))
        }
        Ok(()) => {
            to.note_made();
            Ok(true)
        }
    }
}

/// Returns the reason why a rename failed, if the new name is inside the renamed directory.
fn reason_of_cycle(from: &Endpoint, to: &Endpoint) -> Option<String> {
    let source = from.lstat().ok().filter(Stat::is_dir)?;
    to.is_below(&source).ok()?.then(|| format!("{} is inside it", to.shown()))
}

/// Returns the reason why a rename failed, if one of the two files is a directory and the other is not.
fn reason_of_refusal(from: &Endpoint, to: &Endpoint) -> Option<String> {
    let (source, target) = (from.lstat().ok()?.is_dir(), to.lstat().ok()?.is_dir());
    let kind = |is_dir| if is_dir { "a directory" } else { "a file" };
    let why = format!("the source is {}, and the target is {}", kind(source), kind(target));
    (source != target).then(|| why + ": choose another name, or remove the target first")
}
