//! Shortens a list of steps that fails.

use std::collections::BTreeSet;

use super::OracleFailure;
use crate::ops::{ObjectHandle, OpStep};

/// Maximum number of replays.
const MAX_REPLAYS: u32 = 2000;

/// Leaves out sequences of consecutive steps if `replay` of the remaining steps still fails. Each round over
/// the list halves the length of the sequences. Rounds with single steps end when a round leaves out nothing.
/// Stops after [`MAX_REPLAYS`] replays. Returns the last failure.
pub(super) fn minimise(
    mut failure: OracleFailure,
    mut replay: impl FnMut(&[OpStep]) -> Option<OracleFailure>,
) -> OracleFailure {
    let mut replays = 0;
    let mut piece = failure.steps.len().div_ceil(2);
    while piece > 0 {
        let mut start = 0;
        let mut is_shorter = false;
        while start < failure.steps.len() && replays < MAX_REPLAYS {
            replays += 1;
            let end = failure.steps.len().min(start + piece);
            let fewer = [&failure.steps[..start], &failure.steps[end..]].concat();
            match replay(&fewer) {
                Some(smaller) => {
                    failure = smaller;
                    is_shorter = true;
                }
                None => start = end,
            }
        }
        if piece > 1 {
            piece = piece.div_ceil(2);
        } else if !is_shorter {
            break;
        }
        if replays >= MAX_REPLAYS {
            break;
        }
    }
    failure
}

/// Keeps the steps that create or touch an object of the last step.
pub(super) fn keep_related(failure: &mut OracleFailure) {
    let Some(last) = failure.steps.last() else { return };
    let handles = |step: &OpStep| {
        let mut handles: BTreeSet<ObjectHandle> = step.handles().into_iter().collect();
        handles.insert(ObjectHandle { step: step.number, part: 0 });
        handles
    };
    let related = handles(last);
    failure.steps.retain(|step| !handles(step).is_disjoint(&related));
}
