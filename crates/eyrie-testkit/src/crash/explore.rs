//! Every crash of a run, and every image of each.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eyrie_medium::{Choice, CrashImage, CrashPoint, Site, crash_points};

use super::recovered::{Expected, examine};
use super::{Case, Run};

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

/// A crash that left what it must not leave. Everything that [`replay`] needs is in its one line.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The case.
    pub case: String,
    /// The fence that was left out on purpose.
    pub dropped: Option<Site>,
    /// Events before the crash (a count).
    pub after: usize,
    /// Which image.
    pub script: Vec<usize>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Site { file, line }) = self.dropped {
            write!(f, "without {file}:{line}: ")?;
        }
        write!(f, "{}: crash after {} events, script {:?}: {}", self.case, self.after, self.script, self.what)
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

    fn points(&self) -> Vec<CrashPoint> {
        crash_points(self.base.clone(), &self.events)
    }
}

fn examine_caught(
    point: &CrashPoint,
    script: Vec<usize>,
    expected: &Expected<'_>,
) -> Result<Vec<Choice>, String> {
    catch_unwind(AssertUnwindSafe(|| examine(point, script, expected))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
    })
}

impl Case {
    /// Crashes everywhere, and opens every image.
    ///
    /// # Errors
    /// The first image that is not as it must be.
    pub fn explore(&self, dropped: Option<Site>, limits: Limits) -> Result<Counts, Box<Failure>> {
        let failure = |after, script: &[usize], what| {
            Box::new(Failure { case: self.to_string(), dropped, after, script: script.to_vec(), what })
        };
        let run = self.run(dropped).map_err(|what| failure(0, &[], what))?;
        let mut counts = Counts::default();
        for point in run.points() {
            let expected = run.expected(&point);
            let mut images = 0;
            let mut next = Some(Vec::new());
            while let Some(script) = next {
                if images == limits.images {
                    if limits.is_complete {
                        return Err(failure(point.after, &script, format!("more than {images} images")));
                    }
                    break;
                }
                images += 1;
                let choices = examine_caught(&point, script.clone(), &expected)
                    .map_err(|what| failure(point.after, &script, what))?;
                next = CrashImage::next_script(&choices);
            }
            counts += Counts { points: 1, images };
        }
        Ok(counts)
    }
}

/// Opens one image of one crash again: the one that a [`Failure`] tells.
///
/// # Errors
/// What is wrong with it.
///
/// # Panics
/// If the case has no such crash point.
pub fn replay(case: &Case, dropped: Option<Site>, after: usize, script: Vec<usize>) -> Result<(), String> {
    let run = case.run(dropped)?;
    let points = run.points();
    let point = points.iter().find(|point| point.after == after).expect("a crash point of this case");
    examine(point, script, &run.expected(point)).map(drop)
}
