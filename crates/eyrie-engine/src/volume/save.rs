//! The allocator, saved by a clean close and loaded by the next open.
//!
//! Safe when power fails: the saved bytes lie in free space, and count only once the clean mark is
//! published after them. An open clears the mark durably before any other change. On a disk the first drain
//! clears the mark; until then, a write over the saved bytes makes their checksum wrong.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium, Ordered, PAGE_SIZE};
use zerocopy::{FromZeros, IntoBytes};

use crate::Result;
use crate::space::{FreeMap, Space, SpaceContext, saved};
use crate::tables::geometry::{page_addr, page_of};
use crate::tables::layout::{CLEAN, CLEAN_MARK, VOLUME_PAGE, VolumePage};

/// Returns the first of `pages` free pages in a row for which the host has memory.
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

/// Saves the free space and sets the clean mark. If there is no room for that, or storage was leaked, the
/// next open rebuilds the free space instead. Nothing else runs during the call or after it.
pub(super) fn save(space: &Space, volume_id: [u8; 16]) -> Result<()> {
    let context = space.context();
    let medium = &context.medium;
    medium.check()?;
    if space.has_leaks() {
        return Ok(());
    }
    let (place, bytes) = loop {
        let map = space.free_map();
        let bytes = saved::encode(&map, volume_id);
        let pages = bytes.len().div_ceil(PAGE_SIZE as usize) as u32;
        if let Some(start) = run_with_memory(space, &map, pages) {
            break (page_addr(start), bytes);
        }
        // More memory changes the free map, so the loop encodes it again.
        match space.central().grow(context, pages) {
            Ok(true) => {}
            _ => return Ok(()),
        }
    };
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
    let blob = medium.write(place, &bytes)?;
    let dirty = blob.and(medium.write(CLEAN_MARK.add(8), &line.as_bytes()[from..to])?);
    let ordered = medium.barrier(dirty);
    let published = medium.publish(CLEAN_MARK, CLEAN, ordered)?;
    medium.settle(published);
    Ok(())
}

/// Returns the saved map that the volume page names, if it is whole and sound.
pub(super) fn load(context: &SpaceContext, page: &VolumePage, volume_id: [u8; 16]) -> Option<FreeMap> {
    let place = Addr::from_raw(page.saved_addr.get());
    let saved_bytes = page.saved_bytes.get();
    let within = place.is_aligned(PAGE_SIZE) && place.segment_index() == 0;
    let room = context.end().checked_sub(place.offset())?;
    // Slab pages take the most room: 16 bytes for every page of 4096, 1/256. Twice that bounds any sound
    // map.
    let largest = PAGE_SIZE + context.end() / 128;
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

/// Clears the clean mark, durably. From here on the volume may change.
pub(super) fn clear_mark(medium: &Medium) -> Result<()> {
    if broken(SafetyRule::CleanMarkIsClearedByOpening) {
        return Ok(());
    }
    let published = medium.publish(CLEAN_MARK, 0, Ordered::nothing())?;
    medium.settle(published);
    Ok(())
}

const _: () = assert!(CLEAN_MARK.raw() == VOLUME_PAGE.add(128).raw());
