//! `explore`, `trace` and `replay`.

mod faults;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use eyrie_sim::explore::trace::{self, Trace};
use eyrie_sim::explore::{Failure as Crash, Limits, Options, Report, Site, Start, record, shrink, workload};
use eyrie_sim::script::Script;
use serde_json::{Value, json};

use super::script::read;
use crate::arguments;
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{interrupt, tell, text};

/// How long built-in scripts are explored that nobody gave a time.
const TIME: Duration = Duration::from_secs(60);
/// Random scripts in an exhaustive exploration (a count).
const RANDOM_SCRIPTS: u64 = 1000;

fn parsed(path: &Path) -> Result<(String, Script)> {
    let (name, text) = read(path)?;
    let script = Script::parse(&name, &text).map_err(|error| Failure::of_line(error).with_status(2))?;
    Ok((name, script))
}

fn start(bytes: u64) -> Result<Start> {
    if bytes > trace::MOST_BYTES {
        return Err(Failure::usage("no volume", text::size(bytes), "at most 1 GiB is explored"));
    }
    Start::empty(bytes).map_err(|error| Failure::new("no volume", text::size(bytes), error))
}

/// Explores crashes.
pub fn explore(arguments: &arguments::Explore, output: &mut Output) -> Result<()> {
    interrupt::watch();
    match &arguments.script {
        _ if arguments.faults || arguments.fault.is_some() => faults::explore(arguments, output),
        Some(script) => explore_script(arguments, script, output),
        None => explore_workloads(arguments, output),
    }
}

fn limits(arguments: &arguments::Explore) -> Limits {
    Limits { images: arguments.images, is_complete: false, recoveries: arguments.recoveries }
}

/// When to stop.
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(time: Option<Duration>) -> Deadline {
        Deadline(time.and_then(|time| Instant::now().checked_add(time)))
    }

    fn goes_on(&self) -> bool {
        !interrupt::requested() && self.0.is_none_or(|end| Instant::now() < end)
    }
}

/// Whether `site` is the point that `word` tells: a file, or the end of its path, and a line; perhaps its kind before.
fn is_told(site: &Site, word: &str) -> bool {
    match word.split_once(' ') {
        Some((kind, place)) => site.kind.name() == kind && site.place().ends_with(place),
        None => site.place().ends_with(word),
    }
}

/// The options of a run, when a point is to be left out that it has.
fn options(arguments: &arguments::Explore, start: &Start, script: &Script) -> Result<Options> {
    let options = Options { closes: arguments.close, dropped: None };
    let Some(place) = &arguments.without else { return Ok(options) };
    let recorded = record(start, script, options).map_err(Failure::of_line)?;
    // Some points are met only by recoveries.
    let few = Limits { images: 4, is_complete: false, recoveries: 0 };
    recorded.explore(few, &mut || true).map_err(Failure::of_line)?;
    let mut found = recorded.points().into_keys().filter(|site| is_told(site, place));
    match (found.next(), found.next()) {
        (Some(site), None) => Ok(Options { dropped: Some(site), ..options }),
        (None, _) => Err(Failure::usage(
            "no such point",
            place,
            "the script has none there; the report lists its points",
        )),
        (Some(_), Some(_)) => Err(Failure::usage(
            "several points",
            place,
            "write more of the path, or the kind before it, such as 'fence src/redo.rs:98'",
        )),
    }
}

/// The volume that the script starts from.
fn started(arguments: &arguments::Explore) -> Result<Start> {
    let start = start(arguments.size)?;
    let Some(path) = &arguments.start else { return Ok(start) };
    let (name, script) = parsed(path)?;
    start.after(&script).map_err(|error| Failure::new("no volume to start from", name, error))
}

fn explore_script(arguments: &arguments::Explore, path: &Path, output: &mut Output) -> Result<()> {
    let (name, script) = parsed(path)?;
    let start = started(arguments)?;
    let options = options(arguments, &start, &script)?;
    let differs = |error| Failure::new("the volume is not as it should be, without any crash", &name, error);
    let recorded = record(&start, &script, options).map_err(differs)?;
    if let Some(image) = &arguments.replay {
        let found = recorded.run.replay(image.after, &image.picks, image.again.as_ref());
        return match found.map_err(|error| Failure::usage("no such image", &name, error))? {
            None => Ok(writeln!(output, "as it should be")?),
            Some(what) => Err(Failure::new("a crash leaves something else", &name, what)),
        };
    }
    let deadline = Deadline::after(arguments.time);
    let limits = limits(arguments);
    let report = recorded.explore(limits, &mut || deadline.goes_on()).map_err(|crash| {
        let shown = |path: &Path| shlex::try_quote(&path.to_string_lossy()).map_or(name.clone(), Into::into);
        let from = arguments.start.as_ref().map_or(String::new(), |path| format!(" --start {}", shown(path)));
        let command = format!("eyrie explore{from} --script {}{}", shown(path), flags(arguments));
        tell(&format!(
            "a crash leaves something else: {name}: {}\n{}",
            crash.what,
            replay_line(&command, &crash)
        ));
        if let Some((script, _)) = shrink(&start, &script, options, limits, &|| !interrupt::requested()) {
            tell(&format!("a shorter script that fails:\n{}", script.to_string().trim_end()));
        }
        Failure::silent(1)
    })?;
    interrupt::check("explore")?;
    let complete = deadline.goes_on() && report.cut == 0;
    if arguments.json {
        let mut value = json!(report);
        value["complete"] = json!(complete);
        return output.json(&value);
    }
    write!(output, "{}", table(&report))?;
    let end = match complete {
        true => "every call is whole or undone in each",
        false => "not all images were opened; in those every call is whole or undone",
    };
    let crashes = text::counted(report.points, "crash", "crashes");
    let images = text::counted(report.images, "image", "images");
    let of_recovery = text::counted(report.of_recovery, "image", "images");
    Ok(writeln!(
        output,
        "{crashes}, {images}, {} of them different; {of_recovery} of crashes inside recovery: {end}",
        report.distinct
    )?)
}

/// The flags that make the same run.
fn flags(arguments: &arguments::Explore) -> String {
    let mut flags = format!(" --size {}", arguments.size);
    if arguments.close {
        flags.push_str(" --close");
    }
    if let Some(place) = &arguments.without {
        // Writing to a string cannot fail.
        let quoted = shlex::try_quote(place).map_or(place.clone(), Into::into);
        let _ = write!(flags, " --without {quoted}");
    }
    flags
}

/// How one image is opened again.
fn replay_line(command: &str, crash: &Crash) -> String {
    let picks = |picks: &[usize]| picks.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut line = format!("replay it with: {command} --replay {}:{}", crash.after, picks(&crash.picks));
    if let Some(again) = &crash.again {
        // Writing to a string cannot fail.
        let _ = write!(line, "/{}:{}", again.after, picks(&again.picks));
    }
    line
}

fn table(report: &Report) -> String {
    let mut table = String::new();
    let mut rows = |title: &str, rows: &mut dyn Iterator<Item = (&str, u64, u64, u64)>| {
        let _ = writeln!(table, "{:>8} {:>8} {:>9}  {title}", "CRASHES", "IMAGES", "DIFFERENT");
        for (what, points, images, distinct) in rows {
            let _ = writeln!(table, "{points:>8} {images:>8} {distinct:>9}  {what}");
        }
    };
    let calls = report.calls.iter().map(|call| (&call.call[..], call.points, call.images, call.distinct));
    rows("IN THE CALL", &mut { calls });
    let crashed = report.sites.iter().filter(|site| site.points > 0);
    let sites = crashed.map(|site| (&site.site[..], site.points, site.images, site.distinct));
    rows("BEFORE THE FENCE", &mut { sites });
    let _ = writeln!(table, "{:>8}  POINT", "MET");
    for site in report.sites.iter().filter(|site| site.kind != "mark") {
        let _ = writeln!(table, "{:>8}  {} {}", site.met, site.kind, site.site);
    }
    table
}

/// Built-in scripts of one kind.
struct Kind<'a> {
    name: &'static str,
    /// What made the volume that they start from, where that is not empty.
    setup: Option<&'a Script>,
    start: &'a Start,
}

impl Kind<'_> {
    /// Tells of a crash that left something else, with all that is needed to see it again.
    fn lost(&self, arguments: &arguments::Explore, script: &Script, crash: &Crash) -> Failure {
        let mut text = format!("a crash leaves something else: {}: {}\n", self.name, crash.what);
        let mut command = "eyrie explore".to_string();
        if let Some(setup) = self.setup {
            // Writing to a string cannot fail.
            let _ = write!(text, "with this script in start.txt:\n{setup}");
            command.push_str(" --start start.txt");
        }
        let _ = write!(text, "with this script in calls.txt:\n{script}");
        let _ = write!(command, " --script calls.txt{}", flags(arguments));
        text.push_str(&replay_line(&command, crash));
        Failure::of_line(text)
    }
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
    without_room: u64,
    seconds: f64,
    complete: bool,
}

impl Workload {
    fn run(
        kind: &Kind<'_>,
        arguments: &arguments::Explore,
        scripts: impl Iterator<Item = Script>,
        deadline: &Deadline,
    ) -> Result<Workload> {
        let Kind { name, start, .. } = *kind;
        let began = Instant::now();
        let mut workload = Workload { name, complete: true, ..Workload::default() };
        let limits = limits(arguments);
        for script in scripts {
            if !deadline.goes_on() {
                workload.complete = false;
                break;
            }
            let options = Options { closes: arguments.close, dropped: None };
            let recorded = record(start, &script, options).map_err(|error| {
                let what = "the volume is not as it should be, without any crash";
                Failure::new(what, name, format_args!("{error}\n{script}"))
            })?;
            let found = recorded.explore(limits, &mut || !interrupt::requested());
            let report = found.map_err(|crash| kind.lost(arguments, &script, &crash))?;
            workload.scripts += 1;
            workload.points += report.points;
            workload.images += report.images;
            workload.distinct += report.distinct;
            workload.of_recovery += report.of_recovery;
            workload.without_room += report.without_room;
            workload.complete &= report.cut == 0;
        }
        workload.seconds = began.elapsed().as_secs_f64();
        Ok(workload)
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "scripts": self.scripts,
            "points": self.points,
            "images": self.images,
            "distinct": self.distinct,
            "of_recovery": self.of_recovery,
            "without_room": self.without_room,
            "seconds": self.seconds,
            "complete": self.complete,
        })
    }
}

fn explore_workloads(arguments: &arguments::Explore, output: &mut Output) -> Result<()> {
    if let Some(place) = &arguments.without {
        return Err(Failure::usage("cannot leave out a point", place, "name a script with --script"));
    }
    let deadline = Deadline::after((!arguments.exhaustive).then(|| arguments.time.unwrap_or(TIME)));
    let empty = start(arguments.size)?;
    let setup = workload::setup();
    let few =
        empty.after(&setup).map_err(|error| Failure::new("no volume", text::size(arguments.size), error))?;
    let seeds = if arguments.exhaustive { RANDOM_SCRIPTS } else { u64::MAX };
    let kind = |name, setup, start| Kind { name, setup, start };
    let kinds: [(Kind<'_>, Box<dyn Iterator<Item = Script>>); 3] = [
        (kind("one call", Some(&setup), &few), Box::new(workload::singles().into_iter())),
        (kind("two calls", Some(&setup), &few), Box::new(workload::pairs())),
        (kind("random calls", None, &empty), Box::new((0..seeds).map(workload::random))),
    ];
    let mut found = Vec::new();
    let ends = if arguments.exhaustive { [None; 3] } else { parts(&deadline) };
    for ((kind, scripts), end) in kinds.into_iter().zip(ends) {
        let workload = Workload::run(&kind, arguments, scripts, &Deadline(end))?;
        interrupt::check("explore")?;
        if !arguments.json {
            let complete = if workload.complete { "all" } else { "not all" };
            let Workload { name, scripts, points, images, distinct, of_recovery, seconds, .. } = workload;
            writeln!(
                output,
                "{name}: {scripts} scripts ({complete}), {points} crashes, {images} images, {distinct} of them different within their scripts, {of_recovery} of crashes inside recovery, {seconds:.1} s"
            )?;
            output.flush()?;
        }
        found.push(workload);
    }
    if arguments.json {
        return output.json(&json!({ "workloads": found.iter().map(Workload::json).collect::<Vec<_>>() }));
    }
    Ok(writeln!(output, "every call is whole or undone in each")?)
}

/// Where each kind of script ends: single calls are few, the others share what is left.
fn parts(deadline: &Deadline) -> [Option<Instant>; 3] {
    let Some(end) = deadline.0 else { return [None; 3] };
    let left = end.saturating_duration_since(Instant::now());
    [Some(end), Some(end - left / 3), Some(end)]
}

/// Writes the trace of a script.
pub fn trace(arguments: &arguments::Trace, output: &mut Output) -> Result<()> {
    let (name, script) = parsed(&arguments.script)?;
    let differs = |error| Failure::new("the volume is not as it should be", &name, error);
    let recorded = record(&start(arguments.size)?, &script, Options::default()).map_err(differs)?;
    let text = trace::text(&recorded);
    match &arguments.output {
        Some(path) => fs::write(path, text).doing("write the trace", text::path(path)),
        None => Ok(output.write_all(text.as_bytes())?),
    }
}

/// Makes the volume that a crash leaves.
pub fn replay(arguments: &arguments::Replay) -> Result<()> {
    let name = text::path(&arguments.trace);
    let text = fs::read_to_string(&arguments.trace).doing("read the trace", &name)?;
    let refused = |error| Failure::new("no such image", &name, error);
    let image = Trace::parse(&text)
        .and_then(|trace| trace.image(arguments.until, &arguments.drop))
        .map_err(refused)?;
    let place = text::path(&arguments.output);
    eyrie::Volume::from_image(&arguments.output, &image)
        .map_err(|error| Failure::new("cannot make the volume", place, crate::failure::reason(&error)))
}
