//! The table of a collection, and the pages of its buckets. Every read is checked.

use eyrie_medium::{Addr, Fault, Medium, Words};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::{FromBytes, IntoBytes};

use super::buckets::{BucketPlace, Buckets, TABLE_HEAD, is_plain, segment_slot, table_slots};
use super::commit::Commit;
use super::layout::{
    EntrySlot, HEAP_UNIT, LINK, NameRecordHead, PAGE_BYTES, PAGE_UNITS, RECORD_NAME, UNIT, index_of,
    length_at, record_units, slot_at,
};
use crate::extent::Extent;
use crate::object::pointer::Pointer;
use crate::op::NAME_MAX;
use crate::volume::VolumeView;
use crate::{Error, ObjectId, Result};

/// Maximum number of pages of one bucket. A longer chain is treated as a cycle. Hashes spread names evenly,
/// so a sound chain is far shorter, unless names collide on purpose.
const MAX_CHAIN: usize = if cfg!(test) { 256 } else { 4096 };

/// A collection of a volume. The root is the pointer to its table.
#[derive(Clone, Copy)]
pub struct Collection<'v> {
    pub(super) volume: &'v VolumeView,
    pub(super) root: Pointer,
}

impl<'v> Collection<'v> {
    /// Returns the collection with this root.
    pub fn new(volume: &'v VolumeView, root: Pointer) -> Collection<'v> {
        Collection { volume, root }
    }

    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        hash(self.volume.hash_seed(), name)
    }
}

/// Returns the hash of a name in a volume with this seed.
#[inline]
pub fn hash(seed: u64, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed)
}

/// Makes the error for a fault at an address that was read from the medium. A bad address is corruption.
#[cold]
pub(super) fn error_at_stored_address(addr: Addr, fault: Fault) -> Error {
    match fault {
        Fault::OutOfBounds { .. } | Fault::Misaligned { .. } => {
            Error::corrupt(addr, "bad address in a collection")
        }
        other => Error::Fault(other),
    }
}

/// Loads the word at an address that was read from the medium.
#[inline(always)]
pub(super) fn load(medium: &Medium, addr: Addr) -> Result<u64> {
    medium.load(addr).map_err(|fault| error_at_stored_address(addr, fault))
}

/// Returns `count` words at an address that was read from the medium.
#[inline(always)]
pub(super) fn words(medium: &Medium, addr: Addr, count: usize) -> Result<Words<'_>> {
    medium.words(addr, count).map_err(|fault| error_at_stored_address(addr, fault))
}

/// Verifies a pointer that is stored at `place`, and returns its extent. The extent must have at least
/// `bytes`.
#[inline(always)]
fn checked(place: Addr, pointer: Pointer, bytes: u64) -> Result<Extent> {
    match pointer.extent() {
        Some(extent) if is_plain(pointer) && extent.bytes() >= bytes && !extent.addr.is_null() => Ok(extent),
        _ => Err(Error::corrupt(place, "bad pointer in a collection")),
    }
}

/// The table of a collection.
#[derive(Clone, Copy)]
pub(super) struct Table<'v> {
    pub medium: &'v Medium,
    pub extent: Extent,
}

impl<'v> Table<'v> {
    #[inline(always)]
    pub fn open(medium: &'v Medium, root: Pointer) -> Result<Table<'v>> {
        match root.extent() {
            Some(extent) if is_plain(root) && !extent.addr.is_null() && extent.bytes() > TABLE_HEAD => {
                Ok(Table { medium, extent })
            }
            _ => Err(Error::corrupt(Addr::from_raw(root.raw()), "bad root of a collection")),
        }
    }

    /// Returns the number of segments for which the table has room.
    #[inline]
    pub fn slots(&self) -> u64 {
        table_slots(self.extent.bytes())
    }

    /// Returns the number of buckets. This number is not compared with the size of the table.
    /// [`Table::segment`] refuses a bucket that is beyond the table.
    #[inline(always)]
    pub fn buckets(&self) -> Result<Buckets> {
        let count = load(self.medium, self.extent.addr)?;
        Buckets::new(count).ok_or_else(|| Error::corrupt(self.extent.addr, "impossible number of buckets"))
    }

    /// True if the collection still has this number of buckets.
    #[inline(always)]
    pub fn has(&self, buckets: Buckets) -> Result<bool> {
        Ok(load(self.medium, self.extent.addr)? == buckets.count())
    }

    /// Returns the number of buckets, for passes over all buckets. Refuses a number that does not fit the
    /// table or the volume. Therefore a pass over a damaged table ends.
    pub(crate) fn all_buckets(&self) -> Result<Buckets> {
        let buckets = self.buckets()?;
        if BucketPlace::of(buckets.count() - 1).segment >= self.slots() {
            return Err(Error::corrupt(self.extent.addr, "more buckets than fit the table"));
        }
        let room: u64 = self.medium.segment_sizes().sum();
        if buckets.count() > room / PAGE_BYTES {
            return Err(Error::corrupt(self.extent.addr, "more buckets than fit the volume"));
        }
        Ok(buckets)
    }

    /// Returns segment number `segment`, which must have room for at least `buckets_in_segment` buckets.
    /// Returns `None` if the table has no pointer to that segment.
    #[inline(always)]
    pub fn segment(&self, segment: u64, buckets_in_segment: u64) -> Result<Option<Extent>> {
        if segment >= self.slots() {
            return Err(Error::corrupt(self.extent.addr, "bucket beyond the end of its table"));
        }
        let slot = segment_slot(self.extent.addr, segment);
        match Pointer::from_raw(load(self.medium, slot)?) {
            Pointer::NULL => Ok(None),
            pointer => Ok(Some(checked(slot, pointer, buckets_in_segment * PAGE_BYTES)?)),
        }
    }

    /// Returns the first page of a bucket.
    #[inline(always)]
    pub fn page(&self, bucket: u64) -> Result<Addr> {
        let place = BucketPlace::of(bucket);
        match self.segment(place.segment, place.buckets_in_segment)? {
            Some(extent) => Ok(extent.addr.add(place.index * PAGE_BYTES)),
            None => {
                let slot = segment_slot(self.extent.addr, place.segment);
                Err(Error::corrupt(slot, "missing segment of a collection"))
            }
        }
    }
}

/// A pass through the pages of a bucket. The number of pages is limited, so a cycle of pages is detected.
pub(super) struct Chain {
    pages: usize,
}

impl Chain {
    pub fn new() -> Chain {
        Chain { pages: 0 }
    }

    /// True if readers would accept a further page after the last page of this pass.
    pub fn may_grow(&self) -> bool {
        self.pages + 1 < MAX_CHAIN
    }

    /// Returns the page that the link word `link` of `page` points to.
    #[inline]
    pub fn next(&mut self, page: Addr, link: u64) -> Result<Option<Extent>> {
        if link == 0 {
            return Ok(None);
        }
        self.pages += 1;
        if self.pages >= MAX_CHAIN {
            return Err(Error::corrupt(page, "endless chain of bucket pages"));
        }
        checked(page.add(LINK), Pointer::from_raw(link), PAGE_BYTES).map(Some)
    }
}

/// Reads one state of a page. `read` gets the commit word of the page, and runs again if a writer changed the
/// page meanwhile.
#[inline(always)]
pub(super) fn read_page<T>(
    medium: &Medium,
    page: Addr,
    mut read: impl FnMut(Commit) -> Result<T>,
) -> Result<T> {
    loop {
        let commit = load(medium, page)?;
        // A race with a writer may look like corruption. Therefore even an error is returned only if the
        // commit word is unchanged.
        let result = read(Commit::from_raw(commit));
        if load(medium, page)? == commit {
            return result;
        }
        eyrie_medium::sync::spin();
    }
}

/// Reads a plain structure at an address that was read from the medium.
#[inline]
pub(super) fn read_value<T: FromBytes + IntoBytes>(medium: &Medium, addr: Addr) -> Result<T> {
    medium.read_value(addr).map_err(|fault| error_at_stored_address(addr, fault))
}

/// Reads a slot, and the length of its record in units. Verifies that the record lies within the heap.
#[inline]
pub(super) fn read_slot(medium: &Medium, page: Addr, slot: u32) -> Result<(EntrySlot, u32)> {
    let stored = EntrySlot::from_raw(load(medium, slot_at(page, slot))?);
    let units = u32::from((load(medium, length_at(page, slot))? >> (8 * index_of(slot))) as u8);
    let possible = (record_units(1)..=record_units(NAME_MAX)).contains(&units);
    if !possible || stored.unit() < HEAP_UNIT || stored.unit() + units > PAGE_UNITS {
        return Err(Error::corrupt(page, "record outside its bucket page"));
    }
    Ok((stored, units))
}

/// Returns the address of a slot's record.
#[inline]
pub(super) fn record_at(page: Addr, slot: EntrySlot) -> Addr {
    page.add(u64::from(slot.unit()) * UNIT)
}

/// An entry as the medium stores it, in a slot and a record.
pub(super) struct StoredEntry {
    pub hash: u64,
    pub id: ObjectId,
    name_len: usize,
    bytes: [u8; NAME_MAX],
}

impl StoredEntry {
    pub fn name(&self) -> &[u8] {
        &self.bytes[..self.name_len]
    }

    /// Reads the entry of a slot.
    pub fn read(medium: &Medium, page: Addr, slot: u32) -> Result<StoredEntry> {
        let (slot, units) = read_slot(medium, page, slot)?;
        let record = record_at(page, slot);
        let head: NameRecordHead = read_value(medium, record)?;
        let id = checked_id(page, slot.id())?;
        let name_len = usize::from(head.name_len);
        if name_len == 0 || name_len > NAME_MAX || record_units(name_len) != units {
            return Err(Error::corrupt(record, "bad length of a name"));
        }
        let mut bytes = [0; NAME_MAX];
        medium
            .read(record.add(RECORD_NAME as u64), &mut bytes[..name_len])
            .map_err(|fault| error_at_stored_address(record, fault))?;
        Ok(StoredEntry { hash: head.hash, id, name_len, bytes })
    }
}

/// Returns the object id that a slot of `page` holds, or an error if the id is impossible.
#[inline]
pub(super) fn checked_id(page: Addr, raw: u64) -> Result<ObjectId> {
    match ObjectId::from_raw(raw) {
        Some(id) if id.place() != 0 => Ok(id),
        _ => Err(Error::corrupt(page, "entry without an object")),
    }
}

/// Returns the live slots whose entries belong to `bucket`.
pub(super) fn slots_that_count(
    medium: &Medium,
    page: Addr,
    commit: Commit,
    buckets: Buckets,
    bucket: u64,
) -> Result<u32> {
    // If the page and the bucket have the same level, all live entries belong to the bucket. Then no hash has
    // to be read.
    if commit.level() == buckets.level(bucket) {
        return Ok(commit.live());
    }
    let mut counted = 0;
    for slot in bits(commit.live()) {
        let (stored, _) = read_slot(medium, page, slot)?;
        if buckets.of(load(medium, record_at(page, stored))?) == bucket {
            counted |= 1 << slot;
        }
    }
    Ok(counted)
}

/// Returns the numbers of the set bits, the lowest first.
pub(super) fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (lowest < 32).then_some(lowest)
    })
}
