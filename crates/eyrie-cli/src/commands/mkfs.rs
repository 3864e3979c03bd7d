//! `eyrie mkfs`: makes a volume.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use eyrie::{Information, MediumChoice, Volume};
use serde_json::json;

use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::{text, volumes};

/// Make a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie mkfs /dev/shm/vol --size 4G
  eyrie mkfs vol --size 512M --quiet
  eyrie mkfs /mnt/pmem/vol --size 4G --medium pmem
  eyrie mkfs /srv/vol --size 64G --medium paged
  eyrie mkfs /dev/vdb --checksums

A volume is a whole block device, or a new directory whose file takes storage as the volume is used.")]
pub struct MkfsArgs {
    /// Volume to make: a new directory, or a block device
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Size of the volume, such as 512M or 4G; required except for a block device [default: the whole device]
    #[arg(long, short, value_parser = text::parse_size)]
    size: Option<u64>,
    /// Medium of the volume, which cannot be changed later
    #[arg(long, value_enum, default_value_t)]
    medium: MediumArg,
    /// Give each page a checksum, which is compared when the page is read; only on a disk; the choice cannot
    /// be changed later
    #[arg(long)]
    checksums: bool,
    /// Overwrite a block device that has contents
    #[arg(long)]
    force: bool,
    /// Size of an allocation group, for tests
    #[arg(long, value_parser = text::parse_size, hide = true)]
    group_size: Option<u64>,
    /// Print the properties of the volume as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing if the command succeeds
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

/// The value of `--medium`.
#[derive(Clone, Copy, Default, Debug, ValueEnum)]
enum MediumArg {
    /// Chosen for the place: pmem on persistent memory with DAX, dram on a file system in memory, else paged
    #[default]
    Auto,
    /// Memory: changes survive the end of the process, but not a restart of the host
    Dram,
    /// Persistent memory mounted with DAX: changes survive a power failure
    Pmem,
    /// Disk, as files or a block device: all changes except unsynchronised ones of the last seconds survive a
    /// power failure
    Paged,
}

impl From<MediumArg> for MediumChoice {
    fn from(medium: MediumArg) -> MediumChoice {
        match medium {
            MediumArg::Auto => MediumChoice::Auto,
            MediumArg::Dram => MediumChoice::Dram,
            MediumArg::Pmem => MediumChoice::Pmem,
            MediumArg::Paged => MediumChoice::Paged,
        }
    }
}

pub fn run(arguments: &MkfsArgs, output: &mut Output) -> Result<()> {
    let place = text::path(&arguments.volume);
    if !volumes::is_device(&arguments.volume) {
        volumes::refuse_existing(&arguments.volume, "choose another name")?;
        if arguments.size.is_none() {
            let why = "it needs a size, such as --size 4G: see `eyrie mkfs --help`";
            return Err(Failure::usage("cannot make a volume", place, why));
        }
    }
    let mut options = Volume::options().medium(arguments.medium.into()).overwrite(arguments.force);
    options = options.checksums(arguments.checksums);
    if let Some(bytes) = arguments.size {
        options = options.size(bytes);
    }
    if let Some(bytes) = arguments.group_size {
        options = options.group_size(bytes);
    }
    // An existing path that is not a device was refused above. So only a device can have contents here, and
    // `--force` overwrites them.
    let volume = volumes::create(&arguments.volume, options, ": --force overwrites it")?;
    let Information { id, medium, size_bytes, .. } = volume.information();
    volume.close().doing("close the volume", &place)?;
    if arguments.json {
        let volume = arguments.volume.to_string_lossy();
        let medium = medium.to_string();
        return output
            .json(&json!({ "volume": volume, "id": id, "medium": medium, "size_bytes": size_bytes }));
    }
    if arguments.quiet {
        return Ok(());
    }
    writeln!(output, "made volume {place}: {} on {medium}, id {id}", text::size(size_bytes))?;
    Ok(())
}
