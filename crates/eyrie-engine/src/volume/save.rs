//! The allocator, saved by a clean close and loaded by the next open.
//!
//! Safe when power fails: the saved bytes lie in free space, and count only once the clean mark is published after them. An
//! open clears the mark, durably, before anything else changes. On a disk it is cleared with the first drain; until then what is written
//! over the saved bytes makes their checksum wrong. Whatever looks wrong in them is no error: the open then finds out what is free as
//! after a crash.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium, Ordered, SegmentId};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::bits::Bits;
use super::central::Shared;
use super::free_map::FreeMap;
use super::geometry::{page_addr, page_of};
use super::headers::CHUNK_PAGES;
use super::layout::{CLEAN, CLEAN_MARK, SAVED_MAGIC, SavedChunk, SavedHeader, SavedSlab, VolumePage};
use super::slab::{SlabPage, all_slots};
use super::space::Space;
use crate::Result;
use crate::object::pointer::Class;

const VERSION: u32 = 1;

/// The checksum of a saved allocator.
fn checksum(saved: &[u8]) -> u32 {
    let is_short = broken(SafetyRule::SavedChecksumCoversAll);
    crc32c::crc32c(if is_short { &saved[..size_of::<SavedHeader>()] } else { saved })
}

/// The saved form of `map`.
fn encode(map: &FreeMap, volume_id: [u8; 16]) -> Vec<u8> {
    let mut header = SavedHeader::new_zeroed();
    header.magic = SAVED_MAGIC;
    header.version.set(VERSION);
    header.volume_id = volume_id;
    header.words.set(map.pages.words().len() as u64);
    header.slabs.set(map.slabs.len() as u64);
    header.chunks.set(map.chunks.len() as u64);
    header.live_bytes.set(map.live_bytes);
    header.objects.set(map.objects);
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
    bytes
}

/// The map that `bytes` describe; `None` when anything in them contradicts the volume or itself.
fn decode(bytes: &[u8], shared: &Shared, volume_id: [u8; 16]) -> Option<FreeMap> {
    let (header, rest) = SavedHeader::read_from_prefix(bytes).ok()?;
    let (start, end) = (page_of(shared.geometry.data_start()), page_of(shared.end()));
    let words = end.div_ceil(64) as usize;
    let known = header.magic == SAVED_MAGIC && header.version.get() == VERSION;
    if !known || header.volume_id != volume_id || header.words.get() != words as u64 {
        return None;
    }
    let (words, rest) = rest.split_at_checked(words * 8)?;
    let slab_bytes = usize::try_from(header.slabs.get()).ok()?.checked_mul(size_of::<SavedSlab>())?;
    let (slabs, rest) = rest.split_at_checked(slab_bytes)?;
    let chunk_bytes = usize::try_from(header.chunks.get()).ok()?.checked_mul(size_of::<SavedChunk>())?;
    if rest.len() != chunk_bytes {
        return None;
    }
    let mut map = FreeMap { live_bytes: header.live_bytes.get(), ..FreeMap::default() };
    map.pages =
        Bits::from_words(words.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word)).collect());
    let beyond = map.pages.words().len() as u32 * 64;
    let outside = map.pages.any(0, start) || end < beyond && map.pages.any(end, beyond);
    let mut slots = 0;
    for chunk in shared.chunks.chunks() {
        slots += 256;
        if map.pages.any(chunk * CHUNK_PAGES, (chunk + 1) * CHUNK_PAGES) {
            return None;
        }
    }
    if outside || map.live_bytes > shared.end().saturating_sub(shared.geometry.data_start()) {
        return None;
    }
    for saved in <[SavedSlab]>::ref_from_bytes(slabs).ok()? {
        let (page, bits) = (saved.page.get(), saved.free.get());
        let class = Class::from_raw(saved.class).filter(|class| class.is_small())?;
        let sound = bits != 0 && bits & !all_slots(class) == 0 && bits != all_slots(class);
        let placed = (start..end).contains(&page) && !shared.chunks.contains(page / CHUNK_PAGES);
        if !sound || !placed || map.pages.contains(page) {
            return None;
        }
        if map.slabs.insert(page, SlabPage { class, bits }).is_some() {
            return None;
        }
    }
    for saved in <[SavedChunk]>::ref_from_bytes(rest).ok()? {
        let free = saved.free.map(u64::from);
        slots -= free.iter().map(|word| u64::from(word.count_ones())).sum::<u64>().min(slots);
        let placed = shared.chunks.contains(saved.chunk.get()) && free != [0; 4];
        if !placed || map.chunks.insert(saved.chunk.get(), free).is_some() {
            return None;
        }
    }
    map.objects = slots;
    (header.objects.get() == slots).then_some(map)
}

/// The first of so many free pages in a row that the host has memory of.
fn backed_run(space: &Space, map: &FreeMap, pages: u32) -> Option<u32> {
    let central = space.central();
    let backed = |page: &u32| central.has_memory(*page);
    map.pages.runs().find_map(|(mut start, end)| {
        while end - start >= pages {
            match (start..start + pages).rev().find(|page| !backed(page)) {
                None => return Some(start),
                Some(unbacked) => start = unbacked + 1,
            }
        }
        None
    })
}

/// Saves what is free and sets the clean mark; without room for it, or where not all of it is known, the next open finds
/// out by itself. Nothing else
/// runs meanwhile, or after.
pub(super) fn save(space: &Space, volume_id: [u8; 16]) -> Result<()> {
    let shared = space.shared();
    let medium = &shared.medium;
    medium.check()?;
    if space.has_lost() {
        return Ok(());
    }
    let (place, bytes) = loop {
        let map = space.free_map();
        let bytes = encode(&map, volume_id);
        let pages = bytes.len().div_ceil(4096) as u32;
        if let Some(start) = backed_run(space, &map, pages) {
            break (page_addr(start), bytes);
        }
        match space.central().grow(shared, pages) {
            Ok(true) => {}
            _ => return Ok(()),
        }
    };
    let mut line = VolumePage::new_zeroed();
    line.saved_addr.set(place.raw());
    line.saved_bytes.set(bytes.len() as u64);
    line.saved_checksum.set(checksum(&bytes));
    let from = std::mem::offset_of!(VolumePage, saved_addr);
    let to = std::mem::offset_of!(VolumePage, reserved_2);
    if broken(SafetyRule::SavedAllocatorBeforeItsMark) {
        let early = medium.publish(CLEAN_MARK, CLEAN, Ordered::nothing())?;
        medium.settle(early);
    }
    let blob = medium.write(place, &bytes)?;
    let dirty = blob.and(medium.write(CLEAN_MARK.add(8), &line.as_bytes()[from..to])?);
    let ordered = medium.barrier(dirty);
    let published = medium.publish(CLEAN_MARK, CLEAN, ordered)?;
    medium.settle(published);
    Ok(())
}

/// What the volume page says is saved, if it is whole and sound.
pub(super) fn load(shared: &Shared, page: &VolumePage, volume_id: [u8; 16]) -> Option<FreeMap> {
    let place = Addr::from_raw(page.saved_addr.get());
    let bytes = page.saved_bytes.get();
    let within = place.is_aligned(4096) && place.segment_index() == 0;
    let room = shared.end().checked_sub(place.offset())?;
    // Slab pages are what there can be most of: 16 bytes for every 4096.
    let largest = 4096 + shared.end() / 128;
    if page.clean.get() != CLEAN || !within || bytes == 0 || bytes > room.min(largest) {
        return None;
    }
    let mut saved = vec![0; bytes as usize];
    shared.medium.read(place, &mut saved).ok()?;
    if !shared.medium.verify(checksum(&saved) == page.saved_checksum.get()) {
        return None;
    }
    let map = decode(&saved, shared, volume_id)?;
    let pages = (page_of(place.offset()), page_of(place.offset() + bytes.next_multiple_of(4096)));
    let all_free = (pages.0..pages.1).all(|page| map.pages.contains(page));
    all_free.then_some(map)
}

/// Takes the clean mark away, durably: from here on the volume may change.
pub(super) fn clear_mark(medium: &Medium) -> Result<()> {
    if broken(SafetyRule::CleanMarkIsClearedByOpening) {
        return Ok(());
    }
    let published = medium.publish(CLEAN_MARK, 0, Ordered::nothing())?;
    medium.settle(published);
    Ok(())
}

const _: () = assert!(CLEAN_MARK.raw() == Addr::new(SegmentId(0), 2 * 4096 + 128).raw());
