//! `eyrie ln`: makes hard and symbolic links.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use eyrie::Posix;

use crate::failure::{Doing, Failure, Result};
use crate::place::{Inside, Place};
use crate::volumes;

/// Make hard or symbolic links
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie ln vol:/a vol:/same\n  eyrie ln -s ../a vol:/dir/link")]
pub struct LnArgs {
    /// Existing file (VOLUME:/path), or with -s the target of the link
    #[arg(value_name = "EXISTING")]
    existing: OsString,
    /// Name of the new link
    #[arg(value_name = "VOLUME:/new", value_parser = Place::parser())]
    new: Place,
    /// Make a symbolic link instead of a hard link
    #[arg(long, short)]
    symbolic: bool,
}

pub fn run(arguments: LnArgs) -> Result<()> {
    let LnArgs { existing, new, symbolic } = arguments;
    let new = new.inside()?;
    // The target of a symbolic link is any text. It need not be a place.
    let existing = if symbolic { PathBuf::from(existing) } else { path_beside(&new, &existing)? };
    volumes::with_files(&new.volume, |files| {
        let linked =
            if symbolic { files.symlink(&existing, &new.path) } else { files.link(&existing, &new.path) };
        linked.doing("link", &new)
    })
}

/// Returns the path that `existing` names in the volume of `new`.
fn path_beside(new: &Inside, existing: &OsString) -> Result<PathBuf> {
    let existing = Place::parse(existing).inside()?;
    if existing.volume != new.volume {
        let why = format!("{new} is in another volume: use -s, or copy it");
        return Err(Failure::new("cannot link", existing, why));
    }
    Ok(existing.path)
}
