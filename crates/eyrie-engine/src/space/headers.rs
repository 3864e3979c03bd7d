//! Slots for object headers, in header chunks.
//!
//! A bitmap on media names these chunks. Readers use its mirror in memory without a lock.
//!
//! Safe when power fails: a chunk is cleared before its bit is published, so recovery never takes stale bytes
//! for headers. The bit settles before a slot is allocated. After a crash between these two steps, the chunk
//! is empty, and the next open uses its slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium, Ordered, PAGE_SIZE, SegmentId};

use super::number_map::NumberMap;
use crate::tables::geometry::{Geometry, page_addr};
use crate::tables::layout::{CHUNK_BYTES, CHUNK_MAP, HEADER_BYTES, HEADERS_PER_CHUNK};
use crate::{Error, Result};

/// Pages in a chunk.
pub(crate) const CHUNK_PAGES: u32 = (CHUNK_BYTES / PAGE_SIZE) as u32;

/// One bit for each slot of a chunk.
pub(crate) type HeaderSlots = [u64; 4];

/// Returns the address of slot `slot` of chunk `chunk`.
pub(super) fn slot_addr(chunk: u32, slot: u32) -> Addr {
    Addr::new(SegmentId(0), u64::from(chunk) * CHUNK_BYTES + u64::from(slot) * HEADER_BYTES)
}

/// Returns the chunk and the slot of a header's address.
pub(super) fn slot_of(addr: Addr) -> (u32, u32) {
    let offset = addr.offset();
    ((offset / CHUNK_BYTES) as u32, (offset % CHUNK_BYTES / HEADER_BYTES) as u32)
}

/// Adds a slot to a set. Returns true if the slot was not in the set.
pub(super) fn insert_slot(slots: &mut HeaderSlots, slot: u32) -> bool {
    let (word, bit) = (&mut slots[slot as usize / 64], 1 << (slot % 64));
    let new = *word & bit == 0;
    *word |= bit;
    new
}

/// The header chunks of the volume: the mirror of the bitmap on media. No bit of the map is cleared, except
/// when a reader goes on with the next owner ([`ChunkMap::clear`]). A reader without a lock may therefore
/// miss a chunk that is being added, but never sees a wrong one.
#[derive(Clone)]
pub(crate) struct ChunkMap {
    words: Arc<[AtomicU64]>,
}

impl ChunkMap {
    /// Reads the bitmap of a volume whose groups are in use up to offset `end`.
    pub(super) fn read(medium: &Medium, geometry: &Geometry, end: u64) -> Result<ChunkMap> {
        let map = ChunkMap::unverified(medium, geometry)?;
        let impossible = map.chunks().find(|&chunk| !ChunkMap::is_possible(geometry, end, chunk));
        match impossible {
            Some(chunk) => {
                let word = CHUNK_MAP.add(u64::from(chunk / 64) * 8);
                Err(Error::corrupt(word, "a header chunk outside the groups in use"))
            }
            None => Ok(map),
        }
    }

    /// Works like [`ChunkMap::read`], but drops impossible chunks instead of returning an error.
    pub(super) fn read_possible(medium: &Medium, geometry: &Geometry, end: u64) -> Result<ChunkMap> {
        let map = ChunkMap::unverified(medium, geometry)?;
        for chunk in map.chunks().filter(|&chunk| !ChunkMap::is_possible(geometry, end, chunk)) {
            map.words[chunk as usize / 64].fetch_and(!(1 << (chunk % 64)), Ordering::Relaxed);
        }
        Ok(map)
    }

    fn unverified(medium: &Medium, geometry: &Geometry) -> Result<ChunkMap> {
        let mut bytes = vec![0; geometry.chunk_words() * 8];
        medium.read(CHUNK_MAP, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(ChunkMap { words: words.iter().map(|&word| u64::from_le_bytes(word).into()).collect() })
    }

    /// Adds the possible chunks of the bitmap on media. Another process adds chunks to that bitmap.
    pub(super) fn follow(&self, medium: &Medium, geometry: &Geometry, end: u64) {
        let Ok(now) = ChunkMap::read_possible(medium, geometry, end) else { return };
        for (mine, now) in self.words.iter().zip(now.words.iter()) {
            mine.fetch_or(now.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    /// Forgets all chunks of a map that follows another process.
    pub(super) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Release));
    }

    fn is_possible(geometry: &Geometry, end: u64, chunk: u32) -> bool {
        let start = u64::from(chunk) * CHUNK_BYTES;
        start >= geometry.data_start() && start + CHUNK_BYTES <= end
    }

    #[inline]
    pub(crate) fn contains(&self, chunk: u32) -> bool {
        let word = self.words.get(chunk as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (chunk % 64) & 1 != 0)
    }

    /// True if any byte of the `bytes` bytes from `offset` on is in a header chunk.
    #[inline]
    pub(super) fn overlaps(&self, offset: u64, bytes: u64) -> bool {
        let (first, last) = ((offset / CHUNK_BYTES) as u32, ((offset + bytes - 1) / CHUNK_BYTES) as u32);
        self.contains(first) || first != last && (first + 1..=last).any(|chunk| self.contains(chunk))
    }

    /// Returns the chunks, in order.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut word = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                word &= word.wrapping_sub(1);
                (bit < 64).then_some(index as u32 * 64 + bit)
            })
        })
    }

    /// Makes `chunk` a header chunk. Callers have allocated its pages. They also hold the central lock,
    /// because the bit is added by a load and a store, not by one atomic instruction.
    fn add(&self, medium: &Medium, chunk: u32) -> Result<()> {
        let word = &self.words[chunk as usize / 64];
        // A relaxed load is enough, because only the holder of the central lock stores this word.
        let value = word.load(Ordering::Relaxed) | 1 << (chunk % 64);
        let place = CHUNK_MAP.add(u64::from(chunk / 64) * 8);
        if broken(SafetyRule::ChunkIsClearedBeforeItsBit) {
            let early = medium.publish_apart(place, value, Ordered::nothing())?;
            medium.settle(early);
        }
        let cleared = medium.zero(page_addr(chunk * CHUNK_PAGES), CHUNK_BYTES)?;
        let cleared = medium.barrier(cleared);
        let published = medium.publish_apart(place, value, cleared)?;
        medium.settle(published);
        // The mirror changes last, so readers without a lock see the bit only after the bit on media has
        // settled.
        word.store(value, Ordering::Release);
        Ok(())
    }
}

/// The free slots of header chunks. Chunks without a free slot are absent.
#[derive(Default, Debug)]
pub(super) struct Headers {
    free: NumberMap<HeaderSlots>,
    /// The keys of `free`. [`Headers::allocate`] takes slots of the last chunk of the list. A chunk that is
    /// added goes to the end.
    list: Vec<u32>,
}

impl Headers {
    /// Returns the state with these free slots. Each chunk in `free` has at least one free slot.
    pub(super) fn with_slots(free: NumberMap<HeaderSlots>) -> Headers {
        let mut list: Vec<u32> = free.keys().copied().collect();
        list.sort_unstable_by(|a, b| b.cmp(a));
        Headers { free, list }
    }

    pub(super) fn free_slots(&self) -> &NumberMap<HeaderSlots> {
        &self.free
    }

    /// Allocates a slot.
    pub(super) fn allocate(&mut self) -> Option<Addr> {
        let &chunk = self.list.last()?;
        let slots = self.free.get_mut(&chunk)?;
        let word = slots.iter().position(|&word| word != 0)?;
        let bit = slots[word].trailing_zeros();
        slots[word] &= slots[word] - 1;
        if slots.iter().all(|&word| word == 0) {
            self.free.remove(&chunk);
            self.list.pop();
        }
        Some(slot_addr(chunk, word as u32 * 64 + bit))
    }

    /// Allocates this slot. Returns false if it is not free.
    pub(super) fn take(&mut self, addr: Addr) -> bool {
        let (chunk, slot) = slot_of(addr);
        let Some(slots) = self.free.get_mut(&chunk) else { return false };
        let (word, bit) = (&mut slots[slot as usize / 64], 1 << (slot % 64));
        let is_free = *word & bit != 0;
        *word &= !bit;
        if slots.iter().all(|&word| word == 0) {
            self.free.remove(&chunk);
            self.list.retain(|&listed| listed != chunk);
        }
        is_free
    }

    /// Frees a slot of a header chunk. Returns `false` when the slot is free already.
    pub(super) fn free(&mut self, addr: Addr) -> bool {
        let (chunk, slot) = slot_of(addr);
        let list = &mut self.list;
        let slots = self.free.entry(chunk).or_insert_with(|| {
            list.push(chunk);
            [0; 4]
        });
        insert_slot(slots, slot)
    }

    /// Makes `chunk` a header chunk and adds all its slots as free. Callers have allocated its 16 pages.
    pub(super) fn add(&mut self, medium: &Medium, chunks: &ChunkMap, chunk: u32) -> Result<()> {
        chunks.add(medium, chunk)?;
        self.free.insert(chunk, [u64::MAX; 4]);
        self.list.push(chunk);
        Ok(())
    }
}

const _: () = assert!(HEADERS_PER_CHUNK == 64 * 4);
