//! Mapped memory whose ordering is part of the type.
//!
//! BPFS decouples ordering from durability with *epoch barriers* (`bpfs.txt`, section 2.2); this crate puts that in
//! types. A [`Medium::write`] gives a [`Dirty`] token, [`Medium::barrier`] turns it into [`Ordered`], and only an
//! `Ordered` lets [`Medium::publish`] commit a word; what the publish made unreachable may be reused only with the
//! [`Settled`] that a barrier on the [`Published`] gives.
//!
//! Invariants:
//! - All unsafe code of Eyrie (foreign-function front-ends apart) is in this crate.
//! - Every access is checked against the mapping; an address outside it is an error ([`Fault`]), never a wild access.
//! - No `&T` or `&[u8]` is formed over mapped memory, except by [`Medium::bytes`] for volumes held exclusively.
//!
//! Safe when power fails: nothing here decides what survives. A write persists at any time after it was made, and at
//! the latest before the next barrier returns; [`Recorder`] and [`CrashImage`] are the executable form of that rule.

mod addr;
mod ahead;
mod backing;
mod copy;
pub mod epoch;
mod fault;
#[cfg(feature = "testing")]
mod fork;
mod image;
mod mapping;
mod medium;
#[cfg(not(feature = "shuttle"))]
mod mutex;
mod order;
mod paged;
mod plan;
mod pmem;
mod provision;
pub mod rules;
pub mod sync;
mod token;
mod trace;
mod truncate;
mod turns;
#[cfg(feature = "testing")]
mod written;

pub use addr::{Addr, LINE_SIZE, PAGE_SIZE, SegmentId};
pub use fault::Fault;
#[cfg(feature = "testing")]
pub use fork::in_forked_child;
pub use image::{Choice, CrashImage, ImageBase};
pub use medium::{Medium, MediumKind, Words};
pub use paged::blocks::{Blocks, FileBlocks, SECTOR};
pub use paged::journal::{Anchor, ChangedPage, FreshPage, RecordHead};
pub use paged::memory::MemoryDisk;
pub use paged::overlay::Overlay;
#[cfg(feature = "testing")]
pub use paged::simulated::SimulatedDisk;
pub use paged::{Gate, PagedOptions};
pub use plan::{Failing, FailureKind, Plan, Site, SiteKind, host_call};
pub use provision::AHEAD_BYTES;
pub use token::{Dirty, Ordered, Published, Settled};
pub use trace::{CrashPoint, CrashPoints, Event, Pending, Recorder, Rule};
pub use truncate::truncate;
pub use turns::Turns;
#[cfg(feature = "testing")]
pub use written::WrittenBack;
