//! The table of all locks of an engine.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use eyrie_medium::sync::{Mutex, lock};

use super::lock::{HeldLock, LockKind, LockOwner, LockRequest, LockTarget, OwnerClass};
use super::object::ObjectLocks;
use super::wait::{LockWaiter, Signal};
use crate::{Error, ObjectId, Result};

/// Most locks of the process that owns the volume.
const MOST_OF_PROCESS: usize = 1 << 20;
/// Most locks of a session of a client.
const MOST_OF_SESSION: usize = 1 << 14;
/// Most waits of a session that the table remembers at a time.
const MOST_WAITS_OF_SESSION: u64 = 256;
/// Time for which the table remembers that a client waits. A client that still waits asks again earlier.
const NOTE: Duration = Duration::from_secs(1);
/// Most waiting owners that a search for a deadlock visits. Linux visits ten.
const MOST_VISITED: usize = 1000;

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
    /// Number of objects with locks. It spares a close the mutex while no object is locked.
    objects: AtomicUsize,
    locks: Mutex<Locks>,
}

impl fmt::Debug for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTable").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// The session and the number of a waiter.
type WaitKey = (u64, u64);

#[derive(Default)]
struct Locks {
    objects: HashMap<ObjectId, ObjectLocks>,
    /// Number of locks of each session that has some.
    held: HashMap<u64, usize>,
    waits: HashMap<WaitKey, WaitNote>,
}

/// A request that was refused, and whose caller waits.
struct WaitNote {
    id: ObjectId,
    request: LockRequest,
    /// Wakes the caller. A client has none, and asks again by itself.
    signal: Option<Arc<Signal>>,
    expires: Option<Instant>,
}

impl LockTable {
    /// True if no object is locked. An owner sees its own locks.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.objects.load(Ordering::Relaxed) == 0
    }

    /// Grants a request of this process, or refuses it. If there is a conflict, the table wakes `waiter` as
    /// soon as the request may succeed, until [`end_wait`](LockTable::end_wait).
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

    /// Grants a request of a client, or refuses it. A client that waits names a number of its choice, and
    /// asks again. Returns true if the owner has a lock of this sort on the object then: on the whole, or on
    /// a range.
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
            let expires = Some(Instant::now() + NOTE);
            let note = WaitNote { id: object.id, request: *request, signal: None, expires };
            ((request.owner.session, number % MOST_WAITS_OF_SESSION), note)
        });
        self.with(|locks| locks.attempt(object, request, note))
    }

    /// Returns the first range lock that conflicts with a request.
    pub fn find(&self, object: LockedObject, request: &LockRequest) -> Option<HeldLock> {
        let locks = lock(&self.locks);
        let locks = locks.objects.get(&object.id).filter(|it| it.generation == object.generation)?;
        locks.conflicts(request).next()
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
        self.with(|locks| locks.remove(id, |owner| owners.contains(&owner)));
    }

    /// Ends all locks and waits of a session.
    pub fn end_session(&self, session: u64) {
        self.with(|locks| {
            locks.waits.retain(|key, _| key.0 != session);
            if locks.held.contains_key(&session) {
                let ids: Vec<ObjectId> = locks.objects.keys().copied().collect();
                ids.into_iter().for_each(|id| locks.remove(id, |owner| owner.session == session));
            }
        });
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
    /// Grants a request or refuses it. Returns true if the owner has a lock of its sort then.
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
            if self.is_deadlock(object.id, request) {
                return Err(Error::Deadlock);
            }
            self.waits.insert(key, note);
            return Err(Error::LockConflict);
        }
        self.check_room(object.id, request)?;
        Ok(self.set(object, request))
    }

    /// Forgets the locks of a removed object whose id now names another one.
    fn forget_other_generation(&mut self, object: LockedObject) {
        if self.objects.get(&object.id).is_some_and(|held| held.generation != object.generation) {
            self.remove(object.id, |_| true);
        }
    }

    /// Returns true if the owner has a lock of this kind on the whole object. A lock of the other kind ends,
    /// even if the owner does not get the new one: see flock(2).
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

    /// Checks that the session may have the further locks of a request. One request adds at most two.
    fn check_room(&self, id: ObjectId, request: &LockRequest) -> Result<()> {
        let session = request.owner.session;
        let held = self.held.get(&session).copied().unwrap_or_default();
        let most = if session == 0 { MOST_OF_PROCESS } else { MOST_OF_SESSION };
        let adds = match request.kind {
            Some(_) => 2,
            None => self.objects.get(&id).is_some_and(|held| held.splits(request)).into(),
        };
        if adds > 0 && held + adds > most { Err(Error::TooManyLocks) } else { Ok(()) }
    }

    /// Sets or removes a lock, and wakes those who may get one now. Returns true if the owner has a lock of
    /// this sort then.
    fn set(&mut self, object: LockedObject, request: &LockRequest) -> bool {
        let id = object.id;
        let held = self.objects.entry(id).or_insert_with(|| ObjectLocks::new(object.generation));
        let (had, has) = held.set(request);
        if held.is_empty() {
            self.objects.remove(&id);
        }
        self.count(request.owner.session, had, has);
        if had > 0 && request.kind != Some(LockKind::Exclusive) {
            self.wake(id);
        }
        has > 0
    }

    /// Removes all locks of some owners on an object.
    fn remove(&mut self, id: ObjectId, is_gone: impl Fn(LockOwner) -> bool) {
        let Some(held) = self.objects.get_mut(&id) else { return };
        let removed = held.remove(is_gone);
        if held.is_empty() {
            self.objects.remove(&id);
        }
        if !removed.is_empty() {
            removed.into_iter().for_each(|(session, count)| self.count(session, count, 0));
            self.wake(id);
        }
    }

    /// Counts the locks that a session had and has on an object.
    fn count(&mut self, session: u64, had: usize, has: usize) {
        let count = self.held.entry(session).or_default();
        *count = (*count + has).saturating_sub(had);
        if *count == 0 {
            self.held.remove(&session);
        }
    }

    /// Wakes the waiters of an object.
    fn wake(&self, id: ObjectId) {
        let notes = self.waits.values().filter(|note| note.id == id);
        notes.filter_map(|note| note.signal.as_ref()).for_each(|signal| signal.raise());
    }

    /// True if the owner of a request would wait for itself. As in Linux, only processes get this error, and
    /// the chain of waits ends at a lock of an open file.
    fn is_deadlock(&self, id: ObjectId, request: &LockRequest) -> bool {
        if request.target == LockTarget::Object || request.owner.class != OwnerClass::Process {
            return false;
        }
        let now = Instant::now();
        let mut waits: HashMap<LockOwner, Vec<&WaitNote>> = HashMap::new();
        for note in self.waits.values().filter(|note| note.request.target != LockTarget::Object) {
            if note.expires.is_none_or(|expires| expires > now) {
                waits.entry(note.request.owner).or_default().push(note);
            }
        }
        let (mut seen, mut to_visit) = (HashSet::new(), self.holders(id, request));
        while let Some(owner) = to_visit.pop() {
            if owner == request.owner {
                return true;
            }
            let Some(notes) = waits.get(&owner) else { continue };
            if seen.insert(owner) && seen.len() <= MOST_VISITED {
                let holders = notes.iter().flat_map(|note| self.holders(note.id, &note.request));
                to_visit.extend(holders.filter(|holder| holder.class == OwnerClass::Process));
            }
        }
        false
    }

    /// Returns the owners of locks that conflict with a request.
    fn holders(&self, id: ObjectId, request: &LockRequest) -> Vec<LockOwner> {
        let held = self.objects.get(&id);
        held.map_or(Vec::new(), |held| held.conflicts(request).map(|lock| lock.owner).collect())
    }
}
