//! `eyrie mkdir`: makes directories.

use clap::Args;
use eyrie::PosixExt;

use crate::failure::{Doing, Result};
use crate::opened::for_each;
use crate::place::{self, Place};
use crate::volumes::Purpose;

/// Make directories
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie mkdir vol:/new\n  eyrie mkdir -p vol:/a/b/c")]
pub struct MkdirArgs {
    /// Directories to make
    #[arg(value_name = "VOLUME:/dir", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Make missing parent directories, and accept existing directories
    #[arg(long, short)]
    parents: bool,
}

pub fn run(arguments: &MkdirArgs) -> Result<()> {
    let places = place::all_inside(&arguments.places)?;
    for_each(&places, Purpose::Change, |files, inside| {
        let made = if arguments.parents {
            // The components leave out a dot at the end of the path, because no directory can be made as `.`.
            files.create_dir_all(inside.path.components().as_path())
        } else {
            files.create_dir(&inside.path)
        };
        made.doing("make the directory", inside)
    })
}
