//! Inserting, removing and replacing entries, each one publish where a page has room for it.
//!
//! The caller holds the directory's lock. Safe when power fails: see the module's docs.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::buckets::{FIRST_TABLE_BYTES, segment_slot};
use super::grow::CROWDED;
use super::hash;
use super::layout::{
    CAPACITY, Commit, Gap, HEAP_UNIT, INVENTORY, Inventory, LINK, PAGE_BYTES, PAGE_UNITS, PageHead, Record,
    Slot, SlotLine, Stamp, Tags, UNIT, free_slot, home, index_of, length_at, line_of, page_extent, slot_at,
    stamp_at, tag, tags_at,
};
use super::read::Found;
use super::table::{Chain, Entry, Table, bits, load, read_slot, record_at};
use crate::object::pointer::{Extent, Pointer};
use crate::transaction::Transaction;
use crate::{Error, ObjectId, Result, Time};

/// A new collection without entries: a table and one bucket.
///
/// # Errors
/// `NoSpace`, `Fault`.
pub fn create(tx: &mut Transaction<'_>) -> Result<Pointer> {
    let table = tx.allocate(FIRST_TABLE_BYTES)?;
    let bucket = tx.allocate(PAGE_BYTES)?;
    tx.zero(table.addr, table.bytes())?;
    tx.write_word(table.addr, 1)?;
    tx.write_word(segment_slot(table.addr, 0), Pointer::node(bucket).raw())?;
    let page = PageImage::new(0, Stamp::NONE);
    tx.write(bucket.addr, &page.bytes(0))?;
    Ok(Pointer::node(table))
}

/// Inserts an entry. The caller knows that the name (1 to 255 bytes) is free, and has called
/// [`make_room`](super::make_room) before it began `tx`.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The transaction must not be committed then.
pub fn insert(
    tx: &mut Transaction<'_>,
    root: Pointer,
    name: &[u8],
    id: ObjectId,
    time: Time,
    epoch: u32,
) -> Result<()> {
    let (hash, page, level) = place(tx, root, name)?;
    NewEntry { record: Record { hash, name }, id, stamp: Stamp::new(time, epoch) }.insert(tx, page, level)
}

/// Inserts an entry if the first page of its bucket has plenty of room; whether it did. If not, nothing was changed, and
/// [`make_room`](super::make_room) and [`insert`] are the way. The caller knows that the name is free.
///
/// # Errors
/// `Corrupt`, `Fault`. The transaction must not be committed then.
pub fn insert_with_ease(
    tx: &mut Transaction<'_>,
    root: Pointer,
    name: &[u8],
    id: ObjectId,
    time: Time,
    epoch: u32,
) -> Result<bool> {
    let (hash, page, level) = place(tx, root, name)?;
    let mut page = Draft::open(tx, page)?;
    if page.stored.level() != level || page.live().count_ones() >= CROWDED {
        return Ok(false);
    }
    let entry = NewEntry { record: Record { hash, name }, id, stamp: Stamp::new(time, epoch) };
    let Some(room) = page.room(&entry.record)? else { return Ok(false) };
    page.put(tx, room, &entry)?;
    page.finish(tx, entry.stamp)?;
    Ok(true)
}

/// Removes an entry.
///
/// # Errors
/// `Corrupt`, `Fault`. The transaction must not be committed then.
pub fn remove(tx: &mut Transaction<'_>, found: &Found, time: Time, epoch: u32) -> Result<()> {
    let mut page = Draft::open(tx, found.page)?;
    page.remove(found.slot)?;
    page.finish(tx, Stamp::new(time, epoch))
}

/// Makes an entry name another object.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The transaction must not be committed then.
pub fn replace(tx: &mut Transaction<'_>, found: &Found, id: ObjectId, time: Time, epoch: u32) -> Result<()> {
    let stamp = Stamp::new(time, epoch);
    let mut page = Draft::open(tx, found.page)?;
    let (old, units) = read_slot(tx.medium(), found.page, found.slot)?;
    let hash = load(tx.medium(), record_at(found.page, old))?;
    page.remove(found.slot)?;
    if let Some(slot) = free_slot(hash, page.taken()) {
        // The record is the same, so it stays where it is.
        let gap = page.inventory()?.gap();
        page.fill(tx, Room { slot, unit: old.unit(), units, gap }, hash, id)?;
        return page.finish(tx, stamp);
    }
    let level = page.pending.level();
    page.finish(tx, stamp)?;
    let old = Entry::read(tx.medium(), found.page, found.slot)?;
    NewEntry { record: Record { hash, name: old.name() }, id, stamp }.insert(tx, found.bucket, level)
}

/// Where a name belongs: its hash, the first page of its bucket, and the bucket's level.
#[inline(always)]
fn place(tx: &Transaction<'_>, root: Pointer, name: &[u8]) -> Result<(u64, Addr, u32)> {
    let hash = hash(tx.volume().hash_seed(), name);
    let table = Table::open(tx.medium(), root)?;
    let buckets = table.buckets()?;
    let bucket = buckets.of(hash);
    Ok((hash, table.page(bucket)?, buckets.level(bucket)))
}

/// An entry to be.
struct NewEntry<'a> {
    record: Record<'a>,
    id: ObjectId,
    stamp: Stamp,
}

impl NewEntry<'_> {
    /// Puts the entry in the first page of the bucket that has room, or else in a new page after the last.
    fn insert(&self, tx: &mut Transaction<'_>, bucket: Addr, level: u32) -> Result<()> {
        let mut chain = Chain::new();
        let (mut addr, mut extent): (Addr, Option<Extent>) = (bucket, None);
        loop {
            let mut page = Draft::open(tx, addr)?;
            if let Some(room) = page.room(&self.record)? {
                page.put(tx, room, self)?;
                return page.finish(tx, self.stamp);
            }
            match chain.next(addr, tx.peek(addr.add(LINK))?)? {
                Some(next) => (addr, extent) = (next.addr, Some(next)),
                None => break,
            }
        }
        let further = tx.allocate(PAGE_BYTES)?;
        let mut image = PageImage::new(level, self.stamp);
        image.push(&self.record, self.id);
        tx.precedes(SafetyRule::FurtherPageBeforeItsLink, further.addr, PAGE_BYTES as usize)?;
        tx.write(further.addr, &image.bytes(0))?;
        let link = Pointer::node(further).raw();
        if extent.is_some_and(|last| tx.is_new(last)) {
            tx.write_word(addr.add(LINK), link)?;
        } else {
            tx.word(addr.add(LINK), link);
        }
        Ok(())
    }
}

/// Where an entry can go: a slot, and the memory of its record; and what the page's gap is then.
#[derive(Clone, Copy)]
pub(super) struct Room {
    slot: u32,
    unit: u32,
    units: u32,
    gap: Gap,
}

/// A page that a transaction changes.
pub(super) struct Draft<'v> {
    medium: &'v Medium,
    addr: Addr,
    stored: Commit,
    pending: Commit,
    /// Whether the transaction changes the page already: then `pending` is a version of its own.
    begun: bool,
}

impl<'v> Draft<'v> {
    #[inline(always)]
    fn open(tx: &Transaction<'v>, addr: Addr) -> Result<Draft<'v>> {
        tx.volume().require_own(page_extent(addr))?;
        let draft = Draft::stored(tx.medium(), addr)?;
        Ok(match tx.pending(addr) {
            Some(pending) => Draft { pending: Commit::from_raw(pending), begun: true, ..draft },
            None => draft,
        })
    }

    /// The page as it is stored.
    #[inline(always)]
    pub fn stored(medium: &'v Medium, addr: Addr) -> Result<Draft<'v>> {
        let stored = Commit::from_raw(load(medium, addr)?);
        Ok(Draft { medium, addr, stored, pending: stored, begun: false })
    }

    /// Live slots, as the stored commit word says.
    pub fn live(&self) -> u32 {
        self.stored.live()
    }

    /// Slots that may not be touched: what is live now, and what will be.
    fn taken(&self) -> u32 {
        self.stored.live() | self.pending.live()
    }

    fn inventory(&self) -> Result<Inventory> {
        load(self.medium, self.addr.add(INVENTORY)).map(Inventory::from_raw)
    }

    /// Room for an entry.
    #[inline(always)]
    pub fn room(&self, record: &Record<'_>) -> Result<Option<Room>> {
        let (taken, units) = (self.taken(), record.units());
        let Some(slot) = free_slot(record.hash, taken) else { return Ok(None) };
        let mut gap = self.inventory()?.gap();
        if gap.units() < units || !gap.is_in_heap() {
            gap = self.largest_gap(taken)?;
        }
        let room = Room { slot, unit: gap.start, units, gap: gap.after(units) };
        Ok((gap.units() >= units).then_some(room))
    }

    /// The largest gap between the records of these slots.
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

    fn remove(&mut self, slot: u32) -> Result<()> {
        let bit = 1 << slot;
        if self.pending.live() & bit == 0 {
            return Err(Error::corrupt(self.addr, "entry removed twice"));
        }
        self.pending = self.pending.with_live(self.pending.live() & !bit);
        Ok(())
    }

    #[inline(always)]
    fn put(&mut self, tx: &mut Transaction<'_>, room: Room, entry: &NewEntry<'_>) -> Result<()> {
        let place = self.addr.add(u64::from(room.unit) * UNIT);
        tx.precedes(SafetyRule::RecordBeforeItsSlot, place, (room.units * 8) as usize)?;
        tx.write_words(place, entry.record.words())?;
        self.fill(tx, room, entry.record.hash, entry.id)
    }

    /// Gives a dead slot to an entry whose record is written, and makes the commit bring it to life.
    #[inline(always)]
    fn fill(&mut self, tx: &mut Transaction<'_>, room: Room, hash: u64, id: ObjectId) -> Result<()> {
        let Room { slot, unit, units, gap } = room;
        let (line, index, home) = (line_of(slot), index_of(slot), home(hash));
        tx.write_word(slot_at(self.addr, slot), Slot::new(id, unit).raw())?;
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

    /// Sets byte `index` of a word.
    #[inline]
    fn set_byte(&self, tx: &mut Transaction<'_>, place: Addr, index: u32, byte: u8) -> Result<()> {
        let others = load(self.medium, place)? & !(0xff << (8 * index));
        tx.write_word(place, others | u64::from(byte) << (8 * index))
    }

    /// Makes the commit publish the page, changed at the time that `stamp` says.
    #[inline(always)]
    fn finish(self, tx: &mut Transaction<'_>, stamp: Stamp) -> Result<()> {
        let in_place = broken(SafetyRule::DeadStampIsWritten);
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

/// A page that is made up before it is written whole.
pub(super) struct PageImage {
    bytes: [u8; PAGE_BYTES as usize],
    head: PageHead,
}

impl PageImage {
    pub fn new(level: u32, stamp: Stamp) -> PageImage {
        let line = SlotLine { slots: [0; 7], tags: [0; 7], spilled: 0 };
        let head = PageHead {
            commit: Commit::new(0, level).raw(),
            link: 0,
            directories: 0,
            gap_start: HEAP_UNIT as u16,
            gap_end: PAGE_UNITS as u16,
            reserved: 0,
            stamps: [stamp, Stamp::NONE],
            lines: [line; 4],
            lengths: [0; 32],
        };
        PageImage { bytes: [0; PAGE_BYTES as usize], head }
    }

    /// Adds an entry, if there is room.
    pub fn push(&mut self, record: &Record<'_>, id: ObjectId) -> bool {
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
        self.head.lines[line as usize].slots[index] = Slot::new(id, unit.into()).raw();
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

    /// The bytes of the page, with `link` to a further one.
    pub fn bytes(&self, link: u64) -> [u8; PAGE_BYTES as usize] {
        let mut bytes = self.bytes;
        let head = PageHead { link, ..self.head };
        bytes[..size_of::<PageHead>()].copy_from_slice(head.as_bytes());
        bytes
    }
}
