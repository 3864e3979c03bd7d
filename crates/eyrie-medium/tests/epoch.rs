//! Tests of pins. Each test needs the clock of the process for itself, so the tests run one at a time. One
//! test claims every slot of the process.

use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use eyrie_faults::in_forked_child;
use eyrie_medium::epoch;

/// Number of slots, and the index that threads without a slot share.
const SLOTS: usize = 256;

/// A lock that every test holds.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns true if at most ten attempts to advance the clock end the grace period of memory that is retired
/// now.
fn clock_runs() -> bool {
    let retired = epoch::now();
    (0..10).any(|_| retired.is_over(epoch::advance()))
}

/// A thread that holds a pin. It has no slot if other threads have all slots.
struct Pinned<'s>(Sender<()>, thread::ScopedJoinHandle<'s, ()>);

impl<'s> Pinned<'s> {
    fn begin(scope: &'s thread::Scope<'s, '_>) -> Pinned<'s> {
        let ((pinned, begun), (over, end)) = (channel(), channel::<()>());
        let thread = scope.spawn(move || {
            let _pin = epoch::pin();
            pinned.send(()).expect("the test waits");
            let _ = end.recv();
        });
        begun.recv().expect("the thread pins");
        Pinned(over, thread)
    }

    fn end(self) {
        drop(self.0);
        self.1.join().expect("the thread only pins");
    }
}

/// Runs `check` while other threads have all slots.
fn with_slots_claimed<T>(check: impl for<'s> FnOnce(&'s thread::Scope<'s, '_>) -> T) -> T {
    let (claimed, over) = (Barrier::new(SLOTS + 1), Barrier::new(SLOTS + 1));
    thread::scope(|scope| {
        for _ in 0..SLOTS {
            scope.spawn(|| {
                epoch::thread_index();
                claimed.wait();
                over.wait();
            });
        }
        claimed.wait();
        let said = check(scope);
        over.wait();
        said
    })
}

/// Runs `check` while other threads have all slots, and one further thread is pinned.
fn without_slots<T>(check: impl FnOnce() -> T) -> T {
    with_slots_claimed(|scope| {
        let pinned = Pinned::begin(scope);
        let said = check();
        pinned.end();
        said
    })
}

#[test]
fn forked_child_keeps_only_its_own_pin() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

#[test]
fn pins_of_a_thread_without_a_slot_have_numbers() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, [unpinned, first, nested, second]) = without_slots(|| {
        let unpinned = epoch::pin_number();
        let outer = epoch::pin();
        let first = epoch::pin_number();
        let inner = epoch::pin();
        let nested = epoch::pin_number();
        drop((inner, outer));
        let _pin = epoch::pin();
        (epoch::thread_index(), [unpinned, first, nested, epoch::pin_number()])
    });
    assert_eq!(index, SLOTS, "the test has a slot");
    assert_eq!((unpinned, first), (0, nested));
    assert!(first != 0 && second != 0 && second != first, "{first}, {second}");
}

/// At the fork, the pin is of an earlier epoch. The parent has noted its count at the start of the present
/// epoch.
#[test]
fn regression_forked_child_keeps_the_epoch_of_its_pin() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The count of the slot in the parent then differs from that in the child.
    drop(epoch::pin());
    let guard = epoch::pin();
    let retired = epoch::now();
    while epoch::now() == retired {
        epoch::advance();
    }
    let child = in_forked_child(|| {
        (0..10).for_each(|_| _ = epoch::advance());
        let waited = !retired.is_over(epoch::now());
        drop(guard);
        waited && clock_runs()
    });
    assert!(child.expect("the host can fork"), "the clock of the child");
}

/// Returns true if the clock waits for the pin of a thread without a slot, and passes pins that end, although
/// at each moment a thread without a slot holds a pin.
fn clock_passes_overlapping_pins() -> bool {
    with_slots_claimed(|scope| {
        let mut pinned = Pinned::begin(scope);
        let retired = epoch::now();
        (0..10).for_each(|_| _ = epoch::advance());
        let waits = !retired.is_over(epoch::now());
        let is_over = (0..4).any(|_| {
            std::mem::replace(&mut pinned, Pinned::begin(scope)).end();
            retired.is_over(epoch::advance())
        });
        pinned.end();
        waits && is_over
    })
}

#[test]
fn regression_overlapping_pins_without_slots_do_not_stop_the_clock() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(clock_passes_overlapping_pins(), "the clock passed a pin, or stands still");
}

/// The clock also compares the table of this process as that of a client.
#[test]
fn regression_overlapping_pins_of_a_client_do_not_stop_the_clock() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _watch = epoch::watch_pins(epoch::pins_file().expect("a file")).expect("a table");
    assert!(clock_passes_overlapping_pins(), "the clock passed a pin, or stands still");
}

thread_local! {
    /// Runs its check when its thread ends, after the thread has given its slot back.
    static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
}

struct AtEnd(Option<Box<dyn FnOnce()>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.take().expect("one drop")();
    }
}

#[test]
fn regression_forked_child_keeps_the_pin_of_an_ending_thread() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (send, said) = channel();
    let check = move || {
        let guard = epoch::pin();
        let child = in_forked_child(|| {
            let waited = !clock_runs();
            drop(guard);
            waited && clock_runs()
        });
        // The guard of this thread is in the closure. The parent does not run the closure, but drops it, so
        // the guard ends there, too.
        send.send(child.expect("the host can fork")).expect("the test waits");
    };
    // Thread-locals are destroyed in the reverse order of their first uses. So `AT_END` is destroyed after
    // the pins of the thread.
    let ending = thread::spawn(|| {
        AT_END.set(Some(AtEnd(Some(Box::new(check)))));
        drop(epoch::pin());
    });
    ending.join().expect("the thread only forks");
    assert!(said.recv().expect("an answer"), "the clock of the child");
    assert!(clock_runs(), "the pin of the thread has ended");
}

/// A child that serves a volume watches the pins of its own clients only.
#[test]
fn regression_forked_child_does_not_wait_for_the_clients_of_its_parent() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _watch = epoch::watch_pins(epoch::pins_file().expect("a file")).expect("a table");
    let (pinned, over) = (Barrier::new(2), Barrier::new(2));
    let child = thread::scope(|scope| {
        scope.spawn(|| {
            let _pin = epoch::pin();
            pinned.wait();
            over.wait();
        });
        pinned.wait();
        let child = in_forked_child(|| {
            let watch = epoch::pins_file().and_then(epoch::watch_pins);
            watch.is_ok() && clock_runs()
        });
        over.wait();
        child
    });
    assert!(child.expect("the host can fork"), "the clock of the child");
}
