//! `eyrie df`: shows the used and the free space of volumes.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use eyrie::Information;
use serde_json::{Value, json};

use crate::failure::{Failures, Result, with_earlier};
use crate::opened::with_volumes;
use crate::output::{Output, table};
use crate::text;

/// Show used and free space of volumes
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  eyrie df vol\n  eyrie df -h vol\n  eyrie df --json vol /dev/shm/other"
)]
pub struct DfArgs {
    /// Volumes to show
    #[arg(value_name = "VOLUME", required = true)]
    volumes: Vec<PathBuf>,
    /// Show sizes in the form of `ls -lh`, such as 1.5K or 20M, instead of 1.5 KiB or 20.0 MiB
    #[arg(long, short = 'h')]
    human_readable: bool,
    /// Print a JSON array, with sizes in bytes
    #[arg(long, conflicts_with = "human_readable")]
    json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: (),
}

pub fn run(arguments: &DfArgs, output: &mut Output) -> Result<()> {
    let mut values = Vec::new();
    let mut rows = table(&["Volume", "Size", "Used", "Free", "Use", "Objects"], &[1, 2, 3, 4, 5]);
    let mut failures = Failures::default();
    with_volumes([], |volumes| {
        for path in &arguments.volumes {
            let shown = volumes.get(path).map(|(_, volume)| {
                let information = volume.information();
                values.push(json(path, &information));
                rows.add_row(row(path, &information, arguments.human_readable));
            });
            failures.add(shown)?;
        }
        Ok(())
    })?;
    let printed = if arguments.json {
        output.json(&Value::Array(values))
    } else if !values.is_empty() {
        output.table(&rows).map_err(Into::into)
    } else {
        Ok(())
    };
    with_earlier(printed, failures.finish())
}

fn json(path: &Path, information: &Information) -> Value {
    json!({
        "volume": path.to_string_lossy(),
        "size_bytes": information.size_bytes,
        "used_bytes": information.used_bytes,
        "free_bytes": information.free_bytes,
        "objects": information.objects,
    })
}

fn row(path: &Path, information: &Information, human_readable: bool) -> [String; 6] {
    let size = if human_readable { text::short_size } else { text::size };
    let percent = information.used_bytes as f64 * 100.0 / information.size_bytes.max(1) as f64;
    [
        text::path(path),
        size(information.size_bytes),
        size(information.used_bytes),
        size(information.free_bytes),
        format!("{percent:.0} %"),
        text::count(information.objects),
    ]
}
