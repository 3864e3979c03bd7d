//! Holes of a page cache that other processes map.
//!
//! A page that is not in memory is a hole of the memory file. A client that breaks the protocol and reads a
//! hole makes the host allocate a page of zeros, which the cache does not count. The keeper compares the
//! memory of the file with the pages that the cache knows. If the file has memory for more than [`SLACK`]
//! other pages, the keeper gives the memory of these pages back. So a client can make the host allocate at
//! most [`SLACK`] pages, plus the pages that the client reads between two looks. No client that keeps to the
//! protocol reads a hole.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{SeekFrom, seek};

use super::pager::Pager;
use crate::addr::PAGE_SIZE;
use crate::mapping::Mapping;

/// Time between two looks at the memory of the file.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// As [`LOOK`], but after a look that found more than [`SLACK`] unknown pages.
pub(super) const NEXT_LOOK: Duration = Duration::from_millis(20);
/// Maximum number of unknown pages that the keeper leaves in memory. Some are no holes: a page that is being
/// read has memory before the cache counts it.
const SLACK: u64 = 1024;
/// Maximum number of pages that are locked at a time.
const BATCH: usize = 512;

impl Pager {
    /// True if other processes may map the pages.
    pub(super) fn is_shared(&self) -> bool {
        self.pages_file.get().is_some()
    }

    /// If readers of the file have made the host allocate many pages, gives these pages back to the host and
    /// returns true.
    pub(super) fn give_back_holes(&self) -> bool {
        let Some(file) = self.pages_file.get() else { return false };
        if pages_in_memory(file) <= self.resident() as u64 + SLACK {
            return false;
        }
        let mut at = 0;
        while let Ok(start) = seek(file, SeekFrom::Data(at))
            && let Ok(end) = seek(file, SeekFrom::Hole(start))
            && end > at
        {
            let last = (end.div_ceil(PAGE_SIZE) as usize).min(self.pages.count());
            self.give_absent_back((start / PAGE_SIZE) as usize..last);
            at = end;
        }
        true
    }

    /// Gives back the memory of the pages that are neither in the cache nor locked.
    fn give_absent_back(&self, mut pages: Range<usize>) {
        while let Some(first) = pages.find(|&page| self.lock_absent(page)) {
            let end = pages.end.min(first + BATCH);
            let count = 1 + (first + 1..end).take_while(|&page| self.lock_absent(page)).count();
            self.let_go_and_unlock(first, count);
            pages.start = first + count;
        }
    }
}

/// Returns the number of pages of a memory file for which the host has memory.
fn pages_in_memory(file: &File) -> u64 {
    file.metadata().map_or(0, |found| found.blocks() * 512 / PAGE_SIZE)
}

/// The memory of a page cache that other processes may still map after the cache has ended.
pub struct SharedPages(pub(crate) Arc<Mapping>);

impl SharedPages {
    /// Gives the memory back to the host if the medium has been dropped. Processes that still map the memory
    /// then read zeros, so they must have learned already that the cache has ended.
    pub fn give_back(self) {
        if let Some(memory) = Arc::into_inner(self.0) {
            // SAFETY: the last reference to the mapping is here, so no thread of this process accesses it.
            unsafe { memory.let_go(0, memory.len()) };
        }
    }
}
