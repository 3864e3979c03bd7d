//! Writing: in place, by an append, or by a partial copy-on-write.

use eyrie_medium::PAGE_SIZE;
use eyrie_medium::rules::{SafetyRule, broken};

use super::append::append;
use super::copy::{FileChange, compose, overwrite_below_root, tree_over};
use super::fresh::fresh;
use super::own::is_shared_at;
use super::part::FilePart;
use super::preallocated::store_pages;
use super::read::{FilePiece, find};
use super::tree::{COPY_WHOLE_BYTES, FileTree, span};
use super::visit::retire_all;
use crate::Result;
use crate::object::header::Selector;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;

/// Prepares a write of `data` at `offset` of a file. `data` is not empty. The write ends at or before
/// [`FILE_MAX`](crate::op::FILE_MAX).
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The file is unchanged after an error.
pub fn write(
    transaction: &mut Transaction<'_>,
    selector: Selector,
    file: FileTree,
    offset: u64,
    data: &[u8],
) -> Result<FileChange> {
    let end = offset + data.len() as u64;
    // No byte past the end is visible. Therefore `append` stores the data where no reader looks, and the
    // caller publishes root and size.
    if offset >= file.size {
        let root = append(transaction, file, offset, data)?;
        return Ok(FileChange::Root(root, end));
    }
    let part = FilePart::new(file.size, offset, data);
    if end <= file.size {
        return overwrite(transaction, selector, file, part);
    }
    let root = if file.root.is_preallocated() {
        store_pages(transaction, file, part)?
    } else {
        overwrite_by_new_root(transaction, file, part, end)?
    };
    Ok(FileChange::Root(root, end))
}

/// Overwrites visible bytes by the cheapest kind of update that is atomic.
fn overwrite(
    transaction: &mut Transaction<'_>,
    selector: Selector,
    file: FileTree,
    part: FilePart<'_>,
) -> Result<FileChange> {
    if let Some(change) = overwrite_word(transaction, selector, file, part)? {
        return Ok(change);
    }
    let height = file.root.height();
    // A single extent has no pointer below the root, so the change needs a new root.
    if height == 0 {
        let root = overwrite_by_new_root(transaction, file, part, file.size)?;
        return Ok(FileChange::Root(root, file.size));
    }
    if part.end() <= span(height)
        && let Some(change) = overwrite_below_root(transaction, file, part)?
    {
        return Ok(change);
    }
    Ok(FileChange::Root(tree_over(transaction, file, part)?, file.size))
}

/// Overwrites bytes of one aligned word in place. Returns `None` if the bytes are in two or more words, have
/// no stored data, belong to a sealed object, or are in a shared page.
#[inline]
fn overwrite_word(
    transaction: &mut Transaction<'_>,
    selector: Selector,
    file: FileTree,
    part: FilePart<'_>,
) -> Result<Option<FileChange>> {
    let FilePart { offset, data, .. } = part;
    if offset / 8 == (part.end() - 1) / 8
        && (!selector.sealed() || broken(SafetyRule::SealedBytesStay))
        && let FilePiece::Data(extent, from) = find(transaction.medium(), file, offset / 8 * 8)?
        && (!is_shared_at(transaction, file, offset)? || broken(SafetyRule::SharedBytesStay))
    {
        // The pointer may be damaged. Refuse to store outside the space for extents.
        transaction.volume().require_possible_extent(extent)?;
        let addr = extent.addr.add(from);
        let mut word = transaction.medium().load(addr)?.to_le_bytes();
        let first = (offset % 8) as usize;
        word[first..first + data.len()].copy_from_slice(data);
        transaction.word(addr, u64::from_le_bytes(word));
        return Ok(Some(FileChange::BelowRoot));
    }
    Ok(None)
}

/// Prepares a new root for a write that changes visible bytes and may extend past the end. A file with a root
/// of height 0 is copied whole if its new size is at most [`COPY_WHOLE_BYTES`] and it has no hole of a whole
/// page.
fn overwrite_by_new_root(
    transaction: &mut Transaction<'_>,
    file: FileTree,
    part: FilePart<'_>,
    end: u64,
) -> Result<Pointer> {
    let FileTree { root, size, .. } = file;
    let FilePart { offset, data, .. } = part;
    let whole = offset == 0 && data.len() as u64 >= size;
    // The write replaces every visible byte, so no old byte is copied.
    if whole {
        retire_all(transaction, file)?;
        return fresh(transaction, data);
    }
    let old = if root.height() == 0 { file.root_extent()? } else { None };
    let visible = old.map_or(0, |extent| size.min(extent.bytes()));
    // Holes of whole pages before and after `data` must stay holes. A single extent cannot have holes.
    let has_hole = visible.next_multiple_of(PAGE_SIZE) + PAGE_SIZE <= offset
        || part.end().max(visible).next_multiple_of(PAGE_SIZE) < end.max(size);
    if root.height() == 0 && end.max(size) <= COPY_WHOLE_BYTES && !has_hole {
        let new = transaction.allocate(end.max(size))?;
        compose(transaction, new, end.max(size), old.map(|extent| extent.addr), visible, part)?;
        if let Some(extent) = old {
            transaction.retire(extent);
        }
        return Ok(Pointer::leaf(new));
    }
    tree_over(transaction, file, part)
}
