//! Shortens a script that fails.

use super::{CrashFailure, RecordOptions, Recorded, StartVolume, record};
use crate::script::{Call, Script};

/// Tries to remove each call, and leaves the call out if the remaining script still `fails`. Returns the last
/// script that failed and its failure, or `None` if `script` does not fail. Stops when `should_continue`
/// returns false.
pub fn shrink(
    start: &StartVolume,
    script: &Script,
    options: RecordOptions,
    fails: &dyn Fn(&Recorded) -> Option<CrashFailure>,
    should_continue: &dyn Fn() -> bool,
) -> Option<(Script, CrashFailure)> {
    let tried = |calls: &[Call]| {
        let script: Script = calls.iter().cloned().collect();
        let failure = fails(&record(start, &script, options).ok()?)?;
        Some((script, failure))
    };
    let mut calls: Vec<Call> = script.lines().iter().map(|line| line.call.clone()).collect();
    let mut shortest = tried(&calls)?;
    let mut at = calls.len();
    while at > 0 && should_continue() {
        at -= 1;
        let mut fewer = calls.clone();
        fewer.remove(at);
        if let Some(found) = tried(&fewer) {
            (calls, shortest) = (fewer, found);
            // The call after the removed one may now be unnecessary, too.
            at = calls.len().min(at + 1);
        }
    }
    Some(shortest)
}
