//! Every crash of a run, and every image of each.

use std::fmt;

use eyrie_medium::{Choice, CrashPoint, CrashPoints, Event, Plan, Rule, Site};

use super::beside::Orders;
use super::killed::Link;
use super::picks::Picks;
use super::recovered::{Expected, Wrong, examine};
use super::recovery::{Again, Recovery};
use crate::compare::Tree;

/// What was done on a traced medium, and what the model held meanwhile.
pub struct Run {
    /// Which stores a crash may lose.
    pub rule: Rule,
    /// Memory, or the disk, before the first event.
    pub base: Vec<u8>,
    /// What happened. Mark *n* says that *n* calls have returned.
    pub events: Vec<Event>,
    /// What the model holds after 0, 1, ... calls.
    pub states: Vec<Tree>,
    /// The first of these states that a crash after 0, 1, ... calls may leave.
    pub durable: Vec<usize>,
    /// What may also be seen while call *n* is in flight: the time of a write without its bytes.
    pub early: Vec<Option<Tree>>,
    /// What a crash may leave of two threads, instead of these states. Their marks are its own.
    pub orders: Option<Orders>,
    /// Whether the last call was to close the volume.
    pub is_closed: bool,
    /// What was left out, and is in recovery, too; and what was met.
    pub plan: Plan,
}

/// How much of a run is explored.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Images of one crash point that are opened one by one.
    pub images: u64,
    /// Others that are opened, of those that have more (a count of samples).
    pub sampled: u64,
    /// Whether more images than that are a failure.
    pub is_complete: bool,
    /// Images of one crash point whose recovery is crashed, too.
    pub recoveries: u64,
}

impl Limits {
    /// Everything.
    pub const ALL: Limits = Limits { images: 200_000, sampled: 0, is_complete: true, recoveries: 0 };
}

/// What was explored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Crash points.
    pub points: u64,
    /// Images, all of which were opened.
    pub images: u64,
    /// Images that crashes inside recovery left, all of which were opened, too.
    pub of_recovery: u64,
    /// Crash points of which not all images were opened.
    pub cut: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.points += other.points;
        self.images += other.images;
        self.of_recovery += other.of_recovery;
        self.cut += other.cut;
    }
}

/// An image that was opened and is as it must be.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Calls that had returned.
    pub done: u64,
    /// The fence that the crash came before.
    pub site: Option<Site>,
    /// Events before the crash (a count).
    pub after: usize,
    /// Images that this crash may leave, at most.
    pub states: f64,
    /// Tells its contents, as far as anybody looked, from those of others.
    pub fingerprint: u64,
}

/// A crash that left what it must not leave: with these numbers [`Run::replay`] opens its image again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The chain of processes before the one that power failed in, where some were killed.
    pub links: Vec<Link>,
    /// Events before the crash (a count).
    pub after: usize,
    /// Which of its contents each line had that was looked at.
    pub picks: Vec<usize>,
    /// The crash in the recovery of that image, where it is that which left something else.
    pub again: Option<Again>,
    /// What is wrong.
    pub what: String,
}

impl Failure {
    /// What is wrong before any crash.
    pub fn before(what: String) -> Failure {
        Failure { links: Vec::new(), after: 0, picks: Vec::new(), again: None, what }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for link in &self.links {
            match link {
                Link::Kill { after } => write!(f, "killed after {after} events, ")?,
                Link::Power { after, picks } => {
                    write!(f, "power failed after {after} events, picks {picks:?}, ")?
                }
            }
        }
        write!(f, "crash after {} events, picks {:?}", self.after, self.picks)?;
        if let Some(Again { after, picks }) = &self.again {
            write!(f, ", and in its recovery after {after} events, picks {picks:?}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Failure {}

impl Run {
    /// What a crash at `point` may leave.
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

    fn points(&self) -> Result<CrashPoints<'_>, Failure> {
        CrashPoints::by(self.rule, &self.base, &self.events)
            .map_err(|error| Failure::before(error.to_string()))
    }

    /// Crashes everywhere, and opens every image. `seen` is told of each that is as it must be, and says whether to go on.
    ///
    /// # Errors
    /// The first image that is not as it must be.
    pub fn explore(&self, limits: Limits, seen: &mut dyn FnMut(&Seen) -> bool) -> Result<Counts, Failure> {
        let mut counts = Counts::default();
        let mut points = self.points()?;
        while let Some(point) = points.next() {
            counts.points += 1;
            let expected = self.expected(&point);
            let failure = |picks: &[usize], again, what| Failure {
                links: Vec::new(),
                after: point.after,
                picks: picks.to_vec(),
                again,
                what,
            };
            let states = point.pending.values().map(|stores| stores.len() as f64 + 1.0).product::<f64>();
            let mut images = Picks::new(limits, point.after);
            while let Some(picks) = images.next() {
                let (choices, change) = examine(points.base(), &point, &picks, &expected)
                    .map_err(|Wrong { what, picks }| failure(&picks, None, what))?;
                images.had(&choices);
                let picks: Vec<usize> = choices.iter().map(|choice| choice.taken).collect();
                counts.images += 1;
                let fingerprint = points.base().fingerprint() ^ change;
                let (done, site, after) = (point.mark.unwrap_or(0), point.site, point.after);
                if !seen(&Seen { done, site, after, states, fingerprint }) {
                    return Ok(counts);
                }
                if images.opened() <= limits.recoveries {
                    let image = point.decided(points.base(), &choices);
                    let recovery = Recovery::of(self.rule, image, &self.plan);
                    let explored = recovery.and_then(|recovery| recovery.explore(limits, &self.plan));
                    let (opened, lost) = explored.map_err(|what| failure(&picks, None, what))?;
                    counts.of_recovery += opened;
                    if let Some((again, what)) = lost {
                        return Err(failure(&picks, Some(again), what));
                    }
                }
            }
            if images.is_cut() {
                if limits.is_complete {
                    return Err(failure(&[], None, format!("more than {} images", limits.images)));
                }
                counts.cut += 1;
            }
        }
        Ok(counts)
    }

    /// Opens one image of one crash again, which a [`Failure`] tells; with `again` also one of a crash in its recovery. What
    /// is wrong with it, if something is.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn replay(
        &self,
        after: usize,
        picks: &[usize],
        again: Option<&Again>,
    ) -> Result<Option<String>, NoImage> {
        let mut points = self.points().map_err(|_| NoImage::Point { after })?;
        let point = point_after(&mut points, after)?;
        let expected = self.expected(&point);
        let choices = match examine(points.base(), &point, picks, &expected) {
            Ok((choices, _)) => choices,
            Err(wrong) => return Ok(Some(wrong.what)),
        };
        check_picks(picks, &choices)?;
        let Some(again) = again else { return Ok(None) };
        match Recovery::of(self.rule, point.decided(points.base(), &choices), &self.plan) {
            Ok(recovery) => recovery.replay(again, &self.plan),
            Err(what) => Ok(Some(what)),
        }
    }
}

/// An image that the crashes of a run do not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoImage {
    /// No crash comes there.
    #[error("there is no crash after {after} events")]
    Point {
        /// Events (a count).
        after: usize,
    },
    /// A line has fewer contents, or fewer lines were looked at.
    #[error("pick {index} (from 0) has nothing to pick from")]
    Pick {
        /// Which of the picks.
        index: usize,
    },
}

/// The crash that comes after so many events.
pub(super) fn point_after(points: &mut CrashPoints<'_>, after: usize) -> Result<CrashPoint, NoImage> {
    points.find(|point| point.after == after).ok_or(NoImage::Point { after })
}

/// Whether the choices that were made are those that were asked for.
pub(super) fn check_picks(picks: &[usize], choices: &[Choice]) -> Result<(), NoImage> {
    let made = |index: usize| choices.get(index).map(|choice| choice.taken);
    let wrong = picks.iter().enumerate().find(|&(index, &pick)| made(index) != Some(pick));
    wrong.map_or(Ok(()), |(index, _)| Err(NoImage::Pick { index }))
}
