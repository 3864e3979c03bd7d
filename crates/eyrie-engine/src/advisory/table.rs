//! The table of all locks of an engine.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, lock};
use smallvec::SmallVec;

use super::lock::{HeldLock, LockKind, LockOwner, LockRequest, LockTarget, OwnerClass};
use super::notes::{WaitKey, WaitNote, WaitNotes};
use super::object::ObjectLocks;
use super::wait::LockWaiter;
use crate::{Error, ObjectId, Result};

/// Maximum number of locks of the process that owns the volume. It bounds the memory of the table.
const PROCESS_LOCKS_MAX: usize = 1 << 20;
/// Maximum number of locks of a session of a client. It is smaller than [`PROCESS_LOCKS_MAX`], because the
/// locks of all clients are in the memory of the process that owns the volume.
const SESSION_LOCKS_MAX: usize = 1 << 14;
/// Maximum number of waits of a session that the table remembers at a time. It bounds the memory that a
/// client can take. The note of a further wait replaces an older note.
const MOST_WAITS_OF_SESSION: u64 = 256;
/// Time for which the table remembers that a client waits. A waiting client repeats its request before this
/// time is over.
const NOTE_LIFETIME: Duration = Duration::from_secs(1);
/// Maximum number of waiting owners that a search for a deadlock visits. Linux visits ten.
const MOST_VISITED: usize = 64;

/// An object, and the generation that distinguishes it from other objects of its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockedObject {
    /// The object.
    pub id: ObjectId,
    /// Its generation.
    pub generation: u64,
}

/// All advisory locks of an engine.
#[derive(Default)]
pub struct LockTable {
    /// Number of objects with locks. While the number is 0, a close does not take the mutex.
    objects: AtomicUsize,
    locks: Mutex<Locks>,
}

impl fmt::Debug for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTable").field("objects", &self.objects).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Locks {
    objects: HashMap<ObjectId, ObjectLocks>,
    /// Number of locks of each session that has some.
    held: HashMap<u64, usize>,
    waits: WaitNotes,
}

impl LockTable {
    /// True if no object is locked. The result takes account of each lock that the calling thread has set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.objects.load(Ordering::Relaxed) == 0
    }

    /// Grants a request of this process, or refuses it. After a conflict, the table wakes `waiter` whenever
    /// the request may succeed, until [`end_wait`](LockTable::end_wait).
    ///
    /// # Errors
    /// `LockConflict`, `Deadlock`, `TooManyLocks`.
    pub fn try_lock(
        &self,
        object: LockedObject,
        request: &LockRequest,
        waiter: Option<&LockWaiter>,
    ) -> Result<()> {
        let note = waiter.map(|waiter| {
            let signal = Some(Arc::clone(waiter.signal()));
            ((0, waiter.number()), WaitNote { id: object.id, request: *request, signal, expires: None })
        });
        self.with(|locks| locks.attempt(object, request, note)).map(drop)
    }

    /// Grants a request of a client, or refuses it. `waiter` is a number that a waiting client has chosen.
    /// The client asks again by itself. After a success, returns true if the owner has a lock on the target
    /// of the request: on the object as a whole, or on any of its ranges.
    ///
    /// # Errors
    /// As [`try_lock`](LockTable::try_lock).
    pub fn try_lock_of_client(
        &self,
        object: LockedObject,
        request: &LockRequest,
        waiter: Option<u64>,
    ) -> Result<bool> {
        let note = waiter.map(|number| {
            let expires = Some(Instant::now() + NOTE_LIFETIME);
            let note = WaitNote { id: object.id, request: *request, signal: None, expires };
            ((request.owner.session, number % MOST_WAITS_OF_SESSION), note)
        });
        self.with(|locks| locks.attempt(object, request, note))
    }

    /// Returns the first range lock that conflicts with a request.
    pub fn find(&self, object: LockedObject, request: &LockRequest) -> Option<HeldLock> {
        let locks = lock(&self.locks);
        let locks = locks.objects.get(&object.id).filter(|it| it.generation == object.generation)?;
        locks.first_conflict(request)
    }

    /// Forgets a waiter of this process.
    pub fn end_wait(&self, waiter: &LockWaiter) {
        lock(&self.locks).waits.remove(&(0, waiter.number()));
    }

    /// Forgets a waiter of a client.
    pub fn end_wait_of_client(&self, session: u64, number: u64) {
        lock(&self.locks).waits.remove(&(session, number % MOST_WAITS_OF_SESSION));
    }

    /// Ends all locks of these owners on an object.
    pub fn end(&self, id: ObjectId, owners: &[LockOwner]) {
        self.with(|locks| locks.remove(id, owners));
    }

    /// Ends all locks and waits of a session.
    pub fn end_session(&self, session: u64) {
        self.with(|locks| {
            locks.waits.remove_session(session);
            if locks.held.contains_key(&session) && !broken(SafetyRule::EndedSessionHasNoLocks) {
                let of_session = |(&id, held): (&ObjectId, &ObjectLocks)| {
                    let owners = held.owners().filter(|owner| owner.session == session);
                    (id, owners.collect::<Vec<_>>())
                };
                let ended: Vec<_> = locks.objects.iter().map(of_session).collect();
                ended.iter().for_each(|(id, owners)| locks.remove(*id, owners));
            }
        });
    }

    /// True if no caller waits for a lock.
    #[cfg(test)]
    pub(super) fn has_no_waits(&self) -> bool {
        lock(&self.locks).waits.is_empty()
    }

    /// Changes the locks under the mutex.
    fn with<T>(&self, change: impl FnOnce(&mut Locks) -> T) -> T {
        let mut locks = lock(&self.locks);
        let result = change(&mut locks);
        self.objects.store(locks.objects.len(), Ordering::Relaxed);
        result
    }
}

impl Locks {
    /// Grants a request or refuses it. Returns the result of
    /// [`try_lock_of_client`](LockTable::try_lock_of_client).
    fn attempt(
        &mut self,
        object: LockedObject,
        request: &LockRequest,
        note: Option<(WaitKey, WaitNote)>,
    ) -> Result<bool> {
        if let Some((key, _)) = &note {
            self.waits.remove(key);
        }
        self.forget_other_generation(object);
        if let (LockTarget::Object, Some(kind)) = (request.target, request.kind)
            && self.keeps_whole(object.id, request.owner, kind)
        {
            return Ok(true);
        }
        let refused =
            self.objects.get(&object.id).is_some_and(|held| held.conflicts(request).next().is_some());
        if refused {
            let Some((key, note)) = note else { return Err(Error::LockConflict) };
            if !broken(SafetyRule::DeadlockIsRefused) && self.is_deadlock(object.id, request) {
                return Err(Error::Deadlock);
            }
            self.waits.insert(key, note);
            return Err(Error::LockConflict);
        }
        self.check_room(object.id, request)?;
        Ok(self.set(object, request))
    }

    /// Forgets the locks of a removed object whose id now names another object.
    fn forget_other_generation(&mut self, object: LockedObject) {
        let held = self.objects.get(&object.id).filter(|held| held.generation != object.generation);
        if let Some(owners) = held.map(|held| held.owners().collect::<Vec<_>>()) {
            self.remove(object.id, &owners);
        }
    }

    /// Returns true if the owner has a lock of this kind on the whole object. Otherwise ends the owner's lock
    /// of the other kind, even if the owner does not get the new lock: see flock(2).
    fn keeps_whole(&mut self, id: ObjectId, owner: LockOwner, kind: LockKind) -> bool {
        match self.objects.get(&id).and_then(|held| held.whole_of(owner)) {
            Some(held) if held == kind => return true,
            Some(_) => {
                let generation = self.objects[&id].generation;
                let unlock = LockRequest { owner, target: LockTarget::Object, kind: None };
                self.set(LockedObject { id, generation }, &unlock);
            }
            None => {}
        }
        false
    }

    /// Checks that the session may have the further locks of a request. One request adds at most two: a lock
    /// in the middle of a lock of the other kind leaves three locks in place of one.
    fn check_room(&self, id: ObjectId, request: &LockRequest) -> Result<()> {
        let session = request.owner.session;
        let held = self.held.get(&session).copied().unwrap_or_default();
        let most = if session == 0 { PROCESS_LOCKS_MAX } else { SESSION_LOCKS_MAX };
        let adds = match request.kind {
            Some(_) => 2,
            None => self.objects.get(&id).is_some_and(|held| held.splits(request)).into(),
        };
        if adds > 0 && held + adds > most { Err(Error::TooManyLocks) } else { Ok(()) }
    }

    /// Sets or removes a lock. Wakes the waiters of the object if a lock may have ended or become shared.
    /// Returns true if the owner then has a lock on the object as a whole, or on any of its ranges.
    fn set(&mut self, object: LockedObject, request: &LockRequest) -> bool {
        let id = object.id;
        let held = self.objects.entry(id).or_insert_with(|| ObjectLocks::new(object.generation));
        let (had, has) = held.set(request);
        if held.is_empty() {
            self.objects.remove(&id);
        }
        self.count(request.owner.session, had, has);
        if had > 0 && request.kind != Some(LockKind::Exclusive) {
            self.waits.wake(id);
        }
        has > 0
    }

    /// Removes all locks of some owners on an object, and wakes its waiters.
    fn remove(&mut self, id: ObjectId, owners: &[LockOwner]) {
        let Some(held) = self.objects.get_mut(&id) else { return };
        let removed: SmallVec<[(u64, usize); 2]> =
            owners.iter().map(|&owner| (owner.session, held.remove(owner))).collect();
        if held.is_empty() {
            self.objects.remove(&id);
        }
        removed.iter().for_each(|&(session, count)| self.count(session, count, 0));
        if removed.iter().any(|&(_, count)| count > 0) {
            self.waits.wake(id);
        }
    }

    /// Updates the number of locks of a session, which had `had` locks on an object and now has `has` locks
    /// on it.
    fn count(&mut self, session: u64, had: usize, has: usize) {
        let count = self.held.entry(session).or_default();
        *count = (*count + has).saturating_sub(had);
        if *count == 0 {
            self.held.remove(&session);
        }
    }

    /// True if the owner of a request would wait for itself. As in Linux, only processes get this error. The
    /// search follows the request to the owners of the conflicting locks, and from each of these owners to
    /// the locks for which it waits. The search goes on from an open file only if the request itself waits
    /// for a lock of this open file. At every later wait, a lock of an open file ends the chain.
    fn is_deadlock(&self, id: ObjectId, request: &LockRequest) -> bool {
        if request.target == LockTarget::Object || request.owner.class != OwnerClass::Process {
            return false;
        }
        let now = Instant::now();
        let (mut seen, mut to_visit) = (HashSet::new(), vec![(id, *request)]);
        while let Some((id, waiting)) = to_visit.pop() {
            let holders = self.objects.get(&id).into_iter().flat_map(|held| held.conflicts(&waiting));
            for holder in holders.map(|held| held.owner) {
                if holder == request.owner {
                    return true;
                }
                if waiting.owner != request.owner && holder.class != OwnerClass::Process {
                    continue;
                }
                // Each waiting owner is visited once, so a client cannot make the search long.
                let mut notes = self.waits.of_owner(holder, now).peekable();
                if notes.peek().is_some() && seen.len() < MOST_VISITED && seen.insert(holder) {
                    to_visit.extend(notes.map(|note| (note.id, note.request)));
                }
            }
        }
        false
    }
}
