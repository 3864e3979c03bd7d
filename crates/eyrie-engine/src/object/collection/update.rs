//! Inserting, removing and replacing entries, each one publish where a page has room for it.
//!
//! The caller holds the directory's lock. Safe when power fails: see the module's docs.

use eyrie_medium::{Addr, Medium};
use zerocopy::IntoBytes;

use super::grow::CROWDED;
use super::hash;
use super::layout::{
    Commit, DIRECTORIES, FIRST_TABLE_BYTES, HEAP_UNIT, LENGTHS, LINK, OFFSETS, PAGE_BYTES, PAGE_UNITS,
    PageHead, Record, SLOTS, Stamp, TAGS, UNIT, page_extent, segment_slot, tag,
};
use super::read::{Found, stamp_at};
use super::table::{Chain, Entry, Table, bits, read_value, record_at, record_place};
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
    let record = Record::new(hash, id, name);
    NewEntry { record: &record, hash, id, stamp: Stamp::new(time, epoch) }.insert(tx, page, level)
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
    let record = Record::new(hash, id, name);
    let entry = NewEntry { record: &record, hash, id, stamp: Stamp::new(time, epoch) };
    let Some(room) = page.room(record.units())? else { return Ok(false) };
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
    let (record, units) = record_at(tx.medium(), found.page, found.slot)?;
    let old = Entry::read(tx.medium(), record, units)?;
    let record = Record::new(old.hash, id, old.name());
    let entry = NewEntry { record: &record, hash: old.hash, id, stamp };
    page.remove(found.slot)?;
    if let Some(room) = page.room(units)? {
        page.put(tx, room, &entry)?;
        return page.finish(tx, stamp);
    }
    let level = page.pending.level();
    page.finish(tx, stamp)?;
    entry.insert(tx, found.bucket, level)
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
    record: &'a Record,
    hash: u64,
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
            if let Some(room) = page.room(self.record.units())? {
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
        image.push(self.record.bytes(), self.hash, self.id);
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

/// Where a record can go: a slot, and the first unit of its memory.
#[derive(Clone, Copy)]
pub(super) struct Room {
    slot: u32,
    unit: u32,
}

/// The units of a page that are in use, a bit each.
#[derive(Default)]
struct Units([u64; PAGE_UNITS as usize / 64]);

impl Units {
    /// Marks a record, which is within the page and shorter than 64 units.
    #[inline]
    fn fill(&mut self, start: u32, len: u32) {
        let run = u128::from(u64::MAX >> (64 - len)) << (start % 64);
        let word = start as usize / 64;
        self.0[word] |= run as u64;
        if let Some(next) = self.0.get_mut(word + 1) {
            *next |= (run >> 64) as u64;
        }
    }

    /// The first unit from `at` on that is in use, or is free; the page's end if there is none.
    #[inline]
    fn next(&self, at: u32, in_use: bool) -> u32 {
        let mut at = at;
        while at < PAGE_UNITS {
            let word = self.0[at as usize / 64];
            let wanted = if in_use { word } else { !word } >> (at % 64);
            if wanted != 0 {
                return at + wanted.trailing_zeros();
            }
            at = (at / 64 + 1) * 64;
        }
        PAGE_UNITS
    }

    /// The first gap of `units` in the heap.
    fn gap(&self, units: u32) -> Option<u32> {
        let mut at = HEAP_UNIT;
        while at + units <= PAGE_UNITS {
            let start = self.next(at, false);
            let end = self.next(start, true);
            if end - start >= units {
                return Some(start);
            }
            at = end;
        }
        None
    }
}

/// A page that a transaction changes.
pub(super) struct Draft {
    addr: Addr,
    head: PageHead,
    stored: Commit,
    pending: Commit,
    /// Whether the transaction changes the page already: then `pending` is a version of its own.
    begun: bool,
}

impl Draft {
    #[inline(always)]
    fn open(tx: &Transaction<'_>, addr: Addr) -> Result<Draft> {
        tx.volume().require_own(page_extent(addr))?;
        let draft = Draft::stored(tx.medium(), addr)?;
        Ok(match tx.pending(addr) {
            Some(pending) => Draft { pending: Commit::from_raw(pending), begun: true, ..draft },
            None => draft,
        })
    }

    /// The page as it is stored.
    #[inline(always)]
    pub fn stored(medium: &Medium, addr: Addr) -> Result<Draft> {
        let head: PageHead = read_value(medium, addr)?;
        let stored = Commit::from_raw(head.commit);
        Ok(Draft { addr, head, stored, pending: stored, begun: false })
    }

    /// Live slots, as the stored commit word says.
    pub fn live(&self) -> u32 {
        self.stored.live()
    }

    /// Room for a record of `units`: neither what is live now nor what will be may be touched.
    pub fn room(&self, units: u32) -> Result<Option<Room>> {
        let taken = self.stored.live() | self.pending.live();
        let slot = taken.trailing_ones();
        if slot == u32::BITS {
            return Ok(None);
        }
        let mut used = Units::default();
        for other in bits(taken) {
            let (start, len) = self.record_units(other)?;
            used.fill(start, len);
        }
        Ok(used.gap(units).map(|unit| Room { slot, unit }))
    }

    fn record_units(&self, slot: u32) -> Result<(u32, u32)> {
        record_place(self.addr, self.head.offsets[slot as usize], self.head.lengths[slot as usize])
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
        let slot = u64::from(room.slot);
        let bit = 1 << room.slot;
        tx.write(self.addr.add(u64::from(room.unit) * UNIT), entry.record.bytes())?;
        self.set_byte(tx, TAGS, slot, self.head.tags, tag(entry.hash))?;
        self.set_byte(tx, OFFSETS, slot, self.head.offsets, room.unit as u8)?;
        self.set_byte(tx, LENGTHS, slot, self.head.lengths, entry.record.units() as u8)?;
        let directory = u64::from(entry.id.is_directory()) << room.slot;
        let directories = self.head.directories & !u64::from(bit) | directory;
        if directories != self.head.directories {
            tx.write_word(self.addr.add(DIRECTORIES), directories)?;
            self.head.directories = directories;
        }
        self.pending = self.pending.with_live(self.pending.live() | bit);
        Ok(())
    }

    /// Stores a dead slot's byte of one of the page's tables, which holds `bytes`, with the word around it.
    #[inline]
    fn set_byte(
        &self,
        tx: &mut Transaction<'_>,
        table: u64,
        slot: u64,
        bytes: [u8; 32],
        byte: u8,
    ) -> Result<()> {
        let (at, within) = (slot as usize / 8 * 8, slot % 8);
        let word: [u8; 8] = std::array::from_fn(|index| bytes[at + index]);
        let word = u64::from_le_bytes(word) & !(0xff << (8 * within)) | u64::from(byte) << (8 * within);
        tx.write_word(self.addr.add(table + at as u64), word)
    }

    /// Makes the commit publish the page, changed at the time that `stamp` says.
    #[inline(always)]
    fn finish(self, tx: &mut Transaction<'_>, stamp: Stamp) -> Result<()> {
        let pending = if self.begun { self.pending } else { self.pending.next_stamped() };
        tx.write(stamp_at(self.addr, pending.selector()), stamp.as_bytes())?;
        tx.word(self.addr, pending.raw());
        Ok(())
    }
}

/// A page that is made up before it is written whole.
pub(super) struct PageImage {
    bytes: [u8; PAGE_BYTES as usize],
    head: PageHead,
    slots: u32,
    end: u32,
}

impl PageImage {
    pub fn new(level: u32, stamp: Stamp) -> PageImage {
        let head = PageHead {
            commit: Commit::new(0, level).raw(),
            link: 0,
            tags: [0; 32],
            directories: 0,
            reserved: 0,
            offsets: [0; 32],
            lengths: [0; 32],
            stamps: [stamp, Stamp::NONE],
        };
        PageImage { bytes: [0; PAGE_BYTES as usize], head, slots: 0, end: HEAP_UNIT }
    }

    /// Adds an entry, if there is room.
    pub fn push(&mut self, record: &[u8], hash: u64, id: ObjectId) -> bool {
        let units = (record.len() as u64 / UNIT) as u32;
        if self.slots == SLOTS || self.end + units > PAGE_UNITS {
            return false;
        }
        let slot = self.slots as usize;
        let start = self.end as usize * UNIT as usize;
        self.bytes[start..start + record.len()].copy_from_slice(record);
        self.head.tags[slot] = tag(hash);
        self.head.offsets[slot] = self.end as u8;
        self.head.lengths[slot] = units as u8;
        self.head.directories |= u64::from(id.is_directory()) << slot;
        let commit = Commit::from_raw(self.head.commit);
        self.head.commit = commit.with_live(commit.live() | 1 << slot).raw();
        self.slots += 1;
        self.end += units;
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
