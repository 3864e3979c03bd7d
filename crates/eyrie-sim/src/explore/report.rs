//! What was explored, call by call and fence by fence.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::{Counts, Recorded, Seen};

/// What was explored.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Report {
    /// The calls that power failed in.
    pub calls: Vec<CallReport>,
    /// The fences that power failed before.
    pub sites: Vec<SiteReport>,
    /// Crash points.
    pub points: u64,
    /// Images that were opened.
    pub images: u64,
    /// Those of them with different contents.
    pub distinct: u64,
    /// Images that crashes inside recovery left, which were opened, too.
    pub of_recovery: u64,
    /// Crash points of which not all images were opened.
    pub cut: u64,
    /// Calls that the volume had no room for.
    pub without_room: u64,
}

/// The crashes in one call.
#[derive(Clone, Default, Debug, Serialize)]
pub struct CallReport {
    /// The number of its line, the call and its result.
    pub call: String,
    /// Crash points.
    pub points: u64,
    /// Images that were opened.
    pub images: u64,
    /// Those of them with different contents.
    pub distinct: u64,
}

/// The crashes before one fence.
#[derive(Clone, Default, Debug, Serialize)]
pub struct SiteReport {
    /// File and line of the fence.
    pub site: String,
    /// Crash points.
    pub points: u64,
    /// Images that were opened.
    pub images: u64,
    /// Those of them with different contents.
    pub distinct: u64,
}

/// Crashes of one kind.
#[derive(Default)]
struct Tally {
    last: Option<usize>,
    points: u64,
    images: u64,
    contents: HashSet<u64>,
}

impl Tally {
    fn add(&mut self, seen: &Seen) {
        self.points += u64::from(self.last.replace(seen.after) != Some(seen.after));
        self.images += 1;
        self.contents.insert(seen.fingerprint);
    }
}

/// A report in the making.
#[derive(Default)]
pub(super) struct Collector {
    all: Tally,
    calls: BTreeMap<u64, Tally>,
    sites: BTreeMap<String, Tally>,
}

impl Collector {
    pub(super) fn add(&mut self, seen: &Seen) {
        self.all.add(seen);
        self.calls.entry(seen.done).or_default().add(seen);
        let site = seen.site.map_or("(the end of a call)".to_string(), |site| site.to_string());
        self.sites.entry(site).or_default().add(seen);
    }

    pub(super) fn report(self, recorded: &Recorded, counts: Counts) -> Report {
        let after = || "after the last call".to_string();
        let calls = self.calls.into_iter().map(|(done, tally)| CallReport {
            call: recorded.calls.get(done as usize).cloned().unwrap_or_else(after),
            points: tally.points,
            images: tally.images,
            distinct: tally.contents.len() as u64,
        });
        let sites = self.sites.into_iter().map(|(site, tally)| SiteReport {
            site,
            points: tally.points,
            images: tally.images,
            distinct: tally.contents.len() as u64,
        });
        Report {
            calls: calls.collect(),
            sites: sites.collect(),
            points: self.all.points,
            images: self.all.images,
            distinct: self.all.contents.len() as u64,
            of_recovery: counts.of_recovery,
            cut: counts.cut,
            without_room: recorded.without_room,
        }
    }
}

impl Recorded {
    /// Explores the run, for as long as `goes_on` says so after each image.
    ///
    /// # Errors
    /// The first image that is not as it must be.
    pub fn explore(
        &self,
        limits: super::Limits,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Report, super::Failure> {
        let mut collector = Collector::default();
        let counts = self.run.explore(limits, &mut |seen| {
            collector.add(seen);
            goes_on()
        })?;
        Ok(collector.report(self, counts))
    }
}
