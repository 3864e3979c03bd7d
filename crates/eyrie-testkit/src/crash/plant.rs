//! Plants bugs in the engine: leaves out one point at a time. Some run must notice each missing point.

use std::collections::BTreeSet;

use eyrie_faults::{CrashRule, FaultPlan, Site};
use eyrie_medium::SiteKind;
use eyrie_sim::explore::{self, CrashFailure, Limits, RecordOptions, Recorded, StartVolume, workload};
use eyrie_sim::script::Script;

use super::damage::{self, ChecksumDamage};
use super::{Case, explore_creation};
use crate::planted::{Planted, plant_each};

/// Limits for runs of cases, and of the creation of a volume, while one point is left out. If none of the
/// first 400 images of a crash is wrong, further images of this crash are hardly ever wrong. So a run opens
/// no more of them, and another run must notice the missing point.
const LIMITS: Limits = Limits { images: 400, sampled: 0, is_complete: false, recoveries: 0 };
/// Limits for killed scripts, and for the runs that only collect the points that they meet. The first image
/// of a crash loses all pending stores, so it shows a recovery that relied on a store that was not durable.
/// The second image keeps a store of the last line that recovery reads. The run with all points has two
/// kills, which are enough to meet the points. A run without a point has 40 kills, so it stays short.
const FEW_IMAGES: Limits = Limits { images: 2, ..LIMITS };

/// A script whose process is killed before power fails.
struct KilledScript {
    start: StartVolume,
    script: Script,
}

impl KilledScript {
    fn new() -> KilledScript {
        let start = StartVolume::empty(CrashRule::Lines, 1 << 20)
            .and_then(|empty| empty.after_script(&workload::setup()));
        let singles = workload::singles();
        let calls = singles.iter().flat_map(|script| script.lines()).map(|line| line.call.clone());
        KilledScript { start: start.expect("room"), script: calls.collect() }
    }

    /// Runs the script once without the point `dropped`. Then explores up to `moments` kills of this run,
    /// each on its own: a second process opens the volume, and power fails at each crash point of this
    /// process. Returns the run, and the number of opened images or the first failure.
    fn explore(&self, dropped: Option<Site>, moments: u64) -> (Recorded, Result<u64, CrashFailure>) {
        let options = RecordOptions { closes: false, dropped };
        let recorded = explore::record(&self.start, &self.script, options).expect("the results of the model");
        let kills = explore::KillLimits { moments, processes: 1, limits: FEW_IMAGES };
        let explored = recorded.explore_kills(kills, &mut || true);
        (recorded, explored)
    }
}

/// A run of the engine that may notice a missing point.
enum PlantTrial<'a> {
    Case(&'a Case),
    Kills(KilledScript),
    Creation,
    Damage(ChecksumDamage),
}

impl PlantTrial<'_> {
    /// Returns the points that the run meets.
    fn points(&self) -> BTreeSet<Site> {
        match self {
            PlantTrial::Case(case) => {
                let run = case.run(None).expect("it works");
                run.explore(FEW_IMAGES, &mut |_| true).unwrap_or_else(|failure| panic!("{case}: {failure}"));
                run.plan.points().into_keys().collect()
            }
            PlantTrial::Kills(kills) => {
                let (recorded, explored) = kills.explore(None, 2);
                explored.unwrap_or_else(|failure| panic!("{failure}"));
                recorded.points().into_keys().collect()
            }
            PlantTrial::Creation => explore_creation(None, FEW_IMAGES).expect("it works").1,
            PlantTrial::Damage(damage) => {
                let plan = FaultPlan::default();
                damage.explore(&plan).expect("the open fails, or finds the same contents");
                plan.points().into_keys().collect()
            }
        }
    }

    /// True if the run is tried without a point of this kind. Only runs with damage can notice a missing
    /// checksum, and they are tried for no other kind.
    fn is_for(&self, kind: SiteKind) -> bool {
        matches!(self, PlantTrial::Damage(_)) == (kind == SiteKind::Checksum)
    }

    /// Runs without the point `site`. Returns a description of the error, if the run noticed one.
    fn without(&self, site: Site) -> Option<String> {
        match self {
            PlantTrial::Case(case) => {
                case.explore(Some(site), LIMITS).err().map(|failure| failure.to_string())
            }
            PlantTrial::Kills(kills) => {
                kills.explore(Some(site), 40).1.err().map(|failure| failure.to_string())
            }
            PlantTrial::Creation => {
                explore_creation(Some(site), LIMITS).err().map(|failure| failure.to_string())
            }
            PlantTrial::Damage(damage) => damage.explore(&FaultPlan::without(Some(site))).err(),
        }
    }
}

/// Leaves out each point that a run meets, one at a time. For each missing point, tries the runs that meet
/// the point until one of them fails. The runs are the `cases`, a killed script, the creation of a volume,
/// and the opening of volumes with damaged bytes. Returns the result for each point.
///
/// # Panics
/// Panics if a run fails while no point is left out.
pub fn plant(cases: &[Case]) -> Vec<Planted> {
    let damages = damage::all().into_iter().map(PlantTrial::Damage);
    let others = [PlantTrial::Kills(KilledScript::new()), PlantTrial::Creation];
    let trials = cases.iter().map(PlantTrial::Case).chain(others).chain(damages);
    let trials: Vec<_> = trials.map(|trial| (trial.points(), trial)).collect();
    plant_each(&trials, |trial, site| trial.is_for(site.kind).then(|| trial.without(site)).flatten())
}
