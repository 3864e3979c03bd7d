//! Reports: an exploration call by call and point by point.

use std::collections::{BTreeMap, HashSet};

use eyrie_faults::Site;
use serde::Serialize;

use super::{Counts, Recorded, SeenImage};

/// Report of an exploration.
#[derive(Clone, Default, Debug, Serialize)]
pub struct ExploreReport {
    /// The calls, with the crashes in each.
    pub calls: Vec<CallReport>,
    /// The points that were met, and one entry for the ends of calls and of the run. Only fences, flushes and
    /// these ends have crash points.
    pub sites: Vec<SiteReport>,
    /// Number of crash points.
    pub points: u64,
    /// Number of images that were opened.
    pub images: u64,
    /// Number of different contents of the opened images.
    pub distinct: u64,
    /// Number of opened images that a crash inside a recovery left. `images` does not include them.
    pub of_recovery: u64,
    /// Number of images that were opened after processes had been killed. `images` does not include them.
    /// [`Recorded::explore`] kills no process, so callers of [`Recorded::explore_kills`] set this number.
    pub after_kills: u64,
    /// Number of crash points with more images than the limit of the exploration.
    #[serde(rename = "cut")]
    pub limited: u64,
    /// Number of calls for which the volume had no room.
    pub without_room: u64,
}

/// The crashes in one call.
#[derive(Clone, Default, Debug, Serialize)]
pub struct CallReport {
    /// Line number, call and result, or `after the last call`. In a run of two threads: the numbers of calls
    /// that had returned.
    pub call: String,
    /// Number of crash points.
    pub points: u64,
    /// Number of images that were opened.
    pub images: u64,
    /// Number of different contents of the opened images.
    pub distinct: u64,
}

/// A point of the engine, and the crashes before it.
#[derive(Clone, Default, Debug, Serialize)]
pub struct SiteReport {
    /// Kind of the point, such as `fence`, `publish` or `checksum`. `mark` is the end of a call or of the
    /// run.
    pub kind: &'static str,
    /// File and line of the point.
    pub site: String,
    /// Number of times that the run, and recoveries after crashes, met the point.
    pub met: u64,
    /// Number of crash points.
    pub points: u64,
    /// Upper bound of the number of images that crashes at this point may leave. It includes images that
    /// recovery cannot tell apart.
    pub states: f64,
    /// Number of images that were opened.
    pub images: u64,
    /// Number of different contents of the opened images.
    pub distinct: u64,
}

impl SiteReport {
    /// Adds the report of the same point in another run.
    pub fn add(&mut self, other: SiteReport) {
        (self.kind, self.site) = (other.kind, other.site);
        self.met += other.met;
        self.points += other.points;
        self.states = finite_sum(self.states, other.states);
        self.images += other.images;
        self.distinct += other.distinct;
    }
}

/// Adds two bounds. The sum is finite, because JSON has no infinity.
fn finite_sum(left: f64, right: f64) -> f64 {
    (left + right).min(f64::MAX)
}

/// Sums over several crashes.
#[derive(Default)]
struct Tally {
    /// Number of events before the crash of the last image. Several images may belong to one crash.
    last: Option<usize>,
    points: u64,
    states: f64,
    images: u64,
    contents: HashSet<u64>,
}

impl Tally {
    fn add(&mut self, seen: &SeenImage) {
        if self.last.replace(seen.after) != Some(seen.after) {
            self.points += 1;
            self.states = finite_sum(self.states, seen.states);
        }
        self.images += 1;
        self.contents.insert(seen.fingerprint);
    }
}

/// Collects a report.
#[derive(Default)]
pub(super) struct Collector {
    all: Tally,
    calls: BTreeMap<u64, Tally>,
    sites: BTreeMap<Option<Site>, Tally>,
}

impl Collector {
    pub(super) fn add(&mut self, seen: &SeenImage) {
        self.all.add(seen);
        self.calls.entry(seen.done).or_default().add(seen);
        self.sites.entry(seen.site).or_default().add(seen);
    }

    pub(super) fn report(self, recorded: &Recorded, counts: Counts) -> ExploreReport {
        let calls = self.calls.into_iter().map(|(done, tally)| CallReport {
            call: recorded.position_text(done),
            points: tally.points,
            images: tally.images,
            distinct: tally.contents.len() as u64,
        });
        let met = recorded.points();
        let mut tallies = self.sites;
        for &site in met.keys() {
            tallies.entry(Some(site)).or_default();
        }
        let sites = tallies.into_iter().map(|(site, tally)| SiteReport {
            kind: site.map_or("mark", |site| site.kind.name()),
            site: site.map_or("(the end of a call)".to_string(), |site| site.place()),
            met: site.and_then(|site| met.get(&site).copied()).unwrap_or(tally.points),
            points: tally.points,
            states: tally.states,
            images: tally.images,
            distinct: tally.contents.len() as u64,
        });
        ExploreReport {
            calls: calls.collect(),
            sites: sites.collect(),
            points: self.all.points,
            images: self.all.images,
            distinct: self.all.contents.len() as u64,
            of_recovery: counts.of_recovery,
            after_kills: 0,
            limited: counts.limited,
            without_room: recorded.without_room,
        }
    }
}

impl Recorded {
    /// Describes the position of a crash after this mark: the call in progress, or the numbers of calls of
    /// two threads that had returned.
    fn position_text(&self, mark: u64) -> String {
        if self.run.orders.is_some() {
            let [ours, theirs] = super::two_threads::returned(mark);
            return format!("after {ours} calls of one thread and {theirs} of the other");
        }
        self.calls.get(mark as usize).cloned().unwrap_or_else(|| "after the last call".to_string())
    }

    /// Explores the crashes of the run. `should_continue` gets each image that has no error. The exploration
    /// stops when `should_continue` returns false.
    ///
    /// # Errors
    /// Fails at the first wrong image.
    pub fn explore(
        &self,
        limits: super::Limits,
        should_continue: &mut dyn FnMut(&SeenImage) -> bool,
    ) -> Result<ExploreReport, super::CrashFailure> {
        let mut collector = Collector::default();
        let counts = self.run.explore(limits, &mut |seen| {
            collector.add(seen);
            should_continue(seen)
        })?;
        Ok(collector.report(self, counts))
    }
}
