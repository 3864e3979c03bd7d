//! The crowd: the pins of threads without a slot.
//!
//! The crowd has a number, its *turn*, and two counts of pins: of those that began in even turns, and of
//! those that began in odd turns. Turn *t* ends only when the count with the parity of *t - 1* is 0. So a pin
//! that began in turn *t* has ended when the turn is *t + 2*. Each new pin ends the turn if possible, so
//! turns end even while pins overlap.
//!
//! The turn and the counts are in the table of the process, so the clocks of other processes can compare
//! them, too. A number of pins alone would not tell if the pins of an earlier epoch have ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of words of a crowd.
pub(super) const WORDS: usize = 3;

/// The words of a crowd: its turn, and the counts of pins that began in even and in odd turns.
#[derive(Clone, Copy)]
pub(super) struct Crowd<'w>(&'w [AtomicU64]);

impl<'w> Crowd<'w> {
    pub(super) fn over(words: &'w [AtomicU64]) -> Crowd<'w> {
        Crowd(words)
    }

    pub(super) fn turn(self) -> u64 {
        self.0[0].load(Ordering::SeqCst)
    }

    fn count(self, index: usize) -> &'w AtomicU64 {
        &self.0[1 + index]
    }

    /// Returns the number of pins.
    pub(super) fn pins(self) -> u64 {
        let pins = |index| self.count(index).load(Ordering::SeqCst);
        pins(0).saturating_add(pins(1))
    }

    /// True if a pin that began in the turn `at_start` or earlier may not have ended.
    pub(super) fn is_behind(self, at_start: u64) -> bool {
        self.turn().wrapping_sub(at_start) < 2 && self.pins() != 0
    }

    /// Begins a pin. Returns the index of its count.
    pub(super) fn join(self) -> usize {
        loop {
            let mut turn = self.turn();
            let next = turn.wrapping_add(1);
            if self.count((next % 2) as usize).load(Ordering::SeqCst) == 0
                && self.0[0].compare_exchange(turn, next, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                turn = next;
            }
            let index = (turn % 2) as usize;
            self.count(index).fetch_add(1, Ordering::SeqCst);
            // If the turn has ended meanwhile, the thread that ended the next turn may have missed this pin,
            // so the pin begins again. Otherwise this load comes before the end of the turn, so the thread
            // that ends the next turn sees the addition.
            if self.turn() == turn {
                return index;
            }
            self.leave(index);
        }
    }

    /// Ends a pin, whose count has this index.
    pub(super) fn leave(self, index: usize) {
        self.count(index).fetch_sub(1, Ordering::Release);
    }

    /// Sets the counts of pins. The process has only this thread.
    pub(super) fn set_pins(self, pins: [u64; 2]) {
        (0..2).for_each(|index| self.count(index).store(pins[index], Ordering::Relaxed));
    }
}
