//! Collections: hash tables of (name, object id). A directory is one, and so is a key/value store.
//!
//! A table points to segments of bucket pages. One word of a page commits it: bits of its live slots and a version, so
//! that an insert, a removal or a replacement within a page is one publish. The table grows by linear hashing, one
//! bucket at a time, and never shrinks. A collection's root is a pointer to its table; only a larger table changes it.
//!
//! The hash also picks the cache line of the page that the entry's slot should be in, so that a look-up fetches it beside
//! the page's first line, and then what the slot names beside the record that proves the name. An entry whose line was
//! full is in another, which its line says; `docs/design/0007-lines-of-slots.md` has the reasons.
//!
//! Invariants:
//! - One predicate says everywhere whether an entry counts: its slot is live, and its hash belongs to the bucket that
//!   its page is of, as many buckets as there are now. So a half-done split harms nobody.
//! - What a live slot refers to is not changed while it is live in the *stored* commit word: a change writes to dead
//!   slots and free memory only, and what a transaction removes is not free before it has settled.
//! - What a page says beside that may be more than is so, never less: lines that spilled, memory that is taken. So it is
//!   written before the commit that it is for, and needs no taking back.
//! - Pages of a bucket are never taken away while the collection lives.
//! - Counts are computed from the pages, never stored. (`scm` keeps the sums of large directories in memory.)
//!
//! Readers take no lock. A page is read between two looks at its commit word: the same word twice means that the live
//! slots did not change meanwhile. A miss looks again at the number of buckets, for an entry is in its new bucket
//! before the number says so, and leaves the old one only after. Ops of several words hold the volume's redo sequence
//! (see [`crate::redo`]); listings and summaries look at it themselves, look-ups leave that to their caller.
//!
//! Safe when power fails: before its publish a change is in dead slots or new extents; a split is committed by the
//! number of buckets, and the entries that it leaves behind in the old bucket do not count from then on, whether or not
//! they were cleared.
//!
//! The hash is keyed with the volume's seed, so that nobody outside can choose names that collide (Aerie's
//! collections are hash tables too, `aerie.txt` section 4.4.3).

pub mod buckets;
mod check;
mod grow;
pub mod layout;
mod read;
mod salvage;
mod table;
#[cfg(test)]
mod tests;
mod update;
mod walk;

pub use grow::make_room;
pub use read::Found;
#[cfg(test)]
pub(crate) use read::VISITS;
pub use update::{create, insert, insert_with_ease, remove, replace};
pub use walk::{Summary, list, summary};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::object::pointer::Pointer;
use crate::volume::Volume;

/// A collection as its root shows it.
#[derive(Clone, Copy)]
pub struct Collection<'v> {
    volume: &'v Volume,
    root: Pointer,
}

impl<'v> Collection<'v> {
    /// The collection with this root.
    pub fn new(volume: &'v Volume, root: Pointer) -> Collection<'v> {
        Collection { volume, root }
    }

    fn hash(&self, name: &[u8]) -> u64 {
        hash(self.volume.hash_seed(), name)
    }
}

/// The hash of a name in a volume with this seed.
#[inline]
pub fn hash(seed: u64, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed)
}
