//! `eyrie cat`: writes files to standard output.

use std::io::Write;

use clap::Args;
use eyrie::PosixExt;

use crate::copy::DataRuns;
use crate::failure::{Doing, Result};
use crate::opened::for_each;
use crate::output::Output;
use crate::place::{self, Inside, Place};
use crate::volumes::Purpose;

/// Bytes of the read buffer.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

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

pub fn run(arguments: &CatArgs, output: &mut Output) -> Result<()> {
    print(&place::all_inside(&arguments.places)?, output)
}

/// Writes the files at these places to standard output, one after the other.
pub(super) fn print(places: &[Inside], output: &mut Output) -> Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    for_each(places, Purpose::Read, |files, inside| {
        let file = files.open_file(&inside.path).doing("read", inside)?;
        let mut data = DataRuns::new(&file).doing("read", inside)?;
        let (mut offset, mut known) = (0, 0);
        loop {
            // A range of data and the hole before it are read together. A hole after the last range is read
            // until the file ends.
            if offset == known {
                known = data.next().doing("read", inside)?.map_or(u64::MAX, |run| run.end);
            }
            let room = usize::try_from(known - offset).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let count = file.read_at(&mut buffer[..room], offset).doing("read", inside)?;
            if count == 0 {
                return Ok(());
            }
            output.write_all(&buffer[..count])?;
            offset += count as u64;
        }
    })
}
