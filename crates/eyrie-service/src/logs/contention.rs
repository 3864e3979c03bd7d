//! The parts of a volume that sessions have taken from each other.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Shortest and longest time between the loss of a grant to another session and the next grant.
pub const PAUSES: (Duration, Duration) = if cfg!(feature = "shuttle") {
    (Duration::ZERO, Duration::ZERO)
} else {
    (Duration::from_millis(1), Duration::from_secs(1))
};
/// Number of parts at which the table forgets those whose pause is over.
const MOST_PARTS: usize = 4096;

/// A time at which a session lost a grant to another session.
#[derive(Clone, Copy)]
pub struct Taken {
    at: Instant,
    /// No session gets the grant for this time.
    pause: Duration,
}

impl Taken {
    /// Notes that a session has lost a grant now. If that happens again and again, the pauses become longer.
    pub fn again(before: Option<Taken>) -> Taken {
        let at = Instant::now();
        let is_recent = |taken: &Taken| at - taken.at < 10 * taken.pause;
        let pause = before.filter(is_recent).map_or(PAUSES.0, |taken| (2 * taken.pause).min(PAUSES.1));
        Taken { at, pause }
    }

    /// True if no session gets the grant yet.
    pub fn is_paused(&self) -> bool {
        self.at.elapsed() < self.pause
    }
}

/// The parts whose grant a session has lost to another session.
#[derive(Default)]
pub struct Contention(HashMap<usize, Taken>);

impl Contention {
    /// Notes that a session has lost the grant of a part now.
    pub fn add(&mut self, part: usize) {
        if self.0.len() >= MOST_PARTS {
            self.0.retain(|_, taken| taken.is_paused());
        }
        let before = self.0.get(&part).copied();
        self.0.insert(part, Taken::again(before));
    }

    /// True if no session gets the grant of the part yet. Its objects change too often in several sessions.
    pub fn is_paused(&self, part: usize) -> bool {
        self.0.get(&part).is_some_and(Taken::is_paused)
    }
}
