//! Reads the intact parts of a damaged mFile.

use std::collections::HashSet;

use eyrie_medium::{Addr, Medium};

use super::tree::{FANOUT, FileTree, MAX_HEIGHT, Subtree, TreeNode, Under, span, start_of};
use crate::extent::{Class, Extent};
use crate::{Error, Result};

/// A part of a file. Offsets and lengths are in bytes. Bytes that no part covers are zeros.
#[derive(Debug)]
pub(crate) enum SalvagedPart {
    /// A node of the tree. The parts below this node follow it.
    Node(Extent),
    /// Bytes from the start of an extent.
    Data(SalvagedData),
    /// Unreadable bytes: offset in the file, length, and the reason.
    Lost(u64, u64, Error),
}

/// Bytes of a file from the start of an extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SalvagedData {
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) len: u64,
    /// The extent.
    pub(crate) extent: Extent,
    /// True if other pointers may lead to the extent.
    pub(crate) is_shared: bool,
}

/// Calls `visit` with the parts of a file, in the order of their offsets. The pass continues after a damaged
/// part. `visit` gets no node twice, so the pass terminates even if damaged pointers form a cycle. `visit`
/// gets no extent twice, except shared ones. The total length of the extents that are not shared is limited
/// by the size of the volume.
///
/// # Errors
/// The errors of `visit`.
pub fn salvage(
    medium: &Medium,
    file: FileTree,
    visit: &mut dyn FnMut(SalvagedPart) -> Result<()>,
) -> Result<()> {
    let (root, size) = (file.root, file.size);
    let bytes_left = medium.segment_sizes().sum();
    let mut walk = SalvageWalk { medium, size, bytes_left, seen: HashSet::new(), visit };
    if size == 0 {
        return Ok(());
    }
    match root.height() {
        0 => match file.root_extent() {
            Ok(None) => Ok(()),
            Ok(Some(extent)) => walk.data(0, extent.bytes(), extent, root.is_shared()),
            Err(error) => walk.lost(0, size, error),
        },
        1..=MAX_HEIGHT => walk.under(file.subtree(), 0),
        _ => walk.lost(0, size, file.impossible_height()),
    }
}

struct SalvageWalk<'a> {
    medium: &'a Medium,
    size: u64,
    /// Number of bytes that `visit` may still get, without those of shared extents. The first value is the
    /// size of the volume.
    bytes_left: u64,
    seen: HashSet<Addr>,
    visit: &'a mut dyn FnMut(SalvagedPart) -> Result<()>,
}

impl SalvageWalk<'_> {
    fn lost(&mut self, start: u64, len: u64, error: Error) -> Result<()> {
        (self.visit)(SalvagedPart::Lost(start, len.min(self.size - start), error))
    }

    fn data(&mut self, start: u64, len: u64, extent: Extent, is_shared: bool) -> Result<()> {
        let len = len.min(self.size - start);
        let part = SalvagedPart::Data(SalvagedData { offset: start, len, extent, is_shared });
        if is_shared {
            return (self.visit)(part);
        }
        if !self.seen.insert(extent.addr) {
            return self.lost(start, len, Error::corrupt(extent.addr, "extent that occurs twice in a file"));
        }
        if len > self.bytes_left {
            let what = "more bytes of a file than the volume has room for";
            return self.lost(start, len, Error::corrupt(extent.addr, what));
        }
        self.bytes_left -= len;
        (self.visit)(part)
    }

    /// Calls `visit` with the parts of a subtree that begins at offset `start` of the file.
    fn under(&mut self, subtree: Subtree, start: u64) -> Result<()> {
        let level = subtree.level;
        let node = match subtree.look() {
            Ok(Under::Hole | Under::Unwritten(_)) => return Ok(()),
            Ok(Under::Leaf(extent)) => return self.data(start, span(level), extent, false),
            Ok(Under::Shared(extent)) => return self.data(start, span(level), extent, true),
            Ok(Under::Node(node)) => node,
            Err(error) => return self.lost(start, span(level), error),
        };
        if !self.seen.insert(node) {
            let error = Error::corrupt(node, "node that occurs twice in a file");
            return self.lost(start, span(level), error);
        }
        let pointers = match TreeNode::read(self.medium, node) {
            Ok(pointers) => pointers,
            Err(error) => return self.lost(start, span(level), error),
        };
        (self.visit)(SalvagedPart::Node(Extent { addr: node, class: Class::PAGE }))?;
        for slot in 0..FANOUT {
            let child = start.saturating_add(start_of(level, slot));
            if child >= self.size {
                break;
            }
            self.under(pointers.child(slot, level), child)?;
        }
        Ok(())
    }
}
