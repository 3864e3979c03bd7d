//! `eyrie rm`: removes files.

use std::path::Component;

use clap::Args;
use eyrie::{Errno, Files, Posix, PosixExt};

use crate::failure::{Doing, Failure, Result};
use crate::place::{Inside, Place};
use crate::volumes;

/// Remove files
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie rm vol:/a vol:/b\n  eyrie rm -rf vol:/share")]
pub struct RmArgs {
    /// Files to remove
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Remove directories and their contents
    #[arg(long, short)]
    recursive: bool,
    /// Ignore files that do not exist
    #[arg(long, short)]
    force: bool,
}

pub fn run(arguments: RmArgs) -> Result<()> {
    let RmArgs { places, recursive, force } = arguments;
    for place in places {
        let inside = place.inside()?;
        volumes::with_files(&inside.volume, |files| match remove(files, &inside, recursive)? {
            Err(error) if force && error.errno() == Errno::NOENT => Ok(()),
            removed => removed.doing("remove", &inside),
        })?;
    }
    Ok(())
}

/// Removes one file, or with `recursive` one tree. The outer error is a refusal of this command, or an error
/// in reading the root. The inner error comes from the look-up or the removal of the file.
fn remove(files: &Files, inside: &Inside, recursive: bool) -> Result<eyrie::Result<()>> {
    let path = &inside.path;
    let refuse = |why: &str| Err(Failure::new("cannot remove", inside, why));
    let (last, text) = (path.components().next_back(), path.to_string_lossy());
    // `Path` leaves out a dot at the end, but `rmdir` refuses such a path after the directory was emptied.
    if last == Some(Component::ParentDir) || text.trim_end_matches('/').ends_with("/.") {
        return refuse("its last name is . or ..: use the name of the directory");
    }
    let root = files.stat("/").doing("read", inside)?;
    Ok(match files.lstat(path) {
        Ok(stat) if stat.inode == root.inode => {
            return refuse("the root cannot be removed: name its entries, or remove the volume's directory");
        }
        Ok(stat) if stat.is_dir() && !recursive => return refuse("it is a directory: use -r"),
        Ok(stat) if stat.is_dir() => files.remove_dir_all(path),
        Ok(_) => files.unlink(path),
        Err(error) => Err(error),
    })
}
