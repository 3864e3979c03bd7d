//! Base disks: the sound disks from which hostile disks are made.

use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

use eyrie::{Credentials, PosixExt, Pxfs};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::layout::{SUPERBLOCKS, Superblock};
use eyrie_engine::{Engine, Model};
use eyrie_faults::{CrashImage, ImageBase, Pending, SimulatedDisk};
use eyrie_medium::{Fault, Medium, PAGE_SIZE, PagedOptions, SECTOR};

use super::super::base::BaseVolume;
use super::journal::{Journal, has_checksums, mend_pages, place, put_in_volume, volume_bytes};
use crate::crash::{CaseVolume, cases};

/// A sound disk with a volume, a journal and an anchor.
pub struct DiskBase {
    /// Name of the disk, for reports.
    pub name: &'static str,
    /// Bytes of the disk.
    pub bytes: Arc<[u8]>,
    pub(super) journal: Journal,
    /// The volume on the disk after an open.
    pub(super) volume: BaseVolume,
}

/// The options have the minimum of memory, so that the medium reads few pages ahead. The interval between
/// drains is so long that no drain starts because of time.
const OPTIONS: PagedOptions = PagedOptions::new(PagedOptions::MIN_MEMORY_BYTES, Duration::from_secs(1 << 20));

/// Returns a disk that holds `bytes`.
pub(super) fn disk(bytes: &[u8]) -> Result<Arc<SimulatedDisk>, Fault> {
    let base = ImageBase::new(bytes)?;
    Ok(Arc::new(SimulatedDisk::image(&base, CrashImage::new(Pending::new(), Vec::new()))?))
}

/// Returns the medium on a disk.
pub(super) fn opened(disk: &Arc<SimulatedDisk>) -> Result<Medium, Fault> {
    Medium::paged(Arc::<SimulatedDisk>::clone(disk), OPTIONS)
}

impl DiskBase {
    fn new(name: &'static str, bytes: Vec<u8>, model: &Arc<Model>) -> DiskBase {
        let replayed = disk(&bytes).expect("memory");
        drop(opened(&replayed).expect("a sound disk"));
        let replayed = replayed.snapshot();
        let places =
            (0..volume_bytes(&bytes)).step_by(PAGE_SIZE as usize).map(|at| place(has_checksums(&bytes), at));
        let image: Vec<u8> =
            places.flat_map(|at| &replayed[at as usize..][..PAGE_SIZE as usize]).copied().collect();
        // In memory, a volume has no checksums of its pages.
        let plain = with_feature(image.clone(), 0);
        let volume = CaseVolume { name, image: plain.into(), model: Arc::clone(model) };
        let mut volume = BaseVolume::new(volume).expect("memory");
        // Damage to the volume begins with the bytes on the disk, which keep the feature.
        volume.bytes = image.into();
        DiskBase { name, journal: Journal::of(&bytes), bytes: bytes.into(), volume }
    }
}

/// Returns a volume whose superblocks have these incompatible features.
fn with_feature(mut image: Vec<u8>, incompat: u64) -> Vec<u8> {
    for at in SUPERBLOCKS {
        let copy = &mut image[at.offset() as usize..][..PAGE_SIZE as usize];
        copy[offset_of!(Superblock, incompat)..][..8].copy_from_slice(&incompat.to_le_bytes());
        let sum = offset_of!(Superblock, checksum);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&copy[..sum]), &copy[sum + 4..]);
        copy[sum..sum + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    image
}

/// Changes the volume in cuts of few and of many pages, each with a record in the journal.
fn cuts(engine: &Arc<Scm>) {
    let fs = Pxfs::new(Arc::clone(engine), Credentials::root());
    let sync = || engine.sync().expect("a sound disk");
    fs.write("/many", vec![0xe1; 80_000]).expect("room");
    sync();
    fs.write("/few", b"a line or two").expect("room");
    sync();
    fs.remove_file("/few").expect("it is there");
    let file = fs.options().write(true).open("/many").expect("it is there");
    file.write_at(&[0xe2; 100], 5000).expect("room");
    sync();
    fs.write("/last", vec![0xe3; 70_000]).expect("room");
    sync();
}

/// Returns three disks without checksums of their pages, and three with them. Of each three, the first is
/// closed. The second lost its power with live records in its journal. The third is like the second, but its
/// last record is torn.
///
/// # Panics
/// Panics if the host has no memory for them.
pub fn disk_bases() -> Vec<DiskBase> {
    const NAMES: [[&str; 3]; 2] = [
        ["closed disk", "crashed disk", "torn disk"],
        ["closed disk with checksums", "crashed disk with checksums", "torn disk with checksums"],
    ];
    NAMES
        .into_iter()
        .zip([false, true])
        .flat_map(|(names, checksums)| three_bases(names, checksums))
        .collect()
}

fn three_bases(names: [&'static str; 3], checksums: bool) -> [DiskBase; 3] {
    let volume = cases::volumes().swap_remove(1);
    let volume_bytes = volume.image.len() as u64;
    let disk = disk(&vec![0; Medium::paged_bytes(volume_bytes, checksums) as usize]).expect("memory");
    Medium::format_paged(&*disk, volume_bytes, checksums).expect("a sound disk");
    let mut bytes = disk.snapshot();
    let image = with_feature(volume.image.to_vec(), u64::from(checksums));
    put_in_volume(&mut bytes, checksums, 0, &image);
    if checksums {
        mend_pages(&mut bytes, 0..volume_bytes / PAGE_SIZE);
    }
    let disk = self::disk(&bytes).expect("memory");

    let engine = Arc::new(Scm::open_on(opened(&disk).expect("a sound disk")).expect("a sound volume"));
    cuts(&engine);
    let crashed = disk.snapshot();
    let engine = Arc::into_inner(engine).expect("nobody else has it");
    engine.close().expect("a sound disk");
    let closed = disk.snapshot();

    // The power failed when every sector of the last record was written, except the first sector.
    let mut torn = crashed.clone();
    let last = Journal::of(&crashed).records.last().map_or(0, |&(at, _)| at);
    torn[last as usize..][..SECTOR as usize].fill(0);
    let disks = [closed, crashed, torn];
    let mut bases =
        names.into_iter().zip(disks).map(|(name, bytes)| DiskBase::new(name, bytes, &volume.model));
    std::array::from_fn(|_| bases.next().expect("three"))
}
