//! Free memory as a value, which the save, the rebuild and the check of a volume share.

use eyrie_medium::{Addr, PAGE_SIZE};

use super::bits::Bits;
use super::headers::{HeaderSlots, insert_slot, slot_of};
use super::number_map::NumberMap;
use super::shared::SharedRun;
use super::slab::{Freed, SlabPage, free_slot};
use crate::extent::Extent;
use crate::tables::geometry::page_of;

/// All free memory in the groups in use, and the counts of pointers to shared pages. Two maps of the same
/// groups are equal if they describe the same free memory and the same counts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FreeMap {
    /// Pages that are free as a whole.
    pub(crate) pages: Bits,
    /// The free slots of the slab pages that have both free slots and slots in use.
    pub(crate) slabs: NumberMap<SlabPage>,
    /// The free slots of header chunks. Chunks without a free slot are absent.
    pub(crate) chunks: NumberMap<HeaderSlots>,
    /// The pages in use to which several pointers lead, in order.
    pub(crate) shared: Vec<SharedRun>,
    /// Bytes of live extents and headers.
    pub(crate) live_bytes: u64,
    /// Number of live objects.
    pub(crate) objects: u64,
}

impl FreeMap {
    /// Adds an extent to the free memory. Returns `false` when some of its bytes are free already, or when
    /// its page has another class. Callers have checked the extent with
    /// [`Geometry::holds`](crate::tables::Geometry).
    pub(crate) fn free_extent(&mut self, extent: Extent) -> bool {
        let Extent { addr, class } = extent;
        let page = page_of(addr.offset());
        let end = page + class.bytes().div_ceil(PAGE_SIZE) as u32;
        if self.pages.any(page, end) {
            return false;
        }
        if class.is_small() {
            let slot = (addr.offset() % PAGE_SIZE / class.bytes()) as u32;
            match free_slot(&mut self.slabs, page, class, slot) {
                Freed::Refused => return false,
                Freed::Slot => return true,
                Freed::Page => {}
            }
        }
        self.pages.insert_run(page, end);
        true
    }

    /// Adds a slot of a header chunk to the free slots. Returns `false` when the slot is free already.
    pub(crate) fn free_header(&mut self, addr: Addr) -> bool {
        let (chunk, slot) = slot_of(addr);
        insert_slot(self.chunks.entry(chunk).or_default(), slot)
    }
}
