//! Shadows: copies of pages as they were at a cut. Before a thread changes a page of the cut, it keeps a
//! shadow of the page, unless the drain has already read the bytes of the page.
//!
//! The shadows have a mapping of their own, which fills from its start. After the drain, the memory of this
//! mapping is given back to the kernel, except the first [`STAYING`] pages. In a general allocator, thousands
//! of short-lived pages would leave holes: unused memory that no limit counts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::Advice;

use super::buffer::PageBytes;
use crate::addr::PAGE_SIZE;
use crate::copy;
use crate::fault::Fault;
use crate::mapping::Mapping;
use crate::sync::unpoisoned;

const PAGE: usize = PAGE_SIZE as usize;
/// Number of pages whose memory stays, so that small drains need not request it again.
const STAYING: usize = 64;

/// A copy of a page: its slot in the mapping of shadows, the changed lines of the page, and true if the page
/// was fresh.
pub(super) struct Shadow {
    pub(super) lines: u64,
    pub(super) fresh: bool,
    slot: usize,
}

/// The shadows of the cut whose drain is in progress, by page.
pub(super) struct Shadows {
    memory: Mapping,
    /// Number of pages of the mapping in use.
    used: AtomicUsize,
    kept: Mutex<HashMap<usize, Shadow>>,
}

impl Shadows {
    /// Reserves address space for shadows of `pages` pages.
    pub(super) fn new(pages: usize) -> Result<Shadows, Fault> {
        let memory = Mapping::of_pages(pages as u64 * PAGE_SIZE)?;
        Ok(Shadows { memory, used: AtomicUsize::new(0), kept: Mutex::default() })
    }

    /// Returns the address of a slot: a page of the mapping of shadows.
    fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.memory.len() as usize / PAGE, "a page is kept once in a drain");
        // SAFETY: the assertion has checked that the page is within the mapping.
        unsafe { self.memory.base().add(slot * PAGE) }
    }

    /// Keeps a shadow of a page, whose bytes are at `from`.
    ///
    /// # Safety
    /// A whole page is mapped at `from`, and no thread changes it during the call.
    pub(super) unsafe fn keep(&self, page: usize, lines: u64, fresh: bool, from: *const u8) {
        let slot = self.used.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `from` is readable by contract. No other call got this number, so no other thread uses this
        // page of the mapping.
        unsafe { copy::copy(self.address(slot), from, PAGE) };
        unpoisoned(self.kept.lock()).insert(page, Shadow { lines, fresh, slot });
    }

    /// Removes and returns the shadow of a page.
    pub(super) fn take(&self, page: usize) -> Option<Shadow> {
        unpoisoned(self.kept.lock()).remove(&page)
    }

    /// Copies the bytes of a shadow.
    pub(super) fn copy_out(&self, shadow: &Shadow, out: &mut PageBytes) {
        // SAFETY: the address is that of a whole page of the mapping. The buffer is as long and borrowed
        // exclusively.
        unsafe { copy::copy(out.0.as_mut_ptr(), self.address(shadow.slot), PAGE) };
    }

    /// Gives the memory of the shadows back, except the first `STAYING` pages. The caller has taken every
    /// shadow, and no thread keeps a new shadow before the next cut.
    pub(super) fn clear(&self) {
        debug_assert!(
            unpoisoned(self.kept.lock()).is_empty(),
            "a drain uses every page that was kept for it"
        );
        let used = self.used.swap(0, Ordering::Relaxed);
        if used > STAYING {
            let bytes = (used - STAYING) * PAGE;
            // SAFETY: the range is whole pages of the mapping, whose bytes no thread needs any more.
            let _ =
                unsafe { rustix::mm::madvise(self.address(STAYING).cast(), bytes, Advice::LinuxDontNeed) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stay_until_their_memory_is_given_back() {
        const COUNT: usize = 2 * STAYING;
        let shadows = Shadows::new(COUNT).expect("memory");
        let mut bytes = PageBytes([0; PAGE]);
        for round in 1..3 {
            for page in 0..COUNT {
                let was = [round * page as u8; PAGE];
                // SAFETY: the array is a whole page, and no other thread has it.
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
