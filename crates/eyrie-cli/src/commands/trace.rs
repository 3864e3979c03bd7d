//! `eyrie trace`: writes down the events of a script on the medium of its volume.

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

/// Record the events of a script on its volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie trace calls.txt -o calls.trace
  eyrie trace calls.txt | grep -c fence

After the first bytes of the volume, the trace has a line for each event: store THREAD OFFSET BYTES, fence \
THREAD FILE:LINE, and mark NUMBER CALL when a call has returned. docs/explorer.md describes them.")]
pub struct TraceArgs {
    /// The script; - reads it from standard input
    #[arg(value_name = "SCRIPT")]
    script: PathBuf,
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Size of the volume in memory
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = text::parse_size)]
    size: u64,
}

pub fn run(arguments: &TraceArgs, output: &mut Output) -> Result<()> {
    let (name, script) = input::script(&arguments.script)?;
    let start = empty_volume(RunMedium::of(CrashRule::Lines, arguments.size))?;
    let recorded = record(&start, &script, RecordOptions::default())
        .map_err(|error| Failure::new("the volume is not as it should be", &name, error))?;
    let text = trace::text(&recorded);
    match &arguments.output {
        Some(path) => fs::write(path, text).doing("write the trace", text::path(path)),
        None => Ok(output.write_all(text.as_bytes())?),
    }
}
