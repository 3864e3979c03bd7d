//! Clones of ranges: two files, or two ranges of one file, share extents.
//!
//! A clone sets the shared bit in all pointers to written pages of the cloned range of the source, and gives
//! the target pointers to the same extents. The bits are set in place, because a bit does no harm if no clone
//! follows.
//!
//! Safe when power fails: the bits of the source persist before the commit of the target. The counts of
//! pointers are in memory. After a crash, the walk through the volume counts the pointers with the bit.

use eyrie_medium::rules::SafetyRule;
use eyrie_medium::{Addr, PAGE_SIZE};

use super::append::clear_past;
use super::copy::raise;
use super::leaf::{SpanContents, find_leaf, piece_at};
use super::read::seek;
use super::tree::{
    FANOUT, FileTree, MAX_HEIGHT, Subtree, TreeNode, Under, height_for, root_over, slot_of, span, start_of,
};
use super::visit::{retire_all, retire_under};
use crate::extent::{Class, Extent};
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Sets the shared bit in every pointer to written pages between the offsets `from` and `end` of a file.
/// `root_at` is the address of its root pointer. Afterwards the caller reads the root again, because the root
/// itself may have got the bit.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn set_shared_bits(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    root_at: Addr,
    (from, end): (u64, u64),
) -> Result<()> {
    match file.root.height() {
        0 => match file.root_extent()? {
            Some(extent) if from < extent.bytes() && !file.root.is_shared() && !extent.class.is_small() => {
                set_shared_bit(transaction, root_at, file.root)
            }
            _ => Ok(()),
        },
        height if height > MAX_HEIGHT => Err(file.impossible_height()),
        height => match file.subtree().look()? {
            Under::Leaf(_) => set_shared_bit(transaction, root_at, file.root),
            Under::Node(_) if from < span(height) => {
                // Every node has a page of its own.
                let mut nodes = transaction.volume().space().most_extents();
                set_bits_under(transaction, file.subtree(), (from, end.min(span(height))), &mut nodes)
            }
            _ => Ok(()),
        },
    }
}

fn set_shared_bit(transaction: &mut Transaction<'_>, at: Addr, pointer: Pointer) -> Result<()> {
    transaction.precedes(SafetyRule::SharedBitsBeforeTheClone, at, size_of::<u64>())?;
    transaction.write_word(at, pointer.shared().raw())
}

/// Sets the bits of the pointers below a node, for a range that is not empty and counts from the start of the
/// subtree. Reads at most `nodes` nodes.
fn set_bits_under(
    transaction: &mut Transaction<'_>,
    subtree: Subtree,
    (from, end): (u64, u64),
    nodes: &mut usize,
) -> Result<()> {
    let level = subtree.level;
    let Under::Node(addr) = subtree.look()? else { return Ok(()) };
    *nodes = nodes.checked_sub(1).ok_or_else(|| Error::corrupt(addr, "endless storage of an object"))?;
    transaction.volume().require_possible_extent(Extent { addr, class: Class::PAGE })?;
    let node = TreeNode::read(transaction.medium(), addr)?;
    for slot in slot_of(level, from)..=slot_of(level, end - 1) {
        let child = node.child(slot, level);
        match child.look()? {
            Under::Leaf(_) => set_shared_bit(transaction, child.at, child.pointer)?,
            Under::Node(_) => {
                let start = start_of(level, slot);
                let to = (end - start).min(span(level - 1));
                set_bits_under(transaction, child, (from.saturating_sub(start), to), nodes)?;
            }
            Under::Hole | Under::Shared(_) | Under::Unwritten(_) => {}
        }
    }
    Ok(())
}

/// A range of a source, and its offset in the target. All three numbers are multiples of the size of a page,
/// except the length of a range that ends at the end of the source.
#[derive(Clone, Copy, Debug)]
pub struct ClonedRange {
    /// Offset in the source.
    pub from: u64,
    /// Offset in the target.
    pub to: u64,
    /// Length in bytes, at least 1.
    pub length: u64,
}

/// The result of a prepared clone.
pub struct PreparedClone {
    /// The root of the target. The caller publishes it together with the new size in the header's hot line.
    pub root: Pointer,
    /// True if the range has holes of whole pages.
    pub has_holes: bool,
    /// The extents to which one more pointer leads after the commit. The caller counts these pointers before
    /// the commit.
    pub shared: Vec<Extent>,
}

/// Prepares a clone of a range. The caller has called [`set_shared_bits`] for the range of the source, and
/// has read both roots after that call. If source and target are one file, the two ranges do not overlap.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The files are unchanged after an error, except for shared bits.
pub fn clone_range(
    transaction: &mut Transaction<'_>,
    source: FileTree,
    target: FileTree,
    range: ClonedRange,
) -> Result<PreparedClone> {
    let ClonedRange { from, to, length } = range;
    let size = target.size.max(to + length);
    let mut target = target.with_root(clear_past(transaction, target, to)?);
    let preallocated = target.root.is_preallocated();
    if to == 0 && length >= target.size && !preallocated {
        retire_all(transaction, target)?;
        target = FileTree { root: Pointer::NULL, size: 0, at: target.at };
        if let Some(extent) = single_extent(source)?
            && from == 0
            && length == source.size
        {
            return clone_single(transaction, source, extent);
        }
    }
    let end = (to + length).next_multiple_of(PAGE_SIZE);
    let height = target.tree_height()?.max(height_for(size));
    let grown = raise(transaction, target, height)?;
    let mut clone = CloneInProgress { source, from, to, end, has_holes: false, shared: Vec::new() };
    let valid = target.storage_end();
    let root = clone.place(transaction, grown, 0, valid)?;
    let CloneInProgress { has_holes, shared, .. } = clone;
    let root = if root.is_null() { root } else { root_over(transaction, root, grown.level, preallocated)? };
    Ok(PreparedClone { root, has_holes, shared })
}

/// Prepares a clone of a whole file that is one extent. The target gets the same root, or a copy of an extent
/// that is smaller than a page.
fn clone_single(
    transaction: &mut Transaction<'_>,
    source: FileTree,
    extent: Extent,
) -> Result<PreparedClone> {
    transaction.volume().require_possible_extent(extent)?;
    let has_holes = source.size > extent.bytes().next_multiple_of(PAGE_SIZE);
    if !extent.class.is_small() {
        return Ok(PreparedClone { root: source.root, has_holes, shared: vec![extent] });
    }
    let visible = source.size.min(extent.bytes());
    let new = transaction.allocate(visible)?;
    transaction.copy(new.addr, extent.addr, visible)?;
    Ok(PreparedClone { root: Pointer::leaf(new), has_holes, shared: Vec::new() })
}

fn single_extent(file: FileTree) -> Result<Option<Extent>> {
    if file.root.height() == 0 { file.root_extent() } else { Ok(None) }
}

/// A clone whose pointers are being placed in the tree of the target.
struct CloneInProgress {
    source: FileTree,
    /// Offset of the range in the source.
    from: u64,
    /// Offset of the range in the target.
    to: u64,
    /// The end of the range in the target, rounded up to whole pages.
    end: u64,
    has_holes: bool,
    shared: Vec<Extent>,
}

impl CloneInProgress {
    /// Copies a subtree of the target, and puts the pointers of the range into the copy. The subtree begins
    /// at offset `start` of the target. The slots of the subtree past its first `size` bytes are garbage.
    fn place(
        &mut self,
        transaction: &mut Transaction<'_>,
        subtree: Subtree,
        start: u64,
        size: u64,
    ) -> Result<Pointer> {
        let level = subtree.level;
        let whole = self.to <= start && start.saturating_add(span(level)) <= self.end;
        if whole {
            let found = self.find(transaction, start - self.to + self.from, level)?;
            if !matches!(found, SpanContents::Several) && size > 0 {
                retire_under(transaction, subtree, size)?;
            }
            match found {
                SpanContents::Hole => {
                    self.has_holes = true;
                    return Ok(Pointer::NULL);
                }
                SpanContents::Pages(pointer) => {
                    let extent = pointer.extent().ok_or_else(|| self.impossible_class())?;
                    transaction.volume().require_possible_extent(extent)?;
                    self.shared.push(extent);
                    return Ok(pointer);
                }
                SpanContents::Small(extent) => return self.copy_small(transaction, extent),
                SpanContents::Several if level == 0 => {
                    return Err(Error::corrupt(self.source.at, "extent that is no whole page"));
                }
                SpanContents::Several => {}
            }
        }
        let old = if size == 0 { Under::Hole } else { subtree.look()? };
        let mut node = TreeNode::copy_for_change(transaction, old, level)?;
        node.clear_past(level, size);
        let first = slot_of(level, self.to.saturating_sub(start));
        let last = slot_of(level, self.end - start - 1).min(FANOUT - 1);
        for slot in first..=last {
            let within = start_of(level, slot);
            let left = size.saturating_sub(within).min(span(level - 1));
            let child = self.place(transaction, node.child(slot, level), start + within, left)?;
            node.set(slot, child);
        }
        if node.is_empty() { Ok(Pointer::NULL) } else { node.write(transaction) }
    }

    /// True if no byte of the source is written in the span of `level` at offset `from`.
    fn is_hole(&self, transaction: &Transaction<'_>, from: u64, level: u8) -> Result<bool> {
        let until_its_end = FileTree { size: from + span(level), ..self.source };
        Ok(seek(transaction.medium(), until_its_end, from, false, true)?.is_none())
    }

    #[cold]
    fn impossible_class(&self) -> Error {
        Error::corrupt(self.source.at, "pointer of an unknown class")
    }

    /// Copies the bytes of an extent smaller than a page into a new page.
    fn copy_small(&self, transaction: &mut Transaction<'_>, extent: Extent) -> Result<Pointer> {
        transaction.volume().require_possible_extent(extent)?;
        let page = transaction.allocate(PAGE_SIZE)?;
        let visible = self.source.size.min(extent.bytes());
        transaction.copy(page.addr, extent.addr, visible)?;
        transaction.zero(page.addr.add(visible), PAGE_SIZE - visible)?;
        Ok(Pointer::leaf(page))
    }

    /// Returns the contents of the span of `level` at offset `from` of the source.
    fn find(&self, transaction: &Transaction<'_>, from: u64, level: u8) -> Result<SpanContents> {
        // A large hole is found as a whole, and not page by page.
        if level > 0 && self.is_hole(transaction, from, level)? {
            return Ok(SpanContents::Hole);
        }
        let root = self.source.root;
        if let Some(extent) = single_extent(self.source)? {
            return Ok(piece_at(root, extent, from, level));
        }
        let height = root.height();
        if root.is_null() || from >= span(height) {
            return Ok(SpanContents::Hole);
        }
        if level > height || !from.is_multiple_of(span(level)) {
            return Ok(SpanContents::Several);
        }
        find_leaf(transaction.medium(), self.source.subtree(), from, level)
    }
}
