//! Arguments of `dump` and `load`.

use std::path::PathBuf;

use clap::Args;

use super::place;
use crate::place::Place;

/// See [`Command::Dump`](super::Command::Dump).
#[derive(Debug, Args)]
pub struct Dump {
    /// The directory
    #[arg(value_name = "VOLUME:/dir", value_parser = place())]
    pub from: Place,
    /// Where to write the archive; - or nothing is standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print each path when it is in the archive, with -o
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
    /// Print the summary as JSON, with -o
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Load`](super::Command::Load).
#[derive(Debug, Args)]
pub struct Load {
    /// The directory, new or empty
    #[arg(value_name = "VOLUME:/dir", value_parser = place())]
    pub to: Place,
    /// The archive; - or nothing is standard input
    #[arg(long, short, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Print each path when all of it is in the volume
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}
