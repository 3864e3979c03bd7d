//! Hard links of a copy: a file is copied under one of its names, and its other names become links to that
//! copy.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard};

use eyrie::{Dir, Posix, Stat};

use super::lock::unpoisoned;

/// Maximum number of names that wait for the copy of their file. Each of them keeps directories open.
const MAX_WAITING: usize = 64;
/// Maximum length of the path that `reach` gives to one call, in bytes. Linux accepts 4095 bytes.
const PATH_BYTES: usize = 4000;

/// The state of the first name of a file.
enum FirstName<T> {
    /// A thread copies the file, or the file waits for a worker thread. These names wait for the copy.
    Copying(Vec<T>),
    /// The copy is at this path, relative to the root of the copied tree.
    Copied(PathBuf),
    /// The file could not be copied under any of the names that were tried.
    Failed,
}

/// The task for one of the several names of a file.
pub(super) enum NameTask<T> {
    /// Copy the file, then call [`Links::done`] or [`Links::failed`].
    Copy(T),
    /// Link the name to the copy at this path.
    Link(T, PathBuf),
    /// Do nothing now. The worker thread that copies the file will link this name. If that copy fails, the
    /// thread copies the file under a waiting name.
    Wait,
}

struct LinkTable<T> {
    /// The state of the first name of each file, by file system and inode number of the file.
    first: HashMap<(u64, u64), FirstName<T>>,
    waiting: usize,
    /// True after a worker thread has panicked, so perhaps no thread copies the files of waiting names.
    abandoned: bool,
}

/// Ends the wait of the walking thread if the thread that holds this value panics.
pub(super) struct PanicGuard<'l, T>(&'l Links<T>);

impl<T> Drop for PanicGuard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().abandoned = true;
            self.0.fewer.notify_all();
        }
    }
}

/// The files with several names that a copy has found.
pub(super) struct Links<T> {
    table: Mutex<LinkTable<T>>,
    fewer: Condvar,
}

impl<T> Links<T> {
    pub fn new() -> Links<T> {
        let table = LinkTable { first: HashMap::new(), waiting: 0, abandoned: false };
        Links { table: Mutex::new(table), fewer: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, LinkTable<T>> {
        unpoisoned(self.table.lock())
    }

    /// Returns a guard that a worker thread holds while it copies a file.
    pub fn guard(&self) -> PanicGuard<'_, T> {
        PanicGuard(self)
    }

    /// Decides if `task`, which stands for one name of the file with the attributes `stat`, copies the file,
    /// links the name or waits. Returns `None` if too many names wait and a worker thread has panicked.
    pub fn task_for(&self, stat: &Stat, task: T) -> Option<NameTask<T>> {
        let mut table = self.lock();
        // Only the walking thread calls this function and waits here. The worker threads therefore finish the
        // copies, and the number of waiting names falls.
        while table.waiting >= MAX_WAITING {
            if table.abandoned {
                return None;
            }
            table = unpoisoned(self.fewer.wait(table));
        }
        let LinkTable { first, waiting, .. } = &mut *table;
        Some(match first.entry((stat.file_system, stat.inode)) {
            Entry::Vacant(none) => {
                none.insert(FirstName::Copying(Vec::new()));
                NameTask::Copy(task)
            }
            Entry::Occupied(mut found) => match found.get_mut() {
                FirstName::Copying(tasks) => {
                    *waiting += 1;
                    tasks.push(task);
                    NameTask::Wait
                }
                FirstName::Copied(path) => NameTask::Link(task, path.clone()),
                FirstName::Failed => {
                    found.insert(FirstName::Copying(Vec::new()));
                    NameTask::Copy(task)
                }
            },
        })
    }

    /// Notes that the copy of the file `stat` is complete at `path`. Returns the names that waited for the
    /// copy.
    pub fn done(&self, stat: &Stat, path: &Path) -> Vec<T> {
        let mut table = self.lock();
        match table.first.insert((stat.file_system, stat.inode), FirstName::Copied(path.to_owned())) {
            Some(FirstName::Copying(tasks)) => {
                table.waiting -= tasks.len();
                self.fewer.notify_all();
                tasks
            }
            _ => Vec::new(),
        }
    }

    /// Notes that the file `stat` could not be copied under the name that the calling thread tried. Returns a
    /// waiting name under which the file is copied next, if there is one.
    pub fn failed(&self, stat: &Stat) -> Option<T> {
        let mut table = self.lock();
        let LinkTable { first, waiting, .. } = &mut *table;
        let known = first.get_mut(&(stat.file_system, stat.inode))?;
        let next = if let FirstName::Copying(tasks) = known { tasks.pop() } else { None };
        match next {
            Some(_) => *waiting -= 1,
            None => *known = FirstName::Failed,
        }
        self.fewer.notify_all();
        next
    }
}

/// Opens directories along `path`, which may be longer than the longest path of a call. Returns the last
/// opened directory (or `target`, if none was opened), and the rest of `path` from there.
pub(super) fn reach<D: Posix + Clone>(target: &D, path: &Path) -> eyrie::Result<(Dir<D>, PathBuf)> {
    let mut dir = Dir::root(target.clone());
    let mut rest = PathBuf::new();
    for part in path.components() {
        if rest.as_os_str().len() + part.as_os_str().len() >= PATH_BYTES {
            dir = dir.subdirectory(&rest)?;
            rest = PathBuf::new();
        }
        rest.push(part);
    }
    Ok((dir, rest))
}

#[cfg(test)]
mod tests {
    use eyrie::Kind;

    use super::*;

    #[test]
    fn panic_of_a_worker_ends_the_wait() {
        let (links, stat) = (Links::new(), Stat::new(Kind::File));
        assert!(matches!(links.task_for(&stat, 0), Some(NameTask::Copy(0))));
        for task in 0..MAX_WAITING {
            assert!(matches!(links.task_for(&stat, task), Some(NameTask::Wait)));
        }
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _guard = links.guard();
                panic!("the worker fails");
            });
            assert!(links.task_for(&stat, 0).is_none());
            assert!(worker.join().is_err());
        });
    }
}
