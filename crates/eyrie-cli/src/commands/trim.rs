//! `eyrie trim`: gives free storage of a volume back to the host.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::failure::Result;
use crate::output::Output;
use crate::{text, volumes};

/// Give unused storage of a volume back to the host
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie trim /dev/shm/vol
  eyrie trim --json vol

Storage is given back in whole allocation groups of 64 MiB that are empty. Closing a volume also gives back \
the groups that became empty since it was opened. On a block device the blocks of all empty groups are \
discarded; a device does not report how many it had kept.")]
pub struct TrimArgs {
    /// The volume
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &TrimArgs, output: &mut Output) -> Result<()> {
    let path = &arguments.volume;
    let bytes = volumes::with_volume(path, |volume| {
        volume.trim().map_err(|error| volumes::refused("cannot trim the volume", path, &error))
    })?;
    if arguments.json {
        return output.json(&json!({ "trimmed_bytes": bytes }));
    }
    writeln!(output, "{}: {} given back", text::path(path), text::size(bytes))?;
    Ok(())
}
