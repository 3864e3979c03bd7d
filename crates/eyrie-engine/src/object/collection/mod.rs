//! Collections: hash tables of (name, object id). A directory is a collection, and so is a key/value store.
//!
//! A table points to segments of bucket pages. One word of a page commits its changes: it has a bit for
//! each live slot, and a version. So an insert, a removal or a replacement within a page is one publish.
//! The table grows by linear hashing, one bucket at a time, and never shrinks. The root of a collection is
//! the pointer to its table; only a larger table changes it.
//!
//! The hash also selects the cache line of the page in which the entry's slot should be, its home. So a
//! look-up fetches that line together with the first line of the page, and then the object's header
//! together with the record that proves the name. An entry whose home was full is in another line, and its
//! home has a bit for that line. `docs/design/0007-lines-of-slots.md` has the reasons.
//!
//! Invariants:
//! - One rule decides everywhere if an entry counts: its slot is live, and its hash belongs to the bucket
//!   of its page at the present number of buckets. So an unfinished split does no harm.
//! - The record and the slot of an entry do not change while the slot is live in the *stored* commit word.
//!   A change writes only to dead slots and free memory, and memory that a transaction frees is not reused
//!   before it has settled.
//! - Hints in a page (spilled lines, memory in use) may overstate, but never understate. So they are
//!   written before the commit that needs them, and a crash needs no rollback of them.
//! - A bucket keeps its pages for the life of the collection.
//! - Counts are computed from the pages, never stored. (`scm` keeps the sums of large directories in
//!   memory.)
//!
//! Readers take no lock. They compare the commit word before and after they read a page: if it is the same,
//! the live slots did not change meanwhile. A look-up that misses reads the number of buckets again,
//! because a split copies an entry to the new bucket before the number changes, and clears it from the old
//! bucket only after. Ops of several words hold the volume's redo sequence (see
//! [`redo`](crate::transaction::redo)). Listings and summaries check that sequence themselves; look-ups
//! leave the check to their caller.
//!
//! Safe when power fails: before its publish, a change is only in dead slots or new extents. The number of
//! buckets commits a split. The moved entries that are still in the old bucket do not count from then on,
//! even before they are cleared.
//!
//! The hash is keyed with the volume's seed, so that nobody can choose names that collide. (Aerie's
//! collections are hash tables too, `aerie.txt` section 4.4.3.)

pub mod buckets;
mod check;
mod grow;
pub mod layout;
mod page;
mod read;
mod salvage;
mod table;
#[cfg(test)]
mod tests;
mod update;
mod walk;

pub(crate) use grow::make_room;
pub(crate) use read::FoundEntry;
#[cfg(test)]
pub(crate) use read::VISITS;
pub use table::{Collection, hash};
pub(crate) use update::{create, insert, insert_with_ease, remove, replace};
pub(crate) use walk::{CollectionSummary, list, summary};
