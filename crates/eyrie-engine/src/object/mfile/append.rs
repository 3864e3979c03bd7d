//! Appending. Bytes past the end of a file are stored in place, because no reader sees them before the size
//! changes.

use std::ops::Range;

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, PAGE_SIZE};

use super::copy::{compose, copy_subtree, raise};
use super::fresh::fresh;
use super::own::with_own_tail;
use super::pages::{new_pages, whole_slots};
use super::part::FilePart;
use super::preallocated::{clear_tail, write_past_end};
use super::tree::{FANOUT, FileTree, Subtree, Under, height_for, slot_addr, slot_of, span, start_of};
use crate::extent::{Class, Extent};
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Prepares a write that begins at the end of the file or past it, and returns the new root. No visible byte
/// changes before the size does.
pub(super) fn append(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    offset: u64,
    data: &[u8],
) -> Result<Pointer> {
    let file = with_own_tail(transaction, file)?;
    let FileTree { root, size, .. } = file;
    let part = FilePart::appended(size, offset, data);
    let end = part.end();
    if root.is_preallocated() {
        return write_past_end(transaction, file, part);
    }
    if root.height() > 0 && !root.is_null() && end <= span(root.height()) {
        extend(transaction, file.subtree(), size, part)?;
        return Ok(root);
    }
    if root.height() == 0 {
        let old = file.root_extent()?;
        if let Some(extent) = old
            && end <= extent.bytes()
        {
            transaction.volume().require_possible_extent(extent)?;
            if offset > size && !broken(SafetyRule::GapBecomesZeros) {
                transaction.zero(extent.addr.add(size), offset - size)?;
            }
            part.store(transaction, extent.addr.add(offset))?;
            return Ok(root);
        }
        if size == 0 && offset == 0 {
            return fresh(transaction, data);
        }
        if end <= PAGE_SIZE {
            // The extent grows by at least half, but not beyond a page. With less growth, a file that grows
            // byte by byte would be copied for each byte.
            let room = end.max(size + size / 2).min(PAGE_SIZE);
            let new = transaction.allocate(room)?;
            let visible = old.map_or(0, |extent| size.min(extent.bytes()));
            compose(transaction, new, end, old.map(|extent| extent.addr), visible, part)?;
            if let Some(extent) = old {
                transaction.retire(extent);
            }
            return Ok(Pointer::leaf(new));
        }
    }
    // The root is one extent, null, or a tree that is too low. Build a tree that reaches `end` over the old
    // bytes. Then extend this tree as any other tree.
    let height = height_for(end).max(1);
    let grown = raise(transaction, file, height)?;
    if grown.pointer.is_null() {
        return Ok(copy_subtree(transaction, grown, part, 0)?.with_height(grown.level));
    }
    extend(transaction, grown, size, part)?;
    Ok(grown.pointer.with_height(grown.level))
}

/// Stores `part` into a node, or into a large leaf. The bytes of `part` lie past the visible bytes, which end
/// at `size`. No reader sees the bytes of `part` yet, so they are stored in place. There is one exception: if
/// the last visible bytes are in a hole or an unwritten page, the commit gives this page a new pointer. The
/// bytes between `size` and `part` become zeros. If `part` is empty, all bytes of a node past `size` become
/// zeros. In a leaf, only those before the offset of `part` become zeros.
fn extend(transaction: &mut Transaction<'_>, subtree: Subtree, size: u64, part: FilePart<'_>) -> Result<()> {
    let level = subtree.level;
    let node = match subtree.look()? {
        Under::Node(node) => node,
        // A clone may have given a file one large leaf whose last page the file fills only in part.
        Under::Leaf(extent) | Under::Shared(extent) => {
            return extend_leaf(transaction, extent, level, size, part);
        }
        Under::Hole | Under::Unwritten(_) => {
            return Err(Error::corrupt(subtree.at, "file tree without its node"));
        }
    };
    transaction.volume().require_possible_extent(Extent { addr: node, class: Class::PAGE })?;
    let child_span = span(level - 1);
    let last = if part.is_empty() { FANOUT - 1 } else { slot_of(level, part.end() - 1) };
    let boundary = slot_of(level, size);
    let last = last.min(FANOUT - 1);
    let run = if part.is_large() && level == 1 { append_run(transaction, node, size, part)? } else { None };
    let run = run.unwrap_or(FANOUT..FANOUT);
    let mut slot = boundary;
    while slot <= last {
        if slot == run.start {
            slot = run.end;
            continue;
        }
        let start = start_of(level, slot);
        let at = slot_addr(node, slot);
        let visible = size.saturating_sub(start);
        let here = !part.is_empty() && part.offset < start.saturating_add(child_span) && part.end() > start;
        let inner = if here { part.within(start, child_span) } else { FilePart::new(0, child_span, &[]) };
        if visible > 0 {
            extend_child(transaction, at, level - 1, visible, inner)?;
        } else if here {
            let child = copy_subtree(transaction, Subtree::hole(level - 1), inner, 0)?;
            transaction.write_word(at, child.raw())?;
        } else {
            transaction.write_word(at, 0)?;
        }
        slot += 1;
    }
    Ok(())
}

/// Stores whole pages of a large `part` into new pages, which are neighbours in memory if possible. `node` is
/// at level 1, so its children are pages. Only the pages past its visible bytes, which end at `size`, are
/// stored. Returns the slots of these pages, or `None` if there are no such pages.
#[inline(never)]
fn append_run(
    transaction: &mut Transaction<'_>,
    node: Addr,
    size: u64,
    part: FilePart<'_>,
) -> Result<Option<Range<usize>>> {
    let Range { start, end } = whole_slots(part);
    let run = start.max(slot_of(1, size.next_multiple_of(PAGE_SIZE)))..end;
    if run.is_empty() {
        return Ok(None);
    }
    new_pages(transaction, part, run.clone(), |transaction, slot, page| {
        transaction.write_word(slot_addr(node, slot), page.raw())
    })?;
    Ok(Some(run))
}

/// Stores `part` into the child that has the last visible bytes, with the same rules as [`extend`].
fn extend_child(
    transaction: &mut Transaction<'_>,
    at: Addr,
    level: u8,
    size: u64,
    part: FilePart<'_>,
) -> Result<()> {
    let pointer = Pointer::from_raw(transaction.medium().load(at)?);
    let subtree = Subtree { pointer, level, at };
    match subtree.look()? {
        Under::Node(_) => extend(transaction, subtree, size, part),
        Under::Leaf(extent) | Under::Shared(extent) => extend_leaf(transaction, extent, level, size, part),
        Under::Hole | Under::Unwritten(_) if part.is_empty() => Ok(()),
        Under::Hole | Under::Unwritten(_) => {
            // Readers can see this slot, so it must change with the commit and not before.
            let child = copy_subtree(transaction, subtree, part, size)?;
            transaction.word(at, child.raw());
            Ok(())
        }
    }
}

/// Stores `part` into the leaf that has the last visible bytes, with the same rules as [`extend`].
fn extend_leaf(
    transaction: &mut Transaction<'_>,
    extent: Extent,
    level: u8,
    size: u64,
    part: FilePart<'_>,
) -> Result<()> {
    // `with_own_tail` has replaced the last page if another pointer leads to it.
    transaction.volume().require_possible_extent(extent)?;
    let gap_end = part.offset.min(span(level));
    if gap_end > size {
        transaction.zero(extent.addr.add(size), gap_end - size)?;
    }
    part.store(transaction, extent.addr.add(gap_end))
}

/// Makes the bytes between the size of the file and `end` read as zeros, for an extension of the file to
/// `end`. Unless the file is preallocated, also turns all slots past its end into holes. A caller that needs
/// only these holes passes `u64::MAX`. Returns the root of the file.
pub(super) fn clear_past(transaction: &mut Transaction<'_>, file: FileTree, end: u64) -> Result<Pointer> {
    if end <= file.size {
        return Ok(file.root);
    }
    let file = with_own_tail(transaction, file)?;
    let FileTree { root, size, .. } = file;
    if root.height() == 0 {
        if let Some(extent) = file.root_extent()?
            && size < extent.bytes()
        {
            transaction.volume().require_possible_extent(extent)?;
            transaction.zero(extent.addr.add(size), extent.bytes().min(end) - size)?;
        }
        return Ok(root);
    }
    if root.is_preallocated() {
        clear_tail(transaction, file, end)?;
    } else if !root.is_null() && size < span(root.height()) {
        let nothing = FilePart::new(0, span(root.height()).min(end), &[]);
        extend(transaction, file.subtree(), size, nothing)?;
    }
    Ok(root)
}
