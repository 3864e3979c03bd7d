use std::sync::Arc;
use std::time::Duration;

use super::notes::LOOKS;
use super::object::OWNERS;
use super::*;
use crate::{Error, Kind, ObjectId, Result};

fn object(number: u64) -> LockedObject {
    LockedObject { id: ObjectId::new(number * 256, Kind::File), generation: number }
}

fn process(number: u64) -> LockOwner {
    LockOwner::local(OwnerClass::Process, number)
}

fn file(number: u64) -> LockOwner {
    LockOwner::local(OwnerClass::OpenFile, number)
}

fn bytes(owner: LockOwner, start: u64, length: u64, kind: Option<LockKind>) -> LockRequest {
    let range = LockRange::of_length(start, length).expect("a range");
    LockRequest { owner, target: LockTarget::Bytes(range), kind }
}

fn whole(owner: LockOwner, kind: Option<LockKind>) -> LockRequest {
    LockRequest { owner, target: LockTarget::Object, kind }
}

const SHARED: Option<LockKind> = Some(LockKind::Shared);
const EXCLUSIVE: Option<LockKind> = Some(LockKind::Exclusive);

fn is_conflict<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::LockConflict))
}

#[test]
fn ranges_have_the_errors_of_linux() {
    assert_eq!(LockRange::of_length(5, 0).expect("a range").last(), LOCK_OFFSET_MAX);
    assert_eq!(LockRange::of_length(LOCK_OFFSET_MAX, 1).expect("a range").length(), 0);
    assert!(matches!(LockRange::of_length(LOCK_OFFSET_MAX, 2), Err(Error::LockPastEnd)));
    assert!(matches!(LockRange::of_length(LOCK_OFFSET_MAX + 1, 1), Err(Error::Invalid(_))));
    assert!(matches!(LockRange::of_length(0, LOCK_OFFSET_MAX + 1), Err(Error::Invalid(_))));
}

#[test]
fn locks_of_other_owners_and_kinds_conflict() {
    let table = LockTable::default();
    let lock = |request| table.try_lock(object(1), &request, None);
    lock(bytes(process(1), 0, 10, SHARED)).expect("free");
    lock(bytes(process(2), 5, 10, SHARED)).expect("shared");
    assert!(is_conflict(&lock(bytes(process(1), 0, 6, EXCLUSIVE))));
    assert!(is_conflict(&lock(bytes(file(1), 0, 1, EXCLUSIVE))), "an open file is another owner");
    lock(bytes(process(1), 0, 5, EXCLUSIVE)).expect("an upgrade of bytes of its own");
    lock(whole(file(1), EXCLUSIVE)).expect("flock is independent of ranges");
    assert!(is_conflict(&lock(whole(file(2), SHARED))));
    table.try_lock(object(2), &whole(file(2), SHARED), None).expect("another object");
    lock(bytes(process(1), 0, 0, None)).expect("unlock");
    lock(bytes(file(1), 0, 5, EXCLUSIVE)).expect("free again");
}

#[test]
fn first_owner_is_found_first() {
    let table = LockTable::default();
    let lock = |request| table.try_lock(object(1), &request, None).expect("free");
    lock(bytes(process(2), 50, 10, SHARED));
    lock(bytes(process(1), 0, 10, SHARED));
    lock(bytes(process(2), 20, 10, SHARED));
    let find = |start| table.find(object(1), &bytes(file(1), start, 0, EXCLUSIVE)).map(|held| held.range);
    assert_eq!(find(0), LockRange::new(20, 29), "the first range of the first owner");
    assert_eq!(find(30), LockRange::new(50, 59));
    assert_eq!(find(60), None);
    assert_eq!(table.find(object(1), &bytes(file(1), 0, 0, SHARED)), None);
}

#[test]
fn refused_conversion_of_flock_loses_the_old_lock() {
    let table = LockTable::default();
    let lock = |request| table.try_lock(object(1), &request, None);
    lock(whole(file(1), SHARED)).expect("free");
    lock(whole(file(2), SHARED)).expect("shared");
    assert!(is_conflict(&lock(whole(file(1), EXCLUSIVE))));
    lock(whole(file(2), EXCLUSIVE)).expect("the other lock is gone");
}

#[test]
fn deadlock_of_processes_is_an_error() {
    let table = LockTable::default();
    let wait = LockWait::FOREVER;
    let waiters = [wait.waiter(), wait.waiter(), wait.waiter()];
    let on = |place: u64, request, waiter| table.try_lock(object(place), &request, Some(waiter));
    for number in 1..=3 {
        on(number, bytes(process(number), 0, 1, EXCLUSIVE), &waiters[0]).expect("free");
    }
    assert!(is_conflict(&on(2, bytes(process(1), 0, 1, SHARED), &waiters[0])));
    assert!(is_conflict(&on(3, bytes(process(2), 0, 0, SHARED), &waiters[1])));
    let closes = on(1, bytes(process(3), 0, 1, SHARED), &waiters[2]);
    assert!(matches!(closes, Err(Error::Deadlock)), "{closes:?}");
    table.end_wait(&waiters[1]);
    assert!(is_conflict(&on(1, bytes(process(3), 0, 1, SHARED), &waiters[2])), "the chain is broken");
}

#[test]
fn deadlock_of_open_files_is_not_detected() {
    let table = LockTable::default();
    let waiters = [LockWait::FOREVER.waiter(), LockWait::FOREVER.waiter()];
    for (request, other) in [
        (bytes as fn(LockOwner, u64, u64, Option<LockKind>) -> LockRequest, 1),
        (|owner, _, _, kind| whole(owner, kind), 3),
    ] {
        let (one, two) = (file(other), file(other + 1));
        table.try_lock(object(1), &request(one, 0, 1, EXCLUSIVE), None).expect("free");
        table.try_lock(object(2), &request(two, 0, 1, EXCLUSIVE), None).expect("free");
        let first = table.try_lock(object(2), &request(one, 0, 1, EXCLUSIVE), Some(&waiters[0]));
        let second = table.try_lock(object(1), &request(two, 0, 1, EXCLUSIVE), Some(&waiters[1]));
        assert!(is_conflict(&first) && is_conflict(&second));
    }
}

/// A search visits at most 64 owners (`MOST_VISITED`), because a client can make long chains of waits.
#[test]
fn deadlock_of_very_many_waits_is_not_found() {
    for (length, is_found) in [(60, true), (70, false)] {
        let table = LockTable::default();
        let waiters: Vec<_> = (0..=length).map(|_| LockWait::FOREVER.waiter()).collect();
        let byte = |owner, at| bytes(process(owner), at, 1, EXCLUSIVE);
        for number in 0..=length {
            table.try_lock(object(1), &byte(number, number), None).expect("free");
        }
        for number in 0..length {
            let waits = table.try_lock(object(1), &byte(number, number + 1), Some(&waiters[number as usize]));
            assert!(is_conflict(&waits));
        }
        let closes = table.try_lock(object(1), &byte(length, 0), Some(&waiters[length as usize]));
        assert_eq!(matches!(closes, Err(Error::Deadlock)), is_found, "{length}: {closes:?}");
    }
}

/// Very many processes wait for one lock. The search for deadlocks of a further request does not look at all
/// of them.
#[test]
fn search_for_deadlocks_skips_waits_of_other_owners() {
    let table = LockTable::default();
    let waiters: Vec<_> = (0..500).map(|_| LockWait::FOREVER.waiter()).collect();
    let byte = |owner| bytes(process(owner), 0, 1, EXCLUSIVE);
    table.try_lock(object(1), &byte(1000), None).expect("free");
    LOOKS.set(0);
    for _ in 0..2 {
        for (number, waiter) in (0..).zip(&waiters) {
            assert!(is_conflict(&table.try_lock(object(1), &byte(number), Some(waiter))));
        }
    }
    assert!(LOOKS.get() <= waiters.len(), "{} looks", LOOKS.get());
    waiters.iter().for_each(|waiter| table.end_wait(waiter));
    let client = LockOwner { session: 7, class: OwnerClass::Process, number: 1 };
    for number in 0..3 {
        let refused = table.try_lock_of_client(object(1), &bytes(client, 0, 1, SHARED), Some(number));
        assert!(is_conflict(&refused));
    }
    assert!(!table.has_no_waits());
    table.end_wait_of_client(7, 0);
    table.end_session(7);
    assert!(table.has_no_waits());
}

/// Very many owners have locks on one object. No call for a shared lock, and no end of an owner, looks at all
/// of them.
#[test]
fn locks_of_many_owners_take_few_steps() {
    const MANY: u64 = 2000;
    let table = LockTable::default();
    let lock = |owner, kind| table.try_lock(object(1), &bytes(owner, owner.number, 2, kind), None);
    OWNERS.set(0);
    for number in 0..MANY {
        lock(process(number), SHARED).expect("shared");
        table.try_lock(object(1), &whole(file(number), SHARED), None).expect("shared");
    }
    assert_eq!(OWNERS.get(), 0);
    lock(file(MANY + 1), EXCLUSIVE).expect("other bytes");
    OWNERS.set(0);
    lock(file(MANY + 1), SHARED).expect("its own lock");
    for number in 0..MANY {
        table.end(object(1).id, &[process(number), file(number)]);
    }
    assert_eq!(OWNERS.get(), 0);
    lock(process(MANY), EXCLUSIVE).expect_err("one lock is left");
    table.end(object(1).id, &[file(MANY + 1)]);
    assert!(table.is_empty());
}

#[test]
fn unlock_looks_at_no_wait_for_another_object() {
    let table = LockTable::default();
    let waiters: Vec<_> = (0..500).map(|_| LockWait::FOREVER.waiter()).collect();
    for (number, waiter) in (1..).zip(&waiters) {
        table.try_lock(object(number), &bytes(file(0), 0, 1, EXCLUSIVE), None).expect("free");
        let refused = table.try_lock(object(number), &bytes(file(1), 0, 1, EXCLUSIVE), Some(waiter));
        assert!(is_conflict(&refused));
    }
    LOOKS.set(0);
    (1..=500).for_each(|number| table.end(object(number).id, &[file(0)]));
    assert_eq!(LOOKS.get(), 500);
    waiters.iter().for_each(|waiter| table.end_wait(waiter));
    assert!(table.has_no_waits() && table.is_empty());
}

#[test]
fn two_upgrades_are_a_deadlock() {
    let table = LockTable::default();
    let waiters = [LockWait::FOREVER.waiter(), LockWait::FOREVER.waiter()];
    for number in [1, 2] {
        table.try_lock(object(1), &bytes(process(number), 0, 0, SHARED), None).expect("shared");
    }
    let upgrade = |number: u64| bytes(process(number), 0, 0, EXCLUSIVE);
    assert!(is_conflict(&table.try_lock(object(1), &upgrade(1), Some(&waiters[0]))));
    let second = table.try_lock(object(1), &upgrade(2), Some(&waiters[1]));
    assert!(matches!(second, Err(Error::Deadlock)));
}

#[test]
fn waiter_is_woken_by_the_end_of_a_lock() {
    let table = Arc::new(LockTable::default());
    table.try_lock(object(1), &bytes(process(1), 0, 10, EXCLUSIVE), None).expect("free");
    let waiting = {
        let table = Arc::clone(&table);
        std::thread::spawn(move || {
            let waiter = LockWait::FOREVER.waiter();
            let request = bytes(process(2), 5, 1, EXCLUSIVE);
            while let Err(error) = table.try_lock(object(1), &request, Some(&waiter)) {
                assert!(matches!(error, Error::LockConflict));
                LockWait::FOREVER.pause(&waiter, None).expect("no end of the wait");
            }
            table.end_wait(&waiter);
        })
    };
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiting.is_finished());
    table.try_lock(object(1), &bytes(process(1), 0, 5, None), None).expect("unlock");
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiting.is_finished(), "its byte is still locked");
    table.end(object(1).id, &[process(1)]);
    waiting.join().expect("the lock");
}

#[test]
fn wait_ends_by_deadline_and_by_cancellation() {
    let wait = LockWait::at_most(Duration::from_millis(10));
    let waiter = wait.waiter();
    wait.pause(&waiter, None).expect("the first pause");
    assert!(matches!(wait.pause(&waiter, None), Err(Error::LockTimedOut)));
    let canceller = Canceller::new();
    let wait = LockWait::FOREVER.cancelled_by(&canceller);
    let waiter = wait.waiter();
    let other = canceller.clone();
    let thread = std::thread::spawn(move || other.cancel());
    while wait.pause(&waiter, None).is_ok() {}
    assert!(matches!(wait.pause(&waiter, None), Err(Error::LockCancelled)));
    thread.join().expect("no panic");
}

#[test]
fn locks_of_a_removed_object_do_not_count() {
    let table = LockTable::default();
    let old = object(1);
    let new = LockedObject { generation: 9, ..old };
    table.try_lock(old, &bytes(process(1), 0, 0, EXCLUSIVE), None).expect("free");
    assert_eq!(table.find(new, &bytes(process(2), 0, 0, EXCLUSIVE)), None);
    table.try_lock(new, &bytes(process(2), 0, 0, EXCLUSIVE), None).expect("another object");
    table.end(new.id, &[process(2)]);
    assert!(table.is_empty());
}

#[test]
fn session_has_a_limit_of_locks_and_ends_them_all() {
    let table = LockTable::default();
    let client = |session, number| LockOwner { session, class: OwnerClass::Process, number };
    let lock = |owner, at: u64, kind| {
        table.try_lock_of_client(object(1 + at % 2), &bytes(owner, at, 1, kind), Some(at))
    };
    let count = (0..u64::MAX).take_while(|at| lock(client(7, 0), 4 * at, EXCLUSIVE).is_ok()).count();
    assert_eq!(count, (1 << 14) - 1);
    assert!(matches!(lock(client(7, 1), 1, SHARED), Err(Error::TooManyLocks)));
    lock(client(8, 0), 1, EXCLUSIVE).expect("another session has its own limit");
    assert!(is_conflict(&lock(client(8, 0), 0, SHARED)));
    table.end_session(7);
    lock(client(8, 0), 0, SHARED).expect("free");
    table.end_session(8);
    assert!(table.is_empty());
}

#[test]
fn unlock_in_the_middle_of_a_full_session_needs_room() {
    let table = LockTable::default();
    let owner = LockOwner { session: 7, class: OwnerClass::Process, number: 1 };
    let lock =
        |start, length, kind| table.try_lock_of_client(object(1), &bytes(owner, start, length, kind), None);
    lock(0, 100, EXCLUSIVE).expect("free");
    let mut at = 200;
    while lock(at, 1, EXCLUSIVE).is_ok() {
        at += 2;
    }
    assert!(lock(50, 1, None).expect("the last place"), "the owner still has locks");
    assert!(matches!(lock(20, 1, None), Err(Error::TooManyLocks)));
    assert!(!lock(0, 0, None).expect("an unlock of everything"));
    assert!(table.is_empty());
}
