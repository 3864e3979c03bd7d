//! The decision to make a call again after an error of the engine.

use eyrie_engine::{Engine, Error};

/// Attempts after stale ids. Other threads replace an object between look-up and use only by accident, so
/// more attempts than this mean that something else is wrong.
const MOST_STALE: u32 = 1000;

/// The attempts of one call so far.
#[derive(Default)]
pub(crate) struct Retries {
    stale: u32,
    reclaimed: bool,
}

impl Retries {
    /// True if the call may find something else when it begins again: an id was stale, or the volume was full
    /// and has now reclaimed space whose grace period was not over. The caller must hold no pin, because pins
    /// delay reclaiming.
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

    /// As [`Retries::allows`], after a change of another thread that the caller saw itself.
    pub(crate) fn allows_another(&mut self) -> bool {
        self.stale += 1;
        self.stale <= MOST_STALE
    }
}
