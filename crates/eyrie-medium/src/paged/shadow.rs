//! Pages as they were at a cut, kept because they were changed before the drain came to them.
//!
//! They have a mapping of their own, filled from its start and given back when the drain is done. Thousands of pages
//! that come and go would leave a general allocator with holes: memory that nobody uses and no limit counts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::Advice;

use super::journal::PageBytes;
use super::locked;
use crate::addr::PAGE_SIZE;
use crate::copy;
use crate::fault::Fault;
use crate::mapping::Mapping;

const PAGE: usize = PAGE_SIZE as usize;
/// Pages whose memory stays: small drains need not ask the host again.
const STAYING: usize = 64;

/// A page as it was.
pub(super) struct Shadow {
    pub(super) lines: u64,
    pub(super) fresh: bool,
    place: usize,
}

pub(super) struct Shadows {
    memory: Mapping,
    /// Places that are taken.
    used: AtomicUsize,
    kept: Mutex<HashMap<usize, Shadow>>,
}

impl Shadows {
    /// Room for as many pages.
    pub(super) fn new(pages: usize) -> Result<Shadows, Fault> {
        let memory = Mapping::of_pages(pages as u64 * PAGE_SIZE)?;
        Ok(Shadows { memory, used: AtomicUsize::new(0), kept: Mutex::default() })
    }

    fn place(&self, place: usize) -> *mut u8 {
        assert!(place < self.memory.len() as usize / PAGE, "a page is kept once in a drain");
        // SAFETY: the page is within the mapping.
        unsafe { self.memory.base().add(place * PAGE) }
    }

    /// Keeps a page, whose bytes are at `from`.
    ///
    /// # Safety
    /// A whole page is there, and nobody changes it meanwhile.
    pub(super) unsafe fn keep(&self, page: usize, lines: u64, fresh: bool, from: *const u8) {
        let place = self.used.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `from` by contract; the place is a page of the mapping that nobody else was given.
        unsafe { copy::copy(self.place(place), from, PAGE) };
        locked(&self.kept).insert(page, Shadow { lines, fresh, place });
    }

    pub(super) fn take(&self, page: usize) -> Option<Shadow> {
        locked(&self.kept).remove(&page)
    }

    pub(super) fn copy_out(&self, shadow: &Shadow, out: &mut PageBytes) {
        // SAFETY: a whole page of the mapping, and a buffer of as much that nobody else has.
        unsafe { copy::copy(out.0.as_mut_ptr(), self.place(shadow.place), PAGE) };
    }

    /// Gives the memory back. The drain has used all that was kept for it, and nothing is kept before the next cut.
    pub(super) fn clear(&self) {
        debug_assert!(locked(&self.kept).is_empty(), "a drain uses every page that was kept for it");
        let used = self.used.swap(0, Ordering::Relaxed);
        if used > STAYING {
            let bytes = (used - STAYING) * PAGE;
            // SAFETY: whole pages of the mapping, whose bytes nobody needs any more.
            let _ = unsafe { rustix::mm::madvise(self.place(STAYING).cast(), bytes, Advice::LinuxDontNeed) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_as_it_was_until_its_memory_goes_back() {
        const COUNT: usize = 2 * STAYING;
        let shadows = Shadows::new(COUNT).expect("memory");
        let mut bytes = PageBytes([0; PAGE]);
        for round in 1..3 {
            for page in 0..COUNT {
                let was = [round * page as u8; PAGE];
                // SAFETY: a whole page that nobody else has.
                unsafe { shadows.keep(page, page as u64, page % 2 == 0, was.as_ptr()) };
            }
            let mut last = None;
            for page in (0..COUNT).rev() {
                let shadow = shadows.take(page).expect("it was kept");
                shadows.copy_out(&shadow, &mut bytes);
                assert!(bytes.0.iter().all(|&byte| byte == round * page as u8));
                assert_eq!((shadow.lines, shadow.fresh), (page as u64, page % 2 == 0));
                assert!(shadows.take(page).is_none());
                last = last.or(Some(shadow));
            }
            shadows.clear();
            shadows.copy_out(&last.expect("some"), &mut bytes);
            assert!(bytes.0.iter().all(|&byte| byte == 0), "the host has taken it");
        }
    }
}
