//! Locks of writers: a fixed table of mutexes, striped by object id.
//!
//! An Op locks all objects that it changes or makes at once, in table order, so that no two Ops wait for each other. Each stripe
//! also counts the Ops that ended under it: a reader of several words knows by it that none ended meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::sync::{Mutex, MutexGuard, lock, prefetch};
use smallvec::SmallVec;

use crate::ObjectId;

const STRIPES: usize = 4096;

#[derive(Default)]
struct Stripe {
    mutex: Mutex<()>,
    ended: AtomicU64,
}

/// The table.
pub struct Locks {
    stripes: Box<[Stripe]>,
}

impl Default for Locks {
    fn default() -> Locks {
        Locks { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }
}

/// Objects held by one Op; dropping it ends the Op.
pub struct Held<'a> {
    stripes: SmallVec<[(&'a Stripe, MutexGuard<'a, ()>); 4]>,
}

/// Spreads ids, which are multiples of 64 plus a kind, over a table of `len` (a power of two) places.
pub fn spread(id: ObjectId, len: usize) -> usize {
    let mixed = (id.place() >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize & (len - 1)
}

impl Locks {
    /// Locks these objects.
    pub fn hold(&self, ids: &[ObjectId]) -> Held<'_> {
        let mut held = Held { stripes: SmallVec::new() };
        if let [id] = ids {
            held.add(&self.stripes[spread(*id, STRIPES)]);
            return held;
        }
        let mut indices: SmallVec<[usize; 8]> = SmallVec::new();
        for &id in ids {
            let index = spread(id, STRIPES);
            prefetch(&self.stripes[index]);
            indices.push(index);
        }
        indices.sort_unstable();
        indices.dedup();
        for index in indices {
            held.add(&self.stripes[index]);
        }
        held
    }

    /// How many Ops on this object (or on others of its stripe) have ended.
    pub fn ended(&self, id: ObjectId) -> u64 {
        self.stripes[spread(id, STRIPES)].ended.load(Ordering::Acquire)
    }
}

impl<'a> Held<'a> {
    #[inline]
    fn add(&mut self, stripe: &'a Stripe) {
        self.stripes.push((stripe, lock(&stripe.mutex)));
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (stripe, _) in &self.stripes {
            // Only the holder of the mutex writes it.
            stripe.ended.store(stripe.ended.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }
}
