//! Repairs images on the host, as the command does.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use eyrie::{PagedOptions, Repair, Volume};

use super::{Base, Hostile, Image};

/// Reasons to refuse a repair that are right for some images: each is about the superblock, without which there is no repair.
const REASONS: [&str; 4] = [
    "not an Eyrie volume",
    "newer format",
    "corrupt volume: both copies of the superblock",
    "corrupt volume: superblock",
];

/// Results of repairs. Counts are of images.
#[derive(Default, Debug)]
pub struct Repairs {
    /// Those in which nothing was wrong.
    pub sound: u64,
    /// Those that are sound now.
    pub repaired: u64,
    /// Those that could not be repaired, by the reason that was told, which a user can do something about or accept.
    pub refused: BTreeMap<String, u64>,
    /// Seeds whose repair failed without such a reason or panicked, or whose result is not sound, and what was told.
    pub unsound: Vec<(u64, String)>,
}

/// Repairs the images of these seeds in a directory in memory.
///
/// # Panics
/// If the directory cannot be made.
pub fn repairs(bases: &[Base], seeds: Range<u64>) -> Repairs {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let mut report = Repairs::default();
    for seed in seeds {
        let Hostile { image, .. } = Hostile::new(bases, seed);
        let told = catch_unwind(AssertUnwindSafe(|| one(&image, place.path()))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
            Err((false, format!("panic: {text}")))
        });
        match told {
            Ok(false) => report.sound += 1,
            Ok(true) => report.repaired += 1,
            Err((true, reason)) => *report.refused.entry(reason).or_default() += 1,
            Err((false, reason)) => report.unsound.push((seed, reason)),
        }
    }
    report
}

/// Repairs one image. Whether something was wrong with it; after a failure whether its reason can be accepted, and the reason.
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
