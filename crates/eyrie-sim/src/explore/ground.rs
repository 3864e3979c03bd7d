//! The media of runs: memory, or a page cache over a disk, traced or as a crash left them.

use std::sync::Arc;
use std::time::Duration;

use eyrie_engine::Result;
use eyrie_medium::{CrashImage, ImageBase, Medium, MemoryDisk, PAGE_SIZE, PagedOptions, Recorder, Rule};

/// Memory of a run's page cache, in bytes: all pages that it will have, so that only calls let it drain.
const RUN_MEMORY: u64 = 256 << 20;

/// The medium under the volumes of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ground {
    /// Which stores a crash may lose.
    pub rule: Rule,
    /// Size of the volume, in bytes.
    pub bytes: u64,
    /// Size of the journal of a disk, in bytes, if it is not what the volume's size says.
    pub journal_bytes: Option<u64>,
}

impl Ground {
    /// Memory for a volume of `bytes`, or a disk with the journal that such a volume has.
    pub fn of(rule: Rule, bytes: u64) -> Ground {
        Ground { rule, bytes, journal_bytes: None }
    }
}

/// Nothing is drained but by calls.
fn options(memory_bytes: u64) -> PagedOptions {
    PagedOptions { memory_bytes, drain_interval: Duration::from_secs(1 << 20) }
}

/// A medium whose stores, or whose disk's, are recorded.
pub(super) struct Traced {
    pub(super) medium: Medium,
    disk: Option<Arc<MemoryDisk>>,
}

/// How what a run left is looked at when its engine is gone.
pub(super) struct Rest(Option<Arc<MemoryDisk>>);

impl Traced {
    /// An empty one for a volume of `bytes`.
    pub(super) fn empty(ground: Ground, recorder: Recorder) -> Result<Traced> {
        let Ground { rule, bytes, journal_bytes } = ground;
        if rule == Rule::Lines {
            return Ok(Traced { medium: Medium::traced(bytes, recorder)?, disk: None });
        }
        let disk = |bytes: u64| MemoryDisk::traced(&vec![0; bytes as usize], recorder);
        let Some(journal_bytes) = journal_bytes else {
            let disk = disk(Medium::paged_bytes(bytes))?;
            Medium::format_paged(&disk, bytes)?;
            return Traced::over(disk);
        };
        let disk = disk(bytes + journal_bytes + PAGE_SIZE)?;
        Medium::fill_paged(&disk, bytes)?;
        Traced::over(disk)
    }

    /// One that holds `image`.
    pub(super) fn holding(rule: Rule, image: &[u8], recorder: Recorder) -> Result<Traced> {
        if rule == Rule::Lines {
            return Ok(Traced { medium: Medium::traced_from(image, recorder)?, disk: None });
        }
        Traced::over(MemoryDisk::traced(image, recorder)?)
    }

    fn over(disk: MemoryDisk) -> Result<Traced> {
        let disk = Arc::new(disk);
        let medium = Medium::paged(disk.clone(), options(RUN_MEMORY))?;
        Ok(Traced { medium, disk: Some(disk) })
    }

    /// The medium, and the bytes of its disk.
    pub(super) fn split(self) -> (Medium, Rest) {
        (self.medium, Rest(self.disk))
    }
}

impl Rest {
    /// What the disk holds, if there is one.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        self.0.as_ref().map(|disk| disk.snapshot())
    }
}

/// What a crash left, decided as it is looked at.
pub(super) fn crashed(base: &ImageBase, image: CrashImage) -> Result<Medium> {
    match image.rule() {
        Rule::Lines => Ok(Medium::image(base, image)?),
        // Memory so short that nothing is read ahead by other threads: what is decided first is then always the same.
        Rule::Sectors => {
            let disk = MemoryDisk::image(base, image)?;
            Ok(Medium::paged(Arc::new(disk), options(PagedOptions::LEAST_MEMORY_BYTES))?)
        }
    }
}
