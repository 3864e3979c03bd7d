//! Growth by linear hashing, one bucket at a time.
//!
//! A split is three transactions of one publish each: the pointer to the new bucket's segment, if it is the first
//! there; the number of buckets, with the new bucket's pages written before; the old bucket's commit words without the
//! entries that moved. Safe when power fails between them: a segment that no bucket is in yet is used by the next
//! split, and entries that have moved no longer count where they were.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Fault};
use smallvec::{SmallVec, smallvec};

use super::buckets::{BucketPlace, Buckets, segment_slot, table_slots};
use super::hash;
use super::layout::{
    CAPACITY, Commit, LINES, PAGE_BYTES, Record, Stamp, Tags, home, line_of, page_extent, tags_at,
};
use super::read::for_each_page;
use super::table::{Entry, Table, bits, load, read_slot, record_at};
use super::update::{Draft, PageImage};
use crate::object::pointer::{Class, Pointer};
use crate::transaction::Transaction;
use crate::volume::Volume;
use crate::{Error, Result};

/// A page with so many entries calls for growth,
pub(super) const CROWDED: u32 = 21;
/// if the bucket to be split has as many as this: names that come and go shall not make a collection grow for ever.
const WORTH_SPLITTING: u32 = CAPACITY / 4;

/// Makes it likely that a name (1 to 255 bytes) can be inserted without a further page for its bucket: splits a bucket
/// when the collection has filled up. Called under the directory's lock, before the transaction of the insert is begun.
///
/// When the table itself must be larger, `publish` gets the transaction and the new root, and adds to it what
/// publishes the root. Returns the root that is in force if anything was changed, and `None` if every entry is where it
/// was. Without space to grow, everything stays as it is.
///
/// # Errors
/// `Corrupt`, `Fault`, and those of `publish`.
pub fn make_room<'v>(
    volume: &'v Volume,
    root: Pointer,
    name: &[u8],
    publish: impl FnOnce(&mut Transaction<'v>, Pointer) -> Result<()>,
) -> Result<Option<Pointer>> {
    let table = Table::open(volume.medium(), root)?;
    let buckets = table.buckets()?;
    let record = Record { hash: hash(volume.hash_seed(), name), name };
    let bucket = buckets.of(record.hash);
    let page = table.page(bucket)?;
    let commit = Commit::from_raw(load(volume.medium(), page)?);
    if commit.level() != buckets.level(bucket) {
        sweep(volume, &table, buckets, bucket)?;
    }
    if !calls_for_growth(&table, buckets, page, &record)? {
        return Ok(None);
    }
    let mut root = root;
    let grown = widen(volume, &mut root, publish).and_then(|()| split(volume, root));
    match grown {
        Ok(()) | Err(Error::NoSpace | Error::TooLarge | Error::Fault(Fault::HostFull)) => Ok(Some(root)),
        Err(error) => Err(error),
    }
}

/// Whether the page that an entry goes to is full, or crowded while the bucket to be split is not almost empty.
fn calls_for_growth(table: &Table<'_>, buckets: Buckets, page: Addr, record: &Record<'_>) -> Result<bool> {
    let draft = Draft::stored(table.medium, page)?;
    if draft.live().count_ones() >= CROWDED {
        let next = load(table.medium, table.page(buckets.next_split())?)?;
        if Commit::from_raw(next).live().count_ones() >= WORTH_SPLITTING {
            return Ok(true);
        }
    }
    Ok(draft.room(record)?.is_none())
}

/// Replaces the table by a larger one when the next bucket's segment has no place in it.
fn widen<'v>(
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
    let old = table.extent;
    let class = Class::fitting(old.bytes() + 1).ok_or(Error::NoSpace)?;
    debug_assert!(segment < table_slots(class.bytes()));
    let mut tx = Transaction::begin(volume);
    let new = tx.allocate(class.bytes())?;
    let left = if broken(SafetyRule::WiderTableHasEverySegment) { 8 } else { 0 };
    tx.copy(new.addr, old.addr, old.bytes() - left)?;
    tx.zero(new.addr.add(old.bytes()), new.bytes() - old.bytes())?;
    let pointer = Pointer::node(new);
    publish(&mut tx, pointer)?;
    tx.retire(old);
    tx.commit()?;
    *root = pointer;
    Ok(())
}

/// Splits the bucket whose turn it is. The table has place for the new bucket's segment.
fn split(volume: &Volume, root: Pointer) -> Result<()> {
    let table = Table::open(volume.medium(), root)?;
    let buckets = table.buckets()?;
    let more = move_out(volume, &table, buckets)?;
    sweep(volume, &table, more, buckets.next_split())
}

/// The first half of a split: copies what belongs to the new bucket there, and publishes the number of buckets.
pub(super) fn move_out(volume: &Volume, table: &Table<'_>, buckets: Buckets) -> Result<Buckets> {
    let more = Buckets::new(buckets.count() + 1).ok_or(Error::NoSpace)?;
    volume.require_own(table.extent)?;
    let page = page_of_new_bucket(volume, table, buckets.count())?;
    volume.require_own(page_extent(page))?;
    let images = moving(table, buckets, more)?;

    let mut tx = Transaction::begin(volume);
    let mut link = 0;
    for image in images[1..].iter().rev() {
        let further = tx.allocate(PAGE_BYTES)?;
        tx.write(further.addr, &image.bytes(link))?;
        link = Pointer::node(further).raw();
    }
    tx.precedes(SafetyRule::NewBucketBeforeItsCount, page, PAGE_BYTES as usize)?;
    tx.write(page, &images[0].bytes(link))?;
    tx.word(table.extent.addr, more.count());
    tx.commit()?;
    Ok(more)
}

/// Where the first page of the next bucket goes, in a new segment if need be.
fn page_of_new_bucket(volume: &Volume, table: &Table<'_>, bucket: u64) -> Result<Addr> {
    let place = BucketPlace::of(bucket);
    if table.segment(place.segment, place.step)?.is_none() {
        let mut tx = Transaction::begin(volume);
        let segment = tx.allocate(place.step * PAGE_BYTES)?;
        tx.word(segment_slot(table.extent.addr, place.segment), Pointer::node(segment).raw());
        tx.commit()?;
    }
    table.page(bucket)
}

/// The pages of the new bucket: the entries that belong to it when there are `more` buckets.
fn moving(table: &Table<'_>, buckets: Buckets, more: Buckets) -> Result<SmallVec<[PageImage; 1]>> {
    let medium = table.medium;
    let new_bucket = buckets.count();
    let level = more.level(new_bucket);
    let mut images: SmallVec<[PageImage; 1]> = smallvec![PageImage::new(level, Stamp::NONE)];
    let mut is_first = true;
    for_each_page(table, buckets.next_split(), |page| {
        if !std::mem::replace(&mut is_first, false) && broken(SafetyRule::SplitTakesEveryPage) {
            return Ok(());
        }
        let commit = Commit::from_raw(load(medium, page)?);
        for slot in bits(commit.live()) {
            let entry = Entry::read(medium, page, slot)?;
            if more.of(entry.hash) != new_bucket {
                continue;
            }
            let record = Record { hash: entry.hash, name: entry.name() };
            let last = images.len() - 1;
            if !images[last].push(&record, entry.id) {
                let mut further = PageImage::new(level, Stamp::NONE);
                further.push(&record, entry.id);
                images.push(further);
            }
        }
        Ok(())
    })?;
    Ok(images)
}

/// Clears the entries that have moved from a bucket's pages, which says so in their level.
///
/// Lines are left to say of their spilled entries only those that stay: the others count no more, so it matters to
/// nobody when they are no longer found here.
fn sweep(volume: &Volume, table: &Table<'_>, buckets: Buckets, bucket: u64) -> Result<()> {
    let medium = volume.medium();
    let level = buckets.level(bucket);
    for_each_page(table, bucket, |page| {
        let commit = Commit::from_raw(load(medium, page)?);
        if commit.level() == level {
            return Ok(());
        }
        volume.require_own(page_extent(page))?;
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
