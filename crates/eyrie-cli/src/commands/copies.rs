//! `cp` and `mv`, between any two places.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use eyrie::{Credentials, Engine, Errno, Files, Host, Posix, PosixExt, RenameMode, Stat, Volume};

use super::complete;
use super::transfer::host;
use crate::arguments::{Copy, Move};
use crate::copy::{Job, Tally, Watch, copy_tree};
use crate::failure::{Doing, Failure, Result};
use crate::interrupt;
use crate::place::Place;
use crate::{tell, text};

/// The volumes of one command, each opened once.
#[derive(Default)]
struct Volumes {
    open: Vec<(PathBuf, Volume)>,
}

impl Volumes {
    fn files(&mut self, path: &Path) -> Result<(usize, Files)> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let index = match self.open.iter().position(|(known, _)| *known == real) {
            Some(index) => index,
            None => {
                self.open.push((real, super::open(path)?));
                self.open.len() - 1
            }
        };
        // Copies get the modes of their sources, no umask applied.
        Ok((index, self.open[index].1.files(Credentials::of_process())))
    }

    fn close(self) -> Result<()> {
        for (path, volume) in self.open {
            volume.close().doing("close the volume", text::path(&path))?;
        }
        Ok(())
    }
}

/// A file system of either kind.
enum Ground {
    Host(Host),
    /// With the number of its volume.
    Files(usize, Files),
}

/// A path on its file system.
struct End {
    ground: Ground,
    path: PathBuf,
    /// How its paths begin when they are shown.
    prefix: String,
}

impl End {
    fn new(place: &Place, volumes: &mut Volumes) -> Result<End> {
        match place {
            Place::Host(path) => {
                let (host, path) = host(path)?;
                Ok(End { ground: Ground::Host(host), path, prefix: String::new() })
            }
            Place::Inside(inside) => {
                let (volume, files) = volumes.files(&inside.volume)?;
                let prefix = format!("{}:", text::path(&inside.volume));
                Ok(End { ground: Ground::Files(volume, files), path: inside.path.clone(), prefix })
            }
        }
    }

    fn shown(&self) -> String {
        format!("{}{}", self.prefix, text::path(&self.path))
    }

    fn stat(&self) -> eyrie::Result<Stat> {
        match &self.ground {
            Ground::Host(host) => host.stat(&self.path),
            Ground::Files(_, files) => files.stat(&self.path),
        }
    }

    fn lstat(&self) -> eyrie::Result<Stat> {
        match &self.ground {
            Ground::Host(host) => host.lstat(&self.path),
            Ground::Files(_, files) => files.lstat(&self.path),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> eyrie::Result<()> {
        match &self.ground {
            Ground::Host(host) => host.rename(from, to, RenameMode::Replace),
            Ground::Files(_, files) => files.rename(from, to, RenameMode::Replace),
        }
    }

    fn unlink(&self, path: &Path) -> eyrie::Result<()> {
        match &self.ground {
            Ground::Host(host) => host.unlink(path),
            Ground::Files(_, files) => files.unlink(path),
        }
    }

    fn remove(&self) -> eyrie::Result<()> {
        match &self.ground {
            Ground::Host(host) => host.remove_dir_all(&self.path),
            Ground::Files(_, files) => files.remove_dir_all(&self.path),
        }
    }

    /// Makes what is in a volume durable, before what it was copied from is removed.
    fn sync(&self) -> eyrie::Result<()> {
        match &self.ground {
            // As mv(1), which leaves that to the host.
            Ground::Host(_) => Ok(()),
            Ground::Files(_, files) => {
                files.engine().sync().map_err(|error| eyrie::Error::from_engine(error, "sync"))
            }
        }
    }

    /// The same file system as the other's.
    fn is_with(&self, other: &End) -> bool {
        match (&self.ground, &other.ground) {
            (Ground::Host(_), Ground::Host(_)) => true,
            (Ground::Files(left, _), Ground::Files(right, _)) => left == right,
            _ => false,
        }
    }
}

/// The name under which something goes into a directory.
fn base(source: &Place) -> Result<&OsStr> {
    let path = match source {
        Place::Host(path) => path,
        Place::Inside(inside) => &inside.path,
    };
    path.file_name()
        .ok_or_else(|| Failure::new("cannot copy under its own name", source, "say the new name in full"))
}

/// Where `source` goes: under its own name if the target is a directory.
fn landing(source: &Place, target: &Place, many: bool, volumes: &mut Volumes) -> Result<End> {
    let mut end = End::new(target, volumes)?;
    if end.stat().is_ok_and(|stat| stat.is_dir()) {
        let name = base(source)?;
        end.path.push(name);
    } else if many {
        return Err(Failure::usage(
            "not a directory",
            end.shown(),
            "several things need a directory to go to",
        ));
    }
    Ok(end)
}

fn copy(from: &End, to: &End, path: &Path) -> Result<Tally> {
    fn between<S: Posix + Sync + Send, D: Posix + Sync + Send>(
        source: &S,
        target: &D,
        (from, to): (&End, &End),
        path: &Path,
    ) -> Result<Tally> {
        copy_tree(&Job {
            source,
            from: &from.path,
            target,
            to: path,
            except: None,
            watch: &Watch::new(Path::new(&from.shown()), to.prefix.clone(), "copy", false),
        })
    }
    match (&from.ground, &to.ground) {
        (Ground::Host(source), Ground::Host(target)) => between(source, target, (from, to), path),
        (Ground::Host(source), Ground::Files(_, target)) => between(source, target, (from, to), path),
        (Ground::Files(_, source), Ground::Host(target)) => between(source, target, (from, to), path),
        (Ground::Files(_, source), Ground::Files(_, target)) => between(source, target, (from, to), path),
    }
}

/// Copies one thing to a name that may be that of a file, which is then replaced.
fn place_copy(from: &End, to: &End, recursive: bool) -> Result<()> {
    let stat = from.lstat().doing("copy", from.shown())?;
    if stat.is_dir() && !recursive {
        return Err(Failure::new("cannot copy", from.shown(), "it is a directory: use -r"));
    }
    if stat.is_dir() && from.is_with(to) && to.path.starts_with(&from.path) {
        return Err(Failure::new("cannot copy", from.shown(), format_args!("{} is inside it", to.shown())));
    }
    let there = match to.lstat() {
        Ok(there) => Some(there),
        Err(error) if error.errno() == Errno::NOENT => None,
        Err(error) => return Err(error).doing("copy to", to.shown()),
    };
    let tally = match there {
        None => copy(from, to, &to.path)?,
        Some(there) if stat.is_dir() || there.is_dir() => {
            let why = "it exists already: choose another name, or remove it first";
            return Err(Failure::new("cannot copy to", to.shown(), why));
        }
        Some(there) if from.is_with(to) && there.inode == stat.inode && from.path == to.path => {
            return Err(Failure::new("cannot copy", from.shown(), "this is the same file"));
        }
        Some(_) => {
            let aside = to.path.with_file_name(format!(".eyrie-{}", std::process::id()));
            let replaced = copy(from, to, &aside).and_then(|tally| {
                if tally.failed() == 0 {
                    to.rename(&aside, &to.path).doing("replace", to.shown())?;
                }
                Ok(tally)
            });
            if !replaced.as_ref().is_ok_and(|tally| tally.failed() == 0) {
                // It may not be there at all; what went wrong before is told.
                let _ = to.unlink(&aside);
            }
            replaced?
        }
    };
    if let Some(lost) = tally.lost_xattrs() {
        tell(&format!("not everything was copied: {}: {lost}", from.shown()));
    }
    complete("not everything was copied", from.shown(), tally.failed())
}

/// Copies.
pub fn cp(arguments: Copy) -> Result<()> {
    each(&arguments.sources, &arguments.target, |from, to| place_copy(from, to, arguments.recursive))
}

/// Moves.
pub fn mv(arguments: Move) -> Result<()> {
    each(&arguments.sources, &arguments.target, |from, to| {
        if from.is_with(to) {
            return from
                .rename(&from.path, &to.path)
                .doing("move", format!("{} to {}", from.shown(), to.shown()));
        }
        place_copy(from, to, true)?;
        to.sync().doing("make durable", to.shown())?;
        from.remove().doing("remove after copying", from.shown())
    })
}

fn each(sources: &[Place], target: &Place, work: impl Fn(&End, &End) -> Result<()>) -> Result<()> {
    interrupt::watch();
    let mut volumes = Volumes::default();
    let result = sources.iter().try_for_each(|source| {
        let from = End::new(source, &mut volumes)?;
        let to = landing(source, target, sources.len() > 1, &mut volumes)?;
        work(&from, &to)
    });
    let closed = volumes.close();
    result.and(closed)
}
