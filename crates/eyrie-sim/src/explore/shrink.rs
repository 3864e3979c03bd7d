//! Making a script that fails shorter.

use super::{Failure, Limits, Options, Start, record};
use crate::script::{Call, Script};

/// A shorter script that fails in some crash, got by leaving out one call after the other for as long as `goes_on` says so, and its
/// failure; `None` if `script` does not fail.
pub fn shrink(
    start: &Start,
    script: &Script,
    options: Options,
    limits: Limits,
    goes_on: &dyn Fn() -> bool,
) -> Option<(Script, Failure)> {
    let fails = |calls: &[Call]| {
        let script: Script = calls.iter().cloned().collect();
        let recorded = record(start, &script, options).ok()?;
        let failure = recorded.run.explore(limits, &mut |_| goes_on()).err()?;
        Some((script, failure))
    };
    let mut calls: Vec<Call> = script.lines().iter().map(|line| line.call.clone()).collect();
    let mut shortest = fails(&calls)?;
    let mut at = calls.len();
    while at > 0 && goes_on() {
        at -= 1;
        let mut fewer = calls.clone();
        fewer.remove(at);
        if let Some(found) = fails(&fewer) {
            (calls, shortest) = (fewer, found);
            // What comes after may be needed for nothing now.
            at = calls.len().min(at + 1);
        }
    }
    Some(shortest)
}
