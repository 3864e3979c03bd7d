//! Planted bugs: one point of the engine is left out at a time, and some run must notice.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eyrie_medium::{Plan, Rule, Site, SiteKind};
use eyrie_sim::explore::{self, Failure, Limits, Options, Recorded, Start, workload};
use eyrie_sim::script::Script;

use super::damage::{self, Damage};
use super::{Case, explore_creation};

/// A point that was left out, and what noticed.
#[derive(Debug)]
pub struct Planted {
    /// The point.
    pub site: Site,
    /// Runs that meet it (a count).
    pub runs: usize,
    /// What the first that failed says; `None`: nothing noticed.
    pub caught: Option<String>,
}

/// Cases that are not noticed early are left: what is missed by so many images of a crash is seen in another case.
const LIMITS: Limits = Limits { images: 400, sampled: 0, is_complete: false, recoveries: 0 };
/// Images that tell which points are met after a crash.
const FEW: Limits = Limits { images: 2, ..LIMITS };

/// A script whose process is killed before power fails.
struct Kills {
    start: Start,
    script: Script,
}

impl Kills {
    fn new() -> Kills {
        let start = Start::empty(Rule::Lines, 1 << 20).and_then(|empty| empty.after(&workload::setup()));
        let singles = workload::singles();
        let calls = singles.iter().flat_map(|script| script.lines()).map(|line| line.call.clone());
        Kills { start: start.expect("room"), script: calls.collect() }
    }

    fn explore(&self, dropped: Option<Site>, moments: u64) -> (Recorded, Result<u64, Failure>) {
        let options = Options { closes: false, dropped };
        let recorded = explore::record(&self.start, &self.script, options).expect("as the model");
        let kills = explore::Kills { moments, processes: 1, limits: FEW };
        let explored = recorded.explore_kills(kills, &mut || true);
        (recorded, explored)
    }
}

/// Something that may notice.
enum Trial<'a> {
    Case(&'a Case),
    Kills(Kills),
    Creation,
    Damage(Damage),
}

impl Trial<'_> {
    /// The points that it meets.
    fn points(&self) -> BTreeSet<Site> {
        match self {
            Trial::Case(case) => {
                let run = case.run(None).expect("it works");
                run.explore(FEW, &mut |_| true).unwrap_or_else(|failure| panic!("{case}: {failure}"));
                run.plan.points().into_keys().collect()
            }
            Trial::Kills(kills) => {
                let (recorded, explored) = kills.explore(None, 2);
                explored.unwrap_or_else(|failure| panic!("{failure}"));
                recorded.points().into_keys().collect()
            }
            Trial::Creation => explore_creation(None, FEW).expect("it works").1,
            Trial::Damage(damage) => {
                let plan = Plan::default();
                damage.explore(&plan).expect("it is refused or mended");
                plan.points().into_keys().collect()
            }
        }
    }

    /// Whether it may notice that points of this kind are missing: nothing but damage tells of checksums.
    fn tells_of(&self, kind: SiteKind) -> bool {
        matches!(self, Trial::Damage(_)) == (kind == SiteKind::Checksum)
    }

    /// What is noticed without `site`, if something is.
    fn without(&self, site: Site) -> Option<String> {
        let tried = catch_unwind(AssertUnwindSafe(|| match self {
            Trial::Case(case) => case.explore(Some(site), LIMITS).err().map(|failure| failure.to_string()),
            Trial::Kills(kills) => kills.explore(Some(site), 40).1.err().map(|failure| failure.to_string()),
            Trial::Creation => explore_creation(Some(site), LIMITS).err().map(|failure| failure.to_string()),
            Trial::Damage(damage) => damage.explore(&Plan::without(Some(site))).err(),
        }));
        tried.unwrap_or_else(|_| Some("a panic".to_string()))
    }
}

/// Leaves out each point that any of `cases`, the creation of a volume, or one with damaged bytes, meets.
///
/// # Panics
/// If a case fails with all its points.
pub fn plant(cases: &[Case]) -> Vec<Planted> {
    let damages = damage::all().into_iter().map(Trial::Damage);
    let trials =
        cases.iter().map(Trial::Case).chain([Trial::Kills(Kills::new()), Trial::Creation]).chain(damages);
    let trials: Vec<_> = trials.map(|trial| (trial.points(), trial)).collect();
    let all: BTreeSet<Site> = trials.iter().flat_map(|(points, _)| points).copied().collect();
    all.into_iter()
        .map(|site| {
            let with_it = || trials.iter().filter(|(points, _)| points.contains(&site));
            let tells = with_it().filter(|(_, trial)| trial.tells_of(site.kind));
            let caught = tells.map(|(_, trial)| trial).find_map(|trial| trial.without(site));
            Planted { site, runs: with_it().count(), caught }
        })
        .collect()
}
