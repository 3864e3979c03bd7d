//! Saves the allocator at a clean close, and loads it at the next open.
//!
//! Safe when power fails: the saved bytes lie in free space, and count only with the clean mark, which is
//! published after them. An open clears the mark before any use of storage. On `dram` and `pmem`, the cleared
//! mark is durable before the open continues. On a disk, the cleared mark is durable only after the first
//! drain. If a page of saved bytes is overwritten in place before that drain, the checksum of the saved bytes
//! does not match. The next open then recovers the volume.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Dirty, Medium, Ordered, PAGE_SIZE};
use zerocopy::{FromZeros, IntoBytes};

use crate::Result;
use crate::space::{FreeMap, Space, SpaceContext, saved};
use crate::tables::geometry::{page_addr, page_of};
use crate::tables::layout::{CLEAN, CLEAN_MARK, VOLUME_PAGE, VolumePage};

/// Finds `pages` free pages in a row that the host has provided. Returns the first of them.
fn run_with_memory(space: &Space, map: &FreeMap, pages: u32) -> Option<u32> {
    let central = space.central();
    let has_memory = |page: &u32| central.has_memory(*page);
    map.pages.runs().find_map(|(mut start, end)| {
        while end - start >= pages {
            match (start..start + pages).rev().find(|page| !has_memory(page)) {
                None => return Some(start),
                Some(missing) => start = missing + 1,
            }
        }
        None
    })
}

/// Saves the free space and sets the clean mark. If the volume has no room for the saved bytes, or storage
/// leaked, the mark stays clear and the next open recovers the volume. Callers make sure that no Op runs
/// during the call or after it.
pub(super) fn save(space: &Space, volume_id: [u8; 16]) -> Result<()> {
    let context = space.context();
    let medium = &context.medium;
    medium.check()?;
    if space.must_recover() {
        return Ok(());
    }
    // After the drain, the last durable cut uses no free page, so the saved bytes can go to any free page.
    medium.drain()?;
    let gate = medium.enter()?;
    let (place, bytes) = loop {
        let map = space.free_map();
        let bytes = saved::encode(&map, volume_id);
        let pages = bytes.len().div_ceil(PAGE_SIZE as usize) as u32;
        if let Some(start) = run_with_memory(space, &map, pages) {
            break (page_addr(start), bytes);
        }
        // The growth changes the free map, so the loop encodes the map again.
        match space.central().grow(context, pages) {
            Ok(true) => {}
            _ => return Ok(()),
        }
    };
    drop(gate);
    let mut dirty = Dirty::nothing();
    for (part, at) in bytes.chunks(PAGE_SIZE as usize).zip((0..).step_by(PAGE_SIZE as usize)) {
        // The saved bytes count only with the mark. Therefore each page may be written in its own passage
        // through the gate, and the journal of a disk needs no room for all pages at once.
        let _gate = medium.enter()?;
        // On a disk, this call keeps the write from reading the old bytes of the page, which may not match
        // their checksum.
        medium.mark_allocated(place.add(at), PAGE_SIZE)?;
        dirty = dirty.and(medium.write(place.add(at), part)?);
    }
    let _gate = medium.enter()?;
    let mut line = VolumePage::new_zeroed();
    line.saved_addr.set(place.raw());
    line.saved_bytes.set(bytes.len() as u64);
    line.saved_checksum.set(saved::checksum(&bytes));
    let from = std::mem::offset_of!(VolumePage, saved_addr);
    let to = std::mem::offset_of!(VolumePage, reserved_2);
    if broken(SafetyRule::SavedAllocatorBeforeItsMark) {
        let early = medium.publish(CLEAN_MARK, CLEAN, Ordered::nothing())?;
        medium.settle(early);
    }
    let dirty = dirty.and(medium.write(CLEAN_MARK.add(8), &line.as_bytes()[from..to])?);
    let ordered = medium.barrier(dirty);
    let published = medium.publish(CLEAN_MARK, CLEAN, ordered)?;
    medium.settle(published);
    Ok(())
}

/// Returns the saved map that the volume page names, or `None` if the clean mark is not set or the map is
/// damaged.
pub(super) fn load(context: &SpaceContext, page: &VolumePage, volume_id: [u8; 16]) -> Option<FreeMap> {
    let place = Addr::from_raw(page.saved_addr.get());
    let saved_bytes = page.saved_bytes.get();
    let within = place.is_aligned(PAGE_SIZE) && place.segment_index() == 0;
    let room = context.end_of_used_groups().checked_sub(place.offset())?;
    // Slab pages and runs of shared pages take the most room in a saved map: at most 16 bytes for each page
    // of 4096 bytes, which is 1/256 of the groups in use. The limit is above 1/128 of the groups in use, so
    // it accepts every sound map.
    let largest = PAGE_SIZE + context.end_of_used_groups() / 128;
    if page.clean.get() != CLEAN || !within || saved_bytes == 0 || saved_bytes > room.min(largest) {
        return None;
    }
    let mut bytes = vec![0; saved_bytes as usize];
    context.medium.read(place, &mut bytes).ok()?;
    if !context.medium.verify(saved::checksum(&bytes) == page.saved_checksum.get()) {
        return None;
    }
    let map = saved::decode(&bytes, context, volume_id)?;
    let pages = (page_of(place.offset()), page_of(place.offset() + saved_bytes.next_multiple_of(PAGE_SIZE)));
    let all_free = (pages.0..pages.1).all(|page| map.pages.contains(page));
    all_free.then_some(map)
}

/// Clears the clean mark. After this call the volume may change. On a disk, the first drain makes the cleared
/// mark durable.
pub(super) fn clear_mark(medium: &Medium) -> Result<()> {
    if broken(SafetyRule::CleanMarkIsClearedByOpening) {
        return Ok(());
    }
    let published = medium.publish(CLEAN_MARK, 0, Ordered::nothing())?;
    medium.settle(published);
    Ok(())
}

const _: () = assert!(CLEAN_MARK.raw() == VOLUME_PAGE.add(128).raw());
