//! The volumes from which scripts start, and the recorded runs of scripts.

use eyrie_sim::explore::{
    ParallelScript, RecordError, RecordOptions, Recorded, RunMedium, StartVolume, record, record_beside,
    trace,
};
use eyrie_sim::script::Script;

use super::arguments::ExploreArgs;
use crate::failure::{Failure, Result};
use crate::{input, text};

/// Refuses volumes that are too large to explore.
pub(super) fn check_size(bytes: u64) -> Result<()> {
    if bytes > trace::MAX_BYTES {
        return Err(Failure::usage(
            "the volume is too large",
            text::size(bytes),
            "choose a size of at most 1 GiB",
        ));
    }
    Ok(())
}

/// Makes an empty volume on a simulated medium.
pub(in crate::commands) fn empty_volume(medium: RunMedium) -> Result<StartVolume> {
    check_size(medium.bytes.saturating_add(medium.journal_bytes.unwrap_or(0)))?;
    StartVolume::on(medium)
        .map_err(|error| Failure::new("cannot make the volume", text::size(medium.bytes), error))
}

/// Makes the volume from which the script starts: an empty volume, or the volume after the script of
/// `--start`.
pub(super) fn start_volume(arguments: &ExploreArgs) -> Result<StartVolume> {
    let start = empty_volume(arguments.medium())?;
    let Some(path) = &arguments.start else { return Ok(start) };
    let (name, script) = input::script(path)?;
    start
        .after_script(&script)
        .map_err(|error| Failure::new("cannot make the volume to start from", name, error))
}

/// Runs a script, alone or side by side with a second one, and records the events.
pub(super) fn record_run(
    start: &StartVolume,
    script: &Script,
    beside: Option<&ParallelScript>,
    options: RecordOptions,
) -> std::result::Result<Recorded, RecordError> {
    match beside {
        None => record(start, script, options),
        Some(beside) => record_beside(start, script, beside, options),
    }
}
