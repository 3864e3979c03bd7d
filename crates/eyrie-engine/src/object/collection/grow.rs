//! Growth by linear hashing, one bucket at a time.
//!
//! A split has three parts. Each part consists of transactions that publish one word each.
//!
//! The first part publishes the pointer to the segment of the new bucket, if the bucket is the first in its
//! segment.
//!
//! The second part writes the pages of the new bucket, and then publishes the number of buckets.
//!
//! The third part publishes, for each page of the old bucket, a commit word without the moved entries.
//!
//! Safe when power fails between the parts. After the first part, the next split uses the segment, which has
//! no bucket yet. After the second part, readers ignore the moved entries in the old bucket, because the
//! hashes of these entries select the new bucket.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Fault};
use smallvec::{SmallVec, smallvec};

use super::buckets::{BucketPlace, Buckets, SHARDS, segment_slot, table_slots};
use super::commit::Commit;
use super::layout::{
    CAPACITY, LINES, NameRecord, PAGE_BYTES, PageStamp, Tags, home, line_of, page_extent, tags_at,
};
use super::page::{CROWDED, PageDraft, PageImage};
use super::read::for_each_page;
use super::table::{StoredEntry, Table, bits, hash, load, read_slot, record_at};
use crate::extent::Class;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::volume::Volume;
use crate::{Error, Result};

/// A crowded page causes a split only if the first page of the next bucket to be split has at least this many
/// entries. The next bucket is usually not the bucket of the crowded page. Without this limit, each insert
/// into a crowded page would split some bucket. A collection in which names are added and removed all the
/// time would then become much larger than its entries need.
const WORTH_SPLITTING: u32 = CAPACITY / 4;
/// Maximum number of new entries for each bucket that one transaction inserts without growth. Together with
/// the earlier entries of a bucket, they take about three pages.
const MANY: u64 = 2 * CAPACITY as u64;
/// Number of new entries that one transaction inserts without growth, however few buckets there are. In one
/// bucket they take some forty pages. Each split is a transaction of its own, so a smaller batch would take
/// longer with growth.
const NOT_MANY: u64 = 1024;
/// Number of buckets between two announcements of the next segment. Each announcement provisions 256 KiB of
/// the next segment, that is, 8 KiB for each bucket since the previous announcement. The next segment has at
/// most twice as many buckets as the present one, so it needs at most 4 KiB for each bucket of the present
/// one. Therefore announcements during the second half of the present segment would suffice. They begin
/// earlier, after its first quarter.
const ANNOUNCE_EVERY: u64 = 32;

/// Splits the next bucket in the order of linear hashing if the first page of the bucket of `name` (1 to 255
/// bytes) has no room for the entry. Also splits the next bucket if that page is crowded and the first page
/// of the bucket to be split has `WORTH_SPLITTING` entries or more. Therefore an insert rarely has to add a
/// further page to a bucket. The caller holds the lock of the name's shard, and the locks that [`needs_room`]
/// returns. This function commits transactions of its own. If the caller has already begun the transaction of
/// the insert, that transaction must have no words yet, and `Transaction::order` must have ordered its
/// stores.
///
/// If the table must become larger, `publish` gets the transaction and the new root, and adds the publish of
/// the root to the transaction. Returns the current root, which may be new, if the page of `name` called for
/// a split. Returns `None` otherwise. If the volume has no space to grow, the split is left out, and the
/// collection stays sound.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `publish`.
pub fn make_room<'v>(
    volume: &'v Volume,
    root: Pointer,
    name: &[u8],
    publish: impl FnOnce(&mut Transaction<'v>, Pointer) -> Result<()>,
) -> Result<Option<Pointer>> {
    let target = InsertTarget::of(volume, root, name)?;
    // A crash may have come before the third part of an earlier split. The moved entries are cleared now,
    // because they take room.
    if target.may_have_moved_entries()? {
        clear_moved_entries(volume, &target.table, target.buckets, target.bucket)?;
    }
    if !target.is_full()? && !target.calls_for_growth()? {
        return Ok(None);
    }
    let mut root = root;
    grow(volume, &mut root, publish)?;
    Ok(Some(root))
}

/// Splits the next bucket if one transaction will insert `entries` entries, more than [`NOT_MANY`], and the
/// collection has fewer than one bucket for [`MANY`] of them. Returns true if the caller must call again,
/// with the present root. Returns false if the collection has enough buckets, or if the volume has no space
/// for more. The root may be new in both cases. The caller holds the locks of all shards. `publish` is that
/// of [`make_room`].
///
/// [`make_room`] looks at the pages as they are before the transaction. Without this function, all entries of
/// a large batch could therefore go into few buckets. Each insert, and each later look-up, would then have to
/// read a long chain of pages.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `publish`.
pub fn make_room_for_many<'v>(
    volume: &'v Volume,
    mut root: Pointer,
    entries: u64,
    publish: impl FnOnce(&mut Transaction<'v>, Pointer) -> Result<()>,
) -> Result<bool> {
    if entries <= NOT_MANY {
        return Ok(false);
    }
    let buckets = Table::open(volume.medium(), root)?.buckets()?;
    Ok(entries > buckets.count().saturating_mul(MANY) && grow(volume, &mut root, publish)?)
}

/// Splits the next bucket. First makes the table larger if necessary. `root` becomes the present root.
/// Returns false if the volume has no space for the split. This is no error, because growth is only an
/// optimisation: without growth, an insert may have to add a further page to its bucket.
fn grow<'v>(
    volume: &'v Volume,
    root: &mut Pointer,
    publish: impl FnOnce(&mut Transaction<'v>, Pointer) -> Result<()>,
) -> Result<bool> {
    match widen_table(volume, root, publish).and_then(|()| split_next_bucket(volume, *root)) {
        Ok(()) => Ok(true),
        Err(Error::NoSpace | Error::TooLarge | Error::Fault(Fault::HostFull)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The answer of [`needs_room`] for an insert that should call [`make_room`] first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RoomNeeds {
    /// The lock that [`make_room`] needs in addition to the lock of the name's shard.
    pub(crate) lock: GrowthLock,
    /// True if the insert can go on without [`make_room`], because the first page of its bucket has room, and
    /// has no entries that an earlier split has moved.
    pub(crate) is_optional: bool,
}

/// The lock that growth needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GrowthLock {
    /// The lock of this shard. The bucket that is split next is in this shard, and the new bucket will be in
    /// this shard, too. No other bucket changes. The number of buckets stays the same while this lock is
    /// held, because the next split needs the same lock.
    Shard(usize),
    /// The locks of all shards. They are needed in two cases. In a collection with fewer buckets than shards,
    /// a split changes the shard of names. A collection without room in its table gets a larger table, which
    /// changes the root.
    Directory,
}

/// Returns the needs of [`make_room`] if an insert of `name` should call it first. Returns `None` if the
/// insert needs no call. The caller holds the lock of the shard of `name`. While the caller also holds the
/// lock in the result, further calls return the same lock.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn needs_room(volume: &Volume, root: Pointer, name: &[u8]) -> Result<Option<RoomNeeds>> {
    let target = InsertTarget::of(volume, root, name)?;
    let is_optional = !target.is_full()? && !target.may_have_moved_entries()?;
    if is_optional && !target.calls_for_growth()? {
        return Ok(None);
    }
    let InsertTarget { table, buckets, .. } = target;
    let few = buckets.count() < SHARDS as u64 && !broken(SafetyRule::FewBucketsGrowUnderEveryShard);
    let has_slot = BucketPlace::of(buckets.count()).segment < table.slots();
    let lock = match few || !has_slot {
        true => GrowthLock::Directory,
        false => GrowthLock::Shard(buckets.shard(buckets.next_split())),
    };
    Ok(Some(RoomNeeds { lock, is_optional }))
}

/// The bucket that gets a new entry.
struct InsertTarget<'v, 'n> {
    table: Table<'v>,
    buckets: Buckets,
    bucket: u64,
    /// First page of the bucket.
    page: Addr,
    record: NameRecord<'n>,
}

impl<'v, 'n> InsertTarget<'v, 'n> {
    fn of(volume: &'v Volume, root: Pointer, name: &'n [u8]) -> Result<InsertTarget<'v, 'n>> {
        let table = Table::open(volume.medium(), root)?;
        let buckets = table.buckets()?;
        let record = NameRecord { hash: hash(volume.hash_seed(), name), name };
        let bucket = buckets.of(record.hash);
        let page = table.page(bucket)?;
        Ok(InsertTarget { table, buckets, bucket, page, record })
    }

    /// True if the first page may still have entries that an earlier split has moved.
    fn may_have_moved_entries(&self) -> Result<bool> {
        let commit = Commit::from_raw(load(self.table.medium, self.page)?);
        Ok(commit.level() != self.buckets.level(self.bucket))
    }

    /// True if the first page has no room for the entry.
    fn is_full(&self) -> Result<bool> {
        Ok(PageDraft::stored(self.table.medium, self.page)?.room(&self.record)?.is_none())
    }

    /// True if the first page is crowded and the bucket to be split has at least [`WORTH_SPLITTING`] entries
    /// in its first page.
    fn calls_for_growth(&self) -> Result<bool> {
        let draft = PageDraft::stored(self.table.medium, self.page)?;
        if draft.live().count_ones() < CROWDED {
            return Ok(false);
        }
        let next = load(self.table.medium, self.table.page(self.buckets.next_split())?)?;
        Ok(Commit::from_raw(next).live().count_ones() >= WORTH_SPLITTING)
    }
}

/// Replaces the table by a larger one if the table has no slot for the segment of the next bucket.
fn widen_table<'v>(
    volume: &'v Volume,
    root: &mut Pointer,
    publish: impl FnOnce(&mut Transaction<'v>, Pointer) -> Result<()>,
) -> Result<()> {
    let table = Table::open(volume.medium(), *root)?;
    let buckets = table.all_buckets()?;
    let segment = BucketPlace::of(buckets.count()).segment;
    if segment < table.slots() {
        return Ok(());
    }
    let class = Class::fitting(table.extent.bytes() + 1).ok_or(Error::NoSpace)?;
    debug_assert!(segment < table_slots(class.bytes()));
    *root = replace_table(volume, &table, class.bytes(), publish)?;
    Ok(())
}

/// Replaces the table by a table of `bytes` bytes, and returns the new root. Callers ask for a smaller table
/// only if it has room for all segments of the collection.
pub(super) fn replace_table<'v>(
    volume: &'v Volume,
    table: &Table<'_>,
    bytes: u64,
    publish: impl FnOnce(&mut Transaction<'v>, Pointer) -> Result<()>,
) -> Result<Pointer> {
    let old = table.extent;
    let mut tx = Transaction::begin(volume);
    let new = tx.allocate(bytes)?;
    let kept = old.bytes().min(new.bytes());
    let left = if broken(SafetyRule::WiderTableHasEverySegment) { 8 } else { 0 };
    tx.copy(new.addr, old.addr, kept - left)?;
    tx.zero(new.addr.add(kept), new.bytes() - kept)?;
    let pointer = Pointer::node(new);
    publish(&mut tx, pointer)?;
    tx.retire(old);
    tx.commit()?;
    Ok(pointer)
}

/// Splits the next bucket in turn. The caller has ensured that the table has a slot for the segment of the
/// new bucket.
fn split_next_bucket(volume: &Volume, root: Pointer) -> Result<()> {
    let table = Table::open(volume.medium(), root)?;
    let buckets = table.buckets()?;
    let more = copy_to_new_bucket(volume, &table, buckets)?;
    clear_moved_entries(volume, &table, more, buckets.next_split())
}

/// Copies to the new bucket the entries that belong there, and publishes the number of buckets. These are the
/// first two parts of a split.
pub(super) fn copy_to_new_bucket(volume: &Volume, table: &Table<'_>, buckets: Buckets) -> Result<Buckets> {
    let more = Buckets::new(buckets.count() + 1).ok_or(Error::NoSpace)?;
    volume.require_possible_extent(table.extent)?;
    let page = place_of_new_bucket(volume, table, buckets.count())?;
    volume.require_possible_extent(page_extent(page))?;
    let images = pages_of_new_bucket(table, buckets, more)?;

    let mut tx = Transaction::begin(volume);
    let link = write_further_pages(&mut tx, &images[1..])?;
    tx.precedes(SafetyRule::NewBucketBeforeItsCount, page, PAGE_BYTES as usize)?;
    tx.write(page, &images[0].bytes(link))?;
    // The publish of this word commits the split. From then on, readers find the moved entries only in the
    // new bucket.
    tx.word(table.extent.addr, more.count());
    tx.commit()?;
    Ok(more)
}

/// Stores the further pages of a bucket. Returns the link to the first of them, or 0 if there are none.
pub(super) fn write_further_pages(tx: &mut Transaction<'_>, images: &[PageImage]) -> Result<u64> {
    let mut link = 0;
    for image in images.iter().rev() {
        let further = tx.allocate(PAGE_BYTES)?;
        tx.write(further.addr, &image.bytes(link))?;
        link = Pointer::node(further).raw();
    }
    Ok(link)
}

/// Adds an entry to the last of a bucket's `images`, or to a further image if that one is full.
pub(super) fn push<A: smallvec::Array<Item = PageImage>>(
    images: &mut SmallVec<A>,
    level: u32,
    entry: &StoredEntry,
) {
    let record = NameRecord { hash: entry.hash, name: entry.name() };
    if images.last_mut().is_none_or(|last| !last.push(&record, entry.id)) {
        let mut further = PageImage::new(Commit::new(0, level), PageStamp::NONE);
        further.push(&record, entry.id);
        images.push(further);
    }
}

/// Returns the address of the first page of the new bucket. Allocates the segment of the bucket if the table
/// has no pointer to it yet. Announces a large next segment early, so that no call waits for the memory of
/// the whole segment.
fn place_of_new_bucket(volume: &Volume, table: &Table<'_>, bucket: u64) -> Result<Addr> {
    let place = BucketPlace::of(bucket);
    if table.segment(place.segment, place.buckets_in_segment)?.is_none() {
        let bytes = place.buckets_in_segment * PAGE_BYTES;
        // Growth is only an optimisation, and a segment may be as large as a quarter of all earlier ones
        // together. Therefore a new segment must not take the storage that logged changes of clients still
        // need.
        if !volume.space().leaves_promised(bytes) {
            return Err(Error::NoSpace);
        }
        let mut tx = Transaction::begin(volume);
        let segment = tx.allocate(bytes)?;
        tx.word(segment_slot(table.extent.addr, place.segment), Pointer::node(segment).raw());
        tx.commit()?;
    }
    if place.index >= place.buckets_in_segment / 4 && place.index.is_multiple_of(ANNOUNCE_EVERY) {
        volume.space().extend_reserve_for(BucketPlace::buckets_of(place.segment + 1) * PAGE_BYTES);
    }
    table.page(bucket)
}

/// Builds the pages of the new bucket, with the entries that belong to it when there are `more` buckets.
fn pages_of_new_bucket(
    table: &Table<'_>,
    buckets: Buckets,
    more: Buckets,
) -> Result<SmallVec<[PageImage; 1]>> {
    let medium = table.medium;
    let new_bucket = buckets.count();
    let level = more.level(new_bucket);
    // The first page of the new bucket may be the first page of an earlier bucket with the same number, which
    // was merged when the collection shrank. The merge added the version of that earlier page to the version
    // of the first page of the old bucket. So the new version is later than both, and an Op that remembers an
    // entry of the earlier page notices the change.
    let old = Commit::from_raw(load(medium, table.page(buckets.next_split())?)?);
    let commit = Commit::new(0, level).with_version(old.next().version());
    // New pages have no stamp, because a split is no change of the directory. The pages of the old bucket
    // keep their stamps, so no time of a change is lost.
    let mut images: SmallVec<[PageImage; 1]> = smallvec![PageImage::new(commit, PageStamp::NONE)];
    let mut is_first = true;
    for_each_page(table, buckets.next_split(), |page| {
        if !std::mem::replace(&mut is_first, false) && broken(SafetyRule::SplitTakesEveryPage) {
            return Ok(());
        }
        let commit = Commit::from_raw(load(medium, page)?);
        for slot in bits(commit.live()) {
            let entry = StoredEntry::read(medium, page, slot)?;
            if more.of(entry.hash) == new_bucket {
                push(&mut images, level, &entry);
            }
        }
        Ok(())
    })?;
    Ok(images)
}

/// Removes the moved entries from a bucket's pages, and raises the level of these pages.
///
/// The new spilled bits cover only the remaining entries, and are stored before the commit word. Look-ups
/// find the moved entries in the new bucket, and need no spilled bit for them in these pages. A look-up that
/// began with the old number of buckets finds nothing here, sees the new number, and searches again.
fn clear_moved_entries(volume: &Volume, table: &Table<'_>, buckets: Buckets, bucket: u64) -> Result<()> {
    let medium = volume.medium();
    let level = buckets.level(bucket);
    for_each_page(table, bucket, |page| {
        let commit = Commit::from_raw(load(medium, page)?);
        if commit.level() == level {
            return Ok(());
        }
        volume.require_possible_extent(page_extent(page))?;
        let (mut counted, mut spilled) = (0, [0; LINES]);
        for slot in bits(commit.live()) {
            let (stored, _) = read_slot(medium, page, slot)?;
            let hash = load(medium, record_at(page, stored))?;
            let is_last = commit.live() >> slot == 1 && broken(SafetyRule::SweepKeepsWhatCounts);
            if buckets.of(hash) == bucket && !is_last {
                counted |= 1 << slot;
                spilled[home(hash) as usize] |= 1 << line_of(slot);
            }
        }
        let mut tx = Transaction::begin(volume);
        for (line, lines) in (0..).zip(spilled) {
            let place = tags_at(page, line);
            let tags = Tags::from_raw(load(medium, place)?);
            tx.write_word(place, tags.with_spilled(lines & !(1 << line)).raw())?;
        }
        tx.word(page, commit.next().with_live(counted).with_level(level).raw());
        tx.commit()?;
        Ok(())
    })
}
