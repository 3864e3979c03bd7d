//! Allocating ranges of a file, punching holes, and zeroing.
//!
//! A leaf with the unwritten bit in its pointer reads as zeros. Therefore an allocation of whole pages stores
//! no bytes in them. The first write to an unwritten page stores its bytes in place, because no reader sees
//! the earlier bytes of the page.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Medium, PAGE_SIZE};

use super::append::clear_past;
use super::copy::{compose, copy_page, raise};
use super::own::own_copy;
use super::part::FilePart;
use super::tree::{
    COPY_WHOLE_BYTES, FileTree, MAX_LEAF_POINTER_LEVEL, STORAGE_MAX, Subtree, TreeNode, Under, height_for,
    root_over, slot_of, span, start_of,
};
use super::visit::retire_under;
use crate::extent::Extent;
use crate::object::header::Selector;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Zeros for those bytes of a range that do not fill a whole page. The two ends of a range together have
/// fewer than two pages of such bytes.
static ZEROS: [u8; 2 * PAGE_SIZE as usize] = [0; 2 * PAGE_SIZE as usize];

/// The new state of the pages of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FillMode {
    /// Pages become holes. In a page that is only partly in the range, the bytes of the range become zeros.
    Hole,
    /// Holes get storage. If `own`, shared pages are copied. Other pages stay as they are.
    Storage { own: bool },
    /// All pages get storage, and the bytes of the range read as zeros. If `reuse`, leaves of the tree that
    /// lie wholly in the range keep their storage, unless they are shared.
    Zeros { reuse: bool },
}

/// A range of bytes, counted from the start of a file or of a subtree.
#[derive(Clone, Copy)]
struct FileRange {
    start: u64,
    end: u64,
}

impl FileRange {
    /// Returns the part of the range that is in the child at `start..start + len`. The result counts from the
    /// start of the child.
    fn within(self, start: u64, len: u64) -> FileRange {
        let to = self.end.min(start.saturating_add(len));
        FileRange { start: self.start.max(start) - start, end: to - start }
    }

    fn covers(self, level: u8) -> bool {
        self.start == 0 && self.end >= span(level)
    }

    /// True if the range extends past the last page of a file of `size` bytes.
    fn is_past(self, size: u64) -> bool {
        self.end > size.next_multiple_of(PAGE_SIZE)
    }

    /// Returns the bytes of all pages with bytes of the range.
    fn page_bytes(self) -> u64 {
        self.end.next_multiple_of(PAGE_SIZE) - self.start / PAGE_SIZE * PAGE_SIZE
    }

    fn has_whole_page(self) -> bool {
        self.start.next_multiple_of(PAGE_SIZE) + PAGE_SIZE <= self.end
    }
}

/// Prepares a hole from `offset` to `end`. Returns the new root, which the caller publishes in the header's
/// hot line.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The file is unchanged after an error.
pub fn punch(transaction: &mut Transaction<'_>, file: FileTree, offset: u64, end: u64) -> Result<Pointer> {
    let range = FileRange { start: offset, end: end.min(file.storage_end().next_multiple_of(PAGE_SIZE)) };
    if file.root.is_null() || range.start >= range.end {
        return Ok(file.root);
    }
    fill(transaction, file, file.size, range, FillMode::Hole)
}

/// The bytes of a range after an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AllocatedAs {
    /// The bytes stay.
    Storage,
    /// The bytes stay, and no page of the range is shared.
    OwnStorage,
    /// The bytes become zeros.
    Zeros,
}

/// Prepares storage for the bytes from `offset` to `end`. `end` may be past `new_size`. The new size is at
/// least the old size. Returns the new root, which the caller publishes together with the new size in the
/// header's hot line.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Fault`. The file is unchanged after an error.
pub fn allocate(
    transaction: &mut Transaction<'_>,
    selector: Selector,
    file: FileTree,
    new_size: u64,
    (offset, end): (u64, u64),
    wanted: AllocatedAs,
) -> Result<Pointer> {
    let (zeros, own) = (wanted == AllocatedAs::Zeros, wanted == AllocatedAs::OwnStorage);
    let range = FileRange { start: offset, end };
    let is_past = range.is_past(new_size);
    // With the commit, the slots past the end of the file get a meaning. A failed append may have left
    // pointers in these slots, so they are cleared first.
    let file = match is_past {
        true if broken(SafetyRule::SlotsPastTheEndBecomeHoles) => file,
        true => file.with_root(clear_past(transaction, file, u64::MAX)?),
        false => file.with_root(clear_past(transaction, file, new_size)?),
    };
    let space = transaction.volume().space();
    let mut nodes = space.most_extents();
    let valid =
        if is_past { STORAGE_MAX } else { file.storage_end().max(new_size).next_multiple_of(PAGE_SIZE) };
    let missing = missing(transaction.medium(), FileTree { size: valid, ..file }, range, own, &mut nodes)?;
    if missing > space.usage().free {
        return Err(Error::NoSpace);
    }
    if missing == 0 && !zeros && (!is_past || file.root.is_preallocated()) {
        return Ok(file.root);
    }
    // A reused leaf becomes unwritten, and a later write stores into an unwritten leaf in place. But the
    // bytes that a view of a sealed file shows must stay unchanged. Therefore a sealed file reuses no leaf.
    let how = if zeros { FillMode::Zeros { reuse: !selector.sealed() } } else { FillMode::Storage { own } };
    fill(transaction, file, new_size, range, how)
}

/// Returns the number of bytes of a range that need new storage: those without storage, and if `own` also
/// those in shared pages. Reads at most `nodes` nodes.
fn missing(medium: &Medium, file: FileTree, range: FileRange, own: bool, nodes: &mut usize) -> Result<u64> {
    let FileTree { root, size, .. } = file;
    let height = root.height();
    let held = match single_extent(file)? {
        _ if root.is_null() => 0,
        Some(extent) => extent.bytes(),
        None => span(height),
    };
    let beyond = range.end.min(size).saturating_sub(range.start.max(held));
    if range.start >= held.min(range.end) {
        return Ok(beyond);
    }
    let within = range.within(0, held);
    if height == 0 {
        return Ok(beyond + if own && root.is_shared() { within.page_bytes() } else { 0 });
    }
    Ok(beyond + missing_under(medium, file.subtree(), size, within, own, nodes)?)
}

/// Returns the number of bytes under one pointer that [`missing`] counts, in whole pages. `size` and `range`
/// count from the start of the subtree.
fn missing_under(
    medium: &Medium,
    subtree: Subtree,
    size: u64,
    range: FileRange,
    own: bool,
    nodes: &mut usize,
) -> Result<u64> {
    let level = subtree.level;
    let addr = match subtree.look()? {
        Under::Shared(_) if own => return Ok(range.page_bytes()),
        Under::Leaf(_) | Under::Shared(_) | Under::Unwritten(_) => return Ok(0),
        Under::Hole => return Ok(range.page_bytes()),
        Under::Node(addr) => addr,
    };
    *nodes = nodes.checked_sub(1).ok_or_else(|| Error::corrupt(addr, "endless storage of an object"))?;
    let node = TreeNode::read(medium, addr)?;
    let mut bytes = 0;
    for slot in slot_of(level, range.start)..=slot_of(level, range.end - 1) {
        let (start, len) = (start_of(level, slot), span(level - 1));
        let child = if start < size { node.child(slot, level) } else { Subtree::hole(level - 1) };
        let within = range.within(start, len);
        bytes += missing_under(medium, child, size.saturating_sub(start), within, own, nodes)?;
    }
    Ok(bytes)
}

/// Returns the extent of a root of height 0, or `None` if the root is null or a tree.
fn single_extent(file: FileTree) -> Result<Option<Extent>> {
    if file.root.height() == 0 { file.root_extent() } else { Ok(None) }
}

/// Fills `range` of a file according to `how`, and returns the new root. The range is not empty. The file
/// gets the size `new_size`. If the file has storage past this size afterwards, no slot of its nodes is
/// garbage.
fn fill(
    transaction: &mut Transaction<'_>,
    mut file: FileTree,
    new_size: u64,
    mut range: FileRange,
    how: FillMode,
) -> Result<Pointer> {
    let preallocated = file.root.is_preallocated() || range.is_past(new_size);
    // A single extent may be longer than the file, for example because of its size class. Its bytes past the
    // last page of the file are not storage that `fallocate` has allocated.
    if let Some(extent) = single_extent(file)? {
        let visible = file.size.min(extent.bytes());
        let keeps = matches!(how, FillMode::Storage { .. });
        let must_copy = how == FillMode::Storage { own: true } && file.root.is_shared();
        let reached = if how == FillMode::Hole { visible.next_multiple_of(PAGE_SIZE) } else { visible };
        if !keeps && range.covers(0) && range.end >= reached {
            transaction.retire(extent);
            file = file.with_root(Pointer::NULL);
        } else if !preallocated
            && !must_copy
            && let Some(new) =
                fill_single(transaction, (file.root, extent), (file.size, new_size), range, how)?
        {
            return Ok(new);
        }
    }
    let mut height = file.tree_height()?;
    if how == FillMode::Hole {
        range.end = range.end.min(span(height));
        if file.root.is_null() || range.start >= range.end {
            return Ok(file.root);
        }
    } else {
        height = height.max(height_for(range.end));
    }
    let grown = raise(transaction, file, height)?;
    let new = refill(transaction, grown, range, if preallocated { STORAGE_MAX } else { new_size }, how)?;
    if new.is_null() { Ok(new) } else { root_over(transaction, new, height, preallocated) }
}

/// Fills a range of a file whose bytes are in one extent, and returns a root that is again one extent. `root`
/// leads to this extent. Returns `None` if the file needs a tree. A tree is needed in two cases: the extent
/// must be replaced but the file is too long to be copied whole, or a whole page of the range becomes a hole
/// or unwritten.
fn fill_single(
    transaction: &mut Transaction<'_>,
    (root, extent): (Pointer, Extent),
    (from, to): (u64, u64),
    range: FileRange,
    how: FillMode,
) -> Result<Option<Pointer>> {
    let keeps = matches!(how, FillMode::Storage { .. });
    let held = extent.bytes();
    let visible = from.min(held);
    let len = if how == FillMode::Hole { visible } else { visible.max(range.end) };
    let zeroed = if keeps { 0..0 } else { range.start.min(len)..range.end.min(len) };
    if len <= held && zeroed.is_empty() {
        return Ok(Some(root));
    }
    let most = if len <= held { COPY_WHOLE_BYTES } else { PAGE_SIZE };
    if len > most || !keeps && range.has_whole_page() {
        return Ok(None);
    }
    let new = transaction.allocate(len)?;
    let part = FilePart::new(to, zeroed.start, &ZEROS[..(zeroed.end - zeroed.start) as usize]);
    // The new extent and the file may both be longer than `len`. Therefore all bytes of the extent within the
    // file are filled.
    compose(transaction, new, new.bytes().min(to), Some(extent.addr), visible, part)?;
    transaction.retire(extent);
    Ok(Some(Pointer::leaf(new)))
}

/// Copies a subtree, fills `range` in the copy according to `how`, and returns the pointer to the copy. The
/// range is not empty. Slots of the subtree past `size` are garbage.
fn refill(
    transaction: &mut Transaction<'_>,
    subtree: Subtree,
    range: FileRange,
    size: u64,
    how: FillMode,
) -> Result<Pointer> {
    let Subtree { pointer, level, .. } = subtree;
    let mut old = if size == 0 { Under::Hole } else { subtree.look()? };
    let whole = range.covers(level);
    match (old, how) {
        (Under::Hole, FillMode::Hole) => return Ok(Pointer::NULL),
        (Under::Leaf(_), FillMode::Storage { .. })
        | (Under::Shared(_), FillMode::Storage { own: false })
        | (Under::Unwritten(_), FillMode::Storage { .. } | FillMode::Zeros { .. }) => {
            return Ok(pointer);
        }
        (_, FillMode::Hole) if whole => {
            retire_under(transaction, subtree, size)?;
            return Ok(Pointer::NULL);
        }
        (Under::Unwritten(_), FillMode::Hole) if level == 0 => return Ok(pointer),
        (Under::Leaf(extent), FillMode::Zeros { reuse: true }) if whole => {
            return Ok(Pointer::unwritten(extent));
        }
        (Under::Leaf(extent) | Under::Shared(extent), FillMode::Zeros { .. }) if whole => {
            transaction.retire(extent);
            old = Under::Hole;
        }
        (Under::Shared(extent), FillMode::Storage { own: true }) if whole || level == 0 => {
            match own_copy(transaction, extent) {
                // The volume has no free extent of this size, or the host has no memory for one. Single pages
                // may be left.
                Err(error) if error.is_full() && level > 0 => {}
                copied => return copied,
            }
        }
        (Under::Leaf(_) | Under::Shared(_), _) if level == 0 => {
            let data = &ZEROS[..(range.end - range.start) as usize];
            return copy_page(transaction, old, FilePart::new(size, range.start, data), size);
        }
        _ => {}
    }
    // A span that the file fills only in part gets a node instead of a large leaf. An append then fills the
    // slots of the node. For a preallocated file, `size` is `STORAGE_MAX`, so every span counts as full.
    let is_large = whole && level <= MAX_LEAF_POINTER_LEVEL && size >= span(level);
    if matches!(old, Under::Hole) && (level == 0 || is_large) {
        match transaction.allocate(span(level)) {
            Ok(extent) => return Ok(Pointer::unwritten(extent)),
            // The volume has no free extent of this size, or the host has no memory for one. Several smaller
            // extents together may hold the bytes.
            Err(error) if error.is_full() && level > 0 => {}
            Err(error) => return Err(error),
        }
    }
    refill_node(transaction, old, level, range, size, how)
}

/// Copies a node, and fills `range` in the copy according to `how`, as [`refill`] does. A leaf or a hole
/// becomes a node.
fn refill_node(
    transaction: &mut Transaction<'_>,
    old: Under,
    level: u8,
    range: FileRange,
    size: u64,
    how: FillMode,
) -> Result<Pointer> {
    let mut node = TreeNode::copy_for_change(transaction, old, level)?;
    node.clear_past(level, size);
    let child_span = span(level - 1);
    for slot in slot_of(level, range.start)..=slot_of(level, range.end - 1) {
        let start = start_of(level, slot);
        let child = refill(
            transaction,
            node.child(slot, level),
            range.within(start, child_span),
            size.saturating_sub(start).min(child_span),
            how,
        )?;
        node.set(slot, child);
    }
    if node.is_empty() { Ok(Pointer::NULL) } else { node.write(transaction) }
}
