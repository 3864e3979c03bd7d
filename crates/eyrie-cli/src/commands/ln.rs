//! `eyrie ln`: makes hard and symbolic links.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use eyrie::{Errno, Files, Posix, PosixExt, RenameMode, Target};

use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::place::{self, Inside, Place, storage};
use crate::volumes::Purpose;
use crate::{text, volumes};

/// Make hard or symbolic links
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie ln vol:/a vol:/same
  eyrie ln -s ../a vol:/dir/link
  eyrie ln -sfn releases/2 vol:/current

If the new name is a directory, the link is made in it, with the name of the existing file.")]
pub struct LnArgs {
    /// Existing file (VOLUME:/path), or with -s the target of the link
    #[arg(value_name = "EXISTING")]
    existing: OsString,
    /// Name of the new link, or a directory for it
    #[arg(value_name = "VOLUME:/new", value_parser = Place::parser())]
    new: Place,
    /// Make a symbolic link instead of a hard link
    #[arg(long, short)]
    symbolic: bool,
    /// Replace a file that has the new name
    #[arg(long, short)]
    force: bool,
    /// Treat the new name as a file, even if it is a symbolic link to a directory
    #[arg(long, short)]
    no_dereference: bool,
    /// Print the link after it is made
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(arguments: LnArgs, output: &mut Output) -> Result<()> {
    let LnArgs { existing, new, symbolic, force, no_dereference, verbose } = arguments;
    let new = new.inside()?;
    // The target of a symbolic link may be any text, and need not be a place.
    let existing = if symbolic { PathBuf::from(existing) } else { path_beside(&new, &existing)? };
    volumes::with_files(&new.volume, Purpose::Change, |files| {
        let new = name_of_link(files, &existing, new.clone(), !no_dereference)?;
        make(files, &existing, &new, symbolic, force)?;
        if verbose {
            let arrow = if symbolic { "->" } else { "=>" };
            writeln!(output, "'{new}' {arrow} '{}'", text::path(&existing))?;
        }
        Ok(())
    })
}

/// Returns the path that `existing` names in the volume of `new`.
fn path_beside(new: &Inside, existing: &OsString) -> Result<PathBuf> {
    let existing = Place::parse(existing).inside()?;
    if storage(&existing.volume) != storage(&new.volume) {
        let why = "a hard link cannot leave its volume: copy the file (eyrie cp)";
        return Err(Failure::new("cannot link", existing, why));
    }
    Ok(existing.path)
}

/// Returns the place of the link: `new` itself, or a name in the directory `new`.
fn name_of_link(files: &Files, existing: &Path, new: Inside, follow: bool) -> Result<Inside> {
    if !files.stat(place::target(&new.path, follow)).is_ok_and(|stat| stat.is_dir()) {
        return Ok(new);
    }
    match existing.file_name() {
        Some(name) => Ok(new.join(name)),
        None => {
            let why = format!("{new} is a directory: add the name of the link");
            Err(Failure::new("cannot link", text::path(existing), why))
        }
    }
}

fn make(files: &Files, existing: &Path, new: &Inside, symbolic: bool, force: bool) -> Result<()> {
    let link = |path: &Path| {
        if symbolic {
            files.symlink(existing, path.into())
        } else {
            files.link(Target::NoFollow(existing.into()), path.into())
        }
    };
    let made = match link(&new.path) {
        Err(error) if force && error.errno() == Errno::EXIST => replace(files, existing, new, symbolic, link),
        made => made,
    };
    match made {
        // A hard link fails in the same way if its directory or the existing file does not exist.
        Err(error) if !symbolic && error.errno() == Errno::NOENT && is_missing(files, existing) => {
            Err(error).doing("link", Inside { volume: new.volume.clone(), path: existing.to_owned() })
        }
        made => made.doing("link", new),
    }
}

fn is_missing(files: &Files, path: &Path) -> bool {
    files.stat(Target::NoFollow(path.into())).is_err_and(|error| error.errno() == Errno::NOENT)
}

/// Returns true if `new` is the file to which a symbolic link with this name and the target `existing` would
/// lead. The file would then be lost.
fn would_lead_to_itself(files: &Files, existing: &Path, new: &Path) -> bool {
    let is_link = files.stat(Target::NoFollow(new.into())).is_ok_and(|stat| stat.is_symlink());
    let led = new.parent().and_then(|dir| files.canonicalize(dir.join(existing)).ok());
    !is_link && led.is_some() && led == files.canonicalize(new).ok()
}

/// Replaces the file `new` by a link. The link is made under another name and then renamed, so a failure
/// leaves the old file unchanged.
fn replace(
    files: &Files,
    existing: &Path,
    new: &Inside,
    symbolic: bool,
    link: impl Fn(&Path) -> eyrie::Result<()>,
) -> eyrie::Result<()> {
    // If both names already belong to one file, the rename below would do nothing, and would leave the name
    // `temporary` behind.
    if !symbolic
        && files.stat(Target::NoFollow(existing.into()))?.inode
            == files.stat(Target::NoFollow((&new.path).into()))?.inode
    {
        return Ok(());
    }
    if symbolic && would_lead_to_itself(files, existing, &new.path) {
        let why = "the link would replace the file to which it leads: choose another name";
        return Err(eyrie::Error::with_reason(Errno::INVAL, "link", why));
    }
    let temporary = place::temporary_name(&new.path);
    link(&temporary)?;
    let renamed = files.rename_with((&temporary).into(), (&new.path).into(), RenameMode::Replace);
    if renamed.is_err() {
        // An error of this removal is ignored, because the error of the rename is reported.
        let _ = files.unlink((&temporary).into());
    }
    renamed
}
