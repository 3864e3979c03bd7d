//! Bucket pages that a transaction changes. [`PageDraft`] finds room for entries in an existing page.
//! [`PageImage`] is a new page that is built in memory.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::commit::Commit;
use super::layout::{
    CAPACITY, EntrySlot, Gap, HEAP_UNIT, INVENTORY, Inventory, NameRecord, PAGE_BYTES, PAGE_UNITS, PageHead,
    PageStamp, SlotLine, Tags, UNIT, free_slot, home, index_of, length_at, line_of, page_extent, slot_at,
    stamp_at, tag, tags_at,
};
use super::table::{bits, load, read_slot};
use crate::transaction::Transaction;
use crate::{Error, ObjectId, Result};

/// A page with at least this number of live entries is crowded. An insert into a crowded page makes the
/// collection grow, unless the bucket that would be split is nearly empty (see `grow`). The number is three
/// quarters of the slots of a page.
pub(super) const CROWDED: u32 = 21;

/// An entry to be inserted.
pub(super) struct NewEntry<'a> {
    pub(super) record: NameRecord<'a>,
    pub(super) id: ObjectId,
    pub(super) stamp: PageStamp,
}

/// Room for an entry: a slot, the units of its record, and the gap of the page after the insert.
#[derive(Clone, Copy)]
pub(super) struct EntryRoom {
    pub(super) slot: u32,
    pub(super) unit: u32,
    pub(super) units: u32,
    pub(super) gap: Gap,
}

/// A page that a transaction changes. `stored` is the commit word on the medium. `pending` is the commit word
/// that the commit of the transaction publishes.
pub(super) struct PageDraft<'v> {
    medium: &'v Medium,
    addr: Addr,
    pub(super) stored: Commit,
    pub(super) pending: Commit,
    /// True if the transaction has already changed the page. The version of `pending` then differs from the
    /// version of `stored`.
    begun: bool,
}

impl<'v> PageDraft<'v> {
    #[inline(always)]
    pub(super) fn open(tx: &Transaction<'v>, addr: Addr) -> Result<PageDraft<'v>> {
        // A damaged link must not lead the writes of this transaction outside the space for extents.
        tx.volume().require_possible_extent(page_extent(addr))?;
        let draft = PageDraft::stored(tx.medium(), addr)?;
        Ok(match tx.pending(addr) {
            Some(pending) => PageDraft { pending: Commit::from_raw(pending), begun: true, ..draft },
            None => draft,
        })
    }

    /// Opens the page in its stored state, without the changes of any transaction.
    #[inline(always)]
    pub fn stored(medium: &'v Medium, addr: Addr) -> Result<PageDraft<'v>> {
        let stored = Commit::from_raw(load(medium, addr)?);
        Ok(PageDraft { medium, addr, stored, pending: stored, begun: false })
    }

    /// Returns the live slots of the stored commit word.
    pub fn live(&self) -> u32 {
        self.stored.live()
    }

    /// Returns the slots that must not be overwritten: those that are live now, and those that the commit
    /// makes live.
    pub(super) fn occupied(&self) -> u32 {
        self.stored.live() | self.pending.live()
    }

    pub(super) fn inventory(&self) -> Result<Inventory> {
        load(self.medium, self.addr.add(INVENTORY)).map(Inventory::from_raw)
    }

    /// Finds room for an entry. Returns `None` if the page is full.
    #[inline(always)]
    pub fn room(&self, record: &NameRecord<'_>) -> Result<Option<EntryRoom>> {
        let (taken, units) = (self.occupied(), record.units());
        let Some(slot) = free_slot(record.hash, taken) else { return Ok(None) };
        let mut gap = self.inventory()?.gap();
        // Removals do not enlarge the stored gap, so a larger gap may exist between the records.
        if gap.units() < units || !gap.is_in_heap() {
            gap = self.largest_gap(taken)?;
        }
        let room = EntryRoom { slot, unit: gap.start, units, gap: gap.after(units) };
        Ok((gap.units() >= units).then_some(room))
    }

    /// Returns the largest gap between the records of `slots`.
    #[cold]
    fn largest_gap(&self, slots: u32) -> Result<Gap> {
        let mut records: SmallVec<[(u32, u32); CAPACITY as usize + 1]> = SmallVec::new();
        for slot in bits(slots) {
            let (slot, units) = read_slot(self.medium, self.addr, slot)?;
            records.push((slot.unit(), slot.unit() + units));
        }
        records.push((PAGE_UNITS, PAGE_UNITS));
        records.sort_unstable();
        let (mut largest, mut at) = (Gap { start: PAGE_UNITS, end: PAGE_UNITS }, HEAP_UNIT);
        for (start, end) in records {
            let gap = Gap { start: at, end: start };
            if gap.units() > largest.units() {
                largest = gap;
            }
            at = at.max(end);
        }
        Ok(largest)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Result<()> {
        let bit = 1 << slot;
        if self.pending.live() & bit == 0 {
            return Err(Error::corrupt(self.addr, "entry removed twice"));
        }
        self.pending = self.pending.with_live(self.pending.live() & !bit);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn put(
        &mut self,
        tx: &mut Transaction<'_>,
        room: EntryRoom,
        entry: &NewEntry<'_>,
    ) -> Result<()> {
        let place = self.addr.add(u64::from(room.unit) * UNIT);
        tx.precedes(SafetyRule::RecordBeforeItsSlot, place, (room.units * 8) as usize)?;
        tx.write_words(place, entry.record.words())?;
        self.fill(tx, room, entry.record.hash, entry.id)
    }

    /// Fills a dead slot for an entry whose record is already written. The commit makes the slot live.
    #[inline(always)]
    pub(super) fn fill(
        &mut self,
        tx: &mut Transaction<'_>,
        room: EntryRoom,
        hash: u64,
        id: ObjectId,
    ) -> Result<()> {
        let EntryRoom { slot, unit, units, gap } = room;
        let (line, index, home) = (line_of(slot), index_of(slot), home(hash));
        tx.write_word(slot_at(self.addr, slot), EntrySlot::new(id, unit).raw())?;
        self.set_byte(tx, tags_at(self.addr, line), index, tag(hash))?;
        self.set_byte(tx, length_at(self.addr, slot), index, units as u8)?;
        if line != home {
            let place = tags_at(self.addr, home);
            let tags = Tags::from_raw(load(self.medium, place)?);
            tx.precedes(SafetyRule::SpilledBitBeforeItsEntry, place, 8)?;
            tx.write_word(place, tags.with_spilled(tags.spilled() | 1 << line).raw())?;
        }
        let inventory = self.inventory()?.with_entry(slot, id.is_directory()).with_gap(gap);
        tx.precedes(SafetyRule::InventoryBeforeItsEntry, self.addr.add(INVENTORY), 8)?;
        tx.write_word(self.addr.add(INVENTORY), inventory.raw())?;
        self.pending = self.pending.with_live(self.pending.live() | 1 << slot);
        Ok(())
    }

    /// Sets byte `index` of the word at `place`.
    #[inline]
    fn set_byte(&self, tx: &mut Transaction<'_>, place: Addr, index: u32, byte: u8) -> Result<()> {
        let others = load(self.medium, place)? & !(0xff << (8 * index));
        tx.write_word(place, others | u64::from(byte) << (8 * index))
    }

    /// Adds the change of the page to the commit, with the time in `stamp`.
    #[inline(always)]
    pub(super) fn finish(self, tx: &mut Transaction<'_>, stamp: PageStamp) -> Result<()> {
        let in_place = broken(SafetyRule::DeadStampIsWritten);
        // A transaction gives a page only one new version, because it publishes the commit word once. A
        // second change of the page keeps the version of the first change, and overwrites the time of the
        // first.
        let pending = match self.begun {
            true => self.pending,
            false if in_place => self.pending.next(),
            false => self.pending.next_stamped(),
        };
        tx.write_words(stamp_at(self.addr, pending.selector()), stamp.words().into_iter())?;
        tx.word(self.addr, pending.raw());
        Ok(())
    }
}

/// A page that is built in memory and then written to the medium in one piece.
pub(super) struct PageImage {
    bytes: [u8; PAGE_BYTES as usize],
    head: PageHead,
}

impl PageImage {
    /// Makes a page without entries. `commit` has no live slots.
    pub fn new(commit: Commit, stamp: PageStamp) -> PageImage {
        let line = SlotLine { slots: [0; 7], tags: [0; 7], spilled: 0 };
        let head = PageHead {
            commit: commit.raw(),
            link: 0,
            directories: 0,
            gap_start: HEAP_UNIT as u16,
            gap_end: PAGE_UNITS as u16,
            reserved: 0,
            stamps: [stamp, PageStamp::NONE],
            lines: [line; 4],
            lengths: [0; 32],
        };
        PageImage { bytes: [0; PAGE_BYTES as usize], head }
    }

    /// Adds an entry. Returns false if the page has no room.
    pub fn push(&mut self, record: &NameRecord<'_>, id: ObjectId) -> bool {
        let commit = Commit::from_raw(self.head.commit);
        let (unit, units) = (self.head.gap_start, record.units() as u16);
        let Some(slot) = free_slot(record.hash, commit.live()) else { return false };
        if unit + units > self.head.gap_end {
            return false;
        }
        let (memory, _) = self.bytes.as_chunks_mut();
        for (place, word) in memory[usize::from(unit)..].iter_mut().zip(record.words()) {
            *place = word.to_le_bytes();
        }
        let (line, home, index) = (line_of(slot), home(record.hash), index_of(slot) as usize);
        self.head.lines[line as usize].slots[index] = EntrySlot::new(id, unit.into()).raw();
        self.head.lines[line as usize].tags[index] = tag(record.hash);
        if line != home {
            self.head.lines[home as usize].spilled |= 1 << line;
        }
        self.head.lengths[slot as usize] = units as u8;
        self.head.directories |= u32::from(id.is_directory()) << slot;
        self.head.commit = commit.with_live(commit.live() | 1 << slot).raw();
        self.head.gap_start += units;
        true
    }

    /// Returns the bytes of the page, with `link` as the pointer to the next page.
    pub fn bytes(&self, link: u64) -> [u8; PAGE_BYTES as usize] {
        let mut bytes = self.bytes;
        let head = PageHead { link, ..self.head };
        bytes[..size_of::<PageHead>()].copy_from_slice(head.as_bytes());
        bytes
    }
}
