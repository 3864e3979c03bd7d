//! Mutants: one rule of the catalogue of crash safety is broken, and a built-in run must notice that.

use eyrie_faults::CrashRule;
use eyrie_medium::rules::break_rule;
pub use eyrie_medium::rules::{On, SafetyRule, break_rule_of_environment};
use serde::Serialize;

use super::suite::{RunKind, Scripts, Trial, Work, kinds};
use super::{KillLimits, Limits, ParallelScript, RecordOptions, StartVolume, record, record_beside};
use crate::script::Script;

/// The name of a search in which no rule is broken.
pub const NO_RULE: &str = "none";

/// Size of the volumes, in bytes.
const BYTES: u64 = 1 << 20;
/// Maximum number of scripts of one kind.
const SAMPLES: usize = 120;

/// Maximum number of scripts of one kind in a search without a broken rule.
const CONTROL_SAMPLES: usize = 6;

/// The first error that a search found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Caught {
    /// The name of the medium.
    pub medium: &'static str,
    /// The kind of run.
    pub kind: &'static str,
    /// Number of the script, from 1. The number is 0 for an error of a check without a list of scripts, and
    /// for an error while the volume is made.
    pub script: u64,
    /// A description of the error, in one line.
    pub what: String,
}

/// The result of a search with one broken rule, or without one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MutantSearch {
    /// The id of the rule, or [`NO_RULE`] if no rule was broken.
    pub rule: &'static str,
    /// The first error that the search found.
    pub caught: Option<Caught>,
    /// Number of crash images that were opened.
    pub images: u64,
    /// True if the search made all runs, or ended with an error.
    pub complete: bool,
}

fn limits(rule: CrashRule) -> Limits {
    let (images, sampled) = match rule {
        CrashRule::Lines => (300, 16),
        CrashRule::Sectors => (16, 16),
    };
    Limits { images, sampled, is_complete: false, recoveries: 1 }
}

fn medium(rule: CrashRule) -> &'static str {
    match rule {
        CrashRule::Lines => "pmem",
        CrashRule::Sectors => "paged",
    }
}

/// Returns the first nonempty line of a text, joined with the next nonempty line if the first ends with a
/// colon. The result has at most 160 characters.
fn line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let line = if first.ends_with(':') {
        format!("{first} {}", lines.next().unwrap_or_default())
    } else {
        first.into()
    };
    line.chars().take(160).collect()
}

/// Explores one script. Returns a description of the error, or `None`.
fn explore(
    start: &StartVolume,
    (script, beside): &(Script, Option<ParallelScript>),
    (closes, kills): (bool, bool),
    limits: Limits,
    seen: &mut dyn FnMut() -> bool,
) -> Option<String> {
    let options = RecordOptions { closes, dropped: None };
    let recorded = match beside {
        None => record(start, script, options),
        Some(beside) => record_beside(start, script, beside, options),
    };
    match recorded {
        Err(error) => Some(format!("without any crash: {error}")),
        Ok(recorded) if kills => {
            let limits = Limits { images: 8, sampled: 8, ..limits };
            let kills = KillLimits { moments: 4, processes: 2, limits };
            recorded.explore_kills(kills, seen).err().map(|failure| failure.what)
        }
        Ok(recorded) => recorded.run.explore(limits, &mut |_| seen()).err().map(|failure| failure.what),
    }
}

/// A search through the built-in runs.
struct Search<'a> {
    /// Maximum number of scripts of each kind.
    samples: usize,
    medium: &'static str,
    images: u64,
    should_continue: &'a dyn Fn() -> bool,
    complete: bool,
}

impl Search<'_> {
    fn kind(&mut self, kind: RunKind, limits: Limits) -> Option<Caught> {
        let (name, medium) = (kind.name, self.medium);
        let found = match kind.work {
            Work::Scripts(scripts) => self.scripts(scripts, limits),
            Work::Trial(trial) => self.trial(trial).map(|what| (0, what)),
        };
        found.map(|(script, what)| Caught { medium, kind: name, script, what: line(&what) })
    }

    fn trial(&mut self, trial: Trial) -> Option<String> {
        let should_continue = self.should_continue;
        match trial(&mut || should_continue()) {
            Ok(counts) => self.images += counts.images + counts.of_recovery,
            Err(what) => return Some(what),
        }
        self.complete &= should_continue();
        None
    }

    fn scripts(&mut self, mut work: Scripts, limits: Limits) -> Option<(u64, String)> {
        let (limits, should_continue) = (work.limits(limits), self.should_continue);
        let start = match work.start() {
            Ok(start) => start,
            Err(error) => return Some((0, format!("while the volume was made: {error}"))),
        };
        for (run, number) in work.scripts.by_ref().take(self.samples).zip(1..) {
            if !should_continue() {
                break;
            }
            let images = &mut self.images;
            let mut seen = || {
                *images += 1;
                should_continue()
            };
            if let Some(what) = explore(&start, &run, (work.closes, work.kills), limits, &mut seen) {
                return Some((number, what));
            }
        }
        self.complete &= should_continue();
        None
    }
}

/// Breaks a rule in this whole process, and explores the built-in runs on the media to which the rule
/// applies. The kind of run that the catalogue names for this rule comes first. Stops at the first error, or
/// when `should_continue` returns false. A rule of threads or of processes has no run here, so its search
/// finds no error.
pub fn search(rule: SafetyRule, should_continue: &dyn Fn() -> bool) -> MutantSearch {
    let entry = rule.entry();
    break_rule(Some(rule));
    let media: &[CrashRule] = match entry.on {
        On::Memory => &[CrashRule::Lines],
        On::Disk => &[CrashRule::Sectors],
        On::Both => &[CrashRule::Lines, CrashRule::Sectors],
        On::Scheduler | On::ServiceScheduler | On::Services | On::Sessions => &[],
    };
    let mut search = Search { samples: SAMPLES, medium: "", images: 0, should_continue, complete: true };
    let mut found = None;
    for &rule in media {
        search.medium = medium(rule);
        let mut kinds = kinds(rule, BYTES, SAMPLES);
        kinds.sort_by_key(|kind| kind.name != entry.hint);
        found = found.or_else(|| kinds.into_iter().find_map(|kind| search.kind(kind, limits(rule))));
    }
    break_rule(None);
    let Search { images, complete, .. } = search;
    MutantSearch { rule: entry.id, caught: found, images, complete }
}

/// Explores some runs of each kind that the catalogue names for any rule, while no rule is broken. An error
/// that this search finds is not the consequence of a broken rule. Stops at the first error, or when
/// `should_continue` returns false.
pub fn control(should_continue: &dyn Fn() -> bool) -> MutantSearch {
    break_rule(None);
    let mut search =
        Search { samples: CONTROL_SAMPLES, medium: "", images: 0, should_continue, complete: true };
    let mut caught = None;
    for rule in [CrashRule::Lines, CrashRule::Sectors] {
        search.medium = medium(rule);
        let is_named = |kind: &RunKind| SafetyRule::ALL.iter().any(|rule| rule.entry().hint == kind.name);
        let mut named = kinds(rule, BYTES, CONTROL_SAMPLES).into_iter().filter(is_named);
        caught = caught.or_else(|| named.find_map(|kind| search.kind(kind, limits(rule))));
    }
    MutantSearch { rule: NO_RULE, caught, images: search.images, complete: search.complete }
}
