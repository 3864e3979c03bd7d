//! Copies of trees: one thread walks the source, and worker threads copy the files.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use eyrie::{Dir, Errno, Kind, Ladder, Posix, PosixClones, PosixExt, Stat, Walk, WalkEntry, WalkStep};

use super::file::{Reflink, fill, open_entry};
use super::links::{Links, NameTask, reach};
use super::progress::{Progress, Tally};
use super::reporter::Reporter;
use super::side::{CopyError, OnSide};
use super::spot::Spot;
use super::target::TargetTree;
use super::workers::with_workers;
use super::xattrs::{Xattrs, read_copied as read_xattrs};
use crate::failure::{self, Doing};
use crate::place::join;

/// The source and the target of a copy.
pub struct Job<'a, S, D> {
    /// The file system to read.
    pub source: &'a S,
    /// The file or the tree to copy.
    pub from: &'a Path,
    /// The file system to write.
    pub target: &'a D,
    /// The path of the copy. For [`copy_tree`], nothing may exist there.
    pub to: &'a Path,
    /// A directory of the source to leave out.
    pub except: Option<&'a Path>,
    /// Decides if files share the storage of their sources.
    pub reflink: Reflink,
    /// The reporter of progress and failures.
    pub reporter: &'a Reporter,
}

/// A directory of the target whose entries are not all complete. The thread that drops the last reference
/// sets the attributes of the directory.
struct PendingDirectory {
    stat: Stat,
    xattrs: Xattrs,
}

/// An entry that is not a directory.
struct Task<S: Posix, D: Posix> {
    entry: WalkEntry<S>,
    stat: Stat,
    /// The directory in which the copy is made. For the root of the tree, it is the root directory of the
    /// target's file system.
    target: Dir<D>,
    /// The attributes of the directory `target`, which are set when all its entries are complete. `None` for
    /// the root of the tree.
    directory: Option<Arc<PendingDirectory>>,
}

/// A copy in progress, which its threads share.
struct TreeCopy<'a, S: Posix, D: Posix> {
    job: &'a Job<'a, S, D>,
    target: TargetTree<'a>,
    links: Links<Task<S, D>>,
}

/// The directories of the target from the root of the copy down to the current one.
struct TargetPosition<D: Posix> {
    ladder: Ladder<D>,
    directories: Vec<Arc<PendingDirectory>>,
}

/// Copies a file or a tree. The result also counts the entries that could not be copied.
///
/// # Errors
/// Fails if the root of the source cannot be found, if the root directory of the copy cannot be made, or if
/// the target is full, above a quota, read-only or broken. After an interrupt, fails with exit status 130.
pub fn copy_tree<S, D>(job: &Job<'_, S, D>) -> failure::Result<Tally>
where
    S: PosixClones + Clone + Sync + Send + 'static,
    D: PosixClones + Clone + Sync + Send + 'static,
{
    let mut walk = job.source.walk(job.from).doing("copy", job.reporter.place(Path::new("")))?;
    let target = TargetTree::new(job.to, Progress::new(job.reporter));
    let copy = TreeCopy { job, target, links: Links::new() };
    // After the copy is stopped, `run` only drops the tasks of the queue.
    with_workers(|task, buffer| copy.run(task, buffer), |files| copy.walk(&mut walk, files))?;
    copy.target.outcome()
}

/// Returns the error of a copy whose worker threads have panicked.
fn workers_failed() -> CopyError {
    CopyError::Fatal("the threads that copy files have failed".to_owned())
}

impl<'a, S, D> TreeCopy<'a, S, D>
where
    S: PosixClones + Clone + Sync + Send + 'static,
    D: PosixClones + Clone + Sync + Send + 'static,
{
    /// Makes all entries except files and the names that wait for the copy of their file.
    fn walk(&self, walk: &mut Walk<S>, files: &SyncSender<Task<S, D>>) -> failure::Result<()> {
        let mut position =
            TargetPosition { ladder: Ladder::new(self.job.target.clone()), directories: Vec::new() };
        while let Some(step) = walk.next() {
            if self.target.progress.stopped() {
                break;
            }
            match step {
                WalkStep::Entry(entry) if entry.kind == Kind::Directory => {
                    if !self.enter(&entry, &mut position)? {
                        walk.prune();
                    }
                }
                WalkStep::Entry(entry) => {
                    let relative = entry.relative.clone();
                    self.note(&relative, self.hand_out(entry, &position, files));
                }
                WalkStep::Left(entry) => self.leave(&entry.relative, &mut position),
                WalkStep::Failed(relative, error) => self.note(&relative, Err(error).reading()),
            }
        }
        Ok(())
    }

    /// Makes a directory and enters it. Returns false if the directory is left out, or if it cannot be made
    /// or read.
    fn enter(&self, entry: &WalkEntry<S>, position: &mut TargetPosition<D>) -> failure::Result<bool> {
        if self.job.except.is_some_and(|except| except == join(self.job.from, &entry.relative)) {
            return Ok(false);
        }
        let name = self.target_name(entry);
        let made = position.ladder.here().and_then(|target| {
            let spot = Spot { target: &target, name, relative: &entry.relative };
            self.target.directory(&spot)?;
            position.ladder.down(name, |_, _| {})
        });
        match made {
            Ok(()) => {}
            Err(error) if entry.depth == 0 => {
                let place = self.job.reporter.target_place(self.job.to);
                return Err(error).doing("make the directory", place);
            }
            Err(error) => {
                self.note(&entry.relative, Err(error).writing());
                return Ok(false);
            }
        }
        let stat = entry.stat();
        let xattrs = read_xattrs(entry.dir(), entry.name(), &self.target.progress);
        match stat {
            Ok(stat) => {
                position.directories.push(Arc::new(PendingDirectory { stat, xattrs }));
                Ok(true)
            }
            Err(error) => {
                self.note(&entry.relative, Err(error).reading());
                self.climb(position);
                Ok(false)
            }
        }
    }

    /// Leaves a directory. Some of its files may still wait for a worker thread.
    fn leave(&self, relative: &Path, position: &mut TargetPosition<D>) {
        let directory = position.directories.pop();
        match position.ladder.here() {
            Ok(target) => self.release(directory, &target, relative),
            Err(error) => self.note(relative, Err(error).writing()),
        }
        self.climb(position);
    }

    /// Goes up to the parent of the present target directory. A failure is fatal, because the copy then
    /// cannot reach the parent.
    fn climb(&self, position: &mut TargetPosition<D>) {
        if let Err(error) = position.ladder.up() {
            self.note(Path::new(""), Err(CopyError::Fatal(failure::reason(&error))));
        }
    }

    /// Drops a reference to a directory. If it was the last reference and the copy is not stopped, sets the
    /// attributes of the directory.
    fn release(&self, directory: Option<Arc<PendingDirectory>>, target: &Dir<D>, relative: &Path) {
        let Some(PendingDirectory { stat, xattrs }) = directory.and_then(Arc::into_inner) else { return };
        if !self.target.progress.stopped() {
            let spot = Spot { target, name: Path::new("."), relative };
            self.note(relative, self.target.finish_directory(&spot, &stat, &xattrs));
        }
    }

    /// Returns the name of the copy in its directory, or for the root of the tree the path of the copy.
    fn target_name<'f>(&self, entry: &'f WalkEntry<S>) -> &'f Path
    where
        'a: 'f,
    {
        if entry.depth == 0 { self.job.to } else { entry.name() }
    }

    /// Makes an entry that is not a directory, or sends it to a worker thread. Another hard link to a file
    /// whose copy is in progress waits for that copy.
    fn hand_out(
        &self,
        entry: WalkEntry<S>,
        position: &TargetPosition<D>,
        files: &SyncSender<Task<S, D>>,
    ) -> Result<(), CopyError> {
        let stat = entry.stat().reading()?;
        // If the kinds differ, another program has replaced the entry since the directory was read.
        if stat.kind != entry.kind {
            return Err(eyrie::Error::new(Errno::STALE, "stat")).reading();
        }
        let target = position.ladder.here().writing()?;
        let task = Task { entry, stat, target, directory: position.directories.last().cloned() };
        let task = match stat.links {
            0 | 1 => task,
            _ => match self.links.task_for(&stat, task).ok_or_else(workers_failed)? {
                NameTask::Copy(task) => task,
                NameTask::Link(task, first) => {
                    self.link(task, &first, &mut Vec::new());
                    return Ok(());
                }
                NameTask::Wait => return Ok(()),
            },
        };
        if stat.is_file() {
            files.send(task).map_err(|_| workers_failed())?;
        } else {
            self.run(task, &mut Vec::new());
        }
        Ok(())
    }

    /// Copies an entry, and then links the names that wait for the copy. If the copy fails, copies the file
    /// under the next waiting name.
    fn run(&self, task: Task<S, D>, buffer: &mut Vec<u8>) {
        let _guard = self.links.guard();
        let mut next = Some(task);
        while let Some(task) = next.take() {
            let made = !self.target.progress.stopped() && {
                let result = self.make(&task, buffer);
                let made = result.is_ok();
                self.note(&task.entry.relative, result);
                made
            };
            let several = task.stat.links > 1;
            let (stat, first) = (task.stat, task.entry.relative.clone());
            // The tasks of waiting names refer to the directories of these names. So this task can be dropped
            // before these names are linked.
            self.done(task);
            if several && made {
                let waiting = self.links.done(&stat, &first);
                waiting.into_iter().for_each(|task| self.link(task, &first, buffer));
            } else if several {
                next = self.links.failed(&stat);
            }
        }
    }

    /// Links an entry to the copy at `first`.
    fn link(&self, task: Task<S, D>, first: &Path, buffer: &mut Vec<u8>) {
        if !self.target.progress.stopped() {
            let linked = reach(self.job.target, &self.target.path(first)).and_then(|(target, name)| {
                let first = Spot { target: &target, name: &name, relative: first };
                self.target.link(&first, &self.spot(&task))
            });
            // If the link cannot be made, the name gets a copy of its own. For example, the file may have too
            // many links.
            let result = linked.or_else(|_| self.make(&task, buffer));
            self.note(&task.entry.relative, result);
        }
        self.done(task);
    }

    /// Drops a task, and with it a reference to the directory of its entry.
    fn done(&self, task: Task<S, D>) {
        let Task { entry, target, directory, .. } = task;
        self.release(directory, &target, entry.relative.parent().unwrap_or(Path::new("")));
    }

    fn spot<'t>(&'t self, task: &'t Task<S, D>) -> Spot<'t, D> {
        Spot { target: &task.target, name: self.target_name(&task.entry), relative: &task.entry.relative }
    }

    /// Makes the copy of an entry that is not a directory.
    fn make(&self, task: &Task<S, D>, buffer: &mut Vec<u8>) -> Result<(), CopyError> {
        let Task { entry, stat, .. } = task;
        let (source, name) = (entry.dir(), entry.name().to_owned());
        let spot = self.spot(task);
        let xattrs = read_xattrs(source, &name, &self.target.progress);
        match stat.kind {
            Kind::File => {
                let input = open_entry(entry).reading()?;
                self.target
                    .file(&spot, stat, &xattrs, |output| fill(&input, output, stat, self.job.reflink, buffer))
            }
            Kind::Symlink => {
                let target = source.readlink((&name).into()).reading()?;
                self.target.symlink(&spot, stat, &xattrs, &target)
            }
            _ => self.target.special(&spot, stat, &xattrs),
        }
    }

    fn note(&self, relative: &Path, result: Result<(), CopyError>) {
        if let Err(error) = result {
            self.target.progress.failed(relative, &error);
        }
    }
}
