//! `eyrie fsck`: checks a volume. A repair builds a sound volume from the readable parts of a damaged one.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use eyrie::{Repair, Repaired, Report, Volume};
use serde_json::{Value, json};

use crate::failure::{Failure, Result, print_error, print_failure};
use crate::output::Output;
use crate::text;
use crate::volumes::{object_count, paged, refused, unopened};

/// Check and repair a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie fsck /dev/shm/vol
  eyrie fsck --json vol && echo sound
  eyrie fsck --repair vol                     # keeps the damaged volume as vol.damaged
  eyrie fsck --repair --into /mnt/new /dev/sdb1

Without --repair nothing is changed: a volume that was not closed is recovered in memory only. With \
--repair all parts of a damaged volume that can be read are copied to a new volume. Without --into, the new \
volume replaces the damaged one when it is complete and sound. Each path with a loss is printed, with the \
reason. Objects without a name go to /lost+found.

Exit status, as of fsck(8): 0 sound, 1 repaired, 4 damaged and not repaired, 8 cannot be checked, 16 wrong \
arguments.")]
pub struct FsckArgs {
    /// Volume to check
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing about a sound volume; the exit status tells the result
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Build a sound volume from the readable parts if the check finds damage
    #[arg(long)]
    repair: bool,
    /// Make the sound volume in this new directory, and leave the damaged volume unchanged [default: replace
    /// the damaged volume]
    #[arg(long, value_name = "DIR", requires = "repair")]
    into: Option<PathBuf>,
    /// Remove the damaged volume after the repair, instead of keeping it as VOLUME.damaged
    #[arg(long, requires = "repair", conflicts_with = "into")]
    discard: bool,
}

/// Exit status of a volume that was repaired.
const REPAIRED: u8 = 1;
/// Exit status of a damaged volume that was not repaired.
const BROKEN: u8 = 4;
/// Exit status if the volume cannot be checked, or if the report of a sound volume cannot be printed.
const UNREADABLE: u8 = 8;

/// Checks a volume, and repairs it with `--repair`. If the volume cannot be checked, or the report of a sound
/// volume cannot be printed, the status is [`UNREADABLE`], because 1 means that the volume was repaired.
pub fn run(arguments: &FsckArgs, output: &mut Output) -> Result<()> {
    let unreadable = |failure: Failure| match failure.status() {
        0 => failure,
        _ => failure.with_status(UNREADABLE),
    };
    let report = Volume::inspect(&arguments.volume, paged())
        .map_err(|error| unreadable(unopened("cannot read the volume", &arguments.volume, &error)))?;
    if report.is_clean() {
        let printed = print_sound(arguments, &report, output).and_then(|()| Ok(output.flush()?));
        return printed.map_err(unreadable);
    }
    if !arguments.repair {
        return Err(broken(arguments, &report, output));
    }
    let mut repair = Repair::new().discard(arguments.discard).paged(paged());
    if let Some(into) = &arguments.into {
        repair = repair.into(into);
    }
    let repaired = repair.run(&arguments.volume).map_err(|error| {
        refused("cannot repair the volume", &arguments.volume, &error).with_status(BROKEN)
    })?;
    let Some(repaired) = repaired else { return Ok(()) };
    // The exit status must tell that the volume is repaired, even if the report cannot be printed.
    print_failure(print_repaired(arguments, &repaired, output).and_then(|()| Ok(output.flush()?)));
    Err(Failure::silent(REPAIRED))
}

fn counts(directories: u64, files: u64, others: u64, bytes: u64) -> String {
    format!(
        "{} ({}, {}), {}",
        text::counted(directories + files + others, "object", "objects"),
        text::counted(files, "file", "files"),
        text::counted(directories, "directory", "directories"),
        text::size(bytes)
    )
}

fn looked_at(report: &Report) -> String {
    counts(report.directories, report.files, report.others, report.bytes)
}

fn json_report(report: &Report) -> Value {
    json!({
        "sound": report.is_clean(),
        "findings": report.findings,
        "objects": object_count(report),
        "directories": report.directories,
        "files": report.files,
        "bytes": report.bytes,
    })
}

fn print_sound(arguments: &FsckArgs, report: &Report, output: &mut Output) -> Result<()> {
    if arguments.json {
        return output.json(&json_report(report));
    }
    if arguments.quiet {
        return Ok(());
    }
    writeln!(output, "{} is sound: {}", text::path(&arguments.volume), looked_at(report))?;
    Ok(())
}

/// Prints the findings. Returns a failure with their number.
fn broken(arguments: &FsckArgs, report: &Report, output: &mut Output) -> Failure {
    let place = text::path(&arguments.volume);
    if arguments.json {
        // The exit status must tell that the volume is damaged, even if the report cannot be printed.
        print_failure(output.json(&json_report(report)).and_then(|()| Ok(output.flush()?)));
    }
    for finding in &report.findings {
        print_error(&format!("damaged: {place}: {finding}"));
    }
    let found = text::counted(report.findings.len() as u64, "finding", "findings");
    let advice = format!("{found} in {}: `eyrie fsck --repair` saves the readable parts", looked_at(report));
    Failure::new("the volume is damaged", place, advice).with_status(BROKEN)
}

/// Prints the findings, the losses, the counts, and the paths of both volumes.
fn print_repaired(arguments: &FsckArgs, repaired: &Repaired, output: &mut Output) -> Result<()> {
    let Repaired { findings, losses, directories, files, others, bytes, damaged, not_discarded, .. } =
        repaired;
    let place = arguments.into.as_deref().unwrap_or(&arguments.volume);
    if arguments.json {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let losses: Vec<Value> =
            losses.iter().map(|(lost, what)| json!({ "path": path(lost), "what": what })).collect();
        return output.json(&json!({
            "sound": true,
            "repaired": path(place),
            "damaged": damaged.as_deref().map(path),
            "not_discarded": not_discarded,
            "findings": findings,
            "lost": losses,
            "objects": directories + files + others,
            "directories": directories,
            "files": files,
            "bytes": bytes,
        }));
    }
    for finding in findings {
        print_error(&format!("damaged: {}: {finding}", text::path(&arguments.volume)));
    }
    for (lost, what) in losses {
        writeln!(output, "lost: {}: {what}", text::path(lost))?;
    }
    if let (Some(path), Some(reason)) = (damaged, not_discarded) {
        print_error(&format!("cannot remove the damaged volume: {}: {reason}", text::path(path)));
    }
    let saved = counts(*directories, *files, *others, *bytes);
    let losses = match losses.len() as u64 {
        0 => "nothing is lost".to_owned(),
        count => format!("{} with losses", text::counted(count, "path", "paths")),
    };
    let kept = match damaged {
        Some(path) => format!("; the damaged volume is {}", text::path(path)),
        None => String::new(),
    };
    writeln!(output, "{} is repaired: {saved}, {losses}{kept}", text::path(place))?;
    Ok(())
}
