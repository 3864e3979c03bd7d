//! Hostile disks: a base disk with damages.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::base::{disk, opened};
use super::{DiskBase, DiskDamage, journal};
use crate::hostile::{Examined, Image, examine};

/// The disk of a seed.
pub struct HostileDisk<'b> {
    /// The disk without the damages.
    pub base: &'b DiskBase,
    /// The bytes with the damages.
    pub bytes: Vec<u8>,
    /// The damages.
    pub damages: Vec<DiskDamage>,
    /// True if the checksums are valid again.
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

    /// Returns `base` with these damages, and with valid checksums if it is `mended`.
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
