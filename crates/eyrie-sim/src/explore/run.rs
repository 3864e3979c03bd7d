//! A recorded run, and the exploration of all its crashes.

use std::collections::BTreeMap;

use eyrie_faults::{CrashPoint, CrashPoints, CrashRule, Event, FaultPlan, Site};

use super::failure::{CrashFailure, RecoveryCrash};
use super::images::{Counts, Images, Limits, NoImage, check_picks, point_after};
use super::recovered::{Expected, Wrong, examine};
use super::recovery::Recovery;
use crate::compare::Tree;

/// The states that a crash in a run of two threads may leave.
pub struct Orders {
    /// The allowed states for each mark, which counts the calls that had returned.
    pub(super) allowed: BTreeMap<u64, Vec<Tree>>,
}

impl Orders {
    /// Returns the states that a crash after `mark` may leave.
    pub(super) fn allowed(&self, mark: u64) -> Vec<&Tree> {
        self.allowed.get(&mark).into_iter().flatten().collect()
    }
}

/// The recorded events of a run, and the states of the model.
pub struct TracedRun {
    /// The unit in which a crash loses stores.
    pub rule: CrashRule,
    /// Bytes of the memory, or of the disk, before the first event.
    pub base: Vec<u8>,
    /// The events. In a run of one thread, mark *n* follows the return of call *n*, from 1.
    pub events: Vec<Event>,
    /// The states of the model after 0, 1, ... calls.
    pub states: Vec<Tree>,
    /// For each number of calls from 0 on, the index of the oldest state that a crash after so many calls may
    /// leave.
    pub durable: Vec<usize>,
    /// For each number of calls from 0 on, the early state that a crash in the next call may leave: the times
    /// of a write without its bytes.
    pub early: Vec<Option<Tree>>,
    /// The allowed states of a run of two threads. They replace `states`. Their marks count the calls of each
    /// thread.
    pub orders: Option<Orders>,
    /// True if the last call closed the volume.
    pub is_closed: bool,
    /// The plan with the point that the run and its recoveries leave out. It also counts the points that they
    /// meet.
    pub plan: FaultPlan,
}

/// An image that was opened and has no error.
#[derive(Clone, Copy, Debug)]
pub struct SeenImage {
    /// The last mark before the crash. In a run of one thread it is the number of calls that had returned. In
    /// a run of two threads, the upper 32 bits are the number of returned calls of the first thread, and the
    /// lower 32 bits that of the second thread.
    pub done: u64,
    /// The fence or flush before which the crash came. `None` at the end of a call or of the run.
    pub site: Option<Site>,
    /// Number of events before the crash.
    pub after: usize,
    /// Upper bound of the number of images that this crash may leave.
    pub states: f64,
    /// Hash of the image, in which a line that was not read counts without its pending stores. Images with
    /// different hashes have different contents.
    pub fingerprint: u64,
}

impl TracedRun {
    /// Returns the states that a crash at `point` may leave.
    fn expected(&self, point: &CrashPoint) -> Expected<'_> {
        let mark = point.mark.unwrap_or(0);
        if let Some(orders) = &self.orders {
            return Expected { states: orders.allowed(mark), is_closed: false, plan: &self.plan };
        }
        let done = mark as usize;
        let last = self.states.len().min(done + 2);
        let mut states: Vec<&Tree> = self.states[self.durable[done]..last].iter().collect();
        states.extend(self.early.get(done).and_then(Option::as_ref));
        let is_closed = self.is_closed && done + 1 == self.states.len();
        Expected { states, is_closed, plan: &self.plan }
    }

    fn points(&self) -> Result<CrashPoints<'_>, CrashFailure> {
        CrashPoints::by(self.rule, &self.base, &self.events)
            .map_err(|error| CrashFailure::before(error.to_string()))
    }

    /// Explores a crash at every crash point, within `limits`. `seen` gets each image that has no error. The
    /// exploration stops when `seen` returns false.
    ///
    /// # Errors
    /// Fails at the first wrong image.
    pub fn explore(
        &self,
        limits: Limits,
        seen: &mut dyn FnMut(&SeenImage) -> bool,
    ) -> Result<Counts, CrashFailure> {
        let mut counts = Counts::default();
        let mut points = self.points()?;
        while let Some(point) = points.next() {
            counts.points += 1;
            let expected = self.expected(&point);
            let failure = |picks: &[usize], recovery_crash, what| CrashFailure {
                links: Vec::new(),
                after: point.after,
                picks: picks.to_vec(),
                recovery_crash,
                what,
            };
            let states = point.pending.values().map(|stores| stores.len() as f64 + 1.0).product::<f64>();
            let mut images = Images::new(limits, point.after);
            while let Some(picks) = images.next_picks() {
                let (choices, change) = examine(points.base(), &point, &picks, &expected)
                    .map_err(|Wrong { what, picks }| failure(&picks, None, what))?;
                images.add_choices(&choices);
                let picks: Vec<usize> = choices.iter().map(|choice| choice.taken).collect();
                counts.images += 1;
                let fingerprint = points.base().fingerprint() ^ change;
                let (done, site, after) = (point.mark.unwrap_or(0), point.site, point.after);
                if !seen(&SeenImage { done, site, after, states, fingerprint }) {
                    return Ok(counts);
                }
                if images.opened() <= limits.recoveries {
                    let image = point.decided(points.base(), &choices);
                    let recovery = Recovery::of(self.rule, image, &self.plan);
                    let explored = recovery.and_then(|recovery| recovery.explore(limits, &self.plan));
                    let (opened, failed) = explored.map_err(|what| failure(&picks, None, what))?;
                    counts.of_recovery += opened;
                    if let Some((recovery_crash, what)) = failed {
                        return Err(failure(&picks, Some(recovery_crash), what));
                    }
                }
            }
            if images.is_limited() {
                if limits.is_complete {
                    return Err(failure(&[], None, format!("more than {} images", limits.images)));
                }
                counts.limited += 1;
            }
        }
        Ok(counts)
    }

    /// Opens the image of a [`CrashFailure`] again. With `recovery_crash`, also opens the image of a crash in
    /// the recovery of that image. Returns a description of the error, or `None`.
    ///
    /// # Errors
    /// Fails if there is no such image.
    pub fn replay(
        &self,
        after: usize,
        picks: &[usize],
        recovery_crash: Option<&RecoveryCrash>,
    ) -> Result<Option<String>, NoImage> {
        let mut points = self.points().map_err(|_| NoImage::Point { after })?;
        let point = point_after(&mut points, after)?;
        let expected = self.expected(&point);
        let choices = match examine(points.base(), &point, picks, &expected) {
            Ok((choices, _)) => choices,
            Err(wrong) => return Ok(Some(wrong.what)),
        };
        check_picks(picks, &choices)?;
        let Some(recovery_crash) = recovery_crash else { return Ok(None) };
        match Recovery::of(self.rule, point.decided(points.base(), &choices), &self.plan) {
            Ok(recovery) => recovery.replay(recovery_crash, &self.plan),
            Err(what) => Ok(Some(what)),
        }
    }
}
