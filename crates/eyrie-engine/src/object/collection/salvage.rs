//! Reads the intact parts of a damaged collection.

use std::collections::HashSet;

use eyrie_medium::Addr;

use super::buckets::Buckets;
use super::check::belongs;
use super::commit::Commit;
use super::layout::{LINK, PAGE_BYTES, SLOTS, Tags, index_of, line_of, tag, tags_at};
use super::table::{Chain, Collection, StoredEntry, Table, bits, hash, load};
use crate::{Error, ObjectId, Result};

/// The pages of a collection that were already read.
struct SeenPages {
    pages: HashSet<Addr>,
    /// Number of repeated reads that are still allowed. If a damaged link leads to a page of another bucket,
    /// the pass reads this page once for each of the two buckets.
    repeats_left: u64,
}

impl SeenPages {
    fn add(&mut self, page: Addr) -> Result<()> {
        if self.pages.insert(page) {
            return Ok(());
        }
        self.repeats_left = self
            .repeats_left
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt(page, "bucket page that occurs many times in a directory"))?;
        Ok(())
    }
}

/// A readable entry of a damaged collection, or the error of a damaged part.
pub(crate) type SalvagedEntry<'a> = std::result::Result<(&'a [u8], ObjectId), Error>;

impl Collection<'_> {
    /// Calls `show` with every readable entry whose hash belongs to its bucket, and with an error for every
    /// damaged part. `seeds` are the possible keys of the hash. If the stored hash is wrong, `salvage_entry`
    /// chooses the hash. The pass always terminates, even if the links form a cycle, because it reads no page
    /// twice for one bucket, and the number of pages that it reads for several buckets is bounded.
    pub fn salvage(&self, seeds: &[u64], show: &mut dyn FnMut(SalvagedEntry<'_>)) {
        let table = Table::open(self.volume.medium(), self.root);
        let found = table.and_then(|table| Ok((table, table.all_buckets()?)));
        let (table, buckets) = match found {
            Ok(found) => found,
            Err(error) => return show(Err(error)),
        };
        let room = table.medium.segment_sizes().sum::<u64>() / PAGE_BYTES;
        let mut seen = SeenPages { pages: HashSet::new(), repeats_left: room };
        for bucket in 0..buckets.count() {
            if let Err(error) = salvage_bucket(&table, (buckets, bucket), seeds, &mut seen, show) {
                show(Err(error));
            }
        }
    }
}

fn salvage_bucket(
    table: &Table<'_>,
    (buckets, bucket): (Buckets, u64),
    seeds: &[u64],
    seen: &mut SeenPages,
    show: &mut dyn FnMut(SalvagedEntry<'_>),
) -> Result<()> {
    let mut chain = Chain::new();
    let mut pages = Vec::new();
    let mut page = Some(table.page(bucket)?);
    while let Some(addr) = page {
        seen.add(addr)?;
        if pages.contains(&addr) {
            return Err(Error::corrupt(addr, "bucket page that leads back to itself"));
        }
        pages.push(addr);
        let commit = Commit::from_raw(load(table.medium, addr)?);
        for slot in bits(commit.live() & SLOTS) {
            let (entry, agrees) = match salvage_entry(table, (buckets, bucket), seeds, addr, slot) {
                Ok(read) => read,
                Err(error) => {
                    show(Err(error));
                    continue;
                }
            };
            if buckets.of(entry.hash) == bucket {
                show(Ok((entry.name(), entry.id)));
            } else if belongs(entry.hash, commit, bucket) {
                // A split left this entry behind. The pass shows the entry in its new bucket.
                continue;
            }
            if !agrees || buckets.of(entry.hash) != bucket {
                show(Err(Error::corrupt(addr, "wrong hash of a name, or a wrong bucket")));
            }
        }
        page = chain.next(addr, load(table.medium, addr.add(LINK))?)?.map(|extent| extent.addr);
    }
    Ok(())
}

/// Returns the entry of a slot, and true if the stored hash is the hash of the name with one of the keys. If
/// it is not, then the name, the hash, the tag or the keys are damaged, and the tag decides:
///
/// - If the tag and the bucket agree with a computed hash of the name, the entry gets this hash.
/// - Otherwise, if the tag agrees with the stored hash, the entry keeps the stored hash.
/// - Otherwise the result is an error.
fn salvage_entry(
    table: &Table<'_>,
    (buckets, bucket): (Buckets, u64),
    seeds: &[u64],
    page: Addr,
    slot: u32,
) -> Result<(StoredEntry, bool)> {
    let mut entry = StoredEntry::read(table.medium, page, slot)?;
    let mut computed = seeds.iter().map(|&seed| hash(seed, entry.name()));
    if computed.clone().any(|hash| hash == entry.hash) {
        return Ok((entry, true));
    }
    let tags = Tags::from_raw(load(table.medium, tags_at(page, line_of(slot)))?);
    let says = |hash| tags.get(index_of(slot)) == tag(hash);
    if let Some(hash) = computed.find(|&hash| says(hash) && buckets.of(hash) == bucket) {
        entry.hash = hash;
    } else if !says(entry.hash) {
        return Err(Error::corrupt(page, "wrong hash of a name"));
    }
    Ok((entry, false))
}
