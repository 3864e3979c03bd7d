//! `eyrie resize`: makes a volume larger or smaller.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use eyrie::Volume;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::volumes::Purpose;
use crate::{text, volumes};

/// Make a volume larger or smaller
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie resize /dev/shm/vol 8G
  eyrie resize vol 300M
  eyrie resize /dev/vdb
  eyrie resize /dev/vdb 64G

The volume must not be open. No data is moved, so the last used byte limits how small the volume can get. \
The largest size is fixed when the volume is made: 16 times its first size, but at most 1 TiB, rounded up \
to a multiple of 2 GiB. `eyrie info` shows it as `max size`. On a block device the volume cannot be larger \
than the device. Enlarge the device before the volume, and shrink the volume before the device. `eyrie \
info` shows how much of the device the volume needs.")]
pub struct ResizeArgs {
    /// Volume to resize
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// New size, such as 512M or 4G; required except for a block device [default: the whole device]
    #[arg(value_name = "SIZE", value_parser = text::parse_size)]
    size: Option<u64>,
    /// Print the new size as JSON, in bytes
    #[arg(long)]
    json: bool,
    /// Print nothing if the command succeeds
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

pub fn run(arguments: &ResizeArgs, output: &mut Output) -> Result<()> {
    let ResizeArgs { volume: path, size, json, quiet } = arguments;
    let place = text::path(path);
    if size.is_none() && !volumes::is_device(path) {
        let why = "it needs a size, such as 4G: see `eyrie resize --help`";
        return Err(Failure::usage("cannot resize the volume", place, why));
    }
    Volume::resize_with(path, *size, volumes::paged())
        .map_err(|error| volumes::unopened("cannot resize the volume", path, &error))?;
    let bytes = match *size {
        Some(bytes) => bytes,
        None => volumes::with_volume(path, Purpose::Read, |volume| Ok(volume.information().size_bytes))?,
    };
    if *json {
        return output.json(&json!({ "volume": path.to_string_lossy(), "size_bytes": bytes }));
    }
    if *quiet {
        return Ok(());
    }
    writeln!(output, "resized volume {place}: {}", text::size(bytes))?;
    Ok(())
}
