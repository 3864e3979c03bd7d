//! New pages for the bytes of a large write. Neighbours in the file become neighbours in memory, so that one
//! copy stores them, and one copy reads them.

use std::ops::Range;

use eyrie_medium::{Addr, PAGE_SIZE};

use super::part::FilePart;
use super::tree::{Subtree, Under, slot_of, start_of};
use crate::Result;
use crate::extent::{Class, Extent};
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;

/// Maximum size of an extent that is divided into new pages. It is the size of the steps in which a volume in
/// memory grows, so one extent makes a call provision at most one step. In a fragmented volume, an extent of
/// this size is easier to find than an extent of the size of the whole write.
const RUN_BYTES: u64 = 256 << 10;

/// Returns the slots that `part` covers wholly, in a node at level 1, whose children are pages. Returns an
/// empty range instead of a single slot, because a single page has no neighbour.
pub(super) fn whole_slots(part: FilePart<'_>) -> Range<usize> {
    let (first, end) = (part.offset.div_ceil(PAGE_SIZE), part.end() / PAGE_SIZE);
    if first + 1 < end { first as usize..end as usize } else { 0..0 }
}

/// Stores the bytes of `part` that belong to `slots` of a node at level 1 into new pages. `part` covers these
/// slots wholly. Calls `set` with each slot and its new pointer, in order.
pub(super) fn new_pages(
    transaction: &mut Transaction<'_>,
    part: FilePart<'_>,
    slots: Range<usize>,
    mut set: impl FnMut(&mut Transaction<'_>, usize, Pointer) -> Result<()>,
) -> Result<()> {
    let mut slot = slots.start;
    while slot < slots.end {
        let left = (slots.end - slot) as u64 * PAGE_SIZE;
        let extent = transaction.allocate_run(left.min(RUN_BYTES))?;
        let bytes = extent.bytes();
        part.within(start_of(1, slot), bytes).store(transaction, extent.addr)?;
        for at in (0..bytes).step_by(PAGE_SIZE as usize) {
            let page = Extent { addr: extent.addr.add(at), class: Class::PAGE };
            set(transaction, slot, Pointer::leaf(page))?;
            slot += 1;
        }
    }
    Ok(())
}

/// Retires the pages under `slots` of a node at level 1. The visible bytes of the node end at `size`. `child`
/// returns the subtree of a slot. Returns false, and retires no page, if one of the pages is unwritten. The
/// caller then writes page by page, and stores in place the bytes of unwritten pages.
pub(super) fn retire_written(
    transaction: &mut Transaction<'_>,
    slots: Range<usize>,
    size: u64,
    child: impl Fn(usize) -> Subtree,
) -> Result<bool> {
    let visible = slots.start..slots.end.min(slot_of(1, size.next_multiple_of(PAGE_SIZE)));
    for slot in visible.clone() {
        if let Under::Unwritten(_) = child(slot).look()? {
            return Ok(false);
        }
    }
    let mut run = Run { start: Addr::NULL, bytes: 0 };
    for slot in visible {
        if let Under::Leaf(extent) | Under::Shared(extent) = child(slot).look()? {
            if extent.addr != run.start.add(run.bytes) {
                run.retire(transaction);
                run = Run { start: extent.addr, bytes: 0 };
            }
            run.bytes += PAGE_SIZE;
        }
    }
    run.retire(transaction);
    Ok(true)
}

/// Pages at consecutive addresses.
struct Run {
    start: Addr,
    bytes: u64,
}

impl Run {
    /// Retires the pages as a few large extents, each aligned to its size.
    fn retire(mut self, transaction: &mut Transaction<'_>) {
        while self.bytes > 0 {
            let most = 1 << self.bytes.ilog2().min(self.start.offset().trailing_zeros());
            let Some(class) = Class::fitting(Class::MAX_BYTES.min(most)) else { return };
            transaction.retire(Extent { addr: self.start, class });
            self.start = self.start.add(class.bytes());
            self.bytes -= class.bytes();
        }
    }
}
