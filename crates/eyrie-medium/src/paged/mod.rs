//! The page cache of a volume on an ordinary disk. The design is the exported page cache of Spillane et al.
//! ("Exporting Kernel Page Caching for Efficient User-Level I/O", MSST 2010, sections II-E and III), but
//! Eyrie needs no change of the kernel.
//!
//! The mapping is private memory, and the medium calls this module before every access. If the page is not in
//! memory, the call reads it from the disk. Before a store the call also records the lines that change. After
//! the open, only a *drain* (`drain`) writes to the disk. A drain makes one *cut* durable: all changes up to
//! a moment between two Ops, whole or not at all. To do so, the drain uses the `journal`. When memory is
//! short, clean pages are evicted (`evict`). An eviction waits for a grace period, because pinned readers
//! hold plain pointers to the pages.
//!
//! Invariants:
//! - A page in use that is not in memory has its newest bytes in its place on the disk.
//! - Before a page of a cut changes again, it is copied, unless the drain has already read its bytes.
//! - If a page was in use at the last durable cut, a change of the page reaches its place only after the
//!   change is durable in the journal. A drain may write fresh pages straight to their places. So the
//!   allocator may take a page only if the page was already free at the last durable cut.
//!   [`Pager::mark_freed`] returns the number of the first cut in which the page is free, or `None` if the
//!   page was fresh.
//!
//! Safe when power fails: the last durable cut can always be rebuilt from the journal and the places of the
//! pages. The documentation of `journal` shows why.

mod allocate;
pub(crate) mod blocks;
mod buffer;
mod change;
mod checksums;
mod drain;
mod evict;
mod fetch;
mod gate;
mod holes;
pub(crate) mod journal;
mod keeper;
mod options;
pub(crate) mod overlay;
mod pace;
mod page;
mod pager;
mod place_writes;
mod places;
mod read_ahead;
mod remote;
mod ring;
mod room;
mod scrub;
mod shadow;
mod stats;
#[cfg(test)]
mod tests;
mod usable;
mod waker;

pub(crate) use drain::Drain;
pub use gate::Gate;
pub use holes::SharedPages;
pub(crate) use journal::MAX_JOURNAL_BYTES;
pub(crate) use keeper::Keeper;
pub use options::PagedOptions;
pub(crate) use pager::{Pager, journal_bytes};
pub(crate) use places::Places;
pub use remote::PageOwner;
pub(crate) use remote::RemotePages;
pub(crate) use room::{PAGE_ENTRY, most_room};
pub use stats::PagedStats;
