//! Counts and times of directories: readers get them from [`Summaries`](super::summaries::Summaries), Ops keep those right.
//!
//! A summary is built in parts of some buckets, each under the directory's lock, so that an Op waits for no more than one part.
//! An Op that changes the directory between two parts changes the summary only as far as it covers the place of the
//! changed entry; the parts to come find the rest in the pages. Places do not depend on the number of buckets, so growth in
//! between changes nothing.
//!
//! A builder that does not get the lock gives up, because readers wait for nobody, and adds up the pages without it. The
//! parts built so far stay for the next reader.

use eyrie_medium::{Addr, Settled};
use smallvec::SmallVec;

use super::Scm;
use super::create::Parent;
use super::summaries::{Coverage, Sum};
use crate::object::collection::{self, Collection, Summary};
use crate::object::header::{Cold, Header, Hot};
use crate::object::pointer::Extent;
use crate::object::xattr;
use crate::transaction::Transaction;
use crate::{Attributes, ObjectId, Result, Time};

/// Attempts to add up the pages of a directory that Ops keep changing, before the last result is taken.
const ATTEMPTS: usize = 100;
/// Buckets from which on a directory has a summary: adding up fewer pages takes less than a tenth of a microsecond.
const LARGE: u64 = 4;
/// Buckets that are added up under one lock; few where a scheduler looks for what may happen in between.
const PART: usize = if cfg!(feature = "shuttle") { 2 } else { 32 };

/// What an Op does to an entry of a directory.
#[derive(Clone, Copy)]
pub(super) struct EntryChange<'a> {
    pub(super) parent: &'a Parent,
    pub(super) name: &'a [u8],
    /// The object that it names before and after.
    pub(super) before: Option<ObjectId>,
    pub(super) after: Option<ObjectId>,
}

impl<'a> EntryChange<'a> {
    pub(super) fn added(parent: &'a Parent, name: &'a [u8], id: ObjectId) -> EntryChange<'a> {
        EntryChange { parent, name, before: None, after: Some(id) }
    }

    pub(super) fn removed(parent: &'a Parent, name: &'a [u8], id: ObjectId) -> EntryChange<'a> {
        EntryChange { parent, name, before: Some(id), after: None }
    }
}

/// The state of a directory at one moment.
struct View {
    hot: Hot,
    cold: Cold,
    summary: Summary,
}

impl Scm {
    pub(super) fn read_directory(&self, id: ObjectId) -> Result<Attributes> {
        let header = self.header(id)?;
        let View { hot, cold, summary } = self.view(id, header)?;
        let unlinked = hot.selector.unlinked();
        let changed = if hot.selector.follows() { hot.modified } else { cold.changed() };
        Ok(Attributes {
            kind: id.kind(),
            mode: cold.mode,
            uid: cold.uid,
            gid: cold.gid,
            links: if unlinked { 0 } else { 2_u32.wrapping_add(summary.subdirectories as u32) },
            size: summary.entries,
            allocated: xattr::extent(cold.xattrs())?.map_or(0, Extent::bytes),
            accessed: cold.accessed(),
            modified: summary.modified.unwrap_or(hot.modified),
            changed: changed.max(summary.changed.unwrap_or(changed)),
            device: 0,
            parent: ObjectId::from_raw(cold.parent_or_device).filter(|_| !unlinked),
        })
    }

    /// A directory's header and summary, without a lock. The caller holds a pin.
    fn view(&self, id: ObjectId, header: Header) -> Result<View> {
        let mut attempt = 0;
        loop {
            if let Some(view) = self.known_view(id, header)? {
                return Ok(view);
            }
            attempt += 1;
            if attempt < ATTEMPTS && self.build_summary(id, header)? {
                continue;
            }
            let ended = self.locks.ended(id);
            let (hot, cold) = self.volume.redo().stable(|| header.hot_and_cold(self.medium()))?;
            let root = || Ok(header.hot(self.medium())?.root);
            let summary = collection::summary(&self.volume, root, cold.time_epoch)?;
            let unchanged = self.locks.ended(id) == ended && header.selector(self.medium())? == hot.selector;
            if unchanged || attempt >= ATTEMPTS {
                return Ok(View { hot, cold, summary });
            }
        }
    }

    /// A directory's header and summary, if there is a complete one. The header is the same before and after the summary
    /// is read, so both are of the moment at which it is read.
    fn known_view(&self, id: ObjectId, header: Header) -> Result<Option<View>> {
        if !self.summaries.may_know(id) {
            return Ok(None);
        }
        let medium = self.medium();
        self.volume.redo().stable(|| {
            loop {
                let (hot, cold) = header.hot_and_cold(medium)?;
                let committed = |place: Addr, value| Ok(medium.load(place)? == value);
                let Some(Sum { epoch, mut summary, .. }) = self.summaries.read(id, committed)? else {
                    return Ok(None);
                };
                if header.selector(medium)? == hot.selector {
                    // No entry has changed yet since the time was set.
                    summary.modified = summary.modified.filter(|_| epoch == cold.time_epoch);
                    return Ok(Some(View { hot, cold, summary }));
                }
            }
        })
    }

    /// Completes the summary of a large directory; `false` if it is small, or an Op keeps its lock.
    fn build_summary(&self, id: ObjectId, header: Header) -> Result<bool> {
        let mut from = 0;
        loop {
            // Reads the pages before the lock is taken, so that nobody waits for their cache misses or for a disk.
            let root = header.hot(self.medium())?.root;
            let collection = Collection::new(&self.volume, root);
            if collection.buckets()? < LARGE {
                return Ok(false);
            }
            let _ = collection.part(from, PART, 0);
            let Some(_held) = self.locks.try_hold(id) else { return Ok(false) };
            match self.build_part(id, header, PART) {
                Ok(Coverage::Complete) => return Ok(true),
                // Another directory of the stripe took the slot: two builders would take it from each other for ever.
                Ok(Coverage::Before(next)) if next <= from => return Ok(false),
                Ok(Coverage::Before(next)) => from = next,
                Err(error) => {
                    self.summaries.forget(id);
                    return Err(error);
                }
            }
        }
    }

    /// Adds some buckets to the summary of a directory whose lock is held.
    fn build_part(&self, id: ObjectId, header: Header, buckets: usize) -> Result<Coverage> {
        let (hot, cold) = header.hot_and_cold(self.medium())?;
        let epoch = cold.time_epoch;
        let new = Sum { dir: id, epoch, summary: Summary::default() };
        let (mut sum, coverage) = self.summaries.known(id).unwrap_or((new, Coverage::Before(0)));
        let Coverage::Before(from) = coverage else { return Ok(Coverage::Complete) };
        sum.begin_epoch(epoch);
        let (part, next) = Collection::new(&self.volume, hot.root).part(from, buckets, epoch)?;
        sum.summary.add(&part);
        let coverage = next.map_or(Coverage::Complete, Coverage::Before);
        self.summaries.keep(&sum, coverage);
        Ok(coverage)
    }

    /// Commits a transaction that changes these entries of directories whose locks are held, at `time`.
    #[inline(always)]
    pub(super) fn commit_entries(
        &self,
        transaction: &mut Transaction<'_>,
        time: Time,
        changes: &[EntryChange<'_>],
    ) -> Result<Settled> {
        if changes.iter().any(|change| self.summaries.may_know(change.parent.id)) {
            self.commit_counted(transaction, time, changes)
        } else {
            transaction.commit_in_place()
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
        let mut prepared: SmallVec<[ObjectId; 2]> = SmallVec::new();
        for (index, &EntryChange { parent, .. }) in changes.iter().enumerate() {
            let dir = parent.id;
            let is_first = changes[..index].iter().all(|change| change.parent.id != dir);
            if !is_first {
                continue;
            }
            let Some((sum, coverage)) = self.summaries.known(dir) else {
                // An Op that panicked may have left a sum that is neither old nor new.
                self.summaries.forget(dir);
                continue;
            };
            let of_dir = changes[index..].iter().filter(|change| change.parent.id == dir);
            match (self.sum_after(sum, coverage, time, of_dir), transaction.witness()) {
                (Some(sum), Some(witness)) => {
                    self.summaries.prepare(&sum, witness);
                    prepared.push(dir);
                }
                _ => self.summaries.forget(dir),
            }
        }
        let result = transaction.commit_in_place();
        for dir in prepared {
            // After an error nobody knows how far the commit came; the pages do.
            if result.is_ok() { self.summaries.adopt(dir) } else { self.summaries.forget(dir) }
        }
        result
    }

    /// The sum after these changes of its directory; `None` if only the pages will tell.
    fn sum_after<'a>(
        &self,
        mut sum: Sum,
        coverage: Coverage,
        time: Time,
        changes: impl Iterator<Item = &'a EntryChange<'a>>,
    ) -> Option<Sum> {
        for &EntryChange { parent, name, before, after } in changes {
            let collection = Collection::new(&self.volume, parent.hot.root);
            if let Coverage::Before(cursor) = coverage
                && collection.place(name) >= cursor
            {
                continue;
            }
            sum.begin_epoch(parent.time_epoch);
            let Summary { entries, subdirectories, changed, modified } = sum.summary;
            // A page has only its latest change. An Op that another has overtaken may take the latest of all from its page.
            if changed.is_some_and(|latest| time < latest) {
                let around = collection.around(name, parent.time_epoch).ok()?;
                if around.changed.is_some_and(|_| around.changed >= changed)
                    || around.modified.is_some_and(|_| around.modified >= modified)
                {
                    return None;
                }
            }
            let count = |id: Option<ObjectId>| u64::from(id.is_some());
            let directories = |id: Option<ObjectId>| u64::from(id.is_some_and(ObjectId::is_directory));
            sum.summary = Summary {
                entries: entries.wrapping_add(count(after)).wrapping_sub(count(before)),
                subdirectories: subdirectories
                    .wrapping_add(directories(after))
                    .wrapping_sub(directories(before)),
                changed: changed.max(Some(time)),
                modified: modified.max(Some(time)),
            };
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests;
