//! The header of an object: 256 bytes, four cache lines.
//!
//! Line 0 is written once. Line 1, the *hot line*, holds (root, size, modification time) twice, and a
//! selector word that names the current copy. So one publish changes root and size together, which BPFS
//! could not do (`bpfs.txt`, section 3.2). Lines 2 and 3 are two copies of the cold attributes; the same
//! selector names the current one.
//!
//! Invariants:
//! - The copy that is not current is garbage.
//! - The version in the selector grows with every change, so a reader that finds the selector unchanged has
//!   read one state.
//!
//! Safe when power fails: a change stores only into copies that are not current, then publishes the
//! selector. Cold attributes are in another line than the selector, so the barrier of the transaction comes
//! between. The hot copy is in the selector's own line, whose stores persist in order.

mod layout;
mod read;
mod update;

pub use layout::{Cold, Identity};
pub use read::{Header, Hot, Selector};
pub(crate) use update::{HotChange, NewObject};
