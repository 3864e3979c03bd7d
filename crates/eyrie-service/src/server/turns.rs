//! Turns on the processor of the service: the time for which the service stays awake, and the moments at
//! which it lets clients run there that it has woken.

use std::time::{Duration, Instant};

use crate::requests::Waits;

/// Time for which the service stays awake after a request: about twice the time to wake it.
const AWAKE: Duration = Duration::from_micros(80);
/// Time for which the service stays awake after it has woken a client: several times the time to wake a
/// process. If the service slept before the client's next request, each would wake the other in each call.
const AWAKE_FOR_SLEEPER: Duration = Duration::from_micros(500);
/// Time for which the service answers clients that are awake before it lets a client that it has woken run.
/// It is half of the time to wake a client on another processor, so the woken client loses little.
const TURN: Duration = Duration::from_micros(20);
/// Time after an answer in which a client that was awake usually makes its next request.
const THINKING: Duration = Duration::from_micros(3);

/// Decides when the service yields its processor, and when it may sleep.
///
/// The host often wakes a client on the processor of the service. The client would not run while the service
/// stays awake. But each yield costs more than several requests of a client that runs on another processor.
/// So the service yields as soon as no client is awake, and after a short time in any case.
pub struct Turns {
    awake_until: Instant,
    /// Time of the first wake since the last yield.
    woken_at: Option<Instant>,
    /// Time of the latest answer to a client that was awake.
    awake_at: Instant,
}

impl Turns {
    pub fn new(now: Instant) -> Turns {
        Turns { awake_until: now, woken_at: None, awake_at: now }
    }

    /// Returns true if the service has woken a client since its last yield.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.woken_at.is_some()
    }

    /// Returns true if the service stays awake.
    #[inline]
    pub fn is_awake(&self, now: Instant) -> bool {
        now < self.awake_until
    }

    /// Notes that the service has slept.
    pub fn wake(&mut self, now: Instant) {
        self.awake_until = now + AWAKE;
    }

    /// Notes if the latest sweep had work, and the ways in which clients have waited for their answers.
    /// Returns true if the service must yield now. A service that does not spin sleeps after each sweep, and
    /// so need not ask.
    #[inline]
    pub fn ends(&mut self, has_work: bool, waited: Waits, now: Instant) -> bool {
        if has_work {
            self.awake_until = self.awake_until.max(now + AWAKE);
        }
        if waited.asleep {
            self.awake_until = self.awake_until.max(now + AWAKE_FOR_SLEEPER);
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

    const SPINNING: Waits = Waits { asleep: false, awake: true };
    const SLEEPING: Waits = Waits { asleep: true, awake: false };
    const NONE: Waits = Waits { asleep: false, awake: false };

    /// Returns turns, and a function that notes an answer some microseconds after their start.
    fn turns() -> impl FnMut(Waits, u64) -> bool {
        let start = Instant::now();
        let mut turns = Turns::new(start);
        move |waited, micros| {
            let now = start + Duration::from_micros(micros);
            let ends = turns.ends(waited.asleep || waited.awake, waited, now);
            assert!(micros < 100 || turns.is_awake(now));
            assert!(!ends || !turns.is_due());
            ends
        }
    }

    #[test]
    fn client_that_is_alone_runs_at_once() {
        let mut ends = turns();
        assert!(!ends(NONE, 10));
        assert!(ends(SLEEPING, 11));
        assert!(!ends(NONE, 12));
    }

    #[test]
    fn clients_that_are_awake_come_first_for_a_short_time() {
        let mut ends = turns();
        assert!(!ends(SPINNING, 99));
        assert!(!ends(SLEEPING, 100));
        assert!((101..120).all(|at| !ends(SPINNING, at)));
        assert!(ends(SPINNING, 120));
        assert!((121..200).all(|at| !ends(SPINNING, at)));
        assert!(!ends(NONE, 599));
    }

    #[test]
    fn client_runs_when_no_other_is_awake() {
        let mut ends = turns();
        assert!(!ends(Waits { asleep: true, awake: true }, 100));
        assert!(!ends(NONE, 102));
        assert!(ends(NONE, 103));
    }
}
