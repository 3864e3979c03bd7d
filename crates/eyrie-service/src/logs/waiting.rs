//! The wait of an entry for free storage, or for a host that cannot read its log.

use std::time::{Duration, Instant};

/// Maximum time for which an entry waits. Long before this time is over, the service ends the sessions of
/// other processes that hold storage back.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Largest part of the time between two attempts that counts as waiting. A service that was stopped between
/// two attempts has ended no sessions meanwhile, so the entry must wait on.
const LARGEST_PART: Duration = Duration::from_millis(200);

/// The time for which the first entry of a log that is not applied has waited.
#[derive(Default)]
pub struct EntryWait {
    /// Time of the latest attempt to apply the entry. `None` if the entry does not wait.
    latest: Option<Instant>,
    waited: Duration,
}

impl EntryWait {
    /// Notes an attempt to apply entries. `is_full` is true if an entry could not be applied, and has to
    /// wait. `has_applied` is true if the attempt has applied entries before that entry.
    pub fn note_attempt(&mut self, is_full: bool, has_applied: bool, now: Instant) {
        if !is_full || has_applied {
            *self = EntryWait::default();
        }
        if !is_full {
            return;
        }
        let since = self.latest.map_or(Duration::ZERO, |latest| now.saturating_duration_since(latest));
        self.waited += since.min(LARGEST_PART);
        self.latest = Some(now);
    }

    /// True if the entry must not wait longer.
    pub fn is_over(&self) -> bool {
        self.waited >= LONGEST_WAIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_of_the_service_ends_no_wait() {
        let (mut wait, start) = (EntryWait::default(), Instant::now());
        let mut note = |milliseconds| {
            wait.note_attempt(true, false, start + Duration::from_millis(milliseconds));
            wait.is_over()
        };
        assert!(!note(0) && !note(10));
        assert!(!note(60_000), "the service was stopped for a minute");
        assert!((60_001..60_780).all(|at| !note(at)));
        assert!(note(60_800));
    }

    #[test]
    fn each_entry_has_a_wait_of_its_own() {
        let (mut wait, start) = (EntryWait::default(), Instant::now());
        for milliseconds in (0..10_000).step_by(100) {
            wait.note_attempt(true, milliseconds % 500 == 0, start + Duration::from_millis(milliseconds));
            assert!(!wait.is_over(), "{milliseconds}");
        }
    }
}
