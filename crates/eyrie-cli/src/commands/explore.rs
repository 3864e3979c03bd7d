//! `explore`, `trace` and `replay`.

mod faults;
#[cfg(feature = "mutants")]
mod mutants;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use eyrie_sim::explore::trace::{self, Trace};
use eyrie_sim::explore::{
    Beside, Failure as Crash, Ground, Kills, Limits, Link, Options, RecordError, Recorded, Report, Rule,
    Site, Start, record, record_beside, shrink,
};
use eyrie_sim::script::Script;
use serde_json::json;

use super::script::read;
use crate::arguments;
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{interrupt, tell, text};

fn parsed(path: &Path) -> Result<(String, Script)> {
    let (name, text) = read(path)?;
    let script = Script::parse(&name, &text).map_err(|error| Failure::of_line(error).with_status(2))?;
    Ok((name, script))
}

/// Refuses volumes that are too large.
pub(super) fn check_size(bytes: u64) -> Result<()> {
    if bytes > trace::MOST_BYTES {
        return Err(Failure::usage("no volume", text::size(bytes), "at most 1 GiB is explored"));
    }
    Ok(())
}

/// An empty volume to start from.
fn start(ground: Ground) -> Result<Start> {
    check_size(ground.bytes.saturating_add(ground.journal_bytes.unwrap_or(0)))?;
    Start::on(ground).map_err(|error| Failure::new("no volume", text::size(ground.bytes), error))
}

/// Explores crashes.
pub fn explore(arguments: &arguments::Explore, output: &mut Output) -> Result<()> {
    interrupt::watch();
    if arguments.medium.rule() == Rule::Lines && arguments.journal.is_some() {
        return Err(Failure::usage("no journal", arguments.medium.name(), "only a disk has one"));
    }
    #[cfg(feature = "mutants")]
    match &arguments.mutant {
        _ if arguments.mutants => return mutants::explore(arguments, output),
        Some(rule) => return mutants::explore_one(rule, arguments, output),
        None => {}
    }
    match &arguments.script {
        _ if arguments.faults || arguments.fault.is_some() => faults::explore(arguments, output),
        Some(script) => explore_script(arguments, script, output),
        None => super::workloads::explore(arguments, output),
    }
}

pub(super) fn limits(arguments: &arguments::Explore) -> Limits {
    let all = match arguments.medium.rule() {
        Rule::Lines => 200_000,
        // A record is torn in more ways than matter.
        Rule::Sectors => 64,
    };
    Limits {
        images: arguments.images.unwrap_or(all),
        sampled: arguments.samples,
        is_complete: false,
        recoveries: arguments.recoveries,
    }
}

/// Processes that are killed one after the other, at most.
const KILLED: u32 = 3;

/// The extent of an exploration of killed processes.
pub(super) fn kills(arguments: &arguments::Explore) -> Kills {
    let limits = Limits { images: 8, sampled: 8, is_complete: false, recoveries: arguments.recoveries };
    Kills { moments: arguments.kills, processes: KILLED, limits }
}

/// When to stop.
pub(super) struct Deadline(pub(super) Option<Instant>);

impl Deadline {
    pub(super) fn after(time: Option<Duration>) -> Deadline {
        Deadline(time.and_then(|time| Instant::now().checked_add(time)))
    }

    pub(super) fn goes_on(&self) -> bool {
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
fn options(
    arguments: &arguments::Explore,
    record: &dyn Fn(Options) -> std::result::Result<Recorded, RecordError>,
) -> Result<Options> {
    let options = Options { closes: arguments.close, dropped: None };
    let Some(place) = &arguments.without else { return Ok(options) };
    let recorded = record(options).map_err(Failure::of_line)?;
    // Some points are met only by recoveries.
    let few = Limits { images: 4, sampled: 0, is_complete: false, recoveries: 0 };
    recorded.explore(few, &mut |_| true).map_err(Failure::of_line)?;
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

/// The run of a script, perhaps beside another.
pub(super) fn recorded(
    start: &Start,
    script: &Script,
    beside: Option<&Beside>,
    options: Options,
) -> std::result::Result<Recorded, RecordError> {
    match beside {
        None => record(start, script, options),
        Some(beside) => record_beside(start, script, beside, options),
    }
}

/// The volume that the script starts from.
fn started(arguments: &arguments::Explore) -> Result<Start> {
    let start = start(arguments.ground())?;
    let Some(path) = &arguments.start else { return Ok(start) };
    let (name, script) = parsed(path)?;
    start.after(&script).map_err(|error| Failure::new("no volume to start from", name, error))
}

fn explore_script(arguments: &arguments::Explore, path: &Path, output: &mut Output) -> Result<()> {
    let (name, script) = parsed(path)?;
    let start = started(arguments)?;
    let beside = match &arguments.beside {
        None => None,
        Some(path) => Some(Beside { script: parsed(path)?.1, seed: arguments.seed }),
    };
    let recorder = |options| recorded(&start, &script, beside.as_ref(), options);
    let options = options(arguments, &recorder)?;
    let differs = |error| Failure::new("the volume is not as it should be, without any crash", &name, error);
    let recorded = recorder(options).map_err(differs)?;
    if let Some(image) = &arguments.replay {
        let found = match image.links[..] {
            [] => recorded.run.replay(image.after, &image.picks, image.again.as_ref()),
            _ => recorded.replay_killed(&image.links, image.after, &image.picks),
        };
        return match found.map_err(|error| Failure::usage("no such image", &name, error))? {
            None => Ok(writeln!(output, "as it should be")?),
            Some(what) => Err(Failure::new("a crash leaves something else", &name, what)),
        };
    }
    let deadline = Deadline::after(arguments.time);
    let limits = limits(arguments);
    let explored = |recorded: &Recorded| {
        let mut report = recorded.explore(limits, &mut |_| deadline.goes_on())?;
        report.after_kills = recorded.explore_kills(kills(arguments), &mut || deadline.goes_on())?;
        Ok(report)
    };
    let report = explored(&recorded).map_err(|crash: Crash| {
        let shown = |path: &Path| shlex::try_quote(&path.to_string_lossy()).map_or(name.clone(), Into::into);
        let from = arguments.start.as_ref().map_or(String::new(), |path| format!(" --start {}", shown(path)));
        let beside = arguments
            .beside
            .as_ref()
            .map_or(String::new(), |path| format!(" --beside {} --seed {}", shown(path), arguments.seed));
        let command = format!(
            "eyrie explore{from} --script {}{beside}{}",
            shown(path),
            flags(arguments, arguments.ground(), arguments.close)
        );
        tell(&format!(
            "a crash leaves something else: {name}: {}\n{}",
            crash.what,
            replay_line(&command, &crash)
        ));
        if arguments.beside.is_none()
            && let Some((script, _)) =
                shrink(&start, &script, options, &|run| explored(run).err(), &|| !interrupt::requested())
        {
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
    let after_kills = text::counted(report.after_kills, "image", "images");
    Ok(writeln!(
        output,
        "{crashes}, {images}, {} of them different; {of_recovery} of crashes inside recovery; {after_kills} of crashes after kills: {end}",
        report.distinct
    )?)
}

/// The flags that make the same run, on a volume like this.
pub(super) fn flags(arguments: &arguments::Explore, ground: Ground, closes: bool) -> String {
    let mut flags = format!(" --size {}", ground.bytes);
    if let Some(bytes) = ground.journal_bytes {
        // Writing to a string cannot fail.
        let _ = write!(flags, " --journal {bytes}");
    }
    if arguments.medium.rule() != Rule::Lines {
        // Writing to a string cannot fail.
        let _ = write!(flags, " --medium {}", arguments.medium.name());
    }
    if closes {
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
pub(super) fn replay_line(command: &str, crash: &Crash) -> String {
    let image = |after: usize, picks: &[usize]| {
        format!("{after}:{}", picks.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
    };
    let link = |link: &Link| match link {
        Link::Kill { after } => format!("k{after}"),
        Link::Power { after, picks } => image(*after, picks),
    };
    let mut images: Vec<String> = crash.links.iter().map(link).collect();
    images.push(image(crash.after, &crash.picks));
    images.extend(crash.again.iter().map(|again| image(again.after, &again.picks)));
    format!("replay it with: {command} --replay {}", images.join("/"))
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

/// Writes the trace of a script.
pub fn trace(arguments: &arguments::Trace, output: &mut Output) -> Result<()> {
    let (name, script) = parsed(&arguments.script)?;
    let differs = |error| Failure::new("the volume is not as it should be", &name, error);
    let recorded = record(&start(Ground::of(Rule::Lines, arguments.size))?, &script, Options::default())
        .map_err(differs)?;
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
