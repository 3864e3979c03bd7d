//! Hard links of a copy: the first name of a file is copied, further names are linked to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use eyrie::{Base, OpenFlags, Posix, Stat};

/// Names that wait for the copy of their file. Each keeps directories open.
const MOST_WAITING: usize = 64;
/// Bytes of a path that every file system takes.
const PATH_BYTES: usize = 4000;

/// The first name of a file, as far as it is known.
enum First<T> {
    /// A worker copies it. These names wait for it.
    Copying(Vec<T>),
    /// It is in the target, at this path under the root.
    There(PathBuf),
    /// It could not be copied.
    Failed,
}

/// The task for a name of a file that has several.
pub(super) enum Turn<T> {
    /// Copy it, and say [`Links::done`] or [`Links::failed`].
    Copy(T),
    /// Link it to the copy at this path.
    Link(T, PathBuf),
    /// Nothing: it is linked when the copy is there.
    Wait,
}

struct State<T> {
    /// By file system and inode number.
    first: HashMap<(u64, u64), First<T>>,
    waiting: usize,
}

/// The files of a copy that have several names.
pub(super) struct Links<T> {
    state: Mutex<State<T>>,
    fewer: Condvar,
}

impl<T> Links<T> {
    pub fn new() -> Links<T> {
        Links { state: Mutex::new(State { first: HashMap::new(), waiting: 0 }), fewer: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task for the name `task` of the file `stat`.
    pub fn turn(&self, stat: &Stat, task: T) -> Turn<T> {
        let mut state = self.state();
        while state.waiting >= MOST_WAITING {
            state = self.fewer.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let State { first, waiting } = &mut *state;
        match first.entry((stat.file_system, stat.inode)) {
            Entry::Vacant(none) => {
                none.insert(First::Copying(Vec::new()));
                Turn::Copy(task)
            }
            Entry::Occupied(mut found) => match found.get_mut() {
                First::Copying(tasks) => {
                    *waiting += 1;
                    tasks.push(task);
                    Turn::Wait
                }
                First::There(path) => Turn::Link(task, path.clone()),
                First::Failed => {
                    found.insert(First::Copying(Vec::new()));
                    Turn::Copy(task)
                }
            },
        }
    }

    /// The copy of the file `stat` is at `path`. The names that waited for it.
    pub fn done(&self, stat: &Stat, path: &Path) -> Vec<T> {
        let mut state = self.state();
        match state.first.insert((stat.file_system, stat.inode), First::There(path.to_owned())) {
            Some(First::Copying(tasks)) => {
                state.waiting -= tasks.len();
                self.fewer.notify_all();
                tasks
            }
            _ => Vec::new(),
        }
    }

    /// The file `stat` could not be copied under this name. The name to copy instead, if one waits.
    pub fn failed(&self, stat: &Stat) -> Option<T> {
        let mut state = self.state();
        let State { first, waiting } = &mut *state;
        let known = first.get_mut(&(stat.file_system, stat.inode))?;
        let next = if let First::Copying(tasks) = known { tasks.pop() } else { None };
        match next {
            Some(_) => *waiting -= 1,
            None => *known = First::Failed,
        }
        self.fewer.notify_all();
        next
    }
}

/// The directory of `path`, which may be longer than a path may be, and what is left of `path` from there.
pub(super) fn reach<'a, D: Posix>(target: &'a D, path: &Path) -> eyrie::Result<(Base<'a, D>, PathBuf)> {
    let mut base = Base::Given(target);
    let mut rest = PathBuf::new();
    for part in path.components() {
        if rest.as_os_str().len() + part.as_os_str().len() >= PATH_BYTES {
            let handle = base.open(&rest, OpenFlags::READ | OpenFlags::DIRECTORY, 0)?;
            let next = base.at(&handle);
            base.close(handle)?;
            base = Base::Directory(std::sync::Arc::new(next?));
            rest = PathBuf::new();
        }
        rest.push(part);
    }
    Ok((base, rest))
}
