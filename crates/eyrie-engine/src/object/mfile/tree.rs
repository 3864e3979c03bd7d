//! The shape of a file's tree: spans, heights, nodes, and the pointers that are valid at each level. The
//! level of a pointer is the maximum number of levels of nodes below it. A pointer at level 0 leads to a
//! page.

use eyrie_medium::rules::SafetyRule;
use eyrie_medium::{Addr, Medium, PAGE_SIZE};
use zerocopy::IntoBytes;

use crate::extent::{Class, Extent};
use crate::object::header::{Header, Hot};
use crate::object::pointer::Pointer;
use crate::op::FILE_MAX;
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Number of pointers in a node. A node fills one page.
pub const FANOUT: usize = 512;
/// Maximum height of a root. A tree of this height can hold [`FILE_MAX`](crate::op::FILE_MAX) bytes.
pub(crate) const MAX_HEIGHT: u8 = 6;
/// The highest level at which a pointer may be a leaf. A leaf at this level has 2 MiB, the size of a large
/// page of the processor.
pub(crate) const MAX_LEAF_POINTER_LEVEL: u8 = 1;
/// Maximum size of a root extent that a change copies whole. If a change must copy a part of a larger extent,
/// the file becomes a tree. A tree needs a node besides its pages, and a small file would waste the space of
/// the node.
pub(crate) const COPY_WHOLE_BYTES: u64 = 16 << 10;

/// End of the storage that a file may have past its end: the end of the last page of the largest file.
pub(super) const STORAGE_MAX: u64 = FILE_MAX.next_multiple_of(PAGE_SIZE);

/// Returns the number of bytes under a pointer at `level`. Level 0 is one page. Saturates at `u64::MAX`.
pub(crate) const fn span(level: u8) -> u64 {
    if level >= 6 { u64::MAX } else { PAGE_SIZE << (9 * level as u32) }
}

/// Returns the height of the lowest tree that reaches offset `end`.
pub(crate) fn height_for(end: u64) -> u8 {
    (0..MAX_HEIGHT).find(|&height| span(height) >= end).unwrap_or(MAX_HEIGHT)
}

/// The tree of a file, as the header describes it.
#[derive(Clone, Copy, Debug)]
pub struct FileTree {
    /// The root pointer.
    pub root: Pointer,
    /// Size of the file, in bytes.
    pub size: u64,
    /// Address of the hot line, which has the root pointer. Errors name this address if the root is corrupt.
    pub at: Addr,
}

impl FileTree {
    /// Returns the tree in a header's hot line.
    #[inline]
    pub fn of(header: Header, hot: &Hot) -> FileTree {
        FileTree { root: hot.root, size: hot.size, at: header.hot_line() }
    }

    /// Returns the same tree with another root.
    #[must_use]
    pub(super) fn with_root(self, root: Pointer) -> FileTree {
        FileTree { root, ..self }
    }

    /// Returns the offset before which all pointers of the tree have a meaning. This is the size of the file,
    /// unless the file may have storage past its end.
    #[inline]
    pub(super) fn storage_end(self) -> u64 {
        if self.root.is_preallocated() { STORAGE_MAX } else { self.size }
    }

    /// Verifies a root of height 0 and returns its extent, or `None` for a null root.
    #[inline]
    pub(super) fn root_extent(self) -> Result<Option<Extent>> {
        let FileTree { root, at, .. } = self;
        if root.is_null() {
            return Ok(None);
        }
        if !root.is_leaf() || root.is_unwritten() {
            return Err(Error::corrupt(at, "root of height 0 that is no leaf"));
        }
        let extent = root.extent().ok_or_else(|| Error::corrupt(at, "pointer of an unknown class"))?;
        if root.is_shared() && extent.class.is_small() {
            return Err(Error::corrupt(at, "shared extent that is smaller than a page"));
        }
        Ok(Some(extent))
    }

    /// Returns the root as a subtree. Callers use [`Subtree::look`] only on the subtree of a root of height 1
    /// or more.
    pub(super) fn subtree(self) -> Subtree {
        Subtree { pointer: self.root.below_root(), level: self.root.height(), at: self.at }
    }

    /// Returns the height of the tree. For a root of height 0, returns the height of the lowest tree that
    /// could hold the whole extent of the root, at least 1. Returns 1 for a null root of height 0.
    pub(super) fn tree_height(self) -> Result<u8> {
        match self.root.height() {
            0 => Ok(self.root.extent().map_or(1, |extent| height_for(extent.bytes()).max(1))),
            height if height <= MAX_HEIGHT => Ok(height),
            _ => Err(self.impossible_height()),
        }
    }

    /// Makes the error for a root that is too high.
    #[cold]
    pub(super) fn impossible_height(self) -> Error {
        Error::corrupt(self.at, "file tree of an impossible height")
    }
}

/// A pointer of a tree, with its level and its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subtree {
    /// The pointer, without a height.
    pub pointer: Pointer,
    /// Level of the pointer. Level 0 is one page.
    pub level: u8,
    /// Address of the pointer, or of the hot line if the pointer is a root. Errors name this address if the
    /// pointer is corrupt.
    pub at: Addr,
}

impl Subtree {
    /// Makes a subtree of zeros. No pointer on the medium leads to this subtree.
    pub fn hole(level: u8) -> Subtree {
        Subtree { pointer: Pointer::NULL, level, at: Addr::NULL }
    }

    /// Verifies the pointer, and returns the contents under it.
    #[inline]
    pub fn look(self) -> Result<Under> {
        under(self.pointer, self.level, self.at)
    }
}

/// Returns the slot of the child that contains `offset`, in a node at `level` (1 or more). The offset counts
/// from the node's start.
pub(crate) const fn slot_of(level: u8, offset: u64) -> usize {
    (offset / span(level - 1)) as usize
}

/// Returns the offset of the child in `slot` of a node at `level`, counted from the node's start. Saturates
/// at `u64::MAX`.
pub(crate) const fn start_of(level: u8, slot: usize) -> u64 {
    (slot as u64).saturating_mul(span(level - 1))
}

/// The verified contents under a pointer inside a tree.
#[derive(Clone, Copy, Debug)]
pub enum Under {
    /// Zeros that have no storage.
    Hole,
    /// An extent with data for the whole span of the level. No other pointer leads to it.
    Leaf(Extent),
    /// An extent with data for the whole span. Other pointers may lead to its pages.
    Shared(Extent),
    /// An unwritten extent for the whole span. It reads as zeros, and its bytes do not matter.
    Unwritten(Extent),
    /// A node of 512 pointers.
    Node(Addr),
}

/// Verifies `pointer` at `level` of a tree, and returns the contents under it. A root of height 0 is not
/// allowed here, because its extent may have any size.
#[inline]
fn under(pointer: Pointer, level: u8, at: Addr) -> Result<Under> {
    if pointer.is_null() {
        return Ok(Under::Hole);
    }
    let extent = pointer.extent().ok_or_else(|| Error::corrupt(at, "pointer of an unknown class"))?;
    // Only leaves can be shared or unwritten, and no leaf is both.
    if (pointer.is_shared() || pointer.is_unwritten())
        && (!pointer.is_leaf() || pointer.is_shared() && pointer.is_unwritten())
    {
        return Err(Error::corrupt(at, "pointer with unknown flags"));
    }
    if pointer.is_leaf() {
        if level > MAX_LEAF_POINTER_LEVEL || extent.bytes() != span(level) {
            return Err(Error::corrupt(at, "leaf with the wrong size for its level"));
        }
        return Ok(match pointer.is_unwritten() {
            true => Under::Unwritten(extent),
            false if pointer.is_shared() => Under::Shared(extent),
            false => Under::Leaf(extent),
        });
    }
    if level == 0 || extent.class != Class::PAGE {
        return Err(Error::corrupt(at, "interior node that is no page"));
    }
    Ok(Under::Node(extent.addr))
}

/// Returns the address of a node's slot.
#[inline]
pub(crate) fn slot_addr(node: Addr, slot: usize) -> Addr {
    node.add(slot as u64 * 8)
}

/// A copy in memory of the pointers of a node.
pub(crate) struct TreeNode {
    pointers: [u64; FANOUT],
    /// Address of the node, or of the large leaf that the pointers divide into pieces. Null for a node that
    /// was made from holes.
    at: Addr,
}

impl TreeNode {
    /// Makes a node of holes.
    pub fn empty() -> TreeNode {
        TreeNode::made_of(Addr::NULL)
    }

    /// Makes a node of holes, for the pieces of the extent at address `at`.
    fn made_of(at: Addr) -> TreeNode {
        TreeNode { pointers: [0; FANOUT], at }
    }

    /// Returns a copy of the node at `addr`.
    pub fn read(medium: &Medium, addr: Addr) -> Result<TreeNode> {
        let mut node = TreeNode::made_of(addr);
        medium.read(addr, node.pointers.as_mut_bytes())?;
        Ok(node)
    }

    /// Returns a node with the contents under a pointer at `level` (1 or more). The caller changes the node
    /// and writes it to a new page. A leaf is divided into pieces. An old node is retired at the commit.
    pub(crate) fn copy_for_change(
        transaction: &mut Transaction<'_>,
        old: Under,
        level: u8,
    ) -> Result<TreeNode> {
        match old {
            Under::Hole => Ok(TreeNode::empty()),
            Under::Leaf(extent) => split_leaf(transaction, Pointer::leaf(extent), extent, level),
            Under::Shared(extent) => split_leaf(transaction, Pointer::leaf(extent).shared(), extent, level),
            Under::Unwritten(extent) => split_leaf(transaction, Pointer::unwritten(extent), extent, level),
            Under::Node(addr) => {
                transaction.retire_found(Extent { addr, class: Class::PAGE }, false)?;
                TreeNode::read(transaction.medium(), addr)
            }
        }
    }

    /// Turns slots into holes if they are wholly past the first `size` bytes of the node. The pointers in
    /// these slots are garbage.
    pub(crate) fn clear_past(&mut self, level: u8, size: u64) {
        let visible = size.div_ceil(span(level - 1)).min(FANOUT as u64) as usize;
        self.pointers[visible..].fill(0);
    }

    /// True if all slots are holes.
    pub fn is_empty(&self) -> bool {
        self.pointers.iter().all(|pointer| *pointer == 0)
    }

    /// Writes the node to a new page, and returns the pointer to it.
    pub fn write(&self, transaction: &mut Transaction<'_>) -> Result<Pointer> {
        let extent = transaction.allocate(PAGE_SIZE)?;
        transaction.precedes(SafetyRule::NodeBeforeItsPointer, extent.addr, PAGE_SIZE as usize)?;
        transaction.write(extent.addr, self.pointers.as_bytes())?;
        Ok(Pointer::node(extent))
    }

    /// Returns the pointer in a slot.
    pub fn get(&self, slot: usize) -> Pointer {
        Pointer::from_raw(self.pointers[slot])
    }

    /// Returns the subtree in a slot of this node, which is at `level`.
    pub fn child(&self, slot: usize, level: u8) -> Subtree {
        Subtree { pointer: self.get(slot), level: level - 1, at: slot_addr(self.at, slot) }
    }

    /// Sets the pointer in a slot.
    pub fn set(&mut self, slot: usize, pointer: Pointer) {
        self.pointers[slot] = pointer.raw();
    }
}

/// Returns the root of a tree whose bytes are all under the pointer `subtree` at `level`. The pointer is not
/// null. If the file may have storage past its end, the root must be a node, because a leaf has no bit for
/// this mark.
pub(super) fn root_over(
    transaction: &mut Transaction<'_>,
    subtree: Pointer,
    level: u8,
    preallocated: bool,
) -> Result<Pointer> {
    if !preallocated {
        return Ok(subtree.with_height(level));
    }
    if !subtree.is_leaf() {
        return Ok(subtree.with_height(level).preallocated());
    }
    let mut node = TreeNode::empty();
    node.set(0, subtree);
    Ok(node.write(transaction)?.with_height(level + 1).preallocated())
}

/// Returns a node over the pieces of `leaf`, which leads to `extent`. `level` is the level of the pointer to
/// the new node. A change of a part of a large leaf begins with this division.
pub(crate) fn split_leaf(
    transaction: &mut Transaction<'_>,
    leaf: Pointer,
    extent: Extent,
    level: u8,
) -> Result<TreeNode> {
    split_bytes(transaction, leaf, (extent.addr, extent.bytes()), level)
}

/// Returns a node over the pieces of the first `bytes` bytes at `addr`, which are a part of the extent of
/// `leaf`. `bytes` is a multiple of a page.
pub(crate) fn split_bytes(
    transaction: &mut Transaction<'_>,
    leaf: Pointer,
    (addr, bytes): (Addr, u64),
    level: u8,
) -> Result<TreeNode> {
    let child_span = span(level - 1);
    let mut node = TreeNode::made_of(addr);
    let mut done = 0;
    while done < bytes {
        let piece = child_span.min(bytes - done);
        let at = addr.add(done);
        let pointer = if level - 1 <= MAX_LEAF_POINTER_LEVEL && piece == child_span {
            let class =
                Class::fitting(piece).ok_or_else(|| Error::corrupt(addr, "leaf of an impossible size"))?;
            leaf.piece(Extent { addr: at, class })
        } else {
            split_bytes(transaction, leaf, (at, piece), level - 1)?.write(transaction)?
        };
        node.set((done / child_span) as usize, pointer);
        done += piece;
    }
    Ok(node)
}
