//! `fsck`: checking a volume, and building a sound one of what is left of it.

use std::io::Write;
use std::path::Path;

use eyrie::{Repair, Repaired, Report, Volume};
use serde_json::{Value, json};

use super::{paged, refused};
use crate::arguments::Fsck;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{tell, text};

/// Exit status of a volume that was repaired.
const REPAIRED: u8 = 1;
/// Exit status of a broken volume.
const BROKEN: u8 = 4;
/// Exit status of a volume that cannot be read or checked.
const UNREADABLE: u8 = 8;

/// How many objects a check looked at.
pub fn objects(report: &Report) -> u64 {
    report.directories + report.files + report.others
}

/// Checks a volume, and repairs it if that is asked for. What goes wrong on the way has a status of its own: 1 would say
/// that something was repaired.
pub fn fsck(arguments: &Fsck, output: &mut Output) -> Result<()> {
    let unreadable = |failure: Failure| match failure.status() {
        0 => failure,
        _ => failure.with_status(UNREADABLE),
    };
    let report = Volume::inspect(&arguments.volume, paged())
        .map_err(|error| unreadable(refused("cannot read the volume", &arguments.volume, &error)))?;
    if report.is_clean() {
        let told = sound(arguments, &report, output).and_then(|()| Ok(output.flush()?));
        return told.map_err(unreadable);
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
    // Repaired is repaired, whether or not somebody reads about it.
    let told = tell_repaired(arguments, &repaired, output).and_then(|()| Ok(output.flush()?));
    if let Err(failure) = told {
        tell(&failure.to_string());
    }
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
        "objects": objects(report),
        "directories": report.directories,
        "files": report.files,
        "bytes": report.bytes,
    })
}

fn sound(arguments: &Fsck, report: &Report, output: &mut Output) -> Result<()> {
    if arguments.json {
        return output.json(&json_report(report));
    }
    writeln!(output, "{} is sound: {}", text::path(&arguments.volume), looked_at(report))?;
    Ok(())
}

/// Tells what is wrong.
fn broken(arguments: &Fsck, report: &Report, output: &mut Output) -> Failure {
    let place = text::path(&arguments.volume);
    if arguments.json {
        // Broken is broken, whether or not somebody reads about it.
        let _ = output.json(&json_report(report));
    }
    for finding in &report.findings {
        tell(&format!("broken: {place}: {finding}"));
    }
    let found = text::counted(report.findings.len() as u64, "finding", "findings");
    let advice = format!("{found} in {}: `eyrie fsck --repair` saves what can be read", looked_at(report));
    Failure::new("the volume is broken", place, advice).with_status(BROKEN)
}

/// Tells what was lost, and where everything is now.
fn tell_repaired(arguments: &Fsck, repaired: &Repaired, output: &mut Output) -> Result<()> {
    let Repaired { findings, losses, directories, files, others, bytes, damaged } = repaired;
    let place = arguments.into.as_deref().unwrap_or(&arguments.volume);
    if arguments.json {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let losses: Vec<Value> =
            losses.iter().map(|(lost, what)| json!({ "path": path(lost), "what": what })).collect();
        return output.json(&json!({
            "sound": true,
            "repaired": path(place),
            "damaged": damaged.as_deref().map(path),
            "findings": findings,
            "lost": losses,
            "objects": directories + files + others,
            "directories": directories,
            "files": files,
            "bytes": bytes,
        }));
    }
    for finding in findings {
        tell(&format!("broken: {}: {finding}", text::path(&arguments.volume)));
    }
    for (lost, what) in losses {
        writeln!(output, "lost: {}: {what}", text::path(lost))?;
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
