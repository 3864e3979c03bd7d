//! The times of changes.

use std::time::SystemTime;

use eyrie_engine::Time;

/// Gives each change a time of its own, so the time of an object shows which change was its latest. The
/// exception is a change to which root gives an earlier time.
#[derive(Default)]
pub struct Clock {
    last: Time,
}

impl Clock {
    /// Returns a time that is later than all earlier results by a nanosecond at least.
    pub fn next(&mut self) -> Time {
        self.next_from(Clock::now())
    }

    /// Works as [`Clock::next`], for one of several changes for which the caller has read the present once.
    pub fn next_from(&mut self, present: Time) -> Time {
        self.last = present.max(next_after(self.last));
        self.last
    }

    /// Returns the present.
    pub fn now() -> Time {
        Time::from(SystemTime::now())
    }
}

/// Returns the time a nanosecond later.
fn next_after(time: Time) -> Time {
    match time.nanoseconds {
        999_999_999.. => Time::new(time.seconds + 1, 0),
        nanoseconds => Time::new(time.seconds, nanoseconds + 1),
    }
}
