//! Copies a tree: one thread walks, and deals files to workers.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use eyrie::{Base, Errno, Found, Kind, Ladder, Posix, PosixExt, Stat, Step, Walk};

use super::file::copy_bytes;
use super::links::{Links, Turn, reach};
use super::{Job, On, Progress, Side, Spot, Store, Tally, WORKERS, Xattrs, read_xattrs, under};
use crate::failure::{self, Doing};

/// Files that wait for a worker. Each keeps its directories open.
const QUEUE: usize = 64;

/// A directory of the target while entries are missing. Whoever gives up its last reference sets its attributes.
struct Directory {
    stat: Stat,
    xattrs: Xattrs,
}

/// An entry that is no directory.
struct Task<'a, S, D> {
    found: Found<'a, S>,
    stat: Stat,
    /// Where it goes: the target, or the target as seen from `directory`.
    target: Base<'a, D>,
    /// `None` for the root of the tree.
    directory: Option<Arc<Directory>>,
}

/// What the threads share.
struct Copy<'a, S, D> {
    job: &'a Job<'a, S, D>,
    store: Store<'a>,
    links: Links<Task<'a, S, D>>,
}

/// Where the walk is in the target.
struct Way<'a, D> {
    ladder: Ladder<'a, D>,
    directories: Vec<Arc<Directory>>,
}

/// Copies what `job` says. What could not be copied is in the tally.
///
/// # Errors
/// When the source cannot be read at all, the target exists, is full or fails; with exit status 130 when interrupted.
pub fn copy_tree<S, D>(job: &Job<'_, S, D>) -> failure::Result<Tally>
where
    S: Posix + Sync + Send,
    D: Posix + Sync + Send,
{
    let mut walk = Walk::new(job.source, job.from).doing("copy", job.watch.place(Path::new("")))?;
    let store = Store::new(job.to, Progress::new(job.watch));
    let copy = Copy { job, store, links: Links::new() };
    let (sender, receiver) = sync_channel(QUEUE);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| copy.work(&receiver))).collect();
        let walked = copy.walk(&mut walk, &sender);
        drop(sender);
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        walked
    })?;
    copy.store.outcome()
}

impl<'a, S, D> Copy<'a, S, D>
where
    S: Posix + Sync + Send,
    D: Posix + Sync + Send,
{
    /// Makes everything but files and the names that wait for them.
    fn walk(&self, walk: &mut Walk<'a, S>, files: &SyncSender<Task<'a, S, D>>) -> failure::Result<()> {
        let mut way = Way { ladder: Ladder::new(self.job.target), directories: Vec::new() };
        while let Some(step) = walk.next() {
            if self.store.progress.stopped() {
                break;
            }
            match step {
                Step::Found(found) if found.kind == Kind::Directory => {
                    if !self.enter(&found, &mut way)? {
                        walk.prune();
                    }
                }
                Step::Found(found) => {
                    let relative = found.relative.clone();
                    self.note(&relative, self.hand_out(found, &way, files));
                }
                Step::Left(found) => self.leave(&found.relative, &mut way),
                Step::Failed(relative, error) => self.note(&relative, Err(error).reading()),
            }
        }
        Ok(())
    }

    /// Makes a directory, and goes into it. False if it is left out.
    fn enter(&self, found: &Found<'a, S>, way: &mut Way<'a, D>) -> failure::Result<bool> {
        if self.job.except.is_some_and(|except| except == under(self.job.from, &found.relative)) {
            return Ok(false);
        }
        let name = self.target_name(found);
        let made = way.ladder.here().and_then(|target| {
            let spot = Spot { target: &*target, name, relative: &found.relative };
            self.store.directory(&spot)?;
            way.ladder.down(name, |_, _| {})
        });
        match made {
            Ok(()) => {}
            Err(error) if found.depth == 0 => {
                let place = self.job.watch.target_place(self.job.to);
                return Err(error).doing("make the directory", place);
            }
            Err(error) => {
                self.note(&found.relative, Err(error).writing());
                return Ok(false);
            }
        }
        let stat = found.stat();
        let xattrs = read_xattrs(&**found.base(), found.name(), &self.store.progress);
        match stat {
            Ok(stat) => {
                way.directories.push(Arc::new(Directory { stat, xattrs }));
                Ok(true)
            }
            Err(error) => {
                self.note(&found.relative, Err(error).reading());
                self.climb(way);
                Ok(false)
            }
        }
    }

    /// Leaves a directory whose entries are all made or with workers.
    fn leave(&self, relative: &Path, way: &mut Way<'a, D>) {
        let directory = way.directories.pop();
        match way.ladder.here() {
            Ok(target) => self.release(directory, &target, relative),
            Err(error) => self.note(relative, Err(error).writing()),
        }
        self.climb(way);
    }

    fn climb(&self, way: &mut Way<'a, D>) {
        if let Err(error) = way.ladder.up() {
            self.note(Path::new(""), Err(Side::Fatal(failure::reason(&error))));
        }
    }

    /// Gives up a reference to a directory. With the last one it gets its attributes.
    fn release(&self, directory: Option<Arc<Directory>>, target: &D, relative: &Path) {
        let Some(Directory { stat, xattrs }) = directory.and_then(Arc::into_inner) else { return };
        if !self.store.progress.stopped() {
            let spot = Spot { target, name: Path::new("."), relative };
            self.note(relative, self.store.finish_directory(&spot, &stat, &xattrs));
        }
    }

    /// The name of the copy of what was found, in the directory that it goes to.
    fn target_name<'f>(&self, found: &'f Found<'a, S>) -> &'f Path
    where
        'a: 'f,
    {
        if found.depth == 0 { self.job.to } else { found.name() }
    }

    /// Makes an entry that is no directory, or leaves it to a worker.
    fn hand_out(
        &self,
        found: Found<'a, S>,
        way: &Way<'a, D>,
        files: &SyncSender<Task<'a, S, D>>,
    ) -> Result<(), Side> {
        let stat = found.stat().reading()?;
        if stat.kind != found.kind {
            return Err(eyrie::Error::new(Errno::STALE, "lstat")).reading();
        }
        let target = way.ladder.here().writing()?;
        let task = Task { found, stat, target, directory: way.directories.last().cloned() };
        let task = match stat.links {
            0 | 1 => task,
            _ => match self.links.turn(&stat, task) {
                Turn::Copy(task) => task,
                Turn::Link(task, first) => {
                    self.link(task, &first, &mut Vec::new());
                    return Ok(());
                }
                Turn::Wait => return Ok(()),
            },
        };
        if stat.is_file() {
            // Workers take tasks until the sender is gone.
            let _ = files.send(task);
        } else {
            self.run(task, &mut Vec::new());
        }
        Ok(())
    }

    /// Copies files until there are no more; once stopped, takes them without copying.
    fn work(&self, files: &Mutex<Receiver<Task<'a, S, D>>>) {
        let mut buffer = Vec::new();
        loop {
            let next = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(task) = next else { return };
            self.run(task, &mut buffer);
        }
    }

    /// Copies an entry, then the names that wait for it.
    fn run(&self, task: Task<'a, S, D>, buffer: &mut Vec<u8>) {
        let mut next = Some(task);
        while let Some(task) = next.take() {
            let made = !self.store.progress.stopped() && {
                let result = self.make(&task, buffer);
                let made = result.is_ok();
                self.note(&task.found.relative, result);
                made
            };
            let several = task.stat.links > 1;
            let (stat, first) = (task.stat, task.found.relative.clone());
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
    fn link(&self, task: Task<'a, S, D>, first: &Path, buffer: &mut Vec<u8>) {
        if !self.store.progress.stopped() {
            let linked = reach(self.job.target, &self.store.path(first)).and_then(|(target, name)| {
                let first = Spot { target: &*target, name: &name, relative: first };
                self.store.link(&first, &self.spot(&task))
            });
            // The target may have no more links: a file of its own is better than none.
            let result = linked.or_else(|_| self.make(&task, buffer));
            self.note(&task.found.relative, result);
        }
        self.done(task);
    }

    /// Lets go of an entry's directory.
    fn done(&self, task: Task<'a, S, D>) {
        let Task { found, target, directory, .. } = task;
        self.release(directory, &target, found.relative.parent().unwrap_or(Path::new("")));
    }

    fn spot<'t>(&'t self, task: &'t Task<'a, S, D>) -> Spot<'t, D> {
        Spot { target: &task.target, name: self.target_name(&task.found), relative: &task.found.relative }
    }

    /// Makes the copy of an entry that is no directory.
    fn make(&self, task: &Task<'a, S, D>, buffer: &mut Vec<u8>) -> Result<(), Side> {
        let Task { found, stat, .. } = task;
        let (source, name): (&S, PathBuf) = (found.base(), found.name().to_owned());
        let spot = self.spot(task);
        let xattrs = read_xattrs(source, &name, &self.store.progress);
        match stat.kind {
            Kind::File => {
                let input = source.options().read(true).no_follow(true).open(&name).reading()?;
                self.store
                    .file(&spot, stat, &xattrs, |output| copy_bytes(&input, source, output, stat, buffer))
            }
            Kind::Symlink => {
                let target = source.readlink(&name).reading()?;
                self.store.symlink(&spot, stat, &xattrs, &target)
            }
            _ => self.store.special(&spot, stat, &xattrs),
        }
    }

    fn note(&self, relative: &Path, result: Result<(), Side>) {
        if let Err(side) = result {
            self.store.progress.failed(relative, &side);
        }
    }
}
