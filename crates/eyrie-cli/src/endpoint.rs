//! The two ends of a copy or a move: a path on the host or in a volume, with the calls that `cp` and `mv`
//! need.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use eyrie::{Credentials, Engine, Files, Host, Posix, PosixExt, RenameMode, Stat};

use crate::copy::{Job, Reporter, Tally, copy_tree};
use crate::failure::{Failure, Result};
use crate::opened::{OpenVolumes, with_volumes};
use crate::place::Place;
use crate::{interrupt, text, volumes};

/// The host's file system, or that of a volume.
enum FileSystem {
    Host(Host),
    /// The number of the volume among the [`OpenVolumes`], and its files.
    Volume(usize, Files),
}

/// A path, and the file system that has it.
pub struct Endpoint {
    file_system: FileSystem,
    /// The path.
    pub path: PathBuf,
    /// The prefix of printed paths: the name of the volume, or empty for the host.
    prefix: String,
}

impl Endpoint {
    fn new(place: &Place, volumes: &mut OpenVolumes) -> Result<Endpoint> {
        match place {
            Place::Host(path) => {
                let (host, path) = volumes::host(path)?;
                Ok(Endpoint { file_system: FileSystem::Host(host), path, prefix: String::new() })
            }
            Place::Inside(inside) => {
                let (volume, opened) = volumes.get(&inside.volume)?;
                // Copies get the modes of their sources, so the umask does not apply.
                let files = opened.files(Credentials::of_process());
                let prefix = format!("{}:", text::path(&inside.volume));
                let file_system = FileSystem::Volume(volume, files);
                Ok(Endpoint { file_system, path: inside.path.clone(), prefix })
            }
        }
    }

    /// Returns the place in the form in which a command line names it.
    pub fn shown(&self) -> String {
        format!("{}{}", self.prefix, text::path(&self.path))
    }

    /// Returns the attributes of the file that the path leads to.
    fn stat(&self) -> eyrie::Result<Stat> {
        match &self.file_system {
            FileSystem::Host(host) => host.stat(&self.path),
            FileSystem::Volume(_, files) => files.stat(&self.path),
        }
    }

    /// Returns the attributes of the path itself, which may be a symbolic link.
    pub fn lstat(&self) -> eyrie::Result<Stat> {
        match &self.file_system {
            FileSystem::Host(host) => host.lstat(&self.path),
            FileSystem::Volume(_, files) => files.lstat(&self.path),
        }
    }

    /// Renames an entry of this file system.
    pub fn rename(&self, from: &Path, to: &Path) -> eyrie::Result<()> {
        match &self.file_system {
            FileSystem::Host(host) => host.rename(from, to, RenameMode::Replace),
            FileSystem::Volume(_, files) => files.rename(from, to, RenameMode::Replace),
        }
    }

    /// Removes the name of a file that is not a directory.
    pub fn unlink(&self, path: &Path) -> eyrie::Result<()> {
        match &self.file_system {
            FileSystem::Host(host) => host.unlink(path),
            FileSystem::Volume(_, files) => files.unlink(path),
        }
    }

    /// Removes the file or directory tree at the path.
    pub fn remove(&self) -> eyrie::Result<()> {
        match &self.file_system {
            FileSystem::Host(host) => host.remove_dir_all(&self.path),
            FileSystem::Volume(_, files) => files.remove_dir_all(&self.path),
        }
    }

    /// Makes all earlier changes durable if the file system is a volume.
    pub fn sync(&self) -> eyrie::Result<()> {
        match &self.file_system {
            // mv(1) does not sync the host's file system, either.
            FileSystem::Host(_) => Ok(()),
            FileSystem::Volume(_, files) => {
                files.engine().sync().map_err(|error| eyrie::Error::from_engine(error, "sync"))
            }
        }
    }

    /// Returns true if both endpoints are on the host, or in the same volume.
    pub fn is_with(&self, other: &Endpoint) -> bool {
        match (&self.file_system, &other.file_system) {
            (FileSystem::Host(_), FileSystem::Host(_)) => true,
            (FileSystem::Volume(left, _), FileSystem::Volume(right, _)) => left == right,
            _ => false,
        }
    }
}

/// Returns the last component of the path `source`. A copy into a directory gets this name.
fn base(source: &Place) -> Result<&OsStr> {
    let path = match source {
        Place::Host(path) => path,
        Place::Inside(inside) => &inside.path,
    };
    path.file_name().ok_or_else(|| {
        Failure::new("the source has no name of its own", source, "add the name of the copy to the target")
    })
}

/// Returns the endpoint of the copy of `source`. If the target is a directory, the copy becomes an entry of
/// this directory and keeps the name of the source. Otherwise the copy becomes the target itself. `many` is
/// true if the command has several sources. The target must then be a directory.
fn destination(source: &Place, target: &Place, many: bool, volumes: &mut OpenVolumes) -> Result<Endpoint> {
    let mut end = Endpoint::new(target, volumes)?;
    if end.stat().is_ok_and(|stat| stat.is_dir()) {
        let name = base(source)?;
        end.path.push(name);
    } else if many {
        return Err(Failure::usage("not a directory", end.shown(), "several sources need a directory"));
    }
    Ok(end)
}

/// Copies the tree `from` to `path`, which is on the file system of `to`.
///
/// # Errors
/// As [`copy_tree`].
pub fn copy(from: &Endpoint, to: &Endpoint, path: &Path) -> Result<Tally> {
    fn between<S: Posix + Sync + Send, D: Posix + Sync + Send>(
        source: &S,
        target: &D,
        (from, to): (&Endpoint, &Endpoint),
        path: &Path,
    ) -> Result<Tally> {
        copy_tree(&Job {
            source,
            from: &from.path,
            target,
            to: path,
            except: None,
            reporter: &Reporter::new(Path::new(&from.shown()), to.prefix.clone(), "copy", false),
        })
    }
    match (&from.file_system, &to.file_system) {
        (FileSystem::Host(source), FileSystem::Host(target)) => between(source, target, (from, to), path),
        (FileSystem::Host(source), FileSystem::Volume(_, target)) => {
            between(source, target, (from, to), path)
        }
        (FileSystem::Volume(_, source), FileSystem::Host(target)) => {
            between(source, target, (from, to), path)
        }
        (FileSystem::Volume(_, source), FileSystem::Volume(_, target)) => {
            between(source, target, (from, to), path)
        }
    }
}

/// Calls `work` for each source and the endpoint of its copy, and stops at the first error. Closes the
/// volumes even after an error.
///
/// # Errors
/// The first error of opening a volume, of finding the target or of `work`, or else of closing.
pub fn for_each_source(
    sources: &[Place],
    target: &Place,
    work: impl Fn(&Endpoint, &Endpoint) -> Result<()>,
) -> Result<()> {
    interrupt::install();
    with_volumes(|volumes| {
        sources.iter().try_for_each(|source| {
            let from = Endpoint::new(source, volumes)?;
            let to = destination(source, target, sources.len() > 1, volumes)?;
            work(&from, &to)
        })
    })
}
