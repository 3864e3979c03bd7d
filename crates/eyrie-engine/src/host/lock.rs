//! Locks a volume in a directory: for one owner, which may change the volume, or for any number of readers. A
//! record lock of the host excludes other processes. A table excludes other opens in this process.
//!
//! A record lock belongs to a process. The lock ends with the process, even if the process is killed, and a
//! forked child does not inherit the lock. The lock does not exclude its own process. If the process closes
//! any descriptor of the file, the lock is dropped. Therefore the table lists the held directories, and the
//! process never opens a second descriptor of a lock file that it holds.
//!
//! A reader changes no file, so it does not make a missing lock file. It locks the segment by flock(2)
//! instead, and then looks for the lock file again. An owner first locks the lock file, which it makes if
//! necessary, and then tests that no reader has the segment locked. So if a reader and an owner come at the
//! same time, the reader sees the lock file, or the owner sees the lock of the segment. Record locks and
//! locks of flock(2) do not exclude each other. A forked child inherits a lock of flock(2). This lock lasts
//! until the reader unlocks it, or until the reader and the child have ended.
//!
//! The owner of a volume on a disk also locks the segment, by an exclusive lock of flock(2). A process that
//! is killed may leave writes of its ring (io_uring) that the kernel is still making after the record lock
//! has ended. Such a write could destroy a record or a page that the next owner has just written. The kernel
//! keeps the descriptor of these writes open until the last of them has ended, so the lock of the segment
//! lasts until then. The next owner waits for this lock before it reads the segment.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use eyrie_medium::host;
use eyrie_medium::sync::unpoisoned;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk, getpid};

use super::segment::{SEGMENT_FILE, errno_of, host_error};
use crate::{Errno, Error, Result};

/// Name of the file in a volume's directory that is locked.
pub(super) const LOCK: &str = "lock";

/// Keeps other owners away from a volume until this value is dropped.
pub(crate) enum Hold {
    Directory(Arc<HostLock>),
    /// The locked device itself.
    Device(File),
}

/// The opens that may exist beside an open of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// No other open. The owner may change the volume.
    Exclusive,
    /// Other shared opens, in this process and in others. All of them only read the volume.
    Shared,
}

/// A held directory: its device and inode, and the process that holds its lock. A forked child inherits the
/// table but not the record locks, so each entry names its process.
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
    /// The locked file, whose close releases the lock: the lock file, or the segment.
    file: File,
    /// The segment that the owner of a volume on a disk has locked: see [`HostLock::hold_segment`].
    segment: Option<File>,
}

static HELD: Mutex<Vec<HeldLock>> = Mutex::new(Vec::new());

/// The end of the message about a holder that only reads.
const READS: &str = ", which has it open read-only";

/// Number of attempts to lock. The holder may end between the refusal of the lock and the query of the
/// holder's id. The next attempt then succeeds, unless another process has taken the lock meanwhile.
const TRIES: u32 = 8;
/// Maximum time that an owner waits for the writes of a killed owner. A disk usually ends them within
/// milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Length of one sleep of an owner that waits.
const PAUSE: Duration = Duration::from_millis(1);

/// The lock of a volume's directory, exclusive or shared. The drop of the last value for a directory releases
/// the lock.
pub(crate) struct HostLock(HeldDirectory);

impl HostLock {
    /// Locks the volume in directory `path`. A shared lock changes no file and makes none. It needs only the
    /// permission to read the files of the volume.
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
        let mut opened = open_lock(path, sharing);
        if sharing == Sharing::Shared && opened.as_ref().is_err_and(is_missing) {
            match lock_segment(path).map_err(|error| failed("cannot be locked", error))? {
                SegmentLock::Held(segment) => {
                    table.push(HeldLock { directory, sharing, owners: 1, file: segment, segment: None });
                    return Ok(HostLock(directory));
                }
                SegmentLock::InUse => {
                    return Err(Error::volume(&place, "in use by another process", Errno::BUSY));
                }
                SegmentLock::HasLockFile => opened = open_lock(path, sharing),
            }
        }
        let file = opened.map_err(|error| failed("its lock cannot be opened", error))?;
        let (operation, kind) = match sharing {
            Sharing::Exclusive => (FlockOperation::NonBlockingLockExclusive, FlockType::WriteLock),
            Sharing::Shared => (FlockOperation::NonBlockingLockShared, FlockType::ReadLock),
        };
        for _ in 0..TRIES {
            match host::call(|| fcntl_lock(&file, operation)) {
                Ok(()) => {
                    if sharing == Sharing::Exclusive
                        && segment_has_readers(path).map_err(|error| failed("cannot be locked", error))?
                    {
                        let what = format!("in use by another process{READS}");
                        return Err(Error::volume(&place, what, Errno::BUSY));
                    }
                    if sharing == Sharing::Exclusive {
                        unlock_inherited(&table, directory);
                    }
                    table.push(HeldLock { directory, sharing, owners: 1, file, segment: None });
                    return Ok(HostLock(directory));
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {}
                Err(errno) => return Err(failed("cannot be locked", errno.into())),
            }
            if let Some(refusal) = refusal_of_record_lock(&place, &file, kind) {
                return Err(refusal);
            }
        }
        Err(Error::volume(&place, "in use by another process", Errno::BUSY))
    }

    /// Returns the error that names the holder of directory `path`, if somebody holds it. Takes no lock.
    pub(super) fn refusal(path: &Path) -> Option<Error> {
        let place = path.display().to_string();
        let found = fs::metadata(path).ok()?;
        let directory = HeldDirectory { device: found.dev(), inode: found.ino(), process: getpid() };
        let table = unpoisoned(HELD.lock());
        // As in `acquire`, this function looks at the table before it opens the file.
        if let Some(held) = table.iter().find(|held| held.directory == directory) {
            return Some(in_use(&place, directory.process, held.sharing));
        }
        let file = open_lock(path, Sharing::Shared).ok()?;
        refusal_of_record_lock(&place, &file, FlockType::WriteLock)
    }

    /// Locks the segment of the volume in directory `path` by flock(2). If a killed owner has left writes,
    /// waits until they have ended. The caller owns the volume. The caller makes all writes through
    /// `segment` or through duplicates of this descriptor, which have the same lock.
    pub(super) fn hold_segment(&self, path: &Path, segment: &File) -> Result<()> {
        // After a resize, the owner opens the segment once more.
        self.release_segment();
        let failed = |error: io::Error| host_error(path, "cannot be locked", &error);
        let last = Instant::now() + PATIENCE;
        while !try_flock(segment, FlockOperation::NonBlockingLockExclusive).map_err(failed)? {
            if Instant::now() >= last {
                let place = path.display().to_string();
                return Err(Error::volume(&place, "in use by another process", Errno::BUSY));
            }
            sleep(PAUSE);
        }
        let segment = host::try_clone(segment).map_err(failed)?;
        self.set_segment(Some(segment));
        Ok(())
    }

    /// Ends the lock of [`HostLock::hold_segment`], if there is one.
    pub(super) fn release_segment(&self) {
        // A close alone does not end the lock while a forked child has a copy of the descriptor.
        if let Some(segment) = self.set_segment(None) {
            unlock(&segment);
        }
    }

    /// Changes the locked segment in the table. Returns the previous one.
    fn set_segment(&self, segment: Option<File>) -> Option<File> {
        let mut table = unpoisoned(HELD.lock());
        let held = table.iter_mut().find(|held| held.directory == self.0)?;
        std::mem::replace(&mut held.segment, segment)
    }
}

/// Ends the lock of a segment that this process has inherited from the previous owner, its parent. Otherwise
/// a child that opens the volume itself would wait for its own copy of the parent's descriptor.
fn unlock_inherited(table: &[HeldLock], directory: HeldDirectory) {
    let is_inherited = |held: &&HeldLock| {
        let HeldDirectory { device, inode, process } = held.directory;
        (device, inode) == (directory.device, directory.inode) && process != directory.process
    };
    table.iter().filter(is_inherited).filter_map(|held| held.segment.as_ref()).for_each(unlock);
}

/// Returns the error that names the process with a record lock on a lock file that conflicts with a lock of
/// this kind, if there is such a process.
fn refusal_of_record_lock(place: &str, file: &File, kind: FlockType) -> Option<Error> {
    let Ok(Some(Flock { pid: Some(pid), typ, .. })) = fcntl_getlk(file, &Flock::from(kind)) else {
        return None;
    };
    let theirs = if typ == FlockType::ReadLock { Sharing::Shared } else { Sharing::Exclusive };
    Some(in_use(place, pid, theirs))
}

/// Opens the lock file of the volume in directory `path`, for a lock of this kind. An owner makes the file if
/// it is missing, for example in a copy of a volume.
fn open_lock(path: &Path, sharing: Sharing) -> io::Result<File> {
    let (lock, writes) = (path.join(LOCK), sharing == Sharing::Exclusive);
    match open(&lock, writes) {
        Err(error) if writes && is_missing(&error) => make_lock(path, &lock),
        opened => opened,
    }
}

/// Makes the missing lock file of the volume in directory `path`. The file belongs to the owner of the
/// directory, who may open the volume next. This matters if root opens the volume of another user.
fn make_lock(path: &Path, lock: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    match host::open(&options, lock) {
        // Another process has just made the file.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(lock, true),
        Err(error) => Err(error),
        Ok(file) => {
            // A failure is ignored: a process that may not change the owner of a file owns the directory.
            let _ = fs::metadata(path).and_then(|found| fchown(&file, Some(found.uid()), Some(found.gid())));
            Ok(file)
        }
    }
}

/// The result of a reader's attempt to lock the segment.
enum SegmentLock {
    /// The reader has locked this segment.
    Held(File),
    /// An owner has made the lock file meanwhile.
    HasLockFile,
    /// Another program has locked the segment exclusively. That program is no owner of a volume, because an
    /// owner makes the lock file before it tries such a lock.
    InUse,
}

/// Locks the segment of the volume in directory `path` for a reader, because the lock file is missing.
fn lock_segment(path: &Path) -> io::Result<SegmentLock> {
    let segment = open(&path.join(SEGMENT_FILE), false)?;
    let is_locked = try_flock(&segment, FlockOperation::NonBlockingLockShared)?;
    match host::call(|| fs::symlink_metadata(path.join(LOCK))) {
        Ok(_) => {
            unlock(&segment);
            Ok(SegmentLock::HasLockFile)
        }
        Err(error) if is_missing(&error) && is_locked => Ok(SegmentLock::Held(segment)),
        Err(error) if is_missing(&error) => Ok(SegmentLock::InUse),
        Err(error) => Err(error),
    }
}

/// True if a reader has locked the segment of the volume in directory `path`: see [`lock_segment`].
fn segment_has_readers(path: &Path) -> io::Result<bool> {
    match open(&path.join(SEGMENT_FILE), false) {
        Ok(segment) => {
            // A lock that excludes a shared lock belongs to no reader: see `HostLock::hold_segment`.
            let has_readers = try_flock(&segment, FlockOperation::NonBlockingLockShared)?
                && !try_flock(&segment, FlockOperation::NonBlockingLockExclusive)?;
            unlock(&segment);
            Ok(has_readers)
        }
        // A volume that is being made has no segment yet.
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks a file by flock(2). Returns false if another open of the file has a conflicting lock.
#[track_caller]
fn try_flock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match host::call(|| flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Ends a lock of flock(2). A close alone does not end the lock while a child that another thread has forked
/// keeps a copy of the descriptor.
fn unlock(file: &File) {
    // Without a lock the call does nothing.
    let _ = flock(file, FlockOperation::Unlock);
}

/// Opens a file of a volume for reading. With `for_writing`, opens the file for writing, too.
#[track_caller]
fn open(path: &Path, for_writing: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(for_writing);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    host::open(&options, path)
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
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
    let reads = if sharing == Sharing::Shared { READS } else { "" };
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
                let held = table.swap_remove(index);
                // This call ends a lock of flock(2). A record lock ends when `held` is dropped, which closes
                // the file.
                unlock(&held.file);
                held.segment.iter().for_each(unlock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::Command;
    use std::rc::Rc;

    use eyrie_medium::host::HostObserver;
    use eyrie_medium::{Caller, SiteKind};

    use super::*;

    /// If this variable is set, a child process tries the exclusive and the shared lock of the directory that
    /// the variable names, and reports the results.
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
        for has_lock_file in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path();
            fs::write(path.join(SEGMENT_FILE), "").expect("room");
            if has_lock_file {
                fs::write(path.join(LOCK), "").expect("room");
            }
            let [first, second] = [(); 2].map(|()| HostLock::acquire(path, Sharing::Shared).expect("free"));
            assert_eq!(path.join(LOCK).exists(), has_lock_file, "a reader makes no file");
            let mine = format!("in use by process {}", std::process::id());
            // Only a record lock names its holder to other processes.
            let theirs = if has_lock_file { &mine } else { "in use by another process" };
            for _ in 0..2 {
                let [exclusive, shared] = refusals_in_child(path);
                assert_eq!(shared, "locked it");
                for (refused, why) in [(exclusive, theirs), (refusal(path, Sharing::Exclusive), &mine)] {
                    assert!(refused.contains(why) && refused.ends_with("open read-only"), "{refused}");
                }
                // The lock is still held after the end of a child that shared it.
            }
            drop(first);
            assert!(refusals_in_child(path)[0].contains("in use"), "the second reader has the lock");
            drop(second);
            assert_eq!(refusals_in_child(path), ["locked it", "locked it"]);
        }
    }

    #[test]
    fn shared_lock_without_a_lock_file_excludes_an_exclusive_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        fs::write(path.join(SEGMENT_FILE), "").expect("room");
        let lock = HostLock::acquire(path, Sharing::Shared).expect("free");
        // Unlike a record lock, the lock of the segment survives the close of another descriptor.
        drop(File::open(path.join(SEGMENT_FILE)).expect("there"));
        assert!(refusals_in_child(path)[0].contains("in use"));
        assert!(path.join(LOCK).exists(), "the owner in the child has made it");
        assert!(refusals_in_child(path)[0].contains("in use"), "also after the lock file was made");
        drop(lock);
        assert_eq!(refusals_in_child(path), ["locked it", "locked it"]);
    }

    #[test]
    fn regression_exclusive_lock_of_a_foreign_program_is_in_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        fs::write(path.join(SEGMENT_FILE), "").expect("room");
        let segment = File::open(path.join(SEGMENT_FILE)).expect("there");
        flock(&segment, FlockOperation::NonBlockingLockExclusive).expect("free");
        let refused = HostLock::acquire(path, Sharing::Shared).err().expect("in use");
        assert!(refused.to_string().ends_with("in use by another process"), "{refused}");
        assert_eq!(refused.errno(), Errno::BUSY);
        unlock(&segment);
        drop(HostLock::acquire(path, Sharing::Shared).expect("free"));
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
        let file = held.file.try_clone().expect("a file");
        let sharing = Sharing::Exclusive;
        let inherited = HeldLock { directory: parent, sharing, owners: 1, file, segment: None };
        table.push(inherited);
        drop(table);
        drop(HostLock(parent));
        assert!(refusal(path, Sharing::Shared).contains("in use"));
        assert!(refusals_in_child(path).iter().all(|result| result.contains("in use")));
    }

    /// The descriptor of writes that a killed owner has left. The writes end before the third call to the
    /// host.
    struct LateWrites {
        segment: File,
        calls: Cell<u32>,
    }

    impl HostObserver for LateWrites {
        fn before_call(&self, _: SiteKind, _: Caller) -> std::result::Result<(), rustix::io::Errno> {
            self.calls.set(self.calls.get() + 1);
            if self.calls.get() == 3 {
                unlock(&self.segment);
            }
            Ok(())
        }
    }

    #[test]
    fn owner_waits_for_writes_of_a_killed_owner() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        fs::write(path.join(SEGMENT_FILE), "").expect("room");
        let open = || File::open(path.join(SEGMENT_FILE)).expect("there");
        let is_free =
            |file: &File| try_flock(file, FlockOperation::NonBlockingLockExclusive).expect("locks work");
        let late = Rc::new(LateWrites { segment: open(), calls: Cell::new(0) });
        assert!(is_free(&late.segment));
        let lock = HostLock::acquire(path, Sharing::Exclusive).expect("no reader has the segment");
        let observer = Rc::clone(&late) as Rc<dyn HostObserver>;
        let held = host::observed_by(observer, || lock.hold_segment(path, &open()));
        held.expect("the writes have ended");
        assert_eq!(late.calls.get(), 4, "three attempts and a copy of the descriptor");
        assert!(!is_free(&late.segment), "the next owner has the lock");
        drop(lock);
        assert!(is_free(&late.segment));
    }

    #[test]
    fn child_ends_the_lock_of_a_segment_that_it_inherits() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        fs::write(path.join(SEGMENT_FILE), "").expect("room");
        let open = || File::open(path.join(SEGMENT_FILE)).expect("there");
        let lock = HostLock::acquire(path, Sharing::Exclusive).expect("free");
        lock.hold_segment(path, &open()).expect("free");
        // This is the state in a forked child whose parent has ended: the table has the lock of the parent.
        let mut table = unpoisoned(HELD.lock());
        let held = table.iter_mut().find(|held| held.directory == lock.0).expect("locked");
        held.directory.process = Pid::from_raw(1).expect("a process");
        drop(table);
        std::mem::forget(lock);
        let lock = HostLock::acquire(path, Sharing::Exclusive).expect("the parent has ended");
        lock.hold_segment(path, &open()).expect("the child does not wait for itself");
    }

    #[test]
    fn lock_file_that_root_makes_belongs_to_the_owner_of_the_volume() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: only root can give files to other users");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        std::os::unix::fs::chown(path, Some(4711), Some(4712)).expect("root may do this");
        drop(HostLock::acquire(path, Sharing::Exclusive).expect("free"));
        let found = fs::metadata(path.join(LOCK)).expect("the owner has made it");
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (4711, 4712, 0o600));
    }
}
