//! Walking the storage of an mFile: to mark it, and to give it back.

use eyrie_medium::{Addr, Medium};

use super::tree::{FANOUT, MAX_HEIGHT, Node, Under, root_extent, start_of, under};
use crate::object::pointer::{Class, Extent, Pointer};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// Visits every extent of a file of `size` bytes: nodes and leaves, not what is past its end.
///
/// # Errors
/// `Corrupt`, `Fault`, and those of `visit`.
pub fn visit_storage(
    medium: &Medium,
    root: Pointer,
    size: u64,
    visit: &mut dyn FnMut(Extent) -> Result<()>,
) -> Result<()> {
    match root.height() {
        _ if size == 0 && !root.is_null() => Err(Error::corrupt(Addr::NULL, "empty file with storage")),
        0 => root_extent(root, Addr::NULL)?.map_or(Ok(()), visit),
        height if height <= MAX_HEIGHT => visit_under(medium, root.with_height(0), height, size, visit),
        _ => Err(Error::corrupt(Addr::NULL, "file tree of an impossible height")),
    }
}

/// The same under one pointer; `size` counts from its start.
fn visit_under(
    medium: &Medium,
    pointer: Pointer,
    level: u8,
    size: u64,
    visit: &mut dyn FnMut(Extent) -> Result<()>,
) -> Result<()> {
    match under(pointer, level, Addr::NULL)? {
        Under::Hole => Ok(()),
        Under::Leaf(extent) | Under::Unwritten(extent) => visit(extent),
        Under::Node(addr) => {
            visit(Extent { addr, class: Class::PAGE })?;
            let node = Node::read(medium, addr)?;
            for slot in 0..FANOUT {
                let start = start_of(level, slot);
                if start >= size {
                    break;
                }
                visit_under(medium, node.get(slot), level - 1, size - start, visit)?;
            }
            Ok(())
        }
    }
}

/// Gives back everything under one pointer when the transaction has settled; `size` counts from its start.
pub(super) fn retire_under(
    transaction: &mut Transaction<'_>,
    pointer: Pointer,
    level: u8,
    size: u64,
) -> Result<()> {
    visit_under(transaction.medium(), pointer, level, size, &mut |extent| transaction.retire_found(extent))
}

/// Gives back all storage of a file when the transaction has settled.
///
/// # Errors
/// `Corrupt`, `Fault`.
pub fn retire_all(transaction: &mut Transaction<'_>, root: Pointer, size: u64) -> Result<()> {
    transaction.retires_object();
    visit_storage(transaction.medium(), root, size, &mut |extent| transaction.retire_found(extent))
}
