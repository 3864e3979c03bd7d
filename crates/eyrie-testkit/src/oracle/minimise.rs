//! Shortens a list of steps that fails.

use super::OracleFailure;
use crate::ops::OpStep;

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
    let (end, related) = (last.number, last.handles());
    failure.steps.retain(|step| {
        let creates = related.iter().any(|object| object.step == step.number);
        creates || step.number == end || step.handles().iter().any(|object| related.contains(object))
    });
}

#[cfg(test)]
mod tests {
    use eyrie_engine::Time;

    use super::*;
    use crate::ops::{Action, ObjectHandle};

    #[test]
    fn steps_that_create_or_touch_an_object_of_the_last_are_kept() {
        let step = |number, action| OpStep { number, time: Time::default(), action };
        let close = |step, part| Action::Close { object: ObjectHandle { step, part } };
        let batch = || Action::Batch { dir: ObjectHandle::ROOT, parts: Vec::new() };
        let steps = vec![
            step(1, batch()),
            step(2, batch()),
            step(3, close(1, 1)),
            step(4, close(1, 0)),
            step(5, close(1, 1)),
        ];
        let mut failure = OracleFailure { seed: 0, what: String::new(), steps };
        keep_related(&mut failure);
        let kept: Vec<u32> = failure.steps.iter().map(|step| step.number).collect();
        assert_eq!(kept, [1, 3, 5]);
    }
}
