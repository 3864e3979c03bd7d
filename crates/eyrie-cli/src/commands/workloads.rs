//! What `explore` explores when nobody names a script.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use eyrie_sim::explore::{Beside, Failure as Crash, Options, Report, Rule, SiteReport, Start, workload};
use eyrie_sim::script::Script;
use serde_json::{Value, json};

use super::explore::{Deadline, flags, kills as killed, limits, recorded, replay_line, start};
use crate::arguments;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{interrupt, text};

/// How long built-in scripts are explored that nobody gave a time.
pub(super) const TIME: Duration = Duration::from_secs(60);
/// Scripts of three calls, and of random ones, in an exhaustive exploration (a count of each).
const SAMPLES: usize = 1000;

/// Built-in scripts of one kind.
struct Kind<'a> {
    name: &'static str,
    /// What made the volume that they start from, where that is not empty.
    setup: Option<&'a Script>,
    start: &'a Start,
    scripts: Box<dyn Iterator<Item = (Script, Option<Beside>)>>,
    /// How many parts of the time that is left, beside those of the kinds after it: 0 for those that are few.
    share: u32,
    /// True if processes are killed before power fails, instead of power failing at once.
    kills: bool,
}

/// Tells of a crash that left something else, with all that is needed to see it again.
fn lost(
    name: &str,
    setup: Option<&Script>,
    arguments: &arguments::Explore,
    (script, beside): &(Script, Option<Beside>),
    crash: &Crash,
) -> Failure {
    let mut text = format!("a crash leaves something else: {name}: {}\n", crash.what);
    let mut command = "eyrie explore".to_string();
    if let Some(setup) = setup {
        // Writing to a string cannot fail.
        let _ = write!(text, "with this script in start.txt:\n{setup}");
        command.push_str(" --start start.txt");
    }
    let _ = write!(text, "with this script in calls.txt:\n{script}");
    command.push_str(" --script calls.txt");
    if let Some(Beside { script, seed }) = beside {
        let _ = write!(text, "with this script in others.txt:\n{script}");
        let _ = write!(command, " --beside others.txt --seed {seed}");
    }
    command.push_str(&flags(arguments));
    text.push_str(&replay_line(&command, crash));
    Failure::of_line(text)
}

/// What was explored of one kind of script.
#[derive(Default)]
struct Workload {
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

impl Workload {
    /// Explores scripts until the deadline. `contents` are what images had so far, of all scripts.
    fn run(
        kind: Kind<'_>,
        arguments: &arguments::Explore,
        deadline: &Deadline,
        contents: &mut HashSet<u64>,
    ) -> Result<Workload> {
        let Kind { name, setup, start, scripts, kills, .. } = kind;
        let began = Instant::now();
        let mut workload = Workload { name, complete: true, ..Workload::default() };
        for (script, beside) in scripts {
            if !deadline.goes_on() {
                workload.complete = false;
                break;
            }
            // What is in memory only is lost as a whole: more is to be seen where some of it is not.
            let script = match arguments.medium.rule() {
                Rule::Lines => script,
                Rule::Sectors => workload::synced(&script),
            };
            let options = Options { closes: arguments.close, dropped: None };
            let recorded = recorded(start, &script, beside.as_ref(), options).map_err(|error| {
                let what = "the volume is not as it should be, without any crash";
                let beside = beside.as_ref().map_or(String::new(), |beside| {
                    format!("beside, with the seed {},\n{}", beside.seed, beside.script)
                });
                Failure::new(what, name, format_args!("{error}\n{script}{beside}"))
            })?;
            let run = (script, beside);
            let lost = |crash: Crash| lost(name, setup, arguments, &run, &crash);
            if kills {
                let images = recorded.explore_kills(killed(arguments), &mut || deadline.goes_on());
                workload.after_kills += images.map_err(lost)?;
                workload.scripts += 1;
            } else {
                let found = recorded.explore(limits(arguments), &mut |seen| {
                    workload.distinct += u64::from(contents.insert(seen.fingerprint));
                    deadline.goes_on()
                });
                workload.add(found.map_err(lost)?);
            }
            workload.complete &= deadline.goes_on();
        }
        workload.seconds = began.elapsed().as_secs_f64();
        Ok(workload)
    }

    fn add(&mut self, report: Report) {
        self.scripts += 1;
        self.points += report.points;
        self.images += report.images;
        self.of_recovery += report.of_recovery;
        self.without_room += report.without_room;
        self.complete &= report.cut == 0;
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
        let complete = if self.complete { "all" } else { "not all" };
        let Workload { name, scripts, points, images, distinct, of_recovery, after_kills, seconds, .. } =
            self;
        if *after_kills > 0 {
            return format!("{name}: {scripts} scripts ({complete}), {after_kills} images, {seconds:.1} s");
        }
        format!(
            "{name}: {scripts} scripts ({complete}), {points} crashes, {images} images, {distinct} of them new, {of_recovery} of crashes inside recovery, {seconds:.1} s"
        )
    }
}

/// Scripts of one thread.
fn alone(
    scripts: impl Iterator<Item = Script> + 'static,
) -> Box<dyn Iterator<Item = (Script, Option<Beside>)>> {
    Box::new(scripts.map(|script| (script, None)))
}

fn made(name: &str, start: &Start, setup: &Script) -> Result<Start> {
    start.after(setup).map_err(|error| Failure::new("no volume to start from", name, error))
}

/// Explores built-in scripts.
pub(super) fn explore(arguments: &arguments::Explore, output: &mut Output) -> Result<()> {
    if let Some(place) = &arguments.without {
        return Err(Failure::usage("cannot leave out a point", place, "name a script with --script"));
    }
    let end = Deadline::after((!arguments.exhaustive).then(|| arguments.time.unwrap_or(TIME))).0;
    let size = text::size(arguments.size);
    let empty = start(arguments.medium.rule(), arguments.size)?;
    let (setup, filling) = (workload::setup(), workload::filling());
    let (few, full) = (made(&size, &empty, &setup)?, made(&size, &empty, &filling)?);
    let samples = if arguments.exhaustive { SAMPLES } else { usize::MAX };
    let kind = |name, setup, start, share, scripts| Kind { name, setup, start, scripts, share, kills: false };
    let killed = (0..samples as u64).flat_map(|seed| [workload::random(seed), workload::mixed(seed)]);
    let mut kinds = vec![
        kind("one call", Some(&setup), &few, 0, alone(workload::singles().into_iter())),
        kind("a full volume", Some(&filling), &full, 0, alone(workload::singles().into_iter())),
        kind("growth", None, &empty, 0, alone(workload::growth().into_iter())),
        kind("two calls", Some(&setup), &few, 1, alone(workload::pairs())),
        kind("three calls", Some(&setup), &few, 1, alone(workload::triples().take(samples))),
        kind("random calls", None, &empty, 1, alone((0..samples as u64).map(workload::random))),
        Kind { kills: true, ..kind("killed processes", Some(&setup), &few, 1, alone(killed)) },
    ];
    if arguments.medium.rule() == Rule::Lines && !arguments.close {
        let scripts =
            (0..samples as u64).map(workload::beside).map(|(script, beside)| (script, Some(beside)));
        kinds.push(kind("two threads", Some(&setup), &few, 1, Box::new(scripts)));
    }
    let mut shares: u32 = kinds.iter().map(|kind| kind.share).sum();
    let (mut found, mut contents) = (Vec::new(), HashSet::new());
    for kind in kinds {
        let deadline = Deadline(end.map(|end| part(end, kind.share, shares)));
        shares -= kind.share;
        let workload = Workload::run(kind, arguments, &deadline, &mut contents)?;
        interrupt::check("explore")?;
        if !arguments.json {
            writeln!(output, "{}", workload.line())?;
            output.flush()?;
        }
        found.push(workload);
    }
    let sum = |of: fn(&Workload) -> u64| found.iter().map(of).sum::<u64>();
    let (images, distinct) = (sum(|workload| workload.images), sum(|workload| workload.distinct));
    let of_recovery = sum(|workload| workload.of_recovery);
    let after_kills = sum(|workload| workload.after_kills);
    let complete = found.iter().all(|workload| workload.complete);
    if arguments.json {
        return output.json(&json!({
            "medium": arguments.medium.name(),
            "images": images,
            "distinct": distinct,
            "of_recovery": of_recovery,
            "after_kills": after_kills,
            "complete": complete,
            "workloads": found.iter().map(Workload::json).collect::<Vec<_>>(),
        }));
    }
    Ok(writeln!(
        output,
        "{images} images, {distinct} of them different, {of_recovery} of crashes inside recovery, {after_kills} of crashes after kills: every call is whole or undone in each"
    )?)
}

/// Where a kind ends that has `share` of the `shares` that are left until `end`; the few may take all.
fn part(end: Instant, share: u32, shares: u32) -> Instant {
    if share == 0 {
        return end;
    }
    Instant::now() + end.saturating_duration_since(Instant::now()) * share / shares
}
