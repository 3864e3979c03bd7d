//! Recovery: finds the storage that a crashed volume uses, starting at its root.
//!
//! Objects need no repair: every Op commits by one publish or by a redo record, and the records are replayed
//! first. All storage that no object reaches is free. BPFS finds its free blocks in the same way. The walk
//! also counts the pointers to shared pages.
//!
//! Safe when power fails: a second recovery replays the same records to the same effect. Recovery makes no
//! other change of the medium, because the marks and the free space are in memory.
//!
//! Several threads walk a large volume. They share a list of parts, each of which is some buckets of a
//! directory. A thread takes a part, and marks the objects that the entries of the part name. The buckets of
//! a directory among these objects become further parts.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::unpoisoned;
use eyrie_medium::{Addr, LINE_SIZE, MediumKind};

use crate::object::collection::Collection;
use crate::object::header::Header;
use crate::object::pointer::Pointer;
use crate::object::visit::visit_object;
use crate::tables::layout::ROOT_ID;
use crate::transaction::redo;
use crate::volume::{Marks, Opened, Overlap, Volume};
use crate::{Error, ObjectId, Result};

/// Maximum number of threads of a walk. Cache misses dominate a walk, and each thread already keeps several
/// of them in flight. More threads therefore gain little.
const MAX_THREADS: usize = 8;
/// Minimum number of header slots for each thread of a walk. A smaller share would not repay the start of a
/// thread.
const SLOTS_PER_THREAD: usize = 4096;
/// Maximum number of buckets in a part. A full part holds several hundred entries. Therefore the walk of such
/// a part takes much longer than the access to the shared list.
const BUCKETS_PER_PART: u64 = 32;
/// Number of objects by which the prefetch of headers is ahead of the walk.
const AHEAD: usize = 8;

/// Recovers a volume that was just opened, and returns its root. A volume that was closed cleanly needs no
/// work.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn recover(volume: &mut Volume, opened: Opened) -> Result<ObjectId> {
    let root = volume.root().ok_or_else(|| Error::corrupt(ROOT_ID, "volume without a root"))?;
    if opened == Opened::Crashed {
        rebuild_free_space(volume, root)?;
    }
    Ok(root)
}

/// Rebuilds the free space after a crash: replays the redo slots, marks the storage that the root reaches,
/// and gives all other storage to the allocator.
fn rebuild_free_space(volume: &mut Volume, root: ObjectId) -> Result<()> {
    // The records may change any number of pages, so the replay asks for as much room as an Op can get.
    let gate = volume.medium().enter_with(|| u64::MAX)?;
    let replayed = redo::replay(volume);
    drop(gate);
    replayed?;
    let marks = mark_reachable(volume, root)?;
    volume.adopt(&marks);
    Ok(())
}

/// Marks all storage that the root reaches.
///
/// # Errors
/// `Corrupt` at a contradiction. `Fault` if a part of the volume cannot be read.
pub fn mark_reachable(volume: &Volume, root: ObjectId) -> Result<Marks> {
    let marks = volume.marks();
    let threads = threads(volume, &marks);
    mark_by_threads(volume, root, marks, threads)
}

/// Calls `visit` once for each object that the root reaches.
///
/// # Errors
/// Those of [`mark_reachable`] and of `visit`.
pub(crate) fn visit_objects(
    volume: &Volume,
    root: ObjectId,
    visit: &(dyn Fn(ObjectId) -> Result<()> + Sync),
) -> Result<()> {
    let marks = volume.marks();
    let threads = threads(volume, &marks);
    walk(volume, root, marks, threads, visit).map(drop)
}

/// Returns the number of threads for a walk.
fn threads(volume: &Volume, marks: &Marks) -> usize {
    match volume.medium().kind() {
        // On traced memory a crash test decides at each read which stores survived. A repeated run of the
        // test must make these reads in the same order, so only one thread walks.
        MediumKind::Traced => 1,
        _ => match (marks.header_slots() / SLOTS_PER_THREAD).min(MAX_THREADS) {
            0 | 1 => 1,
            // `available_parallelism` opens files of the host, so the open of a small volume does not call
            // it.
            wanted => thread::available_parallelism().map_or(1, usize::from).min(wanted),
        },
    }
}

/// Works like [`mark_reachable`], with this number of threads.
pub(crate) fn mark_by_threads(
    volume: &Volume,
    root: ObjectId,
    marks: Marks,
    threads: usize,
) -> Result<Marks> {
    walk(volume, root, marks, threads, &|_| Ok(()))
}

fn walk(
    volume: &Volume,
    root: ObjectId,
    marks: Marks,
    threads: usize,
    visit: &(dyn Fn(ObjectId) -> Result<()> + Sync),
) -> Result<Marks> {
    let walk = MarkingWalk { volume, marks, visit, queue: WalkQueue::default() };
    walk.object(root)?;
    thread::scope(|scope| {
        // If the host refuses a thread, the walk uses fewer threads.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, || walk.run()).ok();
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let mine = walk.run();
        let join = |other: thread::ScopedJoinHandle<'_, _>| {
            other.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        others.into_iter().fold(mine, |all, other| all.and(join(other)))
    })?;
    Ok(walk.marks)
}

/// A walk through a volume by any number of threads.
struct MarkingWalk<'v> {
    volume: &'v Volume,
    marks: Marks,
    /// Called for each object.
    visit: &'v (dyn Fn(ObjectId) -> Result<()> + Sync),
    queue: WalkQueue,
}

impl MarkingWalk<'_> {
    /// Walks parts until no part is left or a thread has failed.
    fn run(&self) -> Result<()> {
        while let Some(next) = self.queue.next() {
            self.part(&next.part).inspect_err(|_| self.queue.abandon())?;
        }
        Ok(())
    }

    fn part(&self, part: &DirectoryPart) -> Result<()> {
        let mut children = Vec::new();
        Collection::new(self.volume, part.root).visit_entries(part.visited(), &mut |_, child| {
            children.push(child);
            Ok(())
        })?;
        children.iter().take(AHEAD).for_each(|child| self.prefetch(*child));
        for (at, &child) in children.iter().enumerate() {
            if let Some(&later) = children.get(at + AHEAD) {
                self.prefetch(later);
            }
            self.object(child)?;
        }
        Ok(())
    }

    fn prefetch(&self, id: ObjectId) {
        (0..4)
            .for_each(|line| self.volume.medium().prefetch(Addr::from_raw(id.place()).add(line * LINE_SIZE)));
    }

    /// Marks an object, unless it is marked already. Adds the buckets of a directory to the queue, as parts.
    fn object(&self, id: ObjectId) -> Result<()> {
        let _pin = pin();
        let addr = Addr::from_raw(id.place());
        let overlap = |at: Addr| move |overlap: Overlap| Error::corrupt(at, overlap.reason());
        // A file with several names is visited only at the first of them.
        if !self.marks.mark_header(addr).map_err(overlap(addr))? {
            return Ok(());
        }
        let marks = &self.marks;
        visit_object(self.volume, id, &mut |extent, is_shared| {
            marks.mark(extent, is_shared).map_err(overlap(extent.addr))
        })?;
        (self.visit)(id)?;
        if id.is_directory() {
            let root = Header::of(id).hot(self.volume.medium())?.root;
            let count = Collection::new(self.volume, root).bucket_count()?;
            let starts = (0..count).step_by(BUCKETS_PER_PART as usize);
            self.queue.add(starts.map(|start| {
                let end = count.min(start + BUCKETS_PER_PART);
                DirectoryPart { root, buckets: start..end }
            }));
        }
        Ok(())
    }
}

/// Consecutive buckets of a directory.
struct DirectoryPart {
    root: Pointer,
    buckets: Range<u64>,
}

impl DirectoryPart {
    fn visited(&self) -> Range<u64> {
        let left = u64::from(broken(SafetyRule::RecoveryVisitsEveryBucket));
        self.buckets.start..self.buckets.end - left
    }
}

/// Parts that no thread has walked yet.
#[derive(Default)]
struct WalkQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: Vec<DirectoryPart>,
    /// Number of parts that threads are walking now.
    in_progress: usize,
    abandoned: bool,
}

/// A part that a thread walks. The drop of this value tells the queue that the walk of the part has ended.
struct PartInProgress<'p> {
    queue: &'p WalkQueue,
    part: DirectoryPart,
}

impl WalkQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // No code panics in the middle of a change of this state, so a poisoned lock is harmless.
        unpoisoned(self.state.lock())
    }

    fn add(&self, parts: impl Iterator<Item = DirectoryPart>) {
        self.state().waiting.extend(parts);
        self.changed.notify_all();
    }

    /// Takes a part from the queue. While the queue is empty but other threads may add parts, the call waits.
    /// Returns `None` at the end of the walk.
    fn next(&self) -> Option<PartInProgress<'_>> {
        let mut state = self.state();
        while !state.abandoned {
            // The newest part comes first. Such a depth-first walk needs a shorter list than a breadth-first
            // one.
            if let Some(part) = state.waiting.pop() {
                state.in_progress += 1;
                return Some(PartInProgress { queue: self, part });
            }
            if state.in_progress == 0 {
                return None;
            }
            state = unpoisoned(self.changed.wait(state));
        }
        None
    }

    /// Ends the walk of all threads.
    fn abandon(&self) {
        self.state().abandoned = true;
        self.changed.notify_all();
    }
}

impl Drop for PartInProgress<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.in_progress -= 1;
        state.abandoned |= thread::panicking();
        if state.in_progress == 0 || state.abandoned {
            self.queue.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_one_thread_ends_the_walk() {
        let parts = WalkQueue::default();
        parts.add([DirectoryPart { root: Pointer::NULL, buckets: 0..1 }].into_iter());
        thread::scope(|scope| {
            let (taken, told) = std::sync::mpsc::channel();
            let parts = &parts;
            let broken = scope.spawn(move || {
                let _taken = parts.next();
                taken.send(()).expect("heard");
                panic!("on purpose");
            });
            told.recv().expect("told");
            assert!(parts.next().is_none(), "no part is left after the panic");
            assert!(broken.join().is_err());
        });
    }
}
