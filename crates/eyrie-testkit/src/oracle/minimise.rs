//! Fewer steps that fail as well.

use std::collections::BTreeSet;

use super::Failure;
use crate::ops::{Handle, Step};

/// Replays, at most (a count).
const MAX_REPLAYS: u32 = 2000;

/// Leaves out steps, in ever smaller pieces, as long as `replay` of the others fails; the last failure.
pub(super) fn minimise(mut failure: Failure, mut replay: impl FnMut(&[Step]) -> Option<Failure>) -> Failure {
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

/// Leaves out the steps that touch no object of the last one, nor make one.
pub(super) fn keep_related(failure: &mut Failure) {
    let Some(last) = failure.steps.last() else { return };
    let handles = |step: &Step| {
        let mut handles: BTreeSet<Handle> = step.handles().into_iter().collect();
        handles.insert(Handle { step: step.number, part: 0 });
        handles
    };
    let related = handles(last);
    failure.steps.retain(|step| !handles(step).is_disjoint(&related));
}
