//! Partial copy-on-write. A change writes copies of pages and nodes to new storage. The publish of one
//! pointer above the copies commits the change.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, PAGE_SIZE};

use super::pages::{new_pages, retire_written, whole_slots};
use super::part::FilePart;
use super::tree::{
    FileTree, MAX_LEAF_POINTER_LEVEL, Subtree, TreeNode, Under, height_for, root_over, slot_addr, slot_of,
    span, split_bytes, start_of,
};
use super::visit::retire_under;
use crate::Result;
use crate::extent::{Class, Extent};
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;

/// The part of a prepared change that the caller must publish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileChange {
    /// The root and the size after the change. The caller publishes them in the header's hot line.
    Root(Pointer, u64),
    /// The words of the transaction change bytes under the root. The caller adds the new time: as a prelude,
    /// or together with the removal of set-id bits or of a capability.
    BelowRoot,
}

/// Overwrites bytes of one page by copy-on-write. The lowest pointer above all of the bytes gets a new value,
/// which commits the change. Returns `None` if the bytes are in two or more pages.
///
/// A change of two pages would be wrong for a reader that begins between the prelude of this change and its
/// commit. The prelude changes the header's selector, but the commit leaves the selector unchanged. Therefore
/// this reader finds the same selector before and after its read, and does not read again. If the commit
/// changed two pages, the reader could see one old page and one new page.
pub(super) fn overwrite_below_root(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    mut part: FilePart<'_>,
) -> Result<Option<FileChange>> {
    let (mut subtree, mut size) = (file.subtree(), file.storage_end());
    let mut slot_below_root = None;
    while subtree.level > 0
        && let Under::Node(node) = subtree.look()?
    {
        let level = subtree.level;
        let slot = slot_of(level, part.offset);
        if slot != slot_of(level, part.end() - 1) {
            break;
        }
        let start = start_of(level, slot);
        part = part.within(start, span(level - 1));
        size = (size - start).min(span(level - 1));
        let at = slot_addr(node, slot);
        let pointer = Pointer::from_raw(transaction.medium().load(at)?);
        subtree = Subtree { pointer, level: level - 1, at };
        slot_below_root = Some(at);
    }
    if part.offset / PAGE_SIZE != (part.end() - 1) / PAGE_SIZE {
        return Ok(None);
    }
    let new = copy_subtree(transaction, subtree, part, size)?;
    let Some(slot) = slot_below_root else {
        return Ok(Some(FileChange::Root(new.with_height(file.root.height()), file.size)));
    };
    transaction
        .volume()
        .require_possible_extent(Extent { addr: slot.align_down(PAGE_SIZE), class: Class::PAGE })?;
    transaction.word(slot, new.raw());
    Ok(Some(FileChange::BelowRoot))
}

/// Returns the root of a tree with the bytes of `file`, and `part` stored over them.
pub(super) fn tree_over(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    part: FilePart<'_>,
) -> Result<Pointer> {
    let preallocated = file.root.is_preallocated();
    let end = if preallocated { part.end() } else { part.end().max(file.size) };
    let height = height_for(end).max(file.root.height()).max(1);
    let grown = raise(transaction, file, height)?;
    // If the root extent is longer than the file needs, the tree may be higher than `height`.
    let new = copy_subtree(transaction, grown, part, file.storage_end())?;
    root_over(transaction, new, grown.level, preallocated)
}

/// Returns the bytes of `file` as a tree of at least `height` levels of nodes (1 or more). A root extent is
/// divided into pieces under a new node.
pub(super) fn raise(transaction: &mut Transaction<'_>, file: FileTree, height: u8) -> Result<Subtree> {
    let Subtree { mut pointer, mut level, at } = file.subtree();
    if pointer.is_null() {
        return Ok(Subtree { pointer, level: height, at });
    }
    if level == 0 {
        let Some(extent) = file.root_extent()? else { return Ok(Subtree::hole(height)) };
        level = height_for(extent.bytes()).max(1);
        pointer = pieces(transaction, pointer, extent, file.size, level)?;
    }
    // Add a level: a node whose first slot is the old tree.
    while level < height {
        let mut node = TreeNode::empty();
        node.set(0, pointer);
        pointer = node.write(transaction)?;
        level += 1;
    }
    Ok(Subtree { pointer, level, at })
}

/// Returns a node at `level` over the pieces of a root extent, up to `size` bytes. `root` is the pointer to
/// this extent. An extent smaller than a page is copied into a page.
fn pieces(
    transaction: &mut Transaction<'_>,
    root: Pointer,
    extent: Extent,
    size: u64,
    level: u8,
) -> Result<Pointer> {
    if !extent.class.is_small() {
        let used = size.min(extent.bytes()).next_multiple_of(PAGE_SIZE);
        let retired = if broken(SafetyRule::OnlyUnusedPagesAreRetired) { used - PAGE_SIZE } else { used };
        // No pointer of the new tree leads to the pages past the used bytes, so these pages are retired.
        for page in (retired..extent.bytes()).step_by(PAGE_SIZE as usize) {
            transaction.retire(Extent { addr: extent.addr.add(page), class: Class::PAGE });
        }
        return split_bytes(transaction, root, (extent.addr, used), level)?.write(transaction);
    }
    let page = transaction.allocate(PAGE_SIZE)?;
    transaction.copy(page.addr, extent.addr, extent.bytes())?;
    transaction.zero(page.addr.add(extent.bytes()), PAGE_SIZE - extent.bytes())?;
    transaction.retire(extent);
    let mut node = TreeNode::empty();
    node.set(0, Pointer::leaf(page));
    node.write(transaction)
}

/// Copies a subtree, stores `part` in the copy, and returns the pointer to the copy. The visible bytes of the
/// old subtree end at `size`, and its slots past `size` are garbage. In each copied node, a slot wholly past
/// `size` is a hole, unless `part` reaches into it. In each copied page, the bytes past `size` are zeros or
/// belong to `part`.
pub(super) fn copy_subtree(
    transaction: &mut Transaction<'_>,
    subtree: Subtree,
    part: FilePart<'_>,
    size: u64,
) -> Result<Pointer> {
    let level = subtree.level;
    let old = if size == 0 { Under::Hole } else { subtree.look()? };
    if level == 0 {
        return copy_page(transaction, old, part, size);
    }
    let whole = part.offset == 0 && part.end() == span(level);
    if whole && let Under::Unwritten(extent) = old {
        return write_first(transaction, extent, part);
    }
    // A write over the whole span needs no old bytes. One large extent replaces the subtree.
    if whole && level <= MAX_LEAF_POINTER_LEVEL {
        match transaction.allocate(span(level)) {
            Ok(extent) => {
                part.store(transaction, extent.addr)?;
                if size > 0 {
                    retire_under(transaction, subtree, size)?;
                }
                return Ok(Pointer::leaf(extent));
            }
            // The volume has no free extent of this size, or the host has no memory for one. Single pages may
            // be left.
            Err(error) if error.is_full() => {}
            Err(error) => return Err(error),
        }
    }
    let mut node = TreeNode::copy_for_change(transaction, old, level)?;
    node.clear_past(level, size);
    let child_span = span(level - 1);
    let (first, last) = (slot_of(level, part.offset), slot_of(level, part.end() - 1));
    let mut run = if level == 1 { whole_slots(part) } else { 0..0 };
    if retire_written(transaction, run.clone(), size, |slot| node.child(slot, level))? {
        new_pages(transaction, part, run.clone(), |_, slot, page| {
            node.set(slot, page);
            Ok(())
        })?;
    } else {
        run = 0..0;
    }
    for slot in (first..=last).filter(|slot| !run.contains(slot)) {
        let start = start_of(level, slot);
        let child = copy_subtree(
            transaction,
            node.child(slot, level),
            part.within(start, child_span),
            size.saturating_sub(start).min(child_span),
        )?;
        node.set(slot, child);
    }
    node.write(transaction)
}

/// Stores `part`, and zeros around it, into an unwritten extent. The bytes are stored in place, because no
/// reader sees the bytes of an unwritten extent.
fn write_first(transaction: &mut Transaction<'_>, extent: Extent, part: FilePart<'_>) -> Result<Pointer> {
    transaction.volume().require_possible_extent(extent)?;
    compose(transaction, extent, extent.bytes(), None, 0, part)?;
    Ok(Pointer::leaf(extent))
}

/// Returns a page with the visible bytes of the old page, then zeros, and `part` over both. The old page is
/// reused if it is unwritten. Otherwise the result is a new page.
pub(super) fn copy_page(
    transaction: &mut Transaction<'_>,
    old: Under,
    part: FilePart<'_>,
    size: u64,
) -> Result<Pointer> {
    if let Under::Unwritten(extent) = old {
        return write_first(transaction, extent, part);
    }
    if let Under::Leaf(extent) = old
        && broken(SafetyRule::VisiblePageIsCopied)
    {
        transaction.write(extent.addr.add(part.offset), part.data)?;
        return Ok(Pointer::leaf(extent));
    }
    let page = transaction.allocate(PAGE_SIZE)?;
    let from = if let Under::Leaf(extent) | Under::Shared(extent) = old { Some(extent) } else { None };
    compose(transaction, page, PAGE_SIZE, from.map(|extent| extent.addr), size.min(PAGE_SIZE), part)?;
    if let Some(extent) = from {
        transaction.retire(extent);
    }
    Ok(Pointer::leaf(page))
}

/// Fills the first `len` bytes of `new` with `size` old bytes and then zeros, and stores `part` over both.
pub(super) fn compose(
    transaction: &mut Transaction<'_>,
    new: Extent,
    len: u64,
    old: Option<Addr>,
    size: u64,
    part: FilePart<'_>,
) -> Result<()> {
    // The first range is before `part`, the second after it. Each range gets the visible old bytes in it, and
    // then zeros.
    for (from, to) in [(0, part.offset), (part.end(), len)] {
        let kept = if old.is_some() { size.clamp(from, to.max(from)) } else { from };
        if let Some(addr) = old
            && kept > from
        {
            transaction.copy(new.addr.add(from), addr.add(from), kept - from)?;
        }
        if to > kept {
            transaction.zero(new.addr.add(kept), to - kept)?;
        }
    }
    part.store(transaction, new.addr.add(part.offset))
}
