//! Visits each file of a tree, for `chmod`, `chown`, `chattr` and `lsattr`.

use std::path::Path;

use clap::Args;
use eyrie::{Dir, Files, Kind, Posix, WalkStep};

use super::ls::walk;
use crate::failure::{Doing, Failures, Result};
use crate::opened::for_each;
use crate::place::{self, Inside, Place, target};
use crate::volumes::Purpose;

/// A file to change, or for `lsattr` to show.
pub(super) struct VisitedFile<'t> {
    /// The directory in which `path` names the file.
    pub files: &'t Dir<Files>,
    pub path: &'t Path,
    /// The place of the file, for messages.
    pub place: Inside,
    /// True for a symbolic link below an argument. Commands do not follow such a link.
    pub is_link_below: bool,
}

/// The arguments that name the files to change.
#[derive(Debug, Args)]
pub(super) struct FilesToChange {
    /// Files and directories to change
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Change directories and everything below them
    #[arg(long, short = 'R')]
    pub recursive: bool,
}

impl FilesToChange {
    /// Calls `change` for each file. A directory comes before its entries. If a file cannot be changed, the
    /// error is printed, and the next file follows. `follows_argument` has the meaning of
    /// [`Reach::follows_argument`].
    ///
    /// # Errors
    /// Fails if a file could not be read or changed, or if a volume cannot be opened or closed.
    pub fn each(
        &self,
        follows_argument: bool,
        mut change: impl FnMut(&VisitedFile<'_>) -> Result<()>,
    ) -> Result<()> {
        let reach = Reach { recursive: self.recursive, follows_argument };
        for_each(&place::all_inside(&self.places)?, Purpose::Change, |files, inside| {
            each_file(files, inside, reach, &mut change)
        })
    }
}

/// The files that a command takes for each argument.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    /// True if the command takes everything below a directory, too.
    pub recursive: bool,
    /// True if an argument that is a symbolic link stands for the directory to which it leads. Has an effect
    /// only if `recursive` is true.
    pub follows_argument: bool,
}

/// Calls `work` for the file at `inside`, and with [`Reach::recursive`] for all files below it. A directory
/// comes before its entries. If `work` fails, the error is printed, and the next file follows.
///
/// # Errors
/// Fails if a file could not be read, or if `work` failed.
pub(super) fn each_file(
    files: &Files,
    inside: &Inside,
    reach: Reach,
    mut work: impl FnMut(&VisitedFile<'_>) -> Result<()>,
) -> Result<()> {
    let path = &inside.path;
    let stat = files.stat(target(path, reach.follows_argument));
    if !reach.recursive || !stat.is_ok_and(|stat| stat.is_dir()) {
        let files = &Dir::root(files.clone());
        return work(&VisitedFile { files, path, place: inside.clone(), is_link_below: false });
    }
    let mut failures = Failures::default();
    for step in walk(files, inside, true)? {
        failures.add(match step {
            WalkStep::Left(_) => Ok(()),
            WalkStep::Failed(relative, error) => Err(error).doing("read", inside.join(relative)),
            WalkStep::Entry(entry) => work(&VisitedFile {
                files: entry.dir(),
                path: entry.name(),
                place: inside.join(&entry.relative),
                is_link_below: entry.depth > 0 && entry.kind == Kind::Symlink,
            }),
        })?;
    }
    failures.finish()
}
