//! Gives a volume in a directory one owner at a time, by a record lock of the host and a table of this
//! process.
//!
//! A record lock belongs to a process. The lock ends with the process, even if the process is killed, and a
//! forked child does not inherit the lock. The lock does not exclude its own process. If the process closes
//! any descriptor of the file, the lock is dropped. Therefore the table lists the held directories, and the
//! process never opens a second descriptor of a lock file that it holds.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use eyrie_medium::host;
use eyrie_medium::sync::unpoisoned;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk, getpid};

use super::segment::errno_of;
use crate::{Error, Result};

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

/// A held directory: its device and inode, and the process that holds its lock. A forked child inherits the
/// table but not the locks, so each entry names its process.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HeldDirectory {
    device: u64,
    inode: u64,
    process: Pid,
}

static HELD: Mutex<Vec<HeldDirectory>> = Mutex::new(Vec::new());

/// Number of attempts to lock. The holder may end between the refusal of the lock and the query of the
/// holder's id. The next attempt then succeeds, unless another process has taken the lock meanwhile.
const TRIES: u32 = 8;

/// The exclusive lock of a volume's directory. The drop of this value releases the lock.
pub(crate) struct HostLock {
    held: HeldDirectory,
    file: Option<File>,
}

impl HostLock {
    /// Locks the volume in directory `path`.
    pub(super) fn acquire(path: &Path) -> Result<HostLock> {
        let place = path.display().to_string();
        let failed = |what: &str, error: std::io::Error| {
            Error::volume(&place, format!("{what}: {error}"), errno_of(&error))
        };
        let directory = host::metadata(path).map_err(|error| failed("cannot be opened", error))?;
        let held = HeldDirectory { device: directory.dev(), inode: directory.ino(), process: getpid() };
        let mut table = unpoisoned(HELD.lock());
        // The table is checked before the file is opened, because the close of a second descriptor would drop
        // the lock.
        if table.contains(&held) {
            return Err(in_use(&place, held.process));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let file = host::open(&options, path.join(LOCK))
            .map_err(|error| failed("its lock cannot be opened", error))?;
        for _ in 0..TRIES {
            match host::call(|| fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)) {
                Ok(()) => {
                    table.push(held);
                    return Ok(HostLock { held, file: Some(file) });
                }
                Err(Errno::AGAIN | Errno::ACCESS) => {}
                Err(errno) => return Err(failed("cannot be locked", errno.into())),
            }
            let holder = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock));
            if let Ok(Some(Flock { pid: Some(pid), .. })) = holder {
                return Err(in_use(&place, pid));
            }
        }
        Err(Error::volume(&place, "in use by another process", Errno::BUSY))
    }
}

/// Returns true if this process holds the volume in directory `path`.
#[cfg(test)]
pub(super) fn is_held(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|directory| {
        let held = HeldDirectory { device: directory.dev(), inode: directory.ino(), process: getpid() };
        unpoisoned(HELD.lock()).contains(&held)
    })
}

fn in_use(place: &str, process: Pid) -> Error {
    let pid = process.as_raw_nonzero();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = match name.trim() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    Error::volume(place, format!("in use by process {pid}{name}"), Errno::BUSY)
}

impl Drop for HostLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if self.held.process != getpid() {
            // In a forked child, a close would drop the lock that the child itself may have taken on this
            // file.
            std::mem::forget(file);
            return;
        }
        let mut table = unpoisoned(HELD.lock());
        drop(file);
        table.retain(|held| *held != self.held);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// If this variable is set, a child process tries the lock of the directory that the variable names, and
    /// reports the result.
    const CHILD: &str = "EYRIE_TEST_LOCK_DIRECTORY";

    fn refusal(path: &Path) -> String {
        HostLock::acquire(path).err().map_or("locked it".to_string(), |error| error.to_string())
    }

    #[test]
    fn a_child_tries_the_lock() {
        if let Some(path) = std::env::var_os(CHILD) {
            println!("child: {}", refusal(Path::new(&path)));
        }
    }

    fn refusal_in_child(path: &Path) -> String {
        let program = std::env::current_exe().expect("this program");
        let test = concat!(module_path!(), "::a_child_tries_the_lock");
        let test = test.split_once("::").expect("a crate").1;
        let child = Command::new(program).args(["--exact", test, "--nocapture"]).env(CHILD, path).output();
        let output = String::from_utf8(child.expect("ran").stdout).expect("text");
        let line = output.lines().find_map(|line| line.split_once("child: "));
        line.unwrap_or_else(|| panic!("no report: {output}")).1.to_string()
    }

    #[test]
    fn a_second_open_names_the_holder() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let lock = HostLock::acquire(path).expect("free");
        let pid = std::process::id();
        let comm = fs::read_to_string("/proc/self/comm").expect("a name");
        let expected = format!("in use by process {pid}");
        assert!(refusal(path).contains(&expected), "{}", refusal(path));
        let by_child = refusal_in_child(path);
        assert!(by_child.contains(&expected) && by_child.contains(&comm.trim()[..5]), "{by_child}");
        drop(lock);
        assert!(refusal_in_child(path).contains("locked it"));
        drop(HostLock::acquire(path).expect("free again"));
    }

    #[test]
    fn inherited_lock_dropped_in_child_stays_held() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let mut lock = HostLock::acquire(path).expect("free");
        let file = lock.file.take().expect("locked");
        // This is the state in a forked child: the lock belongs to another process.
        let parent = Pid::from_raw(1).expect("a process");
        drop(HostLock { held: HeldDirectory { process: parent, ..lock.held }, file: Some(file) });
        assert!(refusal(path).contains("in use") && refusal_in_child(path).contains("in use"));
    }
}
