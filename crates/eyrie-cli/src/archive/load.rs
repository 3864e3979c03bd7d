//! Makes a tree from an archive.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use eyrie::{Dir, Errno, File, InodeFlags, Posix, PosixExt, PosixProjects, Stat, Target};

use super::member::{Body, Member};
use super::read::{ArchiveReader, NextMember};
use crate::copy::{CHUNK_BYTES, CopyError, OnSide, Progress, Reporter, Spot, Tally, TargetTree, Xattrs};
use crate::failure::{self, Doing, Failure};
use crate::interrupt;

/// The mode of a directory that has no member of its own in the archive.
const IMPLIED_MODE: u16 = 0o755;

/// Maximum length of a path, in bytes: `PATH_MAX` of Linux without the final NUL.
const MAX_NAME_BYTES: usize = 4095;

/// A load in progress: the archive, and the tree into which it is loaded.
struct Loader<'a, R, D: Posix> {
    archive: ArchiveReader<R>,
    target: &'a Dir<D>,
    tree: TargetTree<'a>,
    /// The target directory and the directories that this load made, with the attributes that they get at the
    /// end. `None` if the archive has no member for the directory.
    directories: BTreeMap<PathBuf, Option<(Stat, Xattrs)>>,
    /// The inode flags that files and directories get at the very end, because these flags forbid changes.
    flags: BTreeMap<PathBuf, InodeFlags>,
    /// The project ids that entries get after all hard links are made, because a hard link into a directory
    /// with another project id fails (`EXDEV`).
    projects: BTreeMap<PathBuf, u32>,
    buffer: Vec<u8>,
}

/// Loads the archive `input` into the directory `to` of `target`. The directory must either be empty or not
/// exist. Messages call the archive `from`. The result also counts the members that could not be loaded.
///
/// # Errors
/// Fails if `input` is not an archive, is damaged or ends early. Fails if `to` exists and is not an empty
/// directory, or if the target is full, above a quota, read-only or broken. An interrupt has the exit status
/// 130.
pub fn load<D: PosixProjects + Clone>(
    input: impl Read,
    from: &str,
    target: &D,
    to: &Path,
    reporter: &Reporter,
) -> failure::Result<Tally> {
    let mut archive = ArchiveReader::new(input);
    // Read the first member before the target is made, so that an input that is not an archive changes
    // nothing.
    let first = archive.next().map_err(|why| Failure::new("cannot load", from, why))?;
    let tree = TargetTree::new(to, Progress::new(reporter));
    match target.stat(Target::NoFollow(to.into())) {
        Err(error) if error.errno() == Errno::NOENT => {
            let place = reporter.target_place(to);
            target.mkdir(to.into(), IMPLIED_MODE).doing("make the directory", place)?;
        }
        found => require_empty(target, to, found).doing("load into", reporter.target_place(to))?,
    }
    let directories = BTreeMap::from([(PathBuf::new(), None)]);
    let target = &Dir::root(target.clone());
    let (flags, projects, buffer) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut loader = Loader { archive, target, tree, directories, flags, projects, buffer };
    let damage = loader.members(first).err();
    if damage.is_none() && !loader.tree.progress.stopped() {
        loader.archive.read_to_end(interrupt::requested);
    }
    if !loader.tree.progress.stopped() {
        loader.set_projects();
    }
    loader.finish();
    if !loader.tree.progress.stopped() {
        loader.set_flags();
    }
    let tally = loader.tree.outcome()?;
    match damage {
        None => Ok(tally),
        Some(why) => {
            let done = tally.summary();
            Err(Failure::new("cannot load all", from, format_args!("{why}; loaded so far: {done}")))
        }
    }
}

/// Fails unless `to` is an empty directory. `found` has the attributes of `to`.
fn require_empty<D: Posix + Clone>(target: &D, to: &Path, found: eyrie::Result<Stat>) -> eyrie::Result<()> {
    let errno = match found? {
        stat if !stat.is_dir() => Errno::NOTDIR,
        _ if target.read_dir(to)?.next().is_some() => Errno::NOTEMPTY,
        _ => return Ok(()),
    };
    Err(eyrie::Error::new(errno, "load"))
}

/// Returns the path under the target for a name in an archive. The name may begin with `/` or `./`.
fn relative(name: &[u8]) -> Result<PathBuf, CopyError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(CopyError::Source("its name is longer than any path".to_owned()));
    }
    let mut path = PathBuf::new();
    for component in Path::new(OsStr::from_bytes(name)).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => {
                return Err(CopyError::Source(
                    "its name has `..` in it, and would lead out of the target".to_owned(),
                ));
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(path)
}

impl<'a, R: Read, D: PosixProjects + Clone> Loader<'a, R, D> {
    /// Makes the entries of all members. Directories get their attributes later.
    fn members(&mut self, first: Option<NextMember>) -> Result<(), String> {
        let mut next = first;
        while let Some(member) = next {
            let (name, result) = match member {
                NextMember::Member(member) => {
                    let result = self.enter(&member);
                    (member.name, result)
                }
                NextMember::Refused(name, why) => (name, Err(CopyError::Source(why))),
            };
            if let Err(error) = result {
                let shown = name.strip_prefix(b"./").unwrap_or(&name);
                self.tree.progress.failed(Path::new(OsStr::from_bytes(shown)), &error);
            }
            // Reading the next member would first read the rest of this one.
            if self.tree.progress.stopped() {
                break;
            }
            next = self.archive.next()?;
        }
        Ok(())
    }

    fn enter(&mut self, member: &Member) -> Result<(), CopyError> {
        let path = relative(&member.name)?;
        self.make_parents(&path)?;
        if let Body::Directory = member.body {
            if !self.directories.contains_key(&path) {
                let name = self.tree.path(&path);
                self.tree.directory(&self.spot(&name, &path)).writing()?;
            }
            self.note(&path, member);
            self.directories.insert(path, Some((member.stat, member.xattrs.clone())));
            return Ok(());
        }
        if path.as_os_str().is_empty() {
            return Err(CopyError::Source("it has the name of the target itself".to_owned()));
        }
        if let Body::Link(first) = &member.body {
            return self.link(first, &path);
        }
        self.make_room(&path)?;
        let (stat, xattrs) = (&member.stat, &member.xattrs);
        let name = self.tree.path(&path);
        let spot = Spot { target: self.target, name: &name, relative: &path };
        match &member.body {
            Body::File(runs) => {
                let (archive, buffer) = (&mut self.archive, &mut self.buffer);
                self.tree.file(&spot, stat, xattrs, |file| fill(archive, file, runs, stat.size, buffer))?;
            }
            Body::Symlink(target) => self.tree.symlink(&spot, stat, xattrs, target)?,
            Body::Special | Body::Directory | Body::Link(_) => self.tree.special(&spot, stat, xattrs)?,
        }
        self.note(&path, member);
        Ok(())
    }

    /// Makes the directories that lead to `path`. Below the target, this function enters an existing
    /// directory only if this load made it. It never follows a symbolic link, which could lead out of the
    /// target.
    fn make_parents(&mut self, path: &Path) -> Result<(), CopyError> {
        // All directories above a known directory are known, too. So the search ends at the first known one,
        // which for most members is the first.
        let is_new = |dir: &&Path| !self.directories.contains_key(*dir);
        let missing: Vec<&Path> = path.ancestors().skip(1).take_while(is_new).collect();
        for dir in missing.into_iter().rev() {
            self.target.mkdir((&self.tree.path(dir)).into(), IMPLIED_MODE).writing()?;
            self.directories.insert(dir.to_owned(), None);
        }
        Ok(())
    }

    /// Makes a hard link to an earlier member.
    fn link(&mut self, first: &[u8], path: &Path) -> Result<(), CopyError> {
        let first = relative(first)?;
        if first == path {
            return Err(CopyError::Source("it is a link to itself".to_owned()));
        }
        // As in `make_parents`, the path may lead only through directories that this load made.
        let inside = first.parent().is_some_and(|dir| self.directories.contains_key(dir));
        if !inside
            || self
                .target
                .stat(Target::NoFollow((&self.tree.path(&first)).into()))
                .map_or(true, |stat| stat.is_dir())
        {
            return Err(CopyError::Source(
                "it is a hard link to a file that does not come before it in the archive".to_owned(),
            ));
        }
        self.make_room(path)?;
        let (from, to) = (self.tree.path(&first), self.tree.path(path));
        self.tree.link(&self.spot(&from, &first), &self.spot(&to, path)).writing()
    }

    /// Removes an earlier file at `path`, because a later member replaces that file. A directory stays.
    fn make_room(&mut self, path: &Path) -> Result<(), CopyError> {
        let name = self.tree.path(path);
        let stat = self.target.stat(Target::NoFollow((&name).into()));
        if stat.as_ref().is_ok_and(Stat::is_dir) {
            return Ok(());
        }
        if stat.is_ok() {
            self.target.unlink((&name).into()).writing()?;
        }
        self.flags.remove(path);
        self.projects.remove(path);
        Ok(())
    }

    fn spot<'s>(&self, name: &'s Path, relative: &'s Path) -> Spot<'s, D>
    where
        'a: 's,
    {
        Spot { target: self.target, name, relative }
    }

    /// Notes the inode flags and the project id of an entry that was made. If a directory has several
    /// members, those of the last member count.
    fn note(&mut self, path: &Path, member: &Member) {
        self.flags.remove(path);
        self.projects.remove(path);
        if !member.flags.is_empty() && matches!(member.body, Body::File(_) | Body::Directory) {
            self.flags.insert(path.to_owned(), member.flags);
        }
        if member.project != 0 {
            self.projects.insert(path.to_owned(), member.project);
        }
    }

    /// Sets project ids. Only root may set them, so `EPERM` is not a failure.
    fn set_projects(&self) {
        for (path, &project) in &self.projects {
            let name = self.tree.path(path);
            match self.target.set_project(Target::NoFollow((&name).into()), project) {
                Ok(()) => {}
                Err(error) if error.errno() == Errno::PERM => self.tree.progress.project_lost(),
                Err(error) => self.tree.progress.failed(path, &CopyError::Target(failure::reason(&error))),
            }
        }
    }

    /// Sets the inode flags of files and directories. Only root may set them, so `EPERM` is not a failure.
    /// Neither is `EACCES`, because root may open each file that this load has made.
    fn set_flags(&self) {
        for (path, &flags) in self.flags.iter().rev() {
            let name = self.tree.path(path);
            let options = self.target.options().read(true).no_follow(true);
            match options.open(&name).and_then(|file| file.set_inode_flags(flags)) {
                Ok(()) => {}
                Err(error) if matches!(error.errno(), Errno::PERM | Errno::ACCESS) => {
                    self.tree.progress.flags_lost();
                }
                Err(error) => self.tree.progress.failed(path, &CopyError::Target(failure::reason(&error))),
            }
        }
    }

    /// Sets the attributes of directories, inner directories first, because the mode of an outer directory
    /// may forbid entering it.
    fn finish(&mut self) {
        for (path, attributes) in std::mem::take(&mut self.directories).into_iter().rev() {
            if self.tree.progress.stopped() {
                return;
            }
            let Some((stat, xattrs)) = attributes else { continue };
            let name = self.tree.path(&path);
            if let Err(error) = self.tree.finish_directory(&self.spot(&name, &path), &stat, &xattrs) {
                self.tree.progress.failed(&path, &error);
            }
        }
    }
}

/// Writes the data of a member to `file`. Returns the number of bytes.
fn fill<R: Read, D: Posix + Clone>(
    archive: &mut ArchiveReader<R>,
    file: &File<Dir<D>>,
    runs: &[Range<u64>],
    size: u64,
    buffer: &mut Vec<u8>,
) -> Result<u64, CopyError> {
    let mut bytes = 0;
    for run in runs {
        let mut offset = run.start;
        while offset < run.end {
            CopyError::check_interrupt()?;
            let room = usize::try_from(run.end - offset).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            buffer.resize(room.max(buffer.len()), 0);
            let chunk = &mut buffer[..room];
            archive.data(chunk).map_err(CopyError::Source)?;
            file.write_all_at(chunk, offset).writing()?;
            offset += room as u64;
            bytes += room as u64;
        }
    }
    // No write reaches the end of a file that ends with a hole, so `set_len` sets the size of the file.
    if runs.last().is_none_or(|last| last.end < size) {
        file.set_len(size).writing()?;
    }
    Ok(bytes)
}
