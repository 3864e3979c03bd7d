//! `eyrie sync`: recovers volumes that were not closed, and closes them.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Failures, Result};
use crate::output::Output;
use crate::volumes::Purpose;
use crate::{text, volumes};

/// Recover volumes that were not closed, and save them on their media
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie sync /dev/shm/vol
  eyrie sync --json one two

Every command that changes a volume saves it at the end, so a sync is useful after a program was killed. On \
a disk it also writes the changes in the journal to their places. Commands that only read a volume recover \
it in memory each time, until a sync or another change has recovered the volume itself.")]
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
    let mut values = Vec::new();
    let mut failures = Failures::default();
    for path in &arguments.volumes {
        let saved = volumes::with_volume(path, Purpose::Change, |volume| Ok(volume.information().recovered));
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
