use std::fs::TryLockError;
use std::thread;
use std::time::Duration;

use eyrie_engine::model::Model;

use super::*;
use crate::pxfs::tests::empty;
use crate::{Canceller, File, PosixExt};

const SHARED: Option<LockKind> = Some(LockKind::Shared);
const EXCLUSIVE: Option<LockKind> = Some(LockKind::Exclusive);
/// Longer than any wait that should end.
const LONG: Duration = Duration::from_secs(60);

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// Returns a file system with the file `egg`.
fn with_egg() -> Pxfs<Model> {
    let fs = empty();
    fs.write("egg", "blue").unwrap();
    fs
}

fn open(fs: &Pxfs<Model>) -> File<Pxfs<Model>> {
    fs.options().read(true).write(true).open("egg").unwrap()
}

/// Locks or unlocks as the process of the file system.
fn as_process(file: &File<Pxfs<Model>>, range: (u64, u64), kind: Option<LockKind>) -> Option<Errno> {
    let wait = LockWait::NO;
    errno(file.file_system().set_range_lock(file.handle(), RangeOwner::Process, range, kind, wait))
}

#[test]
fn open_files_lock_like_files_of_std() {
    let fs = with_egg();
    let (one, other) = (open(&fs), open(&fs));
    one.lock().unwrap();
    assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
    one.try_clone().unwrap().lock_shared().unwrap();
    other.try_lock_shared().unwrap();
    assert!(matches!(one.try_lock(), Err(TryLockError::WouldBlock)));
    other.try_lock().unwrap();
    other.unlock().unwrap();
    let dir = fs.options().read(true).directory(true).open("/").unwrap();
    dir.lock().unwrap();
    one.lock().unwrap();
    drop(one);
    other.try_lock().unwrap();
}

#[test]
fn locks_hinder_no_reads_and_writes() {
    let fs = with_egg();
    let locked = open(&fs);
    locked.lock().unwrap();
    locked.lock_range(.., LockKind::Exclusive, LockWait::NO).unwrap();
    fs.write("egg", "green").unwrap();
    open(&fs).set_len(2).unwrap();
    assert_eq!(fs.read("egg").unwrap(), b"gr");
    fs.rename("egg", "stone").unwrap();
    let same = fs.options().read(true).open("stone").unwrap();
    assert!(matches!(same.try_lock(), Err(TryLockError::WouldBlock)), "the lock is on the object");
}

#[test]
fn range_locks_need_the_rights_of_the_handle() {
    let fs = with_egg();
    let read = fs.options().read(true).open("egg").unwrap();
    let write = fs.options().write(true).open("egg").unwrap();
    for owner in [RangeOwner::Process, RangeOwner::OpenFile] {
        let lock = |file: &File<Pxfs<Model>>, range, kind| {
            errno(fs.set_range_lock(file.handle(), owner, range, kind, LockWait::NO))
        };
        assert_eq!(lock(&read, (0, 1), EXCLUSIVE), Some(Errno::BADF));
        assert_eq!(lock(&write, (0, 1), SHARED), Some(Errno::BADF));
        assert_eq!(lock(&read, (0, 1), None), None);
        assert_eq!(lock(&read, (1 << 63, 1), EXCLUSIVE), Some(Errno::INVAL));
        assert_eq!(lock(&read, (2, i64::MAX as u64), EXCLUSIVE), Some(Errno::OVERFLOW));
        assert_eq!(lock(&read, (1, i64::MAX as u64), SHARED), None);
        assert_eq!(lock(&read, (0, 0), None), None);
    }
    let other = with_egg();
    let refused =
        other.set_range_lock(read.handle(), RangeOwner::Process, (1 << 63, 1), SHARED, LockWait::NO);
    assert_eq!(errno(refused), Some(Errno::BADF));
    assert_eq!(errno(other.flock(read.handle(), SHARED, LockWait::NO)), Some(Errno::BADF));
}

#[test]
fn close_of_any_handle_ends_the_locks_of_its_process() {
    let fs = with_egg();
    let other = fs.with_lock_process(4711);
    let (one, second, foreign) = (open(&fs), open(&fs), open(&other));
    assert_eq!(as_process(&one, (0, 10), EXCLUSIVE), None);
    assert_eq!(as_process(&foreign, (5, 1), SHARED), Some(Errno::AGAIN));
    assert_eq!(as_process(&foreign, (20, 1), SHARED), None);
    let found = fs.find_range_lock(one.handle(), RangeOwner::Process, (0, 0), LockKind::Exclusive).unwrap();
    let expected = FoundLock { process: Some(4711), ..FoundLock::new(LockKind::Shared, 20, 1) };
    assert_eq!(found, Some(expected));
    drop(other.options().path_only(true).open("egg").unwrap());
    assert_eq!(as_process(&one, (20, 1), EXCLUSIVE), Some(Errno::AGAIN), "a handle of O_PATH has no locks");
    drop(open(&other));
    assert_eq!(as_process(&one, (20, 1), EXCLUSIVE), None, "the other process has closed a handle");
    second.lock_range(50..60, LockKind::Exclusive, LockWait::NO).unwrap();
    drop(open(&fs));
    assert_eq!(as_process(&foreign, (0, 50), SHARED), None);
    assert_eq!(as_process(&foreign, (59, 0), SHARED), Some(Errno::AGAIN), "the open file has its lock");
    second.unlock_range(55..).unwrap();
    assert_eq!(as_process(&foreign, (55, 0), SHARED), None);
    drop(second);
    assert_eq!(as_process(&foreign, (0, 0), EXCLUSIVE), None);
}

#[test]
fn waiting_thread_gets_the_lock_that_ends() {
    let fs = with_egg();
    let first = open(&fs);
    first.lock().unwrap();
    first.lock_range(0..10, LockKind::Exclusive, LockWait::NO).unwrap();
    thread::scope(|scope| {
        let whole = scope.spawn(|| open(&fs).lock_shared().unwrap());
        let range = scope.spawn(|| {
            open(&fs).lock_range(5..6, LockKind::Shared, LockWait::at_most(LONG)).unwrap();
        });
        thread::sleep(Duration::from_millis(30));
        assert!(!whole.is_finished() && !range.is_finished());
        first.unlock().unwrap();
        whole.join().unwrap();
        assert!(!range.is_finished());
        drop(first);
        range.join().unwrap();
    });
    assert!(!fs.engine().may_have_locks(), "every lock has ended");
}

#[test]
fn waits_end_by_time_and_by_another_thread() {
    let fs = with_egg();
    let (first, second) = (open(&fs), open(&fs));
    first.lock().unwrap();
    let soon = LockWait::at_most(Duration::from_millis(20));
    assert_eq!(errno(fs.flock(second.handle(), EXCLUSIVE, soon)), Some(Errno::TIMEDOUT));
    let canceller = Canceller::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let wait = LockWait::FOREVER.cancelled_by(&canceller);
            errno(fs.flock(second.handle(), EXCLUSIVE, wait))
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        canceller.cancel();
        assert_eq!(waiting.join().unwrap(), Some(Errno::INTR));
    });
    first.unlock().unwrap();
    let wait = LockWait::FOREVER.cancelled_by(&canceller);
    assert_eq!(errno(fs.flock(second.handle(), EXCLUSIVE, wait)), None, "a free lock needs no wait");
}

#[test]
fn deadlock_of_two_processes_ends_one_wait() {
    let fs = with_egg();
    let other = fs.with_lock_process(4711);
    let (one, two) = (open(&fs), open(&other));
    assert_eq!(as_process(&one, (0, 1), EXCLUSIVE), None);
    assert_eq!(as_process(&two, (1, 1), EXCLUSIVE), None);
    let wait = |file: &File<Pxfs<Model>>, start| {
        let locked = file.file_system().set_range_lock(
            file.handle(),
            RangeOwner::Process,
            (start, 1),
            SHARED,
            LockWait::at_most(LONG),
        );
        let found = errno(locked);
        assert_eq!(as_process(file, (0, 0), None), None);
        found
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| wait(&one, 1));
        let second = wait(&two, 0);
        let mut both = [first.join().unwrap(), second];
        both.sort();
        assert_eq!(both, [None, Some(Errno::DEADLK)]);
    });
}

#[test]
fn files_of_the_host_have_the_same_locks() {
    let host = tempfile::tempdir().unwrap();
    let host = crate::Host::new(host.path()).unwrap();
    let on_host = host.options().read(true).write(true).create(true).open("egg").unwrap();
    on_host.lock().unwrap();
    let busy = host.options().write(true).open("egg").unwrap();
    let soon = LockWait::at_most(Duration::from_millis(5));
    assert_eq!(errno(host.flock(busy.handle(), SHARED, soon)), Some(Errno::TIMEDOUT));
    on_host.lock_range(3.., LockKind::Exclusive, LockWait::FOREVER).unwrap();
    let found = busy.find_range_lock(.., LockKind::Exclusive).unwrap();
    assert_eq!(found, Some(FoundLock::new(LockKind::Exclusive, 3, 0)));
    assert_eq!(errno(busy.lock_range(3..4, LockKind::Exclusive, LockWait::NO)), Some(Errno::AGAIN));
}
