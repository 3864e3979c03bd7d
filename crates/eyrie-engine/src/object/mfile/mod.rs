//! The mFile: a tree of extents that maps offsets to bytes (section 4.4.1 of the Aerie paper, EuroSys 2014).
//!
//! The root is one of three things: null (the file has only zeros), one extent with the first bytes of the
//! file (height 0), or a tree. The nodes of a tree have 512 pointers, and the leaves of a tree are pages of 4
//! KiB, as in BPFS (section 3.1 of the paper, SOSP 2009). A pointer that could lead to a lowest node, with
//! its 512 pages, may instead lead to one leaf of 2 MiB.
//!
//! There are three kinds of updates. A write uses the cheapest kind that is atomic (section 3.2 of the BPFS
//! paper). A change of stored bytes within one aligned word is stored in place, except in a sealed object and
//! in a shared page. Bytes past the end are appended. Other changes copy pages and nodes. The change of one
//! pointer above all copies commits the whole change. An *unwritten* page is allocated but reads as zeros:
//! its pointer has the unwritten bit. An unwritten page needs no copy, because no reader sees its bytes. The
//! first write to the page stores bytes in place.
//!
//! Invariants:
//! - Bytes past the size are garbage. In nodes, the slots past the last page of the file are garbage, too,
//!   unless the file is *preallocated*. A change that makes such bytes or slots visible clears them first.
//! - A preallocated file may have storage past its end. Its root is a node, and the pointer to the root has
//!   the unwritten bit. No slot of its nodes is garbage. Leaves wholly past its last page are unwritten.
//! - The visible bytes of a sealed object never change in place. Its bytes past the size were never visible.
//! - An empty file has a null root, unless it is preallocated.
//! - A leaf with the unwritten bit reads as zeros. The bytes of its extent do not matter.
//! - No byte changes in a page to which several pointers lead, not even past the end of the file. The
//!   allocator counts the pointers to such a page, and frees a retired page only if no pointer to it is left.
//!   While the allocator has any count, no byte changes in an extent whose pointer has the shared bit. At
//!   other times, each pointer with this bit is the only one to its pages.
//!
//! Safe when power fails: the functions here only prepare a change. The commit of the transaction publishes a
//! word of stored bytes, a slot of a node, or the header's hot line. There is one exception: a clone sets the
//! shared bit in pointers of its source before the commit. A bit does no harm if no commit follows.

mod append;
mod clone;
mod copy;
mod fill;
mod fresh;
mod leaf;
mod own;
mod pages;
mod part;
mod preallocated;
mod read;
mod resize;
mod salvage;
mod shift;
#[cfg(test)]
mod tests;
mod tree;
mod visit;
mod write;

pub(crate) use clone::{ClonedRange, clone_range, set_shared_bits};
pub(crate) use copy::FileChange;
pub(crate) use fill::{AllocatedAs, allocate, punch};
pub(crate) use fresh::fresh;
pub(crate) use read::{allocated, contiguous, has_storage, read, seek};
pub(crate) use resize::set_size;
pub(crate) use salvage::{SalvagedData, SalvagedPart, salvage};
pub(crate) use shift::{collapse, insert};
pub use tree::FileTree;
pub(crate) use visit::retire_all;
pub use visit::visit_storage;
pub(crate) use write::write;
