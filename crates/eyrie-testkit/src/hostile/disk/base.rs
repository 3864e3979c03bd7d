//! Base disks: the sound disks from which hostile disks are made.

use std::sync::Arc;
use std::time::Duration;

use eyrie::{Credentials, PosixExt, Pxfs};
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, Model};
use eyrie_faults::{CrashImage, ImageBase, Pending, SimulatedDisk};
use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Fault, Medium, PagedOptions, SECTOR};

use super::super::base::BaseVolume;
use super::journal::{Journal, volume_bytes};
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

/// The options have the minimum of memory, so that the medium reads few pages ahead. The interval is so long
/// that only calls drain.
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
        let mut image = vec![0; volume_bytes(&bytes) as usize];
        let medium = disk(&bytes).and_then(|disk| opened(&disk)).expect("a sound disk");
        let _pin = pin();
        medium.read(Addr::NULL, &mut image).expect("all of it");
        let volume = BaseVolume::new(CaseVolume { name, image: image.into(), model: Arc::clone(model) })
            .expect("memory");
        DiskBase { name, journal: Journal::of(&bytes), bytes: bytes.into(), volume }
    }
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

/// Returns three disks. The first is closed. The second lost its power with live records in its journal. The
/// third is like the second, but its last record is torn.
///
/// # Panics
/// Panics if the host has no memory for them.
pub fn disk_bases() -> Vec<DiskBase> {
    let volume = cases::volumes().swap_remove(1);
    let mut bytes = volume.image.to_vec();
    bytes.resize(Medium::paged_bytes(volume.image.len() as u64, false) as usize, 0);
    let disk = disk(&bytes).expect("memory");
    Medium::format_paged(&*disk, volume.image.len() as u64, false).expect("a sound disk");

    let engine = Arc::new(Scm::open_on(opened(&disk).expect("a sound disk")).expect("a sound volume"));
    cuts(&engine);
    let crashed = disk.snapshot();
    let engine = Arc::into_inner(engine).expect("nobody else has it");
    engine.close().expect("a sound disk");
    let closed = disk.snapshot();

    // The power failed when all sectors of the last record except the first were written.
    let mut torn = crashed.clone();
    let last = Journal::of(&crashed).records.last().map_or(0, |&(at, _)| at);
    torn[last as usize..][..SECTOR as usize].fill(0);
    let base = |name, bytes| DiskBase::new(name, bytes, &volume.model);
    vec![base("closed disk", closed), base("crashed disk", crashed), base("torn disk", torn)]
}
