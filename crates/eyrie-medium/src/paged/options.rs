//! Limits of memory and time for a paged medium.

use std::time::Duration;

use super::usable;
use crate::addr::PAGE_SIZE;

/// Memory and time that a paged medium may use.
///
/// ```
/// use std::time::Duration;
///
/// use eyrie_medium::PagedOptions;
///
/// let mut paged = PagedOptions::for_host();
/// paged.drain_interval = Duration::from_secs(1);
/// paged.memory_bytes = PagedOptions::MIN_MEMORY_BYTES.max(64 << 20);
/// assert_eq!(PagedOptions::new(paged.memory_bytes, paged.drain_interval), paged);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PagedOptions {
    /// Limit of memory for pages, in bytes. The cache may exceed this limit for some time, for example by
    /// pages of Ops in progress and by pages that long pins keep.
    pub memory_bytes: u64,
    /// Time between background drains. A time below a millisecond counts as a millisecond. If many changes
    /// wait, a drain comes earlier.
    pub drain_interval: Duration,
    /// True if the pages are in memory that other processes can map for reading. A service needs such memory.
    pub is_shared: bool,
}

/// Memory that is left to the other data of the process and to the pages of Ops in progress, in bytes. Pages
/// get half of the rest. The amount is fixed, because these data do not shrink on a machine with little
/// memory.
const OTHER_MEMORY: u64 = 16 << 20;
/// Lowest possible limit of memory for pages, in pages.
const MIN_MEMORY: usize = 256;

impl PagedOptions {
    /// Lowest possible limit of memory for pages, in bytes. A lower [`PagedOptions::memory_bytes`] counts as
    /// this one.
    pub const MIN_MEMORY_BYTES: u64 = MIN_MEMORY as u64 * PAGE_SIZE;

    /// Returns options with this limit of memory and this time between background drains.
    pub const fn new(memory_bytes: u64, drain_interval: Duration) -> PagedOptions {
        PagedOptions { memory_bytes, drain_interval, is_shared: false }
    }

    /// Returns options for this host. 16 MiB of the usable memory are left to other data, and pages get half
    /// of the rest. The time between background drains is five seconds.
    pub fn for_host() -> PagedOptions {
        let memory_bytes = usable::usable_memory().saturating_sub(OTHER_MEMORY) / 2;
        PagedOptions::new(memory_bytes, Duration::from_secs(5))
    }

    /// Returns the limit of memory for pages, in pages.
    pub(super) fn limit(self) -> usize {
        ((self.memory_bytes / PAGE_SIZE) as usize).max(MIN_MEMORY)
    }
}
