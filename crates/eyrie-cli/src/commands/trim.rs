//! `eyrie trim`: gives free storage of a volume back to the host.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::failure::Result;
use crate::output::Output;
use crate::volumes::Purpose;
use crate::{text, volumes};

/// Give free storage of a volume back to the host
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie trim /dev/shm/vol
  eyrie trim --json vol

Storage is given back in whole empty allocation groups of 64 MiB or less. Closing a volume also gives back \
the groups that became empty since the volume was opened. On a block device the blocks of all empty groups \
are discarded, and the printed size is the size of all these groups.")]
pub struct TrimArgs {
    /// Volume to trim
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Print the number of bytes given back as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing if the command succeeds
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

pub fn run(arguments: &TrimArgs, output: &mut Output) -> Result<()> {
    let path = &arguments.volume;
    let bytes = volumes::with_volume(path, Purpose::Change, |volume| {
        volume.trim().map_err(|error| volumes::refused("cannot trim the volume", path, &error))
    })?;
    if arguments.json {
        return output.json(&json!({ "trimmed_bytes": bytes }));
    }
    if arguments.quiet {
        return Ok(());
    }
    writeln!(output, "{}: {} given back", text::path(path), text::size(bytes))?;
    Ok(())
}
