//! Transactions make an Op reachable, whole or not at all.
//!
//! An Op prepares its change here: it allocates storage, writes bytes that nobody can reach yet, and
//! collects the 8-byte words that make them reachable. `Transaction::commit` does all the ordering. A
//! transaction that is dropped without commit frees its allocations; nothing was reachable, so nothing
//! needs undoing. This is BPFS's list of the blocks of an in-flight copy-on-write (`bpfs.txt`, section
//! 3.3).
//!
//! Safe when power fails: before the publish nothing is reachable. A single word or line commits by itself.
//! Several words are committed by the publish of a redo slot, which recovery replays (see [`redo`]).

mod commit;
mod late;
mod prepare;
pub mod redo;

pub(crate) use prepare::{LineChange, Transaction};
