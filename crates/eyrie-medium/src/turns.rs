//! Turns: threads of a test run one at a time, and which goes on follows from a seed, so that a run can be made again.
//!
//! A thread may lose its turn wherever it stores to a traced medium, and does where it waits for another's lock.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// When turns change.
enum Change {
    /// After about so many stores, at random.
    About(u64),
    /// At every store, to the thread that follows.
    Always,
    /// Before a store that so many others come before; after that only where a thread waits for another.
    Once(u64),
}

impl Change {
    /// What a seed says: one in four stops the first thread once, somewhere in a call.
    fn of(seed: u64) -> Change {
        match seed % 4 {
            0 => Change::About(4),
            1 => Change::About(2),
            2 => Change::About(16),
            _ => Change::Once(seed / 16 % 64),
        }
    }
}

struct State {
    current: usize,
    /// The threads that are not done yet.
    there: Vec<bool>,
    random: u64,
    change: Change,
}

/// Who goes on, of some threads.
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// Whether any turns were ever made: else nobody takes part.
static USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static MINE: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

impl Turns {
    /// Turns of so many threads, each of which [takes part](Turns::take_part).
    pub fn new(threads: usize, seed: u64) -> Arc<Turns> {
        Turns::of(threads, seed, Change::of(seed))
    }

    /// Turns of so many threads that change at every store, in the order of their numbers.
    pub fn in_order(threads: usize) -> Arc<Turns> {
        Turns::of(threads, 0, Change::Always)
    }

    fn of(threads: usize, seed: u64, change: Change) -> Arc<Turns> {
        USED.store(true, Ordering::Relaxed);
        let state = State { current: 0, there: vec![true; threads], random: seed, change };
        Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Runs `run` as thread `number` of them, whenever it is its turn.
    pub fn take_part<T>(self: &Arc<Turns>, number: usize, run: impl FnOnce() -> T) -> T {
        struct Done<'a>(&'a Turns, usize);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                MINE.set(None);
                let mut state = self.0.state();
                state.there[self.1] = false;
                state.next(self.1);
                self.0.changed.notify_all();
            }
        }
        self.wait_for(number, self.state());
        MINE.set(Some((Arc::clone(self), number)));
        let _done = Done(self, number);
        run()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, number: usize, mut state: MutexGuard<'_, State>) {
        while state.current != number {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pass(&self, number: usize, always: bool) {
        let mut state = self.state();
        if state.is_over() || always {
            state.next(number);
            if state.current != number {
                self.changed.notify_all();
                self.wait_for(number, state);
            }
        }
    }
}

impl State {
    /// SplitMix64.
    fn any(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether a turn is over before a store.
    fn is_over(&mut self) -> bool {
        let random = self.any();
        match &mut self.change {
            Change::About(stores) => random.is_multiple_of(*stores),
            Change::Always => true,
            Change::Once(left) => {
                *left = left.wrapping_sub(1);
                *left == u64::MAX
            }
        }
    }

    /// Gives the turn of thread `number` to another that is there, if there is one.
    fn next(&mut self, number: usize) {
        let others: Vec<usize> =
            (0..self.there.len()).filter(|&other| other != number && self.there[other]).collect();
        let next = match self.change {
            Change::Always => {
                others.iter().copied().find(|&other| other > number).or(others.first().copied())
            }
            _ => (!others.is_empty()).then(|| others[(self.any() % others.len() as u64) as usize]),
        };
        self.current = next.unwrap_or(self.current);
    }
}

fn pass(always: bool) {
    if !USED.load(Ordering::Relaxed) {
        return;
    }
    // A thread that is being torn down takes no part any more.
    let mine = MINE.try_with(|mine| mine.borrow().clone()).ok().flatten();
    if let Some((turns, number)) = mine {
        turns.pass(number, always);
    }
}

/// The thread has done something that others may see.
pub(crate) fn step() {
    pass(false);
}

/// Whether the thread runs by turns.
pub(crate) fn takes_part() -> bool {
    // A thread that is being torn down takes no part any more.
    USED.load(Ordering::Relaxed) && MINE.try_with(|mine| mine.borrow().is_some()).unwrap_or(false)
}

/// The thread can do nothing until another has.
pub(crate) fn wait() {
    pass(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two threads do that count together, by turns.
    fn counted(seed: u64) -> Vec<(usize, u32)> {
        let (turns, seen) = (Turns::new(2, seed), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for number in 0..2 {
                let (turns, seen) = (&turns, &seen);
                scope.spawn(move || {
                    turns.take_part(number, || {
                        for count in 0..20 {
                            seen.lock().expect("no thread panics").push((number, count));
                            step();
                        }
                    });
                });
            }
        });
        seen.into_inner().expect("no thread panics")
    }

    #[test]
    fn turns_follow_from_their_seed() {
        let runs: Vec<_> = (0..8).map(counted).collect();
        for (run, seed) in runs.iter().zip(0..) {
            assert_eq!(*run, counted(seed));
            assert!((0..2).all(|number| run.iter().filter(|step| step.0 == number).count() == 20));
        }
        assert!(runs.iter().any(|run| *run != runs[0]), "always the same turns");
    }
}
