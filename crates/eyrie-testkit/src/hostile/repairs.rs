//! Repairs images on the host, as `eyrie fsck --repair` does.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use eyrie::{PagedOptions, Repair, Volume};
use eyrie_engine::volume::layout::CHUNK_MAP;
use eyrie_medium::PAGE_SIZE;
use eyrie_sim::explore::caught;

use super::{BaseVolume, Hostile, Image};

/// The acceptable reasons to refuse the repair of any image. All concern the superblock, because a repair
/// needs a sound copy of it.
const REASONS: [&str; 4] = [
    "not an Eyrie volume",
    "newer format",
    "corrupt volume: both copies of the superblock",
    "corrupt volume: superblock",
];

/// The reason to refuse the repair of an image that ends before [`TABLES_END`].
const TRUNCATED: &str = "truncated volume: segment 0 has";
/// Offset at which the tables of a base volume end. Its header-chunk bitmap has one page. An image that ends
/// before this offset has no object that a repair could save.
const TABLES_END: u64 = CHUNK_MAP.offset() + PAGE_SIZE;

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
        let is_short = image.len() < TABLES_END && reason.contains(TRUNCATED);
        (is_short || REASONS.iter().any(|known| reason.contains(known)), reason)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::bases;

    #[test]
    fn only_files_without_whole_tables_are_too_short() {
        let bases = bases();
        let place = tempfile::tempdir().expect("a directory");
        for (len, is_refused) in
            [(2 * PAGE_SIZE, true), (TABLES_END - PAGE_SIZE, true), (TABLES_END, false), (1 << 18, false)]
        {
            let mut image = Image::new(&bases[1]);
            image.set_len(len);
            match one(&image, place.path()) {
                Err((true, reason)) => assert!(is_refused && reason.contains(TRUNCATED), "{len}: {reason}"),
                Ok(true) => assert!(!is_refused, "{len}"),
                other => panic!("{len}: {other:?}"),
            }
        }
    }
}
