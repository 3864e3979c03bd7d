//! Counts of the pointers to shared pages.
//!
//! A page has a count if a clone has given it a further pointer since the volume was opened, or if several
//! pointers led to it at the open. Every other page has the count 0, which also means that one pointer leads
//! to the page if the page is in use. A count that falls to 1 stays there until the last pointer is dropped.
//!
//! Threads count without a lock, by atomic read-modify-writes. If several threads drop pointers to one page
//! at the same time, exactly one of them learns that no pointer is left.
//!
//! [`Marks`](super::marks::Marks) uses the same type to count the pointers with the shared bit that it meets.
//! There the count 0 means that no such pointer was met yet.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use eyrie_medium::PAGE_SIZE;
use eyrie_medium::rules::{SafetyRule, broken};

use crate::extent::Extent;
use crate::tables::geometry::page_of;

/// Number of pages in a region. The counts of a region take memory when the first of its pages is shared: 2
/// KiB for 2 MiB of the volume.
const REGION: usize = 512;

type RegionCounts = [AtomicU32; REGION];

/// Consecutive pages with the same count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SharedRun {
    /// Number of the first page in the volume.
    pub(crate) page: u32,
    /// Number of pages.
    pub(crate) pages: u32,
    /// Number of pointers to each of the pages, at least 2.
    pub(crate) pointers: u32,
}

impl SharedRun {
    /// Returns the bytes that the pages would take in addition if each pointer had a page of its own.
    pub(super) fn saved(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.pointers - 1) * PAGE_SIZE
    }
}

/// The counts of all pages of a volume.
pub(super) struct PointerCounts {
    /// Number of pages of the volume.
    pages: u32,
    regions: OnceLock<Box<[OnceLock<Box<RegionCounts>>]>>,
}

/// Returns the numbers of the pages of an extent.
fn pages_of(extent: Extent) -> std::ops::Range<u32> {
    let first = page_of(extent.addr.offset());
    first..first + (extent.bytes() / PAGE_SIZE) as u32
}

impl PointerCounts {
    /// Returns the counts of a volume of `pages` pages. The pages in `runs` have the counts that `runs`
    /// gives. The other pages have no count.
    pub(super) fn new(pages: u32, runs: &[SharedRun]) -> PointerCounts {
        let shared = PointerCounts { pages, regions: OnceLock::new() };
        for run in runs {
            for page in run.page..run.page + run.pages {
                shared.count(page).store(run.pointers, Ordering::Relaxed);
            }
        }
        shared
    }

    /// True if any page may have a count.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.regions.get().is_some()
    }

    fn count(&self, page: u32) -> &AtomicU32 {
        let regions = self
            .regions
            .get_or_init(|| (0..(self.pages as usize).div_ceil(REGION)).map(|_| OnceLock::new()).collect());
        let region =
            regions[page as usize / REGION].get_or_init(|| Box::new([const { AtomicU32::new(0) }; REGION]));
        &region[page as usize % REGION]
    }

    /// Returns the count of a page, or `None` if no page of its region has a count. Allocates no memory.
    fn get(&self, page: u32) -> Option<&AtomicU32> {
        let region = self.regions.get()?.get(page as usize / REGION)?.get()?;
        Some(&region[page as usize % REGION])
    }

    /// Counts one more pointer to each page of an extent. The caller holds the lock of a file with another
    /// pointer to these pages.
    pub(super) fn add(&self, extent: Extent) {
        for page in pages_of(extent) {
            // A page without a count has one pointer already. A count that has reached its maximum stays
            // there, because the true number is no longer known. Only a recovery frees such a page.
            let more = |count: u32| Some(count.max(1).saturating_add(1));
            let _ = self.count(page).fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        }
    }

    /// Counts one marked pointer to a page. Returns true if it is the first one.
    pub(super) fn mark(&self, page: u32) -> bool {
        let more = |count: u32| Some(count.saturating_add(1));
        matches!(self.count(page).fetch_update(Ordering::AcqRel, Ordering::Acquire, more), Ok(0))
    }

    /// Takes back a call of [`PointerCounts::mark`].
    pub(super) fn unmark(&self, page: u32) {
        self.count(page).fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes one pointer off the count of each page of an extent, because a commit has dropped a pointer to
    /// the extent. Returns true if no page had a count: the extent has then lost its only pointer as a whole.
    /// Otherwise returns false, and calls `free` with each page that has lost its last pointer.
    pub(super) fn remove(&self, extent: Extent, mut free: impl FnMut(u32)) -> bool {
        if extent.class.is_small() {
            return true;
        }
        let pages = pages_of(extent);
        if pages.clone().all(|page| self.get(page).is_none_or(|count| count.load(Ordering::Acquire) == 0)) {
            return true;
        }
        pages.filter(|&page| self.remove_page(page)).for_each(&mut free);
        false
    }

    /// Takes one pointer off the count of a page. Returns true if no pointer is left.
    fn remove_page(&self, page: u32) -> bool {
        let Some(count) = self.get(page) else { return true };
        let less = |count: u32| match count {
            0 => None,
            u32::MAX => Some(u32::MAX),
            pointers => Some(pointers - 1),
        };
        let before = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or(0);
        before <= 1 || broken(SafetyRule::LastPointerFreesThePage)
    }

    /// Returns the pages to which several pointers lead, in order.
    pub(super) fn runs(&self) -> Vec<SharedRun> {
        let mut runs: Vec<SharedRun> = Vec::new();
        let Some(regions) = self.regions.get() else { return runs };
        for (number, region) in regions.iter().enumerate() {
            let Some(region) = region.get() else { continue };
            for (within, count) in region.iter().enumerate() {
                let (page, pointers) = ((number * REGION + within) as u32, count.load(Ordering::Acquire));
                if pointers < 2 {
                    continue;
                }
                match runs.last_mut() {
                    Some(run) if run.page + run.pages == page && run.pointers == pointers => run.pages += 1,
                    _ => runs.push(SharedRun { page, pages: 1, pointers }),
                }
            }
        }
        runs
    }
}
