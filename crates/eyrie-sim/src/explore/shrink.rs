//! Making a script that fails shorter.

use super::{Failure, Limits, Options, Start, record};
use crate::script::{Call, Script};

/// A script with as few calls as can be got by leaving out one after the other that still fails in some crash, and its
/// failure; `None` if `script` does not fail.
pub fn shrink(start: &Start, script: &Script, options: Options, limits: Limits) -> Option<(Script, Failure)> {
    let fails = |calls: &[Call]| {
        let script: Script = calls.iter().cloned().collect();
        let recorded = record(start, &script, options).ok()?;
        let failure = recorded.run.explore(limits, &mut |_| true).err()?;
        Some((script, failure))
    };
    let mut calls: Vec<Call> = script.lines().iter().map(|line| line.call.clone()).collect();
    let mut shortest = fails(&calls)?;
    let mut at = calls.len();
    while at > 0 {
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
