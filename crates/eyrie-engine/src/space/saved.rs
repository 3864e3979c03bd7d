//! The saved form of a free map. A clean close writes it, and the next open reads it.
//!
//! Saved bytes are untrusted until [`decode`] has compared them with the volume and with each other. Wrong
//! saved bytes are not errors, because the open then rebuilds the free space as after a crash.

use eyrie_medium::rules::{SafetyRule, broken};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::bits::Bits;
use super::context::SpaceContext;
use super::free_map::FreeMap;
use super::headers::CHUNK_PAGES;
use super::shared::SharedRun;
use super::slab::{SlabPage, all_slots};
use crate::extent::Class;
use crate::tables::geometry::page_of;
use crate::tables::layout::{HEADERS_PER_CHUNK, SAVED_MAGIC, SavedChunk, SavedHeader, SavedRun, SavedSlab};

const VERSION: u32 = 1;

/// Returns the checksum of a saved allocator.
pub(crate) fn checksum(saved: &[u8]) -> u32 {
    let is_short = broken(SafetyRule::SavedChecksumCoversAll);
    crc32c::crc32c(if is_short { &saved[..size_of::<SavedHeader>()] } else { saved })
}

/// Returns the saved form of `map`.
pub(crate) fn encode(map: &FreeMap, volume_id: [u8; 16]) -> Vec<u8> {
    let mut header = SavedHeader::new_zeroed();
    header.magic = SAVED_MAGIC;
    header.version.set(VERSION);
    header.volume_id = volume_id;
    header.words.set(map.pages.words().len() as u64);
    header.slabs.set(map.slabs.len() as u64);
    header.chunks.set(map.chunks.len() as u64);
    header.live_bytes.set(map.live_bytes);
    header.objects.set(map.objects);
    header.shared.set(if broken(SafetyRule::CountsAreSaved) { 0 } else { map.shared.len() as u64 });
    let mut bytes = header.as_bytes().to_vec();
    map.pages.words().iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    let mut slabs: Vec<_> = map.slabs.iter().collect();
    slabs.sort_unstable_by_key(|(page, _)| **page);
    for (&page, slab) in slabs {
        let mut saved = SavedSlab::new_zeroed();
        saved.page.set(page);
        saved.class = slab.class.raw();
        saved.free.set(slab.bits);
        bytes.extend(saved.as_bytes());
    }
    let mut chunks: Vec<_> = map.chunks.iter().collect();
    chunks.sort_unstable();
    for (&chunk, slots) in chunks {
        let mut saved = SavedChunk::new_zeroed();
        saved.chunk.set(chunk);
        saved.free = slots.map(Into::into);
        bytes.extend(saved.as_bytes());
    }
    for run in map.shared.iter().take(header.shared.get() as usize) {
        let mut saved = SavedRun::new_zeroed();
        saved.page.set(run.page);
        saved.pages.set(run.pages);
        saved.pointers.set(run.pointers);
        bytes.extend(saved.as_bytes());
    }
    bytes
}

/// The parts of saved bytes: the header, the bitmap of free pages in words, the slab pages, the header
/// chunks, and the shared pages.
struct SavedParts<'a> {
    header: SavedHeader,
    words: &'a [u8],
    slabs: &'a [SavedSlab],
    chunks: &'a [SavedChunk],
    shared: &'a [SavedRun],
}

/// Returns the map that `bytes` describe, or `None` when `bytes` contradict the volume or themselves.
pub(crate) fn decode(bytes: &[u8], context: &SpaceContext, volume_id: [u8; 16]) -> Option<FreeMap> {
    let parts = split(bytes, context, volume_id)?;
    let mut map = FreeMap { live_bytes: parts.header.live_bytes.get(), ..FreeMap::default() };
    if map.live_bytes > context.end_of_used_groups().saturating_sub(context.geometry.data_start()) {
        return None;
    }
    decode_pages(&mut map, parts.words, context)?;
    decode_slabs(&mut map, parts.slabs, context)?;
    decode_chunks(&mut map, parts.chunks, context)?;
    decode_shared(&mut map, parts.shared, context)?;
    (parts.header.objects.get() == map.objects).then_some(map)
}

/// Splits saved bytes into their parts. Returns `None` if the bytes are not a saved allocator, belong to
/// another volume, have an unknown version, or have a wrong length.
fn split<'a>(bytes: &'a [u8], context: &SpaceContext, volume_id: [u8; 16]) -> Option<SavedParts<'a>> {
    let (header, rest) = SavedHeader::read_from_prefix(bytes).ok()?;
    let words = u64::from(page_of(context.end_of_used_groups()).div_ceil(64));
    let known = header.magic == SAVED_MAGIC && header.version.get() == VERSION;
    if !known || header.volume_id != volume_id || header.words.get() != words {
        return None;
    }
    let (words, rest) = rest.split_at_checked(words as usize * 8)?;
    let slab_bytes = usize::try_from(header.slabs.get()).ok()?.checked_mul(size_of::<SavedSlab>())?;
    let (slabs, rest) = rest.split_at_checked(slab_bytes)?;
    let chunk_bytes = usize::try_from(header.chunks.get()).ok()?.checked_mul(size_of::<SavedChunk>())?;
    let (chunks, rest) = rest.split_at_checked(chunk_bytes)?;
    let shared_bytes = usize::try_from(header.shared.get()).ok()?.checked_mul(size_of::<SavedRun>())?;
    if rest.len() != shared_bytes {
        return None;
    }
    let slabs = <[SavedSlab]>::ref_from_bytes(slabs).ok()?;
    let chunks = <[SavedChunk]>::ref_from_bytes(chunks).ok()?;
    let shared = <[SavedRun]>::ref_from_bytes(rest).ok()?;
    Some(SavedParts { header, words, slabs, chunks, shared })
}

/// Adds the pages that are free as a whole. Returns `None` if one of them lies outside the groups in use, in
/// the tables, or in a header chunk.
fn decode_pages(map: &mut FreeMap, words: &[u8], context: &SpaceContext) -> Option<()> {
    let (start, end) = (page_of(context.geometry.data_start()), page_of(context.end_of_used_groups()));
    map.pages =
        Bits::from_words(words.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word)).collect());
    let beyond = map.pages.words().len() as u32 * 64;
    let outside = map.pages.any(0, start) || end < beyond && map.pages.any(end, beyond);
    let in_chunk = |chunk: u32| map.pages.any(chunk * CHUNK_PAGES, (chunk + 1) * CHUNK_PAGES);
    (!outside && !context.chunks.chunks().any(in_chunk)).then_some(())
}

/// Adds the free slots of slab pages. Returns `None` unless each page occurs once, can be a slab page, and
/// has at least one free slot and one slot in use.
fn decode_slabs(map: &mut FreeMap, slabs: &[SavedSlab], context: &SpaceContext) -> Option<()> {
    let (start, end) = (page_of(context.geometry.data_start()), page_of(context.end_of_used_groups()));
    for saved in slabs {
        let (page, bits) = (saved.page.get(), saved.free.get());
        let class = Class::from_raw(saved.class).filter(|class| class.is_small())?;
        let sound = bits != 0 && bits & !all_slots(class) == 0 && bits != all_slots(class);
        let placed = (start..end).contains(&page) && !context.chunks.contains(page / CHUNK_PAGES);
        if !sound || !placed || map.pages.contains(page) {
            return None;
        }
        if map.slabs.insert(page, SlabPage { class, bits }).is_some() {
            return None;
        }
    }
    Some(())
}

/// Adds the counts of shared pages. Returns `None` unless the runs are in order and do not overlap, each has
/// a page and at least two pointers, and each page is in use as a whole: it lies in the groups in use, and is
/// neither free, nor a slab page, nor in a header chunk.
fn decode_shared(map: &mut FreeMap, runs: &[SavedRun], context: &SpaceContext) -> Option<()> {
    let (mut start, end) = (page_of(context.geometry.data_start()), page_of(context.end_of_used_groups()));
    for saved in runs {
        let (page, pages, pointers) = (saved.page.get(), saved.pages.get(), saved.pointers.get());
        let after = page.checked_add(pages)?;
        if page < start || pages == 0 || after > end || pointers < 2 || map.pages.any(page, after) {
            return None;
        }
        let mut chunks = page / CHUNK_PAGES..after.div_ceil(CHUNK_PAGES);
        if chunks.any(|chunk| context.chunks.contains(chunk)) {
            return None;
        }
        map.shared.push(SharedRun { page, pages, pointers });
        start = after;
    }
    // A run may have as many pages as the volume. So each slab page is searched for among the runs, and not
    // each page of a run among the slab pages.
    let in_run = |page: &u32| {
        let before = &map.shared[..map.shared.partition_point(|run| run.page <= *page)];
        before.last().is_some_and(|run| *page < run.page + run.pages)
    };
    (!map.slabs.keys().any(in_run)).then_some(())
}

/// Adds the free slots of header chunks, and counts the slots in use as objects. Returns `None` unless each
/// chunk occurs once, is a header chunk, and has a free slot.
fn decode_chunks(map: &mut FreeMap, chunks: &[SavedChunk], context: &SpaceContext) -> Option<()> {
    let mut slots = context.chunks.chunks().count() as u64 * HEADERS_PER_CHUNK;
    for saved in chunks {
        let free = saved.free.map(u64::from);
        slots -= free.iter().map(|word| u64::from(word.count_ones())).sum::<u64>().min(slots);
        let placed = context.chunks.contains(saved.chunk.get()) && free != [0; 4];
        if !placed || map.chunks.insert(saved.chunk.get(), free).is_some() {
            return None;
        }
    }
    map.objects = slots;
    Some(())
}
