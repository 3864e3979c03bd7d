//! The mFile: a tree of extents that maps offsets to bytes (Aerie, `aerie.txt` section 4.4.1).
//!
//! The root is null (only zeros), one extent of about the size of the file (height 0), or a tree. The nodes
//! of a tree have 512 pointers and its leaves are pages of 4 KiB, the shape of BPFS (`bpfs.txt` section
//! 3.1). A pointer one level up may be a leaf of 2 MiB.
//!
//! There are three kinds of updates, and a write takes the cheapest that is atomic (`bpfs.txt` section
//! 3.2): in place for 8 aligned bytes, append past the end, and partial copy-on-write up to the lowest
//! pointer that commits all of it. A page that was allocated but never written needs no copy: its first
//! bytes are stored in place.
//!
//! Invariants:
//! - Bytes past the size, and slots past the last block, are garbage. A change that makes them visible
//!   clears them first.
//! - Bytes past the size of a sealed object were never visible, and its visible bytes never change.
//! - An empty file has a null root.
//! - A leaf that is marked unwritten reads as zeros, whatever its bytes are.
//!
//! Safe when power fails: the functions here only prepare. The transaction commits a slot or
//! the header's hot line.

mod append;
mod copy;
mod fill;
mod fresh;
mod read;
mod resize;
mod salvage;
mod shift;
#[cfg(test)]
mod tests;
mod tree;
mod visit;
mod write;

pub(crate) use fill::{allocate, punch};
pub(crate) use fresh::fresh;
pub(crate) use read::{allocated, read, seek, single};
pub(crate) use resize::set_size;
pub(crate) use salvage::{SalvagedPart, salvage};
pub(crate) use shift::{collapse, insert};
pub use tree::FileTree;
pub(crate) use visit::retire_all;
pub use visit::visit_storage;
pub(crate) use write::{FileChange, write};
