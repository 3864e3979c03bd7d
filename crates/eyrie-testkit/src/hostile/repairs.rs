//! Repairs images on the host, as the command does.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use eyrie::{Errno, PagedOptions, Repair, Volume};

use super::{Base, Hostile, Image};

/// What came of repairs. Counts are of images.
#[derive(Default, Debug)]
pub struct Repairs {
    /// Those in which nothing was wrong.
    pub sound: u64,
    /// Those that are sound now.
    pub repaired: u64,
    /// How many could not be repaired, by the reason that was told, which a user can do something about or accept.
    pub refused: BTreeMap<String, u64>,
    /// Seeds whose repair failed without such a reason, or whose result is not sound, and what was told.
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
        let told = one(&image, place.path());
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
        // No superblock, one of another program's format, or no room on the host.
        let is_told = matches!(error.errno(), Errno::INVAL | Errno::OPNOTSUPP)
            || reason.contains("both copies of the superblock")
            || reason.contains("corrupt volume: superblock");
        (is_told, reason)
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
