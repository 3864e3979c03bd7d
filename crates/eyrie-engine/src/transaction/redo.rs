//! Redo slots, for those Ops that no single publish can commit.
//!
//! A record is a list of words with their addresses and new values. A record has a checksum, and applying it
//! twice has the same effect as applying it once. The Op of a record holds the locks of the changed objects
//! until the clearing of the record has settled. Therefore a record is independent of the records in other
//! slots. For the same reason, recovery never replays a record over newer state. (Aerie, EuroSys 2014,
//! commits metadata with a redo log too: section 4.4.5 of the paper. BPFS, SOSP 2009, copies up to a common
//! ancestor instead: section 3.2.)
//!
//! Layout of a slot: word 0 is 0 if the slot is free. Otherwise its upper half is the checksum of the record,
//! and its lower half is the number of words (at least 1). Word 1 is the address of the list of words. A list
//! that fits in the slot begins in the slot's second line. A longer list is in an extent.
//!
//! Safe when power fails: the record is ordered before the publish of word 0, which commits it. Every
//! recovery applies the same words, until word 0 is durably 0 again.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium, Ordered, Settled};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::prepare::Transaction;
use crate::tables::layout::{REDO_SLOT_BYTES, REDO_SLOTS, redo_slot};
use crate::volume::Volume;
use crate::{Error, Result};

/// Bytes of one entry of a record: the address and the value of one word.
const ENTRY_BYTES: u64 = 16;
/// Length in bytes of the address of the list. This address is word 1 of the slot. The checksum covers first
/// this address and then the list.
const PLACE_BYTES: usize = 8;
/// Offset of the list inside the slot. The list begins on a line of its own.
const INLINE_OFFSET: u64 = 64;
const INLINE_ENTRIES: usize = ((REDO_SLOT_BYTES - INLINE_OFFSET) / ENTRY_BYTES) as usize;
/// Maximum number of words of a record. The list is in one extent, and the largest extent has room for this
/// number of entries. A commit of more words fails with `TooLarge`, so a longer record is corrupt.
const MAX_ENTRIES: u64 = 1 << 22;

/// Commits the words of a transaction by a redo record.
pub(super) fn commit(transaction: &mut Transaction<'_>) -> Result<Settled> {
    let words = transaction.reduce_to_words()?;
    let redo = transaction.volume().redo_slots();
    redo.with_slot(|index| {
        // A commit may have panicked while this thread waited for the slot.
        transaction.volume().space().refuse_if_stopped()?;
        let medium = transaction.medium();
        let slot = redo_slot(index);
        let mut overflow = None;
        let entries = if words.len() <= INLINE_ENTRIES {
            slot.add(INLINE_OFFSET)
        } else {
            let extent = transaction.allocate(words.len() as u64 * ENTRY_BYTES)?;
            overflow = Some(extent);
            extent.addr
        };
        let mut record: SmallVec<[u64; 32]> = SmallVec::new();
        record.push(entries.raw().to_le());
        for (addr, value) in &words {
            record.push(addr.raw().to_le());
            record.push(value.to_le());
        }
        let record = record.as_bytes();
        transaction.precedes(SafetyRule::RedoWordsBeforeTheirRecord, entries, record.len() - PLACE_BYTES)?;
        transaction.write(entries, &record[PLACE_BYTES..])?;
        for &(addr, _) in &words {
            // No store may fail after the publish. Therefore every address is checked, and every store is
            // reserved, before the publish.
            medium.load(addr)?;
            medium.reserve_store(addr)?;
        }
        medium.reserve_store(slot)?;
        transaction.write_word(slot.add(8), entries.raw())?;
        let ordered = transaction.barrier()?;
        if broken(SafetyRule::RedoRecordBeforeItsEffect) {
            let _ = medium.publish_all(words.iter().copied(), Ordered::nothing())?;
        }
        // A panic may leave a record whose words are only partly stored. Then `stop_on_panic` stops all later
        // commits before the slot and the locks of the Op are released. Otherwise recovery would apply the
        // record over later changes, or another record would replace it.
        let settled = transaction.volume().space().stop_on_panic(|| {
            let committed = medium.publish(slot, state(record), ordered)?;
            let settled = medium.settle(committed);

            if broken(SafetyRule::RedoRecordIsClearedAfterItsEffect) {
                let _ = medium.publish(slot, 0, Ordered::nothing())?;
            }
            // The record has settled. While its words are stored, readers of several words retry.
            let applied =
                transaction.volume().board().applying(|| medium.publish_all(words.iter().copied(), settled));
            let settled = medium.settle(applied?);
            let cleared = match broken(SafetyRule::RedoRecordIsClearedUnderItsLocks) {
                true => medium.publish_nothing(settled),
                false => medium.publish(slot, 0, settled)?,
            };
            // The next user of the slot overwrites this record. Therefore the clearing must settle before the
            // slot is released.
            Ok::<_, Error>(medium.settle(cleared))
        })?;
        if let Some(extent) = overflow {
            transaction.retire(extent);
        }
        Ok(settled)
    })
}

/// Returns word 0 of the slot of a record: the checksum of the address and the list, and the number of words.
fn state(record: &[u8]) -> u64 {
    let count = (record.len() - PLACE_BYTES) as u64 / ENTRY_BYTES;
    let overflows = count > INLINE_ENTRIES as u64;
    let is_short = overflows && broken(SafetyRule::RedoChecksumCoversOverflow);
    let covered = if is_short { &record[..PLACE_BYTES] } else { record };
    u64::from(crc32c::crc32c(covered)) << 32 | count
}

/// Applies the committed records of a volume after a crash. A second call has no further effect.
///
/// # Errors
/// `Corrupt` if a record contradicts itself. `Fault` if a word cannot be read or stored.
pub fn replay(volume: &Volume) -> Result<()> {
    replay_each(volume).next().map_or(Ok(()), Err)
}

/// Replays the slots as [`replay`] does, but lazily. Each step of the iterator replays slots until the next
/// error.
pub(crate) fn replay_each(volume: &Volume) -> impl Iterator<Item = Error> + '_ {
    let slots = if broken(SafetyRule::EveryRedoSlotIsReplayed) { REDO_SLOTS / 2 } else { REDO_SLOTS };
    (0..slots).filter_map(|index| replay_slot(volume.medium(), redo_slot(index)).err())
}

fn replay_slot(medium: &Medium, slot: Addr) -> Result<()> {
    let stored = medium.load(slot)?;
    if stored == 0 {
        return Ok(());
    }
    let count = stored & u64::from(u32::MAX);
    if count > MAX_ENTRIES {
        return Err(Error::corrupt(slot, "redo record with too many words"));
    }
    let entries = medium.load(slot.add(8))?;
    let mut record = vec![0; PLACE_BYTES + (count * ENTRY_BYTES) as usize];
    record[..PLACE_BYTES].copy_from_slice(&entries.to_le_bytes());
    medium.read(Addr::from_raw(entries), &mut record[PLACE_BYTES..])?;
    if !medium.verify(state(&record) == stored) {
        return Err(Error::corrupt(slot, "redo record with a wrong checksum"));
    }
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
    let words = record[PLACE_BYTES..]
        .chunks_exact(16)
        .map(|entry| (Addr::from_raw(word(&entry[..8])), word(&entry[8..])));
    for (addr, _) in words.clone() {
        // Check each address before the first word is stored, so that either all words are applied or none.
        // Otherwise a damaged record could cause more damage.
        medium.load(addr)?;
    }
    if broken(SafetyRule::ReplayedRecordIsClearedLast) {
        let cleared = medium.publish(slot, 0, Ordered::nothing())?;
        let _ = medium.settle(cleared);
    }
    let last = usize::from(broken(SafetyRule::EveryRedoWordIsReplayed));
    let words = words.take(count as usize - last);
    let applied = medium.publish_all(words, Ordered::nothing())?;
    let settled = medium.settle(applied);
    let cleared = medium.publish(slot, 0, settled)?;
    let _ = medium.settle(cleared);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::assert_described;

    #[test]
    fn format_page_matches_redo_slots() {
        let (inline, slot) = (INLINE_OFFSET as usize, REDO_SLOT_BYTES as usize);
        let fields = [
            ("state", 0, 8),
            ("place", 8, 8),
            ("reserved", 16, inline - 16),
            ("words", inline, slot - inline),
        ];
        assert_described("Redo slot", slot, &fields);
        assert_eq!(INLINE_ENTRIES, 252);
        assert_described("Redo word", ENTRY_BYTES as usize, &[("address", 0, 8), ("value", 8, 8)]);
        let (place, word) = (0x1140_u64.to_le_bytes(), [7; ENTRY_BYTES as usize]);
        let record = [&place[..], &word[..]].concat();
        assert_eq!(state(&record), u64::from(crc32c::crc32c(&record)) << 32 | 1);
    }
}
