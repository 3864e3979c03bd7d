//! The built-in runs of an exploration without a script, grouped by kind.

use eyrie_faults::CrashRule;

use super::images::{Counts, Limits};
use super::{
    ParallelScript, RecordError, RunMedium, StartVolume, clones, damage, features, lost_pages, readers,
    redo_slots, resizing, stress_scripts, workload,
};
use crate::script::Script;

/// Size of a volume for scripts that need little room, in bytes.
const TIGHT_BYTES: u64 = 512 << 10;
/// Size of the journal of a volume of [`TIGHT_BYTES`] on a disk, in bytes. A journal of this size starts over
/// after a dozen cuts or so.
const SMALL_JOURNAL: u64 = 152 << 10;
/// Size of the journal for scripts with a cut that does not fit after earlier records, in bytes.
const LARGER_JOURNAL: u64 = 400 << 10;
/// Size of the journal for scripts whose calls change more than the journal holds, in bytes.
const TINY_JOURNAL: u64 = 64 << 10;

/// Kinds whose volumes on disks have checksums of their pages. The list has kinds with small and with large
/// journals, of one thread and of two, and of crashes and of killed processes.
pub(super) const WITH_CHECKSUMS: [&str; 12] = [
    "one call",
    "reuse on a disk",
    "several calls in a cut",
    "a full journal",
    "killed processes, more than the journal",
    "two threads on a disk",
    "growth",
    "batches",
    "clones",
    "closing",
    "killed processes",
    "random calls",
];

/// Runs of one kind.
pub struct RunKind {
    /// Name of the kind.
    pub name: &'static str,
    /// Share of the remaining time, relative to the sum of the shares of this kind and of all later kinds. A
    /// kind with share 0 may use all of the remaining time.
    pub share: u32,
    /// The runs.
    pub work: Work,
}

/// The runs of a kind.
pub enum Work {
    /// Scripts whose crashes are explored.
    Scripts(Scripts),
    /// A check that does not take its scripts from a list.
    Trial(Trial),
}

/// A check that stops when its argument returns false. It returns its counts, or a description of the error.
pub type Trial = Box<dyn FnOnce(&mut dyn FnMut() -> bool) -> Result<Counts, String>>;

/// Scripts. Each runs alone, or side by side with a second script in another thread.
pub type Sequence = Box<dyn Iterator<Item = (Script, Option<ParallelScript>)>>;

/// Scripts that start from the same volume.
pub struct Scripts {
    /// The medium of the volume.
    pub medium: RunMedium,
    /// The script that makes the contents of the volume first.
    pub setup: Option<Script>,
    /// The scripts to explore.
    pub scripts: Sequence,
    /// True if each run closes the volume after its last call.
    pub closes: bool,
    /// True if processes are killed before the power fails. Otherwise the power fails in the first process.
    pub kills: bool,
    /// Maximum numbers of images of a crash that are enumerated and sampled. They lower the limits of the
    /// exploration.
    pub most_images: Option<(u64, u64)>,
}

impl Scripts {
    /// Makes the volume from which the scripts start.
    ///
    /// # Errors
    /// As [`StartVolume::on`] and [`StartVolume::after_script`].
    pub fn start(&self) -> Result<StartVolume, RecordError> {
        let empty = StartVolume::on(self.medium)?;
        self.setup.as_ref().map_or(Ok(empty.clone()), |setup| empty.after_script(setup))
    }

    /// Keeps one of every `count` scripts: the scripts with the numbers `index`, `index + count`, and so on,
    /// counted from 0.
    pub fn keep_part(&mut self, index: usize, count: usize) {
        let all = std::mem::replace(&mut self.scripts, Box::new(std::iter::empty()));
        self.scripts = Box::new(all.skip(index).step_by(count));
    }

    /// Returns `limits`, lowered to the limits of these scripts.
    pub fn limits(&self, limits: Limits) -> Limits {
        let (images, sampled) = self.most_images.unwrap_or((u64::MAX, u64::MAX));
        Limits { images: limits.images.min(images), sampled: limits.sampled.min(sampled), ..limits }
    }
}

fn alone(scripts: impl Iterator<Item = Script> + 'static) -> Sequence {
    Box::new(scripts.map(|script| (script, None)))
}

/// Returns the kinds of runs. Most kinds have volumes of `bytes`, and the others choose their own size. The
/// kinds of three calls, of random calls and of two threads have `samples` scripts each. The kind
/// `killed processes` has twice as many.
pub fn kinds(rule: CrashRule, bytes: u64, samples: usize) -> Vec<RunKind> {
    let medium = RunMedium::of(rule, bytes);
    match rule {
        CrashRule::Lines => of_memory(medium, samples),
        CrashRule::Sectors => of_disks(medium, samples),
    }
}

/// Builds the kinds of one medium.
struct SuiteBuilder {
    medium: RunMedium,
    kinds: Vec<RunKind>,
}

impl SuiteBuilder {
    fn scripts(
        &mut self,
        name: &'static str,
        share: u32,
        setup: Option<Script>,
        scripts: Sequence,
    ) -> &mut Scripts {
        let work =
            Scripts { medium: self.medium, setup, scripts, closes: false, kills: false, most_images: None };
        self.kinds.push(RunKind { name, share, work: Work::Scripts(work) });
        match self.kinds.last_mut() {
            Some(RunKind { work: Work::Scripts(scripts), .. }) => scripts,
            _ => unreachable!("scripts were just added"),
        }
    }

    fn trial(
        &mut self,
        name: &'static str,
        share: u32,
        trial: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<Counts, String> + 'static,
    ) {
        self.kinds.push(RunKind { name, share, work: Work::Trial(Box::new(trial)) });
    }
}

/// Makes a check that starts with an empty volume.
fn on(
    medium: RunMedium,
    trial: impl FnOnce(&StartVolume, &mut dyn FnMut() -> bool) -> Result<Counts, String>,
) -> impl FnOnce(&mut dyn FnMut() -> bool) -> Result<Counts, String> {
    move |should_continue| {
        trial(&StartVolume::on(medium).map_err(|error| error.to_string())?, should_continue)
    }
}

/// Returns scripts for runs that close their volume.
fn closed() -> impl Iterator<Item = Script> {
    let singles = workload::singles();
    let some: Vec<Script> = singles.into_iter().step_by(9).collect();
    some.into_iter().chain((0..4).map(workload::random))
}

/// Returns scripts for runs whose processes are killed.
fn killed(samples: usize) -> impl Iterator<Item = Script> {
    (0..samples as u64).flat_map(|seed| [workload::mixed(seed), workload::random(seed)])
}

fn of_memory(medium: RunMedium, samples: usize) -> Vec<RunKind> {
    let mut all = SuiteBuilder { medium, kinds: Vec::new() };
    let setup = workload::setup;
    let tight_medium = RunMedium::of(CrashRule::Lines, TIGHT_BYTES);
    all.scripts("one call", 0, Some(setup()), alone(workload::singles().into_iter()));
    all.scripts("a full volume", 0, Some(workload::filling()), alone(workload::singles().into_iter()));
    all.scripts("growth", 0, None, alone(workload::growth().into_iter()));
    all.scripts("a wide directory", 0, None, alone([stress_scripts::wide()].into_iter())).most_images =
        Some((12, 4));
    all.scripts("batches", 0, Some(setup()), alone(stress_scripts::batches().into_iter())).most_images =
        Some((200, 16));
    all.scripts("long names", 0, None, alone(stress_scripts::long_names().into_iter())).most_images =
        Some((40, 8));
    all.scripts("features", 0, Some(features::setup()), alone(features::scripts().into_iter()));
    all.scripts("clones", 0, Some(clones::setup()), alone(clones::scripts().into_iter())).closes = true;
    let reuse = all.scripts(
        "reuse",
        0,
        Some(stress_scripts::used_before()),
        alone(stress_scripts::reuse().into_iter()),
    );
    (reuse.medium, reuse.most_images) = (tight_medium, Some((12, 4)));
    all.scripts("closing", 0, Some(setup()), alone(closed())).closes = true;
    all.trial(
        "redo slots",
        0,
        on(medium, |start, should_continue| Ok(redo_slots::explore(start, 12, should_continue)?.0)),
    );
    all.trial("damage", 0, on(tight_medium, damage::explore));
    all.trial("readers", 0, on(medium, readers::explore));
    all.trial("resizing", 0, resizing::explore);
    #[cfg(feature = "mutants")]
    all.trial("write-backs", 0, super::write_backs::explore);
    all.scripts("killed processes", 1, Some(setup()), alone(killed(samples))).kills = true;
    all.scripts("two calls", 1, Some(setup()), alone(workload::pairs()));
    all.scripts("three calls", 1, Some(setup()), alone(workload::triples().take(samples)));
    all.scripts("random calls", 1, None, alone((0..samples as u64).map(workload::random)));
    let both = |beside: fn(u64) -> (Script, ParallelScript)| -> Sequence {
        let numbered = (0..samples as u64).map(beside);
        Box::new(numbered.map(|(script, beside)| (script, Some(beside))))
    };
    all.scripts("two threads", 1, Some(setup()), both(workload::beside));
    all.scripts("two threads in one directory", 1, Some(setup()), both(stress_scripts::beside_moves))
        .most_images = Some((40, 4));
    all.kinds
}

fn of_disks(medium: RunMedium, samples: usize) -> Vec<RunKind> {
    let mut all = SuiteBuilder { medium, kinds: Vec::new() };
    let setup = workload::setup;
    // A crash of a disk may lose all calls since the last sync. So a lost call is an error only if a sync
    // follows the call.
    let synced = |scripts: Vec<Script>| alone(scripts.into_iter().map(|script| workload::synced(&script)));
    let tight_medium =
        RunMedium { journal_bytes: Some(SMALL_JOURNAL), ..RunMedium::of(CrashRule::Sectors, TIGHT_BYTES) };
    all.scripts("one call", 1, Some(setup()), synced(workload::singles()));
    let stress: [(&str, Option<Script>, Vec<Script>); 5] = [
        ("journals that start over", None, stress_scripts::restarts()),
        ("reuse on a disk", Some(stress_scripts::nearly_full()), stress_scripts::reuse_of_disks()),
        ("several syncs", None, stress_scripts::syncs_in_a_row()),
        ("several calls in a cut", None, stress_scripts::several_calls()),
        ("a full journal", Some(stress_scripts::given()), stress_scripts::full_journals()),
    ];
    for (name, setup, scripts) in stress {
        let work = all.scripts(name, 1, setup, alone(scripts.into_iter()));
        (work.medium, work.most_images) = (tight_medium, Some((10, 14)));
        if name == "a full journal" {
            // Each of these calls takes up to half of the journal. Together they make a cut that does not fit
            // after earlier records.
            work.medium = RunMedium { journal_bytes: Some(LARGER_JOURNAL), ..medium };
        }
    }
    let larger = alone(stress_scripts::larger_than_journals().into_iter());
    let larger = all.scripts("more than the journal", 1, Some(stress_scripts::given_and_keys()), larger);
    let tiny_medium = RunMedium { journal_bytes: Some(TINY_JOURNAL), bytes: 2 * medium.bytes, ..medium };
    (larger.medium, larger.most_images) = (tiny_medium, Some((10, 14)));
    let beside = (0..samples as u64).map(stress_scripts::beside_on_disk);
    let beside = all.scripts(
        "two threads on a disk",
        1,
        Some(setup()),
        Box::new(beside.map(|(script, beside)| (script, Some(beside)))),
    );
    (beside.medium, beside.most_images) = (tight_medium, Some((6, 6)));
    all.scripts("a full volume", 1, Some(workload::filling()), synced(workload::singles()));
    all.scripts("growth", 1, None, synced(workload::growth()));
    let names = [stress_scripts::wide()].into_iter().chain(stress_scripts::long_names()).collect();
    all.scripts("long names", 1, None, synced(names)).most_images = Some((4, 4));
    all.scripts("batches", 1, Some(setup()), synced(stress_scripts::batches()));
    all.scripts("clones", 1, Some(clones::setup()), synced(clones::scripts())).closes = true;
    let reuse = all.scripts("reuse", 1, Some(stress_scripts::used_before()), synced(stress_scripts::reuse()));
    (reuse.medium, reuse.most_images) = (tight_medium, Some((4, 4)));
    all.scripts("closing", 1, Some(setup()), synced(closed().collect())).closes = true;
    all.trial("readers", 1, on(medium, readers::explore));
    all.trial("lost pages", 1, lost_pages::explore);
    all.scripts("killed processes", 1, Some(setup()), alone(killed(samples))).kills = true;
    // Every second script, from the first on, has no batch. The other scripts have batches of many keys,
    // which would make each of the many checks long.
    let larger = alone(stress_scripts::larger_than_journals().into_iter().step_by(2));
    let larger =
        all.scripts("killed processes, more than the journal", 1, Some(stress_scripts::given()), larger);
    (larger.medium, larger.kills, larger.most_images) = (tiny_medium, true, Some((4, 4)));
    let synced = |scripts: Sequence| -> Sequence {
        Box::new(scripts.map(|(script, beside)| (workload::synced(&script), beside)))
    };
    all.scripts("two calls", 1, Some(setup()), synced(alone(workload::pairs())));
    all.scripts("three calls", 1, Some(setup()), synced(alone(workload::triples().take(samples))));
    all.scripts("random calls", 1, None, synced(alone((0..samples as u64).map(workload::random))));
    for kind in &mut all.kinds {
        if let Work::Scripts(scripts) = &mut kind.work {
            scripts.medium.checksums = WITH_CHECKSUMS.contains(&kind.name);
        }
    }
    all.kinds
}
