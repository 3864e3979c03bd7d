//! The decision to repeat a call after an error of the engine, and the pauses between attempts to lock.

use std::time::Duration;

use eyrie_engine::{Engine, Error, Result};
use eyrie_medium::epoch::{self, Guard};

/// Maximum number of attempts of one call after stale ids. Other threads rarely replace an object between
/// look-up and use. So a call that reaches this limit was given an object that no longer exists, or has met a
/// defect.
const MAX_STALE: u32 = 1000;

/// Shortest and longest pause between two attempts to get a lock. A waiter pauses if nothing wakes it: in a
/// served volume, and on the host.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));

/// The pauses between attempts to get a lock. Each is twice as long as the one before, up to the longest
/// pause.
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(PAUSES.0)
    }
}

impl Pauses {
    /// Returns the next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(PAUSES.1);
        pause
    }
}

/// The repeats of one call so far.
#[derive(Default)]
pub(crate) struct Retries {
    stale: u32,
    reclaimed: bool,
}

impl Retries {
    /// Returns true if the call may succeed when it begins again. Either an id was stale, or the volume was
    /// full and [`Engine::reclaim`] has made recently freed storage available. A call reclaims at most one
    /// time. A caller that needs space must hold no pin, because pins delay reclaiming.
    #[cold]
    pub(crate) fn allows(&mut self, error: &Error, engine: &impl Engine) -> bool {
        match error {
            Error::Stale => self.allows_another(),
            error if error.is_full() && !self.reclaimed && engine.reclaim() => {
                self.reclaimed = true;
                true
            }
            _ => false,
        }
    }

    /// Works as [`Retries::allows`] for a stale id. Here the caller, not the engine, has found that another
    /// thread made a change meanwhile.
    pub(crate) fn allows_another(&mut self) -> bool {
        self.stale += 1;
        self.stale <= MAX_STALE
    }
}

/// Runs `attempt` under a pin, and repeats it after an error as long as [`Retries`] allows.
#[inline]
pub(crate) fn call<T>(engine: &impl Engine, mut attempt: impl FnMut(&Guard) -> Result<T>) -> Result<T> {
    let mut retries = Retries::default();
    loop {
        // The pin ends before the call begins again: the ids of a pin are those of one session, and the
        // engine cannot reclaim space while this thread holds a pin.
        let attempted = attempt(&epoch::pin());
        match attempted {
            Ok(result) => return Ok(result),
            Err(error) if retries.allows(&error, engine) => {}
            Err(error) => return Err(error),
        }
    }
}
