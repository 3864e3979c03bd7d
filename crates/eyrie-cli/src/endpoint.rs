//! The two ends of a copy, a move or a comparison. Each end is a path on the host or in a volume, with the
//! calls that `cp`, `mv` and `diff` need.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use eyrie::{Credentials, Engine, Files, Host, Posix, PosixClones, PosixExt, RenameMode, Stat, Target};

use crate::copy::{Job, Reflink, Reporter, Style, Tally, copy_tree};
use crate::failure::{Failure, Failures, Result};
use crate::opened::{OpenVolumes, with_volumes};
use crate::place::{Place, join, real, storage};
use crate::transfer::refuse_own_storage;
use crate::volumes::Purpose;
use crate::{interrupt, text, volumes};

/// The host's file system, or that of a volume.
enum FileSystem {
    Host(Host),
    /// The number of the volume among the [`OpenVolumes`], and its files.
    Volume(usize, Files),
}

/// A path, and the file system that has it.
pub struct Endpoint {
    file_system: Rc<FileSystem>,
    /// The path, which is absolute.
    pub path: PathBuf,
    /// The place as the command line has it, with the bytes of its names.
    given: PathBuf,
    /// The real path of the volume's storage on the host. `None` for a path of the host.
    storage: Option<PathBuf>,
    /// The paths in the target at which this command has made files and trees. `None` if no other source has
    /// the same last name, so that no other copy can have one of these paths.
    made: Option<Rc<RefCell<HashSet<PathBuf>>>>,
}

impl Endpoint {
    fn new(place: &Place, volumes: &mut OpenVolumes) -> Result<Endpoint> {
        match place {
            Place::Host(path) => {
                let (host, absolute) = volumes::host(path)?;
                let file_system = Rc::new(FileSystem::Host(host));
                let given = path.clone();
                Ok(Endpoint { file_system, path: absolute, given, storage: None, made: None })
            }
            Place::Inside(inside) => {
                let (volume, opened) = volumes.get(&inside.volume)?;
                // Copies get the modes of their sources, so the umask does not apply.
                let files = opened.files(Credentials::of_process().with_umask(0));
                let file_system = Rc::new(FileSystem::Volume(volume, files));
                let path = inside.path.clone();
                let storage = Some(storage(&inside.volume));
                Ok(Endpoint { file_system, given: inside.to_path(), path, storage, made: None })
            }
        }
    }

    /// Returns the place in the form in which a command line names it.
    pub fn shown(&self) -> String {
        text::path(&self.given)
    }

    /// Returns the endpoint of the entry `name` of this directory.
    pub fn child(&self, name: &OsStr) -> Endpoint {
        Endpoint {
            file_system: Rc::clone(&self.file_system),
            path: self.path.join(name),
            given: self.given.join(name),
            storage: self.storage.clone(),
            made: self.made.clone(),
        }
    }

    /// Returns the place of this volume's storage below `source`, which is a path of the host. The result
    /// begins with the path of `source`. Returns `None` if the storage is elsewhere, or if `source` is not a
    /// directory. A symbolic link is not a directory here, because a copy does not follow it.
    pub fn storage_below(&self, source: &Endpoint) -> Option<PathBuf> {
        let storage = self.storage.as_ref().filter(|_| source.storage.is_none())?;
        if !source.lstat().ok()?.is_dir() {
            return None;
        }
        Some(join(&source.path, storage.strip_prefix(source.path.canonicalize().ok()?).ok()?))
    }

    /// Returns true if this is the host's directory or device with the storage of the volume `other`. False
    /// for a symbolic link that leads to the storage, because a copy does not follow the link.
    pub fn is_storage_of(&self, other: &Endpoint) -> bool {
        let storage = other.storage.as_ref().filter(|_| self.storage.is_none());
        // Only a path with the last name of the storage can lead to it without a link at its end, so most
        // paths need no system call.
        storage.is_some_and(|storage| {
            self.path.file_name() == storage.file_name()
                && self.lstat().is_ok_and(|stat| !stat.is_symlink())
                && real(&self.path) == *storage
        })
    }

    /// Notes that this command makes a file or a tree at this path, or has replaced the file at this path.
    pub fn note_made(&self) {
        if let Some(made) = &self.made {
            made.borrow_mut().insert(self.path.clone());
        }
    }

    /// Fails if this command has made the existing file at this path from an earlier source. A later source
    /// must not replace the file, because after a move it is the only copy of the earlier source.
    pub fn refuse_made(&self, what: &str) -> Result<()> {
        let Some(made) = &self.made else { return Ok(()) };
        let made = made.borrow();
        if self.path.ancestors().any(|path| made.contains(path)) {
            let why = "this command has made it from an earlier source: give one of the two another name";
            return Err(Failure::new(what, self.shown(), why));
        }
        Ok(())
    }

    /// Fails if one of the two ends is in the storage of the volume at the other end.
    fn refuse_storage(from: &Endpoint, to: &Endpoint, command: &str) -> Result<()> {
        let is_link = from.lstat().is_ok_and(|stat| stat.is_symlink());
        match (&from.storage, &to.storage) {
            (None, Some(storage)) if !is_link && real(&from.path).starts_with(storage) => {
                let why = "this is the storage of the target";
                Err(Failure::new(format_args!("cannot {command}"), from.shown(), why))
            }
            (Some(storage), None) => refuse_own_storage(storage, &to.path, &format!("cannot {command} to")),
            _ => Ok(()),
        }
    }

    /// Returns the names in this directory, in the order of their bytes.
    pub fn names(&self) -> eyrie::Result<Vec<OsString>> {
        fn names(fs: &impl Posix, path: &Path) -> eyrie::Result<Vec<OsString>> {
            fs.read_dir(path)?.map(|entry| Ok(entry?.name().to_owned())).collect()
        }
        let mut names = match &*self.file_system {
            FileSystem::Host(host) => names(host, &self.path),
            FileSystem::Volume(_, files) => names(files, &self.path),
        }?;
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the attributes of the file that the path leads to.
    pub fn stat(&self) -> eyrie::Result<Stat> {
        self.stat_at(&self.path)
    }

    /// Returns the attributes of the file to which a path of this file system leads.
    fn stat_at(&self, path: &Path) -> eyrie::Result<Stat> {
        match &*self.file_system {
            FileSystem::Host(host) => host.stat(path.into()),
            FileSystem::Volume(_, files) => files.stat(path.into()),
        }
    }

    /// Returns the attributes of the path itself, which may be a symbolic link.
    pub fn lstat(&self) -> eyrie::Result<Stat> {
        self.lstat_at(&self.path)
    }

    /// Returns the attributes of a path of this file system, which may be a symbolic link.
    pub fn lstat_at(&self, path: &Path) -> eyrie::Result<Stat> {
        match &*self.file_system {
            FileSystem::Host(host) => host.stat(Target::NoFollow(path.into())),
            FileSystem::Volume(_, files) => files.stat(Target::NoFollow(path.into())),
        }
    }

    /// Returns true if the path is below the directory with the attributes `directory`, also if symbolic
    /// links lead there. The file system must be that of the directory.
    pub fn is_below(&self, directory: &Stat) -> eyrie::Result<bool> {
        fn is_below(fs: &impl PosixExt, path: &Path, directory: &Stat) -> eyrie::Result<bool> {
            let Some(parent) = path.parent() else { return Ok(false) };
            for above in fs.canonicalize(parent)?.ancestors() {
                let stat = fs.stat(above.into())?;
                if (stat.file_system, stat.inode) == (directory.file_system, directory.inode) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        match &*self.file_system {
            FileSystem::Host(host) => is_below(host, &self.path, directory),
            FileSystem::Volume(_, files) => is_below(files, &self.path, directory),
        }
    }

    /// Returns true if this path, which has the attributes `stat`, is a symbolic link that leads to `to`,
    /// which is no link and has the attributes `there`. If this link replaced `to`, it would lead to itself,
    /// and the file would be lost. As with GNU mv, the link may replace another name of the file.
    pub fn is_link_to(&self, stat: &Stat, to: &Endpoint, there: &Stat) -> bool {
        let is_there = |led: Stat| (led.file_system, led.inode) == (there.file_system, there.inode);
        self.shares_file_system(to)
            && stat.is_symlink()
            && !there.is_symlink()
            && self.stat().is_ok_and(is_there)
            && (there.links == 1 || self.canonicalize().ok() == to.canonicalize().ok())
    }

    /// Returns the absolute path without symbolic links.
    fn canonicalize(&self) -> eyrie::Result<PathBuf> {
        match &*self.file_system {
            FileSystem::Host(host) => host.canonicalize(&self.path),
            FileSystem::Volume(_, files) => files.canonicalize(&self.path),
        }
    }

    /// Returns true if both paths lead to one entry of one directory, and false if they lead to two entries.
    /// Both paths must be in the same file system.
    pub fn is_same_name(&self, other: &Endpoint) -> eyrie::Result<bool> {
        let (Some(one), Some(two)) = (self.path.parent(), other.path.parent()) else { return Ok(true) };
        let (one, two) = (self.stat_at(one)?, other.stat_at(two)?);
        let is_same_directory = (one.file_system, one.inode) == (two.file_system, two.inode);
        Ok(is_same_directory && self.path.file_name() == other.path.file_name())
    }

    /// Renames an entry of this file system.
    pub fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> eyrie::Result<()> {
        match &*self.file_system {
            FileSystem::Host(host) => host.rename_with(from.into(), to.into(), mode),
            FileSystem::Volume(_, files) => files.rename_with(from.into(), to.into(), mode),
        }
    }

    /// Removes the name of a file that is not a directory.
    pub fn unlink(&self, path: &Path) -> eyrie::Result<()> {
        match &*self.file_system {
            FileSystem::Host(host) => host.unlink(path.into()),
            FileSystem::Volume(_, files) => files.unlink(path.into()),
        }
    }

    /// Removes the file or directory tree at the path.
    pub fn remove(&self) -> eyrie::Result<()> {
        match &*self.file_system {
            FileSystem::Host(host) => host.remove_dir_all(&self.path),
            FileSystem::Volume(_, files) => files.remove_dir_all(&self.path),
        }
    }

    /// Makes all earlier changes durable if the file system is a volume.
    pub fn sync(&self) -> eyrie::Result<()> {
        match &*self.file_system {
            // mv(1) does not sync the host's file system, either.
            FileSystem::Host(_) => Ok(()),
            FileSystem::Volume(_, files) => {
                files.engine().sync().map_err(|error| eyrie::Error::from_engine(error, "sync"))
            }
        }
    }

    /// Returns true if the path is one of the host.
    pub fn is_on_host(&self) -> bool {
        self.storage.is_none()
    }

    /// Returns true if both endpoints are on the host, or in the same volume.
    pub fn shares_file_system(&self, other: &Endpoint) -> bool {
        match (&*self.file_system, &*other.file_system) {
            (FileSystem::Host(_), FileSystem::Host(_)) => true,
            (FileSystem::Volume(left, _), FileSystem::Volume(right, _)) => left == right,
            _ => false,
        }
    }
}

/// Returns the last component of the path `source`. A copy into a directory gets this name. `dir/.` has none:
/// cp(1) copies its entries into the target, and not the directory itself.
fn base(source: &Place) -> Result<&OsStr> {
    let path = match source {
        Place::Host(path) => path,
        Place::Inside(inside) => &inside.path,
    };
    // `file_name` leaves out a dot at the end of a path.
    let ends_with_dot = path.to_string_lossy().trim_end_matches('/').ends_with("/.");
    path.file_name().filter(|_| !ends_with_dot).ok_or_else(|| {
        Failure::new("the source has no name of its own", source, "add the name of the copy to the target")
    })
}

/// A part of a command that works with any two file systems.
pub trait BetweenFileSystems {
    /// The result.
    type Output;

    /// Does the work. `source` and `target` are the file systems of two endpoints.
    fn run<S, D>(&mut self, source: &S, target: &D) -> Result<Self::Output>
    where
        S: PosixClones + Clone + Sync + Send + 'static,
        D: PosixClones + Clone + Sync + Send + 'static;
}

/// The copy of the tree `from` to `path`, which is on the file system of `to`.
struct CopyTree<'a> {
    from: &'a Endpoint,
    to: &'a Endpoint,
    path: &'a Path,
    reflink: Reflink,
    verbose: bool,
}

impl BetweenFileSystems for CopyTree<'_> {
    type Output = Tally;

    fn run<S, D>(&mut self, source: &S, target: &D) -> Result<Tally>
    where
        S: PosixClones + Clone + Sync + Send + 'static,
        D: PosixClones + Clone + Sync + Send + 'static,
    {
        let Self { from, to, path, reflink, verbose } = self;
        let style = if *verbose { Style::Pairs } else { Style::Bar };
        let reporter = Reporter::new(&from.given, String::new(), "copy", style);
        // The copy may be made under a temporary name, which no message shows.
        let reporter = &reporter.with_name(path, &to.given);
        // If the volume lies below the copied directory, the copy must not copy the volume into itself.
        let itself = to.storage_below(from);
        let (except, reflink) = (itself.as_deref(), *reflink);
        copy_tree(&Job { source, from: &from.path, target, to: path, except, reflink, reporter })
    }
}

/// The copy of the attributes of the directory `from` to the directory `to`.
struct CopyAttributes<'a> {
    from: &'a Endpoint,
    to: &'a Endpoint,
}

impl BetweenFileSystems for CopyAttributes<'_> {
    type Output = Tally;

    fn run<S, D>(&mut self, source: &S, target: &D) -> Result<Tally>
    where
        S: PosixClones + Clone + Sync + Send + 'static,
        D: PosixClones + Clone + Sync + Send + 'static,
    {
        let Self { from, to } = self;
        let reporter = Reporter::new(&from.given, String::new(), "copy", Style::Bar);
        let reporter = &reporter.with_name(&to.path, &to.given);
        let to = &to.path;
        let (except, reflink) = (None, Reflink::Never);
        let job = Job { source, from: &from.path, target, to, except, reflink, reporter };
        crate::copy::copy_attributes(&job)
    }
}

/// Runs `work` with the file systems of two endpoints.
///
/// # Errors
/// The error of `work`.
pub fn between<T: BetweenFileSystems>(from: &Endpoint, to: &Endpoint, work: &mut T) -> Result<T::Output> {
    match (&*from.file_system, &*to.file_system) {
        (FileSystem::Host(source), FileSystem::Host(target)) => work.run(source, target),
        (FileSystem::Host(source), FileSystem::Volume(_, target)) => work.run(source, target),
        (FileSystem::Volume(_, source), FileSystem::Host(target)) => work.run(source, target),
        (FileSystem::Volume(_, source), FileSystem::Volume(_, target)) => work.run(source, target),
    }
}

/// Copies the tree `from` to `path`, which is on the file system of `to`. With `verbose`, prints each file.
///
/// # Errors
/// As [`copy_tree`].
pub fn copy(from: &Endpoint, to: &Endpoint, path: &Path, reflink: Reflink, verbose: bool) -> Result<Tally> {
    between(from, to, &mut CopyTree { from, to, path, reflink, verbose })
}

/// Gives the directory `to` the attributes of the directory `from`.
///
/// # Errors
/// As [`crate::copy::copy_attributes`].
pub fn copy_attributes(from: &Endpoint, to: &Endpoint) -> Result<Tally> {
    between(from, to, &mut CopyAttributes { from, to })
}

/// Calls `work` with the endpoints of two places. `work` must only read, because volumes are opened for
/// reading.
///
/// # Errors
/// The error of `work`. Fails if a volume cannot be opened or closed.
pub fn with_both<T>(
    from: &Place,
    to: &Place,
    work: impl FnOnce(&Endpoint, &Endpoint) -> Result<T>,
) -> Result<T> {
    interrupt::install();
    with_volumes([], |volumes| {
        let (from, to) = (Endpoint::new(from, volumes)?, Endpoint::new(to, volumes)?);
        work(&from, &to)
    })
}

/// Calls `work` for each source and the endpoint of its copy. If the target is a directory, the copy becomes
/// an entry of this directory and keeps the name of the source. Otherwise the copy becomes the target itself.
/// A failure of one source is printed, and the next source follows. If there are several sources and the
/// target is not a directory, the command ends at once. The volume of the target is opened for changes, and
/// other volumes for `purpose`. Closes the volumes even after an error. `command` is the name of the command.
///
/// # Errors
/// Fails if a source failed, if the volume of the target cannot be opened, or if a volume cannot be closed.
/// Fails if there are several sources and the target is not a directory. Fails after an interrupt.
pub fn for_each_source(
    sources: &[Place],
    target: &Place,
    command: &str,
    purpose: Purpose,
    work: impl Fn(&Endpoint, &Endpoint) -> Result<()>,
) -> Result<()> {
    interrupt::install();
    let changed_sources = if purpose == Purpose::Change { sources } else { &[] };
    let changed = changed_sources.iter().chain([target]).filter_map(Place::volume);
    with_volumes(changed, |volumes| {
        let end = Endpoint::new(target, volumes)?;
        let is_directory = || end.stat().is_ok_and(|stat| stat.is_dir());
        if sources.len() > 1 && !is_directory() {
            return Err(Failure::usage("not a directory", end.shown(), "several sources need a directory"));
        }
        let mut failures = Failures::default();
        let mut sources_of = HashMap::new();
        for name in sources.iter().filter_map(|source| base(source).ok()) {
            *sources_of.entry(name).or_insert(0) += 1;
        }
        let made = Rc::default();
        let mut copied_places = HashSet::new();
        for source in sources {
            interrupt::check(command)?;
            let copied = Endpoint::new(source, volumes).and_then(|from| {
                if !is_directory() {
                    Endpoint::refuse_storage(&from, &end, command)?;
                    return work(&from, &end);
                }
                let name = base(source)?;
                let place = (from.storage.clone(), from.path.clone());
                // A source that is named twice has its copy already. A source that no longer exists, because
                // the command has moved it, goes on to its error.
                if copied_places.contains(&place) && from.lstat().is_ok() {
                    return Ok(());
                }
                let is_shared = sources_of.get(name).is_some_and(|&sources| sources > 1);
                let to = Endpoint { made: is_shared.then(|| Rc::clone(&made)), ..end.child(name) };
                Endpoint::refuse_storage(&from, &to, command)?;
                work(&from, &to)?;
                copied_places.insert(place);
                Ok(())
            });
            failures.add(copied)?;
        }
        failures.finish()
    })
}
