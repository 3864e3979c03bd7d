//! Injects failures of the host, for `--faults`.

use std::io::Write as _;
use std::path::Path;

use eyrie_sim::explore::faults::{FaultFailure, FaultReport, Faults, fault_spec};
use eyrie_sim::explore::workload;
use eyrie_sim::script::Script;
use serde_json::json;

use super::arguments::ExploreArgs;
use super::bounds::{DEFAULT_TIME, Deadline};
use super::reproduce::flags;
use super::runs::start_volume;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{input, interrupt, text};

/// Injects failures of the host into the calls of a script, or into the built-in calls. With `--fault`,
/// injects only the failures that this option names.
pub(super) fn explore(arguments: &ExploreArgs, output: &mut Output) -> Result<()> {
    let only = arguments.fault.as_deref();
    let mut faults = Faults::new(only);
    let deadline = match &arguments.script {
        Some(path) => explore_script(arguments, path, &mut faults)?,
        None => explore_built_in(arguments, &mut faults)?,
    };
    let reports: Vec<&FaultReport> = faults.reports().collect();
    interrupt::check("explore")?;
    if let (Some(only), true) = (only, reports.is_empty()) {
        let why = "a run with --faults lists the failures";
        return Err(Failure::usage("no such failure", only, why));
    }
    print_reports(&reports, deadline.goes_on(), arguments.json, output)
}

/// Injects failures into the calls of a script, and then into open, recovery, trim and close of the volume.
fn explore_script(arguments: &ExploreArgs, path: &Path, faults: &mut Faults) -> Result<Deadline> {
    let start = start_volume(arguments)?;
    let deadline = Deadline::after(arguments.time);
    let (name, script) = input::script(path)?;
    let mut goes_on = || deadline.goes_on();
    let done = faults.calls(&start, &script, &mut goes_on);
    done.and_then(|after| faults.lifecycle(&after, &mut goes_on))
        .map_err(|failure| wrong(arguments, &name, &text::path(path), None, &failure))?;
    Ok(deadline)
}

/// Injects failures into open, recovery, trim and close of a volume, and into each built-in call by itself.
fn explore_built_in(arguments: &ExploreArgs, faults: &mut Faults) -> Result<Deadline> {
    let start = start_volume(arguments)?;
    let deadline = Deadline::after(Some(arguments.time.unwrap_or(DEFAULT_TIME)));
    let start = start.after_script(&workload::setup());
    let start =
        start.map_err(|error| Failure::new("cannot make the volume", text::size(arguments.size), error))?;
    faults
        .lifecycle(&start, &mut || deadline.goes_on())
        .map_err(|failure| wrong(arguments, "the volume", "calls.txt", Some(&Script::default()), &failure))?;
    for script in workload::singles() {
        let done = faults.calls(&start, &script, &mut || deadline.goes_on());
        done.map_err(|failure| wrong(arguments, "one call", "calls.txt", Some(&script), &failure))?;
    }
    Ok(deadline)
}

fn print_reports(reports: &[&FaultReport], complete: bool, json: bool, output: &mut Output) -> Result<()> {
    let injected: u64 = reports.iter().map(|report| report.injected).sum();
    if json {
        return output.json(&json!({ "faults": reports, "injected": injected, "complete": complete }));
    }
    let gave = |report: &FaultReport| {
        let results = report.results.iter().map(|(result, count)| format!("{count} {result}"));
        results.collect::<Vec<_>>().join(", ")
    };
    let rows: Vec<_> = reports.iter().map(|report| (report, gave(report))).collect();
    let title = "RESULTS OF THE CALLS";
    let width = rows.iter().map(|(_, gave)| gave.len()).fold(title.len(), usize::max);
    writeln!(output, "{:>8}  {title:<width$}  INJECTED FAILURE", "FAILURES")?;
    for (FaultReport { kind, site, failure, injected, .. }, gave) in rows {
        writeln!(output, "{injected:>8}  {gave:<width$}  {failure} {kind} {site}")?;
    }
    let end = if complete {
        "every call is whole or undone"
    } else {
        "the time was up; so far every call is whole or undone"
    };
    let failures = text::counted(injected, "failure", "failures");
    Ok(writeln!(output, "{failures} at {}: {end}", text::counted(reports.len() as u64, "site", "sites"))?)
}

/// Makes the message about a failure after which the volume is wrong, with the command that repeats it.
fn wrong(
    arguments: &ExploreArgs,
    name: &str,
    path: &str,
    script: Option<&Script>,
    failure: &FaultFailure,
) -> Failure {
    let mut text = format!("a failure leaves a wrong volume: {name}: {failure}\n");
    let mut from =
        arguments.start.as_ref().map_or(String::new(), |path| format!(" --start {}", text::path(path)));
    if let Some(script) = script {
        text.push_str(&format!("save this script as start.txt:\n{}", workload::setup()));
        text.push_str(&format!("save this script as calls.txt:\n{script}"));
        from = " --start start.txt".to_string();
    }
    let fault = failure
        .failing
        .as_ref()
        .map_or(String::new(), |failing| format!(" --fault '{}'", fault_spec(failing)));
    text.push_str(&format!(
        "replay it with: eyrie explore --faults{from} --script {path}{}{fault}",
        flags(arguments, arguments.medium(), arguments.close)
    ));
    Failure::of_text(text)
}
