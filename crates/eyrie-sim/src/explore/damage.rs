//! Damage: this check changes bytes that a checksum covers, one at a time. The volume must then refuse to
//! open, or hold its contents.

use std::mem::offset_of;
use std::ops::Range;

use eyrie_engine::scm::Scm;
use eyrie_engine::volume::layout::{SUPERBLOCKS, Superblock, VOLUME_PAGE, VolumePage};
use eyrie_engine::volume::{REDO_SLOT_BYTES, REDO_SLOTS, redo_slot};
use eyrie_faults::{CrashPoints, Recorder, traced_from};

use super::images::Counts;
use super::record::{RecordOptions, StartVolume, record};
use super::recovered::{caught, sound};
use super::stress_scripts;
use crate::compare::{Tree, TreeParts, difference, tree, try_tree};
use crate::script::Script;

/// Approximate number of bytes of a large structure that the check selects, at equal distances. In a
/// structure of fewer than `2 * SAMPLES` bytes, the check selects every byte. It damages each selected byte
/// that is not zero. Most bytes of the structures are zero, and a checksum treats all bytes alike, so further
/// zero bytes would only take time.
const SAMPLES: usize = 150;
/// Maximum number of crashes of one script whose redo records are damaged. Of crashes whose records have the
/// same total size, only the first counts.
const RECORDS: usize = 12;

fn word(image: &[u8], at: usize) -> usize {
    image.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().expect("eight bytes")) as usize)
}

/// Finds the superblocks and the saved allocator of a closed volume, as ranges of offsets.
fn of_closed(image: &[u8]) -> Vec<Range<usize>> {
    let blocks = SUPERBLOCKS.map(|at| at.offset() as usize..at.offset() as usize + size_of::<Superblock>());
    let field = |field: usize| word(image, VOLUME_PAGE.offset() as usize + field);
    let saved = field(offset_of!(VolumePage, saved_addr));
    let saved = saved..saved + field(offset_of!(VolumePage, saved_bytes));
    blocks.into_iter().chain([saved]).collect()
}

/// Finds the redo records of a crashed volume, as ranges of offsets. The lower half of word 0 of a slot is
/// the number of words that the record changes, and the upper half is the checksum. Word 1 is the address of
/// the list of these words, which has 16 bytes for each of them. The list begins in the second line of the
/// slot, or lies outside the slot if it is long.
fn of_records(image: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for slot in (0..REDO_SLOTS).map(|slot| redo_slot(slot).offset() as usize) {
        let (count, place) = (word(image, slot) & 0xffff_ffff, word(image, slot + 8));
        if count == 0 {
            continue;
        }
        found.push(slot..slot + 16);
        if place < slot || place >= slot + REDO_SLOT_BYTES as usize {
            found.push(place..place + 16 * count);
        } else {
            found.push(slot + 64..slot + 64 + 16 * count);
        }
    }
    found
}

/// Damages bytes of `covered` that are not zero, one at a time. The volume must then refuse to open, or be
/// sound and equal one of `states`. Returns the number of images.
fn damage(
    image: &[u8],
    covered: Range<usize>,
    states: &[&Tree],
    should_continue: &mut dyn FnMut() -> bool,
) -> Result<u64, String> {
    // With an odd step, the selected bytes are at all eight positions within a word.
    let step = (covered.len() / SAMPLES) | 1;
    let mut images = 0;
    for at in covered.step_by(step).filter(|&at| image.get(at).is_some_and(|&byte| byte != 0)) {
        if !should_continue() {
            break;
        }
        images += 1;
        let mut damaged = image.to_vec();
        damaged[at] ^= 1 << (at % 8);
        let open = || {
            let medium = traced_from(&damaged, Recorder::default()).map_err(|error| error.to_string())?;
            let Ok(engine) = Scm::open_on(medium) else { return Ok(()) };
            let found = try_tree(&engine, TreeParts::ALL).map_err(|error| error.to_string())?;
            if !states.contains(&&found) {
                return Err(difference(&found, states[0]).unwrap_or_default());
            }
            sound(&engine)
        };
        caught(open).unwrap_or_else(Err).map_err(|what| format!("the byte at {at:#x} damaged: {what}"))?;
    }
    Ok(images)
}

/// Damages a closed volume, and redo records that crashes left: short records, and a record whose words are
/// in an extent of their own.
///
/// # Errors
/// Fails at the first damage after which the volume opens with other contents or is not sound.
pub(super) fn explore(
    start: &StartVolume,
    should_continue: &mut dyn FnMut() -> bool,
) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let used = start.after_script(&stress_scripts::used_before()).map_err(|error| error.to_string())?;
    let held = tree(used.model());
    for covered in of_closed(used.image()) {
        counts.images += damage(used.image(), covered, &[&held], should_continue)?;
    }
    let renames = "mkdir /d\ncreat /a\nrename /a /d/b\n";
    let renames = Script::parse("damage", renames.as_bytes()).expect("a constant script");
    for script in [renames, stress_scripts::many_words()] {
        let recorded = record(start, &script, RecordOptions::default()).map_err(|error| error.to_string())?;
        let run = &recorded.run;
        let mut points = CrashPoints::new(&run.base, &run.events).map_err(|error| error.to_string())?;
        let mut seen: Vec<usize> = Vec::new();
        while let Some(point) = points.next() {
            if !should_continue() {
                return Ok(counts);
            }
            let image = points.base().bytes();
            let records = of_records(&image);
            let size = records.iter().map(ExactSizeIterator::len).sum();
            if records.is_empty() || seen.contains(&size) || seen.len() >= RECORDS {
                continue;
            }
            seen.push(size);
            counts.points += 1;
            let done = point.mark.unwrap_or(0) as usize;
            let states: Vec<&Tree> = run.states[done..run.states.len().min(done + 2)].iter().collect();
            for covered in records {
                counts.images += damage(&image, covered, &states, should_continue)?;
            }
        }
    }
    Ok(counts)
}
