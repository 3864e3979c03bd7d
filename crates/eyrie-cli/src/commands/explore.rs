//! `explore`, `trace` and `replay`.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use eyrie_sim::explore::trace::{self, Trace};
use eyrie_sim::explore::{Failure as Crash, Limits, Options, Report, Start, record, shrink, workload};
use eyrie_sim::script::Script;
use serde_json::{Value, json};

use super::script::read;
use crate::arguments;
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{interrupt, text};

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

/// The options of a run, when a fence is to be left out that it has.
fn options(arguments: &arguments::Explore, start: &Start, script: &Script) -> Result<Options> {
    let options = Options { closes: arguments.close, dropped: None };
    let Some(place) = &arguments.without else { return Ok(options) };
    let recorded = record(start, script, options).map_err(Failure::of_line)?;
    let mut found = recorded.sites.into_iter().filter(|site| site.to_string().ends_with(place.as_str()));
    match (found.next(), found.next()) {
        (Some(site), None) => Ok(Options { dropped: Some(site), ..options }),
        (None, _) => Err(Failure::usage(
            "no such fence",
            place,
            "the script has none there; the report lists its fences",
        )),
        (Some(_), Some(_)) => Err(Failure::usage("several fences", place, "write more of the path")),
    }
}

fn explore_script(arguments: &arguments::Explore, path: &Path, output: &mut Output) -> Result<()> {
    let (name, script) = parsed(path)?;
    let start = start(arguments.size)?;
    let options = options(arguments, &start, &script)?;
    let differs = |error| Failure::new("the volume is not as it should be, without any crash", &name, error);
    let recorded = record(&start, &script, options).map_err(differs)?;
    if let Some(image) = &arguments.replay {
        let found = recorded.run.replay(image.after, image.picks.clone(), image.again.as_ref());
        return found
            .map_err(|what| Failure::new("a crash leaves something else", &name, what))
            .and_then(|()| Ok(writeln!(output, "as it should be")?));
    }
    let deadline = Deadline::after(arguments.time);
    let limits = limits(arguments);
    let report = recorded.explore(limits, &mut || deadline.goes_on());
    let report = report.map_err(|crash| {
        let command = format!("eyrie explore --script {name}{}", flags(arguments));
        let shortest = shrink(&start, &script, options, limits);
        Failure::of_line(lost(&name, &command, &crash, shortest.as_ref().map(|(script, _)| script)))
    })?;
    interrupt::check("explore")?;
    let complete = deadline.goes_on();
    if arguments.json {
        let mut value = json!(report);
        value["complete"] = json!(complete);
        return output.json(&value);
    }
    write!(output, "{}", table(&report))?;
    let end = if complete {
        "every call is whole or undone in each"
    } else {
        "time is up; so far every call is whole or undone"
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
        let _ = write!(flags, " --without {place}");
    }
    flags
}

/// What to say of a crash that lost something: the line that replays it, and a shorter script.
fn lost(name: &str, command: &str, crash: &Crash, shortest: Option<&Script>) -> String {
    let picks = |picks: &[usize]| picks.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut line = format!("a crash leaves something else: {name}: {}\n", crash.what);
    let _ = write!(line, "replay it with: {command} --replay {}:{}", crash.after, picks(&crash.picks));
    if let Some(again) = &crash.again {
        let _ = write!(line, "/{}:{}", again.after, picks(&again.picks));
    }
    if let Some(script) = shortest {
        let _ = write!(line, "\nthe same happens with this script:\n{}", script.to_string().trim_end());
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
    let sites = report.sites.iter().map(|site| (&site.site[..], site.points, site.images, site.distinct));
    rows("BEFORE THE FENCE", &mut { sites });
    table
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
    seconds: f64,
    complete: bool,
}

impl Workload {
    fn run(
        name: &'static str,
        arguments: &arguments::Explore,
        start: &Start,
        scripts: impl Iterator<Item = Script>,
        deadline: &Deadline,
    ) -> Result<Workload> {
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
                Failure::new(
                    "the volume is not as it should be, without any crash",
                    name,
                    format_args!("{error}\n{script}"),
                )
            })?;
            let report = recorded.explore(limits, &mut || !interrupt::requested()).map_err(|crash| {
                let shortest = shrink(start, &script, options, limits);
                let shortest = shortest.map_or_else(|| script.to_string(), |(script, _)| script.to_string());
                Failure::new(
                    "a crash leaves something else",
                    name,
                    format_args!("{crash}\n{}", shortest.trim_end()),
                )
            })?;
            workload.scripts += 1;
            workload.points += report.points;
            workload.images += report.images;
            workload.distinct += report.distinct;
            workload.of_recovery += report.of_recovery;
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
            "seconds": self.seconds,
            "complete": self.complete,
        })
    }
}

fn explore_workloads(arguments: &arguments::Explore, output: &mut Output) -> Result<()> {
    if let Some(place) = &arguments.without {
        return Err(Failure::usage("cannot leave out a fence", place, "name a script with --script"));
    }
    let deadline = Deadline::after((!arguments.exhaustive).then(|| arguments.time.unwrap_or(TIME)));
    let empty = start(arguments.size)?;
    let setup = workload::setup();
    let few =
        empty.after(&setup).map_err(|error| Failure::new("no volume", text::size(arguments.size), error))?;
    let seeds = if arguments.exhaustive { RANDOM_SCRIPTS } else { u64::MAX };
    let kinds: [(&'static str, &Start, Box<dyn Iterator<Item = Script>>); 3] = [
        ("one call", &few, Box::new(workload::singles().into_iter())),
        ("two calls", &few, Box::new(workload::pairs())),
        ("random calls", &empty, Box::new((0..seeds).map(workload::random))),
    ];
    let mut found = Vec::new();
    let ends = if arguments.exhaustive { [None; 3] } else { parts(&deadline) };
    for ((name, start, scripts), end) in kinds.into_iter().zip(ends) {
        let workload = Workload::run(name, arguments, start, scripts, &Deadline(end))?;
        interrupt::check("explore")?;
        if !arguments.json {
            let complete = if workload.complete { "all" } else { "time is up" };
            let Workload { scripts, points, images, distinct, of_recovery, seconds, .. } = workload;
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
