//! Cutting and extending.

use eyrie_medium::{Addr, PAGE_SIZE};

use super::tree::{
    COPY_WHOLE_BYTES, FANOUT, Node, Under, height_for, root_extent, span, split_leaf, start_of, under,
};
use super::visit::retire_under;
use crate::Result;
use crate::object::pointer::{Extent, Pointer};
use crate::transaction::Transaction;

/// Prepares a change of size; the new root, to be published with `to` in the header's hot line.
///
/// Cutting copies the last partial block, so that bytes past the size were never visible; extending shows zeros.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`; nothing was changed.
pub fn set_size(transaction: &mut Transaction<'_>, root: Pointer, from: u64, to: u64) -> Result<Pointer> {
    if to >= from {
        super::write::clear_past(transaction, root, from, to)?;
        return Ok(root);
    }
    if to == 0 {
        super::retire_all(transaction, root, from)?;
        return Ok(Pointer::NULL);
    }
    if root.height() == 0 {
        let Some(extent) = root_extent(root, Addr::NULL)? else { return Ok(root) };
        return cut_root(transaction, extent, to);
    }
    let height = root.height();
    Ok(cut(transaction, root.with_height(0), height, from, to)?.with_height(height))
}

/// Cuts a root of height 0.
fn cut_root(transaction: &mut Transaction<'_>, extent: Extent, to: u64) -> Result<Pointer> {
    if to >= extent.bytes() {
        return Ok(Pointer::leaf(extent));
    }
    if to <= COPY_WHOLE_BYTES {
        let new = transaction.allocate(to)?;
        transaction.copy(new.addr, extent.addr, to)?;
        transaction.retire(extent);
        return Ok(Pointer::leaf(new));
    }
    let height = height_for(extent.bytes()).max(1);
    let node = split_leaf(transaction, extent.addr, extent.bytes(), height)?;
    Ok(cut_node(transaction, node, height, extent.bytes(), to)?.with_height(height))
}

/// A copy of the subtree without what is past `to`. Both sizes count from its start, `to < from`.
fn cut(
    transaction: &mut Transaction<'_>,
    pointer: Pointer,
    level: u8,
    from: u64,
    to: u64,
) -> Result<Pointer> {
    if to == 0 {
        retire_under(transaction, pointer, level, from)?;
        return Ok(Pointer::NULL);
    }
    if to >= span(level) {
        return Ok(pointer);
    }
    let old = under(pointer, level, Addr::NULL)?;
    match old {
        Under::Hole => Ok(Pointer::NULL),
        Under::Leaf(extent) if level == 0 => {
            let page = transaction.allocate(PAGE_SIZE)?;
            transaction.copy(page.addr, extent.addr, to)?;
            transaction.retire(extent);
            Ok(Pointer::leaf(page))
        }
        // What is past `to` in it was never visible.
        Under::Unwritten(_) if level == 0 => Ok(pointer),
        Under::Leaf(extent) | Under::Unwritten(extent) => {
            let node = Node::take(transaction, old, level)?;
            cut_node(transaction, node, level, extent.bytes(), to)
        }
        Under::Node(_) => {
            let node = Node::take(transaction, old, level)?;
            cut_node(transaction, node, level, from, to)
        }
    }
}

/// Writes a copy of a node without what is past `to`.
fn cut_node(
    transaction: &mut Transaction<'_>,
    mut node: Node,
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
            let child = cut(transaction, node.get(slot), level - 1, visible, kept)?;
            node.set(slot, child);
        }
    }
    node.write(transaction)
}
