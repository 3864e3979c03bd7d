//! Measures two volumes of a million files of 1 KiB: the time to open each volume, the space that the files
//! take in the volume, and the private memory of a process that has opened the volume.
//!
//! Each step runs in a separate process, so that no step profits from the memory of another step.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use eyrie::{Credentials, PosixExt, Volume};

use super::figure::Figure;
use crate::run::{Result, output, private_mib};

const FILES: u32 = 1_000_000;
/// Number of files of one directory, in the volume with many directories.
const IN_ONE: u32 = 1000;
const FILE_BYTES: usize = 1024;
const VOLUME_BYTES: u64 = 4 << 30;
const MIB: f64 = (1 << 20) as f64;

/// Runs all steps below `memory`, a directory of the host.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (fill, shape) in [("fill-many", "directories of 1,000"), ("fill-one", "one directory")] {
        let volume = memory.join(format!("eyrie-figures-{}", std::process::id()));
        let done = steps(fill, shape, &volume);
        // If the volume cannot be removed, making the next volume at the same path fails and says why.
        let _ = std::fs::remove_dir_all(&volume);
        figures.extend(done?);
    }
    Ok(figures)
}

/// Fills a volume, opens it twice, and returns the figures. No process closes the volume after the first
/// open, so the second open needs a recovery.
fn steps(fill: &str, shape: &str, volume: &Path) -> Result<Vec<Figure>> {
    let program = std::env::current_exe()?;
    let child = |step: &str| -> Result<Vec<f64>> {
        let printed = output(Command::new(&program).args(["child", step]).arg(volume))?;
        Ok(printed.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?)
    };
    let used = child(fill)?;
    let (clean, crashed) = (child("open")?, child("open")?);
    let [used] = used[..] else { return Err("the step that fills a volume did not print one number".into()) };
    let ([clean_ms, memory, 0.0], [crashed_ms, crashed_memory, 1.0]) = (&clean[..], &crashed[..]) else {
        return Err(format!("opening the volume printed unexpected numbers: {clean:?}, {crashed:?}").into());
    };
    let name = |what: &str| format!("1,000,000 files in {shape}: {what}");
    Ok(vec![
        Figure::at_most(name("space"), 1.5, used / 1024.0, " GiB"),
        Figure::at_most(name("open, closed before"), 10.0, *clean_ms, " ms"),
        Figure::at_most(name("open of a volume that was not closed"), 1000.0, *crashed_ms, " ms"),
        Figure::at_most(name("memory beside the mapping"), 64.0, memory.max(*crashed_memory), " MiB"),
    ])
}

/// Makes a volume with the files in many directories, and closes it.
pub fn fill_many(path: &Path) -> Result<()> {
    fill(path, IN_ONE)
}

/// Makes a volume with the files in one directory, and closes it.
pub fn fill_one(path: &Path) -> Result<()> {
    fill(path, FILES)
}

/// Opens the volume, and ends the process without closing the volume. Prints the time of the open, the
/// private memory of the process, and 1 if the open made a recovery (otherwise 0).
pub fn open(path: &Path) -> Result<()> {
    let started = Instant::now();
    let volume = Volume::open(path)?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    println!("{ms} {} {}", private_mib(std::process::id())?, u8::from(volume.information().recovered));
    // The process exits without closing the volume, as if it were killed.
    std::process::exit(0);
}

/// Makes a volume with `in_one` files in each directory, and prints the space that the files use, in MiB.
fn fill(path: &Path, in_one: u32) -> Result<()> {
    let volume = Volume::create(path, VOLUME_BYTES)?;
    let files = volume.files(Credentials::of_process());
    let data = [7; FILE_BYTES];
    for number in 0..FILES {
        let dir = format!("/{:06}", number / in_one);
        if number % in_one == 0 {
            files.create_dir(&dir)?;
        }
        files.write(format!("{dir}/file-{number:07}"), data)?;
    }
    let used = volume.information().used_bytes as f64 / MIB;
    drop(files);
    volume.close()?;
    println!("{used}");
    Ok(())
}
