//! `eyrie rm`: removes files.

use std::io::Write;
use std::path::{Component, PathBuf};

use clap::Args;
use eyrie::{Errno, Files, Kind, Posix, PosixExt, Target, WalkStep};

use crate::failure::{Doing, Failure, Failures, Result};
use crate::opened::for_each;
use crate::output::Output;
use crate::place::{self, Inside, Place};
use crate::volumes::Purpose;

/// Remove files
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eyrie rm vol:/a vol:/b\n  eyrie rm -rf vol:/share\n  eyrie rm -rv vol:/old"
)]
pub struct RmArgs {
    /// Files to remove
    #[arg(value_name = "VOLUME:/path", required_unless_present = "force", value_parser = Place::parser())]
    places: Vec<Place>,
    /// Remove directories and their contents
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories
    #[arg(long = "dir", short)]
    directory: bool,
    /// Ignore files that do not exist, and succeed if no file is named
    #[arg(long, short)]
    force: bool,
    /// Print each file after it is removed
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(arguments: &RmArgs, output: &mut Output) -> Result<()> {
    let places = place::all_inside(&arguments.places)?;
    output.need_no_reader();
    for_each(&places, Purpose::Change, |files, inside| match remove(arguments, files, inside, output)? {
        Err(error) if arguments.force && matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => Ok(()),
        removed => removed.doing("remove", inside),
    })
}

/// Removes one file, or with `-r` one tree. The inner error comes from the look-up or the removal of the
/// file. The outer error has one of four causes: this command refuses the path, the root cannot be read, the
/// removal of a tree fails, or standard output fails.
fn remove(
    arguments: &RmArgs,
    files: &Files,
    inside: &Inside,
    output: &mut Output,
) -> Result<eyrie::Result<()>> {
    let path = &inside.path;
    let refuse = |why: &str| Err(Failure::new("cannot remove", inside, why));
    let (last, text) = (path.components().next_back(), path.to_string_lossy());
    // `components` leaves out a dot at the end of a path, so this check also looks at the text of the path.
    // Without the check, a removal would empty the directory, and only then would `rmdir` refuse the path.
    if last == Some(Component::ParentDir) || text.trim_end_matches('/').ends_with("/.") {
        return refuse("its last name is . or ..: use the name of the directory");
    }
    let root = files.stat("/".into()).doing("read", inside)?;
    let (removed, what) = match files.stat(Target::NoFollow(path.into())) {
        Ok(stat) if stat.inode == root.inode => {
            return refuse("the root cannot be removed: name its entries, or remove the volume's directory");
        }
        Ok(stat) if stat.is_dir() && arguments.recursive => {
            return remove_tree(arguments, files, inside, output).map(Ok);
        }
        Ok(stat) if stat.is_dir() && arguments.directory => (files.rmdir(path.into()), "directory "),
        Ok(stat) if stat.is_dir() => return refuse("it is a directory: use -r"),
        Ok(_) => (files.unlink(path.into()), ""),
        Err(error) => (Err(error), ""),
    };
    if removed.is_ok() && arguments.verbose {
        writeln!(output, "removed {what}'{inside}'")?;
    }
    Ok(removed)
}

/// Removes a tree. If a file cannot be removed, the error is printed, and the next file follows. As with GNU
/// rm, no further error is printed for the directories that lead to this file, and a directory that cannot be
/// read is removed if it is empty.
fn remove_tree(arguments: &RmArgs, files: &Files, inside: &Inside, output: &mut Output) -> Result<()> {
    let mut failures = Failures::default();
    // The path of the latest failure. The walk leaves a directory directly after the steps inside it, so this
    // path also tells if any step inside the directory has failed.
    let mut failed: Option<PathBuf> = None;
    // The directory that the latest step has entered, and the directories from there up that could not be
    // read. The errors of the latter count only if the directories cannot be removed.
    let mut entered: Option<PathBuf> = None;
    let mut unread: Vec<(PathBuf, eyrie::Error)> = Vec::new();
    for step in files.walk(&inside.path).doing("remove", inside)? {
        let (relative, what, removed) = match step {
            WalkStep::Entry(entry) if entry.kind == Kind::Directory => {
                entered = Some(entry.relative);
                continue;
            }
            WalkStep::Entry(entry) => {
                let removed = entry.dir().unlink(entry.name().into());
                (entry.relative, "", removed)
            }
            WalkStep::Left(entry) => {
                let removed = entry.dir().rmdir(entry.name().into());
                let cause = unread.pop_if(|(path, _)| *path == entry.relative);
                let is_told = failed.as_ref().is_some_and(|path| path.starts_with(&entry.relative));
                match (removed, cause) {
                    (Err(_), Some((_, cause))) => (entry.relative, "", Err(cause)),
                    // The error inside this directory is printed already.
                    (Err(error), None) if is_told => {
                        if error.errno() != Errno::NOTEMPTY {
                            failures.add(Err(Failure::silent(1)))?;
                        }
                        continue;
                    }
                    (removed, _) => (entry.relative, "directory ", removed),
                }
            }
            // The walk leaves this directory later.
            WalkStep::Failed(relative, error) if entered.as_ref() == Some(&relative) => {
                unread.push((relative, error));
                continue;
            }
            WalkStep::Failed(relative, error) => (relative, "", Err(error)),
        };
        entered = None;
        match removed {
            Ok(()) if arguments.verbose => writeln!(output, "removed {what}'{}'", inside.join(relative))?,
            Ok(()) => {}
            // Another program has removed the file since the walk found it.
            Err(error) if arguments.force && error.errno() == Errno::NOENT => {}
            Err(error) => {
                failures.add(Err(error).doing("remove", inside.join(&relative)))?;
                failed = Some(relative);
            }
        }
    }
    for (relative, error) in unread {
        failures.add(Err(error).doing("remove", inside.join(relative)))?;
    }
    failures.finish()
}

#[cfg(test)]
mod tests {
    use eyrie::{Credentials, Volume};

    use super::*;

    #[test]
    fn empty_directory_that_cannot_be_read_is_removed() {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let volume = Volume::create(dir.path().join("vol"), 64 << 20).unwrap();
        let (root, user) = (volume.files(Credentials::root()), Credentials::new(1000, 1000, &[]));
        root.create_dir_all("/tree/full").unwrap();
        root.write("/tree/full/file", "").unwrap();
        root.create_dir("/tree/empty").unwrap();
        for (path, mode) in [("/", 0o777), ("/tree", 0o777), ("/tree/full", 0), ("/tree/empty", 0)] {
            root.chmod(path.into(), mode).unwrap();
        }
        let remove = || {
            let (places, recursive, directory, force, verbose) = (Vec::new(), true, false, false, false);
            let arguments = RmArgs { places, recursive, directory, force, verbose };
            let inside = Inside { volume: "vol".into(), path: "/tree".into() };
            let removed = remove_tree(&arguments, &volume.files(user.clone()), &inside, &mut Output::new());
            removed.map_err(|failure| failure.status())
        };
        assert_eq!(remove(), Err(1));
        assert!(root.stat("/tree/empty".into()).is_err());
        assert!(root.stat("/tree/full/file".into()).is_ok());
        root.remove_dir_all("/tree/full").unwrap();
        root.create_dir("/tree/empty").unwrap();
        root.chmod("/tree/empty".into(), 0).unwrap();
        assert_eq!(remove(), Ok(()));
        assert!(root.stat("/tree".into()).is_err());
    }
}
