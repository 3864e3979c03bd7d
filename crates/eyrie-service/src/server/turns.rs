//! Turns on the processor of the service: the service lets clients run there that it has woken.

use std::time::{Duration, Instant};

use crate::requests::Waits;

/// Time for which the service answers clients that are awake before it lets a client that it has woken run.
/// It is half of the time to wake a client on another processor, so the woken client loses little.
const TURN: Duration = Duration::from_micros(20);
/// Time after an answer in which a client that was awake usually makes its next request.
const THINKING: Duration = Duration::from_micros(3);

/// Decides when the service yields its processor.
///
/// The host often wakes a client on the processor of the service. The client would not run while the service
/// stays awake. But each yield costs more than several requests of a client that runs on another processor.
/// So the service yields as soon as no client is awake, and after a short time in any case.
pub struct Turns {
    /// Time of the first wake since the last yield.
    woken_at: Option<Instant>,
    /// Time of the latest answer to a client that was awake.
    awake_at: Instant,
}

impl Turns {
    pub fn new(now: Instant) -> Turns {
        Turns { woken_at: None, awake_at: now }
    }

    /// Returns true if the service has woken a client since its last yield.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.woken_at.is_some()
    }

    /// Notes the ways in which clients have waited for the latest answers. Returns true if the service must
    /// yield now.
    #[inline]
    pub fn ends(&mut self, waited: Waits, now: Instant) -> bool {
        if waited.asleep {
            self.woken_at.get_or_insert(now);
        }
        if waited.awake {
            self.awake_at = now;
        }
        let ends = self.woken_at.is_some_and(|at| now - at >= TURN || now - self.awake_at >= THINKING);
        if ends {
            self.woken_at = None;
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAKE: Waits = Waits { asleep: false, awake: true };
    const WOKEN: Waits = Waits { asleep: true, awake: false };
    const NONE: Waits = Waits { asleep: false, awake: false };

    /// Returns turns, and a function that notes an answer some microseconds after their start.
    fn turns() -> impl FnMut(Waits, u64) -> bool {
        let start = Instant::now();
        let mut turns = Turns::new(start);
        move |waited, micros| {
            let ends = turns.ends(waited, start + Duration::from_micros(micros));
            assert!(!ends || !turns.is_due());
            ends
        }
    }

    #[test]
    fn client_that_is_alone_runs_at_once() {
        let mut ends = turns();
        assert!(!ends(NONE, 10));
        assert!(ends(WOKEN, 11));
        assert!(!ends(NONE, 12));
    }

    #[test]
    fn clients_that_are_awake_come_first_for_a_short_time() {
        let mut ends = turns();
        assert!(!ends(AWAKE, 99));
        assert!(!ends(WOKEN, 100));
        assert!((101..120).all(|at| !ends(AWAKE, at)));
        assert!(ends(AWAKE, 120));
        assert!((121..200).all(|at| !ends(AWAKE, at)));
    }

    #[test]
    fn client_runs_when_no_other_is_awake() {
        let mut ends = turns();
        assert!(!ends(Waits { asleep: true, awake: true }, 100));
        assert!(!ends(NONE, 102));
        assert!(ends(NONE, 103));
    }
}
