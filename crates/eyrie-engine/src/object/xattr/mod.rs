//! Extended attributes. All names and values of an object are in one extent, the *block*. The header's cold
//! attributes point to it.
//!
//! Invariants:
//! - A block never changes: each change writes a new block and retires the old one.
//! - Names are in byte order, each once. An object without extended attributes has no block.
//!
//! Safe when power fails: the functions here only prepare. The
//! [`Transaction`](crate::transaction::Transaction) commits the cold attributes that point to the new
//! block. A reader with a pin sees one block throughout.

mod layout;
mod read;
#[cfg(test)]
mod tests;
mod update;

pub(crate) use read::{XattrRoot, get, visit};
pub(crate) use update::{remove, set};
