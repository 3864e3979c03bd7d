//! Advisory locks of the clients of one service.

use std::time::Duration;

use eyrie::{Canceller, File, LockKind, LockWait, PosixLocks, RangeOwner};
use eyrie_client::protocol::{LaneRequest, ServiceCall};
use eyrie_client::sent::SentLock;
use eyrie_engine::advisory::{LockOwner, LockRange, LockRequest, LockTarget, OwnerClass};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use zerocopy::IntoBytes;

use super::hostile::RawSession;
use super::*;

const EXCLUSIVE: Option<LockKind> = Some(LockKind::Exclusive);
/// Longer than any wait that should end.
const LONG: LockWait<'static> = LockWait::FOREVER;

fn open(files: &Pxfs<Client>) -> File<Pxfs<Client>> {
    files.options().read(true).write(true).open("/egg").unwrap()
}

fn set(
    file: &File<Pxfs<Client>>,
    range: (u64, u64),
    kind: Option<LockKind>,
    wait: LockWait<'_>,
) -> Option<Errno> {
    let set = file.file_system().set_range_lock(file.handle(), RangeOwner::Process, range, kind, wait);
    set.err().map(|error| error.errno())
}

#[test]
fn clients_see_the_locks_of_each_other() {
    let (mut served, [one, other]) = Served::with_clients(8 << 20);
    one.write("/egg", "blue").unwrap();
    let (first, second) = (open(&one), open(&other));
    first.lock().unwrap();
    assert!(second.try_lock_shared().is_err());
    first.lock_shared().unwrap();
    second.try_lock_shared().unwrap();
    // Both clients have the process number of this test, and are different owners.
    assert_eq!(set(&first, (0, 10), EXCLUSIVE, LockWait::NO), None);
    assert_eq!(set(&second, (9, 1), EXCLUSIVE, LockWait::NO), Some(Errno::AGAIN));
    let found = second.find_range_lock(.., LockKind::Shared).unwrap().unwrap();
    assert_eq!((found.start, found.length, found.process), (0, 10, Some(std::process::id().into())));
    drop(open(&one));
    assert_eq!(set(&second, (9, 1), EXCLUSIVE, LockWait::NO), None, "a close ends the locks of its process");
    assert!(second.try_lock().is_err(), "a close keeps the lock of another open file");
    drop(first);
    second.try_lock().unwrap();
    drop((second, one, other));
    served.stop();
}

#[test]
fn waits_of_clients_do_not_block_the_service() {
    let (mut served, [one, other]) = Served::with_clients(8 << 20);
    one.write("/egg", "blue").unwrap();
    let (first, second) = (open(&one), open(&other));
    first.lock().unwrap();
    let canceller = Canceller::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.lock());
        let cancelled = scope.spawn(|| {
            let wait = LockWait::FOREVER.cancelled_by(&canceller);
            other.flock(open(&other).handle(), EXCLUSIVE, wait).unwrap_err().errno()
        });
        for number in 0..20 {
            one.write("/stone", vec![number; 100]).unwrap();
            other.metadata("/").unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(!waiting.is_finished() && !cancelled.is_finished());
        canceller.cancel();
        assert_eq!(cancelled.join().unwrap(), Errno::INTR);
        first.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
    let soon = LockWait::at_most(Duration::from_millis(20));
    let refused = one.flock(first.handle(), EXCLUSIVE, soon).unwrap_err();
    assert_eq!(refused.errno(), Errno::TIMEDOUT);
    drop((first, second, one, other));
    served.stop();
}

#[test]
fn deadlock_between_clients_is_an_error() {
    let (mut served, [one, other]) = Served::with_clients(8 << 20);
    one.write("/egg", "blue").unwrap();
    let (first, second) = (open(&one), open(&other));
    assert_eq!(set(&first, (0, 1), EXCLUSIVE, LONG), None);
    assert_eq!(set(&second, (1, 1), EXCLUSIVE, LONG), None);
    let wait = |file: &File<Pxfs<Client>>, start| {
        let found = set(file, (start, 1), EXCLUSIVE, LONG);
        assert_eq!(set(file, (0, 0), None, LONG), None);
        found
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&first, 1));
        let mut both = [wait(&second, 0), waiting.join().unwrap()];
        both.sort();
        assert_eq!(both, [None, Some(Errno::DEADLK)]);
    });
    drop((first, second, one, other));
    served.stop();
}

#[test]
fn end_of_a_session_ends_its_locks_and_waits() {
    let mut served = Served::new(8 << 20);
    let one = served.files();
    one.write("/egg", "blue").unwrap();
    let first = open(&one);
    let lost = RawSession::open(&served);
    let ask = |lock: &LockRequest, waiter| {
        let call = ServiceCall::TryLock as u32;
        let sent = SentLock::of(lock, waiter);
        let data_bytes = sent.as_bytes().len() as u64;
        let request = LaneRequest { call, id: first.handle().id().raw(), data_bytes, ..Default::default() };
        lost.ask(request, sent.as_bytes()).0.error
    };
    let owner = LockOwner::local(OwnerClass::Process, std::process::id().into());
    let range = LockRange::of_length(0, 10).unwrap();
    let wanted = LockRequest { owner, target: LockTarget::Bytes(range), kind: EXCLUSIVE };
    assert_eq!(ask(&wanted, 0), 0);
    assert_eq!(
        set(&first, (0, 0), EXCLUSIVE, LockWait::NO),
        Some(Errno::AGAIN),
        "an owner of another session"
    );
    assert_eq!(set(&first, (20, 1), EXCLUSIVE, LockWait::NO), None);
    let whole = LockRequest { target: LockTarget::Bytes(LockRange::ALL), ..wanted };
    assert_ne!(ask(&whole, 7), 0, "a wait that nobody ends");
    let unlock = LockRequest { kind: None, ..whole };
    assert_eq!(ask(&unlock, 0), 0);
    assert_eq!(set(&first, (20, 1), EXCLUSIVE, LockWait::NO), None, "its own lock is still there");
    assert_eq!(ask(&wanted, 0), 0);
    // The lost client still counts as a waiter for a moment, so the first attempt may report a deadlock.
    let found = set(&first, (0, 0), EXCLUSIVE, LockWait::at_most(Duration::from_millis(20)));
    assert!([Some(Errno::DEADLK), Some(Errno::TIMEDOUT)].contains(&found));
    drop(lost);
    // Until the service sees the end of the session, its wait counts.
    let found = loop {
        match set(&first, (0, 0), EXCLUSIVE, LONG) {
            Some(Errno::DEADLK) => std::thread::sleep(Duration::from_millis(1)),
            found => break found,
        }
    };
    assert_eq!(found, None);
    drop((first, one));
    served.stop();
}

#[test]
fn owners_learn_of_locks_that_end_with_their_service() {
    let (mut served, [one, other]) = Served::with_clients(8 << 20);
    one.write("/egg", "blue").unwrap();
    let (first, second) = (open(&one), open(&other));
    first.lock().unwrap();
    served.end();
    served.start();
    second.lock().unwrap();
    assert_eq!(first.unlock().unwrap_err().errno(), Errno::NOLCK);
    first.unlock().unwrap();
    assert!(first.try_lock().is_err());
    drop(first);
    assert!(open(&one).try_lock().is_err(), "the lock of the other client is still there");
    second.unlock().unwrap();
    let third = open(&one);
    assert_eq!(set(&third, (0, 1), EXCLUSIVE, LockWait::NO), None);
    served.end();
    served.start();
    assert_eq!(set(&third, (5, 1), EXCLUSIVE, LockWait::NO), Some(Errno::NOLCK));
    assert_eq!(set(&third, (5, 1), EXCLUSIVE, LockWait::NO), None);
    second.lock().unwrap();
    drop((second, third, one, other));
    served.stop();
}

/// A handle of a removed file is closed after another file has got the id.
#[test]
fn close_of_a_stale_handle_keeps_the_locks_of_another_file() {
    let (mut served, [one, other]) = Served::with_clients(64 << 20);
    one.write("/egg", "blue").unwrap();
    let stale = open(&one);
    assert_eq!(set(&stale, (0, 1), EXCLUSIVE, LockWait::NO), None);
    served.restart_with_new_files(|owner| owner.remove_file("/egg").unwrap());
    let id = stale.handle().id();
    let of = |files: &Pxfs<Client>, number| {
        files.options().read(true).write(true).open(format!("/new-{number}")).unwrap()
    };
    let number = (0..500).find(|&number| of(&one, number).handle().id() == id).unwrap();
    let (mine, theirs) = (of(&one, number), of(&other, number));
    // The lost lock was a lock of another file, so this call does not report the loss.
    assert_eq!(set(&mine, (0, 1), EXCLUSIVE, LockWait::NO), None);
    drop(stale);
    assert_eq!(set(&theirs, (0, 1), EXCLUSIVE, LockWait::NO), Some(Errno::AGAIN));
    drop(mine);
    assert_eq!(set(&theirs, (0, 1), EXCLUSIVE, LockWait::NO), None);
    drop((theirs, one, other));
    served.stop();
}

/// A thread closes a file under a pin of an earlier session. Meanwhile another thread has locked the file in
/// the present session.
#[test]
fn close_under_an_old_pin_ends_the_locks_of_the_file() {
    let (mut served, [one, other]) = Served::with_clients(8 << 20);
    one.write("/egg", "blue").unwrap();
    let (first, second) = (open(&one), open(&other));
    let pin = one.pin();
    assert!(one.engine().lookup(one.engine().root(), b"egg").unwrap().is_some());
    served.end();
    served.start();
    std::thread::scope(|scope| {
        // Only the pin of this thread is an old one.
        scope.spawn(|| first.lock().unwrap()).join().unwrap();
        let held = scope.spawn(|| other.flock(second.handle(), EXCLUSIVE, LockWait::NO)).join().unwrap();
        assert_eq!(held.unwrap_err().errno(), Errno::AGAIN);
    });
    drop(first);
    std::thread::scope(|scope| scope.spawn(|| second.try_lock().unwrap()).join().unwrap());
    drop((pin, second, one, other));
    served.stop();
}

#[test]
fn forged_requests_leave_the_locks_of_others() {
    let mut served = Served::new(8 << 20);
    let one = served.files();
    one.write("/egg", "blue").unwrap();
    let first = open(&one);
    first.lock().unwrap();
    assert_eq!(set(&first, (5, 5), EXCLUSIVE, LockWait::NO), None);
    let mine = RangeOwner::OpenFile;
    one.set_range_lock(first.handle(), mine, (20, 1), EXCLUSIVE, LockWait::NO).unwrap();
    let owner = LockOwner::local(OwnerClass::Process, u64::MAX);
    let target = LockTarget::Bytes(LockRange::of_length(20, 1).unwrap());
    let held = one.engine().find_lock(first.handle().id(), &LockRequest { owner, target, kind: EXCLUSIVE });
    let owners = [held.unwrap().unwrap().owner.number, std::process::id().into()];
    let forger = RawSession::open(&served);
    let mut random = StdRng::seed_from_u64(7);
    let calls = [ServiceCall::TryLock, ServiceCall::FindLock, ServiceCall::EndLocks, ServiceCall::EndWait];
    const BYTES: usize = size_of::<SentLock>();
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut sent = [0_u64; BYTES / 8];
        for (index, word) in sent.iter_mut().enumerate() {
            // Each of the first four words is one field, and each later word has two fields of 32 bits.
            *word = match random.random_range(0..12) {
                0 => random.random(),
                1..8 if index == 0 => owners[random.random_range(0..2)],
                _ if index < 4 => random.random_range(0..30),
                _ => random.random_range(0..4) | random.random_range(0..3) << 32,
            };
        }
        let length = [BYTES, BYTES, BYTES, 2 * BYTES, 0, BYTES - 1, 4 * BYTES][random.random_range(0..7)];
        let data = sent.as_bytes().repeat(4);
        let call = calls[random.random_range(0..4)];
        let id = if random.random_ratio(1, 20) { random.random() } else { first.handle().id().raw() };
        let number = random.random_range(0..30);
        let request = LaneRequest { call: call as u32, id, number, data_bytes: length as u64, sequence: 0 };
        let error = forger.ask(request, &data[..length]).0.error;
        accepted += usize::from(error == 0 && length > 0 && call != ServiceCall::EndWait);
    }
    assert!(accepted > 500, "only {accepted} requests named a lock that is possible");
    let other = served.files();
    let second = open(&other);
    assert!(second.try_lock_shared().is_err());
    assert_eq!(set(&second, (7, 1), EXCLUSIVE, LockWait::NO), Some(Errno::AGAIN));
    assert_eq!(set(&second, (20, 1), EXCLUSIVE, LockWait::NO), Some(Errno::AGAIN));
    drop((forger, first));
    second.lock().unwrap();
    assert_eq!(set(&second, (0, 0), EXCLUSIVE, LONG), None);
    drop((second, one, other));
    served.stop();
}

on_disk! {
    clients_see_the_locks_of_each_other waits_of_clients_do_not_block_the_service
    deadlock_between_clients_is_an_error end_of_a_session_ends_its_locks_and_waits
    owners_learn_of_locks_that_end_with_their_service
    close_of_a_stale_handle_keeps_the_locks_of_another_file
    close_under_an_old_pin_ends_the_locks_of_the_file forged_requests_leave_the_locks_of_others
}
