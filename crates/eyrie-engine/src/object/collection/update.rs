//! Inserting, removing and replacing entries. Each change publishes one word. There is one exception: a
//! replacement in a page without a free slot moves the entry to another page, and publishes two words.
//!
//! The caller holds the lock of the entry's shard. The docs of `collection` explain why a power failure does
//! no harm.

use eyrie_medium::Addr;
use eyrie_medium::rules::SafetyRule;

use super::buckets::{FIRST_TABLE_BYTES, segment_slot};
use super::commit::Commit;
use super::layout::{LINK, NameRecord, PAGE_BYTES, PageStamp, free_slot};
use super::page::{CROWDED, EntryRoom, NewEntry, PageDraft, PageImage};
use super::read::FoundEntry;
use super::shrink::FEW;
use super::table::{Chain, StoredEntry, Table, hash, load, read_slot, record_at};
use crate::extent::Extent;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::{Error, ObjectId, Result, Time};

/// Makes a collection without entries: a table and one bucket.
///
/// # Errors
/// `NoSpace`, `Fault`.
pub fn create(tx: &mut Transaction<'_>) -> Result<Pointer> {
    let table = tx.allocate(FIRST_TABLE_BYTES)?;
    let bucket = tx.allocate(PAGE_BYTES)?;
    tx.zero(table.addr, table.bytes())?;
    tx.write_word(table.addr, 1)?;
    tx.write_word(segment_slot(table.addr, 0), Pointer::node(bucket).raw())?;
    let page = PageImage::new(Commit::new(0, 0), PageStamp::NONE);
    tx.write(bucket.addr, &page.bytes(0))?;
    Ok(Pointer::node(table))
}

/// Inserts an entry. The collection has no entry with this name (1 to 255 bytes) yet. The caller has called
/// [`make_room`](super::make_room), or [`needs_room`](super::needs_room) has returned `None` or a result with
/// `is_optional`. If the first page of the bucket has no room, the entry goes into a further page.
///
/// # Errors
/// `NoSpace`, `DirectoryFull`, `Corrupt`, `Fault`. The caller must not commit the transaction after an error.
pub fn insert(
    tx: &mut Transaction<'_>,
    root: Pointer,
    name: &[u8],
    id: ObjectId,
    time: Time,
    times_version: u32,
) -> Result<()> {
    let (hash, page, level) = bucket_of(tx, root, name)?;
    NewEntry { record: NameRecord { hash, name }, id, stamp: PageStamp::new(time, times_version) }
        .insert(tx, page, level)
}

/// Inserts an entry if the first page of its bucket has the level of the bucket, is not crowded, and has room
/// for the entry. Otherwise changes nothing and returns false. The caller then makes room if
/// [`needs_room`](super::needs_room) demands it, and calls [`insert`]. The collection has no entry with this
/// name yet.
///
/// # Errors
/// `Corrupt`, `Fault`. The caller must not commit the transaction after an error.
pub(crate) fn insert_without_growth(
    tx: &mut Transaction<'_>,
    root: Pointer,
    name: &[u8],
    id: ObjectId,
    time: Time,
    times_version: u32,
) -> Result<bool> {
    let (hash, page, level) = bucket_of(tx, root, name)?;
    let mut page = PageDraft::open(tx, page)?;
    if page.stored.level() != level || page.live().count_ones() >= CROWDED {
        return Ok(false);
    }
    let entry =
        NewEntry { record: NameRecord { hash, name }, id, stamp: PageStamp::new(time, times_version) };
    let Some(room) = page.room(&entry.record)? else { return Ok(false) };
    page.put(tx, room, &entry)?;
    page.finish(tx, entry.stamp)?;
    Ok(true)
}

/// Removes an entry. Returns true if its page is left with few entries, unless the page is the first page of
/// a collection with one bucket. If the result is true, the caller calls [`may_shrink`](super::may_shrink)
/// after the commit.
///
/// # Errors
/// `Corrupt`, `Fault`. The caller must not commit the transaction after an error.
pub fn remove(tx: &mut Transaction<'_>, found: &FoundEntry, time: Time, times_version: u32) -> Result<bool> {
    let mut page = PageDraft::open(tx, found.page)?;
    page.remove(found.slot)?;
    // In a collection of one bucket, pages have level 0.
    let is_only_page = page.pending.level() == 0 && found.page == found.bucket;
    let is_sparse = !is_only_page && page.pending.live().count_ones() <= FEW;
    page.finish(tx, PageStamp::new(time, times_version))?;
    Ok(is_sparse)
}

/// Makes an entry refer to another object.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The caller must not commit the transaction after an error.
pub fn replace(
    tx: &mut Transaction<'_>,
    found: &FoundEntry,
    id: ObjectId,
    time: Time,
    times_version: u32,
) -> Result<()> {
    let stamp = PageStamp::new(time, times_version);
    let mut page = PageDraft::open(tx, found.page)?;
    let (old, units) = read_slot(tx.medium(), found.page, found.slot)?;
    let hash = load(tx.medium(), record_at(found.page, old))?;
    page.remove(found.slot)?;
    if let Some(slot) = free_slot(hash, page.occupied()) {
        // The name stays the same, so the new slot refers to the old record, and the gap does not change.
        let gap = page.inventory()?.gap();
        page.fill(tx, EntryRoom { slot, unit: old.unit(), units, gap }, hash, id)?;
        return page.finish(tx, stamp);
    }
    let level = page.pending.level();
    page.finish(tx, stamp)?;
    let old = StoredEntry::read(tx.medium(), found.page, found.slot)?;
    NewEntry { record: NameRecord { hash, name: old.name() }, id, stamp }.insert(tx, found.bucket, level)
}

/// Returns the hash of a name, the first page of its bucket, and the level of the bucket.
#[inline(always)]
fn bucket_of(tx: &Transaction<'_>, root: Pointer, name: &[u8]) -> Result<(u64, Addr, u32)> {
    let hash = hash(tx.volume().hash_seed(), name);
    let table = Table::open(tx.medium(), root)?;
    let buckets = table.buckets()?;
    let bucket = buckets.of(hash);
    Ok((hash, table.page(bucket)?, buckets.level(bucket)))
}

impl NewEntry<'_> {
    /// Puts the entry into the first of the bucket's pages that has room. If all pages are full, adds a new
    /// page after the last one, unless the bucket has the maximum number of pages.
    fn insert(&self, tx: &mut Transaction<'_>, bucket: Addr, level: u32) -> Result<()> {
        let mut chain = Chain::new();
        let (mut addr, mut extent): (Addr, Option<Extent>) = (bucket, None);
        loop {
            let mut page = PageDraft::open(tx, addr)?;
            if let Some(room) = page.room(&self.record)? {
                page.put(tx, room, self)?;
                return page.finish(tx, self.stamp);
            }
            match chain.next(addr, tx.peek(addr.add(LINK))?)? {
                Some(next) => (addr, extent) = (next.addr, Some(next)),
                None => break,
            }
        }
        // Only names that collide on purpose make so long a chain. Linux reports `ENOSPC`, too, if the index
        // of a directory is full.
        if !chain.may_grow() {
            return Err(Error::DirectoryFull);
        }
        let further = tx.allocate(PAGE_BYTES)?;
        let mut image = PageImage::new(Commit::new(0, level), self.stamp);
        image.push(&self.record, self.id);
        tx.precedes(SafetyRule::FurtherPageBeforeItsLink, further.addr, PAGE_BYTES as usize)?;
        tx.write(further.addr, &image.bytes(0))?;
        let link = Pointer::node(further).raw();
        // No reader can reach a page that this transaction has added, so the link of such a page needs no
        // publish.
        if extent.is_some_and(|last| tx.is_new(last)) {
            tx.write_word(addr.add(LINK), link)?;
        } else {
            tx.word(addr.add(LINK), link);
        }
        Ok(())
    }
}
