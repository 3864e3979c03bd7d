//! Hostile disks. Each is a copy of a base disk that was damaged on purpose.

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
    /// True if the checksums of the copy were made valid again.
    pub mended: bool,
}

impl<'b> HostileDisk<'b> {
    /// Makes the disk of `seed`. Equal bases and seeds give equal disks.
    pub fn new(bases: &'b [DiskBase], seed: u64) -> HostileDisk<'b> {
        let mut random = SmallRng::seed_from_u64(seed);
        let base = &bases[random.random_range(0..bases.len())];
        let count = if random.random() { 1 } else { random.random_range(2..=5) };
        let damages = (0..count).map(|_| DiskDamage::draw(&mut random, base)).collect();
        HostileDisk::of(base, damages, random.random_range(0..4) != 0)
    }

    /// Damages a copy of `base`. If `mended` is true, makes the checksums of the copy valid again.
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
        volume.edits().for_each(|(at, edit)| journal::put(&mut bytes, at, edit));
        if mended {
            journal::mend(&mut bytes);
        }
        HostileDisk { base, bytes, damages, mended }
    }

    /// Opens the disk and uses its volume as any program might.
    pub fn examine(&self) -> Examined {
        match disk(&self.bytes).and_then(|disk| opened(&disk)) {
            Ok(medium) => examine(medium),
            Err(_) => Examined::Refused,
        }
    }
}
