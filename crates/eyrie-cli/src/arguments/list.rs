//! Arguments of what lists directories.

use clap::Args;

use super::place;
use crate::place::Place;

/// See [`super::Command::Ls`].
#[derive(Debug, Args)]
pub struct Ls {
    /// What to list
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = place())]
    pub places: Vec<Place>,
    /// Modes, links, owners, sizes and times (in UTC)
    #[arg(long, short)]
    pub long: bool,
    /// Names that begin with a dot too
    #[arg(long, short)]
    pub all: bool,
    /// Directories inside directories too
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Print JSON, one array of entries
    #[arg(long)]
    pub json: bool,
}

/// See [`super::Command::Tree`].
#[derive(Debug, Args)]
pub struct Tree {
    /// The directory
    #[arg(value_name = "VOLUME:/dir", value_parser = place())]
    pub place: Place,
    /// Names that begin with a dot too
    #[arg(long, short)]
    pub all: bool,
    /// Levels to show
    #[arg(long, value_name = "LEVELS", default_value_t = u32::MAX, hide_default_value = true)]
    pub depth: u32,
    /// Print all there is to know, the same for the same contents, in the order of paths
    #[arg(long, conflicts_with_all = ["all", "depth"])]
    pub canonical: bool,
    /// With modification times
    #[arg(long, requires = "canonical")]
    pub times: bool,
}
