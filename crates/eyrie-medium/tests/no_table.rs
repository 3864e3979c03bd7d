//! A test of a process that has no memory for its table of pins. The process must have no table when the test
//! begins, so the test is alone in its process.

use eyrie_faults::in_forked_child;
use eyrie_medium::epoch;
use rustix::process::{Resource, Rlimit, setrlimit};

fn clock_runs() -> bool {
    let retired = epoch::now();
    (0..10).any(|_| retired.is_over(epoch::advance()))
}

#[test]
fn regression_forked_child_without_a_table_keeps_its_own_pin() {
    let limits = rustix::process::getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(0), ..limits }).expect("a lower limit");
    let guard = epoch::pin();
    setrlimit(Resource::As, limits).expect("the former limit");
    assert_eq!(epoch::thread_index(), 256, "the thread has no slot");
    let child = in_forked_child(|| {
        let waited = !clock_runs();
        drop(guard);
        waited && clock_runs()
    });
    assert!(child.expect("the host can fork"), "the clock of the child");
}
