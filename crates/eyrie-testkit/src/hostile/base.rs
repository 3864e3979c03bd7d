//! The volumes that are damaged.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use eyrie_engine::Model;
use eyrie_medium::{Medium, PAGE_SIZE};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rustix::fs::{MemfdFlags, memfd_create};

use super::survey::Survey;
use crate::crash::cases;

/// Zeros behind a volume, for images that are longer than it, in bytes.
pub(super) const BEHIND_BYTES: u64 = 16 * PAGE_SIZE;

/// A sound volume, in memory that images of it share.
pub struct Base {
    /// Its name, for reports.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// What it holds.
    pub model: Arc<Model>,
    pub(super) survey: Survey,
    /// Its bytes and some zeros.
    file: File,
}

impl Base {
    pub(super) fn new(volume: crate::crash::Volume) -> std::io::Result<Base> {
        let mut file = File::from(memfd_create("base", MemfdFlags::CLOEXEC)?);
        file.write_all(&volume.image)?;
        file.set_len(volume.image.len() as u64 + BEHIND_BYTES)?;
        let survey = Survey::of(&volume.image);
        Ok(Base { name: volume.name, bytes: volume.image, model: volume.model, survey, file })
    }

    /// Where the root and the size are of the file of this name in the root, in bytes.
    ///
    /// # Panics
    /// If there is none.
    pub fn hot_copy(&self, name: &[u8]) -> u64 {
        self.survey.hot_copies[name]
    }

    /// A byte of a structure in use, as its place.
    pub(super) fn somewhere(&self, random: &mut SmallRng) -> u64 {
        let (at, len) = *self.survey.structures.choose(random).expect("every volume has structures");
        at + random.random_range(0..len)
    }

    /// A medium that holds it. Nothing that is stored to it comes here.
    pub fn copy(&self) -> Medium {
        self.medium(self.bytes.len() as u64)
    }

    /// A medium of `len` bytes that holds the volume, and zeros behind it. Nothing that is stored to it comes here.
    pub(super) fn medium(&self, len: u64) -> Medium {
        Medium::copy_of(&self.file, len).expect("memory")
    }
}

/// All of them.
///
/// # Panics
/// If there is no memory for them.
pub fn bases() -> Vec<Base> {
    cases::volumes().into_iter().map(|volume| Base::new(volume).expect("memory")).collect()
}
