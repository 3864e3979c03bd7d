//! Tests of advisory locks: the end of a session, deadlocks and unlocks, while several threads lock.

use eyrie_engine::advisory::{
    LockKind, LockOwner, LockRange, LockRequest, LockTable, LockTarget, LockedObject, OwnerClass,
};

use super::*;

/// Maximum number of requests of a thread for one lock. A thread that gets the lock needs far fewer.
const MOST_REQUESTS: usize = 1000;

fn object(number: u64) -> LockedObject {
    LockedObject { id: ObjectId::new(number * 256, Kind::File), generation: number }
}

/// Returns a request of a process for the first `length` bytes.
fn request(session: u64, length: u64, kind: Option<LockKind>) -> LockRequest {
    let owner = LockOwner { session, class: OwnerClass::Process, number: session };
    LockRequest { owner, target: LockTarget::Bytes(LockRange::of_length(0, length).expect("a range")), kind }
}

const EXCLUSIVE: Option<LockKind> = Some(LockKind::Exclusive);

/// Locks the first `length` bytes of an object, and waits while others have them.
fn wait_for(table: &LockTable, object: LockedObject, session: u64, length: u64) -> Result<()> {
    for _ in 0..MOST_REQUESTS {
        match table.try_lock_of_client(object, &request(session, length, EXCLUSIVE), Some(1)) {
            Err(Error::LockConflict) => shuttle::thread::yield_now(),
            answer => return answer.map(drop),
        }
    }
    panic!("session {session} waits too long for a lock");
}

#[test]
fn ended_sessions_have_no_locks() {
    let _alone = alone();
    run(Bursts::new(1, 50), || {
        let table = Arc::new(LockTable::default());
        let threads = [1, 2, 3].map(|session| {
            let table = Arc::clone(&table);
            shuttle::thread::spawn(move || {
                for number in [1, 2] {
                    wait_for(&table, object(number), session, 10).expect("no deadlock");
                }
                table.end_session(session);
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(table.is_empty());
    });
}

#[test]
fn deadlock_is_an_error_of_one_process() {
    let _alone = alone();
    let deadlocks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&deadlocks);
    run(Bursts::new(2, 100), move || {
        let table = Arc::new(LockTable::default());
        let threads = [(1, [1, 2]), (2, [2, 1])].map(|(session, order)| {
            let (table, counted) = (Arc::clone(&table), Arc::clone(&counted));
            shuttle::thread::spawn(move || {
                let taken = order.map(|number| wait_for(&table, object(number), session, 1));
                let refused = taken.iter().filter(|taken| matches!(taken, Err(Error::Deadlock))).count();
                counted.fetch_add(refused, Ordering::SeqCst);
                table.end_session(session);
                taken.iter().all(Result::is_ok)
            })
        });
        let done = threads.map(|thread| thread.join().expect("no panic"));
        assert!(done.contains(&true), "one of the processes gets both locks");
        assert!(table.is_empty());
    });
    assert!(deadlocks.load(Ordering::SeqCst) > 0, "some schedule has a deadlock");
}

#[test]
fn unlocked_bytes_are_free_for_others() {
    let _alone = alone();
    run(Bursts::new(3, 50), || {
        let table = Arc::new(LockTable::default());
        let threads = [1, 2].map(|session| {
            let table = Arc::clone(&table);
            shuttle::thread::spawn(move || {
                for length in [10, 5, 1] {
                    wait_for(&table, object(1), session, length).expect("no deadlock");
                    let unlock = request(session, length, None);
                    let has_others = table.try_lock_of_client(object(1), &unlock, None).expect("an unlock");
                    assert!(!has_others, "bytes stay locked");
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(table.is_empty());
    });
}
