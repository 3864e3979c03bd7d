//! Arguments of `run`.

use std::path::PathBuf;

use clap::Args;

/// See [`super::Command::Run`].
#[derive(Debug, Args)]
pub struct Run {
    /// The script; - reads it from standard input
    #[arg(value_name = "SCRIPT")]
    pub script: PathBuf,
    /// The volume
    #[arg(value_name = "VOLUME")]
    pub volume: PathBuf,
    /// Go on after calls that fail; the exit status is still 0 only if every call succeeded
    #[arg(long, short)]
    pub keep_going: bool,
}
