//! Counts of opens, and the list of orphans. An orphan is an object without a name that a handle keeps open:
//! it has lost its last name, or it was made without one.
//!
//! Counts of opens are striped by object id. An orphan is freed when no object of its stripe is open any
//! more. A front-end that keeps up to millions of objects alive would fill all stripes, and no orphan would
//! be freed. Such a front-end [*holds*](crate::Engine::hold) objects: holds have an exact count for each
//! object.
//!
//! An open and an unlink of the same object agree without a lock. The open first increments the count, and
//! then reads the unlinked bit of the header. The unlink first sets this bit, and then reads the count. Both
//! the open and the unlink access the count by a sequentially consistent read-modify-write, which keeps the
//! two steps of each side in this order. Therefore the open sees the bit, or the unlink sees the open. A hold
//! and an unlink agree in the same way: the hold first enters the table of holds, and then reads the bit. The
//! unlink looks at the table after it has set the bit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use eyrie_medium::epoch::pin;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, lock, prefetch, unpoisoned};
use eyrie_medium::{Addr, Settled};
use smallvec::SmallVec;

use super::Scm;
use crate::board::Board;
use crate::claims::{Claims, STRIPES, stripe_of};
use crate::extent::Extent;
use crate::holds::HoldTable;
use crate::object::collection::Collection;
use crate::object::mfile::{self, FileTree};
use crate::object::xattr::XattrRoot;
use crate::transaction::Transaction;
use crate::{AttributeChange, Error, Kind, ObjectId, Result, Time};

/// The tables of open counts and holds, and the orphans.
pub(super) struct Opens {
    counts: Box<[AtomicU32]>,
    holds: HoldTable,
    /// The orphans of each stripe that has some.
    orphans: Mutex<HashMap<usize, SmallVec<[ObjectId; 2]>>>,
    /// The opens of other processes.
    claims: RwLock<Vec<Arc<Claims>>>,
    /// Length of `claims`. While it is 0, [`Opens::is_closed`] does not lock `claims`. This is safe because
    /// the claims of another process are added before its first open. If an unlink reads 0 here, each open of
    /// that process comes later, and sees the unlinked bit.
    claims_count: AtomicUsize,
    /// Orphans that a thread has taken from the list and is about to free.
    freeing: Mutex<Vec<ObjectId>>,
}

impl Default for Opens {
    fn default() -> Opens {
        Opens {
            counts: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(),
            holds: HoldTable::default(),
            orphans: Mutex::default(),
            claims: RwLock::default(),
            claims_count: AtomicUsize::new(0),
            freeing: Mutex::default(),
        }
    }
}

impl Opens {
    fn count(&self, id: ObjectId) -> &AtomicU32 {
        &self.counts[stripe_of(id)]
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
    pub(super) fn remove(&self, id: ObjectId, board: &Board) -> bool {
        let before = self.count(id).fetch_sub(1, Ordering::SeqCst);
        before == 1 && board.has_orphans(id)
    }

    /// Removes `count` holds. Returns true if the last hold of an orphan may be gone.
    #[must_use]
    pub(super) fn remove_holds(&self, id: ObjectId, count: u64, board: &Board) -> bool {
        let ended = self.holds.remove(id, count);
        ended != 0 && !self.holds.contains(id) && board.has_orphans(id)
    }

    /// True if no process has an object of the stripe of `id` open, and the object is not held. Then no
    /// front-end needs the object. The caller has set the unlinked bit of the object.
    pub(super) fn is_closed(&self, id: ObjectId) -> bool {
        // This is a read-modify-write instead of a load, because a read-modify-write is a full fence on
        // x86-64. The fence is between the store of the unlinked bit and the reads of the count and of the
        // holds.
        self.count(id).fetch_add(0, Ordering::SeqCst) == 0
            && !self.holds.contains(id)
            && (self.claims_count.load(Ordering::SeqCst) == 0 || !self.is_claimed(id))
    }

    /// True if another process has an object of the stripe of `id` open.
    #[cold]
    fn is_claimed(&self, id: ObjectId) -> bool {
        unpoisoned(self.claims.read()).iter().any(|claims| claims.count(id).load(Ordering::SeqCst) != 0)
    }

    /// Adds the opens of another process.
    fn add_claims(&self, claims: &Arc<Claims>) {
        let mut all = unpoisoned(self.claims.write());
        all.push(Arc::clone(claims));
        self.claims_count.store(all.len(), Ordering::SeqCst);
    }

    /// Removes the opens of another process.
    fn remove_claims(&self, claims: &Arc<Claims>) {
        let mut all = unpoisoned(self.claims.write());
        all.retain(|other| !Arc::ptr_eq(other, claims));
        self.claims_count.store(all.len(), Ordering::SeqCst);
    }

    /// Keeps an unlinked object until its last close.
    pub(super) fn add_orphan(&self, id: ObjectId, board: &Board) {
        let mut orphans = lock(&self.orphans);
        orphans.entry(stripe_of(id)).or_default().push(id);
        board.set_has_orphans(stripe_of(id), true);
    }

    /// Removes from the list an object that has got its first name.
    pub(super) fn remove_orphan(&self, id: ObjectId, board: &Board) {
        let mut orphans = lock(&self.orphans);
        let Entry::Occupied(mut stripe) = orphans.entry(stripe_of(id)) else { return };
        stripe.get_mut().retain(|orphan| *orphan != id);
        if stripe.get().is_empty() {
            stripe.remove();
            board.set_has_orphans(stripe_of(id), false);
        }
    }

    /// True if a handle keeps this unlinked object alive. A further open of such an object is valid.
    pub(super) fn is_orphan(&self, id: ObjectId) -> bool {
        lock(&self.orphans).get(&stripe_of(id)).is_some_and(|orphans| orphans.contains(&id))
    }

    /// Returns the unlinked objects that are still open.
    pub(super) fn orphans(&self) -> Vec<ObjectId> {
        lock(&self.orphans).values().flatten().copied().collect()
    }

    /// Removes an orphan from the list if nothing keeps it open. Returns true if this call removed the
    /// orphan.
    pub(super) fn remove_if_closed(&self, id: ObjectId, board: &Board) -> bool {
        !self.remove_closed(id, board, |orphan| orphan == id).is_empty()
    }

    /// Removes from the list the orphans of the stripe of `id` that nothing keeps open, and returns them.
    pub(super) fn remove_closed_of_stripe(&self, id: ObjectId, board: &Board) -> SmallVec<[ObjectId; 2]> {
        self.remove_closed(id, board, |_| true)
    }

    /// Removes from the list those orphans of the stripe of `id` that are `wanted`, and that nothing keeps
    /// open. Returns them.
    fn remove_closed(
        &self,
        id: ObjectId,
        board: &Board,
        wanted: impl Fn(ObjectId) -> bool,
    ) -> SmallVec<[ObjectId; 2]> {
        let mut orphans = lock(&self.orphans);
        let Entry::Occupied(mut stripe) = orphans.entry(stripe_of(id)) else { return SmallVec::new() };
        let (closed, open): (SmallVec<_>, SmallVec<_>) =
            std::mem::take(stripe.get_mut()).into_iter().partition(|&id| wanted(id) && self.is_closed(id));
        if open.is_empty() {
            stripe.remove();
            board.set_has_orphans(stripe_of(id), false);
        } else {
            *stripe.get_mut() = open;
        }
        lock(&self.freeing).extend_from_slice(&closed);
        closed
    }

    /// Forgets orphans that were taken from the list and freed.
    fn end_free(&self, freed: &[ObjectId]) {
        if !freed.is_empty() {
            lock(&self.freeing).retain(|id| !freed.contains(id));
        }
    }

    /// Returns the orphans that threads have taken from the list. They may be freed already.
    pub(super) fn freeing(&self) -> Vec<ObjectId> {
        lock(&self.freeing).clone()
    }

    /// Removes all orphans from the list, open or not.
    fn remove_all(&self, board: &Board) -> Vec<ObjectId> {
        let mut orphans = lock(&self.orphans);
        orphans.keys().for_each(|&stripe| board.set_has_orphans(stripe, false));
        std::mem::take(&mut *orphans).into_values().flatten().collect()
    }
}

impl Scm {
    /// Counts an open, unless the object no longer exists.
    #[inline]
    pub(super) fn open_object(&self, id: ObjectId) -> Result<()> {
        self.opens.add(id);
        self.check_alive(id).inspect_err(|_| self.close_object(id))
    }

    /// Counts a hold, unless the object no longer exists.
    pub(super) fn hold_object(&self, id: ObjectId) -> Result<()> {
        self.opens.holds.add(id);
        self.check_alive(id).inspect_err(|_| self.release_object(id, 1))
    }

    /// Checks that an object has a name, or that a handle or a hold keeps it. The caller has counted its own
    /// open or hold.
    #[inline]
    fn check_alive(&self, id: ObjectId) -> Result<()> {
        let _pin = pin();
        let selector = self.header(id).and_then(|header| header.selector(self.medium()))?;
        if selector.unlinked() { self.check_orphan(id) } else { Ok(()) }
    }

    /// Checks that a handle or a hold keeps an object alive, after the object was seen with the unlinked bit.
    #[cold]
    fn check_orphan(&self, id: ObjectId) -> Result<()> {
        // The unlinked bit is read again, because the object may have got its first name meanwhile.
        let is_named = || Ok::<bool, Error>(!self.header(id)?.selector(self.medium())?.unlinked());
        if self.opens.is_orphan(id) || is_named()? { Ok(()) } else { Err(Error::Stale) }
    }

    /// Ends one open. The last close in a stripe frees those orphans of the stripe that nothing keeps open.
    pub(super) fn close_object(&self, id: ObjectId) {
        // A forked child has a copy of the counts, but the objects belong to its parent. The check of the
        // medium refuses a forked child.
        if self.opens.remove(id, self.volume.board()) && self.medium().check().is_ok() {
            self.volume.space().stop_on_panic(|| self.free_closed_of_stripe(id));
        }
    }

    fn free_closed_of_stripe(&self, id: ObjectId) {
        // The pin keeps the headers of the orphans from a second use until `free_orphans` has looked at them.
        let _pin = pin();
        let closed = self.opens.remove_closed_of_stripe(id, self.volume.board());
        self.free_orphans(&closed);
        self.opens.end_free(&closed);
    }

    /// Begins to count the opens of another process, which reads the volume.
    pub fn add_claims(&self, claims: &Arc<Claims>) {
        self.opens.add_claims(claims);
    }

    /// Ends the opens of another process, which no longer reads the volume. Frees the orphans that only the
    /// other process kept open.
    pub fn remove_claims(&self, claims: &Arc<Claims>) {
        self.opens.remove_claims(claims);
        for id in self.opens.orphans() {
            self.close_claimed(id);
        }
    }

    /// Frees the orphans of the stripe of `id` that nothing keeps open, after another process has ended an
    /// open.
    pub fn close_claimed(&self, id: ObjectId) {
        if self.volume.board().has_orphans(id) && self.medium().check().is_ok() {
            self.volume.space().stop_on_panic(|| self.free_closed_of_stripe(id));
        }
    }

    /// Clears a header that is reserved or free. Until then the header may hold an object that no entry
    /// names, from an Op that failed or from an earlier use. The caller knows that no live object has the id.
    pub fn reset_reserved(&self, id: ObjectId) {
        let reset = || {
            let _gate = self.medium().enter()?;
            self.header(id)?.forget(self.medium())
        };
        let reset = reset();
        if reset.is_err() {
            self.volume.space().mark_leaked();
        }
    }

    /// True if an open or a hold keeps this unlinked object alive.
    pub fn is_orphan(&self, id: ObjectId) -> bool {
        self.opens.is_orphan(id)
    }

    /// Ends `count` holds. The end of the last hold of an orphan that is not open frees the orphan.
    pub(super) fn release_object(&self, id: ObjectId, count: u64) {
        // A forked child frees nothing, as in `close_object`.
        if self.opens.remove_holds(id, count, self.volume.board()) && self.medium().check().is_ok() {
            self.volume.space().stop_on_panic(|| {
                let _pin = pin();
                if self.opens.remove_if_closed(id, self.volume.board()) {
                    self.free_orphans(&[id]);
                    self.opens.end_free(&[id]);
                }
            });
        }
    }

    /// Frees an object that has just lost its last name. If an open or a hold still keeps the object alive, a
    /// later close or release frees it.
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
            self.opens.add_orphan(id, self.volume.board());
            // The last close may have come before the object was on the list.
            if self.opens.remove_if_closed(id, self.volume.board()) {
                self.free_object(id, settled);
                self.opens.end_free(&[id]);
            }
        }
    }

    /// Frees the orphans that are still open: the engine is about to end, and their handles with it.
    pub(super) fn free_open_orphans(&self) {
        let orphans = self.opens.remove_all(self.volume.board());
        self.free_orphans(if broken(SafetyRule::CloseFreesOpenOrphans) { &[] } else { &orphans });
    }

    /// Frees orphans that are no longer on the list. The caller holds no lock.
    fn free_orphans(&self, orphans: &[ObjectId]) {
        if orphans.is_empty() {
            return;
        }
        // The removal of the last name had settled before the object became an orphan. Therefore an empty
        // commit is enough to get the [`Settled`] that a free needs. The commit fails only if the medium has
        // failed, or if a panic has stopped all commits. The loop enters the gate once for each orphan. In
        // one passage of the gate, a large number of orphans could need more room than the journal of a disk
        // has.
        if let Ok(settled) = Transaction::begin(&self.volume).commit() {
            for &id in orphans {
                let Ok(_gate) = self.medium().enter() else {
                    // The medium accepts no more changes. The next recovery frees the orphans.
                    return self.volume.space().mark_leaked();
                };
                // An Op that found the object before its last close may still be writing to it.
                let _held = self.locks.hold(&[id]);
                if !self.must_not_free(id) {
                    self.free_object(id, &settled);
                }
            }
        }
    }

    /// True if the caller must not free an object that it took from the list of orphans, because a `Link` has
    /// given the object a name meanwhile. An `Unlink` may have removed that name again. Then the caller must
    /// not free the object either. The `Unlink` has freed the object, so its header is stale, or it has put
    /// the object on the list again. The caller holds the object's lock.
    pub(super) fn must_not_free(&self, id: ObjectId) -> bool {
        match self.header(id).and_then(|header| header.selector(self.medium())) {
            Ok(selector) => !selector.unlinked() || self.opens.is_orphan(id),
            Err(error) => matches!(error, Error::Stale),
        }
    }

    /// Retires the storage of an object that has no name, and that no handle needs any more. The caller holds
    /// the object's lock. Storage that cannot be found, because the object is corrupt or unreadable, is
    /// leaked until the next recovery.
    fn free_object(&self, id: ObjectId, settled: &Settled) {
        if id.is_directory() {
            self.summaries.forget(id);
        }
        if self.has_quotas() {
            self.give_back(id);
        }
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
        let mut most = self.volume.space().most_extents();
        let mut add = |extent: Extent, is_shared: bool| {
            storage.push(extent);
            // An object may have any number of shared extents.
            most += usize::from(is_shared);
            if storage.len() <= most {
                Ok(())
            } else {
                Err(Error::corrupt(extent.addr, "endless storage of an object"))
            }
        };
        match id.kind() {
            Kind::Directory => {
                Collection::new(&self.volume, hot.root).visit_storage(&mut |extent| add(extent, false))
            }
            _ => mfile::visit_storage(self.medium(), FileTree::of(header, &hot), &mut add),
        }?;
        if let Some(extent) = XattrRoot::of(header, &cold).extent()? {
            storage.push(extent);
        }
        header.forget(self.medium())?;
        Ok(storage)
    }
}
