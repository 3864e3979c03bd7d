//! Look-ups, listings and summaries. They take no lock; see the module's docs for why what they see is right.

use eyrie_medium::{Addr, LINE_SIZE, Medium};
use smallvec::SmallVec;

use super::Collection;
use super::buckets::Buckets;
use super::layout::{
    Commit, HEAP_UNIT, INVENTORY, Inventory, LENGTHS, LINE_WORDS, LINK, PAGE_UNITS, Record, Slot, Stamp,
    TAGS_WORD, Tags, home, line_at, stamp_at, tag,
};
use super::table::{
    Chain, Entry, Table, bits, checked_id, counting, load, read_page, read_value, record_at, words,
};
use crate::object::pointer::Pointer;
use crate::volume::Volume;
use crate::{ObjectId, Result, Time, engine};

/// Where an entry was found. It stays right while the directory's lock is held and nothing is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The object.
    pub id: ObjectId,
    /// First page of the entry's bucket.
    pub(super) bucket: Addr,
    /// The entry's page.
    pub(super) page: Addr,
    /// The entry's slot in it.
    pub(super) slot: u32,
}

/// What the pages of a collection say together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Entries (a count).
    pub entries: u64,
    /// Entries that are directories (a count).
    pub subdirectories: u64,
    /// The latest change, if any: the directory's change time is at least this.
    pub changed: Option<Time>,
    /// The latest change in the given epoch, if any: so is its modification time.
    pub modified: Option<Time>,
}

impl<'v> Collection<'v> {
    /// The entry of this name.
    ///
    /// A caller without the directory's lock asks again when it finds nothing and the root has changed meanwhile.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    #[inline(always)]
    pub fn lookup(&self, name: &[u8]) -> Result<Option<Found>> {
        let wanted = Record { hash: self.hash(name), name };
        let medium = self.volume.medium();
        let table = Table::open(medium, self.root)?;
        let mut buckets = table.buckets()?;
        loop {
            let bucket = table.page(buckets.of(wanted.hash))?;
            if let Some(found) = find(medium, bucket, wanted)? {
                return Ok(Some(found));
            }
            let now = table.buckets()?;
            if now == buckets {
                return Ok(None);
            }
            buckets = now;
        }
    }

    /// Asks the processor for the lines of the page that `name` belongs to, for a look-up and a change soon after.
    #[inline]
    pub fn prefetch(&self, name: &[u8]) {
        let medium = self.volume.medium();
        let hash = self.hash(name);
        let page = Table::open(medium, self.root).and_then(|table| table.page(table.buckets()?.of(hash)));
        if let Ok(page) = page {
            for line in [page, line_at(page, home(hash)), page.add(LENGTHS)] {
                medium.prefetch(line);
            }
        }
    }

    /// Whether there are no entries. For callers that hold the directory's lock.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub fn is_empty(&self) -> Result<bool> {
        let medium = self.volume.medium();
        let table = Table::open(medium, self.root)?;
        let buckets = table.all_buckets()?;
        for bucket in 0..buckets.count() {
            let mut counted = 0;
            for_each_page(&table, bucket, |page| {
                counted |= read_page(medium, page, |commit| counting(medium, page, commit, buckets, bucket))?;
                Ok(())
            })?;
            if counted != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Looks for an entry in the pages of a bucket.
#[inline(always)]
fn find(medium: &Medium, bucket: Addr, wanted: Record<'_>) -> Result<Option<Found>> {
    let mut chain = Chain::new();
    let mut page = bucket;
    loop {
        let (hit, link) = read_page(medium, page, |commit| search(medium, page, commit, wanted))?;
        if let Some((slot, id)) = hit {
            return Ok(Some(Found { id, bucket, page, slot }));
        }
        match chain.next(page, link)? {
            Some(next) => page = next.addr,
            None => return Ok(None),
        }
    }
}

/// A slot, and the object that it names.
type Hit = (u32, ObjectId);

/// Looks for an entry in a page; also gives the page's link where it is not there.
#[inline(always)]
fn search(medium: &Medium, page: Addr, commit: Commit, wanted: Record<'_>) -> Result<(Option<Hit>, u64)> {
    let (hit, spilled) = search_line(medium, page, commit, home(wanted.hash), wanted)?;
    if hit.is_some() {
        return Ok((hit, 0));
    }
    let hit = if spilled == 0 { None } else { search_lines(medium, page, commit, spilled, wanted)? };
    Ok((hit, load(medium, page.add(LINK))?))
}

/// Looks for an entry in several lines of a page.
#[cold]
fn search_lines(
    medium: &Medium,
    page: Addr,
    commit: Commit,
    lines: u32,
    wanted: Record<'_>,
) -> Result<Option<Hit>> {
    for line in bits(lines) {
        let (hit, _) = search_line(medium, page, commit, line, wanted)?;
        if hit.is_some() {
            return Ok(hit);
        }
    }
    Ok(None)
}

/// Looks for an entry in a line of a page; also gives the lines that may hold entries that prefer this one.
#[inline(always)]
fn search_line(
    medium: &Medium,
    page: Addr,
    commit: Commit,
    line: u32,
    wanted: Record<'_>,
) -> Result<(Option<Hit>, u32)> {
    let slots = words(medium, line_at(page, line), LINE_WORDS as usize)?;
    let tags = Tags::from_raw(slots.load(TAGS_WORD));
    let live = commit.live() >> (line * LINE_WORDS);
    for index in bits(tags.matching(tag(wanted.hash)) & live) {
        let slot = Slot::from_raw(slots.load(index as usize));
        // Whoever looks a name up goes on to its object, whose lines come while the record does.
        let object = Addr::from_raw(slot.id());
        medium.prefetch(object.add(LINE_SIZE));
        medium.prefetch(object.add(2 * LINE_SIZE));
        // A slot of this name leaves room for it.
        if slot.unit() < HEAP_UNIT || slot.unit() + wanted.units() > PAGE_UNITS {
            continue;
        }
        let stored = words(medium, record_at(page, slot), wanted.units() as usize)?;
        if wanted.words().enumerate().all(|(index, word)| stored.load(index) == word) {
            return Ok((Some((line * LINE_WORDS + index, checked_id(page, slot.id())?)), 0));
        }
    }
    Ok((None, tags.spilled()))
}

/// Where an entry stands in a listing: its hash with the bits reversed. The last two places are one, so that every
/// place has a cookie after it.
#[inline]
fn place_of(hash: u64) -> u64 {
    hash.reverse_bits().min(u64::MAX - 1)
}

/// The first place of a bucket's entries, and the last.
#[inline]
fn range_of(bucket: u64, level: u32) -> (u64, u64) {
    let first = bucket.reverse_bits();
    (first, first | u64::MAX.checked_shr(level).unwrap_or(0))
}

/// Reads bucket by bucket, in the order of listings, from the one at `start` on: `read` reads a bucket, perhaps several
/// times, and `done` takes what it read and says whether to go on.
///
/// The root, the bucket count and the redo slots are looked at again after each bucket, so that what was there
/// throughout is read exactly once, however the collection grows meanwhile.
fn walk<T>(
    volume: &Volume,
    root: impl Fn() -> Result<Pointer>,
    start: u64,
    mut read: impl FnMut(&Table<'_>, Buckets, u64) -> Result<T>,
    mut done: impl FnMut(T) -> Result<bool>,
) -> Result<()> {
    let mut at = start;
    loop {
        let (value, last) = volume.redo().stable(|| {
            loop {
                let pointer = root()?;
                let table = Table::open(volume.medium(), pointer)?;
                let buckets = table.all_buckets()?;
                let bucket = buckets.of(at.reverse_bits());
                let level = buckets.level(bucket);
                let value = read(&table, buckets, bucket);
                let now = table.buckets()?;
                if root()? == pointer && now.of(at.reverse_bits()) == bucket && now.level(bucket) == level {
                    return Ok((value?, range_of(bucket, level).1));
                }
            }
        })?;
        if !done(value)? || last == u64::MAX {
            return Ok(());
        }
        at = last + 1;
    }
}

/// Shows the entries from `cookie` on (0 is the start) until `visit` says false.
///
/// `root` gives the collection's root as it is now. Entries that are there throughout are shown exactly once.
/// Of entries with the same 64-bit hash all but the last have a cookie that shows them again.
///
/// # Errors
/// `Corrupt`, `Fault`, and those of `root`.
pub fn list(
    volume: &Volume,
    root: impl Fn() -> Result<Pointer>,
    cookie: u64,
    visit: &mut dyn FnMut(engine::Entry<'_>) -> bool,
) -> Result<()> {
    if cookie == u64::MAX {
        return Ok(());
    }
    walk(
        volume,
        root,
        cookie,
        |table, buckets, bucket| {
            let mut entries: SmallVec<[(u64, Entry); 0]> = SmallVec::new();
            for_each_page(table, bucket, |page| {
                let before = entries.len();
                read_page(table.medium, page, |commit| {
                    entries.truncate(before);
                    for slot in bits(commit.live()) {
                        let entry = Entry::read(table.medium, page, slot)?;
                        let place = place_of(entry.hash);
                        if buckets.of(entry.hash) == bucket && place >= cookie {
                            entries.push((place, entry));
                        }
                    }
                    Ok(())
                })
            })?;
            entries.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.name().cmp(y.name())));
            Ok(entries)
        },
        |entries| {
            for (i, (place, entry)) in entries.iter().enumerate() {
                let repeated = entries.get(i + 1).is_some_and(|(next, _)| next == place);
                let next = if repeated { *place } else { place + 1 };
                if !visit(engine::Entry { name: entry.name(), id: entry.id, next }) {
                    return Ok(false);
                }
            }
            Ok(true)
        },
    )
}

/// Counts the entries and finds the latest change. `epoch` is that of the directory's times.
///
/// # Errors
/// `Corrupt`, `Fault`, and those of `root`.
pub fn summary(volume: &Volume, root: impl Fn() -> Result<Pointer>, epoch: u32) -> Result<Summary> {
    let mut total = Summary::default();
    walk(
        volume,
        root,
        0,
        |table, buckets, bucket| {
            let mut sum = Summary::default();
            for_each_page(table, bucket, |page| {
                let one = read_page(table.medium, page, |commit| {
                    page_summary(table.medium, page, commit, (buckets, bucket), epoch)
                })?;
                sum.add(&one);
                Ok(())
            })?;
            Ok(sum)
        },
        |sum| {
            total.add(&sum);
            Ok(true)
        },
    )?;
    Ok(total)
}

fn page_summary(
    medium: &Medium,
    page: Addr,
    commit: Commit,
    (buckets, bucket): (Buckets, u64),
    epoch: u32,
) -> Result<Summary> {
    let counted = counting(medium, page, commit, buckets, bucket)?;
    let inventory = Inventory::from_raw(load(medium, page.add(INVENTORY))?);
    let directories = counted & inventory.directories();
    let stamp: Stamp = read_value(medium, stamp_at(page, commit.selector()))?;
    let changed = stamp.time();
    Ok(Summary {
        entries: u64::from(counted.count_ones()),
        subdirectories: u64::from(directories.count_ones()),
        changed,
        modified: changed.filter(|_| stamp.epoch == epoch),
    })
}

impl Summary {
    fn add(&mut self, other: &Summary) {
        self.entries += other.entries;
        self.subdirectories += other.subdirectories;
        self.changed = self.changed.max(other.changed);
        self.modified = self.modified.max(other.modified);
    }
}

/// Calls `visit` with each page of a bucket.
pub(super) fn for_each_page(
    table: &Table<'_>,
    bucket: u64,
    mut visit: impl FnMut(Addr) -> Result<()>,
) -> Result<()> {
    let mut chain = Chain::new();
    let mut page = Some(table.page(bucket)?);
    while let Some(addr) = page {
        visit(addr)?;
        page = chain.next(addr, load(table.medium, addr.add(LINK))?)?.map(|extent| extent.addr);
    }
    Ok(())
}
