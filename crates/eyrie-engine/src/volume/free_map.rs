//! What is free, as a value: the one form that saving, rebuilding and checking share.

use eyrie_medium::Addr;

use super::bits::Bits;
use super::geometry::page_of;
use super::headers::{Slots, insert_slot, slot_of};
use super::slab::{Freed, NumberMap, SlabPage, free_slot};
use crate::object::pointer::Extent;

/// Everything free in the groups in use. Equal maps mean equal space.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct FreeMap {
    /// Pages that are free as a whole.
    pub(super) pages: Bits,
    /// Pages of small classes with some slots free and some in use: the free ones.
    pub(super) slabs: NumberMap<SlabPage>,
    /// Header chunks with free slots.
    pub(super) chunks: NumberMap<Slots>,
    /// Bytes of live extents and headers.
    pub(super) live_bytes: u64,
    /// Number of live objects.
    pub(super) objects: u64,
}

impl FreeMap {
    /// Adds the bytes of an extent (which [`Geometry::holds`](super::Geometry) says is well formed) to the free ones;
    /// `false` when some are free already.
    pub(super) fn free_extent(&mut self, extent: Extent) -> bool {
        let Extent { addr, class } = extent;
        let page = page_of(addr.offset());
        let end = page + class.bytes().div_ceil(4096) as u32;
        if self.pages.any(page, end) {
            return false;
        }
        if class.is_small() {
            let slot = (addr.offset() % 4096 / class.bytes()) as u32;
            match free_slot(&mut self.slabs, page, class, slot) {
                Freed::Refused => return false,
                Freed::Slot => return true,
                Freed::Page => {}
            }
        }
        self.pages.insert_run(page, end);
        true
    }

    /// Adds a slot of a header chunk to the free ones; `false` when it is.
    pub(super) fn free_header(&mut self, addr: Addr) -> bool {
        let (chunk, slot) = slot_of(addr);
        insert_slot(self.chunks.entry(chunk).or_default(), slot)
    }
}
