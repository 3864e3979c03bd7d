//! `eyrie cat`: writes files to standard output.

use std::io::Write;

use clap::Args;
use eyrie::PosixExt;

use crate::failure::{Doing, Result};
use crate::opened::for_each;
use crate::output::Output;
use crate::place::{self, Place};

/// Bytes of the read buffer.
const CHUNK_BYTES: usize = 256 << 10;

/// Write files to standard output
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eyrie cat vol:/share/dict/words | head\n  eyrie cat vol:/a vol:/b > both"
)]
pub struct CatArgs {
    /// Files to write
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
}

pub fn run(arguments: CatArgs, output: &mut Output) -> Result<()> {
    let places = place::all_inside(arguments.places)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    for_each(&places, |files, inside| {
        let file = files.open_file(&inside.path).doing("read", inside)?;
        let mut offset = 0;
        loop {
            let count = file.read_at(&mut buffer, offset).doing("read", inside)?;
            if count == 0 {
                return Ok(());
            }
            output.write_all(&buffer[..count])?;
            offset += count as u64;
        }
    })
}
