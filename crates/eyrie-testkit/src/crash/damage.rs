//! Bytes that a checksum is of, damaged one by one: the volume is refused, or it is as it was.

use std::mem::offset_of;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::layout::{SUPERBLOCKS, Superblock, VOLUME_PAGE, VolumePage};
use eyrie_engine::volume::{REDO_SLOT_BYTES, REDO_SLOTS, redo_slot};
use eyrie_medium::{Medium, Plan, Recorder};
use eyrie_sim::compare::{difference, tree};

use super::{Volume, cases};

/// A volume, and where in it are bytes that a checksum is of.
pub struct Damage {
    volume: Volume,
    covered: Range<usize>,
}

/// Every structure with a checksum: copies of the superblock, a saved allocator, redo records.
pub fn all() -> Vec<Damage> {
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
        all.extend(covered.map(|covered| Damage { volume: volume.clone(), covered }));
    }
    all
}

impl Damage {
    /// Damages one byte after the other of those that are not zero, and opens the volume with this plan.
    ///
    /// # Errors
    /// The first byte whose damage is believed.
    pub fn explore(&self, plan: &Plan) -> Result<(), String> {
        self.covered.clone().filter(|&at| self.volume.image[at] != 0).try_for_each(|at| {
            let opened = catch_unwind(AssertUnwindSafe(|| self.open(at, plan)));
            opened
                .unwrap_or_else(|_| Err("a panic".to_string()))
                .map_err(|what| format!("volume {:?}, the byte at {at:#x} damaged: {what}", self.volume.name))
        })
    }

    fn open(&self, at: usize, plan: &Plan) -> Result<(), String> {
        let mut image = self.volume.image.to_vec();
        image[at] ^= 0xff;
        let medium = Medium::traced_from(&image, Recorder::of(plan.clone())).expect("memory");
        let Ok(engine) = Scm::open_on(medium) else { return Ok(()) };
        if let Some(what) = difference(&tree(&engine), &tree(&*self.volume.model)) {
            return Err(what);
        }
        let report = engine.check().map_err(|error| error.to_string())?;
        report.findings.first().map_or(Ok(()), |finding| Err(finding.to_string()))
    }
}
