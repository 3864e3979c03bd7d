//! Counts and times of directories. For a large directory, readers get them from
//! [`Summaries`](super::summaries::Summaries), and Ops keep its summary up to date.
//!
//! A builder is a reader that completes a summary. It adds up `PART` buckets at a time, under the locks of
//! all shards, and releases the locks between two parts. Therefore an Op waits for no more than one part. An
//! Op between two parts changes the summary only if the summary already covers the hash of the changed entry.
//! A later part finds all other changes in the pages. Hashes do not depend on the number of buckets, so
//! growth between two parts does no harm. Merges between two parts drop the summary (see `shrink`).
//!
//! Readers retry while Ops commit, or while a redo record is being applied. A builder that does not get the
//! locks stops building, and adds up the pages without locks. The next reader continues the summary after the
//! finished parts. A reader waits for locks only after `ATTEMPTS` attempts, all of which met commits.

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Settled};
use smallvec::SmallVec;

use super::Scm;
use super::locks::LockedParent;
use super::summaries::{HeldSum, ShardSum, SumCoverage};
use crate::extent::Extent;
use crate::notices::{Notice, may_have_changed};
use crate::object::collection::{self, Collection, CollectionSummary, SHARDS};
use crate::object::header::{Cold, Header, Hot};
use crate::object::xattr::XattrRoot;
use crate::transaction::Transaction;
use crate::volume::VolumeView;
use crate::{Attributes, ObjectId, Result, Time};

/// Number of attempts to read a directory that Ops keep changing. After the last attempt, a reader waits for
/// the locks of all shards.
const ATTEMPTS: usize = 100;
/// Minimum number of buckets of a directory that gets a summary. From this number on, growth gives no entry
/// another shard. So each entry stays in its shard, and the partial sum of this shard counts it. A directory
/// that may shrink below this number loses its summary.
pub(super) const LARGE: u64 = SHARDS as u64;
/// Maximum number of buckets of a directory that a client reads by itself. The reads of 32 buckets take about
/// as long as a request to a service that is awake. A request to a sleeping service takes much longer.
const CLIENT_BUCKETS_MAX: u64 = 32;
/// Maximum number of attempts of a client to read such a directory.
const CLIENT_ATTEMPTS: usize = 4;
/// Number of buckets that a builder adds up before it releases the locks. The number is small under
/// `shuttle`, which explores the interleavings between parts.
const PART: usize = if cfg!(feature = "shuttle") { 2 } else { 32 };

/// A change of one entry of a directory.
#[derive(Clone, Copy)]
pub(super) struct EntryChange<'a> {
    pub(super) parent: &'a LockedParent,
    pub(super) name: &'a [u8],
    /// The object that the entry names before the change, if the entry exists then.
    pub(super) before: Option<ObjectId>,
    /// The object that the entry names after the change, if the entry exists then.
    pub(super) after: Option<ObjectId>,
}

impl<'a> EntryChange<'a> {
    pub(super) fn added(parent: &'a LockedParent, name: &'a [u8], id: ObjectId) -> EntryChange<'a> {
        EntryChange { parent, name, before: None, after: Some(id) }
    }

    pub(super) fn removed(parent: &'a LockedParent, name: &'a [u8], id: ObjectId) -> EntryChange<'a> {
        EntryChange { parent, name, before: Some(id), after: None }
    }
}

/// A partial sum that an Op changes.
struct ChangingSum<'a> {
    dir: ObjectId,
    shard: usize,
    held: HeldSum<'a>,
}

/// The state of a directory at one moment.
struct DirectoryView {
    hot: Hot,
    cold: Cold,
    summary: CollectionSummary,
}

impl DirectoryView {
    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        let DirectoryView { hot, cold, summary } = self;
        let unlinked = hot.selector.unlinked();
        let changed = if hot.selector.follows() { hot.modified } else { cold.changed() };
        Ok(Attributes {
            kind: id.kind(),
            mode: cold.mode,
            uid: cold.uid,
            gid: cold.gid,
            links: if unlinked { 0 } else { 2_u32.wrapping_add(summary.subdirectories as u32) },
            size: summary.entries,
            allocated: XattrRoot::of(Header::of(id), cold).extent()?.map_or(0, Extent::bytes),
            accessed: cold.accessed(),
            modified: summary.modified.unwrap_or(hot.modified),
            changed: changed.max(summary.changed.unwrap_or(changed)),
            device: 0,
            parent: ObjectId::from_raw(cold.parent_or_device).filter(|_| !unlinked),
        })
    }
}

impl VolumeView {
    /// Returns the attributes of a directory from its pages. Returns `None` for a directory of more than 32
    /// buckets (`CLIENT_BUCKETS_MAX`), and for a directory that Ops keep changing. The owner of the volume
    /// has other ways to find the attributes of such directories.
    ///
    /// # Errors
    /// As [`Engine::attributes`](crate::Engine::attributes).
    pub fn read_small_directory(&self, id: ObjectId) -> Result<Option<Attributes>> {
        let _pin = pin();
        let (header, _) = self.directory(id)?;
        for _ in 0..CLIENT_ATTEMPTS {
            let root = header.hot(self.medium())?.root;
            if Collection::new(self, root).buckets()? > CLIENT_BUCKETS_MAX {
                return Ok(None);
            }
            let (view, unchanged) = self.sum_pages(header)?;
            if unchanged {
                return view.attributes(id).map(Some);
            }
        }
        Ok(None)
    }

    /// Adds up the pages of a directory without a lock. Also returns true if nothing has changed meanwhile.
    /// All pages then had these contents at one moment.
    fn sum_pages(&self, header: Header) -> Result<(DirectoryView, bool)> {
        let root = || Ok(header.hot(self.medium())?.root);
        let (hot, cold) = self.board().stable(|| header.hot_and_cold(self.medium()))?;
        let (summary, versions) = collection::summary(self, root, cold.times_version)?;
        // If nothing has changed, all pages had these contents at the moment between the two passes.
        let records = self.board().redo_records();
        let unchanged = records.is_some()
            && collection::versions(self, root)? == versions
            && self.board().redo_records() == records
            && header.selector(self.medium())? == hot.selector;
        Ok((DirectoryView { hot, cold, summary }, unchanged || broken(SafetyRule::SumIsOfOneMoment)))
    }
}

impl Scm {
    #[inline(always)]
    pub(super) fn read_attributes(&self, id: ObjectId) -> Result<Attributes> {
        if id.is_directory() { self.read_directory(id) } else { self.volume.read_object(id) }
    }

    fn read_directory(&self, id: ObjectId) -> Result<Attributes> {
        let _pin = pin();
        let header = self.header(id)?;
        self.view(id, header)?.attributes(id)
    }

    /// Returns a directory's header and the sum of its pages. The sum comes from the directory's summary,
    /// which this call tries to complete. If this call cannot complete the summary, the sum comes from the
    /// pages, which are read without a lock. Ops on several shards may change pages during the read. So this
    /// call uses the sum only if all pages had these contents at one moment. After many attempts, this call
    /// waits for the locks of all shards. The caller holds a pin, and no lock of an object.
    fn view(&self, id: ObjectId, header: Header) -> Result<DirectoryView> {
        for attempt in 1.. {
            let held = (attempt > ATTEMPTS).then(|| self.locks.hold(&[id]));
            if let Some(view) = self.known_view(id, header)? {
                return Ok(view);
            }
            if held.is_none() && self.build_summary(id, header)? {
                continue;
            }
            let (view, unchanged) = self.volume.sum_pages(header)?;
            if unchanged || held.is_some() {
                return Ok(view);
            }
        }
        unreachable!("the attempt with the locks returns")
    }

    /// Returns a directory's header and summary, if the summary is complete. The header is the same before
    /// and after the read of the summary. Therefore both belong to the moment of that read.
    fn known_view(&self, id: ObjectId, header: Header) -> Result<Option<DirectoryView>> {
        if !self.summaries.may_know(id) {
            return Ok(None);
        }
        let medium = self.medium();
        self.volume.board().stable(|| {
            loop {
                let (hot, cold) = header.hot_and_cold(medium)?;
                let committed = |place: Addr, value| Ok(medium.load(place)? == value);
                // A partial sum with an older version of the times gives no modification time. If no sum
                // gives one, the explicit time in the header counts.
                let Some(summary) = self.summaries.read(id, cold.times_version, committed)? else {
                    return Ok(None);
                };
                if header.selector(medium)? == hot.selector {
                    return Ok(Some(DirectoryView { hot, cold, summary }));
                }
            }
        })
    }

    /// Completes the summary of a large directory. Returns false in four cases: the directory is small,
    /// another thread keeps the lock of a shard, an Op drops the summary, or another directory takes the
    /// slot of the summary.
    fn build_summary(&self, id: ObjectId, header: Header) -> Result<bool> {
        let mut from = 0;
        loop {
            // The pages are read before the locks are taken. Therefore no Op waits for cache misses or for a
            // disk while a builder reads these pages.
            let root = header.hot(self.medium())?.root;
            let collection = Collection::new(&self.volume, root);
            if collection.buckets()? < LARGE {
                return Ok(false);
            }
            let _ = collection.add_summaries(from, PART, 0, |_, _| ());
            let Some(_held) = self.locks.try_hold(id) else { return Ok(false) };
            // The directory may have become small before this call got the locks.
            if Collection::new(&self.volume, header.hot(self.medium())?.root).buckets()? < LARGE {
                return Ok(false);
            }
            match self.build_part(id, header, PART) {
                Ok(SumCoverage::Complete) => return Ok(true),
                // An Op has dropped this directory's summary, or another directory of the same stripe has
                // evicted it. This builder stops. Otherwise two builders could evict each other without end.
                Ok(SumCoverage::Before(next)) if next <= from => return Ok(false),
                Ok(SumCoverage::Before(next)) => from = next,
                Err(error) => {
                    self.summaries.forget(id);
                    return Err(error);
                }
            }
        }
    }

    /// Adds some buckets to the summary of a directory. The caller holds the locks of all shards.
    fn build_part(&self, id: ObjectId, header: Header, buckets: usize) -> Result<SumCoverage> {
        let (hot, cold) = header.hot_and_cold(self.medium())?;
        let times_version = cold.times_version;
        let new = ([ShardSum::default(); SHARDS], SumCoverage::Before(0));
        let (mut sums, coverage) = self.summaries.known(id).unwrap_or(new);
        let SumCoverage::Before(from) = coverage else { return Ok(SumCoverage::Complete) };
        sums.iter_mut().for_each(|sum| sum.begin_times_version(times_version));
        let collection = Collection::new(&self.volume, hot.root);
        let next = collection
            .add_summaries(from, buckets, times_version, |shard, part| sums[shard].summary.add(part))?;
        let coverage = next.map_or(SumCoverage::Complete, SumCoverage::Before);
        self.summaries.keep(id, &sums, coverage);
        Ok(coverage)
    }

    /// Commits a transaction that changes these entries at `time`, and tells the watchers. The caller holds
    /// the locks of the entries.
    #[inline(always)]
    pub(super) fn commit_entries(
        &self,
        transaction: &mut Transaction<'_>,
        time: Time,
        changes: &[EntryChange<'_>],
    ) -> Result<Settled> {
        let result = if changes.iter().any(|change| self.summaries.may_know(change.parent.id)) {
            self.commit_counted(transaction, time, changes)
        } else {
            transaction.commit_in_place()
        };
        if self.notices.is_watched() && may_have_changed(&result) {
            self.notify_of_entries(changes);
        }
        result
    }

    #[cold]
    fn notify_of_entries(&self, changes: &[EntryChange<'_>]) {
        // Only a rename makes an object leave the first of two entries and appear in the second.
        if let [from, to] = changes
            && let Some(moved) = from.before
            && to.after == Some(moved)
        {
            return self.notices.add(&Notice::Rename {
                from_dir: from.parent.id,
                from_name: from.name.into(),
                to_dir: to.parent.id,
                to_name: to.name.into(),
                moved,
                replaced: to.before,
                left: from.after,
            });
        }
        for &EntryChange { parent, name, before, after } in changes {
            self.notices.add(&Notice::Entry { dir: parent.id, name: name.into(), before, after });
        }
    }

    #[cold]
    #[inline(never)]
    fn commit_counted(
        &self,
        transaction: &mut Transaction<'_>,
        time: Time,
        changes: &[EntryChange<'_>],
    ) -> Result<Settled> {
        let mut sums = SmallVec::new();
        for change in changes {
            if self.count(change, time, &mut sums).is_none() {
                self.summaries.forget(change.parent.id);
            }
        }
        let forget = |sums: &[ChangingSum<'_>]| sums.iter().for_each(|sum| self.summaries.forget(sum.dir));
        let Some(witness) = transaction.witness() else {
            forget(&sums);
            return transaction.commit_in_place();
        };
        let prepare = |sums: &[ChangingSum<'_>]| {
            sums.iter().for_each(|ChangingSum { held, .. }| held.partial.prepare(&held.sum, witness));
        };
        // All sums have the same witness, so one commit changes all of them.
        let early = if broken(SafetyRule::SumIsPreparedBeforeTheCommit) {
            0
        } else if broken(SafetyRule::OneCommitChangesAllSums) {
            1.min(sums.len())
        } else {
            sums.len()
        };
        prepare(&sums[..early]);
        let result = transaction.commit_in_place();
        prepare(&sums[early..]);
        match &result {
            Ok(_) => sums.iter().for_each(|sum| sum.held.partial.adopt()),
            // It is unknown which words were committed. The next reader adds up the pages.
            Err(_) => forget(&sums),
        }
        result
    }

    /// Adds a change of an entry to the sum of its shard in `sums`. If the summary does not cover the entry
    /// yet, the sum stays as it is. Returns `None` if the directory has no summary, or if its summary must be
    /// built from the pages again.
    fn count<'a>(
        &'a self,
        change: &EntryChange<'_>,
        time: Time,
        sums: &mut SmallVec<[ChangingSum<'a>; 2]>,
    ) -> Option<()> {
        let &EntryChange { parent, name, before, after } = change;
        let (dir, collection) = (parent.id, Collection::new(&self.volume, parent.hot.root));
        let shard = match parent.lock.shard(dir) {
            Some(shard) => shard,
            None => collection.shard(name).ok()?,
        };
        let index = match sums.iter().position(|sum| (sum.dir, sum.shard) == (dir, shard)) {
            Some(index) => index,
            None => {
                sums.push(ChangingSum { dir, shard, held: self.summaries.held(dir, shard)? });
                sums.len() - 1
            }
        };
        let HeldSum { sum, coverage, .. } = &mut sums[index].held;
        if let SumCoverage::Before(cursor) = *coverage
            && collection.position(name) >= cursor
        {
            return Some(());
        }
        sum.begin_times_version(parent.times_version);
        let CollectionSummary { entries, subdirectories, changed, modified } = sum.summary;
        // A page keeps only the time of its last change. If `time` is older than the latest time of the
        // shard, this Op may erase that latest time from the page. Then the maximum over all pages must be
        // computed again.
        if changed.is_some_and(|latest| time < latest) {
            let around = collection.bucket_summary_of(name, parent.times_version).ok()?;
            if around.changed.is_some_and(|_| around.changed >= changed)
                || around.modified.is_some_and(|_| around.modified >= modified)
            {
                return None;
            }
        }
        let count = |id: Option<ObjectId>| u64::from(id.is_some());
        let directories = |id: Option<ObjectId>| u64::from(id.is_some_and(ObjectId::is_directory));
        sum.summary = CollectionSummary {
            entries: entries.wrapping_add(count(after)).wrapping_sub(count(before)),
            subdirectories: subdirectories.wrapping_add(directories(after)).wrapping_sub(directories(before)),
            changed: changed.max(Some(time)),
            modified: modified.max(Some(time)),
        };
        Some(())
    }
}

#[cfg(test)]
mod tests;
