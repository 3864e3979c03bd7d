//! The extent of an exploration: images of each crash, killed processes, and time.

use std::time::{Duration, Instant};

use eyrie_sim::explore::{CrashRule, KillLimits, Limits};

use super::arguments::ExploreArgs;
use crate::interrupt;

/// The time for built-in scripts, unless the user gives one.
pub(super) const DEFAULT_TIME: Duration = Duration::from_secs(60);
/// Processes that are killed one after the other, at most.
const MOST_KILLED: u32 = 3;

/// Returns the images of each crash that are opened.
pub(super) fn image_limits(arguments: &ExploreArgs) -> Limits {
    let all = match arguments.medium.rule() {
        CrashRule::Lines => 200_000,
        // A journal record of many sectors can be torn in far more ways, and most of them look the same to
        // recovery.
        CrashRule::Sectors => 64,
    };
    Limits {
        images: arguments.images.unwrap_or(all),
        sampled: arguments.samples,
        is_complete: false,
        recoveries: arguments.recoveries,
    }
}

/// Returns the processes that are killed.
pub(super) fn kill_limits(arguments: &ExploreArgs) -> KillLimits {
    let limits = Limits { images: 8, sampled: 8, is_complete: false, recoveries: arguments.recoveries };
    KillLimits { moments: arguments.kills, processes: MOST_KILLED, limits }
}

/// The end of an exploration. `None` is no end.
pub(super) struct Deadline(pub(super) Option<Instant>);

impl Deadline {
    pub(super) fn after(time: Option<Duration>) -> Deadline {
        Deadline(time.and_then(|time| Instant::now().checked_add(time)))
    }

    /// Returns true until the time is up or the user interrupts.
    pub(super) fn goes_on(&self) -> bool {
        !interrupt::requested() && self.0.is_none_or(|end| Instant::now() < end)
    }
}
