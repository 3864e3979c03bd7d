//! The page cache of a volume on an ordinary disk: the exported page cache of the paper
//! (`page-cache-export.txt`, sections II-E and III), on an unmodified kernel.
//!
//! The mapping is private memory. The medium announces every access. A page that is not in memory is read
//! from the disk first, and each changed line is recorded. Only a *drain* (`drain`) writes to the disk. It
//! makes one cut between Ops durable, whole or not at all, by way of the `journal`. When memory is short,
//! clean pages are evicted (`evict`). An eviction waits for a grace period, because pinned readers hold plain
//! pointers.
//!
//! Invariants:
//! - A page that is not in memory is on the disk, as the last drain left it.
//! - A page that belongs to a cut is copied before it changes again, until the drain has taken it.
//! - A page that was in use at the last durable cut is changed only by way of the journal. So the allocator
//!   may take a page only if it is free since a durable cut: [`Pager::mark_freed`] returns the number of that
//!   cut.
//!
//! Safe when power fails: the journal and the places of pages on the disk hold the state; `journal` has the
//! argument.

mod allocate;
pub(crate) mod blocks;
mod change;
mod drain;
mod evict;
mod fetch;
mod gate;
pub(crate) mod journal;
mod keeper;
mod options;
pub(crate) mod overlay;
mod page;
mod pager;
mod read_ahead;
mod ring;
mod shadow;
#[cfg(test)]
mod tests;
mod usable;
mod waker;

pub(crate) use drain::Drain;
pub use gate::Gate;
pub(crate) use keeper::Keeper;
pub use options::PagedOptions;
pub(crate) use pager::{Pager, journal_bytes};
