//! One owner at a time: a record lock of the host, and a table of this process's own.
//!
//! Record locks belong to a process: they end with it, whatever way, and a forked child has none. They do not keep
//! a process from itself, and any of its descriptors that is closed drops them, hence the table: no second descriptor
//! of a lock that is held is ever opened.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use eyrie_medium::host_call;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk, getpid};

use super::host::LOCK;
use super::superblock::failure;
use crate::{Error, Result};

/// A directory's device and inode, and the process that holds it: a forked child inherits the table, not the locks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Held {
    device: u64,
    inode: u64,
    process: Pid,
}

static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// Tries again when the holder went away between the refusal and the question who it is.
const TRIES: u32 = 8;

/// The exclusive lock of a volume's directory, until dropped.
pub(super) struct HostLock {
    held: Held,
    file: Option<File>,
}

impl HostLock {
    /// Locks the volume in directory `path`.
    pub(super) fn take(path: &Path) -> Result<HostLock> {
        let place = path.display().to_string();
        let host = |what: &str, error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            failure(&place, format!("{what}: {error}"), errno)
        };
        let directory = host_call(|| fs::metadata(path)).map_err(|error| host("cannot be opened", error))?;
        let held = Held { device: directory.dev(), inode: directory.ino(), process: getpid() };
        let mut table = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if table.contains(&held) {
            return Err(in_use(&place, held.process));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let file = host_call(|| options.open(path.join(LOCK)))
            .map_err(|error| host("its lock cannot be opened", error))?;
        for _ in 0..TRIES {
            match host_call(|| fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)) {
                Ok(()) => {
                    table.push(held);
                    return Ok(HostLock { held, file: Some(file) });
                }
                Err(Errno::AGAIN | Errno::ACCESS) => {}
                Err(errno) => return Err(host("cannot be locked", errno.into())),
            }
            let holder = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock));
            if let Ok(Some(Flock { pid: Some(pid), .. })) = holder {
                return Err(in_use(&place, pid));
            }
        }
        Err(failure(&place, "in use by another process", Errno::BUSY))
    }
}

fn in_use(place: &str, process: Pid) -> Error {
    let pid = process.as_raw_nonzero();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = match name.trim() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    failure(place, format!("in use by process {pid}{name}"), Errno::BUSY)
}

impl Drop for HostLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if self.held.process != getpid() {
            // A forked child: closing would drop a lock of its own on the same file.
            std::mem::forget(file);
            return;
        }
        let mut table = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        drop(file);
        table.retain(|held| *held != self.held);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set in a child that is to try the lock of this directory and report.
    const CHILD: &str = "EYRIE_TEST_LOCK_DIRECTORY";

    fn refusal(path: &Path) -> String {
        HostLock::take(path).err().map_or("locked it".to_string(), |error| error.to_string())
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
        let lock = HostLock::take(path).expect("free");
        let pid = std::process::id();
        let comm = fs::read_to_string("/proc/self/comm").expect("a name");
        let expected = format!("in use by process {pid}");
        assert!(refusal(path).contains(&expected), "{}", refusal(path));
        let by_child = refusal_in_child(path);
        assert!(by_child.contains(&expected) && by_child.contains(&comm.trim()[..5]), "{by_child}");
        drop(lock);
        assert!(refusal_in_child(path).contains("locked it"));
        drop(HostLock::take(path).expect("free again"));
    }

    #[test]
    fn what_a_forked_child_inherits_unlocks_nothing_when_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let mut lock = HostLock::take(path).expect("free");
        let file = lock.file.take().expect("locked");
        // As a child sees it: the process that took the lock is another.
        let parent = Pid::from_raw(1).expect("a process");
        drop(HostLock { held: Held { process: parent, ..lock.held }, file: Some(file) });
        assert!(refusal(path).contains("in use") && refusal_in_child(path).contains("in use"));
    }
}
