//! Finds the contents of a span that has the size of a leaf.

use eyrie_medium::{Medium, PAGE_SIZE};

use super::tree::{Subtree, Under, slot_addr, slot_of, span};
use crate::Result;
use crate::extent::{Class, Extent};
use crate::object::pointer::Pointer;

/// The contents of the span of a page or a large leaf.
#[derive(Clone, Copy)]
pub(super) enum SpanContents {
    /// Bytes that read as zeros.
    Hole,
    /// Written pages in one extent of the length of the span.
    Pages(Pointer),
    /// Bytes in an extent that is smaller than a page.
    Small(Extent),
    /// Several pages that are not one aligned piece of an extent.
    Several,
}

/// Returns the piece of an extent that begins at offset `within` and has the span of `level`. `pointer` leads
/// to the extent.
pub(super) fn piece_at(pointer: Pointer, extent: Extent, within: u64, level: u8) -> SpanContents {
    if within >= extent.bytes() {
        return SpanContents::Hole;
    }
    if level == 0 && extent.class.is_small() {
        return SpanContents::Small(extent);
    }
    let addr = extent.addr.add(within);
    match Class::fitting(span(level)) {
        Some(class) if addr.is_aligned(span(level)) && within + span(level) <= extent.bytes() => {
            SpanContents::Pages(pointer.piece(Extent { addr, class }))
        }
        _ => SpanContents::Several,
    }
}

/// Returns the contents of the span of `level` at offset `from` of a tree.
pub(super) fn find_leaf(medium: &Medium, mut subtree: Subtree, from: u64, level: u8) -> Result<SpanContents> {
    let mut within = from;
    loop {
        match subtree.look()? {
            Under::Hole | Under::Unwritten(_) => return Ok(SpanContents::Hole),
            Under::Leaf(extent) | Under::Shared(extent) => {
                return Ok(piece_at(subtree.pointer, extent, within / PAGE_SIZE * PAGE_SIZE, level));
            }
            Under::Node(_) if subtree.level <= level => return Ok(SpanContents::Several),
            Under::Node(node) => {
                let at = slot_addr(node, slot_of(subtree.level, within));
                within %= span(subtree.level - 1);
                let pointer = Pointer::from_raw(medium.load(at)?);
                subtree = Subtree { pointer, level: subtree.level - 1, at };
            }
        }
    }
}
