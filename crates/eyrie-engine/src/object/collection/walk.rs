//! Listings and summaries: passes over the buckets of a collection.
//!
//! A pass goes in the order of the hashes' reversed bits. Growth keeps this order: a bucket that is split gives its range of
//! places to its two halves. So a place divides the entries into those that a pass has seen and those that it has not, whatever
//! happens meanwhile, and a pass continues at a place without looking at anything before it.
//!
//! Passes take no lock; see the module's docs for why they see the right entries.

use eyrie_medium::Addr;

use super::Collection;
use super::buckets::Buckets;
use super::hash;
use super::layout::{
    Commit, INVENTORY, Inventory, LENGTHS, LINES, MAX_NAME, RECORD_NAME, Stamp, line_at, record_units,
    stamp_at,
};
use super::read::for_each_page;
use super::table::{
    Table, bits, checked_id, counting, load, read_page, read_slot, read_value, record_at, words,
};
use crate::object::pointer::Pointer;
use crate::volume::Volume;
use crate::{Error, ObjectId, Result, Time, engine};

/// The pages of a collection added up.
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

impl Summary {
    /// Adds the summary of further pages.
    pub fn add(&mut self, other: &Summary) {
        self.entries = self.entries.wrapping_add(other.entries);
        self.subdirectories = self.subdirectories.wrapping_add(other.subdirectories);
        self.changed = self.changed.max(other.changed);
        self.modified = self.modified.max(other.modified);
    }
}

/// The place of an entry in a listing: its hash with the bits reversed. The last two places are one, so that every
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

/// Reads bucket by bucket, in the order of listings, from the one at `start` on: `read` reads a bucket into `state`, perhaps
/// several times, and `done` uses it and says whether to go on.
///
/// The root, the bucket count and the redo slots are looked at again after each bucket, so that what was there
/// throughout is read exactly once, however the collection grows meanwhile.
fn walk<T>(
    volume: &Volume,
    root: impl Fn() -> Result<Pointer>,
    start: u64,
    state: &mut T,
    read: impl Fn(&mut T, &Table<'_>, Buckets, u64) -> Result<()>,
    mut done: impl FnMut(&mut T) -> bool,
) -> Result<()> {
    let mut at = start;
    loop {
        let last = volume.redo().stable(|| {
            loop {
                let pointer = root()?;
                let table = Table::open(volume.medium(), pointer)?;
                let buckets = table.all_buckets()?;
                let bucket = buckets.of(at.reverse_bits());
                let level = buckets.level(bucket);
                let value = read(state, &table, buckets, bucket);
                let now = table.buckets()?;
                if root()? == pointer && now.of(at.reverse_bits()) == bucket && now.level(bucket) == level {
                    value?;
                    return Ok(range_of(bucket, level).1);
                }
            }
        })?;
        if !done(state) || last == u64::MAX {
            return Ok(());
        }
        at = last + 1;
    }
}

/// The entries of one bucket, in the order of listings.
#[derive(Default)]
struct Entries {
    /// Place, object, and where the name is in `names`.
    found: Vec<(u64, ObjectId, usize, usize)>,
    names: Vec<u8>,
}

impl Entries {
    /// Reads the entries of a bucket from the place `from` on.
    fn read(&mut self, table: &Table<'_>, buckets: Buckets, bucket: u64, from: u64) -> Result<()> {
        self.found.clear();
        self.names.clear();
        for_each_page(table, bucket, |page| {
            for line in 0..LINES as u32 {
                table.medium.prefetch(line_at(page, line));
            }
            table.medium.prefetch(page.add(LENGTHS));
            let (found, names) = (self.found.len(), self.names.len());
            read_page(table.medium, page, |commit| {
                self.found.truncate(found);
                self.names.truncate(names);
                for slot in bits(commit.live()) {
                    self.add(table, page, slot, |hash| buckets.of(hash) == bucket && place_of(hash) >= from)?;
                }
                Ok(())
            })
        })?;
        let names = &self.names;
        self.found.sort_unstable_by(|(a, _, first, end), (b, _, other, other_end)| {
            a.cmp(b).then_with(|| names[*first..*end].cmp(&names[*other..*other_end]))
        });
        Ok(())
    }

    /// Adds the entry of a slot, if it is wanted.
    fn add(&mut self, table: &Table<'_>, page: Addr, slot: u32, wanted: impl Fn(u64) -> bool) -> Result<()> {
        let (slot, units) = read_slot(table.medium, page, slot)?;
        let place = record_at(page, slot);
        let record = words(table.medium, place, units as usize)?;
        let hash = record.load(0);
        if !wanted(hash) {
            return Ok(());
        }
        let id = checked_id(page, slot.id())?;
        let head = record.load(1);
        let length = usize::from(head as u16);
        if length == 0 || length > MAX_NAME || record_units(length) != units {
            return Err(Error::corrupt(place, "bad length of a name"));
        }
        self.names.extend_from_slice(&head.to_le_bytes()[RECORD_NAME - 8..]);
        for index in 2..units as usize {
            self.names.extend_from_slice(&record.load(index).to_le_bytes());
        }
        let first = self.names.len() - (units as usize * 8 - RECORD_NAME);
        self.names.truncate(first + length);
        self.found.push((place_of(hash), id, first, first + length));
        Ok(())
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
        &mut Entries::default(),
        |entries, table, buckets, bucket| entries.read(table, buckets, bucket, cookie),
        |entries| {
            entries.found.iter().enumerate().all(|(index, &(place, id, first, end))| {
                let repeated = entries.found.get(index + 1).is_some_and(|(next, ..)| *next == place);
                let next = if repeated { place } else { place + 1 };
                visit(engine::Entry { name: &entries.names[first..end], id, next })
            })
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
        &mut Summary::default(),
        |sum, table, buckets, bucket| {
            *sum = bucket_summary(table, buckets, bucket, epoch)?;
            Ok(())
        },
        |sum| {
            total.add(sum);
            true
        },
    )?;
    Ok(total)
}

fn bucket_summary(table: &Table<'_>, buckets: Buckets, bucket: u64, epoch: u32) -> Result<Summary> {
    let mut sum = Summary::default();
    for_each_page(table, bucket, |page| {
        sum.add(&read_page(table.medium, page, |commit| {
            page_summary(table, page, commit, (buckets, bucket), epoch)
        })?);
        Ok(())
    })?;
    Ok(sum)
}

fn page_summary(
    table: &Table<'_>,
    page: Addr,
    commit: Commit,
    (buckets, bucket): (Buckets, u64),
    epoch: u32,
) -> Result<Summary> {
    let counted = counting(table.medium, page, commit, buckets, bucket)?;
    let inventory = Inventory::from_raw(load(table.medium, page.add(INVENTORY))?);
    let directories = counted & inventory.directories();
    let stamp: Stamp = read_value(table.medium, stamp_at(page, commit.selector()))?;
    let changed = stamp.time();
    Ok(Summary {
        entries: u64::from(counted.count_ones()),
        subdirectories: u64::from(directories.count_ones()),
        changed,
        modified: changed.filter(|_| stamp.epoch == epoch),
    })
}

/// Summaries in parts, for callers that hold the directory's lock.
impl Collection<'_> {
    /// The number of buckets.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub fn buckets(&self) -> Result<u64> {
        Ok(Table::open(self.volume.medium(), self.root)?.buckets()?.count())
    }

    /// The summary of at most `count` buckets from the place `from` on, and the place after them; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub fn part(&self, from: u64, count: usize, epoch: u32) -> Result<(Summary, Option<u64>)> {
        let table = Table::open(self.volume.medium(), self.root)?;
        let buckets = table.all_buckets()?;
        let (mut sum, mut at) = (Summary::default(), from);
        for _ in 0..count {
            let bucket = buckets.of(at.reverse_bits());
            sum.add(&bucket_summary(&table, buckets, bucket, epoch)?);
            match range_of(bucket, buckets.level(bucket)).1.checked_add(1) {
                Some(next) => at = next,
                None => return Ok((sum, None)),
            }
        }
        Ok((sum, Some(at)))
    }

    /// The place of a name.
    pub fn place(&self, name: &[u8]) -> u64 {
        place_of(hash(self.volume.hash_seed(), name))
    }

    /// The summary of the bucket of a name.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub fn around(&self, name: &[u8], epoch: u32) -> Result<Summary> {
        let table = Table::open(self.volume.medium(), self.root)?;
        let buckets = table.buckets()?;
        bucket_summary(&table, buckets, buckets.of(self.hash(name)), epoch)
    }
}
