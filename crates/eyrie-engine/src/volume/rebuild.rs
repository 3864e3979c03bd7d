//! What is free, found from what is in use: after a crash, and to check a volume.

use std::fmt;

use eyrie_medium::Addr;

use super::bits::Bits;
use super::central::Shared;
use super::free_map::FreeMap;
use super::geometry::{Geometry, page_addr, page_of};
use super::headers::{CHUNK_PAGES, Slots, insert_slot, slot_addr, slot_of};
use super::layout::{CHUNK_BYTES, HEADER_BYTES};
use super::slab::{NumberMap, SlabPage, all_slots};
use super::space::Space;
use crate::object::pointer::Extent;

/// Why an extent or a header cannot be where an object says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Overlap {
    /// Not in the groups in use, or not aligned as its size demands.
    #[error("outside the groups in use, or misaligned")]
    OutOfRange,
    /// An extent in memory of headers.
    #[error("an extent in a header chunk")]
    HeaderChunk,
    /// A header that is in no header chunk.
    #[error("a header outside the header chunks")]
    NoHeader,
    /// Another extent has some of its bytes.
    #[error("bytes that belong to two extents")]
    Taken,
}

impl Overlap {
    /// The same in words, for [`Error::corrupt`](crate::Error::corrupt).
    pub fn what(self) -> &'static str {
        match self {
            Overlap::OutOfRange => "an extent outside the groups in use, or misaligned",
            Overlap::HeaderChunk => "an extent in a header chunk",
            Overlap::NoHeader => "a header outside the header chunks",
            Overlap::Taken => "bytes that belong to two extents",
        }
    }
}

/// What the objects of a volume use, marked one by one.
pub struct Marks {
    geometry: Geometry,
    end: u64,
    /// Pages in use, those of small extents and header chunks included.
    pages: Bits,
    /// Pages of small extents: the slots in use.
    slabs: NumberMap<SlabPage>,
    /// Header chunks: the slots in use.
    chunks: NumberMap<Slots>,
    bytes: u64,
    objects: u64,
}

impl Marks {
    /// Nothing in use but the tables of the volume and its header chunks.
    pub(super) fn new(shared: &Shared) -> Marks {
        let (geometry, end) = (shared.geometry, shared.end());
        let mut pages = Bits::new(page_of(end));
        let tables = page_of(geometry.data_start().min(end));
        if tables > 0 {
            pages.insert_run(0, tables);
        }
        let mut chunks = NumberMap::default();
        for chunk in shared.chunks.chunks() {
            pages.insert_run(chunk * CHUNK_PAGES, (chunk + 1) * CHUNK_PAGES);
            chunks.insert(chunk, Slots::default());
        }
        Marks { geometry, end, pages, slabs: NumberMap::default(), chunks, bytes: 0, objects: 0 }
    }

    /// Marks the bytes of an extent as in use.
    ///
    /// # Errors
    /// [`Overlap`]; nothing was marked.
    pub fn mark_extent(&mut self, extent: Extent) -> Result<(), Overlap> {
        let Extent { addr, class } = extent;
        if !self.geometry.holds(extent, self.end) {
            return Err(Overlap::OutOfRange);
        }
        let (offset, bytes) = (addr.offset(), class.bytes());
        let (first, last) = ((offset / CHUNK_BYTES) as u32, ((offset + bytes - 1) / CHUNK_BYTES) as u32);
        if (first..=last).any(|chunk| self.chunks.contains_key(&chunk)) {
            return Err(Overlap::HeaderChunk);
        }
        let page = page_of(offset);
        if class.is_small() {
            let slab = match self.slabs.get_mut(&page) {
                Some(slab) => slab,
                None if self.pages.contains(page) => return Err(Overlap::Taken),
                None => self.slabs.entry(page).or_insert(SlabPage { class, bits: 0 }),
            };
            let bit = 1 << (offset % 4096 / bytes);
            if slab.class != class || slab.bits & bit != 0 {
                return Err(Overlap::Taken);
            }
            slab.bits |= bit;
            self.pages.insert(page);
        } else {
            let end = page + (bytes / 4096) as u32;
            if self.pages.any(page, end) {
                return Err(Overlap::Taken);
            }
            self.pages.insert_run(page, end);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Marks a header slot as in use; `false` when it was marked already.
    ///
    /// # Errors
    /// [`Overlap::NoHeader`].
    pub fn mark_header(&mut self, addr: Addr) -> Result<bool, Overlap> {
        let (chunk, slot) = slot_of(addr);
        if addr.segment_index() != 0 || !addr.is_aligned(HEADER_BYTES) {
            return Err(Overlap::NoHeader);
        }
        let slots = self.chunks.get_mut(&chunk).ok_or(Overlap::NoHeader)?;
        let new = insert_slot(slots, slot);
        if new {
            self.bytes += HEADER_BYTES;
            self.objects += 1;
        }
        Ok(new)
    }

    /// Whether a header slot is marked.
    pub fn has_header(&self, addr: Addr) -> bool {
        let (chunk, slot) = slot_of(addr);
        self.chunks.get(&chunk).is_some_and(|slots| slots[slot as usize / 64] >> (slot % 64) & 1 != 0)
    }

    /// Header slots that nothing marked, in order: their bytes may look live after a crash, and are not.
    pub fn unmarked_headers(&self) -> impl Iterator<Item = Addr> + '_ {
        let mut chunks: Vec<_> = self.chunks.iter().collect();
        chunks.sort_unstable();
        chunks.into_iter().flat_map(|(&chunk, slots)| {
            (0..256)
                .filter(move |slot| slots[slot / 64] >> (slot % 64) & 1 == 0)
                .map(move |slot| slot_addr(chunk, slot as u32))
        })
    }

    /// Everything else.
    pub(super) fn free_map(&self) -> FreeMap {
        let mut pages = Bits::new(page_of(self.end));
        let mut at = 0;
        for (start, end) in self.pages.runs().chain([(page_of(self.end), page_of(self.end))]) {
            if at < start {
                pages.insert_run(at, start);
            }
            at = end;
        }
        let slabs = self.slabs.iter().filter_map(|(&page, slab)| {
            let bits = all_slots(slab.class) & !slab.bits;
            (bits != 0).then_some((page, SlabPage { bits, ..*slab }))
        });
        let chunks = self.chunks.iter().map(|(&chunk, slots)| (chunk, slots.map(|word| !word)));
        FreeMap {
            pages,
            slabs: slabs.collect(),
            chunks: chunks.filter(|(_, slots)| *slots != [0; 4]).collect(),
            live_bytes: self.bytes,
            objects: self.objects,
        }
    }
}

/// How space and objects disagree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FindingKind {
    /// Not free, but no object reaches it: lost until the volume is rebuilt.
    Leaked,
    /// Free, but an object reaches it: it would be given out twice.
    FreeInUse,
}

/// A range whose state contradicts what the objects reach.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Its start.
    pub addr: Addr,
    /// Its length, in bytes.
    pub bytes: u64,
    /// What is wrong.
    pub kind: FindingKind,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            FindingKind::Leaked => "bytes are in use, but no object reaches them",
            FindingKind::FreeInUse => "bytes are free, but an object reaches them",
        };
        write!(f, "{}: {} {what}", self.addr, self.bytes)
    }
}

/// The bits of `a` that are not in `b`.
fn difference(a: &Bits, b: &Bits) -> Bits {
    let other = b.words().iter().copied().chain(std::iter::repeat(0));
    Bits::from_words(a.words().iter().zip(other).map(|(&a, b)| a & !b).collect())
}

impl Space {
    /// Compares what is free with what the objects do not use, range by range. Exact while nothing else runs.
    pub fn compare(&self, marks: &Marks) -> Vec<Finding> {
        let (ours, theirs) = (self.free_map(), marks.free_map());
        let mut findings = Vec::new();
        for (kind, a, b) in [(FindingKind::Leaked, &theirs, &ours), (FindingKind::FreeInUse, &ours, &theirs)]
        {
            for (start, end) in difference(&a.pages, &b.pages).runs() {
                let bytes = u64::from(end - start) * 4096;
                findings.push(Finding { addr: page_addr(start), bytes, kind });
            }
            for (&page, slab) in &a.slabs {
                let same = b.slabs.get(&page).filter(|other| other.class == slab.class);
                let extra = slab.bits & !same.map_or(0, |other| other.bits);
                let whole = b.pages.contains(page);
                for slot in (0..64).filter(|slot| !whole && extra >> slot & 1 != 0) {
                    let bytes = slab.class.bytes();
                    findings.push(Finding { addr: page_addr(page).add(slot * bytes), bytes, kind });
                }
            }
            for (&chunk, slots) in &a.chunks {
                let other = b.chunks.get(&chunk).copied().unwrap_or_default();
                for slot in (0..256).filter(|&s| (slots[s / 64] & !other[s / 64]) >> (s % 64) & 1 != 0) {
                    let addr = slot_addr(chunk, slot as u32);
                    findings.push(Finding { addr, bytes: HEADER_BYTES, kind });
                }
            }
        }
        findings.sort_unstable();
        findings
    }
}
