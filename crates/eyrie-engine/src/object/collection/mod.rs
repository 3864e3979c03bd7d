//! Collections: hash tables of (name, object id). A directory is a collection, and so is a key/value store.
//!
//! A collection has a table with pointers to segments. A segment is one extent with the first pages of
//! consecutive buckets. A slot of a bucket page is *live* if it holds an entry. A page has two *stamps*, each
//! with the time of a change. The commit word of the page has the bits of the live slots, a version, a level,
//! and the number of the current stamp. One store of this word commits all changes of the page. Therefore an
//! insert, a removal or a replacement within a page is one publish. The table grows by linear hashing, one
//! bucket at a time. It shrinks by the reverse of this growth, when its pages are nearly empty (see
//! `shrink`). The root of a collection is the pointer to its table. The root changes only when a larger or
//! smaller table replaces the old one.
//!
//! The hash of a name selects the bucket of the entry. It also selects one cache line of a bucket page, in
//! which the entry's slot should be. This line is the home of the entry. A look-up fetches the home together
//! with the first line of the page. It then fetches the object's header together with the record that proves
//! the name. If the home of a new entry is full, the slot is in another line, and the home gets a spilled bit
//! for that line. `docs/design/0007-lines-of-slots.md` has the reasons.
//!
//! Invariants:
//! - An entry *counts* if readers see it. One rule decides this everywhere: an entry counts if its slot is
//!   live and its hash selects the bucket of its page at the current number of buckets. Therefore an
//!   unfinished split does no harm.
//! - The record and the slot of an entry do not change while the slot is live in the *stored* commit word. A
//!   change writes new slots and records only to dead slots and free memory. Memory that a transaction frees
//!   is reused only after that transaction has settled.
//! - The gap of a page is free memory, in which the next record gets its place. The spilled bits and the gap
//!   are hints. For entries that count, they may overstate the use of lines and memory, but never understate
//!   it. The bits that mark directories are correct for live slots, and mean nothing for dead slots. Each
//!   change writes these words before the commit that needs them. Therefore a crash needs no rollback of
//!   them.
//! - If a merge has removed a bucket, the first page of the bucket stays unchanged until the bucket exists
//!   again, or until no reader can see the segment of the page any more.
//! - Counts of entries are computed from the pages, never stored. (`scm` keeps the sums of large directories
//!   in memory.)
//!
//! Readers take no lock. They compare the commit word before and after they read a page. If the word is the
//! same, the live slots did not change meanwhile. A look-up that finds nothing reads the number of buckets
//! again, because a split may have moved the entry. A split first copies the entry to the new bucket, then
//! changes the number, and then clears the entry from the old bucket. Merges are committed by redo records.
//! Therefore, if a merge has meanwhile removed the bucket of a reader, the reader reads again, even if growth
//! has already made the bucket again.
//!
//! An Op that commits several words stores them one after another, so a reader may see only some of them.
//! Such an Op increments one count before it stores the words, and another count afterwards (see
//! [`redo`](crate::transaction::redo)). Listings and summaries compare these counts, and read again if the
//! words of an Op were stored meanwhile. A look-up leaves this comparison to its caller.
//!
//! Safe when power fails: before its publish, a change is only in dead slots, free memory, hints, the stamp
//! that is not current, and new extents. The publish of the number of buckets commits a split. From then on,
//! the moved entries in the old bucket do not count, even before they are cleared.
//!
//! The buckets of a collection form eight shards, by the low bits of their numbers. A change of one entry
//! reads and writes only pages of one bucket. Therefore two threads may change entries of different shards at
//! the same time. A split changes the bucket that is split and the new one. If the collection has at least
//! eight buckets, the numbers of both have the same low three bits. Then both buckets are in one shard, and
//! the split needs the lock of this shard only. A merge needs the locks of all shards.
//!
//! The hash is keyed with the volume's seed. Therefore a user needs the seed to choose names that collide. (A
//! user who may list a directory can compute the seed from the positions of its entries.) The collections of
//! Aerie are hash tables, too (section 4.4.3 of the paper, EuroSys 2014).

pub mod buckets;
mod check;
pub mod commit;
mod grow;
pub mod layout;
mod page;
mod read;
mod salvage;
mod shrink;
mod table;
#[cfg(test)]
mod tests;
mod update;
mod walk;

pub(crate) use buckets::SHARDS;
pub(crate) use grow::{GrowthLock, RoomNeeds, make_room, make_room_for_many, needs_room};
pub(crate) use read::FoundEntry;
#[cfg(test)]
pub(crate) use read::VISITS;
pub(crate) use shrink::{may_shrink, shrink};
pub use table::{Collection, hash};
pub(crate) use update::{create, insert, insert_without_growth, remove, replace};
pub(crate) use walk::{CollectionSummary, list, summary, versions};
