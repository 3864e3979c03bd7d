//! Going over a whole collection: for recovery, for `check`, and to free a removed directory.

use std::collections::HashSet;
use std::ops::Range;

use eyrie_medium::Addr;
use eyrie_medium::epoch::pin;

use super::Collection;
use super::layout::{BucketPlace, Buckets, Commit, DIRECTORIES, LINK, PAGE_UNITS, SLOTS, TAGS, UNIT, tag};
use super::read::for_each_page;
use super::table::{Chain, Entry, Table, bits, load, read_value, record_at};
use crate::object::pointer::Extent;
use crate::{Error, ObjectId, Result};

/// Where a record is, and its units.
type Place = (Addr, u32);

impl Collection<'_> {
    /// Shows every extent of the collection once: the table, the segments, the further pages of buckets.
    ///
    /// Nobody changes the collection meanwhile.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`, and those of `visit`.
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
                visit(further)?;
                page = further.addr;
            }
        }
        Ok(())
    }

    /// The number of buckets.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub fn bucket_count(&self) -> Result<u64> {
        Ok(Table::open(self.volume.medium(), self.root)?.all_buckets()?.count())
    }

    /// Shows every entry of some buckets once, after every check that there is: names hash as stored, no bucket has a
    /// name twice, records do not overlap, tags and kinds agree with the records. Each bucket is read under a pin of
    /// its own.
    ///
    /// Nobody changes the collection meanwhile.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`, and those of `visit`.
    pub fn visit_entries(
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
                self.visit_page(&table, page, (all, bucket), &mut |entry, record| {
                    seen.push((entry.hash, record));
                    visit(entry.name(), entry.id)
                })
            })?;
            refuse_twins(&table, &mut seen)?;
        }
        Ok(())
    }

    fn visit_page(
        &self,
        table: &Table<'_>,
        page: Addr,
        (buckets, bucket): (Buckets, u64),
        visit: &mut dyn FnMut(&Entry, Place) -> Result<()>,
    ) -> Result<()> {
        let medium = table.medium;
        let commit = Commit::from_raw(load(medium, page)?);
        if commit.level() > buckets.level(bucket) {
            return Err(Error::corrupt(page, "bucket page of a later time"));
        }
        let tags: [u8; SLOTS as usize] = read_value(medium, page.add(TAGS))?;
        let directories = load(medium, page.add(DIRECTORIES))?;
        let mut used = [false; PAGE_UNITS as usize];
        for slot in bits(commit.live()) {
            let (record, units) = record_at(medium, page, slot)?;
            let start = (record.offset() - page.offset()) / UNIT;
            let memory = &mut used[start as usize..start as usize + units as usize];
            if memory.contains(&true) {
                return Err(Error::corrupt(record, "records overlap"));
            }
            memory.fill(true);
            let entry = Entry::read(medium, record, units)?;
            if self.hash(entry.name()) != entry.hash {
                return Err(Error::corrupt(record, "wrong hash of a name"));
            }
            if tags[slot as usize] != tag(entry.hash) {
                return Err(Error::corrupt(page, "wrong tag of an entry"));
            }
            if (directories >> slot & 1 == 1) != entry.id.is_directory() {
                return Err(Error::corrupt(page, "wrong kind of an entry"));
            }
            if !belongs(entry.hash, commit, bucket) {
                return Err(Error::corrupt(page, "entry in a bucket that is not its own"));
            }
            if buckets.of(entry.hash) == bucket {
                visit(&entry, (record, units))?;
            }
        }
        Ok(())
    }
}

/// Whether an entry may be in a page of `bucket` at all: the level says how many bits they share.
fn belongs(hash: u64, commit: Commit, bucket: u64) -> bool {
    let mask = (1_u64 << commit.level()) - 1;
    hash & mask == bucket & mask
}

/// Refuses entries with the same name among those of a bucket, each with its hash and its record; takes them all.
fn refuse_twins(table: &Table<'_>, seen: &mut Vec<(u64, Place)>) -> Result<()> {
    seen.sort_unstable_by_key(|(hash, _)| *hash);
    for same in seen.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
        let mut names = HashSet::new();
        for &(_, (record, units)) in same {
            if !names.insert(Entry::read(table.medium, record, units)?.name().to_vec()) {
                return Err(Error::corrupt(record, "name twice in a directory"));
            }
        }
    }
    seen.clear();
    Ok(())
}

/// Calls `visit` with each segment that the table points to, those after the last bucket included.
fn for_each_segment(table: &Table<'_>, mut visit: impl FnMut(Extent) -> Result<()>) -> Result<()> {
    for segment in 0..table.slots() {
        let step = BucketPlace::buckets_of(segment);
        if let Some(extent) = table.segment(segment, step)? {
            visit(extent)?;
        }
    }
    Ok(())
}
