//! Mapped memory whose types enforce the order of stores.
//!
//! BPFS separates ordering from durability with *epoch barriers* (section 2.2 of the paper, SOSP 2009). This
//! crate expresses those barriers as types. [`Medium::write`] returns a [`Dirty`] token. [`Medium::barrier`]
//! turns that token into an [`Ordered`], and only an `Ordered` lets [`Medium::publish`] commit a word.
//! [`Medium::settle`] turns the resulting [`Published`] into a [`Settled`]. The caller may reuse the storage
//! that the publish made unreachable only after it has that `Settled`.
//!
//! Invariants:
//! - All unsafe code of the workspace is in this crate, except one module of `eyrie-bench` that only its
//!   feature `peers` compiles.
//! - Every access is checked against the mapping. An address outside the mapping gives an error ([`Fault`])
//!   and accesses no memory.
//! - No reference is formed over mapped memory, with three exceptions. References to atomics are allowed.
//!   [`Medium::bytes`] returns slices of bytes that stay the same while the caller holds its pin. (A client
//!   of a service must not use such a slice after the end of its session.) The page cache forms references to
//!   pages that it has locked and that no other thread may access yet.
//!
//! Safe when power fails: on persistent memory, a write may persist at any time after its store. When the
//! next barrier of its thread returns, the write has persisted. The writes to one cache line persist in their
//! order. On a disk, a drain makes the writes durable. No code of this crate relies on more than these rules.
//! The crate `eyrie-faults` has them in executable form (`CrashRule`).

mod addr;
mod backing;
mod clone_range;
mod copy;
mod counts;
pub mod epoch;
mod fault;
#[cfg(feature = "testing")]
mod fork;
pub mod host;
mod mapping;
mod medium;
mod observe;
mod order;
#[cfg(feature = "testing")]
mod own_root;
mod paged;
mod paging;
mod pmem;
mod provider;
mod provision;
mod range_lock;
mod reader;
pub mod rules;
pub mod shared;
mod site;
pub mod sync;
mod token;
mod truncate;

pub use addr::{Addr, LINE_SIZE, PAGE_SIZE, SegmentId};
pub use clone_range::clone_range;
pub use counts::OrderCounts;
pub use fault::Fault;
#[cfg(feature = "testing")]
pub use fork::in_forked_child;
pub use medium::{Medium, MediumKind, Words};
pub use observe::{Mapped, Observer};
#[cfg(feature = "testing")]
pub use own_root::own_root;
pub use paged::blocks::{Blocks, FileBlocks, SECTOR};
pub use paged::journal::{Anchor, ChangedPage, FreshPage, RecordHead};
pub use paged::overlay::Overlay;
pub use paged::{Gate, PageOwner, PagedOptions, PagedStats, SharedPages};
pub use provision::AHEAD_BYTES;
pub use range_lock::{HostLockKind, HostRangeLock, RangeLockCall, range_lock};
pub use site::{Caller, SiteKind};
pub use token::{Dirty, Ordered, Published, Settled};
pub use truncate::truncate;
