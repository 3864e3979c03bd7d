//! `eyrie run`: runs a script of calls on a volume.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use eyrie::{Credentials, Files};
use eyrie_sim::script::{CallOutcome, Script};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::volumes::Purpose;
use crate::{input, interrupt, text, volumes};

/// Run a script of calls on a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie run calls.txt vol
  eyrie run --keep-going calls.txt /dev/shm/vol
  printf 'mkdir /a 0700\\ncreat /a/b\\n' | eyrie run - vol

A script is text with one call on a line: mkdir PATH [MODE], write PATH OFFSET LENGTH SEED, rename FROM TO, \
fsync PATH and so on; docs/scripts.md lists them. The whole script is checked before the first call. \
Each call is printed with its result. The volume is closed after the last call. Until then, on a disk, only \
`sync` and `fsync` of the script are sure to make changes durable.

Exit status: 0 every call succeeded, 1 a call failed, 2 not a script, 3 no such script or volume.")]
pub struct RunArgs {
    /// Script to run; - reads standard input
    #[arg(value_name = "SCRIPT")]
    script: PathBuf,
    /// Volume on which the calls are made
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Continue after a call that fails; the exit status is then 1
    #[arg(long, short)]
    keep_going: bool,
    /// Print a JSON object on a line of its own for each call
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &RunArgs, output: &mut Output) -> Result<()> {
    let (name, script) = input::script(&arguments.script)?;
    interrupt::install();
    volumes::with_volume(&arguments.volume, Purpose::Change, |volume| {
        // The umask does not apply, so that a script gives its files the same modes for every user.
        let files = volume.files(Credentials::of_process().with_umask(0));
        perform(&script, &files, &name, arguments, output)
    })
}

/// Makes the calls, and prints each after it returns. Without `--keep-going` the first call that fails ends
/// the script. If standard output is closed, the remaining calls are still made.
fn perform(
    script: &Script,
    files: &Files,
    name: &str,
    arguments: &RunArgs,
    output: &mut Output,
) -> Result<()> {
    let (mut failed, mut printed) = (0, Ok(()));
    for done in script.run(files) {
        if printed.is_ok() {
            printed = print(&done, arguments.json, output);
        }
        if let Err(error) = &done.result {
            failed += 1;
            if !arguments.keep_going {
                let place = format_args!("{name}:{}", done.line.number);
                let why = format_args!("{error}: --keep-going goes on after it");
                return Err(Failure::new("stopped at a call that failed", place, why));
            }
        }
        interrupt::check("run")?;
    }
    match failed {
        0 => printed,
        _ => {
            let calls = text::counted(script.lines().len() as u64, "call", "calls");
            Err(Failure::new("not every call succeeded", name, format_args!("{failed} of {calls} failed")))
        }
    }
}

/// Prints a call and flushes the output, so that a reader sees the progress of the script.
fn print(done: &CallOutcome<'_>, as_json: bool, output: &mut Output) -> Result<()> {
    if as_json {
        let error = done.result.as_ref().err().map(|error| error.meaning().to_string());
        let (line, call) = (done.line.number, done.line.call.to_string());
        writeln!(output, "{}", json!({ "line": line, "call": call, "error": error }))?;
    } else {
        writeln!(output, "{done}")?;
    }
    Ok(output.flush()?)
}
