//! Quick start: makes a volume, keeps files and keys in it, closes it, and opens it again.
//!
//! `cargo run -p eyriefs --example quick_start` uses a temporary directory. With a path as its argument, the
//! program keeps the volume there. Run it several times: it counts its runs.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

use eyrie::{Credentials, PosixExt, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(path) = std::env::args_os().nth(1) {
        visit(&PathBuf::from(path))?;
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let path = scratch.path().join("volume");
    assert_eq!(visit(&path)?, 1);
    assert_eq!(visit(&path)?, 2, "the second open finds the count of the first");
    Ok(())
}

/// Opens the volume at `path`, uses its files and its keys, and closes it. Returns the number of visits.
fn visit(path: &Path) -> Result<u64, Box<dyn Error>> {
    // If no volume is there, this call makes one that holds up to 64 MiB.
    let volume = Volume::open_or_create(path, 64 << 20)?;
    let visits = count_visit(&volume)?;
    println!("visit {visits} of the volume {} (medium {})", path.display(), volume.information().medium);
    write_diary(&volume, visits)?;
    // The functions above have dropped their files and stores, so the volume can be closed. A drop of the
    // volume would save it, too, but would not return an error.
    volume.close()?;
    Ok(visits)
}

/// Uses keys and values, which live in a directory of the volume.
fn count_visit(volume: &Volume) -> Result<u64, Box<dyn Error>> {
    let me = Credentials::of_process();
    volume.files(me.clone()).create_dir_all("/counters")?;
    let counters = volume.store("/counters", me)?;
    let visits = match counters.get("visits")? {
        Some(value) => String::from_utf8(value)?.parse::<u64>()? + 1,
        None => 1,
    };
    counters.put("visits", visits.to_string())?;
    Ok(visits)
}

/// Uses files and directories, with calls like those of `std::fs`.
fn write_diary(volume: &Volume, visits: u64) -> Result<(), Box<dyn Error>> {
    let files = volume.files(Credentials::of_process());
    files.create_dir_all("/diary")?;
    let mut diary = files.options().append(true).create(true).open("/diary/visits.txt")?;
    writeln!(diary, "visit {visits}: an eagle was here")?;
    diary.sync_all()?; // durable now, also on a disk

    let text = files.read_to_string("/diary/visits.txt")?;
    assert_eq!(text.lines().count() as u64, visits);
    print!("{text}");
    for entry in files.read_dir("/")? {
        println!("in the root: {}", entry?.path().display());
    }
    // A value is a file, so the calls on files see the keys, too.
    assert_eq!(files.read_to_string("/counters/visits")?, visits.to_string());
    Ok(())
}
