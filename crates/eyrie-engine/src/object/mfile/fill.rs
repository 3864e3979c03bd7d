//! Giving storage to ranges of a file, and taking it: allocating, punching holes, zeroing.
//!
//! Storage that was never written is a leaf with a mark in its pointer, so allocating stores no byte of it. The first
//! write to such a page goes in place, because nobody sees bytes there, and takes no space.

use eyrie_medium::{Addr, Medium, PAGE_SIZE};

use super::tree::{
    COPY_WHOLE_BYTES, MAX_LEAF_LEVEL, Node, Under, root_extent, slot_of, span, start_of, tree_height, under,
};
use super::visit::retire_under;
use super::write::{Part, clear_past, compose, cow_page, raise};
use crate::object::header::Selector;
use crate::object::pointer::{Extent, Pointer};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// What bytes are set to that are in no whole page of a range: fewer than two pages.
static ZEROS: [u8; 2 * PAGE_SIZE as usize] = [0; 2 * PAGE_SIZE as usize];

/// What becomes of the pages of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// They become holes. Bytes of pages that are only partly in the range become zeros.
    Hole,
    /// Those that are holes get storage.
    Storage,
    /// All have storage and are zeros; if `reuse`, the storage that they had.
    Zeros { reuse: bool },
}

/// Bytes, from the start of a file or a subtree.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// What of it falls into the child that spans `start..start + len`, counted from there.
    fn within(self, start: u64, len: u64) -> Range {
        let to = self.end.min(start.saturating_add(len));
        Range { start: self.start.max(start) - start, end: to - start }
    }

    fn covers(self, level: u8) -> bool {
        self.start == 0 && self.end >= span(level)
    }

    fn has_whole_page(self) -> bool {
        self.start.next_multiple_of(PAGE_SIZE) + PAGE_SIZE <= self.end
    }
}

/// Prepares a hole from `offset` to `end`; the new root, to be published in the header's hot line.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`; nothing was changed.
pub fn punch(
    transaction: &mut Transaction<'_>,
    root: Pointer,
    size: u64,
    offset: u64,
    end: u64,
) -> Result<Pointer> {
    let range = Range { start: offset, end: end.min(size.next_multiple_of(PAGE_SIZE)) };
    if root.is_null() || range.start >= range.end {
        return Ok(root);
    }
    fill(transaction, root, (size, size), range, Fill::Hole)
}

/// Prepares storage from `offset` to `end`, as far as the file reaches when its size has changed from the first of
/// `sizes` to the second, which is no smaller. If `zeros`, what was there becomes zeros. The new root, to be published
/// with the new size in the header's hot line.
///
/// # Errors
/// `NoSpace`, also where storage past the new size would not fit; `Corrupt`, `Fault`; nothing was changed.
pub fn allocate(
    transaction: &mut Transaction<'_>,
    selector: Selector,
    root: Pointer,
    sizes: (u64, u64),
    (offset, end): (u64, u64),
    zeros: bool,
) -> Result<Pointer> {
    let (from, to) = sizes;
    clear_past(transaction, root, from, to)?;
    let range = Range { start: offset, end: end.min(to.next_multiple_of(PAGE_SIZE)) };
    let past = end.saturating_sub(offset.max(to.next_multiple_of(PAGE_SIZE)));
    let space = transaction.volume().space();
    let mut nodes = space.most_extents();
    let missing = missing(transaction.medium(), root, to, range, &mut nodes)?;
    if missing.saturating_add(past) > space.usage().free {
        return Err(Error::NoSpace);
    }
    if range.start >= range.end || missing == 0 && !zeros {
        return Ok(root);
    }
    // What a view of a sealed object shows must stay, so its bytes are never written again.
    let how = if zeros { Fill::Zeros { reuse: !selector.sealed() } } else { Fill::Storage };
    fill(transaction, root, sizes, range, how)
}

/// Bytes of a range that have no storage. No more than `nodes` nodes are looked at.
fn missing(medium: &Medium, root: Pointer, size: u64, range: Range, nodes: &mut usize) -> Result<u64> {
    let height = root.height();
    let held = match root_extent_if_small(root)? {
        _ if root.is_null() => 0,
        Some(extent) => extent.bytes(),
        None => span(height),
    };
    let beyond = range.end.min(size).saturating_sub(range.start.max(held));
    if height == 0 || range.start >= held.min(range.end) {
        return Ok(beyond);
    }
    let within = range.within(0, held);
    Ok(beyond + missing_under(medium, root.with_height(0), height, size, within, nodes)?)
}

/// The same under one pointer, in whole pages; `size` counts from its start.
fn missing_under(
    medium: &Medium,
    pointer: Pointer,
    level: u8,
    size: u64,
    range: Range,
    nodes: &mut usize,
) -> Result<u64> {
    let addr = match under(pointer, level, Addr::NULL)? {
        Under::Leaf(_) | Under::Unwritten(_) => return Ok(0),
        Under::Hole => {
            return Ok(range.end.next_multiple_of(PAGE_SIZE) - range.start / PAGE_SIZE * PAGE_SIZE);
        }
        Under::Node(addr) => addr,
    };
    *nodes = nodes.checked_sub(1).ok_or_else(|| Error::corrupt(addr, "endless storage of an object"))?;
    let node = Node::read(medium, addr)?;
    let mut bytes = 0;
    for slot in slot_of(level, range.start)..=slot_of(level, range.end - 1) {
        let (start, len) = (start_of(level, slot), span(level - 1));
        let child = if start < size { node.get(slot) } else { Pointer::NULL };
        let within = range.within(start, len);
        bytes += missing_under(medium, child, level - 1, size.saturating_sub(start), within, nodes)?;
    }
    Ok(bytes)
}

/// The extent of a root of height 0.
fn root_extent_if_small(root: Pointer) -> Result<Option<Extent>> {
    if root.height() == 0 { root_extent(root, Addr::NULL) } else { Ok(None) }
}

/// A new root for a file whose `range`, which is not empty and ends at most a page past the second of `sizes`, is as
/// `how` says.
fn fill(
    transaction: &mut Transaction<'_>,
    mut root: Pointer,
    sizes: (u64, u64),
    mut range: Range,
    how: Fill,
) -> Result<Pointer> {
    if let Some(extent) = root_extent_if_small(root)? {
        let visible = sizes.0.min(extent.bytes());
        if how != Fill::Storage && range.covers(0) && range.end >= visible {
            transaction.retire(extent);
            root = Pointer::NULL;
        } else if let Some(new) = fill_small(transaction, extent, sizes, range, how)? {
            return Ok(new);
        }
    }
    let mut height = tree_height(root)?;
    if how == Fill::Hole {
        range.end = range.end.min(span(height));
        if root.is_null() || range.start >= range.end {
            return Ok(root);
        }
    } else {
        height = height.max(super::tree::height_for(range.end));
    }
    let grown = raise(transaction, root, sizes.0, height)?;
    let new = refill(transaction, grown, height, range, sizes.1, how)?;
    Ok(if new.is_null() { Pointer::NULL } else { new.with_height(height) })
}

/// The same for a file of one extent that can stay one: up to a page, and with no hole of a page in it. `None` if it
/// cannot.
fn fill_small(
    transaction: &mut Transaction<'_>,
    extent: Extent,
    (from, to): (u64, u64),
    range: Range,
    how: Fill,
) -> Result<Option<Pointer>> {
    let held = extent.bytes();
    let visible = from.min(held);
    let len = if how == Fill::Hole { visible } else { visible.max(range.end.min(to)) };
    let zeroed = if how == Fill::Storage { 0..0 } else { range.start.min(len)..range.end.min(len) };
    if len <= held && zeroed.is_empty() {
        return Ok(Some(Pointer::leaf(extent)));
    }
    let most = if len <= held { COPY_WHOLE_BYTES } else { PAGE_SIZE };
    if len > most || how != Fill::Storage && range.has_whole_page() {
        return Ok(None);
    }
    let new = transaction.allocate(len)?;
    let part = Part { offset: zeroed.start, data: &ZEROS[..(zeroed.end - zeroed.start) as usize] };
    // The extent may be larger than was asked for, and the file, too.
    compose(transaction, new, new.bytes().min(to), Some(extent.addr), visible, part)?;
    transaction.retire(extent);
    Ok(Some(Pointer::leaf(new)))
}

/// A copy of the subtree whose `range`, which is not empty, is as `how` says. `size` is where its visible bytes end.
fn refill(
    transaction: &mut Transaction<'_>,
    pointer: Pointer,
    level: u8,
    range: Range,
    size: u64,
    how: Fill,
) -> Result<Pointer> {
    let mut old = if size == 0 { Under::Hole } else { under(pointer, level, Addr::NULL)? };
    let whole = range.covers(level);
    match (old, how) {
        (Under::Hole, Fill::Hole) => return Ok(Pointer::NULL),
        (Under::Leaf(_), Fill::Storage) | (Under::Unwritten(_), Fill::Storage | Fill::Zeros { .. }) => {
            return Ok(pointer);
        }
        (_, Fill::Hole) if whole => {
            retire_under(transaction, pointer, level, size)?;
            return Ok(Pointer::NULL);
        }
        (Under::Unwritten(_), Fill::Hole) if level == 0 => return Ok(pointer),
        (Under::Leaf(extent), Fill::Zeros { reuse: true }) if whole => {
            return Ok(Pointer::unwritten(extent));
        }
        (Under::Leaf(extent), Fill::Zeros { reuse: false }) if whole => {
            transaction.retire(extent);
            old = Under::Hole;
        }
        (Under::Leaf(_), _) if level == 0 => {
            let data = &ZEROS[..(range.end - range.start) as usize];
            return cow_page(transaction, old, Part { offset: range.start, data }, size);
        }
        _ => {}
    }
    // A file that ends inside its last large piece has a node there: that is what grows.
    let is_large = whole && level <= MAX_LEAF_LEVEL && size >= span(level);
    if matches!(old, Under::Hole) && (level == 0 || is_large) {
        match transaction.allocate(span(level)) {
            Ok(extent) => return Ok(Pointer::unwritten(extent)),
            // No piece that large is left, but perhaps as many bytes in smaller ones.
            Err(Error::NoSpace) if level > 0 => {}
            Err(error) => return Err(error),
        }
    }
    refill_node(transaction, old, level, range, size, how)
}

/// The same for a node, or what becomes one.
fn refill_node(
    transaction: &mut Transaction<'_>,
    old: Under,
    level: u8,
    range: Range,
    size: u64,
    how: Fill,
) -> Result<Pointer> {
    let mut node = Node::take(transaction, old, level)?;
    node.clear_past(level, size);
    let child_span = span(level - 1);
    for slot in slot_of(level, range.start)..=slot_of(level, range.end - 1) {
        let start = start_of(level, slot);
        let child = refill(
            transaction,
            node.get(slot),
            level - 1,
            range.within(start, child_span),
            size.saturating_sub(start).min(child_span),
            how,
        )?;
        node.set(slot, child);
    }
    if node.is_empty() { Ok(Pointer::NULL) } else { node.write(transaction) }
}
