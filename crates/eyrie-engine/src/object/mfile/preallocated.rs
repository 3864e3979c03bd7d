//! Files with storage past their end, which `fallocate` has allocated there.
//!
//! The tree of such a file has the meaning of a tree of [`STORAGE_MAX`] bytes: no slot of its nodes is
//! garbage. The pages past the last page of the file are holes or unwritten. Therefore a write past the end
//! works as a write to a hole or to an unwritten page of any file: the bytes go to new or unwritten pages,
//! which no reader sees. The commit publishes the pointers of these pages together with the new size: by a
//! new root, or by a redo record with one pointer and the size.
//!
//! Only the bytes past the end in the last page are garbage, because appends store bytes there in place.

use eyrie_medium::Medium;

use super::copy::{overwrite_below_root, tree_over};
use super::part::FilePart;
use super::read::{FilePiece, find};
use super::tree::{
    FANOUT, FileTree, MAX_HEIGHT, STORAGE_MAX, Subtree, TreeNode, Under, slot_of, span, start_of,
};
use super::visit::retire_under;
use crate::extent::Extent;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Prepares a write that begins at the end of a preallocated file or past it. Returns the root. The caller
/// publishes the root and the new size in the header's hot line.
#[cold]
pub(super) fn write_past_end(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    mut part: FilePart<'_>,
) -> Result<Pointer> {
    if let Some((extent, start)) = clear_tail(transaction, file, part.offset)? {
        let end = start + extent.bytes();
        if part.offset < end {
            let (in_place, rest) = part.split(end);
            in_place.store(transaction, extent.addr.add(part.offset - start))?;
            part = rest;
        }
        if part.is_empty() {
            return Ok(file.root);
        }
    }
    store_pages(transaction, file, part)
}

/// Stores bytes into pages of a preallocated file, and returns the root. The bytes may end past the end of
/// the file.
pub(super) fn store_pages(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    part: FilePart<'_>,
) -> Result<Pointer> {
    if part.end() <= span(file.root.height()) && overwrite_below_root(transaction, file, part)?.is_some() {
        return Ok(file.root);
    }
    tree_over(transaction, file, part)
}

/// Clears the bytes of the last page between the end of a preallocated file and `to`, and returns the extent
/// of the page and the offset of the extent's start in the file. Returns `None` if the file ends at the end
/// of its last page, or if this page was never written.
pub(super) fn clear_tail(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    to: u64,
) -> Result<Option<(Extent, u64)>> {
    let FilePiece::Data(extent, from) = find(transaction.medium(), file, file.size)? else { return Ok(None) };
    transaction.volume().require_possible_extent(extent)?;
    let start = file.size - from;
    let len = to.min(start + extent.bytes()).saturating_sub(file.size);
    if len > 0 {
        transaction.zero(extent.addr.add(from), len)?;
    }
    Ok(Some((extent, start)))
}

/// Retires the storage from `from` on. `from` is a multiple of the page size. Changes no node: the caller
/// commits a root without the mark of [`Pointer::preallocated`], so that the slots from `from` on become
/// garbage. Therefore this change needs no new storage, and succeeds in a full volume. Returns false, and
/// retires nothing, if a leaf of several pages must be divided instead. Pointers from `end` on have no
/// meaning. Both offsets count from the start of the subtree.
pub(super) fn retire_past(
    transaction: &mut Transaction<'_>,
    subtree: Subtree,
    end: u64,
    from: u64,
) -> Result<bool> {
    let level = subtree.level;
    if from >= span(level) {
        return Ok(true);
    }
    let addr = match subtree.look()? {
        Under::Hole => return Ok(true),
        Under::Leaf(_) | Under::Shared(_) | Under::Unwritten(_) => return Ok(false),
        Under::Node(addr) => addr,
    };
    let node = TreeNode::read(transaction.medium(), addr)?;
    let boundary = slot_of(level, from);
    let start = start_of(level, boundary);
    let is_within = start < from;
    if is_within && !retire_past(transaction, node.child(boundary, level), end - start, from - start)? {
        return Ok(false);
    }
    for slot in boundary + usize::from(is_within)..FANOUT {
        let start = start_of(level, slot);
        if start >= end {
            break;
        }
        retire_under(transaction, node.child(slot, level), end - start)?;
    }
    Ok(true)
}

/// Returns the offset at which the last leaf of a preallocated file ends. Returns 0 if the file has no leaf.
pub(super) fn end_of_storage(medium: &Medium, file: FileTree) -> Result<u64> {
    if file.root.height() > MAX_HEIGHT {
        return Err(file.impossible_height());
    }
    // Every node has a page of its own.
    let mut nodes = medium.segment_sizes().sum::<u64>() / eyrie_medium::PAGE_SIZE;
    end_under(medium, file.subtree(), &mut nodes)
}

/// Returns the offset at which the last leaf under one pointer ends. Reads at most `nodes` nodes.
fn end_under(medium: &Medium, subtree: Subtree, nodes: &mut u64) -> Result<u64> {
    let level = subtree.level;
    let addr = match subtree.look()? {
        Under::Hole => return Ok(0),
        Under::Leaf(_) | Under::Shared(_) | Under::Unwritten(_) => return Ok(span(level)),
        Under::Node(addr) => addr,
    };
    *nodes = nodes
        .checked_sub(1)
        .ok_or_else(|| Error::corrupt(addr, "more nodes of a file than the volume has room for"))?;
    let node = TreeNode::read(medium, addr)?;
    for slot in (0..FANOUT).rev().filter(|&slot| start_of(level, slot) < STORAGE_MAX) {
        let end = end_under(medium, node.child(slot, level), nodes)?;
        if end > 0 {
            return Ok(start_of(level, slot) + end);
        }
    }
    Ok(0)
}
