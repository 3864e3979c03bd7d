//! New storage for a file whose bytes are all given by the caller.

use eyrie_medium::rules::SafetyRule;
use eyrie_medium::{Addr, PAGE_SIZE};

use super::copy::tree_over;
use super::part::FilePart;
use super::tree::FileTree;
use crate::Result;
use crate::extent::Class;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;

/// Writes `data` to new storage, and returns a root for it. The root is null if `data` is empty, and one
/// extent if the volume has a free extent that is large enough. Otherwise the root is a tree.
///
/// # Errors
/// `NoSpace`, `Fault`.
pub fn fresh(transaction: &mut Transaction<'_>, data: &[u8]) -> Result<Pointer> {
    let len = data.len() as u64;
    if len == 0 {
        return Ok(Pointer::NULL);
    }
    let part = FilePart::new(len, 0, data);
    if len <= Class::MAX_BYTES {
        match transaction.allocate(len) {
            Ok(extent) => {
                transaction.precedes(SafetyRule::BytesBeforeTheirPointer, extent.addr, data.len())?;
                part.store(transaction, extent.addr)?;
                return Ok(Pointer::leaf(extent));
            }
            // The volume has no free extent of this size, or the host has no memory for one. Several smaller
            // extents together may hold the bytes.
            Err(error) if error.is_full() && len > PAGE_SIZE => {}
            Err(error) => return Err(error),
        }
    }
    let nothing = FileTree { root: Pointer::NULL, size: 0, at: Addr::NULL };
    tree_over(transaction, nothing, part)
}
