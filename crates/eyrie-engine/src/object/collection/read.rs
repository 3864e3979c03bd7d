//! Look-ups. They need no lock. The docs of `collection` explain why their results are correct.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, LINE_SIZE, Medium};

use super::buckets::Buckets;
use super::commit::Commit;
use super::layout::{
    EntrySlot, HEAP_UNIT, LENGTHS, LINE_WORDS, LINK, NameRecord, PAGE_UNITS, TAGS_WORD, Tags, home, line_at,
    tag,
};
use super::table::{
    Chain, Collection, Table, bits, checked_id, load, read_page, record_at, slots_that_count, words,
};
use crate::{ObjectId, Result};

/// The location of an entry. The location stays valid while the caller holds the lock of the entry's shard
/// and commits nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoundEntry {
    /// The object.
    pub id: ObjectId,
    /// First page of the entry's bucket.
    pub(super) bucket: Addr,
    /// The entry's page.
    pub(super) page: Addr,
    /// The entry's slot in that page.
    pub(super) slot: u32,
    /// The commit word of that page at the time of the look-up.
    commit: Commit,
}

impl<'v> Collection<'v> {
    /// Returns the entry of a name.
    ///
    /// If the look-up finds nothing, and the root has changed meanwhile, a caller without the lock of the
    /// name's shard must repeat the look-up.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    #[inline(always)]
    pub(crate) fn lookup(&self, name: &[u8]) -> Result<Option<FoundEntry>> {
        self.search_buckets(name, |table, _| table.buckets())
    }

    /// Works as [`Collection::lookup`], and calls `begin` with the shard of the name before each search.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    #[inline(always)]
    pub(crate) fn lookup_in_shard(
        &self,
        name: &[u8],
        mut begin: impl FnMut(usize),
    ) -> Result<Option<FoundEntry>> {
        self.search_buckets(name, |table, hash| {
            loop {
                let buckets = table.buckets()?;
                begin(buckets.shard(hash));
                // Growth before `begin` may have changed the shard and the bucket of the name. This check
                // finds such growth. Growth after this check may also move the entry or change its shard.
                // Then the Op that grows the collection holds the lock of this shard until that Op ends, and
                // `Scm::confirm` sees its end in the count of ended Ops. If the search finds no entry,
                // `search_buckets` notices the growth, too.
                if table.has(buckets)? || broken(SafetyRule::NotedShardIsCurrent) {
                    return Ok(buckets);
                }
            }
        })
    }

    /// Looks for a name. Before each search, `begin` gets the hash of the name and returns the number of
    /// buckets.
    #[inline(always)]
    fn search_buckets(
        &self,
        name: &[u8],
        mut begin: impl FnMut(&Table<'_>, u64) -> Result<Buckets>,
    ) -> Result<Option<FoundEntry>> {
        let wanted = NameRecord { hash: self.hash(name), name };
        let medium = self.volume.medium();
        let table = Table::open(medium, self.root)?;
        loop {
            let buckets = begin(&table, wanted.hash)?;
            let bucket = table.page(buckets.of(wanted.hash))?;
            let found = find(medium, bucket, wanted)?;
            if found.is_some() || table.has(buckets)? {
                return Ok(found);
            }
        }
    }

    /// True if the entry of `name` is certainly the same as at the time of its look-up: its page is the first
    /// of its bucket, has not changed, and still belongs to the bucket of the name. The result is false for
    /// an entry in a further page, because the bucket may have given up this page without a change of the
    /// page. The caller holds the lock of the name's shard.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub(crate) fn is_unchanged(&self, name: &[u8], found: &FoundEntry) -> Result<bool> {
        let table = Table::open(self.volume.medium(), self.root)?;
        let bucket = table.page(table.buckets()?.of(self.hash(name)))?;
        Ok(bucket == found.page && load(table.medium, bucket)? == found.commit.raw())
    }

    /// Returns the number of buckets, and the bucket of a name.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    #[cfg(feature = "shuttle")]
    pub(crate) fn bucket(&self, name: &[u8]) -> Result<(u64, u64)> {
        let buckets = Table::open(self.volume.medium(), self.root)?.buckets()?;
        Ok((buckets.count(), buckets.of(self.hash(name))))
    }

    /// Returns the shard of a name. The result stays valid while the caller holds the lock of any shard,
    /// because growth that changes the shard of a name takes the locks of all shards.
    ///
    /// # Errors
    /// `Corrupt`, `Fault`.
    pub(crate) fn shard(&self, name: &[u8]) -> Result<usize> {
        let table = Table::open(self.volume.medium(), self.root)?;
        Ok(table.buckets()?.shard(self.hash(name)))
    }

    /// Prefetches lines that a look-up of `name` and a change of its entry use in the first page of the
    /// bucket. The lines of the record are not among them.
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

    /// True if the collection has no entries. The caller holds the locks of all shards of the directory.
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
                counted |= read_page(medium, page, |commit| {
                    slots_that_count(medium, page, commit, buckets, bucket)
                })?;
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
fn find(medium: &Medium, bucket: Addr, wanted: NameRecord<'_>) -> Result<Option<FoundEntry>> {
    let mut chain = Chain::new();
    let mut page = bucket;
    loop {
        let (commit, (hit, link)) =
            read_page(medium, page, |commit| Ok((commit, search(medium, page, commit, wanted)?)))?;
        if let Some((slot, id)) = hit {
            return Ok(Some(FoundEntry { id, bucket, page, slot, commit }));
        }
        match chain.next(page, link)? {
            Some(next) => page = next.addr,
            None => return Ok(None),
        }
    }
}

/// A slot, and the object that it names.
type SlotHit = (u32, ObjectId);

/// Looks for an entry in a page. If the entry is not in this page, also returns the link to the next page.
#[inline(always)]
fn search(
    medium: &Medium,
    page: Addr,
    commit: Commit,
    wanted: NameRecord<'_>,
) -> Result<(Option<SlotHit>, u64)> {
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
    wanted: NameRecord<'_>,
) -> Result<Option<SlotHit>> {
    for line in bits(lines) {
        let (hit, _) = search_line(medium, page, commit, line, wanted)?;
        if hit.is_some() {
            return Ok(hit);
        }
    }
    Ok(None)
}

/// Looks for an entry in a line of a page. If the entry is not in this line, also returns the other lines
/// that may hold entries whose home is this line.
#[inline(always)]
fn search_line(
    medium: &Medium,
    page: Addr,
    commit: Commit,
    line: u32,
    wanted: NameRecord<'_>,
) -> Result<(Option<SlotHit>, u32)> {
    let slots = words(medium, line_at(page, line), LINE_WORDS as usize)?;
    let tags = Tags::from_raw(slots.load(TAGS_WORD));
    let live = commit.live() >> (line * LINE_WORDS);
    for index in bits(tags.matching(tag(wanted.hash)) & live) {
        let slot = EntrySlot::from_raw(slots.load(index as usize));
        // Callers usually read the object after the look-up. Therefore two lines of the object's header are
        // fetched together with the record.
        let object = Addr::from_raw(slot.id());
        medium.prefetch(object.add(LINE_SIZE));
        medium.prefetch(object.add(2 * LINE_SIZE));
        // The slot may be damaged. A slot without room for a record of this length is not the wanted entry.
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

#[cfg(test)]
thread_local! {
    /// Number of pages that this thread has visited in passes. Look-ups do not count. Tests measure the cost
    /// of passes with this number.
    pub(crate) static VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
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
        #[cfg(test)]
        VISITS.set(VISITS.get() + 1);
        visit(addr)?;
        page = chain.next(addr, load(table.medium, addr.add(LINK))?)?.map(|extent| extent.addr);
    }
    Ok(())
}
