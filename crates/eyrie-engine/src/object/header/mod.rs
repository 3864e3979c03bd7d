//! The header of an object: 256 bytes, four cache lines.
//!
//! Line 0 is written once. Line 1, the *hot line*, holds (root, size, modification time) twice and one selector word
//! that says which copy is live, so that changing root and size together, which BPFS could not (`bpfs.txt`, section
//! 3.2), is one publish. Lines 2 and 3 are two copies of the cold attributes; the same selector says which is live.
//!
//! Invariants: everything in a line's dead copy is garbage; the version in the selector grows with every change, so a
//! reader that finds the selector unchanged read one state.
//!
//! Safe when power fails: a change stores into dead copies only, then publishes the selector. Cold attributes are in another
//! line than the selector, so a barrier goes between (the transaction's); the hot copy is in the selector's own line,
//! whose stores persist in order.

mod layout;
mod read;
mod update;

pub use layout::{Cold, HEADER_BYTES, HotLine, Identity};
pub use read::{Header, Hot, Selector};
pub use update::{HotChange, NewObject};
