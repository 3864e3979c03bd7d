//! Walks through the storage of an mFile, or through a part of it. Recovery uses these walks to mark the
//! storage as reachable, and Ops use them to retire it.

use eyrie_medium::{Medium, PAGE_SIZE};

use super::tree::{FANOUT, FileTree, MAX_HEIGHT, Subtree, TreeNode, Under, start_of};
use crate::extent::{Class, Extent};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Calls `visit` for every extent of a file, that is, for its nodes and leaves. The second argument of
/// `visit` is true if the pointer to the extent has the shared bit. Skips slots that have no meaning.
///
/// # Errors
/// `Corrupt`, `Fault`, and the errors of `visit`.
pub fn visit_storage(
    medium: &Medium,
    file: FileTree,
    visit: &mut dyn FnMut(Extent, bool) -> Result<()>,
) -> Result<()> {
    match file.root.height() {
        _ if file.size == 0 && !file.root.is_null() && !file.root.is_preallocated() => {
            Err(Error::corrupt(file.at, "empty file with storage"))
        }
        0 => file.root_extent()?.map_or(Ok(()), |extent| visit(extent, file.root.is_shared())),
        height if height <= MAX_HEIGHT => {
            let (end, written) = (file.storage_end(), file.size.next_multiple_of(PAGE_SIZE));
            visit_under(medium, file.subtree(), end, written, visit)
        }
        _ => Err(file.impossible_height()),
    }
}

/// Calls `visit` with every extent under one pointer. Pointers from `end` on have no meaning. Leaves from
/// `written` on must be unwritten. Both offsets count from the start of the subtree.
fn visit_under(
    medium: &Medium,
    subtree: Subtree,
    end: u64,
    written: u64,
    visit: &mut dyn FnMut(Extent, bool) -> Result<()>,
) -> Result<()> {
    match subtree.look()? {
        Under::Hole => Ok(()),
        Under::Leaf(_) | Under::Shared(_) if written == 0 => {
            Err(Error::corrupt(subtree.at, "written storage past the end of a file"))
        }
        Under::Leaf(extent) | Under::Unwritten(extent) => visit(extent, false),
        Under::Shared(extent) => visit(extent, true),
        Under::Node(addr) => {
            visit(Extent { addr, class: Class::PAGE }, false)?;
            let node = TreeNode::read(medium, addr)?;
            for slot in 0..FANOUT {
                let start = start_of(subtree.level, slot);
                if start >= end {
                    break;
                }
                let child = node.child(slot, subtree.level);
                visit_under(medium, child, end - start, written.saturating_sub(start), visit)?;
            }
            Ok(())
        }
    }
}

/// Retires all storage under one pointer, at the commit. `end` has the same meaning as in [`visit_under`].
pub(super) fn retire_under(transaction: &mut Transaction<'_>, subtree: Subtree, end: u64) -> Result<()> {
    visit_under(transaction.medium(), subtree, end, u64::MAX, &mut |extent, is_shared| {
        transaction.retire_found(extent, is_shared)
    })
}

/// Retires all storage of a file, at the commit.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub(crate) fn retire_all(transaction: &mut Transaction<'_>, file: FileTree) -> Result<()> {
    transaction.retires_object();
    visit_storage(transaction.medium(), file, &mut |extent, is_shared| {
        transaction.retire_found(extent, is_shared)
    })
}
