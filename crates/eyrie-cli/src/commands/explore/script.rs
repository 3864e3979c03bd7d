//! Explores the crashes of one script.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use eyrie_sim::explore::{
    self, ExploreReport, Limits, ParallelScript, RecordError, RecordOptions, Recorded, Site, StartVolume,
    shrink,
};
use eyrie_sim::script::Script;
use serde_json::json;

use super::arguments::{ExploreArgs, ImageArg};
use super::bounds::{Deadline, image_limits, kill_limits};
use super::reproduce::{flags, replay_hint};
use super::runs::{record_run, start_volume};
use crate::failure::{Failure, Result, print_error};
use crate::output::Output;
use crate::{input, interrupt, text};

/// A script, and everything that is needed to repeat its run.
struct ScriptRun<'a> {
    arguments: &'a ExploreArgs,
    path: &'a Path,
    name: String,
    start: StartVolume,
    script: Script,
    beside: Option<ParallelScript>,
    options: RecordOptions,
    deadline: Deadline,
}

/// Explores the script at `path`, or opens the one image that `--replay` names.
pub(super) fn explore(arguments: &ExploreArgs, path: &Path, output: &mut Output) -> Result<()> {
    let (name, script) = input::script(path)?;
    let start = start_volume(arguments)?;
    let beside = match &arguments.beside {
        None => None,
        Some(path) => Some(ParallelScript { script: input::script(path)?.1, seed: arguments.seed }),
    };
    let record = |options| record_run(&start, &script, beside.as_ref(), options);
    let options = options(arguments, &record)?;
    let differs = |error| Failure::new("the volume is wrong even without a crash", &name, error);
    let recorded = record(options).map_err(differs)?;
    if let Some(image) = &arguments.replay {
        return replay(&recorded, image, &name, output);
    }
    let deadline = Deadline::after(arguments.time);
    let run = ScriptRun { arguments, path, name, start, script, beside, options, deadline };
    let report = run.explore(&recorded).map_err(|failure| run.report_failure(&failure))?;
    interrupt::check("explore")?;
    let complete = run.deadline.goes_on() && report.limited == 0;
    if arguments.json {
        let mut value = json!(report);
        value["complete"] = json!(complete);
        return output.json(&value);
    }
    print_report(&report, complete, output)
}

/// Returns true if `word` names `site`. A `word` is the end of the file's path and a line, as in
/// `redo.rs:98`. It may begin with the kind of the site, as in `fence redo.rs:98`.
fn is_named(site: &Site, word: &str) -> bool {
    match word.split_once(' ') {
        Some((kind, place)) => site.kind.name() == kind && site.place().ends_with(place),
        None => site.place().ends_with(word),
    }
}

/// Returns the options of a run. With `--without`, the run leaves out the named point.
fn options(
    arguments: &ExploreArgs,
    record: &dyn Fn(RecordOptions) -> std::result::Result<Recorded, RecordError>,
) -> Result<RecordOptions> {
    let options = RecordOptions { closes: arguments.close, dropped: None };
    let Some(place) = &arguments.without else { return Ok(options) };
    let recorded = record(options).map_err(Failure::of_text)?;
    // The run itself does not meet the points of recovery, so a few images of each crash are recovered first.
    let few = Limits { images: 4, sampled: 0, is_complete: false, recoveries: 0 };
    recorded.explore(few, &mut |_| true).map_err(Failure::of_text)?;
    let mut found = recorded.points().into_keys().filter(|site| is_named(site, place));
    match (found.next(), found.next()) {
        (Some(site), None) => Ok(RecordOptions { dropped: Some(site), ..options }),
        (None, _) => Err(Failure::usage(
            "no such point",
            place,
            "the script has none there; the report lists its points",
        )),
        (Some(_), Some(_)) => Err(Failure::usage(
            "ambiguous point",
            place,
            "write more of the path, or the kind before it, such as 'fence transaction/redo.rs:98'",
        )),
    }
}

/// Opens one image, and prints that it is right or returns the error.
fn replay(recorded: &Recorded, image: &ImageArg, name: &str, output: &mut Output) -> Result<()> {
    let difference = match image.links[..] {
        [] => recorded.run.replay(image.after, &image.picks, image.recovery_crash.as_ref()),
        _ => recorded.replay_killed(&image.links, image.after, &image.picks),
    };
    match difference.map_err(|error| Failure::usage("no such image", name, error))? {
        None => Ok(writeln!(output, "the image is right")?),
        Some(what) => Err(Failure::new("a crash leaves a wrong volume", name, what)),
    }
}

impl ScriptRun<'_> {
    /// Explores power failures, then killed processes.
    fn explore(&self, recorded: &Recorded) -> std::result::Result<ExploreReport, explore::CrashFailure> {
        let mut report = recorded.explore(image_limits(self.arguments), &mut |_| self.deadline.goes_on())?;
        report.after_kills =
            recorded.explore_kills(kill_limits(self.arguments), &mut || self.deadline.goes_on())?;
        Ok(report)
    }

    /// Prints the failure, the command that repeats it, and a shorter script that also fails, if there is
    /// one.
    fn report_failure(&self, failure: &explore::CrashFailure) -> Failure {
        let name = &self.name;
        let hint = replay_hint(&self.command(), failure);
        print_error(&format!("a crash leaves a wrong volume: {name}: {}\n{hint}", failure.what));
        // In a shorter script the threads switch at other moments. So only the script of a run with one
        // thread is shortened.
        if self.beside.is_none()
            && let Some((script, _)) =
                shrink(&self.start, &self.script, self.options, &|run| self.explore(run).err(), &|| {
                    !interrupt::requested()
                })
        {
            print_error(&format!("a shorter script that fails:\n{}", script.to_string().trim_end()));
        }
        Failure::silent(1)
    }

    /// Returns the command that explores this script again.
    fn command(&self) -> String {
        let ExploreArgs { start, beside, seed, close, .. } = self.arguments;
        let quoted =
            |path: &Path| shlex::try_quote(&path.to_string_lossy()).map_or(self.name.clone(), Into::into);
        let start = start.as_ref().map_or(String::new(), |path| format!(" --start {}", quoted(path)));
        let beside =
            beside.as_ref().map_or(String::new(), |path| format!(" --beside {} --seed {seed}", quoted(path)));
        let flags = flags(self.arguments, self.arguments.medium(), *close);
        format!("eyrie explore{start} --script {}{beside}{flags}", quoted(self.path))
    }
}

fn print_report(report: &ExploreReport, complete: bool, output: &mut Output) -> Result<()> {
    write!(output, "{}", table(report))?;
    let end = match complete {
        true => "in each image every call is whole or undone",
        false => "not all images were opened; in each opened image every call is whole or undone",
    };
    let crashes = text::counted(report.points, "crash", "crashes");
    let images = text::counted(report.images, "image", "images");
    let of_recovery = text::counted(report.of_recovery, "image", "images");
    let after_kills = text::counted(report.after_kills, "image", "images");
    let distinct = report.distinct;
    Ok(writeln!(
        output,
        "{crashes}, {images}, {distinct} of them distinct; {of_recovery} of crashes inside recovery; \
         {after_kills} of crashes after kills: {end}"
    )?)
}

fn table(report: &ExploreReport) -> String {
    let mut table = String::new();
    let mut rows = |title: &str, rows: &mut dyn Iterator<Item = (&str, u64, u64, u64)>| {
        let _ = writeln!(table, "{:>8} {:>8} {:>9}  {title}", "CRASHES", "IMAGES", "DISTINCT");
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
