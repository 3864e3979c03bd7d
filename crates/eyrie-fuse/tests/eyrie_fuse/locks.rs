//! Tests of advisory locks through mounts: two mounts of one volume, and the library beside them.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use eyrie::{
    Credentials, Errno, FoundLock, Host, LockKind, LockWait, OpenFlags, Posix, PosixExt, PosixLocks,
    RangeOwner, Volume,
};
use eyrie_fuse::Mount;

use super::{Fixture, errno, eventually, fixture};

const EXCLUSIVE: Option<LockKind> = Some(LockKind::Exclusive);
/// Time limit for a step that should come soon.
const PATIENCE: Duration = Duration::from_secs(30);
/// A call without an answer after this time counts as waiting.
const BEGINS_TO_WAIT: Duration = Duration::from_millis(100);
/// If this variable is set, a test runs in a child process.
const CHILD: &str = "EYRIE_TEST_LOCKS_CHILD";

/// Two mounts of one volume, which has the file `/egg`.
struct Two {
    mounts: [Mount; 2],
    points: [PathBuf; 2],
    fixture: Fixture,
}

fn two() -> Option<Two> {
    let fixture = fixture()?;
    fixture.files.write("/egg", "blue").unwrap();
    let points = [fixture.point.clone(), fixture.place.path().join("second")];
    fs::create_dir(&points[1]).unwrap();
    let mount =
        |point: &PathBuf| eyrie_fuse::mount(&fixture.volume, point, &"lock".parse().unwrap()).unwrap();
    Some(Two { mounts: [mount(&points[0]), mount(&points[1])], points, fixture })
}

impl Two {
    /// Opens the file in a mount.
    fn open(&self, mount: usize) -> File {
        File::options().read(true).write(true).open(self.points[mount].join("egg")).unwrap()
    }

    /// Checks that no lock is left, and unmounts.
    fn end(mut self) {
        let egg = self.fixture.files.options().read(true).write(true).open("/egg").unwrap();
        eventually("no lock is left", || {
            egg.try_lock().is_ok() && egg.find_range_lock(.., LockKind::Exclusive).unwrap().is_none()
        });
        self.mounts.iter_mut().for_each(super::unmount_idle);
    }
}

type Work = Box<dyn FnOnce(&Host, &mut Vec<OwnedFd>) + Send>;

/// A thread with its own table of descriptors, which the kernel treats as a process for locks. It has open
/// files in a mount.
struct Process {
    work: Sender<Work>,
    thread: thread::JoinHandle<()>,
}

impl Process {
    /// Starts a thread, which opens `/egg` in a mount `opens` times.
    fn new(point: &Path, opens: usize) -> Process {
        let ((work, to_do), point) = (channel::<Work>(), point.to_owned());
        let thread = thread::spawn(move || {
            #[expect(deprecated, reason = "the safe form; this thread uses no descriptor of another one")]
            rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).unwrap();
            let host = Host::new(point).unwrap();
            let open = |_| host.open("egg".into(), OpenFlags::READ | OpenFlags::WRITE, 0).unwrap();
            let mut files: Vec<OwnedFd> = (0..opens).map(open).collect();
            to_do.into_iter().for_each(|work| work(&host, &mut files));
        });
        Process { work, thread }
    }

    fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host, &mut Vec<OwnedFd>) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (done, answer) = channel();
        self.work.send(Box::new(move |host, files| drop(done.send(work(host, files))))).unwrap();
        answer
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce(&Host, &mut Vec<OwnedFd>) -> T + Send + 'static) -> T {
        self.begin(work).recv_timeout(PATIENCE).unwrap()
    }

    /// Locks a range with the first open file.
    fn lock(&self, owner: RangeOwner, range: (u64, u64), kind: Option<LockKind>) -> Result<(), Errno> {
        self.run(move |host, files| set(host, &files[0], owner, range, kind, LockWait::NO))
    }

    fn begin_lock(&self, range: (u64, u64)) -> Receiver<Result<(), Errno>> {
        self.begin(move |host, files| {
            set(host, &files[0], RangeOwner::Process, range, EXCLUSIVE, LockWait::FOREVER)
        })
    }

    /// Closes the open file of this number.
    fn close(&self, number: usize) {
        self.run(move |_, files| drop(files.remove(number)));
    }

    fn find(&self, owner: RangeOwner) -> Option<FoundLock> {
        self.run(move |host, files| {
            host.find_range_lock(&files[0], owner, (0, 0), LockKind::Exclusive).unwrap()
        })
    }

    fn end(self) {
        drop(self.work);
        self.thread.join().unwrap();
    }
}

fn set(
    host: &Host,
    file: &OwnedFd,
    owner: RangeOwner,
    range: (u64, u64),
    kind: Option<LockKind>,
    wait: LockWait<'_>,
) -> Result<(), Errno> {
    host.set_range_lock(file, owner, range, kind, wait).map_err(|error| error.errno())
}

fn waits<T: std::fmt::Debug>(answer: &Receiver<T>) -> bool {
    thread::sleep(BEGINS_TO_WAIT);
    matches!(answer.try_recv(), Err(TryRecvError::Empty))
}

fn is_refused(file: &File) -> bool {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => true,
        locked => {
            locked.unwrap();
            false
        }
    }
}

#[test]
fn appends_through_two_mounts_overwrite_nothing() {
    let Some(two) = two() else { return };
    let open = |mount: usize| File::options().append(true).open(two.points[mount].join("egg")).unwrap();
    let logs = [open(0), open(1)];
    let expected = (0..6).fold("blue".to_owned(), |all, number| {
        let line = format!(" {number}");
        (&logs[number % 2]).write_all(line.as_bytes()).unwrap();
        all + &line
    });
    assert_eq!(two.fixture.files.read("/egg").unwrap(), expected.as_bytes());
    drop(logs);
    for point in &two.points {
        eventually("bytes", || fs::read(point.join("egg")).unwrap() == expected.as_bytes());
    }
    two.end();
}

#[test]
fn lock_shows_the_bytes_of_its_last_owner() {
    let Some(two) = two() else { return };
    let process = Process::new(&two.points[0], 1);
    let read = || {
        process.run(|host, files| {
            let mut bytes = [0; 4];
            let count = host.read_at(&files[0], &mut bytes, 0).unwrap();
            (bytes, count)
        })
    };
    // The kernel has the bytes in its cache now.
    assert_eq!(read(), (*b"blue", 4));
    // The notices of these changes come before that of the new bytes, and keep the thread busy that passes
    // them on.
    two.fixture.files.write("/a", "").unwrap();
    for _ in 0..10_000 {
        two.fixture.files.rename("/a", "/b").unwrap();
        two.fixture.files.rename("/b", "/a").unwrap();
    }
    two.fixture.files.write("/egg", "pink").unwrap();
    assert_eq!(process.lock(RangeOwner::Process, (0, 0), EXCLUSIVE), Ok(()));
    assert_eq!(read(), (*b"pink", 4));
    process.end();
    two.end();
}

#[test]
fn flock_in_a_mount_excludes_other_mounts_and_the_library() {
    let Some(two) = two() else { return };
    let [first, second] = [two.open(0), two.open(1)];
    let library = two.fixture.files.options().read(true).open("/egg").unwrap();
    first.try_lock().unwrap();
    assert!(is_refused(&second) && is_refused(&two.open(0)));
    assert!(matches!(library.try_lock(), Err(TryLockError::WouldBlock)));
    first.unlock().unwrap();
    library.try_lock_shared().unwrap();
    first.try_lock_shared().unwrap();
    second.try_lock_shared().unwrap();
    assert!(is_refused(&second), "a conversion fails, and loses the shared lock");
    library.unlock().unwrap();
    first.unlock().unwrap();
    library.try_lock().unwrap();
    library.unlock().unwrap();
    // POSIX locks do not conflict with `flock`, even if they cover all bytes.
    first.try_lock().unwrap();
    let process = Process::new(&two.points[1], 1);
    assert_eq!(process.lock(RangeOwner::Process, (0, 0), EXCLUSIVE), Ok(()));
    assert_eq!(process.lock(RangeOwner::Process, (0, 0), None), Ok(()));
    assert_eq!(process.lock(RangeOwner::OpenFile, (0, 0), EXCLUSIVE), Ok(()));
    assert!(is_refused(&second));
    process.end();
    drop((first, second));
    two.end();
}

#[test]
fn range_locks_in_a_mount_exclude_other_mounts_and_the_library() {
    let Some(two) = two() else { return };
    let library = two.fixture.files.options().read(true).write(true).open("/egg").unwrap();
    let [first, second] = [&two.points[0], &two.points[1]].map(|point| Process::new(point, 1));
    for owner in [RangeOwner::Process, RangeOwner::OpenFile] {
        assert_eq!(first.lock(owner, (10, 10), EXCLUSIVE), Ok(()));
        for other in [RangeOwner::Process, RangeOwner::OpenFile] {
            assert_eq!(second.lock(other, (19, 1), Some(LockKind::Shared)), Err(Errno::AGAIN));
            assert_eq!(second.lock(other, (20, 5), EXCLUSIVE), Ok(()));
            assert_eq!(second.lock(other, (20, 5), None), Ok(()));
        }
        let process = (owner == RangeOwner::Process).then(|| std::process::id().into());
        let found = [
            (second.find(RangeOwner::Process).unwrap(), process),
            // In a mount, `F_OFD_GETLK` names no process.
            (second.find(RangeOwner::OpenFile).unwrap(), None),
            (library.find_range_lock(.., LockKind::Shared).unwrap().unwrap(), process),
        ];
        for (found, process) in found {
            assert_eq!((found.kind, found.start, found.length), (LockKind::Exclusive, 10, 10));
            // The kernel reports the process 0 for an open file.
            assert_eq!(found.process.filter(|&process| process != 0), process, "{owner:?}");
        }
        assert_eq!(first.find(owner), None);
        // An unlock in the middle leaves both ends.
        assert_eq!(first.lock(owner, (12, 2), None), Ok(()));
        library.lock_range(12..14, LockKind::Exclusive, LockWait::NO).unwrap();
        assert_eq!(first.lock(owner, (0, 0), EXCLUSIVE), Err(Errno::AGAIN));
        assert_eq!(first.find(owner).map(|found| (found.start, found.length)), Some((12, 2)));
        library.unlock_range(..).unwrap();
        assert_eq!(first.lock(owner, (0, 0), None), Ok(()));
    }
    // The locks of the library have the process id of this process.
    let files = &two.fixture.files;
    let egg = files.options().read(true).write(true).open("/egg").unwrap();
    files.set_range_lock(egg.handle(), RangeOwner::Process, (3, 1), EXCLUSIVE, LockWait::NO).unwrap();
    let found = second.find(RangeOwner::Process).and_then(|found| found.process);
    assert_eq!(found, Some(std::process::id().into()));
    drop((egg, library));
    first.end();
    second.end();
    two.end();
}

#[test]
fn close_ends_locks_in_a_mount_as_posix_demands() {
    let Some(two) = two() else { return };
    let [first, second] = [&two.points[0], &two.points[1]].map(|point| Process::new(point, 3));
    let is_free = || {
        let got = second.lock(RangeOwner::Process, (0, 1), EXCLUSIVE);
        second.lock(RangeOwner::Process, (0, 1), None).unwrap();
        got == Ok(())
    };
    // Any close of the file by its process ends a POSIX lock.
    first.lock(RangeOwner::Process, (0, 1), EXCLUSIVE).unwrap();
    assert!(!is_free());
    first.close(2);
    assert!(is_free());
    first.lock(RangeOwner::Process, (0, 1), EXCLUSIVE).unwrap();
    first.run(|_, files| drop(files[0].try_clone().unwrap()));
    assert!(is_free());
    // A process that inherits the open file has none of the locks of its parent, and its close ends none of
    // them.
    first.lock(RangeOwner::Process, (0, 1), EXCLUSIVE).unwrap();
    let ended = first.run(|_, _| {
        let child = thread::spawn(|| {
            #[expect(deprecated, reason = "the safe form; this thread uses no descriptor of another one")]
            rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).unwrap();
        });
        child.join().is_ok()
    });
    assert!(ended && !is_free());
    first.lock(RangeOwner::Process, (0, 1), None).unwrap();
    // Only the last close ends the lock of an open file.
    first.lock(RangeOwner::OpenFile, (0, 1), EXCLUSIVE).unwrap();
    first.run(|_, files| drop(files[0].try_clone().unwrap()));
    first.close(1);
    assert!(!is_free());
    first.close(0);
    eventually("the end of an open file ends its lock", is_free);

    let (egg, other) = (two.open(0), two.open(1));
    egg.try_lock().unwrap();
    let clone = egg.try_clone().unwrap();
    drop(egg);
    assert!(is_refused(&other));
    drop(clone);
    eventually("the end of an open file ends its flock", || !is_refused(&other));
    drop(other);
    first.end();
    second.end();
    two.end();
}

/// The kernel tells the mount of the end of an open file after close(2) has returned.
#[test]
fn flock_after_a_close_in_the_same_mount_succeeds() {
    let Some(two) = two() else { return };
    let mut refused = 0;
    for _ in 0..300 {
        let egg = two.open(0);
        if is_refused(&egg) {
            // A process that another test has just forked has a copy of the closed file.
            refused += 1;
            eventually("the closed file has ended", || !is_refused(&egg));
        }
    }
    assert!(refused < 30, "{refused} of 300");
    two.end();
}

#[test]
fn waits_in_a_mount_end_with_locks_of_others() {
    let Some(two) = two() else { return };
    let [first, second] = [&two.points[0], &two.points[1]].map(|point| Process::new(point, 1));
    let library = two.fixture.files.options().read(true).write(true).open("/egg").unwrap();
    first.lock(RangeOwner::Process, (5, 1), EXCLUSIVE).unwrap();
    let answer = second.begin_lock((0, 0));
    assert!(waits(&answer));
    // The mount continues to serve other requests.
    assert_eq!(fs::read(two.points[1].join("egg")).unwrap(), b"blue");
    first.lock(RangeOwner::Process, (0, 0), None).unwrap();
    assert_eq!(answer.recv_timeout(PATIENCE).unwrap(), Ok(()));
    let answer = first.begin_lock((9, 9));
    assert!(waits(&answer));
    second.close(0);
    assert_eq!(answer.recv_timeout(PATIENCE).unwrap(), Ok(()));
    first.lock(RangeOwner::Process, (0, 0), None).unwrap();

    // A hundred waiters need no hundred threads of the mount.
    library.lock().unwrap();
    let own_threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let before = own_threads();
    let waiters: Vec<_> = (0..100)
        .map(|number| {
            let egg = two.open(number % 2);
            let child = Command::new("flock").arg("0").stdin(OwnedFd::from(egg)).spawn();
            child.expect("`flock` of util-linux")
        })
        .collect();
    thread::sleep(BEGINS_TO_WAIT);
    assert_eq!(fs::read(two.points[1].join("egg")).unwrap(), b"blue");
    // Threads of tests beside this one come and go.
    assert!(own_threads() < before + 50);
    library.unlock().unwrap();
    for mut waiter in waiters {
        assert!(waiter.wait().unwrap().success());
    }
    drop(library);
    first.end();
    second.end();
    two.end();
}

/// Returns a command that waits for the lock of the file in a mount, and then runs `sleep`.
fn flock(two: &Two, mount: usize, options: &[&str]) -> Command {
    let mut command = Command::new("flock");
    command.args(options).arg("--no-fork").arg(two.points[mount].join("egg")).args(["sleep", "1000"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn signals_end_waits_in_a_mount() {
    let Some(two) = two() else { return };
    let holder = two.open(0);
    holder.try_lock().unwrap();
    for mount in [0, 1] {
        let mut waiter = flock(&two, mount, &[]).spawn().expect("`flock` of util-linux");
        thread::sleep(BEGINS_TO_WAIT);
        assert!(waiter.try_wait().unwrap().is_none());
        let start = Instant::now();
        waiter.kill().unwrap();
        assert!(!waiter.wait().unwrap().success());
        assert!(start.elapsed() < PATIENCE);
        // With `-w`, a timer sends a signal that has a handler.
        let status = flock(&two, mount, &["-w", "0.2", "-E", "7"]).status().unwrap();
        assert_eq!(status.code(), Some(7));
        assert!(start.elapsed() < PATIENCE);
    }
    drop(holder);
    two.end();
}

#[test]
fn locks_of_a_killed_program_end_in_a_mount() {
    let Some(two) = two() else { return };
    let other = two.open(1);
    let mut holder = flock(&two, 0, &[]).spawn().expect("`flock` of util-linux");
    eventually("the program locks", || {
        let refused = is_refused(&other);
        other.unlock().unwrap();
        refused
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("the lock ends with its program", || !is_refused(&other));
    drop(other);
    two.end();
}

#[test]
fn deadlock_across_mounts_is_an_error() {
    let Some(two) = two() else { return };
    let [first, second] = [&two.points[0], &two.points[1]].map(|point| Process::new(point, 1));
    first.lock(RangeOwner::Process, (0, 1), EXCLUSIVE).unwrap();
    second.lock(RangeOwner::Process, (1, 1), EXCLUSIVE).unwrap();
    let answer = first.begin_lock((1, 1));
    assert!(waits(&answer));
    let refused = second.begin_lock((0, 1));
    assert_eq!(refused.recv_timeout(PATIENCE).unwrap(), Err(Errno::DEADLK));
    second.lock(RangeOwner::Process, (0, 0), None).unwrap();
    assert_eq!(answer.recv_timeout(PATIENCE).unwrap(), Ok(()));
    first.end();
    second.end();
    two.end();
}

#[test]
fn end_of_a_mount_ends_its_waits_and_locks() {
    let Some(two) = two() else { return };
    let Two { mounts: [first, mut second], fixture, points } = two;
    let path = points[0].join("egg");
    let held = File::options().read(true).write(true).open(&path).unwrap();
    held.try_lock().unwrap();
    let waiting = thread::spawn(move || errno(File::open(path).unwrap().lock()));
    thread::sleep(BEGINS_TO_WAIT);
    assert!(!waiting.is_finished());
    drop(first);
    assert!(waiting.join().unwrap().is_some());
    let egg = fixture.files.options().read(true).open("/egg").unwrap();
    egg.try_lock().unwrap();
    drop((held, egg));
    super::unmount_idle(&mut second);
}

#[test]
fn option_leaves_locks_to_the_kernel() {
    let Some(fixture) = fixture() else { return };
    // The volume is not served, so the kernel keeps the locks by default.
    let mut mount = fixture.mount_with("");
    fixture.files.write("/egg", "blue").unwrap();
    let [first, second] = [(); 2].map(|()| File::open(fixture.point.join("egg")).unwrap());
    let library = fixture.files.options().read(true).open("/egg").unwrap();
    first.try_lock().unwrap();
    assert!(is_refused(&second));
    library.try_lock().unwrap();
    drop((first, second, library));
    super::unmount_idle(&mut mount);
}

/// Locks in a mount whose process does not see the threads of the programs. The mount then cannot know which
/// system calls the threads make.
fn lock_unseen(place: &Path) {
    assert_ne!(fs::read_link("/proc/self").unwrap().to_str().unwrap(), std::process::id().to_string());
    let volume = Volume::create(place.join("volume"), 16 << 20).unwrap();
    let files = volume.files(Credentials::of_process());
    files.write("/egg", "blue").unwrap();
    let point = place.join("mount");
    fs::create_dir(&point).unwrap();
    let mut mount = eyrie_fuse::mount(&volume, &point, &"lock".parse().unwrap()).unwrap();
    let [first, second] = [(); 2].map(|()| Process::new(&point, 1));
    let egg = File::open(point.join("egg")).unwrap();
    let library = files.options().read(true).write(true).open("/egg").unwrap();
    egg.try_lock().unwrap();
    assert!(matches!(library.try_lock(), Err(TryLockError::WouldBlock)));
    assert_eq!(first.lock(RangeOwner::Process, (0, 0), EXCLUSIVE), Err(Errno::AGAIN), "as with NFS");
    egg.unlock().unwrap();
    for owner in [RangeOwner::Process, RangeOwner::OpenFile] {
        assert_eq!(first.lock(owner, (0, 0), EXCLUSIVE), Ok(()));
        assert_eq!(second.lock(owner, (7, 1), EXCLUSIVE), Err(Errno::AGAIN));
        assert_eq!(
            library.lock_range(7..8, LockKind::Shared, LockWait::NO).map_err(|e| e.errno()),
            Err(Errno::AGAIN)
        );
        assert!(is_refused(&egg));
        let answer = second.begin_lock((0, 0));
        assert!(waits(&answer));
        assert_eq!(first.lock(owner, (0, 0), None), Ok(()));
        assert_eq!(answer.recv_timeout(PATIENCE).unwrap(), Ok(()));
        assert_eq!(second.lock(RangeOwner::Process, (0, 0), None), Ok(()));
        library.try_lock().unwrap();
        library.unlock().unwrap();
    }
    drop((egg, library));
    first.end();
    second.end();
    super::unmount_idle(&mut mount);
}

#[test]
fn unknown_calls_for_all_bytes_lock_like_both() {
    if let Some(place) = std::env::var_os(CHILD) {
        lock_unseen(Path::new(&place));
        return;
    }
    let Some(fixture) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: only root makes pid namespaces");
        return;
    }
    let place = fixture.place.path().join("child");
    fs::create_dir(&place).unwrap();
    let mut child = Command::new("unshare");
    child.args(["--pid", "--fork"]).arg(std::env::current_exe().unwrap());
    child.args(["--exact", "locks::unknown_calls_for_all_bytes_lock_like_both", "--nocapture"]);
    assert!(child.env(CHILD, &place).status().expect("`unshare` of util-linux").success());
}
