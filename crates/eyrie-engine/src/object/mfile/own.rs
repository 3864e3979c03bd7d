//! Pages to which only one pointer leads. A change that stores bytes in place asks here if another pointer
//! may lead to the page.

use eyrie_medium::PAGE_SIZE;
use eyrie_medium::rules::{SafetyRule, broken};

use super::copy::tree_over;
use super::leaf::{SpanContents, find_leaf};
use super::part::FilePart;
use super::tree::{COPY_WHOLE_BYTES, FileTree, MAX_HEIGHT, span};
use crate::Result;
use crate::extent::Extent;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;

/// True if the byte at `offset` is in a page to which another pointer may lead. The byte is before the end of
/// the file, or in its last page.
#[inline]
pub(super) fn is_shared_at(transaction: &Transaction<'_>, file: FileTree, offset: u64) -> Result<bool> {
    Ok(transaction.volume().space().has_shared_pages() && find_shared(transaction, file, offset)?)
}

#[cold]
fn find_shared(transaction: &Transaction<'_>, file: FileTree, offset: u64) -> Result<bool> {
    match file.root.height() {
        0 => Ok(file.root_extent()?.is_some_and(|extent| offset < extent.bytes() && file.root.is_shared())),
        height if height <= MAX_HEIGHT && offset < span(height) => {
            let found = find_leaf(transaction.medium(), file.subtree(), offset, 0)?;
            Ok(matches!(found, SpanContents::Pages(page) if page.is_shared()))
        }
        _ => Ok(false),
    }
}

/// Returns the file with a last page to which no other pointer leads, so that the caller can store bytes past
/// the end in place. The commit publishes the new root. The root stays the same if the bytes past the end are
/// in no shared page.
#[inline]
pub(super) fn with_own_tail(transaction: &mut Transaction<'_>, file: FileTree) -> Result<FileTree> {
    if transaction.volume().space().has_shared_pages() { own_tail(transaction, file) } else { Ok(file) }
}

#[cold]
fn own_tail(transaction: &mut Transaction<'_>, file: FileTree) -> Result<FileTree> {
    let size = file.size;
    // All pages that a tree has past the last page of the file are unwritten, so they are not shared. But a
    // single extent may have shared pages there.
    let may_share = !size.is_multiple_of(PAGE_SIZE) || file.root.height() == 0;
    if !may_share || !find_shared(transaction, file, size)? || broken(SafetyRule::SharedTailIsCopied) {
        return Ok(file);
    }
    if let (0, Some(extent)) = (file.root.height(), file.root.extent())
        && size <= COPY_WHOLE_BYTES
    {
        let new = transaction.allocate(size)?;
        transaction.copy(new.addr, extent.addr, size)?;
        transaction.retire(extent);
        return Ok(file.with_root(Pointer::leaf(new)));
    }
    let root = tree_over(transaction, file, FilePart::new(size, size, &[]))?;
    Ok(file.with_root(root))
}

/// Copies a shared extent. Returns a pointer to the copy. No other pointer leads to the copy.
pub(super) fn own_copy(transaction: &mut Transaction<'_>, extent: Extent) -> Result<Pointer> {
    let new = transaction.allocate(extent.bytes())?;
    transaction.copy(new.addr, extent.addr, extent.bytes())?;
    transaction.retire(extent);
    Ok(Pointer::leaf(new))
}
