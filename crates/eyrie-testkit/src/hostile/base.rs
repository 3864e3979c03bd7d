//! Base volumes: the sound volumes from which images are made.

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

/// Number of zero bytes behind a volume, for images that are longer than their volume.
pub(super) const BEHIND_BYTES: u64 = 16 * PAGE_SIZE;

/// A sound volume. Its images share the memory of the unchanged pages.
pub struct BaseVolume {
    /// Name of the volume, for reports.
    pub name: &'static str,
    /// Bytes of the volume.
    pub bytes: Arc<[u8]>,
    /// Contents of the volume. Exception: for a [`DiskBase`](super::DiskBase), the model lacks the changes
    /// that [`disk_bases`](super::disk_bases) made on the disk.
    pub model: Arc<Model>,
    pub(super) survey: Survey,
    /// A file in memory with the bytes of the volume and zeros behind them.
    file: File,
}

impl BaseVolume {
    pub(super) fn new(volume: crate::crash::CaseVolume) -> std::io::Result<BaseVolume> {
        let mut file = File::from(memfd_create("base", MemfdFlags::CLOEXEC)?);
        file.write_all(&volume.image)?;
        file.set_len(volume.image.len() as u64 + BEHIND_BYTES)?;
        let survey = Survey::of(&volume.image);
        Ok(BaseVolume { name: volume.name, bytes: volume.image, model: volume.model, survey, file })
    }

    /// Returns the offset of the current hot copy of the object with this name in the root directory. A hot
    /// copy begins with the root pointer and the size.
    ///
    /// # Panics
    /// Panics if no object has this name.
    pub fn hot_copy(&self, name: &[u8]) -> u64 {
        self.survey.named[name].1
    }

    /// Draws the offset of a byte in one of the structures of the survey.
    pub(super) fn somewhere(&self, random: &mut SmallRng) -> u64 {
        let (at, len) = *self.survey.structures.choose(random).expect("every volume has structures");
        at + random.random_range(0..len)
    }

    /// Returns a private copy of the volume as a medium.
    pub fn copy(&self) -> Medium {
        self.medium(self.bytes.len() as u64)
    }

    /// Returns a private copy of `len` bytes as a medium: the volume, truncated or with zeros behind it.
    pub(super) fn medium(&self, len: u64) -> Medium {
        Medium::copy_of(&self.file, len).expect("memory")
    }
}

/// Returns all base volumes.
///
/// # Panics
/// Panics if the host has no memory for them.
pub fn bases() -> Vec<BaseVolume> {
    cases::volumes().into_iter().map(|volume| BaseVolume::new(volume).expect("memory")).collect()
}
