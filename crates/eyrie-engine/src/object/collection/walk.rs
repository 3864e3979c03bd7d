//! Listings and summaries: passes over the buckets of a collection.
//!
//! A pass visits entries in the order of their hashes with reversed bits. The position of an entry in this
//! order is its hash with reversed bits, without the last bit. The positions of a bucket are one contiguous
//! range, so a pass visits one bucket after another. Growth keeps the order: if a bucket splits, its range of
//! positions is divided between the old and the new bucket. If two buckets merge, their ranges are joined.
//! Therefore neither a split nor a merge moves an entry from one side of a position to the other, and a pass
//! can continue at a position without a look at earlier buckets. After a merge, the position may be inside
//! the range of its bucket. The entries before the position are then left out.
//!
//! Passes take no lock. The docs of `collection` explain why they see the right entries.

use eyrie_medium::Addr;
use eyrie_medium::rules::{SafetyRule, broken};

use super::buckets::Buckets;
use super::commit::Commit;
use super::layout::{
    INVENTORY, Inventory, LENGTHS, LINES, PageStamp, RECORD_NAME, line_at, record_units, stamp_at,
};
use super::read::for_each_page;
use super::table::{
    Collection, Table, bits, checked_id, hash, load, read_page, read_slot, read_value, record_at,
    slots_that_count, words,
};
use crate::engine::COOKIE_MAX;
use crate::object::pointer::Pointer;
use crate::op::NAME_MAX;
use crate::volume::VolumeView;
use crate::{Error, ObjectId, Result, Time, engine};

/// The sum of counts, and the latest times, over the pages of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CollectionSummary {
    /// Number of entries.
    pub entries: u64,
    /// Number of entries that are directories.
    pub subdirectories: u64,
    /// Time of the latest change, if any. The directory's change time is this time or later.
    pub changed: Option<Time>,
    /// Latest time of those page stamps that have the directory's `Cold::times_version`, if any. The
    /// directory's modification time is this time or later.
    pub modified: Option<Time>,
}

impl CollectionSummary {
    /// Adds the summary of other pages.
    #[inline]
    pub fn add(&mut self, other: &CollectionSummary) {
        self.entries = self.entries.wrapping_add(other.entries);
        self.subdirectories = self.subdirectories.wrapping_add(other.subdirectories);
        self.changed = self.changed.max(other.changed);
        self.modified = self.modified.max(other.modified);
    }
}

/// The last position. Positions have 63 bits, because an offset of a directory is a signed number on Linux.
const LAST: u64 = u64::MAX >> 1;

/// Returns the position of an entry in a listing: its hash with the bits reversed, without the last bit. The
/// result is less than `COOKIE_MAX`, so that the position after each entry is a valid cookie. Therefore the
/// entries with the highest positions share one position. [`separate`] gives each entry a position of its
/// own.
#[inline]
fn position_of(hash: u64) -> u64 {
    (hash.reverse_bits() >> 1).min(COOKIE_MAX - 1)
}

/// Returns a hash whose position is `position`.
#[inline]
fn hash_at(position: u64) -> u64 {
    (position << 1).reverse_bits()
}

/// Returns the first and the last position of a bucket's entries.
#[inline]
fn range_of(bucket: u64, level: u32) -> (u64, u64) {
    let first = bucket.reverse_bits() >> 1;
    (first, first | LAST.checked_shr(level).unwrap_or(0))
}

/// Reads one bucket after another in the order of listings, from position `start` on. For each bucket, `read`
/// gets the position and reads the bucket's entries from there on into `state`. `read` may run several times.
/// Then `deliver` uses the state, and returns false to stop the walk.
///
/// After each bucket, the walk compares the root, the bucket at the position, its level and the counters of
/// redo records with their values before the read. If one of these values has changed, the walk reads this
/// position again. Therefore `deliver` gets each entry that exists during the whole walk exactly once, even
/// if the collection grows or shrinks.
fn walk<T>(
    volume: &VolumeView,
    root: impl Fn() -> Result<Pointer>,
    start: u64,
    state: &mut T,
    read: impl Fn(&mut T, &Table<'_>, (Buckets, u64), u64) -> Result<()>,
    mut deliver: impl FnMut(&mut T) -> bool,
) -> Result<()> {
    let mut at = start;
    loop {
        let last = volume.board().stable(|| {
            loop {
                let pointer = root()?;
                let table = Table::open(volume.medium(), pointer)?;
                let buckets = table.all_buckets()?;
                let bucket = buckets.of(hash_at(at));
                let level = buckets.level(bucket);
                let value = read(state, &table, (buckets, bucket), at);
                let now = table.buckets()?;
                // The value or the error counts only if meanwhile the bucket was neither split nor merged,
                // and the table was not replaced.
                if root()? == pointer && now.of(hash_at(at)) == bucket && now.level(bucket) == level {
                    value?;
                    return Ok(range_of(bucket, level).1);
                }
            }
        })?;
        if !deliver(state) || last == LAST {
            return Ok(());
        }
        at = last + 1;
    }
}

/// The entries of one bucket, in the order of listings.
#[derive(Default)]
struct ListedBucket {
    /// Position and object of each entry, and the range of its name in `names`.
    found: Vec<(u64, ObjectId, usize, usize)>,
    names: Vec<u8>,
}

/// Gives each entry of a bucket a position of its own. `found` is sorted by position, and `range` has the
/// first and the last position of the bucket. Entries that share a position get the following positions, so
/// that a listing can continue after each of them.
///
/// Only chosen names share positions, or are so close to each other that this changes further positions.
fn separate(found: &mut [(u64, ObjectId, usize, usize)], (first, last): (u64, u64)) {
    let mut free = first;
    for (position, ..) in found.iter_mut() {
        *position = free.max(*position);
        free = *position + 1;
    }
    // The last entries must not get positions of the next bucket.
    let mut end = last.min(COOKIE_MAX - 1) + 1;
    for (position, ..) in found.iter_mut().rev() {
        if *position < end {
            break;
        }
        end -= 1;
        *position = end;
    }
}

impl ListedBucket {
    /// Reads the entries of a bucket from the position `from` on.
    fn read(&mut self, table: &Table<'_>, buckets: Buckets, bucket: u64, from: u64) -> Result<()> {
        self.found.clear();
        self.names.clear();
        for_each_page(table, bucket, |page| {
            // Prefetches all lines of the page together, so that the cache misses overlap.
            for line in 0..LINES as u32 {
                table.medium.prefetch(line_at(page, line));
            }
            table.medium.prefetch(page.add(LENGTHS));
            let (found, names) = (self.found.len(), self.names.len());
            read_page(table.medium, page, |commit| {
                // `read_page` may run this closure again. Drop the entries of the previous run.
                self.found.truncate(found);
                self.names.truncate(names);
                for slot in bits(commit.live()) {
                    self.add(table, page, slot, |hash| buckets.of(hash) == bucket)?;
                }
                Ok(())
            })
        })?;
        let names = &self.names;
        // Entries with the same position are ordered by name. Therefore a listing that continues between them
        // has the same order.
        self.found.sort_unstable_by(|(a, _, first, end), (b, _, other, other_end)| {
            a.cmp(b).then_with(|| names[*first..*end].cmp(&names[*other..*other_end]))
        });
        separate(&mut self.found, range_of(bucket, buckets.level(bucket)));
        let shown = self.found.partition_point(|(position, ..)| *position < from);
        self.found.drain(..shown);
        Ok(())
    }

    /// Adds the entry of a slot if `wanted` returns true for its hash.
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
        if length == 0 || length > NAME_MAX || record_units(length) != units {
            return Err(Error::corrupt(place, "bad length of a name"));
        }
        self.names.extend_from_slice(&head.to_le_bytes()[RECORD_NAME - 8..]);
        for index in 2..units as usize {
            self.names.extend_from_slice(&record.load(index).to_le_bytes());
        }
        let first = self.names.len() - (units as usize * 8 - RECORD_NAME);
        self.names.truncate(first + length);
        self.found.push((position_of(hash), id, first, first + length));
        Ok(())
    }
}

/// Calls `visit` with the entries from `cookie` on, until `visit` returns false. The cookie 0 is the start.
///
/// `root` returns the current root of the collection. Each entry that exists during the whole listing is
/// shown exactly once. There is one exception: entries with equal or nearly equal hashes, which only chosen
/// names have, may be left out or shown twice if the directory changes meanwhile.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `root`.
pub fn list(
    volume: &VolumeView,
    root: impl Fn() -> Result<Pointer>,
    cookie: u64,
    visit: &mut dyn FnMut(engine::ListedEntry<'_>) -> bool,
) -> Result<()> {
    if cookie >= COOKIE_MAX {
        return Ok(());
    }
    walk(
        volume,
        root,
        cookie,
        &mut ListedBucket::default(),
        |entries, table, (buckets, bucket), at| {
            let from = if broken(SafetyRule::ListingLeavesOutWhatItShowed) { cookie } else { at };
            entries.read(table, buckets, bucket, from)
        },
        |entries| {
            entries.found.iter().all(|&(position, id, first, end)| {
                visit(engine::ListedEntry { name: &entries.names[first..end], id, next: position + 1 })
            })
        },
    )
}

/// Counts the entries, and finds the times of the latest changes. `times_version` is the version of the
/// directory's times. Also returns the sum of the versions of all pages, as [`versions`] does.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `root`.
pub fn summary(
    volume: &VolumeView,
    root: impl Fn() -> Result<Pointer>,
    times_version: u32,
) -> Result<(CollectionSummary, u64)> {
    sum_of_buckets(
        volume,
        root,
        |table, buckets, bucket| {
            // The versions are read before the entries. Therefore, if a page changes between the two reads, a
            // later call of `versions` returns another sum.
            let versions = bucket_versions(table, bucket)?;
            Ok((bucket_summary(table, buckets, bucket, times_version)?, versions))
        },
        |total: &mut (CollectionSummary, u64), (summary, versions)| {
            total.0.add(summary);
            total.1 = total.1.wrapping_add(*versions);
        },
    )
}

/// Returns the sum of the versions of all pages. A change of a page increases its version, modulo 2^25, and a
/// merge increases the sum. Therefore, if two calls return the same sum, no page has changed between its
/// reads in the two calls, unless 2^25 or more changes came between them.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `root`.
pub fn versions(volume: &VolumeView, root: impl Fn() -> Result<Pointer>) -> Result<u64> {
    sum_of_buckets(
        volume,
        root,
        |table, _, bucket| bucket_versions(table, bucket),
        |total: &mut u64, versions| *total = total.wrapping_add(*versions),
    )
}

/// Adds up values of all buckets. `read` returns the value of a bucket. Begins again if the bucket at some
/// position has merged with a bucket that was already added.
fn sum_of_buckets<T: Default>(
    volume: &VolumeView,
    root: impl Fn() -> Result<Pointer>,
    read: impl Fn(&Table<'_>, Buckets, u64) -> Result<T>,
    add: impl Fn(&mut T, &T),
) -> Result<T> {
    loop {
        let (mut total, mut has_merged) = (T::default(), false);
        walk(
            volume,
            &root,
            0,
            &mut None,
            |value, table, (buckets, bucket), at| {
                let is_whole = range_of(bucket, buckets.level(bucket)).0 == at;
                *value = if is_whole { Some(read(table, buckets, bucket)?) } else { None };
                Ok(())
            },
            |value| {
                match value {
                    Some(value) => add(&mut total, value),
                    None => has_merged = true,
                }
                !has_merged
            },
        )?;
        if !has_merged {
            return Ok(total);
        }
    }
}

fn bucket_versions(table: &Table<'_>, bucket: u64) -> Result<u64> {
    let mut sum = 0_u64;
    for_each_page(table, bucket, |page| {
        sum = sum.wrapping_add(Commit::from_raw(load(table.medium, page)?).version());
        Ok(())
    })?;
    Ok(sum)
}

fn bucket_summary(
    table: &Table<'_>,
    buckets: Buckets,
    bucket: u64,
    times_version: u32,
) -> Result<CollectionSummary> {
    let mut sum = CollectionSummary::default();
    for_each_page(table, bucket, |page| {
        sum.add(&read_page(table.medium, page, |commit| {
            page_summary(table, page, commit, (buckets, bucket), times_version)
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
    times_version: u32,
) -> Result<CollectionSummary> {
    let counted = slots_that_count(table.medium, page, commit, buckets, bucket)?;
    let inventory = Inventory::from_raw(load(table.medium, page.add(INVENTORY))?);
    let directories = counted & inventory.directories();
    let stamp: PageStamp = read_value(table.medium, stamp_at(page, commit.selector()))?;
    let changed = stamp.time();
    Ok(CollectionSummary {
        entries: u64::from(counted.count_ones()),
        subdirectories: u64::from(directories.count_ones()),
        changed,
        modified: changed.filter(|_| stamp.times_version == times_version),
    })
}

/// Summaries of parts of a collection. The results of `add_summaries` stay valid while the caller holds the
/// locks of all shards, and those of `bucket_summary_of` while it holds the lock of the name's shard.
impl Collection<'_> {
    /// Returns the number of buckets.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub fn buckets(&self) -> Result<u64> {
        Ok(Table::open(self.volume.medium(), self.root)?.buckets()?.count())
    }

    /// Calls `add` with the shard and the summary of each of at most `count` buckets, from the position
    /// `from` on. Returns the position after these buckets, or `None` at the end of the collection.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub(crate) fn add_summaries(
        &self,
        from: u64,
        count: usize,
        times_version: u32,
        mut add: impl FnMut(usize, &CollectionSummary),
    ) -> Result<Option<u64>> {
        let table = Table::open(self.volume.medium(), self.root)?;
        let buckets = table.all_buckets()?;
        let mut at = from;
        for _ in 0..count {
            let bucket = buckets.of(hash_at(at));
            add(buckets.shard(bucket), &bucket_summary(&table, buckets, bucket, times_version)?);
            match range_of(bucket, buckets.level(bucket)).1 {
                LAST => return Ok(None),
                last => at = last + 1,
            }
        }
        Ok(Some(at))
    }

    /// Returns the position of a name in listings.
    pub fn position(&self, name: &[u8]) -> u64 {
        position_of(hash(self.volume.hash_seed(), name))
    }

    /// Returns the summary of the bucket that a name belongs to.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub(crate) fn bucket_summary_of(&self, name: &[u8], times_version: u32) -> Result<CollectionSummary> {
        let table = Table::open(self.volume.medium(), self.root)?;
        let buckets = table.buckets()?;
        bucket_summary(&table, buckets, buckets.of(self.hash(name)), times_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separated(positions: &[u64], range: (u64, u64)) -> Vec<u64> {
        let id = ObjectId::new(1 << 20, crate::Kind::File);
        let mut found: Vec<_> = positions.iter().map(|&position| (position, id, 0, 0)).collect();
        separate(&mut found, range);
        found.into_iter().map(|(position, ..)| position).collect()
    }

    #[test]
    fn equal_positions_become_different() {
        assert_eq!(separated(&[3, 5, 9], (0, 15)), [3, 5, 9]);
        assert_eq!(separated(&[3, 3, 3, 4, 9], (0, 15)), [3, 4, 5, 6, 9]);
        // The next bucket begins at 16.
        assert_eq!(separated(&[2, 14, 15, 15, 15], (0, 15)), [2, 12, 13, 14, 15]);
        let last = COOKIE_MAX - 1;
        assert_eq!(separated(&[last - 1, last, last], (0, LAST)), [last - 2, last - 1, last]);
    }
}
