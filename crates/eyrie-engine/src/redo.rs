//! Redo slots, for the few Ops that no single publish can commit.
//!
//! A record is a list of (address, value) words: idempotent, checksummed, and independent of the other slots' because
//! the locks of the objects that it changes are held until it is durably cleared. So no record is ever replayed over
//! newer state. (Aerie commits metadata with a redo log too, `aerie.txt` section 4.4.5; BPFS copies up to a common
//! ancestor instead, `bpfs.txt` section 3.2.)
//!
//! Slot: word 0 is 0 when free, else the record's checksum over its number of words (at least 1); word 1 is the
//! address of the words, behind the slot's first line or, when they do not fit there, in an extent.
//!
//! Safe when power fails: the publish of word 0 commits the record, which is durable before; until word 0 is durably 0
//! again, every recovery applies the same words.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::epoch::thread_index;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, lock, try_lock, wait};
use eyrie_medium::{Addr, Medium, Ordered, Settled};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::transaction::Transaction;
use crate::volume::{REDO_SLOT_BYTES, REDO_SLOTS, Volume, redo_slot};
use crate::{Error, Result};

const ENTRY_BYTES: u64 = 16;
/// Of the place of the words, which the checksum covers before them.
const PLACE_BYTES: usize = 8;
const INLINE_OFFSET: u64 = 64;
const INLINE_ENTRIES: usize = ((REDO_SLOT_BYTES - INLINE_OFFSET) / ENTRY_BYTES) as usize;
/// More words than any Op needs: a record this long is corrupt.
const MAX_ENTRIES: u64 = 1 << 22;

/// Who uses which slot, and how readers see that records are being applied.
#[derive(Default)]
pub struct Redo {
    slots: [Mutex<()>; REDO_SLOTS],
    started: AtomicU64,
    finished: AtomicU64,
}

impl Redo {
    /// Runs `read` (again and again) until no record was being applied meanwhile: it sees each Op whole or not at all.
    #[inline(always)]
    pub fn stable<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let mut attempt = 0_u32;
        loop {
            let finished = self.finished.load(Ordering::Acquire);
            let started = self.started.load(Ordering::Acquire);
            if started == finished {
                let result = read();
                if self.started.load(Ordering::Acquire) == started {
                    return result;
                }
            }
            wait(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Runs `apply` with the slot that suits this thread best.
    fn with_slot<T>(&self, apply: impl FnOnce(usize) -> T) -> T {
        let first = thread_index() % REDO_SLOTS;
        let free = (0..REDO_SLOTS).map(|n| (first + n) % REDO_SLOTS).find_map(|index| {
            let held = try_lock(&self.slots[index])?;
            Some((index, held))
        });
        let (index, _held) = free.unwrap_or_else(|| (first, lock(&self.slots[first])));
        apply(index)
    }
}

/// Commits the several words of a transaction.
pub(crate) fn commit(transaction: &mut Transaction<'_>) -> Result<Settled> {
    let words = transaction.reduce_to_words()?;
    let redo = transaction.volume().redo();
    redo.with_slot(|index| {
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
            // From the publish on nothing may fail: every word must be there.
            medium.load(addr)?;
        }
        transaction.write_word(slot.add(8), entries.raw())?;
        let ordered = transaction.barrier()?;
        if broken(SafetyRule::RedoRecordBeforeItsEffect) {
            let _ = medium.publish_all(words.iter().copied(), Ordered::nothing())?;
        }
        let committed = medium.publish(slot, state(record), ordered)?;
        let settled = medium.settle(committed);

        if broken(SafetyRule::RedoRecordIsClearedAfterItsEffect) {
            let _ = medium.publish(slot, 0, Ordered::nothing())?;
        }
        redo.started.fetch_add(1, Ordering::AcqRel);
        let applied = medium.publish_all(words.iter().copied(), settled);
        redo.finished.fetch_add(1, Ordering::AcqRel);
        let settled = medium.settle(applied?);
        let cleared = match broken(SafetyRule::RedoRecordIsClearedUnderItsLocks) {
            true => medium.publish_nothing(settled),
            false => medium.publish(slot, 0, settled)?,
        };
        if let Some(extent) = overflow {
            transaction.retire(extent);
        }
        // Whoever takes the slot next may write the record of another Op over this one.
        Ok(medium.settle(cleared))
    })
}

/// Word 0 for a record: the place of its words, and the words.
fn state(record: &[u8]) -> u64 {
    let count = (record.len() - PLACE_BYTES) as u64 / ENTRY_BYTES;
    let overflows = count > INLINE_ENTRIES as u64;
    let is_short = overflows && broken(SafetyRule::RedoChecksumCoversOverflow);
    let covered = if is_short { &record[..PLACE_BYTES] } else { record };
    u64::from(crc32c::crc32c(covered)) << 32 | count
}

/// Applies the committed records of a crashed volume. Doing it twice is doing it once.
///
/// # Errors
/// `Corrupt` when a record contradicts itself; `Fault`.
pub fn replay(volume: &Volume) -> Result<()> {
    replay_each(volume).next().map_or(Ok(()), Err)
}

/// As [`replay`], whatever is wrong with some of them; the errors.
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
        // All of them or none: a record that nobody wrote must not damage more.
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
    fn the_format_description_agrees_with_redo_slots() {
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
