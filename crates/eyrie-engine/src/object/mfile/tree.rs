//! The shape of the tree: spans, heights, nodes, and what a pointer may be where.

use eyrie_medium::rules::SafetyRule;
use eyrie_medium::{Addr, Medium, PAGE_SIZE};
use zerocopy::IntoBytes;

use crate::object::pointer::{Class, Extent, Pointer};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// The largest size of a file, in bytes.
pub const MAX_SIZE: u64 = i64::MAX as u64;
/// Pointers in a node.
pub const FANOUT: usize = 512;
/// A root's greatest height: enough for [`MAX_SIZE`].
pub const MAX_HEIGHT: u8 = 6;
/// The highest level at which a pointer may be a leaf: 2 MiB.
pub const MAX_LEAF_LEVEL: u8 = 1;
/// A root extent up to this size is copied whole when it is changed; a larger one becomes a tree.
pub const COPY_WHOLE_BYTES: u64 = 16 << 10;

/// Bytes under a pointer at `level` (0: one page). Saturates where they pass 64 bits.
pub const fn span(level: u8) -> u64 {
    if level >= 6 { u64::MAX } else { PAGE_SIZE << (9 * level as u32) }
}

/// Height of the lowest tree that reaches `end` (an offset, in bytes).
pub fn height_for(end: u64) -> u8 {
    (0..MAX_HEIGHT).find(|&height| span(height) >= end).unwrap_or(MAX_HEIGHT)
}

/// Height of the lowest tree (not an extent alone) that has what is under a root.
pub fn tree_height(root: Pointer) -> Result<u8> {
    match root.height() {
        0 => Ok(root.extent().map_or(1, |extent| height_for(extent.bytes()).max(1))),
        height if height <= MAX_HEIGHT => Ok(height),
        _ => Err(Error::corrupt(Addr::NULL, "file tree of an impossible height")),
    }
}

/// Child of a node at `level` (1 or more) that holds `offset` (from the node's start).
pub const fn slot_of(level: u8, offset: u64) -> usize {
    (offset / span(level - 1)) as usize
}

/// Where the child in `slot` of a node at `level` starts, from the node's start. Saturates where it passes 64 bits.
pub const fn start_of(level: u8, slot: usize) -> u64 {
    (slot as u64).saturating_mul(span(level - 1))
}

/// What is under a pointer inside a tree, verified.
#[derive(Clone, Copy, Debug)]
pub enum Under {
    /// Zeros.
    Hole,
    /// Bytes: as many as the level spans.
    Leaf(Extent),
    /// Zeros that have as much storage. What bytes that has means nothing.
    Unwritten(Extent),
    /// A node of 512 pointers.
    Node(Addr),
}

/// What is under `pointer` at `level` of a tree (not at a root of height 0, whose extent may have any size).
#[inline]
pub fn under(pointer: Pointer, level: u8, at: Addr) -> Result<Under> {
    if pointer.is_null() {
        return Ok(Under::Hole);
    }
    let extent = pointer.extent().ok_or_else(|| Error::corrupt(at, "pointer of an unknown class"))?;
    if pointer.is_shared() || pointer.is_unwritten() && !pointer.is_leaf() {
        return Err(Error::corrupt(at, "pointer of a kind that this format does not have"));
    }
    if pointer.is_leaf() {
        if level > MAX_LEAF_LEVEL || extent.bytes() != span(level) {
            return Err(Error::corrupt(at, "leaf whose size is not its level's span"));
        }
        return Ok(if pointer.is_unwritten() { Under::Unwritten(extent) } else { Under::Leaf(extent) });
    }
    if level == 0 || extent.class != Class::PAGE {
        return Err(Error::corrupt(at, "interior node that is no page"));
    }
    Ok(Under::Node(extent.addr))
}

/// The extent of a root of height 0, verified; `None` for a null root.
#[inline]
pub fn root_extent(root: Pointer, at: Addr) -> Result<Option<Extent>> {
    if root.is_null() {
        return Ok(None);
    }
    if !root.is_leaf() || root.is_shared() || root.is_unwritten() {
        return Err(Error::corrupt(at, "root of height 0 that is no leaf"));
    }
    root.extent().map(Some).ok_or_else(|| Error::corrupt(at, "pointer of an unknown class"))
}

/// Address of a node's slot.
#[inline]
pub fn slot_addr(node: Addr, slot: usize) -> Addr {
    node.add(slot as u64 * 8)
}

/// The pointers of a node, in memory.
pub struct Node(pub [u64; FANOUT]);

impl Node {
    /// A node of holes.
    pub fn empty() -> Node {
        Node([0; FANOUT])
    }

    /// A copy of the node at `addr`.
    pub fn read(medium: &Medium, addr: Addr) -> Result<Node> {
        let mut node = Node::empty();
        medium.read(addr, node.0.as_mut_bytes())?;
        Ok(node)
    }

    /// The node under a pointer at `level` (1 or more), or one over its pieces, to be changed and written elsewhere.
    pub fn take(transaction: &mut Transaction<'_>, old: Under, level: u8) -> Result<Node> {
        match old {
            Under::Hole => Ok(Node::empty()),
            Under::Leaf(extent) => split_leaf(transaction, extent.addr, extent.bytes(), level),
            Under::Unwritten(extent) => {
                let mut node = split_leaf(transaction, extent.addr, extent.bytes(), level)?;
                for pointer in &mut node.0 {
                    let page = Pointer::from_raw(*pointer).extent();
                    *pointer = page.map_or(Pointer::NULL, Pointer::unwritten).raw();
                }
                Ok(node)
            }
            Under::Node(addr) => {
                transaction.retire_found(Extent { addr, class: Class::PAGE })?;
                Node::read(transaction.medium(), addr)
            }
        }
    }

    /// Makes the slots holes that are wholly past the first `size` bytes under it, and so garbage.
    pub fn clear_past(&mut self, level: u8, size: u64) {
        let visible = size.div_ceil(span(level - 1)).min(FANOUT as u64) as usize;
        self.0[visible..].fill(0);
    }

    /// Whether it has holes only.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|pointer| *pointer == 0)
    }

    /// Writes the node to a new page.
    pub fn write(&self, transaction: &mut Transaction<'_>) -> Result<Pointer> {
        let extent = transaction.allocate(PAGE_SIZE)?;
        transaction.precedes(SafetyRule::NodeBeforeItsPointer, extent.addr, PAGE_SIZE as usize)?;
        transaction.write(extent.addr, self.0.as_bytes())?;
        Ok(Pointer::node(extent))
    }

    /// The pointer in a slot.
    pub fn get(&self, slot: usize) -> Pointer {
        Pointer::from_raw(self.0[slot])
    }

    /// Sets the pointer in a slot.
    pub fn set(&mut self, slot: usize, pointer: Pointer) {
        self.0[slot] = pointer.raw();
    }
}

/// The node over the pieces of a leaf of `bytes` (a multiple of a page) at `addr`: the first step of changing part of
/// a big leaf. `level` is that of the pointer to the node.
pub fn split_leaf(transaction: &mut Transaction<'_>, addr: Addr, bytes: u64, level: u8) -> Result<Node> {
    let child_span = span(level - 1);
    let mut node = Node::empty();
    let mut done = 0;
    while done < bytes {
        let piece = child_span.min(bytes - done);
        let at = addr.add(done);
        let pointer = if level - 1 <= MAX_LEAF_LEVEL && piece == child_span {
            let class =
                Class::fitting(piece).ok_or_else(|| Error::corrupt(addr, "leaf of an impossible size"))?;
            Pointer::leaf(Extent { addr: at, class })
        } else {
            split_leaf(transaction, at, piece, level - 1)?.write(transaction)?
        };
        node.set((done / child_span) as usize, pointer);
        done += piece;
    }
    Ok(node)
}
