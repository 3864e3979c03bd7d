//! Crashes inside recovery: after a second crash, recovery must make the same volume as after the first.

use eyrie_engine::scm::Scm;
use eyrie_faults::{CrashPoints, CrashRule, Event, FaultPlan, Recorder};

use super::failure::RecoveryCrash;
use super::images::{Images, Limits, NoImage, check_picks, point_after};
use super::medium::Traced;
use super::recovered::{Expected, Wrong, caught, examine};
use crate::compare::{Tree, TreeParts, try_tree};

/// The recovery of one image.
pub(super) struct Recovery {
    rule: CrashRule,
    image: Vec<u8>,
    pub(super) events: Vec<Event>,
    /// Contents of the recovered volume. Neither a crash in the recovery nor a second recovery may change
    /// them.
    tree: Tree,
}

impl Recovery {
    /// Records the recovery of a volume with the bytes `image`. The recovery leaves out the point of `plan`.
    pub(super) fn of(rule: CrashRule, image: Vec<u8>, plan: &FaultPlan) -> Result<Recovery, String> {
        let recorder = Recorder::of(plan.clone());
        let open = || {
            let traced = Traced::holding(rule, &image, recorder.clone());
            let engine = traced.and_then(|traced| Scm::open_on(traced.split().0));
            let engine = engine.map_err(|error| format!("open: {error}"))?;
            // The events of the recovery end here, before the reads of the tree.
            let events = recorder.take();
            Ok::<_, String>((try_tree(&engine, TreeParts::ALL).map_err(|error| error.to_string())?, events))
        };
        let (tree, events) = caught(open)??;
        Ok(Recovery { rule, image, events, tree })
    }

    /// Returns the only state that a crash in the recovery may leave.
    fn expected<'a>(&'a self, plan: &'a FaultPlan) -> Expected<'a> {
        Expected { states: vec![&self.tree], is_closed: false, plan }
    }

    fn points(&self) -> Result<CrashPoints<'_>, String> {
        CrashPoints::by(self.rule, &self.image, &self.events).map_err(|error| error.to_string())
    }

    /// Explores a crash at every crash point of the recovery. Returns the number of opened images, and the
    /// first failure.
    pub(super) fn explore(
        &self,
        limits: Limits,
        plan: &FaultPlan,
    ) -> Result<(u64, Option<(RecoveryCrash, String)>), String> {
        let expected = self.expected(plan);
        let few = Limits { images: limits.images.min(8), sampled: limits.sampled.min(8), ..limits };
        // On a disk recovery has few steps, and each step may be torn in many ways. A few images of each
        // crash suffice.
        let limits = if self.rule == CrashRule::Sectors { few } else { limits };
        let mut points = self.points()?;
        let mut all = 0;
        while let Some(point) = points.next() {
            let mut images = Images::new(limits, point.after);
            while let Some(picks) = images.next_picks() {
                all += 1;
                match examine(points.base(), &point, &picks, &expected) {
                    Ok((choices, _)) => images.add_choices(&choices),
                    Err(Wrong { what, picks }) => {
                        return Ok((all, Some((RecoveryCrash { after: point.after, picks }, what))));
                    }
                }
            }
        }
        Ok((all, None))
    }

    /// Opens the image of one crash again. Returns a description of the error, or `None`.
    pub(super) fn replay(&self, crash: &RecoveryCrash, plan: &FaultPlan) -> Result<Option<String>, NoImage> {
        let RecoveryCrash { after, picks } = crash;
        let mut points = self.points().map_err(|_| NoImage::Point { after: *after })?;
        let point = point_after(&mut points, *after)?;
        match examine(points.base(), &point, picks, &self.expected(plan)) {
            Ok((choices, _)) => check_picks(picks, &choices).map(|()| None),
            Err(wrong) => Ok(Some(wrong.what)),
        }
    }
}
