//! Copies a tree: one thread walks, and deals files to workers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use eyrie::{Kind, Posix, PosixExt};

use super::file::copy_bytes;
use super::{Found, Job, On, Progress, Side, Step, Store, Tally, WORKERS, Walk, Xattrs, read_xattrs, under};
use crate::failure::{self, Doing};

/// Files that wait for a worker.
const QUEUE: usize = 1024;

/// What the threads share.
struct Copy<'a, S, D> {
    job: &'a Job<'a, S, D>,
    store: Store<'a, D>,
}

/// What is left when the walk is over.
#[derive(Default)]
struct Later {
    /// The first name that was found of each object with more than one.
    first: HashMap<(u64, u64), PathBuf>,
    /// First name, further name.
    links: Vec<(PathBuf, Found)>,
    directories: Vec<Found>,
}

/// Copies what `job` says. What could not be copied is in the tally.
///
/// # Errors
/// When the source cannot be read at all, the target exists, is full or fails; with exit status 130 when interrupted.
pub fn copy_tree<S, D>(job: &Job<'_, S, D>) -> failure::Result<Tally>
where
    S: Posix + Sync,
    D: Posix + Sync,
{
    let mut walk = Walk::new(job.source, job.from).doing("copy", job.watch.place(Path::new("")))?;
    let copy = Copy { job, store: Store::new(job.target, job.to, Progress::new(job.watch)) };
    let (sender, receiver) = sync_channel(QUEUE);
    let receiver = Mutex::new(receiver);
    let later = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| copy.work(&receiver))).collect();
        let later = copy.walk(&mut walk, &sender);
        drop(sender);
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        later
    });
    copy.finish(&later?);
    copy.store.outcome()
}

impl<S, D> Copy<'_, S, D>
where
    S: Posix + Sync,
    D: Posix + Sync,
{
    /// Makes everything but files, links and the attributes of directories.
    fn walk(&self, walk: &mut Walk<'_, S>, files: &SyncSender<Found>) -> failure::Result<Later> {
        let mut later = Later::default();
        while let Some(step) = walk.next() {
            if self.store.progress.stopped() {
                break;
            }
            match step {
                Step::Found(dir) if dir.stat.is_dir() => {
                    if self.job.except.is_some_and(|except| except == self.source_path(&dir)) {
                        walk.prune();
                        continue;
                    }
                    match self.store.directory(&dir.relative) {
                        Ok(()) => later.directories.push(dir),
                        Err(error) if dir.depth == 0 => {
                            let place = self.job.watch.target_place(self.job.to);
                            return Err(error).doing("make the directory", place);
                        }
                        Err(error) => {
                            walk.prune();
                            self.note(&dir.relative, Err(error).writing());
                        }
                    }
                }
                Step::Found(found) => self.enter(found, files, &mut later),
                Step::Left(_) => {}
                Step::Failed(relative, error) => self.note(&relative, Err(error).reading()),
            }
        }
        Ok(later)
    }

    fn source_path(&self, found: &Found) -> PathBuf {
        under(self.job.from, &found.relative)
    }

    fn xattrs(&self, found: &Found) -> Xattrs {
        read_xattrs(self.job.source, &self.source_path(found), &self.store.progress)
    }

    /// Makes one entry that is no directory, or leaves it to somebody else.
    fn enter(&self, found: Found, files: &SyncSender<Found>, later: &mut Later) {
        if found.stat.links > 1 {
            let device = (self.job.device)(&self.source_path(&found));
            match later.first.entry((device, found.stat.inode)) {
                Entry::Occupied(first) => {
                    later.links.push((first.get().clone(), found));
                    return;
                }
                Entry::Vacant(none) => {
                    none.insert(found.relative.clone());
                }
            }
        }
        if found.stat.is_file() {
            // Workers take tasks until the sender is gone.
            let _ = files.send(found);
        } else {
            self.note(&found.relative, self.make_special(&found));
        }
    }

    /// Makes what is neither file nor directory.
    fn make_special(&self, found: &Found) -> Result<(), Side> {
        match found.stat.kind {
            Kind::Symlink => {
                let target = self.job.source.readlink(self.source_path(found)).reading()?;
                self.store.symlink(&found.relative, &found.stat, &self.xattrs(found), &target)
            }
            _ => self.store.special(&found.relative, &found.stat, &self.xattrs(found)),
        }
    }

    /// Copies files until there are no more; once stopped, takes them without copying.
    fn work(&self, files: &Mutex<Receiver<Found>>) {
        let mut buffer = Vec::new();
        loop {
            let next = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(found) = next else { return };
            if !self.store.progress.stopped() {
                self.note(&found.relative, self.copy_file(&found, &mut buffer));
            }
        }
    }

    fn copy_file(&self, found: &Found, buffer: &mut Vec<u8>) -> Result<(), Side> {
        let source = self.job.source;
        let input = source.options().read(true).no_follow(true).open(self.source_path(found)).reading()?;
        self.store.file(&found.relative, &found.stat, &self.xattrs(found), |output| {
            copy_bytes(&input, source, output, &found.stat, buffer)
        })
    }

    /// Hard links, then directories, those inside first.
    fn finish(&self, later: &Later) {
        let mut buffer = Vec::new();
        for (first, found) in &later.links {
            if self.store.progress.stopped() {
                return;
            }
            let result = match self.store.link(first, &found.relative) {
                Ok(()) => Ok(()),
                // The first name failed, or the target has no more links: a file of its own is better than none.
                Err(_) if found.stat.is_file() => self.copy_file(found, &mut buffer),
                Err(_) => self.make_special(found),
            };
            self.note(&found.relative, result);
        }
        for dir in later.directories.iter().rev() {
            if self.store.progress.stopped() {
                return;
            }
            self.note(
                &dir.relative,
                self.store.finish_directory(&dir.relative, &dir.stat, &self.xattrs(dir)),
            );
        }
    }

    fn note(&self, relative: &Path, result: Result<(), Side>) {
        if let Err(side) = result {
            self.store.progress.failed(relative, &side);
        }
    }
}
