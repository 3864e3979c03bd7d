//! Functions that visit all storage or all entries of a collection. Recovery, `check`, salvage and the
//! removal of a directory use them.

use std::collections::HashSet;
use std::ops::Range;

use eyrie_medium::Addr;
use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};

use super::buckets::{BucketPlace, Buckets};
use super::commit::Commit;
use super::layout::{
    INVENTORY, Inventory, LINK, PAGE_UNITS, PageStamp, Tags, home, index_of, line_of, stamp_at, tag, tags_at,
};
use super::read::for_each_page;
use super::table::{Chain, Collection, StoredEntry, Table, bits, load, read_slot, read_value};
use crate::extent::Extent;
use crate::{Error, ObjectId, Result, Time};

/// The page and the slot of an entry.
type EntryPlace = (Addr, u32);

impl Collection<'_> {
    /// Calls `visit` once with every extent of the collection: the table, the segments, and the further pages
    /// of buckets.
    ///
    /// No Op may change the collection meanwhile.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`, and the errors of `visit`.
    pub fn visit_storage(&self, visit: &mut dyn FnMut(Extent) -> Result<()>) -> Result<()> {
        let medium = self.volume.medium();
        let table = Table::open(medium, self.root)?;
        let buckets = table.all_buckets()?;
        visit(table.extent)?;
        for_each_segment(&table, &mut *visit)?;
        for bucket in 0..buckets.count() {
            let mut chain = Chain::new();
            let mut page = table.page(bucket)?;
            while let Some(further) = chain.next(page, load(medium, page.add(LINK))?)? {
                if !broken(SafetyRule::RecoveryVisitsFurtherPages) {
                    visit(further)?;
                }
                page = further.addr;
            }
        }
        Ok(())
    }

    /// Returns the number of buckets. Refuses a number that does not fit the table or the volume.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub(crate) fn bucket_count(&self) -> Result<u64> {
        Ok(Table::open(self.volume.medium(), self.root)?.all_buckets()?.count())
    }

    /// Checks some buckets, and calls `visit` once with each of their entries. (Entries that an unfinished
    /// split has moved to a new bucket are entries of the new bucket only.) Among the checks are: names match
    /// their stored hashes, no bucket has a name twice, records overlap neither each other nor the gap, and
    /// tags and kinds agree with the entries. The spilled bits must lead look-ups to every line with entries.
    /// Each bucket is read under a separate pin, so that a long pass does not delay the reuse of storage.
    ///
    /// No Op may change the collection meanwhile.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`, and the errors of `visit`.
    pub(crate) fn visit_entries(
        &self,
        buckets: Range<u64>,
        visit: &mut dyn FnMut(&[u8], ObjectId) -> Result<()>,
    ) -> Result<()> {
        let table = Table::open(self.volume.medium(), self.root)?;
        let mut seen = Vec::new();
        for bucket in buckets {
            let _pin = pin();
            let all = table.all_buckets()?;
            for_each_page(&table, bucket, |page| {
                self.visit_page(&table, page, (all, bucket), &mut |entry, place| {
                    seen.push((entry.hash, place));
                    visit(entry.name(), entry.id)
                })
            })?;
            refuse_twins(&table, &mut seen)?;
        }
        Ok(())
    }

    /// Checks the time in the current stamp of each page of some buckets. Recovery skips this check, because
    /// the results of recovery do not depend on these times.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub(crate) fn check_stamps(&self, buckets: Range<u64>) -> Result<()> {
        let table = Table::open(self.volume.medium(), self.root)?;
        for bucket in buckets {
            let _pin = pin();
            for_each_page(&table, bucket, |page| {
                let commit = Commit::from_raw(load(table.medium, page)?);
                let stamp: PageStamp = read_value(table.medium, stamp_at(page, commit.selector()))?;
                match stamp.time() {
                    Some(time) if time.nanoseconds >= Time::NANOSECONDS => {
                        Err(Error::corrupt(page, "stamp with a billion nanoseconds or more"))
                    }
                    _ => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    fn visit_page(
        &self,
        table: &Table<'_>,
        page: Addr,
        (buckets, bucket): (Buckets, u64),
        visit: &mut dyn FnMut(&StoredEntry, EntryPlace) -> Result<()>,
    ) -> Result<()> {
        let medium = table.medium;
        let commit = Commit::from_raw(load(medium, page)?);
        // A split raises the level of a page of the old bucket only after the publish of the number of
        // buckets. Therefore a level above that of the bucket is damage.
        if commit.level() > buckets.level(bucket) {
            return Err(Error::corrupt(page, "level of a bucket page is too high"));
        }
        if commit.is_impossible() {
            return Err(Error::corrupt(page, "live bit without a slot"));
        }
        let tags = |line| load(medium, tags_at(page, line)).map(Tags::from_raw);
        let inventory = Inventory::from_raw(load(medium, page.add(INVENTORY))?);
        let gap = inventory.gap();
        if !gap.is_in_heap() {
            return Err(Error::corrupt(page, "gap outside its bucket page"));
        }
        let mut used = [false; PAGE_UNITS as usize];
        // The gap counts as used, so that a record that overlaps the gap is found.
        used[gap.start as usize..gap.end as usize].fill(true);
        for slot in bits(commit.live()) {
            let (place, units) = read_slot(medium, page, slot)?;
            let memory = &mut used[place.unit() as usize..][..units as usize];
            if memory.contains(&true) {
                return Err(Error::corrupt(page, "record overlaps another record or the gap"));
            }
            memory.fill(true);
            let entry = StoredEntry::read(medium, page, slot)?;
            if self.hash(entry.name()) != entry.hash {
                return Err(Error::corrupt(page, "wrong hash of a name"));
            }
            if tags(line_of(slot))?.get(index_of(slot)) != tag(entry.hash) {
                return Err(Error::corrupt(page, "wrong tag of an entry"));
            }
            if (inventory.directories() >> slot & 1 == 1) != entry.id.is_directory() {
                return Err(Error::corrupt(page, "wrong kind of an entry"));
            }
            if !belongs(entry.hash, commit, bucket) {
                return Err(Error::corrupt(page, "entry in a bucket that is not its own"));
            }
            // An unfinished split left this entry behind. A visit of the new bucket finds the copy of the
            // entry.
            if buckets.of(entry.hash) != bucket {
                continue;
            }
            let (line, home) = (line_of(slot), home(entry.hash));
            if line != home && tags(home)?.spilled() >> line & 1 == 0 {
                return Err(Error::corrupt(page, "spilled entry without its spilled bit"));
            }
            visit(&entry, (page, slot))?;
        }
        Ok(())
    }
}

/// True if a page of `bucket` with the commit word `commit` may hold an entry with this hash. The level in
/// the commit word is the number of low bits in which the hash and the number of the bucket must agree.
pub(super) fn belongs(hash: u64, commit: Commit, bucket: u64) -> bool {
    let mask = (1_u64 << commit.level()) - 1;
    hash & mask == bucket & mask
}

/// Refuses entries with the same name in a bucket. `seen` has the hash and the location of each entry.
/// Afterwards `seen` is empty.
fn refuse_twins(table: &Table<'_>, seen: &mut Vec<(u64, EntryPlace)>) -> Result<()> {
    seen.sort_unstable_by_key(|(hash, _)| *hash);
    for same in seen.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
        let mut names = HashSet::new();
        for &(_, (page, slot)) in same {
            if !names.insert(StoredEntry::read(table.medium, page, slot)?.name().to_vec()) {
                return Err(Error::corrupt(page, "name twice in a directory"));
            }
        }
    }
    seen.clear();
    Ok(())
}

/// Calls `visit` with each segment of the table. This includes a segment without buckets, which a split
/// allocates before it publishes the number of buckets.
fn for_each_segment(table: &Table<'_>, mut visit: impl FnMut(Extent) -> Result<()>) -> Result<()> {
    for segment in 0..table.slots() {
        let buckets_in_segment = BucketPlace::buckets_of(segment);
        if let Some(extent) = table.segment(segment, buckets_in_segment)? {
            visit(extent)?;
        }
    }
    Ok(())
}
