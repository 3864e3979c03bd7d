use std::rc::Rc;
use std::sync::mpsc::Sender;

use super::*;
use crate::sync::schedule::{Schedule, scheduled_by};

/// The process has one clock, so these checks run as one test.
#[test]
fn clock_waits_for_every_pin() {
    let guard = pin();
    let retired = now();
    for _ in 0..10 {
        advance();
    }
    assert!(!retired.is_over(now()), "the clock passed a pin");
    let nested = pin();
    drop(guard);
    for _ in 0..10 {
        advance();
    }
    assert!(!retired.is_over(now()), "the clock passed a nested pin");
    drop(nested);
    while !retired.is_over(advance()) {}

    let held = std::thread::spawn(|| std::mem::forget(pin()));
    held.join().expect("the thread only pins");
    let retired = now();
    while !retired.is_over(advance()) {}
}

/// Other pins of the crowd come and go meanwhile.
#[test]
fn crowd_waits_for_its_longest_pin() {
    let words = [const { AtomicU64::new(0) }; crowd::WORDS];
    let crowd = Crowd::over(&words);
    let (long, at_start) = (crowd.join(), crowd.turn());
    for _ in 0..10 {
        crowd.leave(crowd.join());
        assert!(crowd.is_behind(at_start));
    }
    let mut short = crowd.join();
    crowd.leave(long);
    for _ in 0..2 {
        crowd.leave(std::mem::replace(&mut short, crowd.join()));
    }
    assert!(!crowd.is_behind(at_start), "the longest pin has ended");
    crowd.leave(short);
    assert_eq!(crowd.pins(), 0);
}

/// Another thread has the watched tables locked at the fork.
#[test]
fn regression_forked_child_can_watch_pins() {
    let (locked, forking) = (std::sync::Barrier::new(2), std::time::Duration::from_millis(200));
    drop(pin());
    let can_watch = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _watched = unpoisoned(WATCHED.lock());
            locked.wait();
            std::thread::sleep(forking);
        });
        locked.wait();
        crate::fork::in_forked_child(|| pins_file().and_then(watch_pins).is_ok())
    });
    assert!(can_watch.expect("the host can fork"), "the child hangs");
}

/// Sends a message whenever a thread waits for another one.
struct ReportsWaits(Sender<()>);

impl Schedule for ReportsWaits {
    fn step(&self) {}

    fn wait(&self) {
        let _ = self.0.send(());
    }
}

/// An advance that began before the watch does not note the counts of the new table.
#[test]
fn watch_waits_for_the_end_of_an_advance() {
    let pins = pins_file().expect("the host has memory");
    let (sender, waits) = std::sync::mpsc::channel();
    while ADVANCING.swap(true, Ordering::Acquire) {}
    let has_waited = std::thread::scope(|scope| {
        let watching =
            scope.spawn(|| scheduled_by(Rc::new(ReportsWaits(sender)), || watch_pins(pins).map(drop)));
        // Without a wait, the thread ends and drops the sender.
        let has_waited = waits.recv().is_ok();
        ADVANCING.store(false, Ordering::Release);
        watching.join().expect("no panic").expect("the pins can be mapped");
        has_waited
    });
    assert!(has_waited, "the watch began within an advance");
}
