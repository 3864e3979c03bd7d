//! A transaction makes the change of an Op reachable, whole or not at all.
//!
//! An Op prepares its change in a transaction. The transaction allocates storage, and writes bytes that no
//! reader uses yet. It also collects the 8-byte words that will make those bytes reachable.
//! `Transaction::commit` orders all these stores. If a transaction is dropped without a commit, its
//! allocations are freed. No part of the change was reachable, so nothing else needs to be undone. BPFS (SOSP
//! 2009, section 3.3) keeps a similar list of the blocks of an in-flight copy-on-write.
//!
//! Some changes have a *prelude*: a hot line with the new time and version of a file, but with its old root
//! and size. The prelude is published before the commit, so that no new byte is seen with an old time.
//!
//! Safe when power fails: before the publish, no part of the change is reachable except a prelude. A single
//! word or line commits by its own publish. Several words are committed by the publish of a redo slot, which
//! recovery replays (see [`redo`]).

mod commit;
mod late;
mod prepare;
pub mod redo;
mod words;

#[cfg(test)]
pub(crate) use prepare::SUMMED;
pub(crate) use prepare::{LineChange, Transaction};
