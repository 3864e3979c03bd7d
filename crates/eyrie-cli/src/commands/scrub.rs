//! `eyrie scrub`: reads a volume on a disk as a whole, and finds the pages that the disk has damaged.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use eyrie::ScrubReport;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::failure::{Failure, Result, print_error, print_failure};
use crate::output::Output;
use crate::volumes::Purpose;
use crate::{interrupt, text, volumes};

/// Compare all pages of a volume on a disk with their checksums
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie scrub /srv/vol
  eyrie scrub --json vol

A page is compared with its checksum each time it is read. A scrub also reads the pages that were not \
read for a long time, so that damage is found while a backup still has the data. A scrub changes nothing, \
and other commands can read the volume meanwhile. A volume made without `mkfs --checksums` has no checksums: \
there a scrub finds only pages that cannot be read.

Exit status: 0 sound, 2 wrong arguments, 4 damaged, 8 cannot be read.")]
pub struct ScrubArgs {
    /// Volume to read
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing about a sound volume; the exit status tells the result
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

/// Exit status of a damaged volume.
const DAMAGED: u8 = 4;
/// Exit status if the volume cannot be read, or if the report of a sound volume cannot be printed.
const UNREADABLE: u8 = 8;

pub fn run(arguments: &ScrubArgs, output: &mut Output) -> Result<()> {
    let path = &arguments.volume;
    let place = text::path(path);
    interrupt::install();
    let scrubbed = volumes::with_volume(path, Purpose::Read, |volume| {
        let bar = if arguments.quiet { ProgressBar::hidden() } else { progress_bar() };
        let report = volume.scrub(|done, total| {
            bar.set_length(total);
            bar.set_position(done);
            !interrupt::requested()
        });
        bar.finish_and_clear();
        interrupt::check(&place)?;
        let report = report.map_err(|error| volumes::refused("cannot scrub the volume", path, &error))?;
        Ok((report, volume.information().checksums))
    });
    let unreadable = |failure: Failure| match failure.status() {
        0 | interrupt::STATUS => failure,
        _ => failure.with_status(UNREADABLE),
    };
    let (report, checksums) = scrubbed.map_err(unreadable)?;
    let is_sound = report.damaged.is_empty();
    let printed = print(arguments, &report, checksums, output).and_then(|()| Ok(output.flush()?));
    if is_sound {
        return printed.map_err(unreadable);
    }
    // The exit status must tell that the volume is damaged, even if the report cannot be printed.
    print_failure(printed);
    for path in &report.paths {
        print_error(&format!("damaged: {place}:{}", text::path(path)));
    }
    let count = text::counted(report.damaged.len() as u64, "page", "pages");
    let why = format!(
        "{count} of {}: restore the damaged files, then run `eyrie fsck`",
        text::size(report.read_bytes)
    );
    Err(Failure::new("the disk has damaged the volume", place, why).with_status(DAMAGED))
}

fn print(arguments: &ScrubArgs, report: &ScrubReport, checksums: bool, output: &mut Output) -> Result<()> {
    let is_sound = report.damaged.is_empty();
    if arguments.json {
        let paths: Vec<_> = report.paths.iter().map(|path| path.to_string_lossy()).collect();
        return output.json(&json!({
            "sound": is_sound,
            "checksums": checksums,
            "read_bytes": report.read_bytes,
            "damaged_pages": report.damaged,
            "damaged_paths": paths,
        }));
    }
    if is_sound && !arguments.quiet {
        let what = if checksums { "every page matches its checksum" } else { "every page can be read" };
        let place = text::path(&arguments.volume);
        writeln!(output, "{place}: {what}: {}", text::size(report.read_bytes))?;
    }
    Ok(())
}

/// Returns a bar on standard error. It is hidden unless standard error is a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
