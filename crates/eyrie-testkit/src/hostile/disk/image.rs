//! Hostile disks. Each is a copy of a base disk that was damaged on purpose.

use eyrie_medium::{Fault, Medium, PAGE_SIZE};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::base::{disk, opened};
use super::{DiskBase, DiskDamage, journal};
use crate::hostile::{Examined, Image, examine};

/// A copy of a base disk that was damaged on purpose.
pub struct HostileDisk<'b> {
    /// The disk before the damage.
    pub base: &'b DiskBase,
    /// The bytes of the damaged copy.
    pub bytes: Vec<u8>,
    /// The changes that damaged the copy.
    pub damages: Vec<DiskDamage>,
    /// True if the checksums of the copy were made valid again, except those of pages.
    pub mended: bool,
    /// True if the checksums of pages were made valid again, too.
    pub pages_are_mended: bool,
}

impl<'b> HostileDisk<'b> {
    /// Makes the disk of `seed`. Equal bases and seeds give equal disks.
    pub fn new(bases: &'b [DiskBase], seed: u64) -> HostileDisk<'b> {
        let mut random = SmallRng::seed_from_u64(seed);
        let base = &bases[random.random_range(0..bases.len())];
        let count = if random.random() { 1 } else { random.random_range(2..=5) };
        let damages = (0..count).map(|_| DiskDamage::draw(&mut random, base)).collect();
        let mended = random.random_range(0..4) != 0;
        let disk = HostileDisk::of(base, damages, mended);
        if random.random_range(0..4) != 0 { disk.with_valid_pages() } else { disk }
    }

    /// Damages a copy of `base`. If `mended` is true, makes the checksums of the copy valid again, except
    /// those of pages.
    pub fn of(base: &'b DiskBase, damages: Vec<DiskDamage>, mended: bool) -> HostileDisk<'b> {
        let mut bytes = base.bytes.to_vec();
        let mut volume = Image::new(&base.volume);
        for damage in &damages {
            match damage {
                DiskDamage::Volume(damage) => damage.apply(&mut volume),
                damage => damage.apply(&mut bytes),
            }
        }
        if mended {
            volume.mend_checksums();
        }
        let checksums = journal::has_checksums(&base.bytes);
        volume.edits().for_each(|(at, edit)| journal::put_in_volume(&mut bytes, checksums, at, edit));
        if mended {
            journal::mend(&mut bytes);
        }
        HostileDisk { base, bytes, damages, mended, pages_are_mended: false }
    }

    /// Makes the checksums of the pages valid, so that the hostile bytes reach the readers above the medium.
    /// Does nothing if the pages have no checksums.
    #[must_use]
    pub fn with_valid_pages(mut self) -> HostileDisk<'b> {
        if journal::has_checksums(&self.base.bytes) {
            self.mend_pages();
            self.pages_are_mended = true;
        }
        self
    }

    fn mend_pages(&mut self) {
        let pages = self.base.volume.bytes.len() as u64 / PAGE_SIZE;
        journal::mend_pages(&mut self.bytes, 0..pages);
    }

    /// Opens the disk. If the checksums of pages are mended, a first open replays the journal, whose records
    /// have checksums of pages, too. The function then mends the checksums of the pages again, and opens the
    /// result.
    pub(super) fn medium(&self) -> Result<Medium, Fault> {
        let hostile = disk(&self.bytes)?;
        let medium = opened(&hostile)?;
        if !self.pages_are_mended {
            return Ok(medium);
        }
        drop(medium);
        let (bytes, damages) = (hostile.snapshot(), Vec::new());
        let mut replayed = HostileDisk { bytes, damages, ..*self };
        replayed.mend_pages();
        opened(&disk(&replayed.bytes)?)
    }

    /// Opens the disk and uses its volume as any program might.
    pub fn examine(&self) -> Examined {
        match self.medium() {
            Ok(medium) => examine(medium),
            Err(_) => Examined::Refused,
        }
    }
}
