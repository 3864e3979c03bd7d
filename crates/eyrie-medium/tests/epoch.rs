//! A test of threads that pin without a slot. It claims every slot of the process, so it runs alone.

use std::sync::Barrier;
use std::thread;

use eyrie_faults::in_forked_child;
use eyrie_medium::epoch;

/// Number of slots, and the index that threads without a slot share.
const SLOTS: usize = 256;

/// Returns true if at most ten attempts to advance the clock end the grace period of memory that is retired
/// now.
fn clock_runs() -> bool {
    let retired = epoch::now();
    (0..10).any(|_| retired.is_over(epoch::advance()))
}

/// Runs `check` while other threads have all slots, and one further thread is pinned.
fn without_slots<T>(check: impl FnOnce() -> T) -> T {
    let (claimed, pinned, over) = (Barrier::new(SLOTS + 1), Barrier::new(2), Barrier::new(SLOTS + 2));
    thread::scope(|scope| {
        for _ in 0..SLOTS {
            scope.spawn(|| {
                epoch::thread_index();
                claimed.wait();
                over.wait();
            });
        }
        claimed.wait();
        scope.spawn(|| {
            let _pin = epoch::pin();
            pinned.wait();
            over.wait();
        });
        pinned.wait();
        let said = check();
        over.wait();
        said
    })
}

#[test]
fn forked_child_keeps_only_its_own_pin() {
    let (index, child) = without_slots(|| {
        let (guard, nested) = (epoch::pin(), epoch::pin());
        let child = in_forked_child(|| {
            drop(nested);
            let waited = !clock_runs();
            drop(guard);
            waited && clock_runs()
        });
        (epoch::thread_index(), child)
    });
    assert_eq!(index, SLOTS, "the test has a slot");
    assert!(child.unwrap(), "the clock of the child");

    thread::spawn(|| without_slots(|| std::mem::forget(epoch::pin()))).join().unwrap();
    assert!(clock_runs(), "a thread that has ended is pinned");
}
