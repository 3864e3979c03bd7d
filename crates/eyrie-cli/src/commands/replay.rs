//! `eyrie replay`: makes the volume that a crash in a trace leaves.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use eyrie_sim::explore::trace::{LineLoss, Trace};

use crate::failure::{Doing, Failure, Result, reason};
use crate::text;

/// Make the volume that a crash in a trace leaves
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie replay calls.trace --until 57 -o crashed
  eyrie replay calls.trace --until 57 --drop 0x3c140,0x4000:1 -o crashed

The volume has the stores of the first EVENTS events, except the dropped ones. A line has 64 bytes. Separate \
several lines of --drop by commas.")]
pub struct ReplayArgs {
    /// Trace to read
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Number of events before the crash
    #[arg(long, value_name = "EVENTS")]
    until: usize,
    /// Drop the stores to the line at OFFSET that follow the last fence; with :KEPT, keep the first KEPT of
    /// them
    #[arg(long, value_name = "OFFSET[:KEPT]", value_delimiter = ',', value_parser = parse_loss)]
    drop: Vec<LineLoss>,
    /// Volume to make
    #[arg(long, short, value_name = "VOLUME")]
    output: PathBuf,
}

pub fn run(arguments: &ReplayArgs) -> Result<()> {
    let name = text::path(&arguments.trace);
    let text = fs::read_to_string(&arguments.trace).doing("read the trace", &name)?;
    let refused = |error| Failure::new("no such image", &name, error);
    let image = Trace::parse(&text)
        .and_then(|trace| trace.image(arguments.until, &arguments.drop))
        .map_err(refused)?;
    let place = text::path(&arguments.output);
    eyrie::Volume::from_image(&arguments.output, &image)
        .map_err(|error| Failure::new("cannot make the volume", place, reason(&error)))
}

/// Parses `OFFSET` or `OFFSET:KEPT`.
fn parse_loss(argument: &str) -> std::result::Result<LineLoss, String> {
    let parse = || {
        let (offset, kept) = argument.split_once(':').unwrap_or((argument, "0"));
        let digits = offset.strip_prefix("0x");
        let offset =
            digits.map_or_else(|| offset.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())?;
        Some(LineLoss { offset, kept: kept.parse().ok()? })
    };
    parse().ok_or_else(|| "lines are written like 0x1140 or 0x1140:2".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_parsed() {
        assert_eq!(parse_loss("0x40:2"), Ok(LineLoss { offset: 64, kept: 2 }));
        assert_eq!(parse_loss("64"), Ok(LineLoss { offset: 64, kept: 0 }));
        for bad in ["", "0x", "0xg", "1:x", ":1"] {
            assert!(parse_loss(bad).is_err(), "{bad}");
        }
    }
}
