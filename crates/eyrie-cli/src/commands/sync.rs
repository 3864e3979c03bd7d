//! `eyrie sync`: recovers volumes that were not closed, and closes them.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Failures, Result};
use crate::output::Output;
use crate::place::real;
use crate::volumes::Purpose;
use crate::{text, volumes};

/// Recover volumes that were not closed, and save them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie sync /dev/shm/vol
  eyrie sync --json one two

Every command that changes a volume saves it at the end, so a sync is useful after a program was killed. On \
a disk, a sync also writes the changes in the journal to their places. Commands that only read a volume \
recover it in memory each time, until a sync or another change has recovered the volume itself.")]
pub struct SyncArgs {
    /// Volumes to recover and save
    #[arg(value_name = "VOLUME", required = true)]
    volumes: Vec<PathBuf>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    /// Print nothing if the command succeeds
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

pub fn run(arguments: &SyncArgs, output: &mut Output) -> Result<()> {
    output.need_no_reader();
    let mut values = Vec::new();
    let mut failures = Failures::default();
    let mut done: Vec<(PathBuf, bool)> = Vec::new();
    for path in &arguments.volumes {
        // A volume that two arguments name is opened once.
        let real = real(path);
        let saved = match done.iter().find(|(known, _)| *known == real) {
            Some(&(_, recovered)) => Ok(recovered),
            None => volumes::with_volume(path, Purpose::Change, |volume| Ok(volume.information().recovered)),
        };
        if let Ok(recovered) = saved {
            done.push((real, recovered));
        }
        failures.add(match saved {
            Err(failure) => Err(failure),
            Ok(recovered) if arguments.json => {
                values.push(json!({ "volume": path.to_string_lossy(), "recovered": recovered }));
                Ok(())
            }
            Ok(_) if arguments.quiet => Ok(()),
            Ok(recovered) => {
                let what = if recovered { "recovered and saved" } else { "was saved already" };
                writeln!(output, "{}: {what}", text::path(path)).map_err(Into::into)
            }
        })?;
    }
    if arguments.json {
        output.json(&Value::Array(values))?;
    }
    failures.finish()
}
