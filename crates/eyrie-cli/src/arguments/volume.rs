//! Arguments of what makes and changes volumes as a whole.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use eyrie::MediumChoice;

use crate::text;

/// See [`super::Command::Mkfs`].
#[derive(Debug, Args)]
pub struct Mkfs {
    /// The new volume
    #[arg(value_name = "VOLUME")]
    pub volume: PathBuf,
    /// Bytes it may take, such as 4G or 512M; not for a block device
    #[arg(long, short, value_parser = text::parse_size)]
    pub size: Option<u64>,
    /// What it is kept on, from now on
    #[arg(long, value_enum, default_value_t)]
    pub medium: Medium,
    /// Take a block device even if something is on it, which is lost
    #[arg(long)]
    pub force: bool,
    /// Bytes of one allocation group (for tests)
    #[arg(long, value_parser = text::parse_size, hide = true)]
    pub group_size: Option<u64>,
}

/// See [`super::Command::Resize`].
#[derive(Debug, Args)]
pub struct Resize {
    /// The volume
    #[arg(value_name = "VOLUME")]
    pub volume: PathBuf,
    /// Bytes it may take from now on, such as 4G or 512M; all that its block device has room for, if not given
    #[arg(value_name = "SIZE", value_parser = text::parse_size)]
    pub size: Option<u64>,
}

/// What a volume is kept on.
#[derive(Clone, Copy, Default, Debug, ValueEnum)]
pub enum Medium {
    /// What suits the place: pmem where the host has it, dram on a file system in memory, else paged
    #[default]
    Auto,
    /// Memory: what is done survives the death of the process
    Dram,
    /// Persistent memory mounted with DAX: what is done survives a failure of power
    Pmem,
    /// A disk, as files or a block device: what is synchronised, and all but the last seconds, survives a failure of power
    Paged,
}

impl From<Medium> for MediumChoice {
    fn from(medium: Medium) -> MediumChoice {
        match medium {
            Medium::Auto => MediumChoice::Auto,
            Medium::Dram => MediumChoice::Dram,
            Medium::Pmem => MediumChoice::Pmem,
            Medium::Paged => MediumChoice::Paged,
        }
    }
}

/// See [`Command::Fsck`](super::Command::Fsck).
#[derive(Debug, Args)]
pub struct Fsck {
    /// The volume
    #[arg(value_name = "VOLUME")]
    pub volume: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// If something is wrong, build a sound volume of what is left
    #[arg(long)]
    pub repair: bool,
    /// Where to build it, if not in place of the damaged one, which then stays as it is
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub into: Option<PathBuf>,
    /// Remove the damaged volume instead of keeping it as VOLUME.damaged
    #[arg(long, requires = "repair", conflicts_with = "into")]
    pub discard: bool,
}
