//! Volumes: creating, opening, saving, closing and resizing them.
//!
//! [`Volume`] joins the layers below it: the tables at its start, its space, and the directory or device of
//! the host. `save` saves the free space at a clean close, `generation` assigns generations, `redo_slots`
//! assigns redo slots to threads, `copy` opens a volume only to look at it, and `resize` moves its end.
//!
//! Invariants:
//! - Each change of an open volume's tables is one publish. The two copies of the superblock are the
//!   exception.
//! - A volume has one owner: a process, but not its forked children.
//!
//! Safe when power fails: see `save`, `generation` and `resize`, each of which orders its own writes.

mod copy;
mod generation;
mod open;
mod redo_slots;
mod resize;
mod save;
#[cfg(test)]
mod tests;

pub use open::{Opened, Volume};

pub use crate::host::{create_from, segment_path};
pub use crate::space::{Marks, Overlap, Space};
pub use crate::tables::layout::{self, FORMAT_VERSION, REDO_SLOT_BYTES, REDO_SLOTS, redo_slot};
pub use crate::tables::{Geometry, MIN_HOST_BYTES, MediumChoice, Options};
