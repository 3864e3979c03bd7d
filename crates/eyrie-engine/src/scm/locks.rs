//! Locks of writers: a fixed table of mutexes, striped by object id.
//!
//! An Op locks all objects that it changes or makes at once, in table order, so that no two Ops wait for each other. Each stripe
//! also counts the Ops that ended under it: a reader of several words knows by it that none ended meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::sync::{Mutex, MutexGuard, lock, prefetch, try_lock, wait};
use smallvec::SmallVec;

use crate::ObjectId;

/// Stripes of the table.
pub const STRIPES: usize = 4096;
/// Looks at a lock before a reader does without it: a few microseconds.
const ATTEMPTS: u32 = 100;

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

/// The stripe of an object.
#[inline]
pub fn stripe_of(id: ObjectId) -> usize {
    spread(id, STRIPES)
}

impl Locks {
    /// Locks an object for a reader, unless an Op keeps it. The reader changes nothing, so it does not count as an Op.
    pub fn try_hold(&self, id: ObjectId) -> Option<MutexGuard<'_, ()>> {
        (0..ATTEMPTS).find_map(|attempt| {
            let held = try_lock(&self.stripes[stripe_of(id)].mutex);
            if held.is_none() {
                wait(attempt);
            }
            held
        })
    }

    /// Locks these objects.
    pub fn hold(&self, ids: &[ObjectId]) -> Held<'_> {
        let mut held = Held { stripes: SmallVec::new() };
        if let [id] = ids {
            held.add(&self.stripes[stripe_of(*id)]);
            return held;
        }
        let mut indices: SmallVec<[usize; 8]> = SmallVec::new();
        for &id in ids {
            let index = stripe_of(id);
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
        self.stripes[stripe_of(id)].ended.load(Ordering::Acquire)
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
