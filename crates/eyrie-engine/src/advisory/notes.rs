//! The notes of the callers that wait for locks.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::lock::{LockOwner, LockRequest, LockTarget};
use super::wait::Signal;
use crate::ObjectId;

/// The session and the number of a waiter.
pub type WaitKey = (u64, u64);

/// A request that was refused, and whose caller waits.
pub struct WaitNote {
    pub id: ObjectId,
    pub request: LockRequest,
    /// Wakes the caller. A client has no signal, and asks again by itself.
    pub signal: Option<Arc<Signal>>,
    /// Time from which the search for deadlocks ignores the note, because the client may have ended. `None`
    /// for a caller of this process.
    pub expires: Option<Instant>,
}

/// The notes of all waiting callers. An index by owners serves the search for deadlocks. Each request that
/// has to wait makes this search. A mount repeats the requests of all its waiting processes, so a search must
/// not look at every note. An index by objects serves each unlock in the same way.
#[derive(Default)]
pub struct WaitNotes {
    notes: HashMap<WaitKey, WaitNote>,
    of_owner: HashMap<LockOwner, HashSet<WaitKey>>,
    of_object: HashMap<ObjectId, HashSet<WaitKey>>,
}

/// Removes a key from the set of `place`, and then the set, if it is empty.
fn remove_key<K: Eq + std::hash::Hash>(sets: &mut HashMap<K, HashSet<WaitKey>>, place: K, key: &WaitKey) {
    if let Entry::Occupied(mut keys) = sets.entry(place) {
        keys.get_mut().remove(key);
        if keys.get().is_empty() {
            keys.remove();
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Number of notes that searches and unlocks of this thread have looked at.
    pub static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl WaitNotes {
    /// Adds a note. The note replaces an earlier one with this key.
    pub fn insert(&mut self, key: WaitKey, note: WaitNote) {
        self.remove(&key);
        self.of_owner.entry(note.request.owner).or_default().insert(key);
        self.of_object.entry(note.id).or_default().insert(key);
        self.notes.insert(key, note);
    }

    /// Removes a note, if there is one with this key.
    pub fn remove(&mut self, key: &WaitKey) {
        let Some(note) = self.notes.remove(key) else { return };
        remove_key(&mut self.of_owner, note.request.owner, key);
        remove_key(&mut self.of_object, note.id, key);
    }

    /// Removes all notes of a session.
    pub fn remove_session(&mut self, session: u64) {
        let ended: Vec<WaitKey> = self.notes.keys().filter(|key| key.0 == session).copied().collect();
        ended.iter().for_each(|key| self.remove(key));
    }

    /// Raises the signals of the callers that wait for locks on an object.
    pub fn wake(&self, id: ObjectId) {
        let keys = self.of_object.get(&id).into_iter().flatten();
        let notes = keys.filter_map(|key| self.notes.get(key));
        notes.for_each(|note| {
            #[cfg(test)]
            LOOKS.set(LOOKS.get() + 1);
            if let Some(signal) = &note.signal {
                signal.raise();
            }
        });
    }

    /// Returns the notes of the waits of an owner for locks on ranges, without the notes that have expired at
    /// `now`.
    pub fn of_owner(&self, owner: LockOwner, now: Instant) -> impl Iterator<Item = &WaitNote> {
        let keys = self.of_owner.get(&owner).into_iter().flatten();
        let notes = keys.filter_map(|key| self.notes.get(key));
        notes.filter(move |note| {
            #[cfg(test)]
            LOOKS.set(LOOKS.get() + 1);
            note.request.target != LockTarget::Object && note.expires.is_none_or(|expires| expires > now)
        })
    }

    /// True if no caller waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.of_owner.is_empty() && self.of_object.is_empty()
    }
}
