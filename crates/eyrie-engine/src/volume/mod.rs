//! Creates, opens, saves, closes and resizes volumes.
//!
//! [`Volume`] joins the layers below it: the tables at the start of the volume, the allocator, and the
//! directory or device of the host. `save` saves the free space at a clean close. `generation` assigns
//! generations, and `redo_slots` assigns redo slots to threads. `copy` opens a copy for reading, `resize`
//! moves the end of the volume, `owners` counts owners, `request` records the requests of clients, and
//! `scrub` compares the pages of a disk with their checksums.
//!
//! Invariants:
//! - Each change of an open volume's tables is committed by one publish, except changes of the two copies of
//!   the superblock.
//! - At most one process at a time changes a volume: its owner. Forked children of the owner are not owners.
//!
//! Safe when power fails: `save`, `generation` and `resize` order their own writes, as their descriptions
//! say.

mod copy;
mod generation;
mod open;
mod owners;
mod redo_slots;
mod request;
mod resize;
mod save;
mod scrub;
#[cfg(test)]
mod tests;
mod view;

pub use open::{Opened, Volume};
pub use scrub::Scrubbed;
pub use view::VolumeView;

pub use crate::host::{LogGrant, LogTable, create_from, has_unapplied_entries, provision_log, segment_path};
pub use crate::space::{Marks, Overlap, Space};
pub use crate::tables::layout::{self, FORMAT_VERSION, REDO_SLOT_BYTES, REDO_SLOTS, redo_slot};
pub use crate::tables::{Geometry, MIN_HOST_BYTES, MediumChoice, Options};
