//! `run`.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use eyrie::{Credentials, Files};
use eyrie_sim::script::{Done, MOST_SCRIPT_BYTES, Script};

use super::with_volume;
use crate::arguments::Run;
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{interrupt, text};

/// Runs a script.
pub fn run(arguments: &Run, output: &mut Output) -> Result<()> {
    let (name, script) = read(&arguments.script)?;
    let script = Script::parse(&name, &script).map_err(|error| Failure::of_line(error).with_status(2))?;
    interrupt::watch();
    with_volume(&arguments.volume, |volume| {
        // No umask: a script gives the same to everybody.
        let files = volume.files(Credentials::of_process());
        perform(&script, &files, &name, arguments.keep_going, output)
    })
}

/// A script's name for messages, and its text as far as any script goes.
pub(super) fn read(path: &Path) -> Result<(String, Vec<u8>)> {
    let most = MOST_SCRIPT_BYTES as u64 + 1;
    let mut script = Vec::new();
    if path == Path::new("-") {
        let name = "standard input".to_owned();
        std::io::stdin().lock().take(most).read_to_end(&mut script).doing("read", &name)?;
        return Ok((name, script));
    }
    let name = text::path(path);
    let file = File::open(path).doing("read the script", &name)?;
    file.take(most).read_to_end(&mut script).doing("read the script", &name)?;
    Ok((name, script))
}

/// Makes the calls and prints each when it has returned. When nobody reads that any more, they are made all the same.
fn perform(script: &Script, files: &Files, name: &str, keep_going: bool, output: &mut Output) -> Result<()> {
    let (mut failed, mut told) = (0, Ok(()));
    for done in script.run(files) {
        if told.is_ok() {
            told = tell(&done, output);
        }
        if let Err(error) = &done.result {
            failed += 1;
            if !keep_going {
                let place = format_args!("{name}:{}", done.line.number);
                let why = format_args!("{error}: --keep-going goes on after it");
                return Err(Failure::new("stopped at a call that failed", place, why));
            }
        }
        interrupt::check("run")?;
    }
    match failed {
        0 => told,
        _ => {
            let calls = text::counted(script.lines().len() as u64, "call", "calls");
            Err(Failure::new("not every call succeeded", name, format_args!("{failed} of {calls} failed")))
        }
    }
}

/// Prints a call at once, so that who reads along knows how far the script is.
fn tell(done: &Done<'_>, output: &mut Output) -> Result<()> {
    writeln!(output, "{done}")?;
    Ok(output.flush()?)
}
