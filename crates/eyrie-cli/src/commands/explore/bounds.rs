//! The limits of an exploration: images of each crash, killed processes, and time.

use std::time::{Duration, Instant};

use eyrie_sim::explore::{CrashRule, KillLimits, Limits};

use super::arguments::ExploreArgs;
use crate::interrupt;

/// The time for built-in scripts, unless the user gives a time or `--exhaustive`.
pub(super) const DEFAULT_TIME: Duration = Duration::from_secs(60);
/// Maximum number of processes that end, by a kill or a power failure, before the last process of a run with
/// kills. Each process of such a run opens the volume that the previous process left.
const MAX_KILLED: u32 = 3;

/// Returns the limits for the images of each crash.
pub(super) fn image_limits(arguments: &ExploreArgs) -> Limits {
    let all = match arguments.medium.rule() {
        CrashRule::Lines => 200_000,
        // A journal record of many sectors can be torn in very many ways. Recovery treats nearly all of them
        // alike, because the checksum of the record is then wrong.
        CrashRule::Sectors => 64,
    };
    Limits {
        images: arguments.images.unwrap_or(all),
        sampled: arguments.samples,
        is_complete: false,
        recoveries: arguments.recoveries,
    }
}

/// Returns the limits for killed processes.
pub(super) fn kill_limits(arguments: &ExploreArgs) -> KillLimits {
    let limits = Limits { images: 8, sampled: 8, is_complete: false, recoveries: arguments.recoveries };
    KillLimits { moments: arguments.kills, processes: MAX_KILLED, limits }
}

/// The time at which an exploration ends. `None` means no time limit.
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
