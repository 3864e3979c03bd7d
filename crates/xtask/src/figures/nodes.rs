//! Measures the memory of held nodes, which a mount keeps for each object that the kernel knows.

use std::path::Path;

use eyrie::{Credentials, PosixExt, Volume};

use super::figure::Figure;
use super::in_scratch;
use crate::run::{Result, private_mib};

const OBJECTS: u32 = 1_000_000;
const VOLUME_BYTES: u64 = 2 << 30;
/// Maximum memory of a million holds, in MiB. A slot of the hash tables takes 17 bytes, and after a growth at
/// least 7/16 of the slots are full. The limit also has room for the smaller tables before the last growth.
const HELD_MIB: f64 = 80.0;
/// Number of times that all objects are held and released.
const ROUNDS: usize = 4;
/// Maximum growth of the memory of all holds from the first round to the last, in MiB.
const GROWTH_MIB: f64 = 8.0;

/// Looks a million objects up, and then forgets them. Each look-up holds its object.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    in_scratch(memory, "nodes", |path| {
        let volume = Volume::create(path, VOLUME_BYTES)?;
        let user = Credentials::root();
        let files = volume.files(user.clone());
        files.create_dir("/dir")?;
        (0..OBJECTS).try_for_each(|number| files.write(format!("/dir/{number}"), []))?;
        let nodes = volume.nodes();
        let dir = nodes.lookup(&user, nodes.root(), b"dir")?.id;
        // The list takes all of its memory here, before the first measurement, because only the memory of the
        // holds is measured.
        let mut ids = vec![dir; OBJECTS as usize];
        let start = private_mib(std::process::id())?;
        let mut held = Vec::new();
        for _ in 0..ROUNDS {
            for (number, id) in ids.iter_mut().enumerate() {
                *id = nodes.lookup(&user, dir, number.to_string().as_bytes())?.id;
            }
            held.push(private_mib(std::process::id())? - start);
            let count = nodes.held().len();
            ids.iter().for_each(|&id| nodes.forget(id, 1));
            // The directory is still held.
            if (count, nodes.held().len()) != (OBJECTS as usize + 1, 1) {
                return Err(format!("{count} objects were held").into());
            }
        }
        nodes.forget(dir, 1);
        drop((nodes, files));
        println!("MiB of {OBJECTS} holds, in each round: {held:.1?}");
        volume.close()?;
        let growth = held[ROUNDS - 1] - held[0];
        Ok(vec![
            Figure::at_most(format!("memory of {OBJECTS} held nodes"), HELD_MIB, held[0], " MiB"),
            Figure::at_most("growth of this memory", GROWTH_MIB, growth, " MiB"),
        ])
    })
}
