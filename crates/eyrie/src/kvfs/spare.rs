//! Spare ids: reserved for values that turned out to have one.
//!
//! A put of a key that exists gives its id back; the next put takes it, so overwriting reserves nothing. Threads use
//! slots of their own as far as there are slots.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::{Engine, Kind, ObjectId, Result};
use eyrie_medium::epoch;

const SLOTS: usize = 8;
/// No id has kind 0.
const NONE: u64 = 0;

#[derive(Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

#[derive(Default)]
pub(super) struct Spares([Slot; SLOTS]);

impl Spares {
    /// An id for a new file.
    #[inline]
    pub fn take<E: Engine>(&self, engine: &E) -> Result<ObjectId> {
        match ObjectId::from_raw(self.mine().swap(NONE, Ordering::AcqRel)) {
            Some(id) => Ok(id),
            None => engine.reserve(Kind::File),
        }
    }

    /// Takes back an id that no Op used.
    #[inline]
    pub fn give<E: Engine>(&self, engine: &E, id: ObjectId) {
        let previous = self.mine().swap(id.raw(), Ordering::AcqRel);
        if let Some(previous) = ObjectId::from_raw(previous) {
            engine.unreserve(previous);
        }
    }

    /// Gives all ids back to the engine.
    pub fn clear<E: Engine>(&self, engine: &E) {
        for slot in &self.0 {
            if let Some(id) = ObjectId::from_raw(slot.0.swap(NONE, Ordering::AcqRel)) {
                engine.unreserve(id);
            }
        }
    }

    #[inline]
    fn mine(&self) -> &AtomicU64 {
        &self.0[epoch::thread_index() % SLOTS].0
    }
}
