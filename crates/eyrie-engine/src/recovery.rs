//! Recovery: what a crashed volume still uses, found from its root.
//!
//! Nothing needs repair: objects are whole because every Op commits by one publish or by a redo record, which was
//! replayed before. What no object reaches is free (BPFS finds its free blocks the same way, `bpfs.txt` section 3.3).
//!
//! Several threads walk a large volume. What they share is a list of parts of directories: some buckets each, whose
//! files the thread that took the part marks itself, and whose directories become further parts.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, LINE_SIZE, MediumKind};

use crate::object::collection::Collection;
use crate::object::header::Header;
use crate::object::pointer::{Extent, Pointer};
use crate::object::{mfile, xattr};
use crate::volume::{Marks, Overlap, Volume};
use crate::{Error, Kind, ObjectId, Result};

/// Most threads of a walk.
const MOST_THREADS: usize = 8;
/// Objects that are worth a thread.
const OBJECTS_PER_THREAD: usize = 4096;
/// Buckets of a part: some hundred entries.
const BUCKETS_PER_PART: u64 = 32;
/// How many objects ahead headers are asked for.
const AHEAD: usize = 8;

/// Marks everything that the root reaches.
///
/// # Errors
/// `Corrupt` at a contradiction; `Fault`.
pub fn mark(volume: &Volume, root: ObjectId) -> Result<Marks> {
    let marks = volume.marks();
    let threads = match volume.medium().kind() {
        // What survived is decided in the order of the reads, which a replay must repeat.
        MediumKind::Traced => 1,
        _ => match (marks.header_slots() / OBJECTS_PER_THREAD).min(MOST_THREADS) {
            0 | 1 => 1,
            // The host reads files to tell how many processors there are.
            wanted => thread::available_parallelism().map_or(1, usize::from).min(wanted),
        },
    };
    mark_with(volume, root, marks, threads)
}

/// [`mark`] by so many threads.
pub(crate) fn mark_with(volume: &Volume, root: ObjectId, marks: Marks, threads: usize) -> Result<Marks> {
    let walk = Walk { volume, marks, parts: Parts::default() };
    walk.object(root)?;
    thread::scope(|scope| {
        // A host that has no more threads to give is no reason not to open the volume.
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

/// A walk through a volume, by any number of threads.
struct Walk<'v> {
    volume: &'v Volume,
    marks: Marks,
    parts: Parts,
}

impl Walk<'_> {
    /// Walks until nothing is left, or one thread has failed.
    fn run(&self) -> Result<()> {
        while let Some(taken) = self.parts.take() {
            self.part(&taken.part).inspect_err(|_| self.parts.abandon())?;
        }
        Ok(())
    }

    fn part(&self, part: &Part) -> Result<()> {
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

    /// Marks an object, unless it is; the entries of a directory become parts.
    fn object(&self, id: ObjectId) -> Result<()> {
        let _pin = pin();
        let addr = Addr::from_raw(id.place());
        let overlap = |at: Addr| move |overlap: Overlap| Error::corrupt(at, overlap.what());
        if !self.marks.mark_header(addr).map_err(overlap(addr))? {
            return Ok(());
        }
        let marks = &self.marks;
        visit_object(self.volume, id, &mut |extent| marks.mark_extent(extent).map_err(overlap(extent.addr)))?;
        if id.is_directory() {
            let root = Header::of(id).hot(self.volume.medium())?.root;
            let count = Collection::new(self.volume, root).bucket_count()?;
            let starts = (0..count).step_by(BUCKETS_PER_PART as usize);
            self.parts.add(starts.map(|start| {
                let end = count.min(start + BUCKETS_PER_PART);
                Part { root, buckets: start..end }
            }));
        }
        Ok(())
    }
}

/// Some buckets of a directory.
struct Part {
    root: Pointer,
    buckets: Range<u64>,
}

impl Part {
    fn visited(&self) -> Range<u64> {
        let left = u64::from(broken(SafetyRule::RecoveryVisitsEveryBucket));
        self.buckets.start..self.buckets.end - left
    }
}

/// Parts that are yet to be walked.
#[derive(Default)]
struct Parts {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Part>,
    /// Parts that were taken and are not done.
    taken: usize,
    abandoned: bool,
}

/// A part that a thread has taken; done when it is dropped.
struct Taken<'p> {
    parts: &'p Parts,
    part: Part,
}

impl Parts {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is left half changed by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, parts: impl Iterator<Item = Part>) {
        self.state().waiting.extend(parts);
        self.changed.notify_all();
    }

    /// Takes a part; `None` when none are left and none can be added, or the walk was abandoned.
    fn take(&self) -> Option<Taken<'_>> {
        let mut state = self.state();
        while !state.abandoned {
            if let Some(part) = state.waiting.pop() {
                state.taken += 1;
                return Some(Taken { parts: self, part });
            }
            if state.taken == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Ends the walk of all threads.
    fn abandon(&self) {
        self.state().abandoned = true;
        self.changed.notify_all();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.parts.state();
        state.taken -= 1;
        state.abandoned |= thread::panicking();
        if state.taken == 0 || state.abandoned {
            self.parts.changed.notify_all();
        }
    }
}

/// Visits the storage of one object, whose header is verified first.
///
/// # Errors
/// `Corrupt`, `Fault`, and those of `visit`.
pub(crate) fn visit_object(
    volume: &Volume,
    id: ObjectId,
    visit: &mut dyn FnMut(Extent) -> Result<()>,
) -> Result<()> {
    let header = Header::of(id);
    header.identity(volume.medium())?;
    let (hot, cold) = header.hot_and_cold(volume.medium()).map_err(|error| match error {
        Error::Stale => Error::corrupt(header.addr(), "entry that names a dead object"),
        other => other,
    })?;
    if let Some(xattrs) = xattr::extent(cold.xattrs())?
        && !broken(SafetyRule::RecoveryVisitsAttributes)
    {
        visit(xattrs)?;
    }
    match id.kind() {
        Kind::Directory => Collection::new(volume, hot.root).visit_storage(visit),
        Kind::File if hot.root.height() > 1 && broken(SafetyRule::RecoveryVisitsEveryHeight) => Ok(()),
        Kind::File | Kind::Symlink => mfile::visit_storage(volume.medium(), hot.root, hot.size, visit),
        _ if hot.root.is_null() => Ok(()),
        _ => Err(Error::corrupt(header.addr(), "pipe, socket or device with storage")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_ends_the_walk_of_all() {
        let parts = Parts::default();
        parts.add([Part { root: Pointer::NULL, buckets: 0..1 }].into_iter());
        thread::scope(|scope| {
            let (taken, told) = std::sync::mpsc::channel();
            let parts = &parts;
            let broken = scope.spawn(move || {
                let _taken = parts.take();
                taken.send(()).expect("heard");
                panic!("on purpose");
            });
            told.recv().expect("told");
            assert!(parts.take().is_none(), "waits for the other, which is gone");
            assert!(broken.join().is_err());
        });
    }
}
