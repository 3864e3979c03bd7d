//! Crashes inside recovery: what is left then must be what the recovery made of the image that the first crash left.

use eyrie_engine::scm::Scm;
use eyrie_medium::{CrashPoints, Event, Plan, Recorder, Rule};

use super::ground::Traced;
use super::picks::Picks;
use super::recovered::{Expected, Wrong, caught, examine};
use super::run::{Limits, NoImage, check_picks, point_after};
use crate::compare::{Include, Tree, try_tree};

/// A crash inside a recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Again {
    /// Events of the recovery before it (a count).
    pub after: usize,
    /// Which of its contents each line had that was looked at.
    pub picks: Vec<usize>,
}

/// The recovery of one image.
pub(super) struct Recovery {
    rule: Rule,
    image: Vec<u8>,
    pub(super) events: Vec<Event>,
    /// What the volume holds when it is over. Crashes of it, and a second recovery, change nothing of that.
    tree: Tree,
}

impl Recovery {
    /// Opens a volume with these bytes, without what the plan leaves out.
    pub(super) fn of(rule: Rule, image: Vec<u8>, plan: &Plan) -> Result<Recovery, String> {
        let recorder = Recorder::of(plan.clone());
        let open = || {
            let traced = Traced::holding(rule, &image, recorder.clone());
            let engine = traced.and_then(|traced| Scm::open_on(traced.split().0));
            let engine = engine.map_err(|error| format!("open: {error}"))?;
            // What is done from here on is none of recovery.
            let events = recorder.take();
            Ok::<_, String>((try_tree(&engine, Include::ALL).map_err(|error| error.to_string())?, events))
        };
        let (tree, events) = caught(open)??;
        Ok(Recovery { rule, image, events, tree })
    }

    /// What a crash in it may leave: the same, in a volume that is open.
    fn expected<'a>(&'a self, plan: &'a Plan) -> Expected<'a> {
        Expected { states: vec![&self.tree], is_closed: false, plan }
    }

    fn points(&self) -> Result<CrashPoints<'_>, String> {
        CrashPoints::by(self.rule, &self.image, &self.events).map_err(|error| error.to_string())
    }

    /// Crashes everywhere, and opens images of each crash. How many those were, and the first that is not as it must be, if one
    /// is not.
    pub(super) fn explore(
        &self,
        limits: Limits,
        plan: &Plan,
    ) -> Result<(u64, Option<(Again, String)>), String> {
        let expected = self.expected(plan);
        let few = Limits { images: limits.images.min(8), sampled: limits.sampled.min(8), ..limits };
        // A disk recovers in few steps, of which each may be torn in many ways.
        let limits = if self.rule == Rule::Sectors { few } else { limits };
        let mut points = self.points()?;
        let mut all = 0;
        while let Some(point) = points.next() {
            let mut images = Picks::new(limits, point.after);
            while let Some(picks) = images.next() {
                all += 1;
                match examine(points.base(), &point, &picks, &expected) {
                    Ok((choices, _)) => images.had(&choices),
                    Err(Wrong { what, picks }) => {
                        return Ok((all, Some((Again { after: point.after, picks }, what))));
                    }
                }
            }
        }
        Ok((all, None))
    }

    /// Opens the image of one crash again; what is wrong with it, if something is.
    pub(super) fn replay(&self, again: &Again, plan: &Plan) -> Result<Option<String>, NoImage> {
        let Again { after, picks } = again;
        let mut points = self.points().map_err(|_| NoImage::Point { after: *after })?;
        let point = point_after(&mut points, *after)?;
        match examine(points.base(), &point, picks, &self.expected(plan)) {
            Ok((choices, _)) => check_picks(picks, &choices).map(|()| None),
            Err(wrong) => Ok(Some(wrong.what)),
        }
    }
}
