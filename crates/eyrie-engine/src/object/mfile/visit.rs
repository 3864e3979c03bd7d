//! Passes over the storage of an mFile. Recovery marks the storage as reachable, and Ops retire it.

use eyrie_medium::Medium;

use super::tree::{FANOUT, FileTree, MAX_HEIGHT, Subtree, TreeNode, Under, start_of};
use crate::extent::{Class, Extent};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Calls `visit` with every extent of a file: nodes and leaves. Skips slots past the end of the file.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `visit`.
pub fn visit_storage(
    medium: &Medium,
    file: FileTree,
    visit: &mut dyn FnMut(Extent) -> Result<()>,
) -> Result<()> {
    match file.root.height() {
        _ if file.size == 0 && !file.root.is_null() => {
            Err(Error::corrupt(file.at, "empty file with storage"))
        }
        0 => file.root_extent()?.map_or(Ok(()), visit),
        height if height <= MAX_HEIGHT => visit_under(medium, file.subtree(), file.size, visit),
        _ => Err(file.impossible_height()),
    }
}

/// Calls `visit` with every extent under one pointer. `size` is the number of bytes from the start of the
/// subtree to the end of the file.
fn visit_under(
    medium: &Medium,
    subtree: Subtree,
    size: u64,
    visit: &mut dyn FnMut(Extent) -> Result<()>,
) -> Result<()> {
    match subtree.look()? {
        Under::Hole => Ok(()),
        Under::Leaf(extent) | Under::Unwritten(extent) => visit(extent),
        Under::Node(addr) => {
            visit(Extent { addr, class: Class::PAGE })?;
            let node = TreeNode::read(medium, addr)?;
            for slot in 0..FANOUT {
                let start = start_of(subtree.level, slot);
                if start >= size {
                    break;
                }
                visit_under(medium, node.child(slot, subtree.level), size - start, visit)?;
            }
            Ok(())
        }
    }
}

/// Retires all storage under one pointer, at the commit. `size` has the same meaning as in [`visit_under`].
pub(super) fn retire_under(transaction: &mut Transaction<'_>, subtree: Subtree, size: u64) -> Result<()> {
    visit_under(transaction.medium(), subtree, size, &mut |extent| transaction.retire_found(extent))
}

/// Retires all storage of a file, at the commit.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub(crate) fn retire_all(transaction: &mut Transaction<'_>, file: FileTree) -> Result<()> {
    transaction.retires_object();
    visit_storage(transaction.medium(), file, &mut |extent| transaction.retire_found(extent))
}
