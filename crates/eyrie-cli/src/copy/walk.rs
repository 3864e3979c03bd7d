//! Walks the source, and deals files to workers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use eyrie::{DirEntry, Kind, Posix, PosixExt, Stat};

use super::file::{Ends, copy_file};
use super::{Job, On, Side, Tally, WORKERS, attributes};
use crate::failure::{Doing, Failure, Result, reason};
use crate::interrupt;

/// Files that wait for a worker.
const QUEUE: usize = 1024;

/// A file to copy: its path under the root of the copy.
struct Task {
    relative: PathBuf,
    stat: Stat,
}

/// What a copy shares between its threads.
struct Copy<'a, S, D> {
    job: &'a Job<'a, S, D>,
    tally: Tally,
    stop: AtomicBool,
    fatal: Mutex<Option<String>>,
}

/// What is left when the walk is over.
#[derive(Default)]
struct Later {
    /// The first name that was found of each object with more than one.
    first: HashMap<(u64, u64), PathBuf>,
    /// First name, further name.
    links: Vec<(PathBuf, Task)>,
    directories: Vec<Task>,
}

/// Copies what `job` says. What could not be copied is in the tally.
///
/// # Errors
/// When the source cannot be read at all, the target exists, is full or fails; with exit status 130 when interrupted.
pub fn copy_tree<S, D>(job: &Job<'_, S, D>) -> Result<Tally>
where
    S: Posix + Sync,
    D: Posix + Sync,
{
    let from = job.source_path(Path::new(""));
    let stat = job.source.lstat(&from).doing("copy", job.watch.place(Path::new("")))?;
    let copy = Copy { job, tally: Tally::default(), stop: AtomicBool::new(false), fatal: Mutex::new(None) };
    let (sender, receiver) = sync_channel(QUEUE);
    let receiver = Mutex::new(receiver);
    let later = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| copy.work(&receiver))).collect();
        let later = copy.walk(stat, &sender);
        drop(sender);
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        later
    });
    copy.finish(later?)?;
    job.watch.finish();
    copy.outcome()
}

impl<S, D> Copy<'_, S, D>
where
    S: Posix + Sync,
    D: Posix + Sync,
{
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || interrupt::requested()
    }

    /// Makes everything but files, links and the attributes of directories.
    fn walk(&self, root: Stat, files: &SyncSender<Task>) -> Result<Later> {
        let mut later = Later::default();
        let mut pending = Vec::new();
        let root = Task { relative: PathBuf::new(), stat: root };
        if root.stat.is_dir() {
            let to = self.job.target_path(&root.relative);
            self.job
                .target
                .mkdir(&to, 0o700)
                .doing("make the directory", self.job.watch.target_place(&to))?;
            pending.push(root);
        } else {
            self.enter(root, &mut pending, files, &mut later);
        }
        while let Some(dir) = pending.pop() {
            if self.stopped() {
                break;
            }
            for entry in self.entries(&dir.relative) {
                let relative = dir.relative.join(entry.name());
                match self.job.source.lstat(self.job.source_path(&relative)) {
                    Ok(stat) => self.enter(Task { relative, stat }, &mut pending, files, &mut later),
                    Err(error) => self.failed(&relative, &Side::Source(error)),
                }
                if self.stopped() {
                    break;
                }
            }
            later.directories.push(dir);
        }
        Ok(later)
    }

    /// The entries of a directory, as far as they can be read.
    fn entries(&self, relative: &Path) -> Vec<DirEntry> {
        let mut entries = Vec::new();
        let result = self.job.source.read_dir(self.job.source_path(relative)).and_then(|listing| {
            for entry in listing {
                entries.push(entry?);
            }
            Ok(())
        });
        if let Err(error) = result {
            self.failed(relative, &Side::Source(error));
        }
        entries
    }

    /// Makes one entry, or leaves it to somebody else.
    fn enter(&self, task: Task, pending: &mut Vec<Task>, files: &SyncSender<Task>, later: &mut Later) {
        let stat = &task.stat;
        if stat.is_dir() {
            if self.job.except.is_some_and(|except| except == self.job.source_path(&task.relative)) {
                return;
            }
            match self.job.target.mkdir(self.job.target_path(&task.relative), 0o700) {
                Ok(()) => pending.push(task),
                Err(error) => self.failed(&task.relative, &Side::Target(error)),
            }
            return;
        }
        if stat.links > 1 {
            let device = (self.job.device)(&self.job.source_path(&task.relative));
            match later.first.entry((device, stat.inode)) {
                Entry::Occupied(first) => {
                    let first = first.get().clone();
                    later.links.push((first, task));
                    return;
                }
                Entry::Vacant(none) => {
                    none.insert(task.relative.clone());
                }
            }
        }
        if stat.is_file() {
            // Workers take tasks until the sender is gone.
            let _ = files.send(task);
        } else {
            self.make_special(&task);
        }
    }

    /// Makes what is neither file nor directory.
    fn make_special(&self, task: &Task) {
        let from = self.job.source_path(&task.relative);
        let to = self.job.target_path(&task.relative);
        let stat = &task.stat;
        let made = match stat.kind {
            Kind::Symlink => self
                .job
                .source
                .readlink(&from)
                .reading()
                .and_then(|target| self.job.target.symlink(OsStr::from_bytes(&target), &to).writing()),
            kind => self.job.target.mknod(&to, kind, stat.mode & 0o777, stat.device).writing(),
        };
        let result = made.and_then(|()| {
            attributes::set_on_path(self.job.target, &to, stat, &self.tally).inspect_err(|_| {
                // The first error is the one to tell.
                let _ = self.job.target.unlink(&to);
            })
        });
        match result {
            Ok(()) => self.completed(task, 0),
            Err(side) => self.failed(&task.relative, &side),
        }
    }

    /// Copies files until there are no more; once stopped, takes them without copying.
    fn work(&self, files: &Mutex<Receiver<Task>>) {
        let mut buffer = Vec::new();
        loop {
            let next = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(task) = next else { return };
            if !self.stopped() {
                self.copy_one(&task, &mut buffer);
            }
        }
    }

    fn copy_one(&self, task: &Task, buffer: &mut Vec<u8>) {
        let from = self.job.source_path(&task.relative);
        let to = self.job.target_path(&task.relative);
        let ends = Ends { source: self.job.source, from: &from, target: self.job.target, to: &to };
        match copy_file(&ends, &task.stat, buffer, &self.tally) {
            Ok(bytes) => {
                self.tally.bytes.fetch_add(bytes, Ordering::Relaxed);
                self.completed(task, bytes);
            }
            Err(side) => self.failed(&task.relative, &side),
        }
    }

    /// Hard links, then directories, those inside first.
    fn finish(&self, later: Later) -> Result<()> {
        let mut buffer = Vec::new();
        for (first, task) in &later.links {
            if self.stopped() {
                return Ok(());
            }
            let to = self.job.target_path(&task.relative);
            match self.job.target.link(self.job.target_path(first), &to) {
                Ok(()) => {
                    self.tally.links.fetch_add(1, Ordering::Relaxed);
                    self.job.watch.completed(&to, 0);
                }
                // The first name failed, or the target has no more links: a file of its own is better than none.
                Err(_) if task.stat.is_file() => self.copy_one(task, &mut buffer),
                Err(_) => self.make_special(task),
            }
        }
        for task in later.directories.iter().rev() {
            if self.stopped() {
                return Ok(());
            }
            let to = self.job.target_path(&task.relative);
            match attributes::set_on_path(self.job.target, &to, &task.stat, &self.tally) {
                Ok(()) => self.completed(task, 0),
                Err(side) => self.failed(&task.relative, &side),
            }
        }
        Ok(())
    }

    fn completed(&self, task: &Task, bytes: u64) {
        self.tally.add(task.stat.kind);
        self.job.watch.completed(&self.job.target_path(&task.relative), bytes);
    }

    fn failed(&self, relative: &Path, side: &Side) {
        self.tally.failed.fetch_add(1, Ordering::Relaxed);
        if side.is_fatal() {
            let mut fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner);
            fatal.get_or_insert_with(|| match side {
                Side::Source(error) | Side::Target(error) => reason(error),
            });
            self.stop.store(true, Ordering::Relaxed);
        } else {
            self.job.watch.failed(relative, &side.reason());
        }
    }

    fn outcome(self) -> Result<Tally> {
        let done = self.tally.summary();
        let to = self.job.watch.target_place(self.job.to);
        if let Some(why) = self.fatal.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(Failure::new("cannot copy all", to, format_args!("{why}; copied so far: {done}")));
        }
        if interrupt::requested() {
            let what = format!("copied so far: {done}");
            return Err(Failure::new("interrupted", to, what).with_status(interrupt::STATUS));
        }
        Ok(self.tally)
    }
}
