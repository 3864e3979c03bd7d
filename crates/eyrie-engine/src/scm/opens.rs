//! Counts of opens, and the list of orphans. An orphan is an object that has lost its last name, but that a
//! handle keeps open.
//!
//! Counts are striped by object id. An orphan is freed when no object of its stripe is open any more.
//!
//! An open and an unlink of the same object agree without a lock. The open first increments the count, and
//! then reads the unlinked bit of the header. The unlink first sets this bit, and then reads the count. Both
//! access the count by a sequentially consistent read-modify-write, which keeps the two steps of each side in
//! this order. Therefore the open sees the bit, or the unlink sees the open.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, lock, prefetch};
use eyrie_medium::{Addr, Settled};
use smallvec::SmallVec;

use super::Scm;
use super::locks::spread;
use crate::extent::Extent;
use crate::object::collection::Collection;
use crate::object::mfile::{self, FileTree};
use crate::object::xattr::XattrRoot;
use crate::transaction::Transaction;
use crate::{AttributeChange, Error, Kind, ObjectId, Result, Time};

/// Number of stripes of the counts. With so many stripes (256 KiB of counts), open objects rarely share one.
const STRIPES: usize = 1 << 16;

/// The table of open counts, and the list of orphans.
pub(super) struct Opens {
    counts: Box<[AtomicU32]>,
    orphans: Mutex<Vec<ObjectId>>,
    orphan_count: AtomicUsize,
}

impl Default for Opens {
    fn default() -> Opens {
        Opens {
            counts: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(),
            orphans: Mutex::new(Vec::new()),
            orphan_count: AtomicUsize::new(0),
        }
    }
}

impl Opens {
    fn count(&self, id: ObjectId) -> &AtomicU32 {
        &self.counts[spread(id, STRIPES)]
    }

    /// Prefetches the count that [`Opens::is_closed`] will soon read.
    #[inline]
    pub(super) fn prefetch(&self, id: ObjectId) {
        prefetch(self.count(id));
    }

    /// Counts an open. The caller then checks that the object is not unlinked, or is an orphan.
    pub(super) fn add(&self, id: ObjectId) {
        let count = self.count(id);
        prefetch(count);
        count.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a close. Returns true if this close may be the last one of an orphan.
    #[must_use]
    pub(super) fn remove(&self, id: ObjectId) -> bool {
        let before = self.count(id).fetch_sub(1, Ordering::SeqCst);
        before == 1 && self.orphan_count.load(Ordering::SeqCst) != 0
    }

    /// True if no object of this stripe is open, so no handle keeps the object open. The caller has set the
    /// unlinked bit of the object.
    pub(super) fn is_closed(&self, id: ObjectId) -> bool {
        // This is a read-modify-write instead of a load. The read-modify-write is a full fence between the
        // store of the unlinked bit and the read of the count.
        self.count(id).fetch_add(0, Ordering::SeqCst) == 0
    }

    /// Keeps an unlinked object until its last close.
    pub(super) fn add_orphan(&self, id: ObjectId) {
        let mut orphans = lock(&self.orphans);
        orphans.push(id);
        self.orphan_count.store(orphans.len(), Ordering::SeqCst);
    }

    /// True if a handle keeps this unlinked object alive. A further open of such an object is valid.
    pub(super) fn is_orphan(&self, id: ObjectId) -> bool {
        lock(&self.orphans).contains(&id)
    }

    /// Returns the unlinked objects that are still open.
    pub(super) fn orphans(&self) -> Vec<ObjectId> {
        lock(&self.orphans).clone()
    }

    /// Removes an orphan from the list if no handle keeps it open. Returns true if this call removed the
    /// orphan.
    pub(super) fn remove_if_closed(&self, id: ObjectId) -> bool {
        let mut orphans = lock(&self.orphans);
        let Some(index) = orphans.iter().position(|&orphan| orphan == id) else { return false };
        if !self.is_closed(id) {
            return false;
        }
        orphans.swap_remove(index);
        self.orphan_count.store(orphans.len(), Ordering::SeqCst);
        true
    }

    /// Removes from the list all orphans that no handle keeps open, and returns them.
    pub(super) fn remove_closed(&self) -> Vec<ObjectId> {
        let mut orphans = lock(&self.orphans);
        let (closed, open) = orphans.drain(..).partition(|&id| self.is_closed(id));
        *orphans = open;
        self.orphan_count.store(orphans.len(), Ordering::SeqCst);
        closed
    }

    /// Removes all orphans from the list, open or not.
    fn remove_all(&self) -> Vec<ObjectId> {
        self.orphan_count.store(0, Ordering::SeqCst);
        std::mem::take(&mut lock(&self.orphans))
    }
}

impl Scm {
    /// Counts an open, unless the object no longer exists.
    #[inline]
    pub(super) fn open_object(&self, id: ObjectId) -> Result<()> {
        self.opens.add(id);
        let _pin = pin();
        let alive = self.header(id).and_then(|header| header.selector(self.medium()));
        match alive {
            Ok(selector) if !selector.unlinked() || self.opens.is_orphan(id) => Ok(()),
            Ok(_) => {
                self.close_object(id);
                Err(Error::Stale)
            }
            Err(error) => {
                self.close_object(id);
                Err(error)
            }
        }
    }

    /// Ends one open. The last close of an orphan frees the orphan.
    pub(super) fn close_object(&self, id: ObjectId) {
        // A forked child has a copy of the counts, but the objects belong to its parent. The check of the
        // medium refuses a forked child.
        if self.opens.remove(id) && self.medium().check().is_ok() {
            self.volume.space().stop_on_panic(|| self.free_closed_orphans());
        }
    }

    /// Frees an object that has just lost its last name, either now or at its last close.
    ///
    /// The unlinked bit need not be durable. After a crash no entry leads to the object, so no open reads the
    /// bit.
    pub(super) fn free_unnamed(&self, id: ObjectId, time: Time, settled: &Settled) {
        let marked = self.header(id).and_then(|header| header.mark_unlinked(self.medium()));
        if marked.is_err() {
            return self.volume.space().mark_leaked();
        }
        if self.opens.is_closed(id) || broken(SafetyRule::OpenFileOutlivesItsNames) {
            self.free_object(id, settled);
        } else {
            // The change time becomes the time at which the object lost its name, for the handles that keep
            // it open. If the volume has no room for this change, the old time stays.
            let _ = self.set_attributes_held(id, &AttributeChange::default(), time);
            self.opens.add_orphan(id);
            // The last close may have come before the object was on the list.
            if self.opens.remove_if_closed(id) {
                self.free_object(id, settled);
            }
        }
    }

    /// Frees the orphans that no handle keeps open. The caller holds no lock.
    pub(super) fn free_closed_orphans(&self) {
        self.free_orphans(self.opens.remove_closed());
    }

    /// Frees the orphans that are still open: the engine is about to end, and their handles with it.
    pub(super) fn free_open_orphans(&self) {
        let orphans = self.opens.remove_all();
        self.free_orphans(if broken(SafetyRule::CloseFreesOpenOrphans) { Vec::new() } else { orphans });
    }

    fn free_orphans(&self, orphans: Vec<ObjectId>) {
        if orphans.is_empty() {
            return;
        }
        // The removal of the last name had settled before the object became an orphan. Therefore an empty
        // commit is enough to get the [`Settled`] that a free needs. The commit fails only if the medium has
        // failed. Each orphan has a gate of its own, because the journal of a disk has no room for any number
        // of them in one Op.
        if let Ok(settled) = Transaction::begin(&self.volume).commit() {
            for id in orphans {
                let Ok(_gate) = self.medium().enter() else {
                    // The medium accepts no more changes. The next recovery frees the orphans.
                    return self.volume.space().mark_leaked();
                };
                // An Op that found the object before its last close may still be writing to it.
                let _held = self.locks.hold(&[id]);
                self.free_object(id, &settled);
            }
        }
    }

    /// Retires the storage of an object that has no name, and that no handle needs any more. The caller holds
    /// the object's lock. Storage that cannot be found, because the object is corrupt or unreadable, is
    /// leaked until the next recovery.
    fn free_object(&self, id: ObjectId, settled: &Settled) {
        self.summaries.forget(id);
        match self.detach_storage(id) {
            Ok(storage) => {
                let header = Addr::from_raw(id.place());
                self.volume.space().retire_all(&storage, &[header], settled);
            }
            Err(_) => self.volume.space().mark_leaked(),
        }
    }

    /// Ends the life of an object, and returns its storage.
    fn detach_storage(&self, id: ObjectId) -> Result<SmallVec<[Extent; 16]>> {
        let header = self.header(id)?;
        let (hot, cold) = header.hot_and_cold(self.medium())?;
        let mut storage: SmallVec<[Extent; 16]> = SmallVec::new();
        let most = self.volume.space().most_extents();
        let mut add = |extent: Extent| {
            storage.push(extent);
            if storage.len() <= most {
                Ok(())
            } else {
                Err(Error::corrupt(extent.addr, "endless storage of an object"))
            }
        };
        match id.kind() {
            Kind::Directory => Collection::new(&self.volume, hot.root).visit_storage(&mut add),
            _ => mfile::visit_storage(self.medium(), FileTree::of(header, &hot), &mut add),
        }?;
        storage.extend(XattrRoot::of(header, &cold).extent()?);
        header.forget(self.medium())?;
        Ok(storage)
    }
}
