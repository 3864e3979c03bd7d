//! Damages each non-zero byte that a checksum covers, one at a time. The open of the volume must then fail,
//! or find the same contents.

use std::mem::offset_of;
use std::ops::Range;

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::layout::{SUPERBLOCKS, Superblock, VOLUME_PAGE, VolumePage};
use eyrie_engine::volume::{REDO_SLOT_BYTES, REDO_SLOTS, redo_slot};
use eyrie_faults::{FaultPlan, Recorder, traced_from};
use eyrie_sim::compare::{difference, tree};
use eyrie_sim::explore::caught;

use super::{CaseVolume, cases};

/// A volume, and a range of its bytes that a checksum covers.
pub struct ChecksumDamage {
    volume: CaseVolume,
    covered: Range<usize>,
}

/// Returns the structures with a checksum in each volume of `cases::volumes`: both copies of the superblock,
/// the saved allocator, and the redo slots.
pub fn all() -> Vec<ChecksumDamage> {
    let mut all = Vec::new();
    for volume in cases::volumes() {
        let copies =
            SUPERBLOCKS.map(|at| at.offset() as usize..at.offset() as usize + size_of::<Superblock>());
        let slots = (0..REDO_SLOTS).map(|index| redo_slot(index).offset() as usize);
        let slots = slots.map(|at| at..at + REDO_SLOT_BYTES as usize);
        let word = |field: usize| {
            let at = VOLUME_PAGE.offset() as usize + field;
            u64::from_le_bytes(volume.image[at..at + 8].try_into().expect("eight bytes")) as usize
        };
        let saved = word(offset_of!(VolumePage, saved_addr));
        let saved = saved..saved + word(offset_of!(VolumePage, saved_bytes));
        let covered = copies.into_iter().chain(slots).chain([saved]);
        all.extend(covered.map(|covered| ChecksumDamage { volume: volume.clone(), covered }));
    }
    all
}

impl ChecksumDamage {
    /// Damages each non-zero byte of the range, one at a time, and opens the volume with this plan.
    ///
    /// # Errors
    /// Describes the first damage after which the volume opens with wrong contents, is not sound, or causes a
    /// panic.
    pub fn explore(&self, plan: &FaultPlan) -> Result<(), String> {
        self.covered.clone().filter(|&at| self.volume.image[at] != 0).try_for_each(|at| {
            caught(|| self.open(at, plan))
                .unwrap_or_else(Err)
                .map_err(|what| format!("volume {:?}, the byte at {at:#x} damaged: {what}", self.volume.name))
        })
    }

    fn open(&self, at: usize, plan: &FaultPlan) -> Result<(), String> {
        let mut image = self.volume.image.to_vec();
        image[at] ^= 0xff;
        let medium = traced_from(&image, Recorder::of(plan.clone())).expect("memory");
        let Ok(engine) = Scm::open_on(medium) else { return Ok(()) };
        if let Some(what) = difference(&tree(&engine), &tree(&*self.volume.model)) {
            return Err(what);
        }
        let report = engine.check().map_err(|error| error.to_string())?;
        report.findings.first().map_or(Ok(()), |finding| Err(finding.to_string()))
    }
}
