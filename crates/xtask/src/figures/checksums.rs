//! Compares two volumes on one disk: one with checksums of its pages, and one without. Measurements of both
//! alternate.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eyrie::{Credentials, MediumChoice, PosixExt, Volume};

use super::disk::{
    COLD_BYTES, COLD_FILE, DiskCalls, cold_block, compare_cold_file, make_cold, make_cold_file, read_through,
};
use super::figure::{Figure, Measured, median};
use crate::run::Result;

const ROUNDS: usize = 9;
/// Number of calls of each kind in a round. Each call is made durable before the next call.
const CALLS: usize = 60;
/// Number of random reads in a round.
const READS: usize = 10_000;
const BLOCK: usize = 4096;
const VOLUME_BYTES: u64 = 4 << 30;
/// Maximum time of a call on a volume with checksums, divided by the time on a volume without them.
const SLOWER: f64 = 1.1;

/// Measures both volumes in the directory `disk`.
pub fn measure(disk: &Path) -> Result<Vec<Figure>> {
    let paths = [disk.join("plain"), disk.join("checksums")];
    for (path, checksums) in paths.iter().zip([false, true]) {
        if path.exists() {
            std::fs::remove_dir_all(path)?;
        }
        let options = Volume::options().size(VOLUME_BYTES).medium(MediumChoice::Paged);
        let volume = options.checksums(checksums).create(path)?;
        make_cold_file(&volume.files(Credentials::of_process()))?;
        volume.close()?;
    }
    let mut figures = durable_calls(&paths)?;
    figures.push(compare("cold sequential read", &paths, |path| {
        make_cold()?;
        let volume = Volume::open(path)?;
        let files = volume.files(Credentials::of_process());
        let seconds = read_through(&files)?;
        compare_cold_file(&files)?;
        Ok(seconds)
    })?);
    figures.push(compare("cold random reads of 4 KiB", &paths, |path| {
        make_cold()?;
        let volume = Volume::open(path)?;
        read_at_random(&volume.files(Credentials::of_process()))
    })?);
    for path in paths {
        std::fs::remove_dir_all(path)?;
    }
    Ok(figures)
}

/// Returns the order of the volumes in a round. Each volume is the first one in about half of the rounds.
fn sides(round: usize) -> [usize; 2] {
    [round % 2, 1 - round % 2]
}

/// Compares a measurement of the volume without checksums with that of the volume with checksums.
fn compare(name: &str, paths: &[PathBuf; 2], measure: impl Fn(&Path) -> Result<f64>) -> Result<Figure> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for side in sides(round) {
            times[side].push(measure(&paths[side])?);
        }
    }
    Ok(figure(name, times))
}

fn figure(name: &str, [plain, checked]: [Vec<f64>; 2]) -> Figure {
    let ratio = Measured::of_ratios(&checked, &plain);
    Figure::at_most(format!("checksums: {name}"), SLOWER, ratio, " × without checksums")
}

/// Measures calls that are made durable one by one.
fn durable_calls(paths: &[PathBuf; 2]) -> Result<Vec<Figure>> {
    let volumes = [Volume::open(&paths[0])?, Volume::open(&paths[1])?];
    let files = volumes.each_ref().map(|volume| volume.files(Credentials::of_process()));
    let calls = [DiskCalls::new(&files[0])?, DiskCalls::new(&files[1])?];
    type Call = (&'static str, fn(&DiskCalls<'_, eyrie::Files>, usize) -> Result<()>);
    let kinds: [Call; 3] = [
        ("4 KiB overwrite + fsync", |calls, number| calls.overwrite(number)),
        ("4 KiB append + fsync", |calls, _| calls.append()),
        ("create of 4 KiB + fsync", |calls, number| calls.create(number)),
    ];
    let mut figures = Vec::new();
    for (name, call) in kinds {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for side in sides(round) {
                let mut round_times = Vec::new();
                for number in round * CALLS..(round + 1) * CALLS {
                    let started = Instant::now();
                    call(&calls[side], number)?;
                    round_times.push(started.elapsed().as_secs_f64());
                }
                times[side].push(median(&round_times));
            }
        }
        figures.push(figure(name, times));
    }
    Ok(figures)
}

/// Reads random blocks of [`COLD_FILE`], and returns the time in seconds.
fn read_at_random(files: &eyrie::Files) -> Result<f64> {
    let file = files.options().read(true).open(COLD_FILE)?;
    let mut buffer = [0; BLOCK];
    let blocks = COLD_BYTES / BLOCK as u64;
    let mut spent = Duration::ZERO;
    for number in 0..READS as u64 {
        // The factor is odd, and the number of blocks is a power of two, so no block is read twice.
        let offset = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks * BLOCK as u64;
        let started = Instant::now();
        file.read_exact_at(&mut buffer, offset)?;
        spent += started.elapsed();
        if buffer[..] != cold_block(offset, BLOCK) {
            return Err(format!("the block at {offset} is wrong").into());
        }
    }
    Ok(spent.as_secs_f64())
}
