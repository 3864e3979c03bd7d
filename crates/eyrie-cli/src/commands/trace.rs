//! `eyrie trace`: records the stores and fences of a script on the medium of its volume.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use eyrie_sim::explore::trace;
use eyrie_sim::explore::{CrashRule, RecordOptions, RunMedium, record};

use super::explore::empty_volume;
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{input, text};

/// Record the stores and fences that a script makes on its volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie trace calls.txt -o calls.trace
  eyrie trace calls.txt | grep -c fence

The script runs on an empty volume in memory. The trace begins with the contents of the volume. Each event \
has a line: store THREAD OFFSET BYTES, fence THREAD FILE:LINE, or mark NUMBER CALL after a call has \
returned. docs/explorer.md describes the format.")]
pub struct TraceArgs {
    /// Script to run; - reads standard input
    #[arg(value_name = "SCRIPT")]
    script: PathBuf,
    /// File to write [default: -, standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Size of the volume, such as 512K or 4M
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = text::parse_size)]
    size: u64,
}

pub fn run(arguments: &TraceArgs, output: &mut Output) -> Result<()> {
    let (name, script) = input::script(&arguments.script)?;
    let start = empty_volume(RunMedium::of(CrashRule::Lines, arguments.size))?;
    let recorded = record(&start, &script, RecordOptions::default())
        .map_err(|error| Failure::new("the volume is wrong even without a crash", &name, error))?;
    let text = trace::text(&recorded);
    match input::named_file(arguments.output.clone()) {
        Some(path) => fs::write(&path, text).doing("write the trace", text::path(&path)),
        None => Ok(output.write_all(text.as_bytes())?),
    }
}
