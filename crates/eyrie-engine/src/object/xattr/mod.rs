//! Extended attributes. All names and values of an object are in one extent, the *block*. The cold attributes
//! of the header point to the block.
//!
//! Invariants:
//! - A block never changes. Each change writes a new block and retires the old one.
//! - The names of a block are sorted by their bytes, and each name occurs once. An object without extended
//!   attributes has no block.
//!
//! Safe when power fails: the functions here only prepare a change. The
//! [`Transaction`](crate::transaction::Transaction) commits the cold attributes that point to the new block.
//! The storage of a block that a reader has found is not reused until the reader unpins.

mod layout;
mod read;
#[cfg(test)]
mod tests;
mod update;

pub(crate) use read::{XattrRoot, get, visit};
pub(crate) use update::{remove, set};
