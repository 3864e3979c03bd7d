//! The media of runs: memory, or a page cache over a simulated disk. Their stores are recorded, or their
//! bytes are those that a crash left.

use std::sync::Arc;
use std::time::Duration;

use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Result, Time};
use eyrie_faults::{
    CrashImage, CrashRule, Event, ImageBase, Recorder, SimulatedDisk, crash_medium, traced, traced_from,
};
use eyrie_medium::{Medium, PAGE_SIZE, PagedOptions};

/// Memory of the page cache of a run, in bytes. All pages of a volume fit, so a lack of memory starts no
/// drain in the background.
pub(super) const RUN_MEMORY: u64 = 256 << 20;

/// The medium under the volumes of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunMedium {
    /// The unit in which a crash loses stores: lines of memory or sectors of a disk.
    pub rule: CrashRule,
    /// Size of the volume, in bytes.
    pub bytes: u64,
    /// Size of a disk's journal, in bytes. `None` takes the default for the size of the volume.
    pub journal_bytes: Option<u64>,
    /// True if the pages of a disk have checksums.
    pub checksums: bool,
}

impl RunMedium {
    /// Returns the medium of a volume of `bytes`: memory if `rule` is [`CrashRule::Lines`], otherwise a disk
    /// with the default journal.
    pub fn of(rule: CrashRule, bytes: u64) -> RunMedium {
        RunMedium { rule, bytes, journal_bytes: None, checksums: false }
    }
}

/// Returns options of a new volume without random values, so that equal calls store equal bytes.
pub fn fixed_options(group_bytes: u64, created: Time) -> Options {
    Options {
        group_bytes,
        hash_seed: 7,
        volume_id: [1; 16],
        created,
        medium: MediumChoice::Auto,
        overwrite: false,
        checksums: false,
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

/// Returns options with an interval between drains that is longer than any run. So no drain starts because
/// the interval is over.
pub(super) fn options(memory_bytes: u64) -> PagedOptions {
    PagedOptions::new(memory_bytes, Duration::from_secs(1 << 20))
}

/// A medium under a recorder. In memory the stores are recorded. On a disk the writes to the disk are
/// recorded instead.
pub(super) struct Traced {
    pub(super) medium: Medium,
    disk: Option<Arc<SimulatedDisk>>,
}

/// The disk of a run. It outlives the engine of the run.
pub(super) struct DiskBytes(Option<Arc<SimulatedDisk>>);

impl Traced {
    /// Makes an empty medium for a volume of `bytes`.
    pub(super) fn empty(medium: RunMedium, recorder: Recorder) -> Result<Traced> {
        let RunMedium { rule, bytes, journal_bytes, checksums } = medium;
        if rule == CrashRule::Lines {
            return Ok(Traced { medium: traced(bytes, recorder)?, disk: None });
        }
        let disk = |bytes: u64| SimulatedDisk::recorded(&vec![0; bytes as usize], recorder);
        let Some(journal_bytes) = journal_bytes else {
            let disk = disk(Medium::paged_bytes(bytes, checksums))?;
            Medium::format_paged(&disk, bytes, checksums)?;
            return Traced::over(disk);
        };
        let disk = disk(Medium::place_bytes(bytes, checksums) + journal_bytes + PAGE_SIZE)?;
        Medium::fill_paged(&disk, bytes, checksums)?;
        Traced::over(disk)
    }

    /// Makes a medium that holds `image`.
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

    /// Separates the medium from its disk.
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

/// Makes the medium that a crash left. The content of a line or sector is chosen when it is first read.
pub(super) fn crashed(base: &ImageBase, image: CrashImage) -> Result<Medium> {
    match image.rule() {
        CrashRule::Lines => Ok(crash_medium(base, image)?),
        // With so small a cache, no background thread reads ahead. The order of reads, and of the choices, is
        // then the same in each run.
        CrashRule::Sectors => {
            let disk = SimulatedDisk::image(base, image)?;
            Ok(Medium::paged(Arc::new(disk), options(PagedOptions::MIN_MEMORY_BYTES))?)
        }
    }
}
