//! The media of runs: memory, or a page cache over a disk, recorded or as a crash left them.

use std::sync::Arc;
use std::time::Duration;

use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Result, Time};
use eyrie_faults::{
    CrashImage, CrashRule, Event, ImageBase, Recorder, SimulatedDisk, crash_medium, traced, traced_from,
};
use eyrie_medium::{Medium, PAGE_SIZE, PagedOptions};

/// Memory of a run's page cache, in bytes: more than all pages of a volume, so that nothing but calls drains
/// it.
const RUN_MEMORY: u64 = 256 << 20;

/// The medium under the volumes of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunMedium {
    /// The unit in which a crash loses stores: lines of memory or sectors of a disk.
    pub rule: CrashRule,
    /// Size of the volume, in bytes.
    pub bytes: u64,
    /// Size of a disk's journal, in bytes. `None` takes the default for the size of the volume.
    pub journal_bytes: Option<u64>,
}

impl RunMedium {
    /// Memory for a volume of `bytes`, or a disk with the journal that such a volume has.
    pub fn of(rule: CrashRule, bytes: u64) -> RunMedium {
        RunMedium { rule, bytes, journal_bytes: None }
    }
}

/// Options without anything random for a new volume, so that equal calls store equal bytes.
pub fn fixed_options(group_bytes: u64, created: Time) -> Options {
    Options {
        group_bytes,
        hash_seed: 7,
        volume_id: [1; 16],
        created,
        medium: MediumChoice::Auto,
        overwrite: false,
        paged: PagedOptions::for_host(),
    }
}

/// Applies the stores of a recording to the bytes of its medium.
pub fn apply_stores(image: &mut [u8], events: &[Event]) {
    for event in events {
        if let Event::Store { addr, bytes, .. } = event {
            image[addr.offset() as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// Options with so long an interval that only calls drain the cache.
fn options(memory_bytes: u64) -> PagedOptions {
    PagedOptions { memory_bytes, drain_interval: Duration::from_secs(1 << 20) }
}

/// A medium whose stores are recorded; on a disk, the writes to the disk.
pub(super) struct Traced {
    pub(super) medium: Medium,
    disk: Option<Arc<SimulatedDisk>>,
}

/// The disk of a run, which outlives its engine.
pub(super) struct DiskBytes(Option<Arc<SimulatedDisk>>);

impl Traced {
    /// Makes an empty medium for a volume of `bytes`.
    pub(super) fn empty(ground: RunMedium, recorder: Recorder) -> Result<Traced> {
        let RunMedium { rule, bytes, journal_bytes } = ground;
        if rule == CrashRule::Lines {
            return Ok(Traced { medium: traced(bytes, recorder)?, disk: None });
        }
        let disk = |bytes: u64| SimulatedDisk::recorded(&vec![0; bytes as usize], recorder);
        let Some(journal_bytes) = journal_bytes else {
            let disk = disk(Medium::paged_bytes(bytes))?;
            Medium::format_paged(&disk, bytes)?;
            return Traced::over(disk);
        };
        let disk = disk(bytes + journal_bytes + PAGE_SIZE)?;
        Medium::fill_paged(&disk, bytes)?;
        Traced::over(disk)
    }

    /// Returns a medium that holds `image`.
    pub(super) fn holding(rule: CrashRule, image: &[u8], recorder: Recorder) -> Result<Traced> {
        if rule == CrashRule::Lines {
            return Ok(Traced { medium: traced_from(image, recorder)?, disk: None });
        }
        Traced::over(SimulatedDisk::recorded(image, recorder)?)
    }

    fn over(disk: SimulatedDisk) -> Result<Traced> {
        let disk = Arc::new(disk);
        let medium = Medium::paged(disk.clone(), options(RUN_MEMORY))?;
        Ok(Traced { medium, disk: Some(disk) })
    }

    /// Returns the medium, and its disk.
    pub(super) fn split(self) -> (Medium, DiskBytes) {
        (self.medium, DiskBytes(self.disk))
    }
}

impl DiskBytes {
    /// Returns the bytes of the disk, if there is one.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        self.0.as_ref().map(|disk| disk.snapshot())
    }
}

/// Returns the medium that a crash left. Its lines are decided when they are first read.
pub(super) fn crashed(base: &ImageBase, image: CrashImage) -> Result<Medium> {
    match image.rule() {
        CrashRule::Lines => Ok(crash_medium(base, image)?),
        // The cache is so small that no thread reads ahead. Reads then come in the same order in each run,
        // and so do the decisions.
        CrashRule::Sectors => {
            let disk = SimulatedDisk::image(base, image)?;
            Ok(Medium::paged(Arc::new(disk), options(PagedOptions::LEAST_MEMORY_BYTES))?)
        }
    }
}
