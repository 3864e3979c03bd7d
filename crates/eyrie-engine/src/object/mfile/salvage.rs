//! Reading what is left of a damaged mFile.

use std::collections::HashSet;

use eyrie_medium::{Addr, Medium};

use super::tree::{FANOUT, MAX_HEIGHT, Node, Under, root_extent, span, start_of, under};
use crate::object::pointer::{Class, Extent, Pointer};
use crate::{Error, Result};

/// A range of a file. Offsets and lengths are in bytes; what no part has is zeros.
#[derive(Debug)]
pub enum Part {
    /// The node over what follows.
    Node(Extent),
    /// Bytes of an extent, from its start on.
    Data(u64, u64, Extent),
    /// What cannot be read, and why.
    Lost(u64, u64, Error),
}

/// Shows the parts of a file of `size` bytes in their order, whatever is damaged beside them. No extent is shown twice,
/// and no more bytes of them than the volume has, so that it ends.
///
/// # Errors
/// Those of `visit`.
pub fn salvage(
    medium: &Medium,
    root: Pointer,
    size: u64,
    visit: &mut dyn FnMut(Part) -> Result<()>,
) -> Result<()> {
    let room = medium.segment_sizes().sum();
    let mut walk = Walk { medium, size, room, seen: HashSet::new(), visit };
    if size == 0 {
        return Ok(());
    }
    match root.height() {
        0 => match root_extent(root, Addr::NULL) {
            Ok(None) => Ok(()),
            Ok(Some(extent)) => walk.data(0, extent.bytes(), extent),
            Err(error) => walk.lost(0, size, error),
        },
        height if height <= MAX_HEIGHT => walk.under(root.with_height(0), height, 0, Addr::NULL),
        _ => walk.lost(0, size, Error::corrupt(Addr::NULL, "file tree of an impossible height")),
    }
}

struct Walk<'a> {
    medium: &'a Medium,
    size: u64,
    /// Bytes that may still be shown.
    room: u64,
    seen: HashSet<Addr>,
    visit: &'a mut dyn FnMut(Part) -> Result<()>,
}

impl Walk<'_> {
    fn lost(&mut self, start: u64, len: u64, error: Error) -> Result<()> {
        (self.visit)(Part::Lost(start, len.min(self.size - start), error))
    }

    fn data(&mut self, start: u64, len: u64, extent: Extent) -> Result<()> {
        let len = len.min(self.size - start);
        if !self.seen.insert(extent.addr) || len > self.room {
            return self.lost(start, len, Error::corrupt(extent.addr, "extent that a file has twice"));
        }
        self.room -= len;
        (self.visit)(Part::Data(start, len, extent))
    }

    /// What `pointer`, stored at `at`, holds from offset `start` of the file on.
    fn under(&mut self, pointer: Pointer, level: u8, start: u64, at: Addr) -> Result<()> {
        let node = match under(pointer, level, at) {
            Ok(Under::Hole | Under::Unwritten(_)) => return Ok(()),
            Ok(Under::Leaf(extent)) => return self.data(start, span(level), extent),
            Ok(Under::Node(node)) => node,
            Err(error) => return self.lost(start, span(level), error),
        };
        if !self.seen.insert(node) {
            let error = Error::corrupt(node, "node that a file has twice");
            return self.lost(start, span(level), error);
        }
        let pointers = match Node::read(self.medium, node) {
            Ok(pointers) => pointers,
            Err(error) => return self.lost(start, span(level), error),
        };
        (self.visit)(Part::Node(Extent { addr: node, class: Class::PAGE }))?;
        for slot in 0..FANOUT {
            let child = start.saturating_add(start_of(level, slot));
            if child >= self.size {
                break;
            }
            self.under(pointers.get(slot), level - 1, child, node)?;
        }
        Ok(())
    }
}
