//! Extended attributes. All names and values of an object are in one *block*, at the start of an extent of
//! its own. The cold attributes of the header point to this extent. `docs/design/0008-extended-attributes.md`
//! has the reasons.
//!
//! Invariants:
//! - A block never changes. Each change of an attribute retires the old block, and writes a new one if any
//!   attribute is left.
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

pub(crate) use read::{XattrRoot, get, value, visit};
pub(crate) use update::{check_no_acl, drop_capability, first, remove, set};
