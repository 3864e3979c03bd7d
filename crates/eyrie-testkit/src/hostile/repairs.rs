//! Repairs images on the host, as `eyrie fsck --repair` does.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use eyrie::{PagedOptions, Repair, Volume};
use eyrie_sim::explore::caught;

use super::{BaseVolume, Hostile, Image};

/// The acceptable reasons to refuse a repair. All concern the superblock, because a repair needs a sound copy
/// of it.
const REASONS: [&str; 4] = [
    "not an Eyrie volume",
    "newer format",
    "corrupt volume: both copies of the superblock",
    "corrupt volume: superblock",
];

/// Results of repairs. Counts are of images.
#[derive(Default, Debug)]
pub struct Repairs {
    /// Images that a repair found sound.
    pub sound: u64,
    /// Images that were repaired.
    pub repaired: u64,
    /// Images whose repair was refused for an acceptable reason, by that reason.
    pub refused: BTreeMap<String, u64>,
    /// Seeds whose repair panicked, failed for another reason, or made an unsound volume, with the message.
    pub unsound: Vec<(u64, String)>,
}

/// Repairs the images of these seeds in a directory in memory, or in the directory for temporary files if the
/// host has no directory in memory.
///
/// # Panics
/// Panics if the directory cannot be made.
pub fn repairs(bases: &[BaseVolume], seeds: Range<u64>) -> Repairs {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let mut report = Repairs::default();
    for seed in seeds {
        let Hostile { image, .. } = Hostile::new(bases, seed);
        let outcome = caught(|| one(&image, place.path())).unwrap_or_else(|panic| Err((false, panic)));
        match outcome {
            Ok(false) => report.sound += 1,
            Ok(true) => report.repaired += 1,
            Err((true, reason)) => *report.refused.entry(reason).or_default() += 1,
            Err((false, reason)) => report.unsound.push((seed, reason)),
        }
    }
    report
}

/// Repairs one image. Returns true if the image was damaged. An error has the reason, and a flag that is true
/// if the reason is acceptable.
fn one(image: &Image<'_>, place: &Path) -> Result<bool, (bool, String)> {
    let (damaged, sound) = (place.join("damaged"), place.join("sound"));
    for dir in [&damaged, &sound] {
        let _ = fs::remove_dir_all(dir);
    }
    fs::create_dir(&damaged).expect("a directory");
    fs::write(damaged.join("lock"), b"").expect("memory");
    fs::write(damaged.join("segment-0000"), image.to_bytes()).expect("memory");
    let repaired = Repair::new().into(&sound).run(&damaged).map_err(|error| {
        let reason = error.to_string().replace(&damaged.display().to_string(), "VOLUME");
        (REASONS.iter().any(|known| reason.contains(known)), reason)
    })?;
    if repaired.is_none() {
        return Ok(false);
    }
    match Volume::inspect(&sound, PagedOptions::for_host()) {
        Ok(report) if report.is_clean() => Ok(true),
        Ok(report) => Err((false, report.findings.join("; "))),
        Err(error) => Err((false, error.to_string())),
    }
}
