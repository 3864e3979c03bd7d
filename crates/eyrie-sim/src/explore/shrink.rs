//! Making a script that fails shorter.

use super::{Failure, Options, Recorded, Start, record};
use crate::script::{Call, Script};

/// A shorter script that `fails`, and its failure; `None` if `script` does not fail. Calls are left out one after the other for as
/// long as `goes_on` says so.
pub fn shrink(
    start: &Start,
    script: &Script,
    options: Options,
    fails: &dyn Fn(&Recorded) -> Option<Failure>,
    goes_on: &dyn Fn() -> bool,
) -> Option<(Script, Failure)> {
    let tried = |calls: &[Call]| {
        let script: Script = calls.iter().cloned().collect();
        let failure = fails(&record(start, &script, options).ok()?)?;
        Some((script, failure))
    };
    let mut calls: Vec<Call> = script.lines().iter().map(|line| line.call.clone()).collect();
    let mut shortest = tried(&calls)?;
    let mut at = calls.len();
    while at > 0 && goes_on() {
        at -= 1;
        let mut fewer = calls.clone();
        fewer.remove(at);
        if let Some(found) = tried(&fewer) {
            (calls, shortest) = (fewer, found);
            // What comes after may be needed for nothing now.
            at = calls.len().min(at + 1);
        }
    }
    Some(shortest)
}
