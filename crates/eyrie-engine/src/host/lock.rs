//! Gives a volume in a directory one owner that changes it, or any number of owners that only read it, by a
//! record lock of the host and a table of this process.
//!
//! A record lock belongs to a process. The lock ends with the process, even if the process is killed, and a
//! forked child does not inherit the lock. The lock does not exclude its own process. If the process closes
//! any descriptor of the file, the lock is dropped. Therefore the table lists the held directories, and the
//! process never opens a second descriptor of a lock file that it holds.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use eyrie_medium::host;
use eyrie_medium::sync::unpoisoned;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk, getpid};

use super::segment::errno_of;
use crate::{Errno, Error, Result};

/// Name of the file in a volume's directory that is locked.
pub(super) const LOCK: &str = "lock";

/// Keeps other owners away from a volume until this value is dropped.
pub(crate) enum Hold {
    Directory {
        _lock: Arc<HostLock>,
    },
    /// The claimed device itself.
    Device(File),
}

/// The opens that may exist beside an open of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// No other open. The owner may change the volume.
    Exclusive,
    /// Other shared opens, in this process and in others. The owners only read the volume.
    Shared,
}

/// A held directory: its device and inode, and the process that holds its lock. A forked child inherits the
/// table but not the locks, so each entry names its process.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HeldDirectory {
    device: u64,
    inode: u64,
    process: Pid,
}

/// The lock of a held directory, with its locked file.
struct HeldLock {
    directory: HeldDirectory,
    sharing: Sharing,
    /// The number of [`HostLock`]s for the directory: more than 1 only for a shared lock.
    owners: usize,
    /// The locked file, whose close releases the lock.
    _file: File,
}

static HELD: Mutex<Vec<HeldLock>> = Mutex::new(Vec::new());

/// Number of attempts to lock. The holder may end between the refusal of the lock and the query of the
/// holder's id. The next attempt then succeeds, unless another process has taken the lock meanwhile.
const TRIES: u32 = 8;

/// The lock of a volume's directory, exclusive or shared. The drop of the last value for a directory releases
/// the lock.
pub(crate) struct HostLock(HeldDirectory);

impl HostLock {
    /// Locks the volume in directory `path`. A shared lock needs only the permission to read the lock file.
    pub(super) fn acquire(path: &Path, sharing: Sharing) -> Result<HostLock> {
        let place = path.display().to_string();
        let failed = |what: &str, error: io::Error| {
            Error::volume(&place, format!("{what}: {error}"), errno_of(&error))
        };
        let directory = host::metadata(path).map_err(|error| failed("cannot be opened", error))?;
        let directory = HeldDirectory { device: directory.dev(), inode: directory.ino(), process: getpid() };
        let mut table = unpoisoned(HELD.lock());
        // The table is checked before the file is opened, because the close of a second descriptor would drop
        // the lock.
        if let Some(held) = table.iter_mut().find(|held| held.directory == directory) {
            if (held.sharing, sharing) != (Sharing::Shared, Sharing::Shared) {
                return Err(in_use(&place, directory.process, held.sharing));
            }
            held.owners += 1;
            return Ok(HostLock(directory));
        }
        let file = open_lock(path, sharing).map_err(|error| failed("its lock cannot be opened", error))?;
        let (operation, kind) = match sharing {
            Sharing::Exclusive => (FlockOperation::NonBlockingLockExclusive, FlockType::WriteLock),
            Sharing::Shared => (FlockOperation::NonBlockingLockShared, FlockType::ReadLock),
        };
        for _ in 0..TRIES {
            match host::call(|| fcntl_lock(&file, operation)) {
                Ok(()) => {
                    table.push(HeldLock { directory, sharing, owners: 1, _file: file });
                    return Ok(HostLock(directory));
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {}
                Err(errno) => return Err(failed("cannot be locked", errno.into())),
            }
            if let Ok(Some(Flock { pid: Some(pid), typ, .. })) = fcntl_getlk(&file, &Flock::from(kind)) {
                let theirs = if typ == FlockType::ReadLock { Sharing::Shared } else { Sharing::Exclusive };
                return Err(in_use(&place, pid, theirs));
            }
        }
        Err(Error::volume(&place, "in use by another process", Errno::BUSY))
    }
}

/// Opens the lock file of the volume in directory `path`, for a lock of this kind. The file is made if it is
/// missing, for example in a copy of a volume.
fn open_lock(path: &Path, sharing: Sharing) -> io::Result<File> {
    let open = |for_writing| {
        let mut options = OpenOptions::new();
        options.read(true).write(for_writing).create(for_writing).truncate(false).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        host::open(&options, path.join(LOCK))
    };
    match sharing {
        Sharing::Exclusive => open(true),
        Sharing::Shared => open(false).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => open(true),
            _ => Err(error),
        }),
    }
}

/// Returns true if this process holds the volume in directory `path`.
#[cfg(test)]
pub(super) fn is_held(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|directory| {
        let held = HeldDirectory { device: directory.dev(), inode: directory.ino(), process: getpid() };
        unpoisoned(HELD.lock()).iter().any(|lock| lock.directory == held)
    })
}

/// Returns the error for a volume that `process` holds.
fn in_use(place: &str, process: Pid, sharing: Sharing) -> Error {
    let pid = process.as_raw_nonzero();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = match name.trim() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    let reads = if sharing == Sharing::Shared { ", which has it open read-only" } else { "" };
    Error::volume(place, format!("in use by process {pid}{name}{reads}"), Errno::BUSY)
}

impl Drop for HostLock {
    fn drop(&mut self) {
        if self.0.process != getpid() {
            // In a forked child, a close would drop the lock that the child itself may have taken on this
            // file. So the descriptor stays open in the inherited table.
            return;
        }
        let mut table = unpoisoned(HELD.lock());
        if let Some(index) = table.iter().position(|held| held.directory == self.0) {
            table[index].owners -= 1;
            if table[index].owners == 0 {
                table.swap_remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// If this variable is set, a child process tries both locks of the directory that the variable names,
    /// and reports the results.
    const CHILD: &str = "EYRIE_TEST_LOCK_DIRECTORY";

    fn refusal(path: &Path, sharing: Sharing) -> String {
        HostLock::acquire(path, sharing).err().map_or("locked it".to_string(), |error| error.to_string())
    }

    #[test]
    fn a_child_tries_the_lock() {
        if let Some(path) = std::env::var_os(CHILD) {
            let path = Path::new(&path);
            println!("exclusive: {}", refusal(path, Sharing::Exclusive));
            println!("shared: {}", refusal(path, Sharing::Shared));
        }
    }

    /// Returns the results of a child that tries the exclusive and the shared lock.
    fn refusals_in_child(path: &Path) -> [String; 2] {
        let program = std::env::current_exe().expect("this program");
        let test = concat!(module_path!(), "::a_child_tries_the_lock");
        let test = test.split_once("::").expect("a crate").1;
        let child = Command::new(program).args(["--exact", test, "--nocapture"]).env(CHILD, path).output();
        let output = String::from_utf8(child.expect("ran").stdout).expect("text");
        ["exclusive: ", "shared: "].map(|kind| {
            let line = output.lines().find_map(|line| line.split_once(kind));
            line.unwrap_or_else(|| panic!("no report: {output}")).1.to_string()
        })
    }

    #[test]
    fn a_second_open_names_the_holder() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let lock = HostLock::acquire(path, Sharing::Exclusive).expect("free");
        let pid = std::process::id();
        let comm = fs::read_to_string("/proc/self/comm").expect("a name");
        let expected = format!("in use by process {pid}");
        let mine = [Sharing::Exclusive, Sharing::Shared].map(|sharing| refusal(path, sharing));
        for refused in mine.into_iter().chain(refusals_in_child(path)) {
            assert!(refused.contains(&expected) && refused.contains(&comm.trim()[..5]), "{refused}");
            assert!(!refused.contains("read-only"), "{refused}");
        }
        drop(lock);
        assert!(refusals_in_child(path).iter().all(|result| result == "locked it"));
        drop(HostLock::acquire(path, Sharing::Exclusive).expect("free again"));
    }

    #[test]
    fn shared_locks_exclude_only_an_exclusive_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let [first, second] = [(); 2].map(|()| HostLock::acquire(path, Sharing::Shared).expect("free"));
        for _ in 0..2 {
            let [exclusive, shared] = refusals_in_child(path);
            assert_eq!(shared, "locked it");
            for refused in [exclusive, refusal(path, Sharing::Exclusive)] {
                let expected = format!("in use by process {}", std::process::id());
                assert!(refused.contains(&expected) && refused.ends_with("open read-only"), "{refused}");
            }
            // The lock is still held after the end of a child that shared it.
        }
        drop(first);
        assert!(refusals_in_child(path)[0].contains("in use"), "the second owner has the lock");
        drop(second);
        assert_eq!(refusals_in_child(path), ["locked it", "locked it"]);
    }

    #[test]
    fn inherited_lock_dropped_in_child_stays_held() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let lock = HostLock::acquire(path, Sharing::Exclusive).expect("free");
        // This is the state in a forked child that has locked the volume itself: the table has the lock of
        // the parent, too. Closing its descriptor would drop the lock of the child.
        let parent = HeldDirectory { process: Pid::from_raw(1).expect("a process"), ..lock.0 };
        let mut table = unpoisoned(HELD.lock());
        let held = table.iter().find(|held| held.directory == lock.0).expect("locked");
        let file = held._file.try_clone().expect("a file");
        let inherited = HeldLock { directory: parent, sharing: Sharing::Exclusive, owners: 1, _file: file };
        table.push(inherited);
        drop(table);
        drop(HostLock(parent));
        assert!(refusal(path, Sharing::Shared).contains("in use"));
        assert!(refusals_in_child(path).iter().all(|result| result.contains("in use")));
    }
}
