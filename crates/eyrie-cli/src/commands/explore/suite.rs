//! Explores the built-in scripts, if the user names no script.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use eyrie_sim::explore::suite::{RunKind, Scripts, Trial, Work, kinds};
use eyrie_sim::explore::{self, ExploreReport, ParallelScript, RecordOptions, SiteReport};
use eyrie_sim::script::Script;
use serde_json::{Value, json};

use super::arguments::ExploreArgs;
use super::bounds::{DEFAULT_TIME, Deadline, image_limits, kill_limits};
use super::reproduce::{flags, replay_hint};
use super::runs::{check_size, record_run};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;

/// Number of scripts of some kinds in an exhaustive exploration: "three calls", "random calls" and each kind
/// with two threads. The kind "killed processes" has twice as many.
const SAMPLES: usize = 1000;

/// Makes the message about a failure of a script, with the scripts and the command that repeat it.
fn wrong(
    name: &str,
    work: &Scripts,
    arguments: &ExploreArgs,
    (script, beside): &(Script, Option<ParallelScript>),
    failure: &explore::CrashFailure,
) -> Failure {
    let mut text = format!("a crash leaves a wrong volume: {name}: {}\n", failure.what);
    let mut command = "eyrie explore".to_string();
    if let Some(setup) = &work.setup {
        // Writing to a string cannot fail.
        let _ = write!(text, "save this script as start.txt:\n{setup}");
        command.push_str(" --start start.txt");
    }
    let _ = write!(text, "save this script as calls.txt:\n{script}");
    command.push_str(" --script calls.txt");
    if let Some(ParallelScript { script, seed }) = beside {
        let _ = write!(text, "save this script as others.txt:\n{script}");
        let _ = write!(command, " --beside others.txt --seed {seed}");
    }
    command.push_str(&flags(arguments, work.medium, arguments.close || work.closes));
    text.push_str(&replay_hint(&command, failure));
    Failure::of_text(text)
}

/// The results of one kind of script. The counts have the names and meanings of those in [`ExploreReport`],
/// and are sums over all scripts. But `distinct` counts only images that no earlier script or kind had.
#[derive(Default)]
struct KindResults {
    name: &'static str,
    scripts: u64,
    points: u64,
    images: u64,
    distinct: u64,
    of_recovery: u64,
    after_kills: u64,
    without_room: u64,
    seconds: f64,
    complete: bool,
    sites: BTreeMap<(&'static str, String), SiteReport>,
}

impl KindResults {
    /// Explores one kind until the deadline. `contents` has a hash of each image so far, to count the images
    /// that are new. Runs with kills, and checks without a list of scripts (trials), add no hash.
    fn run(
        kind: RunKind,
        arguments: &ExploreArgs,
        deadline: &Deadline,
        contents: &mut HashSet<u64>,
    ) -> Result<KindResults> {
        let began = Instant::now();
        let mut results = KindResults { name: kind.name, complete: true, ..KindResults::default() };
        match kind.work {
            Work::Scripts(scripts) => results.scripts(scripts, arguments, deadline, contents)?,
            Work::Trial(trial) => results.trial(trial, deadline)?,
        }
        results.seconds = began.elapsed().as_secs_f64();
        Ok(results)
    }

    fn scripts(
        &mut self,
        mut work: Scripts,
        arguments: &ExploreArgs,
        deadline: &Deadline,
        contents: &mut HashSet<u64>,
    ) -> Result<()> {
        let start = work
            .start()
            .map_err(|error| Failure::new("cannot make the volume to start from", self.name, error))?;
        let options = RecordOptions { closes: arguments.close || work.closes, dropped: None };
        let limits = image_limits(arguments);
        let limits = if arguments.images.is_some() { limits } else { work.limits(limits) };
        if let Some(part) = arguments.part {
            work.keep_part(part.index, part.count);
        }
        while let Some(run) = work.scripts.next() {
            if !deadline.goes_on() {
                self.complete = false;
                break;
            }
            let (script, beside) = &run;
            let recorded = record_run(&start, script, beside.as_ref(), options).map_err(|error| {
                let what = "the volume is wrong even without a crash";
                let beside = beside.as_ref().map_or(String::new(), |beside| {
                    format!("beside this script, with the seed {}:\n{}", beside.seed, beside.script)
                });
                Failure::new(what, self.name, format_args!("{error}\n{script}{beside}"))
            })?;
            if work.kills {
                let images = recorded.explore_kills(kill_limits(arguments), &mut || deadline.goes_on());
                self.after_kills +=
                    images.map_err(|failure| wrong(self.name, &work, arguments, &run, &failure))?;
                self.scripts += 1;
            } else {
                let found = recorded.explore(limits, &mut |seen| {
                    self.distinct += u64::from(contents.insert(seen.fingerprint));
                    deadline.goes_on()
                });
                self.add(found.map_err(|failure| wrong(self.name, &work, arguments, &run, &failure))?);
            }
            self.complete &= deadline.goes_on();
        }
        Ok(())
    }

    fn trial(&mut self, trial: Trial, deadline: &Deadline) -> Result<()> {
        let found = trial(&mut || deadline.goes_on());
        let counts = found.map_err(|what| Failure::new("a built-in check failed", self.name, what))?;
        (self.points, self.images, self.of_recovery) = (counts.points, counts.images, counts.of_recovery);
        self.complete &= deadline.goes_on();
        Ok(())
    }

    fn add(&mut self, report: ExploreReport) {
        self.scripts += 1;
        self.points += report.points;
        self.images += report.images;
        self.of_recovery += report.of_recovery;
        self.without_room += report.without_room;
        self.complete &= report.limited == 0;
        for site in report.sites {
            self.sites.entry((site.kind, site.site.clone())).or_default().add(site);
        }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "scripts": self.scripts,
            "points": self.points,
            "images": self.images,
            "distinct": self.distinct,
            "of_recovery": self.of_recovery,
            "after_kills": self.after_kills,
            "without_room": self.without_room,
            "seconds": self.seconds,
            "complete": self.complete,
            "sites": self.sites.values().collect::<Vec<_>>(),
        })
    }

    fn line(&self) -> String {
        let complete = if self.complete { "complete" } else { "incomplete" };
        let KindResults {
            name, scripts, points, images, distinct, of_recovery, after_kills, seconds, ..
        } = self;
        if *after_kills > 0 {
            return format!("{name}: {scripts} scripts ({complete}), {after_kills} images, {seconds:.1} s");
        }
        format!(
            "{name}: {scripts} scripts ({complete}), {points} crashes, {images} images, \
             {distinct} of them new; {of_recovery} images of crashes inside recovery; {seconds:.1} s"
        )
    }
}

/// Explores built-in scripts.
pub(super) fn explore(arguments: &ExploreArgs, output: &mut Output) -> Result<()> {
    if let Some(place) = &arguments.without {
        return Err(Failure::usage("cannot leave out a point", place, "name a script with --script"));
    }
    let end = Deadline::after((!arguments.exhaustive).then(|| arguments.time.unwrap_or(DEFAULT_TIME))).0;
    check_size(arguments.size)?;
    // Without `--exhaustive` the deadline ends each kind, so the number of scripts needs no limit.
    let samples = if arguments.exhaustive { SAMPLES } else { usize::MAX };
    let mut kinds = kinds(arguments.medium.rule(), arguments.size, samples);
    // A run of two threads ignores `--close`, so `--close` leaves out the kinds with two threads.
    kinds.retain(|kind| !(arguments.close && kind.name.starts_with("two threads")));
    let mut shares: u32 = kinds.iter().map(|kind| kind.share).sum();
    let (mut found, mut contents) = (Vec::new(), HashSet::new());
    for kind in kinds {
        let deadline = Deadline(end.map(|end| part(end, kind.share, shares)));
        shares -= kind.share;
        let results = KindResults::run(kind, arguments, &deadline, &mut contents)?;
        interrupt::check("explore")?;
        if !arguments.json {
            writeln!(output, "{}", results.line())?;
            output.flush()?;
        }
        found.push(results);
    }
    let sum = |of: fn(&KindResults) -> u64| found.iter().map(of).sum::<u64>();
    let (images, distinct) = (sum(|results| results.images), sum(|results| results.distinct));
    let of_recovery = sum(|results| results.of_recovery);
    let after_kills = sum(|results| results.after_kills);
    let complete = found.iter().all(|results| results.complete);
    if arguments.json {
        return output.json(&json!({
            "medium": arguments.medium.name(),
            "images": images,
            "distinct": distinct,
            "of_recovery": of_recovery,
            "after_kills": after_kills,
            "complete": complete,
            "workloads": found.iter().map(KindResults::json).collect::<Vec<_>>(),
        }));
    }
    Ok(writeln!(
        output,
        "{images} images, {distinct} of them distinct; {of_recovery} images of crashes inside recovery; \
         {after_kills} images of crashes after kills: in each image every call is whole or undone"
    )?)
}

/// Returns the deadline of a kind. The kind gets `share / shares` of the time until `end`. `shares` is the
/// sum of the shares of this kind and the later kinds. A kind with the share 0 has little work, so it may use
/// all the time that is left.
fn part(end: Instant, share: u32, shares: u32) -> Instant {
    if share == 0 {
        return end;
    }
    Instant::now() + end.saturating_duration_since(Instant::now()) * share / shares
}
