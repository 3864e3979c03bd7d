//! Shrinking of directories that have lost most of their entries.
//!
//! An Op that leaves few entries in a page of a directory looks at the directory again after its commit, when
//! it holds no lock any more. If most pages are nearly empty, the Op merges some buckets, as much as fits
//! into a fraction of a millisecond. Later removals merge more. This work is not a part of the Op, and its
//! errors are not errors of the Op: without it, the directory only keeps its pages.
//!
//! A merge may change the shard of entries, and it changes the number of buckets, on which splits rely.
//! Therefore it holds the locks of all shards.

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};

use super::Scm;
use super::counts::LARGE;
use super::locks::EntryLock;
use super::summaries::SumCoverage;
use crate::object::collection::{self, Collection};
use crate::object::header::HotChange;
use crate::{ObjectId, Op, Result};

/// Maximum number of steps after one Op. Each step merges at most 64 buckets. If entries are removed in the
/// order of listings, nearly all buckets are still there when the last entries leave. Then the last removals
/// must merge many empty buckets each.
const STEPS: usize = 8;
/// Room in the journal of a disk for all steps after one Op, in bytes.
const ROOM: u64 = 128 << 10;

impl Scm {
    /// Shrinks the directory from which `op` has removed entries, if most of its pages are nearly empty. The
    /// caller holds neither a lock nor the gate.
    #[cold]
    pub(super) fn shrink_after(&self, op: &Op<'_>) {
        match *op {
            Op::Unlink { dir, name, .. }
            | Op::Erase { dir, name, .. }
            | Op::RemoveDirectory { dir, name, .. }
            | Op::Rename { from_dir: dir, from_name: name, .. } => self.shrink(dir, name),
            Op::Batch { ops, .. } => ops.iter().for_each(|op| self.shrink_after(op)),
            _ => {}
        }
    }

    fn shrink(&self, dir: ObjectId, removed: &[u8]) {
        let may_shrink = || {
            let _pin = pin();
            let (_, hot) = self.directory(dir)?;
            collection::may_shrink(&self.volume, hot.root, removed)
        };
        // A result without locks may come from two moments, and even its errors mean nothing.
        if may_shrink().unwrap_or(false) {
            let space = self.volume.space();
            let shrink = || {
                let _pin = pin();
                space.stop_on_panic(|| self.shrink_locked(dir, removed))
            };
            // After an error, the directory is as it was before the step that failed.
            let _ = space.with_room(|| ROOM, || 0, shrink);
        }
    }

    fn shrink_locked(&self, dir: ObjectId, removed: &[u8]) -> Result<()> {
        let lock = EntryLock::Directory(dir);
        let _held = if broken(SafetyRule::ShrinkLocksEveryShard) {
            self.locks.hold_all(&[self.peek(dir, removed)?.lock()], &[])
        } else {
            self.locks.hold_all(&[lock], &[])
        };
        let header = self.header(dir)?;
        for _ in 0..STEPS {
            let parent = self.parent(dir, lock)?;
            let hot = parent.hot;
            self.forget_before_merges(dir, &Collection::new(&self.volume, hot.root))?;
            let publish = |transaction: &mut _, root| {
                header.change(transaction, &hot, &HotChange::root(&hot, root));
                Ok(())
            };
            if !collection::shrink(&self.volume, hot.root, removed, parent.times_version, publish)? {
                break;
            }
        }
        Ok(())
    }

    /// Drops the summary of a directory if merges would make it wrong. The caller holds the locks of all
    /// shards.
    ///
    /// A merge leaves the sum of each shard as it is, with two exceptions. With fewer than eight buckets,
    /// entries change their shard. If a builder has covered only a part of the buckets, the end of this part
    /// may be inside a merged bucket afterwards.
    fn forget_before_merges(&self, dir: ObjectId, collection: &Collection<'_>) -> Result<()> {
        let is_complete = matches!(self.summaries.known(dir), Some((_, SumCoverage::Complete)));
        let stays = is_complete && collection.buckets()? > LARGE;
        if !stays && !broken(SafetyRule::MergeDropsPartOfASummary) {
            self.summaries.forget(dir);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
