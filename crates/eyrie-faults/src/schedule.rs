//! Thread schedules. The threads of a test run one at a time, in an order that follows from a seed, so that a
//! run can be repeated.
//!
//! The schedule may switch to another thread at each *step* of a thread. A thread makes a step directly
//! before or after a change that other threads may see, such as a store to a traced medium or a write to a
//! recorded disk. The schedule always switches when a thread waits for another.

use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use eyrie_medium::sync::schedule::{self, Schedule};
use eyrie_medium::sync::unpoisoned;

use crate::random::SplitMix64;

/// The rule for the moments at which a schedule switches to another thread.
enum SwitchRule {
    /// Switches at random, on average after this many steps.
    About(u64),
    /// Switches at every step, in the order of the threads' numbers.
    Always,
    /// Switches at the step or wait that follows this many steps and waits. Otherwise the schedule switches
    /// only when a thread waits for another, or ends.
    Once(u64),
}

impl SwitchRule {
    /// Returns the rule of a seed. One seed in four switches at only one step, which is among the first 64.
    fn of(seed: u64) -> SwitchRule {
        match seed % 4 {
            0 => SwitchRule::About(4),
            1 => SwitchRule::About(2),
            2 => SwitchRule::About(16),
            _ => SwitchRule::Once(seed / 16 % 64),
        }
    }
}

struct ScheduleState {
    current: usize,
    /// For each thread, true until the thread has ended.
    is_running: Vec<bool>,
    random: SplitMix64,
    rule: SwitchRule,
}

/// A schedule of the threads of a test, which decides which of them runs next.
pub struct ThreadSchedule {
    state: Mutex<ScheduleState>,
    changed: Condvar,
}

impl ThreadSchedule {
    /// Makes a schedule for `threads` threads. Each of them calls [`run_thread`](ThreadSchedule::run_thread).
    pub fn new(threads: usize, seed: u64) -> Arc<ThreadSchedule> {
        ThreadSchedule::of(threads, seed, SwitchRule::of(seed))
    }

    /// Makes a schedule that switches at every step, in the order of the threads' numbers.
    pub fn in_order(threads: usize) -> Arc<ThreadSchedule> {
        ThreadSchedule::of(threads, 0, SwitchRule::Always)
    }

    fn of(threads: usize, seed: u64, rule: SwitchRule) -> Arc<ThreadSchedule> {
        let state =
            ScheduleState { current: 0, is_running: vec![true; threads], random: SplitMix64(seed), rule };
        Arc::new(ThreadSchedule { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Runs `run` on the calling thread as thread `number`, which runs only while the schedule selects it.
    pub fn run_thread<T>(self: &Arc<ThreadSchedule>, number: usize, run: impl FnOnce() -> T) -> T {
        struct Done<'a>(&'a ThreadSchedule, usize);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                let mut state = self.0.state();
                state.is_running[self.1] = false;
                state.next(self.1);
                self.0.changed.notify_all();
            }
        }
        self.wait_for(number, self.state());
        let _done = Done(self, number);
        let thread = ScheduledThread { threads: Arc::clone(self), number };
        schedule::scheduled_by(Rc::new(thread), run)
    }

    fn state(&self) -> MutexGuard<'_, ScheduleState> {
        unpoisoned(self.state.lock())
    }

    /// Blocks the calling thread, which is thread `number`, until the schedule selects it.
    fn wait_for(&self, number: usize, mut state: MutexGuard<'_, ScheduleState>) {
        while state.current != number {
            state = unpoisoned(self.changed.wait(state));
        }
    }

    /// Switches to another thread if the rule says so, or in any case if `always` is true.
    fn pass(&self, number: usize, always: bool) {
        let mut state = self.state();
        // If a thread waits, the schedule always switches, because otherwise the awaited thread might never
        // run.
        if state.rule_switches() || always {
            state.next(number);
            if state.current != number {
                self.changed.notify_all();
                self.wait_for(number, state);
            }
        }
    }
}

impl ScheduleState {
    /// Counts a step or a wait. Returns true if the rule says that the schedule switches to another thread
    /// now.
    fn rule_switches(&mut self) -> bool {
        let random = self.random.next();
        match &mut self.rule {
            SwitchRule::About(steps) => random.is_multiple_of(*steps),
            SwitchRule::Always => true,
            // The count passes below 0 once, at the chosen step.
            SwitchRule::Once(left) => {
                *left = left.wrapping_sub(1);
                *left == u64::MAX
            }
        }
    }

    /// Switches from thread `number` to another thread that has not ended, if one exists.
    fn next(&mut self, number: usize) {
        let others: Vec<usize> =
            (0..self.is_running.len()).filter(|&other| other != number && self.is_running[other]).collect();
        let next = match self.rule {
            SwitchRule::Always => {
                others.iter().copied().find(|&other| other > number).or(others.first().copied())
            }
            _ => (!others.is_empty()).then(|| others[(self.random.next() % others.len() as u64) as usize]),
        };
        self.current = next.unwrap_or(self.current);
    }
}

/// One thread of a schedule.
struct ScheduledThread {
    threads: Arc<ThreadSchedule>,
    number: usize,
}

impl Schedule for ScheduledThread {
    fn step(&self) {
        self.threads.pass(self.number, false);
    }

    fn wait(&self) {
        self.threads.pass(self.number, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps of two threads that count under one schedule, in the order in which they ran.
    fn counted(seed: u64) -> Vec<(usize, u32)> {
        let (threads, seen) = (ThreadSchedule::new(2, seed), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for number in 0..2 {
                let (threads, seen) = (&threads, &seen);
                scope.spawn(move || {
                    threads.run_thread(number, || {
                        for count in 0..20 {
                            seen.lock().expect("no thread panics").push((number, count));
                            schedule::step();
                        }
                    });
                });
            }
        });
        seen.into_inner().expect("no thread panics")
    }

    #[test]
    fn order_of_threads_follows_from_the_seed() {
        let runs: Vec<_> = (0..8).map(counted).collect();
        for (run, seed) in runs.iter().zip(0..) {
            assert_eq!(*run, counted(seed));
            assert!((0..2).all(|number| run.iter().filter(|step| step.0 == number).count() == 20));
        }
        assert!(runs.iter().any(|run| *run != runs[0]), "always the same order");
    }
}
