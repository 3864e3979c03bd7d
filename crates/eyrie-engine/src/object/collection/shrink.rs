//! Shrinking: the reverse of growth, some buckets at a time.
//!
//! A merge moves the entries of the last bucket back into the bucket from which linear hashing split them.
//! One redo record commits up to [`MERGED_AT_ONCE`] merges: the commit words and changed links of the pages
//! that take the entries, the smaller number of buckets, and zeros in place of the pointers to segments
//! without buckets. These segments, and the old further pages of all buckets of these merges, are retired.
//!
//! Safe when power fails: before the record commits, the entries are only copied to dead slots and to new
//! pages. Recovery applies the record whole or not at all.
//!
//! A reader without a lock may still read the page of a bucket that a merge has removed. Later growth may
//! write to this page again. The reader discards its result, because it finds that a redo record was applied
//! meanwhile.
//!
//! The times of a directory are computed from the stamps of its pages. So that a merge loses no time of a
//! change, the page that takes the entries also takes the latest stamp of all pages of both buckets.

use eyrie_medium::Addr;
use eyrie_medium::rules::{SafetyRule, broken};
use smallvec::SmallVec;

use super::buckets::{BucketPlace, Buckets, FIRST_TABLE_BYTES, segment_slot};
use super::commit::Commit;
use super::grow::{push, replace_table, write_further_pages};
use super::layout::{
    CAPACITY, HEAP_UNIT, LENGTHS, LINE_WORDS, LINES, LINK, NameRecord, PAGE_UNITS, PageStamp, page_extent,
    stamp_at,
};
use super::page::{NewEntry, PageDraft, PageImage};
use super::table::{Chain, StoredEntry, Table, bits, hash, load, read_value, slots_that_count};
use crate::Result;
use crate::extent::Extent;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::volume::{Volume, VolumeView};

/// After a removal that leaves at most this number of entries in a page, the caller checks if the collection
/// should shrink. So most removals make no such check.
pub(super) const FEW: u32 = 3;
/// Number of units for which each live slot counts in the fill of a page. A page is full if its slots or its
/// heap are full.
const SLOT_UNITS: u32 = (PAGE_UNITS - HEAP_UNIT) / CAPACITY;
/// Fill of a page that is full.
const FULL: u32 = PAGE_UNITS - HEAP_UNIT;
/// A collection shrinks if the average fill of the pages in the sample is at most this number: an eighth of a
/// full page. A merged bucket is then a quarter full on average. Growth begins when pages are three quarters
/// full, so a collection does not grow again soon after it has shrunk.
const SPARSE: u32 = FULL / 8;
/// Number of buckets in the sample, which consists of the first buckets. They are spread evenly over the
/// order of listings, so the sample also shows removals in this order.
const SAMPLE: u64 = 32;
/// Largest fill of a bucket after a merge. If entries are removed in the order of listings, then the last
/// buckets are still full when most others are empty. The merged buckets then have further pages for a while.
/// Without this limit, their chains would become long.
const MOST_MERGED: u32 = 6 * FULL;
/// Maximum number of merges that one redo record commits. The record then fits into its slot.
const MERGED_AT_ONCE: u64 = 64;
/// After this number of moved entries, a redo record commits no further merge, and an Op takes no further
/// step. The number bounds the time for which the Op holds the locks of all shards.
const MOVED_AT_ONCE: usize = 64;

/// Addresses of the pages of a bucket. The further pages have extents of their own.
struct Pages {
    first: Addr,
    further: SmallVec<[Extent; 4]>,
}

impl Pages {
    fn of(table: &Table<'_>, bucket: u64) -> Result<Pages> {
        let (first, mut further) = (table.page(bucket)?, SmallVec::new());
        let (mut chain, mut page) = (Chain::new(), first);
        while let Some(extent) = chain.next(page, load(table.medium, page.add(LINK))?)? {
            further.push(extent);
            page = extent.addr;
        }
        Ok(Pages { first, further })
    }

    fn addrs(&self) -> impl Iterator<Item = Addr> {
        [self.first].into_iter().chain(self.further.iter().map(|extent| extent.addr))
    }

    /// Returns the sum of the fills of the pages.
    fn fill(&self, table: &Table<'_>) -> Result<u32> {
        self.addrs().map(|page| fill(table, page, FULL)).sum()
    }

    /// True if the bucket would be at most half full with one page fewer.
    fn has_too_many(&self, table: &Table<'_>) -> Result<bool> {
        let further = self.further.len() as u32;
        Ok(further > 0 && self.fill(table)? <= further * FULL / 2)
    }
}

/// Returns the fill of a page, in units: the fill of its slots or the fill of its heap, whichever is larger.
/// If the fill of the slots is `enough` or more, the lengths of the records are not read.
fn fill(table: &Table<'_>, page: Addr, enough: u32) -> Result<u32> {
    let live = Commit::from_raw(load(table.medium, page)?).live();
    let slots = live.count_ones() * SLOT_UNITS;
    if slots >= enough {
        return Ok(slots);
    }
    let mut units = 0;
    for line in 0..LINES as u32 {
        let in_line = live >> (line * LINE_WORDS) & 0x7f;
        if in_line != 0 {
            let lengths = load(table.medium, page.add(LENGTHS + u64::from(line) * 8))?.to_le_bytes();
            units += bits(in_line).map(|index| u32::from(lengths[index as usize])).sum::<u32>();
        }
    }
    Ok(slots.max(units))
}

/// True if the average fill of the first pages of the buckets in the sample is at most [`SPARSE`].
fn is_sparse(table: &Table<'_>, buckets: Buckets) -> Result<bool> {
    let sample = buckets.count().min(SAMPLE);
    let mut left = sample as u32 * SPARSE;
    for bucket in 0..sample {
        match left.checked_sub(fill(table, table.page(bucket)?, 2 * SPARSE)?) {
            Some(rest) => left = rest,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns the number of buckets after one merge, or `None` if only one bucket exists.
fn after_merge(buckets: Buckets) -> Option<Buckets> {
    Buckets::new(buckets.count() - 1)
}

/// Returns the pages of the last bucket, and the pages of the bucket that would take its entries. Returns
/// `None` if only one bucket exists, or if the merged bucket would be too full.
fn mergeable(table: &Table<'_>, buckets: Buckets) -> Result<Option<(Pages, Pages)>> {
    let Some(merged) = after_merge(buckets) else { return Ok(None) };
    let last = Pages::of(table, merged.count())?;
    let taker = Pages::of(table, merged.next_split())?;
    Ok((last.fill(table)? + taker.fill(table)? <= MOST_MERGED).then_some((last, taker)))
}

/// True if [`shrink`] would probably make the collection smaller. `name` is a name whose entry was removed.
/// The caller needs no lock, because the answer is only a hint.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn may_shrink(volume: &VolumeView, root: Pointer, name: &[u8]) -> Result<bool> {
    let table = Table::open(volume.medium(), root)?;
    let buckets = table.buckets()?;
    if is_sparse(&table, buckets)? && mergeable(&table, buckets)?.is_some() {
        return Ok(true);
    }
    Pages::of(&table, buckets.of(hash(volume.hash_seed(), name)))?.has_too_many(&table)
}

/// Takes one step of shrinking: merges some buckets, or gives up further pages that the bucket of `name` no
/// longer needs. If only one bucket is left, the step also replaces the table by one of the smallest size.
/// Returns true if the caller should take another step, because this one moved few entries. The caller holds
/// the locks of all shards. A collection of more than eight buckets keeps at least eight in one step, so no
/// name changes its shard in this step. `times_version` is the version of the directory's times. `publish`
/// gets the transaction and the root of a smaller table, and adds the publish of this root.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`, and the errors of `publish`.
pub fn shrink<'v>(
    volume: &'v Volume,
    root: Pointer,
    name: &[u8],
    times_version: u32,
    publish: impl FnOnce(&mut Transaction<'v>, Pointer) -> Result<()>,
) -> Result<bool> {
    let table = Table::open(volume.medium(), root)?;
    let buckets = table.all_buckets()?;
    volume.require_possible_extent(table.extent)?;
    if is_sparse(&table, buckets)?
        && let Some(moved) = merge_last_buckets(volume, &table, buckets, times_version)?
    {
        if table.buckets()?.count() > 1 {
            return Ok(moved < MOVED_AT_ONCE);
        }
    } else {
        gather_chain(volume, &table, buckets, name, times_version)?;
    }
    if table.buckets()?.count() == 1 && table.extent.bytes() > FIRST_TABLE_BYTES {
        replace_table(volume, &table, FIRST_TABLE_BYTES, publish)?;
    }
    Ok(false)
}

/// Gives up further pages of the bucket of `name`, if it has too many of them.
fn gather_chain(
    volume: &Volume,
    table: &Table<'_>,
    buckets: Buckets,
    name: &[u8],
    times_version: u32,
) -> Result<()> {
    let bucket = buckets.of(hash(volume.hash_seed(), name));
    let pages = Pages::of(table, bucket)?;
    if pages.has_too_many(table)? {
        let mut tx = Transaction::begin(volume);
        let gather = Gather { table, before: buckets, level: buckets.level(bucket), times_version };
        if gather.gather(&mut tx, &[(bucket, &pages)])?.is_some() {
            tx.commit()?;
        }
    }
    Ok(())
}

/// Merges some of the last buckets. Returns the number of moved entries, or `None` if no bucket can be
/// merged.
fn merge_last_buckets(
    volume: &Volume,
    table: &Table<'_>,
    buckets: Buckets,
    times_version: u32,
) -> Result<Option<usize>> {
    let Some(last) = after_merge(buckets).map(Buckets::count) else { return Ok(None) };
    // Down to this number, no bucket both gives and takes entries in one transaction.
    let least = (1 << last.ilog2()).max(buckets.count().saturating_sub(MERGED_AT_ONCE));
    for bucket in least..buckets.count() {
        let taker = bucket - (1 << bucket.ilog2());
        table.medium.prefetch(table.page(bucket)?);
        table.medium.prefetch(table.page(taker)?);
    }
    let (mut now, mut moved) = (buckets, 0);
    let mut tx = Transaction::begin(volume);
    while now.count() > least && moved < MOVED_AT_ONCE {
        let (Some(after), Some((last, taker))) = (after_merge(now), mergeable(table, now)?) else { break };
        let into = after.next_split();
        let gather = Gather { table, before: now, level: after.level(into), times_version };
        let Some(entries) = gather.gather(&mut tx, &[(into, &taker), (after.count(), &last)])? else { break };
        moved += entries;
        now = after;
    }
    if now == buckets {
        return Ok(None);
    }
    tx.word(table.extent.addr, now.count());
    let kept = BucketPlace::of(now.count() - 1).segment;
    let early = if broken(SafetyRule::SegmentLeavesAfterItsBuckets) { kept.min(1) } else { 0 };
    for segment in kept + 1 - early..table.slots() {
        if let Some(extent) = table.segment(segment, BucketPlace::buckets_of(segment))? {
            tx.word(segment_slot(table.extent.addr, segment), Pointer::NULL.raw());
            tx.retire(extent);
        }
    }
    tx.commit()?;
    Ok(Some(moved))
}

/// Gathers the entries of several pages into the first page of one bucket.
struct Gather<'t, 'v> {
    table: &'t Table<'v>,
    /// The number of buckets before the change. It decides which entries count.
    before: Buckets,
    /// The level of the bucket after the change.
    level: u32,
    /// Version of the directory's times.
    times_version: u32,
}

impl Gather<'_, '_> {
    /// Moves the entries of these buckets into the first page of the first bucket. Entries without room there
    /// go into new further pages. Retires all old further pages. Returns the number of moved entries, or
    /// `None` if the pages have times that one page cannot keep. The transaction is then unchanged.
    fn gather(&self, tx: &mut Transaction<'_>, from: &[(u64, &Pages)]) -> Result<Option<usize>> {
        let Gather { table, before, level, .. } = *self;
        let medium = table.medium;
        let (into, taker) = from[0];
        let pages = || {
            let pages = from.iter().flat_map(|(bucket, pages)| pages.addrs().map(|page| (*bucket, page)));
            let only_first = broken(SafetyRule::MergeTakesEveryPage);
            pages.filter(move |(_, page)| !only_first || from.iter().any(|(_, pages)| pages.first == *page))
        };
        let Some(stamp) = self.latest(pages().map(|(_, page)| page))? else { return Ok(None) };
        let mut draft = PageDraft::open(tx, taker.first)?;
        // A crash may have left entries here that a split had moved. They are dropped now, because after the
        // merge they would count again.
        let kept = slots_that_count(medium, taker.first, draft.stored, before, into)?;
        draft.pending = draft.pending.with_live(kept).with_level(level);
        let (mut images, mut moved, mut versions) = (SmallVec::<[PageImage; 0]>::new(), 0, 0_u64);
        for (bucket, page) in pages().skip(1) {
            let commit = Commit::from_raw(load(medium, page)?);
            versions = versions.wrapping_add(commit.version());
            for slot in bits(slots_that_count(medium, page, commit, before, bucket)?) {
                let entry = StoredEntry::read(medium, page, slot)?;
                let record = NameRecord { hash: entry.hash, name: entry.name() };
                let new = NewEntry { record, id: entry.id, stamp };
                match draft.room(&new.record)? {
                    Some(room) => draft.put(tx, room, &new)?,
                    None => push(&mut images, level, &entry),
                }
                moved += 1;
            }
        }
        let link = write_further_pages(tx, &images)?;
        if load(medium, taker.first.add(LINK))? != link {
            tx.word(taker.first.add(LINK), link);
        }
        for (_, pages) in from {
            for further in &pages.further {
                tx.volume().require_possible_extent(page_extent(further.addr))?;
                tx.retire(*further);
            }
        }
        // The sum of all versions must increase with each change (see `walk::versions`). The new further
        // pages have version 1.
        let versions = versions.wrapping_sub(images.len() as u64);
        draft.pending = draft.pending.with_version(draft.pending.version().wrapping_add(versions));
        draft.finish(tx, stamp)?;
        Ok(Some(moved))
    }

    /// Returns one stamp that can replace the stamps of all pages. Returns `None` if the latest time does not
    /// count for the modification time, but an earlier one does. This happens only if the clock went back.
    fn latest(&self, pages: impl Iterator<Item = Addr>) -> Result<Option<PageStamp>> {
        let (mut latest, mut counts) = (PageStamp::NONE, PageStamp::NONE);
        for page in pages {
            let commit = Commit::from_raw(load(self.table.medium, page)?);
            let stamp: PageStamp = read_value(self.table.medium, stamp_at(page, commit.selector()))?;
            if stamp.time() > latest.time() {
                latest = stamp;
            }
            if stamp.times_version == self.times_version && stamp.time() > counts.time() {
                counts = stamp;
            }
        }
        Ok(match counts.time() {
            None => Some(latest),
            time => (time == latest.time()).then_some(counts),
        })
    }
}
