//! Truncating and extending.

use eyrie_medium::PAGE_SIZE;

use super::append::clear_past;
use super::preallocated::retire_past;
use super::tree::{
    COPY_WHOLE_BYTES, FANOUT, FileTree, Subtree, TreeNode, Under, height_for, span, split_leaf, start_of,
};
use super::visit::{retire_all, retire_under};
use crate::Result;
use crate::extent::Extent;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;

/// Prepares a change of the size to `to`. The storage past the end of the file becomes free, unless the file
/// becomes longer. Returns the new root, which the caller publishes together with `to` in the header's hot
/// line.
///
/// A truncation that ends inside a page with data copies this page up to the new size. Therefore the bytes
/// past the new size in the copy were never visible. The bytes that an extension adds read as zeros.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The file is unchanged after an error.
pub fn set_size(transaction: &mut Transaction<'_>, file: FileTree, to: u64) -> Result<Pointer> {
    let FileTree { root, size: from, .. } = file;
    if to > from || to == from && !root.is_preallocated() {
        return clear_past(transaction, file, to);
    }
    if to == 0 {
        retire_all(transaction, file)?;
        return Ok(Pointer::NULL);
    }
    if root.height() == 0 {
        let Some(extent) = file.root_extent()? else { return Ok(root) };
        return truncate_root(transaction, root, extent, to);
    }
    let (subtree, end) = (file.subtree(), file.storage_end());
    let mut kept = to;
    if to == from {
        // The last page stays as it is.
        kept = to.next_multiple_of(PAGE_SIZE);
        if retire_past(transaction, subtree, end, kept)? {
            return Ok(subtree.pointer.with_height(root.height()));
        }
    }
    Ok(truncate(transaction, subtree, end, kept)?.with_height(root.height()))
}

/// Truncates a root of height 0, which leads to `extent`.
fn truncate_root(
    transaction: &mut Transaction<'_>,
    root: Pointer,
    extent: Extent,
    to: u64,
) -> Result<Pointer> {
    if to >= extent.bytes() {
        return Ok(root);
    }
    if to <= COPY_WHOLE_BYTES {
        let new = transaction.allocate(to)?;
        transaction.copy(new.addr, extent.addr, to)?;
        transaction.retire(extent);
        return Ok(Pointer::leaf(new));
    }
    let height = height_for(extent.bytes()).max(1);
    let node = split_leaf(transaction, root, extent, height)?;
    Ok(truncate_node(transaction, node, height, extent.bytes(), to)?.with_height(height))
}

/// Copies a subtree without the bytes past `to`. Returns the pointer to the copy. Pointers from `from` on
/// have no meaning. Both offsets count from the start of the subtree, and `to < from`.
fn truncate(transaction: &mut Transaction<'_>, subtree: Subtree, from: u64, to: u64) -> Result<Pointer> {
    let Subtree { pointer, level, .. } = subtree;
    if to == 0 {
        retire_under(transaction, subtree, from)?;
        return Ok(Pointer::NULL);
    }
    if to >= span(level) {
        return Ok(pointer);
    }
    let old = subtree.look()?;
    match old {
        Under::Hole => Ok(Pointer::NULL),
        Under::Leaf(extent) | Under::Shared(extent) if level == 0 => {
            let page = transaction.allocate(PAGE_SIZE)?;
            transaction.copy(page.addr, extent.addr, to)?;
            transaction.retire(extent);
            Ok(Pointer::leaf(page))
        }
        // The bytes past `to` need no clearing, because an unwritten page reads as zeros.
        Under::Unwritten(_) if level == 0 => Ok(pointer),
        // A leaf owns its whole extent, including the pages past the end of the file. Therefore all of its
        // pages past `to` are retired.
        Under::Leaf(extent) | Under::Shared(extent) | Under::Unwritten(extent) => {
            let node = TreeNode::copy_for_change(transaction, old, level)?;
            truncate_node(transaction, node, level, extent.bytes(), to)
        }
        Under::Node(_) => {
            let node = TreeNode::copy_for_change(transaction, old, level)?;
            truncate_node(transaction, node, level, from, to)
        }
    }
}

/// Writes `node` to a new page, without the bytes past `to`. Slots of the old node from `from` on are
/// garbage.
fn truncate_node(
    transaction: &mut Transaction<'_>,
    mut node: TreeNode,
    level: u8,
    from: u64,
    to: u64,
) -> Result<Pointer> {
    let child_span = span(level - 1);
    for slot in 0..FANOUT {
        let start = start_of(level, slot);
        let visible = from.saturating_sub(start).min(child_span);
        let kept = to.saturating_sub(start).min(child_span);
        if visible == 0 {
            node.set(slot, Pointer::NULL);
        } else if kept < visible {
            let child = truncate(transaction, node.child(slot, level), visible, kept)?;
            node.set(slot, child);
        }
    }
    node.write(transaction)
}
