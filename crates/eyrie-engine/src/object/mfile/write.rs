//! Writing: in place, append, and partial copy-on-write.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, PAGE_SIZE};

use super::tree::{
    COPY_WHOLE_BYTES, FANOUT, MAX_LEAF_LEVEL, Node, Under, height_for, root_extent, slot_addr, slot_of, span,
    split_leaf, start_of, under,
};
use crate::object::header::Selector;
use crate::object::pointer::{Class, Extent, Pointer};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// What remains to be published by the caller for a prepared change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A new root and size, in the header's hot line.
    Root(Pointer, u64),
    /// The transaction's words change what is under the root; the hot line only gets its new time, before them.
    Below,
}

/// The state of a file before a change.
#[derive(Clone, Copy)]
struct File {
    root: Pointer,
    size: u64,
}

/// Prepares a write of `data` (not empty) at `offset` of a file; the end is at most [`super::MAX_SIZE`].
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`; nothing was changed.
pub fn write(
    transaction: &mut Transaction<'_>,
    selector: Selector,
    root: Pointer,
    size: u64,
    offset: u64,
    data: &[u8],
) -> Result<Change> {
    let file = File { root, size };
    let end = offset + data.len() as u64;
    if offset >= size {
        let root = append(transaction, file, offset, data)?;
        return Ok(Change::Root(root, end));
    }
    if end <= size {
        return overwrite(transaction, selector, file, offset, data);
    }
    let root = cover(transaction, file, offset, data, end)?;
    Ok(Change::Root(root, end))
}

/// New storage that holds `data`: one extent where there is one, else a tree.
///
/// # Errors
/// `NoSpace`, `Fault`.
pub fn fresh(transaction: &mut Transaction<'_>, data: &[u8]) -> Result<Pointer> {
    let len = data.len() as u64;
    if len == 0 {
        return Ok(Pointer::NULL);
    }
    if len <= Class::MAX_BYTES {
        match transaction.allocate(len) {
            Ok(extent) => {
                transaction.precedes(SafetyRule::BytesBeforeTheirPointer, extent.addr, data.len())?;
                transaction.write(extent.addr, data)?;
                return Ok(Pointer::leaf(extent));
            }
            // No piece that large is left, but perhaps as many bytes in smaller ones.
            Err(Error::NoSpace) if len > PAGE_SIZE => {}
            Err(error) => return Err(error),
        }
    }
    tree_over(transaction, Pointer::NULL, 0, 0, data)
}

/// A tree whose bytes are those under `root` (in `size`), with `data` at `offset`; `root` has a height of its own.
fn tree_over(
    transaction: &mut Transaction<'_>,
    root: Pointer,
    size: u64,
    offset: u64,
    data: &[u8],
) -> Result<Pointer> {
    let end = offset + data.len() as u64;
    let height = height_for(end.max(size)).max(root.height()).max(1);
    let grown = raise(transaction, root, size, height)?;
    let part = Part { offset, data };
    Ok(cow(transaction, grown, height, part, size)?.with_height(height))
}

/// The same `size` bytes as a tree of `height` (1 or more): big root extents become nodes over their pieces.
pub(super) fn raise(
    transaction: &mut Transaction<'_>,
    root: Pointer,
    size: u64,
    height: u8,
) -> Result<Pointer> {
    let mut pointer = root.with_height(0);
    let mut level = root.height();
    if pointer.is_null() {
        return Ok(Pointer::NULL);
    }
    if level == 0 {
        let Some(extent) = root_extent(root, Addr::NULL)? else { return Ok(Pointer::NULL) };
        level = height_for(extent.bytes()).max(1);
        pointer = pieces(transaction, extent, size, level)?;
    }
    while level < height {
        let mut node = Node::empty();
        node.set(0, pointer);
        pointer = node.write(transaction)?;
        level += 1;
    }
    Ok(pointer)
}

/// A node at `level` over the pieces of a root extent, as far as `size` bytes reach. What is smaller than a page is
/// copied into one.
fn pieces(transaction: &mut Transaction<'_>, extent: Extent, size: u64, level: u8) -> Result<Pointer> {
    if !extent.class.is_small() {
        let used = size.min(extent.bytes()).next_multiple_of(PAGE_SIZE);
        let retired = if broken(SafetyRule::OnlyUnusedPagesAreRetired) { used - PAGE_SIZE } else { used };
        for page in (retired..extent.bytes()).step_by(PAGE_SIZE as usize) {
            transaction.retire(Extent { addr: extent.addr.add(page), class: Class::PAGE });
        }
        return split_leaf(transaction, extent.addr, used, level)?.write(transaction);
    }
    let page = transaction.allocate(PAGE_SIZE)?;
    transaction.copy(page.addr, extent.addr, extent.bytes())?;
    transaction.zero(page.addr.add(extent.bytes()), PAGE_SIZE - extent.bytes())?;
    transaction.retire(extent);
    let mut node = Node::empty();
    node.set(0, Pointer::leaf(page));
    node.write(transaction)
}

/// Bytes to store at an offset from the start of a subtree.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
}

impl<'a> Part<'a> {
    fn end(self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// What of it falls into the child that spans `start..start + len`, counted from there.
    fn within(self, start: u64, len: u64) -> Part<'a> {
        let from = self.offset.max(start);
        let to = self.end().min(start.saturating_add(len));
        let data = &self.data[(from - self.offset) as usize..(to - self.offset) as usize];
        Part { offset: from - start, data }
    }
}

/// A copy of the subtree with `part` stored in it. `size` is where its visible bytes end: slots past it are garbage,
/// and what the result shows beyond is zeros and `part`.
fn cow(
    transaction: &mut Transaction<'_>,
    pointer: Pointer,
    level: u8,
    part: Part<'_>,
    size: u64,
) -> Result<Pointer> {
    let old = if size == 0 { Under::Hole } else { under(pointer, level, Addr::NULL)? };
    if level == 0 {
        return cow_page(transaction, old, part, size);
    }
    let whole = part.offset == 0 && part.end() == span(level);
    if whole && let Under::Unwritten(extent) = old {
        return write_first(transaction, extent, part);
    }
    if whole && level <= MAX_LEAF_LEVEL {
        match transaction.allocate(span(level)) {
            Ok(extent) => {
                transaction.write(extent.addr, part.data)?;
                if size > 0 {
                    super::visit::retire_under(transaction, pointer, level, size)?;
                }
                return Ok(Pointer::leaf(extent));
            }
            Err(Error::NoSpace) => {}
            Err(error) => return Err(error),
        }
    }
    let mut node = Node::take(transaction, old, level)?;
    node.clear_past(level, size);
    let child_span = span(level - 1);
    let (first, last) = (slot_of(level, part.offset), slot_of(level, part.end() - 1));
    for slot in first..=last {
        let start = start_of(level, slot);
        let child = cow(
            transaction,
            node.get(slot),
            level - 1,
            part.within(start, child_span),
            size.saturating_sub(start).min(child_span),
        )?;
        node.set(slot, child);
    }
    node.write(transaction)
}

/// Stores `part` and zeros around it where nothing was written before: in place, because nobody sees bytes there.
fn write_first(transaction: &mut Transaction<'_>, extent: Extent, part: Part<'_>) -> Result<Pointer> {
    transaction.volume().require_own(extent)?;
    compose(transaction, extent, extent.bytes(), None, 0, part)?;
    Ok(Pointer::leaf(extent))
}

/// A page with the visible bytes of the old one, zeros, and `part`: a new one, unless the old was never written.
pub(super) fn cow_page(
    transaction: &mut Transaction<'_>,
    old: Under,
    part: Part<'_>,
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
    let from = if let Under::Leaf(extent) = old { Some(extent) } else { None };
    compose(transaction, page, PAGE_SIZE, from.map(|extent| extent.addr), size.min(PAGE_SIZE), part)?;
    if let Some(extent) = from {
        transaction.retire(extent);
    }
    Ok(Pointer::leaf(page))
}

/// Fills `new` (as far as `len`) with `size` old bytes, then zeros, and `part` over both.
pub(super) fn compose(
    transaction: &mut Transaction<'_>,
    new: Extent,
    len: u64,
    old: Option<Addr>,
    size: u64,
    part: Part<'_>,
) -> Result<()> {
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
    transaction.write(new.addr.add(part.offset), part.data)
}

/// A write within the visible bytes.
fn overwrite(
    transaction: &mut Transaction<'_>,
    selector: Selector,
    file: File,
    offset: u64,
    data: &[u8],
) -> Result<Change> {
    let end = offset + data.len() as u64;
    let height = file.root.height();
    if offset / 8 == (end - 1) / 8
        && (!selector.sealed() || broken(SafetyRule::SealedBytesStay))
        && let super::Piece::Data(addr, _) = super::find(transaction.medium(), file.root, offset / 8 * 8)?
    {
        transaction.volume().require_own(Extent { addr: addr.align_down(64), class: Class::SMALLEST })?;
        let mut word = transaction.medium().load(addr)?.to_le_bytes();
        let first = (offset % 8) as usize;
        word[first..first + data.len()].copy_from_slice(data);
        transaction.word(addr, u64::from_le_bytes(word));
        return Ok(Change::Below);
    }
    if height == 0 {
        return Ok(Change::Root(cover(transaction, file, offset, data, file.size)?, file.size));
    }
    if end > span(height) {
        return Ok(Change::Root(tree_over(transaction, file.root, file.size, offset, data)?, file.size));
    }
    // Down to the lowest pointer that commits all of it.
    let mut at = None;
    let (mut pointer, mut level) = (file.root.with_height(0), height);
    let (mut part, mut size) = (Part { offset, data }, file.size);
    while level > 0
        && let Under::Node(node) = under(pointer, level, at.unwrap_or(Addr::NULL))?
    {
        let slot = slot_of(level, part.offset);
        if slot != slot_of(level, part.end() - 1) {
            break;
        }
        let start = start_of(level, slot);
        part = part.within(start, span(level - 1));
        size = (size - start).min(span(level - 1));
        level -= 1;
        let slot = slot_addr(node, slot);
        pointer = Pointer::from_raw(transaction.medium().load(slot)?);
        at = Some(slot);
    }
    if part.offset / PAGE_SIZE != (part.end() - 1) / PAGE_SIZE {
        // A reader of several blocks could see some before and some after a change below the root.
        return Ok(Change::Root(tree_over(transaction, file.root, file.size, offset, data)?, file.size));
    }
    let new = cow(transaction, pointer, level, part, size)?;
    match at {
        Some(slot) => {
            transaction
                .volume()
                .require_own(Extent { addr: slot.align_down(PAGE_SIZE), class: Class::PAGE })?;
            transaction.word(slot, new.raw());
            Ok(Change::Below)
        }
        None => Ok(Change::Root(new.with_height(height), file.size)),
    }
}

/// A new root for a write that changes visible bytes and may go past the end: small extents are copied whole.
fn cover(
    transaction: &mut Transaction<'_>,
    file: File,
    offset: u64,
    data: &[u8],
    end: u64,
) -> Result<Pointer> {
    let File { root, size } = file;
    let whole = offset == 0 && data.len() as u64 >= size;
    if whole {
        super::retire_all(transaction, root, size)?;
        return fresh(transaction, data);
    }
    let old = if root.height() == 0 { root_extent(root, Addr::NULL)? } else { None };
    let visible = old.map_or(0, |extent| size.min(extent.bytes()));
    // Pages before and after `data` that were holes stay holes.
    let last = offset + data.len() as u64;
    let has_hole = visible.next_multiple_of(PAGE_SIZE) + PAGE_SIZE <= offset
        || last.max(visible).next_multiple_of(PAGE_SIZE) < end.max(size);
    if root.height() == 0 && end.max(size) <= COPY_WHOLE_BYTES && !has_hole {
        let new = transaction.allocate(end.max(size))?;
        compose(
            transaction,
            new,
            end.max(size),
            old.map(|extent| extent.addr),
            visible,
            Part { offset, data },
        )?;
        if let Some(extent) = old {
            transaction.retire(extent);
        }
        return Ok(Pointer::leaf(new));
    }
    tree_over(transaction, root, size, offset, data)
}

/// A write at or past the end: nothing visible changes before the size does.
fn append(transaction: &mut Transaction<'_>, file: File, offset: u64, data: &[u8]) -> Result<Pointer> {
    let File { root, size } = file;
    let end = offset + data.len() as u64;
    if root.height() > 0 && !root.is_null() && end <= span(root.height()) {
        let part = Part { offset, data };
        extend(transaction, root.with_height(0), root.height(), size, part)?;
        return Ok(root);
    }
    if root.height() == 0 {
        let old = root_extent(root, Addr::NULL)?;
        if let Some(extent) = old
            && end <= extent.bytes()
        {
            transaction.volume().require_own(extent)?;
            if offset > size && !broken(SafetyRule::GapBecomesZeros) {
                transaction.zero(extent.addr.add(size), offset - size)?;
            }
            transaction.write(extent.addr.add(offset), data)?;
            return Ok(root);
        }
        if size == 0 && offset == 0 {
            return fresh(transaction, data);
        }
        if end <= PAGE_SIZE {
            // Grow by half at least, so that a file appended to byte by byte is not copied for each.
            let room = end.max(size + size / 2).min(PAGE_SIZE);
            let new = transaction.allocate(room)?;
            let visible = old.map_or(0, |extent| size.min(extent.bytes()));
            compose(transaction, new, end, old.map(|extent| extent.addr), visible, Part { offset, data })?;
            if let Some(extent) = old {
                transaction.retire(extent);
            }
            return Ok(Pointer::leaf(new));
        }
    }
    // A higher tree over the old one, whose last blocks are then extended as always.
    let height = height_for(end).max(1);
    let grown = raise(transaction, root, size, height)?;
    if grown.is_null() {
        return Ok(cow(transaction, Pointer::NULL, height, Part { offset, data }, 0)?.with_height(height));
    }
    extend(transaction, grown, height, size, Part { offset, data })?;
    Ok(grown.with_height(height))
}

/// Stores `part`, which is past the visible bytes (`size`), into a node: in place, because nobody sees it yet. The gap
/// between becomes zeros.
fn extend(
    transaction: &mut Transaction<'_>,
    pointer: Pointer,
    level: u8,
    size: u64,
    part: Part<'_>,
) -> Result<()> {
    let Under::Node(node) = under(pointer, level, Addr::NULL)? else {
        return Err(Error::corrupt(Addr::NULL, "file tree without its node"));
    };
    transaction.volume().require_own(Extent { addr: node, class: Class::PAGE })?;
    let child_span = span(level - 1);
    let last = if part.data.is_empty() { FANOUT - 1 } else { slot_of(level, part.end() - 1) };
    let boundary = slot_of(level, size);
    for slot in boundary..=last.min(FANOUT - 1) {
        let start = start_of(level, slot);
        let at = slot_addr(node, slot);
        let visible = size.saturating_sub(start);
        let here =
            !part.data.is_empty() && part.offset < start.saturating_add(child_span) && part.end() > start;
        let inner =
            if here { part.within(start, child_span) } else { Part { offset: child_span, data: &[] } };
        if visible > 0 {
            extend_child(transaction, at, level - 1, visible, inner)?;
        } else if here {
            let child = cow(transaction, Pointer::NULL, level - 1, inner, 0)?;
            transaction.write_word(at, child.raw())?;
        } else {
            transaction.write_word(at, 0)?;
        }
    }
    Ok(())
}

/// The same for the child that holds the last visible bytes.
fn extend_child(
    transaction: &mut Transaction<'_>,
    at: Addr,
    level: u8,
    size: u64,
    part: Part<'_>,
) -> Result<()> {
    let pointer = Pointer::from_raw(transaction.medium().load(at)?);
    match under(pointer, level, at)? {
        Under::Node(_) => extend(transaction, pointer, level, size, part),
        Under::Leaf(extent) => {
            transaction.volume().require_own(extent)?;
            let gap_end = part.offset.min(span(level));
            if gap_end > size {
                transaction.zero(extent.addr.add(size), gap_end - size)?;
            }
            transaction.write(extent.addr.add(part.offset.min(span(level))), part.data)
        }
        Under::Hole | Under::Unwritten(_) if part.data.is_empty() => Ok(()),
        Under::Hole | Under::Unwritten(_) => {
            // The slot is visible, so it changes with the commit and not before.
            let child = cow(transaction, pointer, level, part, size)?;
            transaction.word(at, child.raw());
            Ok(())
        }
    }
}

/// Clears what an extension from `size` makes visible without writing it.
pub(super) fn clear_past(
    transaction: &mut Transaction<'_>,
    root: Pointer,
    size: u64,
    end: u64,
) -> Result<()> {
    if root.height() == 0 {
        if let Some(extent) = root_extent(root, Addr::NULL)?
            && size < extent.bytes()
        {
            transaction.volume().require_own(extent)?;
            transaction.zero(extent.addr.add(size), extent.bytes().min(end) - size)?;
        }
        return Ok(());
    }
    if root.is_null() || size >= span(root.height()) {
        return Ok(());
    }
    let nothing = Part { offset: span(root.height()).min(end), data: &[] };
    extend(transaction, root.with_height(0), root.height(), size, nothing)
}
