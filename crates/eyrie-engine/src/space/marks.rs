//! Records which memory of a volume its objects use. Each call marks one extent or one header.
//!
//! Several threads mark in parallel without a lock. If two extents overlap, at least one call returns an
//! error. Each bit is set by one atomic read-modify-write, which also returns the old bit. The first thread
//! that sets the bit of a page decides whether the page is a slab page or belongs to a large extent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use eyrie_medium::{Addr, PAGE_SIZE};

use super::bits::Bits;
use super::context::SpaceContext;
use super::free_map::FreeMap;
use super::headers::{CHUNK_PAGES, slot_addr, slot_of};
use super::number_map::NumberMap;
use super::shared::{PointerCounts, SharedRun};
use super::slab::{SlabPage, all_slots};
use crate::extent::{Class, Extent};
use crate::tables::geometry::{Geometry, page_of};
use crate::tables::layout::{CHUNK_BYTES, HEADER_BYTES};

/// Number of pages in a region. The marks of the slots of a region take memory only when the first small
/// extent in the region is marked: 4.5 KiB for 512 pages (2 MiB of the volume).
const REGION: u32 = 512;

/// The reason why an extent or a header cannot be marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Overlap {
    /// The extent lies outside the groups in use, or begins where no extent of its class can begin. An extent
    /// that is smaller than a page, but whose pointer has the shared bit, gives this error, too.
    #[error("outside the groups in use, or misaligned")]
    OutOfRange,
    /// The extent lies in a header chunk.
    #[error("an extent in a header chunk")]
    HeaderChunk,
    /// The header lies outside the header chunks, or at no slot of its chunk.
    #[error("a header outside the header chunks")]
    NoHeader,
    /// Another extent contains some of the same bytes, or has another class on the same page.
    #[error("bytes that belong to two extents")]
    TwoOwners,
}

impl Overlap {
    /// Returns the reason in words, for [`Error::corrupt`](crate::Error::corrupt).
    pub fn reason(self) -> &'static str {
        match self {
            Overlap::OutOfRange => "an extent outside the groups in use, or misaligned",
            Overlap::HeaderChunk => "an extent in a header chunk",
            Overlap::NoHeader => "a header outside the header chunks",
            Overlap::TwoOwners => "bytes that belong to two extents",
        }
    }
}

/// The small extents of [`REGION`] pages. For each page: its class (0 if it has none), and its slots in use.
struct SlabRegion {
    classes: [AtomicU8; REGION as usize],
    slots: [AtomicU64; REGION as usize],
}

impl SlabRegion {
    fn new() -> Box<SlabRegion> {
        Box::new(SlabRegion {
            classes: [const { AtomicU8::new(0) }; REGION as usize],
            slots: [const { AtomicU64::new(0) }; REGION as usize],
        })
    }
}

/// The memory that the objects of a volume use.
pub struct Marks {
    geometry: Geometry,
    end: u64,
    /// Pages in use, including pages of small extents, header chunks and tables.
    pages: Box<[AtomicU64]>,
    /// The small extents of each region. A region without small extents is empty.
    regions: Box<[OnceLock<Box<SlabRegion>>]>,
    /// The pointers to the pages that are marked as shared.
    shared: PointerCounts,
    /// The slots in use of each header chunk.
    chunks: NumberMap<[AtomicU64; 4]>,
}

impl Marks {
    /// Returns marks in which only the tables of the volume and its header chunks are in use.
    pub(crate) fn new(context: &SpaceContext) -> Marks {
        let (geometry, end) = (context.geometry, context.end_of_used_groups());
        let mut pages = Bits::new(page_of(end));
        let tables = page_of(geometry.data_start().min(end));
        if tables > 0 {
            pages.insert_run(0, tables);
        }
        let mut chunks = NumberMap::default();
        for chunk in context.chunks.chunks() {
            pages.insert_run(chunk * CHUNK_PAGES, (chunk + 1) * CHUNK_PAGES);
            chunks.insert(chunk, [const { AtomicU64::new(0) }; 4]);
        }
        let regions = (0..page_of(end).div_ceil(REGION)).map(|_| OnceLock::new()).collect();
        let pages = pages.words().iter().map(|&word| AtomicU64::new(word)).collect();
        let shared = PointerCounts::new(page_of(end), &[]);
        Marks { geometry, end, pages, regions, shared, chunks }
    }

    /// Returns the number of header slots.
    pub(crate) fn header_slots(&self) -> usize {
        self.chunks.len() * (CHUNK_BYTES / HEADER_BYTES) as usize
    }

    /// Marks the bytes of an extent as in use.
    ///
    /// # Errors
    /// [`Overlap`]. The call then marked nothing.
    pub(crate) fn mark_extent(&self, extent: Extent) -> Result<(), Overlap> {
        let Extent { addr, class } = extent;
        if !self.geometry.holds(extent, self.end) {
            return Err(Overlap::OutOfRange);
        }
        let (offset, bytes) = (addr.offset(), class.bytes());
        let page = page_of(offset);
        let new = if class.is_small() {
            self.mark_slot(page, class, offset % PAGE_SIZE / bytes)
        } else {
            self.mark_pages(page, page + (bytes / PAGE_SIZE) as u32)
        };
        if new {
            return Ok(());
        }
        let (first, last) = ((offset / CHUNK_BYTES) as u32, ((offset + bytes - 1) / CHUNK_BYTES) as u32);
        let in_chunk = (first..=last).any(|chunk| self.chunks.contains_key(&chunk));
        Err(if in_chunk { Overlap::HeaderChunk } else { Overlap::TwoOwners })
    }

    /// Marks the bytes of an extent. `is_shared` is true if the pointer to it has the shared bit.
    ///
    /// # Errors
    /// [`Overlap`].
    pub(crate) fn mark(&self, extent: Extent, is_shared: bool) -> Result<(), Overlap> {
        if is_shared { self.mark_shared(extent) } else { self.mark_extent(extent) }
    }

    /// Marks the bytes of an extent whose pointer has the shared bit. Other such pointers may lead to its
    /// pages, too. If other extents overlap, an error of this call may leave some of the pages marked.
    ///
    /// # Errors
    /// [`Overlap`].
    fn mark_shared(&self, extent: Extent) -> Result<(), Overlap> {
        if extent.class.is_small() || !self.geometry.holds(extent, self.end) {
            return Err(Overlap::OutOfRange);
        }
        let first = page_of(extent.addr.offset());
        for page in first..first + (extent.bytes() / PAGE_SIZE) as u32 {
            // The first pointer claims the page. If the page is in use already, the pointer of its owner has
            // no shared bit.
            if self.shared.mark(page) && !self.mark_pages(page, page + 1) {
                self.shared.unmark(page);
                let chunk = page / CHUNK_PAGES;
                return Err(match self.chunks.contains_key(&chunk) {
                    true => Overlap::HeaderChunk,
                    false => Overlap::TwoOwners,
                });
            }
        }
        Ok(())
    }

    /// Marks a slot of a slab page. Returns false if the slot is marked already, or the page has another use.
    fn mark_slot(&self, page: u32, class: Class, slot: u64) -> bool {
        let region = self.regions[(page / REGION) as usize].get_or_init(SlabRegion::new);
        let within = (page % REGION) as usize;
        let of_page = &region.classes[within];
        // A compare-and-exchange decides between threads that meet on a page: the first thread sets the
        // class.
        let seen = match of_page.load(Ordering::Acquire) {
            0 => of_page.compare_exchange(0, class.raw(), Ordering::AcqRel, Ordering::Acquire),
            other => Err(other),
        };
        match seen {
            Ok(_) => {
                // The class alone does not claim the page, because a large extent claims pages by their bits.
                // If the bit was set before, the page belongs to a large extent or a header chunk, and the
                // class is withdrawn.
                let word = &self.pages[page as usize / 64];
                if word.fetch_or(1 << (page % 64), Ordering::AcqRel) >> (page % 64) & 1 != 0 {
                    of_page.store(0, Ordering::Release);
                    return false;
                }
            }
            Err(other) if other != class.raw() => return false,
            Err(_) => {}
        }
        region.slots[within].fetch_or(1 << slot, Ordering::AcqRel) >> slot & 1 == 0
    }

    /// Marks whole pages. Returns false, without a change, if one of the pages is marked already.
    fn mark_pages(&self, start: u32, end: u32) -> bool {
        for (word, mask) in Bits::masks(start, end) {
            let taken = self.pages[word].fetch_or(mask, Ordering::AcqRel) & mask;
            if taken != 0 {
                // Another extent has some of the pages: clear the bits that this call set, and only those.
                self.pages[word].fetch_and(!(mask & !taken), Ordering::AcqRel);
                let before = Bits::masks(start, end).take_while(|(earlier, _)| *earlier < word);
                before.for_each(|(word, mask)| _ = self.pages[word].fetch_and(!mask, Ordering::AcqRel));
                return false;
            }
        }
        true
    }

    /// Marks a header slot as in use. Returns `false` when the slot is marked already.
    ///
    /// # Errors
    /// [`Overlap::NoHeader`].
    pub(crate) fn mark_header(&self, addr: Addr) -> Result<bool, Overlap> {
        let (chunk, slot) = slot_of(addr);
        if addr.segment_index() != 0 || !addr.is_aligned(HEADER_BYTES) {
            return Err(Overlap::NoHeader);
        }
        let slots = self.chunks.get(&chunk).ok_or(Overlap::NoHeader)?;
        let before = slots[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::AcqRel);
        Ok(before >> (slot % 64) & 1 == 0)
    }

    /// Returns the header slots that are not marked, in order. After a crash their bytes may look like an
    /// object, but these slots are free.
    pub fn unmarked_headers(&self) -> impl Iterator<Item = Addr> + '_ {
        let mut chunks: Vec<_> = self.chunks.iter().collect();
        chunks.sort_unstable_by_key(|(chunk, _)| **chunk);
        chunks.into_iter().flat_map(|(&chunk, slots)| {
            (0..256)
                .filter(move |slot| slots[slot / 64].load(Ordering::Acquire) >> (slot % 64) & 1 == 0)
                .map(move |slot| slot_addr(chunk, slot as u32))
        })
    }

    /// Returns the number of bytes that sharing saves: one page for each pointer to a shared page, except the
    /// first pointer to the page.
    pub(crate) fn saved_by_sharing(&self) -> u64 {
        self.shared.runs().iter().map(SharedRun::saved).sum()
    }

    /// Returns all memory that is not marked.
    pub(crate) fn free_map(&self) -> FreeMap {
        let end = page_of(self.end);
        let mut pages =
            Bits::from_words(self.pages.iter().map(|word| !word.load(Ordering::Acquire)).collect());
        let beyond = self.pages.len() as u32 * 64;
        if end < beyond {
            pages.remove_run(end, beyond);
        }
        let mut map = FreeMap { pages, ..FreeMap::default() };
        let tables = page_of(self.geometry.data_start().min(self.end));
        let others = tables + self.chunks.len() as u32 * CHUNK_PAGES + self.add_slabs(&mut map);
        let whole = end - map.pages.count() - others;
        map.live_bytes += u64::from(whole) * PAGE_SIZE;
        for (&chunk, slots) in &self.chunks {
            let free = slots.each_ref().map(|word| !word.load(Ordering::Acquire));
            map.objects += 256 - free.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            if free != [0; 4] {
                map.chunks.insert(chunk, free);
            }
        }
        map.live_bytes += map.objects * HEADER_BYTES;
        map.shared = self.shared.runs();
        map
    }

    /// Adds the free slots of slab pages, and the number of bytes in use in these pages, to `map`. Returns
    /// the number of slab pages.
    fn add_slabs(&self, map: &mut FreeMap) -> u32 {
        let mut count = 0;
        for (number, region) in self.regions.iter().enumerate() {
            let Some(region) = region.get() else { continue };
            for (within, (class, slots)) in region.classes.iter().zip(&region.slots).enumerate() {
                let Some(class) = Class::from_raw(class.load(Ordering::Acquire)) else { continue };
                let used = slots.load(Ordering::Acquire);
                count += 1;
                map.live_bytes += u64::from(used.count_ones()) * class.bytes();
                let bits = all_slots(class) & !used;
                if bits != 0 {
                    map.slabs.insert(number as u32 * REGION + within as u32, SlabPage { class, bits });
                }
            }
        }
        count
    }
}
