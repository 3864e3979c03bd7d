//! Free space of a volume, and its allocation.
//!
//! While a volume is open, no record on media says which memory is free. A clean close saves the free space
//! ([`saved`]). After a crash, everything that no object reaches is free ([`Marks`]). [`Space`] allocates
//! from per-thread magazines over one shared state (`central`). The shared state has a `buddy` allocator of
//! pages, `slab` pages for small extents, and chunks for the `headers` of objects. A page to which several
//! pointers lead (`shared`) becomes free when the last of these pointers is dropped.
//!
//! A [`FreeMap`] is the one value that describes all free memory. The save, the rebuild and the check of a
//! volume share it.
//!
//! Invariants:
//! - No code of this module knows the structure of objects, or a path of the host.
//! - No memory is allocated before the host has provided it. No memory of a group is allocated before the
//!   count of groups in use on media includes the group.
//!
//! Safe when power fails: `central` and `headers` order their own writes, as their descriptions say.

mod allocator;
mod bits;
mod buddy;
mod central;
pub(crate) mod compare;
mod context;
mod free_map;
mod headers;
mod magazine;
mod marks;
mod number_map;
mod padded;
mod reclaim;
mod reserve;
mod room;
pub(crate) mod saved;
mod shared;
mod slab;
mod spares;
mod steps;

pub use allocator::Space;
pub(crate) use context::SpaceContext;
pub(crate) use free_map::FreeMap;
pub use marks::{Marks, Overlap};
pub(crate) use padded::CachePadded;
