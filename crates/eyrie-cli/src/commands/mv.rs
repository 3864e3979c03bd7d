//! `eyrie mv`: renames files, and moves them between host and volumes.

use clap::Args;

use super::cp::copy_one;
use crate::endpoint::{Endpoint, for_each_source};
use crate::failure::{Doing, Result};
use crate::place::{self, Place};

/// Rename or move files
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  eyrie mv vol:/a vol:/b
  eyrie mv vol:/a vol:/dir
  eyrie mv report.txt vol:/reports/

A move inside a volume, or from host to host, is one atomic rename. Any other move copies the files, and \
then removes the originals.

{}", place::HELP))]
pub struct MvArgs {
    /// Files and directories to move
    #[arg(value_name = "SOURCE", required = true, value_parser = Place::parser())]
    sources: Vec<Place>,
    /// New name, or an existing directory to move into
    #[arg(value_name = "TARGET", value_parser = Place::parser())]
    target: Place,
}

pub fn run(arguments: MvArgs) -> Result<()> {
    for_each_source(&arguments.sources, &arguments.target, move_one)
}

fn move_one(from: &Endpoint, to: &Endpoint) -> Result<()> {
    if from.is_with(to) {
        let place = format!("{} to {}", from.shown(), to.shown());
        return from.rename(&from.path, &to.path).doing("move", place);
    }
    copy_one(from, to, true)?;
    // A copy in a volume must be durable before its source is removed.
    to.sync().doing("make durable", to.shown())?;
    from.remove().doing("remove after copying", from.shown())
}
