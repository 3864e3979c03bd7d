//! The mFile: a tree of extents that maps offsets to bytes (Aerie, `aerie.txt` section 4.4.1).
//!
//! The root is null (nothing but zeros), one extent of about the file's own size (height 0), or a tree of nodes of 512
//! pointers over 4 KiB pages, BPFS's shape (`bpfs.txt` section 3.1). A pointer one level up may be a leaf of 2 MiB.
//!
//! Three updates, always the cheapest that is atomic (`bpfs.txt` section 3.2): in place for 8 aligned bytes, append
//! past the end, and partial copy-on-write up to the lowest pointer that commits all of it. A page that was allocated and
//! never written is no page to copy: its first bytes are stored in place.
//!
//! Invariants:
//! - Bytes past the size, and slots past the last block, are garbage; whatever makes them visible clears them first.
//! - Bytes past the size of a sealed object were never visible, nor are visible bytes of one ever changed.
//! - An empty file has a null root.
//! - Bytes of a leaf that is marked unwritten mean nothing: it reads as zeros.
//!
//! Safe when power fails: every function here only prepares; the [`Transaction`](crate::transaction::Transaction)
//! commits a slot or the header's hot line.

mod fill;
mod read;
mod resize;
mod salvage;
mod shift;
#[cfg(test)]
mod tests;
mod tree;
mod visit;
mod write;

pub use fill::{allocate, punch};
pub use read::{Piece, allocated, find, read, seek, single};
pub use resize::set_size;
pub use salvage::{Part, salvage};
pub use shift::{collapse, insert};
pub use tree::MAX_SIZE;
pub use visit::{retire_all, visit_storage};
pub use write::{Change, fresh, write};
