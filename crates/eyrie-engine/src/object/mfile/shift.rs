//! Removes whole pages from a file, and inserts holes into it. The pages behind the removed or inserted range
//! move by changes of pointers, without a copy of their bytes. Only a root extent smaller than a page is
//! copied.
//!
//! A new tree is built over the old leaves. A subtree is reused unchanged if it stays in place, or moves by a
//! multiple of its span.

use super::copy::raise;
use super::preallocated::end_of_storage;
use super::tree::{
    FANOUT, FileTree, MAX_HEIGHT, STORAGE_MAX, Subtree, TreeNode, height_for, root_over, slot_of, span,
    start_of,
};
use super::visit::retire_under;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Prepares the removal of `length` bytes from `offset` on. `length` and `offset` are multiples of a page,
/// and the range ends before the end of the file. Returns the new root, which the caller publishes together
/// with the new size in the header's hot line.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The file is unchanged after an error.
pub fn collapse(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    offset: u64,
    length: u64,
) -> Result<Pointer> {
    shift(
        transaction,
        file,
        ShiftedRange {
            storage_end: file.storage_end(),
            offset,
            moves_from: offset + length,
            length,
            inserts: false,
        },
    )
}

/// Prepares the insertion of a hole of `length` bytes at `offset`. `length` and `offset` are multiples of a
/// page, and `offset` is before the end of the file. Returns the new root, which the caller publishes
/// together with the new size in the header's hot line.
///
/// # Errors
/// `Invalid` if storage past the end would move past the largest offset. `NoSpace`, `Corrupt`, `Fault`. The
/// file is unchanged after an error.
pub fn insert(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    offset: u64,
    length: u64,
) -> Result<Pointer> {
    shift(
        transaction,
        file,
        ShiftedRange { storage_end: file.storage_end(), offset, moves_from: offset, length, inserts: true },
    )
}

/// A shift of the bytes of a file: the bytes that move, and their distance.
#[derive(Clone, Copy)]
struct ShiftedRange {
    /// Pointers of the old tree from this offset on have no meaning.
    storage_end: u64,
    /// Bytes before this offset stay in place.
    offset: u64,
    /// Bytes from this offset on move. Bytes between `offset` and `moves_from` are removed.
    moves_from: u64,
    length: u64,
    /// True if bytes move towards the end of the file, false if they move towards the start.
    inserts: bool,
}

/// The new location of a range of a file.
enum ShiftTarget {
    /// The range begins at this offset of the new file.
    At(u64),
    /// The range is removed.
    Nowhere,
    /// Parts of the range move by different distances.
    Apart,
}

impl ShiftedRange {
    fn target(self, start: u64, len: u64) -> ShiftTarget {
        let end = start.saturating_add(len);
        if end <= self.offset {
            ShiftTarget::At(start)
        } else if start >= self.moves_from {
            ShiftTarget::At(if self.inserts { start + self.length } else { start - self.length })
        } else if start >= self.offset && end <= self.moves_from {
            ShiftTarget::Nowhere
        } else {
            ShiftTarget::Apart
        }
    }
}

fn shift(transaction: &mut Transaction<'_>, file: FileTree, shift: ShiftedRange) -> Result<Pointer> {
    let (root, height) = (file.root, file.tree_height()?);
    let held = match root.height() {
        0 => file.root_extent()?.map_or(0, |extent| extent.bytes()),
        height => span(height),
    };
    let preallocated = root.is_preallocated();
    let reach =
        if preallocated { end_of_storage(transaction.medium(), file)? } else { shift.storage_end.min(held) };
    if shift.inserts && reach > STORAGE_MAX - shift.length {
        return Err(Error::Invalid("storage past the end would move past the largest offset"));
    }
    // If the file has no storage from `offset` on, only the size changes.
    if root.is_null() || shift.offset >= reach {
        return Ok(root);
    }
    let grown = raise(transaction, file, height)?;
    let end = if shift.inserts { reach + shift.length } else { reach };
    let mut builder = TreeBuilder::new(height_for(end).max(height));
    rebuild(transaction, &mut builder, shift, grown, 0)?;
    let new = builder.finish(transaction)?;
    if new.is_null() { Ok(new) } else { root_over(transaction, new, new.height(), preallocated) }
}

/// Moves the contents of a subtree to their new location. The subtree begins at offset `start` of the old
/// file.
fn rebuild(
    transaction: &mut Transaction<'_>,
    builder: &mut TreeBuilder,
    shift: ShiftedRange,
    subtree: Subtree,
    start: u64,
) -> Result<()> {
    let Subtree { pointer, level, .. } = subtree;
    if pointer.is_null() || start >= shift.storage_end {
        return Ok(());
    }
    match shift.target(start, span(level)) {
        // The new location is aligned to the span, so the subtree is reused as a whole.
        ShiftTarget::At(place) if place % span(level) == 0 => builder.put(transaction, level, place, pointer),
        ShiftTarget::Nowhere => retire_under(transaction, subtree, shift.storage_end - start),
        ShiftTarget::At(_) | ShiftTarget::Apart => {
            let old = subtree.look()?;
            let node = TreeNode::copy_for_change(transaction, old, level)?;
            (0..FANOUT).try_for_each(|slot| {
                let child = start.saturating_add(start_of(level, slot));
                rebuild(transaction, builder, shift, node.child(slot, level), child)
            })
        }
    }
}

/// A tree that is built from its start to its end.
struct TreeBuilder {
    height: u8,
    /// For each level from 1 on: the start of the node under construction, and the node.
    open: [Option<(u64, TreeNode)>; MAX_HEIGHT as usize],
}

impl TreeBuilder {
    fn new(height: u8) -> TreeBuilder {
        TreeBuilder { height, open: [const { None }; MAX_HEIGHT as usize] }
    }

    /// Adds a pointer at `level` whose span begins at `at`. All pointers that were added earlier are before
    /// `at`.
    fn put(&mut self, transaction: &mut Transaction<'_>, level: u8, at: u64, pointer: Pointer) -> Result<()> {
        // Nodes that end at or before `at` are complete and can be written.
        for above in 1..=self.height {
            let ended = |(start, _): &(u64, TreeNode)| at - start >= span(above);
            if self.open[usize::from(above) - 1].as_ref().is_some_and(ended) {
                self.close(transaction, above)?;
            }
        }
        for above in level + 1..=self.height {
            let start = at - at % span(above);
            self.open[usize::from(above) - 1].get_or_insert_with(|| (start, TreeNode::empty()));
        }
        self.set(level + 1, at, pointer);
        Ok(())
    }

    fn set(&mut self, level: u8, at: u64, pointer: Pointer) {
        if let Some((start, node)) = &mut self.open[usize::from(level) - 1] {
            node.set(slot_of(level, at - *start), pointer);
        }
    }

    /// Writes the node under construction at `level`, and stores its pointer in the node above. Returns the
    /// pointer.
    fn close(&mut self, transaction: &mut Transaction<'_>, level: u8) -> Result<Pointer> {
        let Some((start, node)) = self.open[usize::from(level) - 1].take() else {
            return Ok(Pointer::NULL);
        };
        let pointer = node.write(transaction)?;
        if level < self.height {
            self.set(level + 1, start, pointer);
        }
        Ok(pointer)
    }

    /// Writes all unfinished nodes, and returns the root.
    fn finish(mut self, transaction: &mut Transaction<'_>) -> Result<Pointer> {
        let mut root = Pointer::NULL;
        for level in 1..=self.height {
            root = self.close(transaction, level)?;
        }
        Ok(if root.is_null() { Pointer::NULL } else { root.with_height(self.height) })
    }
}
