//! Every crash of a run, and every image of each.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eyrie_medium::{Choice, CrashImage, CrashPoint, CrashPoints, Event, ImageBase, Site};

use super::recovered::{Expected, examine};
use crate::compare::Tree;

/// What was done on a traced medium, and what the model held meanwhile.
pub struct Run {
    /// Memory before the first event.
    pub base: Vec<u8>,
    /// What happened. Mark *n* says that *n* calls have returned.
    pub events: Vec<Event>,
    /// What the model holds after 0, 1, ... calls.
    pub states: Vec<Tree>,
    /// What may also be seen while call *n* is in flight: the time of a write without its bytes.
    pub early: Vec<Option<Tree>>,
    /// Whether the last call was to close the volume.
    pub is_closed: bool,
}

/// How much of a run is explored.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Images of one crash point.
    pub images: u64,
    /// Whether more images than that are a failure.
    pub is_complete: bool,
}

impl Limits {
    /// Everything.
    pub const ALL: Limits = Limits { images: 200_000, is_complete: true };
}

/// What was explored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Crash points.
    pub points: u64,
    /// Images, all of which were opened.
    pub images: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.points += other.points;
        self.images += other.images;
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
    /// Tells its contents, as far as anybody looked, from those of others.
    pub fingerprint: u64,
}

/// A crash that left what it must not leave: with these numbers [`Run::replay`] opens its image again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Events before the crash (a count).
    pub after: usize,
    /// Which of its contents each line had that was looked at.
    pub picks: Vec<usize>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crash after {} events, picks {:?}: {}", self.after, self.picks, self.what)
    }
}

impl std::error::Error for Failure {}

impl Run {
    /// What a crash at `point` may leave.
    fn expected(&self, point: &CrashPoint) -> Expected<'_> {
        let done = point.mark.unwrap_or(0) as usize;
        let mut states = vec![&self.states[done]];
        states.extend(self.early.get(done).and_then(Option::as_ref));
        states.extend(self.states.get(done + 1));
        Expected { states, is_closed: self.is_closed && done + 1 == self.states.len() }
    }

    fn points(&self) -> Result<CrashPoints<'_>, Failure> {
        CrashPoints::new(&self.base, &self.events).map_err(|error| Failure {
            after: 0,
            picks: Vec::new(),
            what: error.to_string(),
        })
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
            let failure = |picks: &[usize], what| Failure { after: point.after, picks: picks.to_vec(), what };
            let mut images = 0;
            let mut next = Some(Vec::new());
            while let Some(picks) = next {
                if images == limits.images {
                    if limits.is_complete {
                        return Err(failure(&picks, format!("more than {images} images")));
                    }
                    break;
                }
                images += 1;
                let (choices, change) = examine_caught(points.base(), &point, picks.clone(), &expected)
                    .map_err(|what| failure(&picks, what))?;
                counts.images += 1;
                let fingerprint = points.base().fingerprint() ^ change;
                let (done, site, after) = (point.mark.unwrap_or(0), point.site, point.after);
                if !seen(&Seen { done, site, after, fingerprint }) {
                    return Ok(counts);
                }
                next = CrashImage::next_script(&choices);
            }
        }
        Ok(counts)
    }

    /// Opens one image of one crash again: the one that a [`Failure`] tells.
    ///
    /// # Errors
    /// What is wrong with it, or that there is no such crash.
    pub fn replay(&self, after: usize, picks: Vec<usize>) -> Result<(), String> {
        let mut points = self.points().map_err(|failure| failure.what)?;
        let point = points.find(|point| point.after == after);
        let point = point.ok_or_else(|| format!("there is no crash after {after} events"))?;
        examine_caught(points.base(), &point, picks, &self.expected(&point)).map(drop)
    }
}

/// [`examine`], with a panic as what is wrong.
fn examine_caught(
    base: &ImageBase,
    point: &CrashPoint,
    picks: Vec<usize>,
    expected: &Expected<'_>,
) -> Result<(Vec<Choice>, u64), String> {
    catch_unwind(AssertUnwindSafe(|| examine(base, point, picks, expected))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
    })
}
