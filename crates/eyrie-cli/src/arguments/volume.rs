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
    /// Bytes it may take, such as 4G or 512M
    #[arg(long, short, value_parser = text::parse_size)]
    pub size: u64,
    /// What it is kept on, from now on
    #[arg(long, value_enum, default_value_t)]
    pub medium: Medium,
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
    /// Bytes it may take from now on, such as 4G or 512M
    #[arg(value_name = "SIZE", value_parser = text::parse_size)]
    pub size: u64,
}

/// What a volume is kept on.
#[derive(Clone, Copy, Default, Debug, ValueEnum)]
pub enum Medium {
    /// Persistent memory where the host has it, else shared memory
    #[default]
    Auto,
    /// Shared memory: what is done survives the death of the process
    Dram,
    /// Persistent memory mounted with DAX: what is done survives a failure of power
    Pmem,
    /// A disk: what was synchronised survives a failure of power
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
