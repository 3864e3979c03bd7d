//! Extended attributes: all names and values of one object in one extent, the *block*, which the header's cold
//! attributes point to.
//!
//! Invariants:
//! - A block is never changed: each change writes a new one and retires the old.
//! - Names are in byte order, each once; an object without extended attributes has no block.
//!
//! Safe when power fails: every function here only prepares; the [`Transaction`](crate::transaction::Transaction)
//! commits the cold attributes that point to the new block. A reader with a pin sees one block throughout.

mod layout;
mod read;
#[cfg(test)]
mod tests;
mod update;

pub use read::{Value, extent, get, visit};
pub use update::{remove, set};
