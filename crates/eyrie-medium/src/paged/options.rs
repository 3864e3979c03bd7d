//! Limits of memory and time for a paged medium.

use std::time::Duration;

use super::usable;
use crate::addr::PAGE_SIZE;

/// Memory and time that a paged medium may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagedOptions {
    /// Memory for pages, in bytes. Pages of Ops in flight and of long pins may exceed the limit.
    pub memory_bytes: u64,
    /// Time between background drains.
    pub drain_interval: Duration,
}

/// Memory that is set aside before half of the rest goes to pages, in bytes: for other data of the process,
/// and for the pages of Ops in flight. On a machine with little memory these do not shrink.
const OTHER_MEMORY: u64 = 16 << 20;
/// Least memory for pages, in pages.
const LEAST_MEMORY: usize = 256;

impl PagedOptions {
    /// Least memory for pages, in bytes; a smaller request is raised to this.
    pub const LEAST_MEMORY_BYTES: u64 = LEAST_MEMORY as u64 * PAGE_SIZE;

    /// Half of the memory that this process may use, after 16 MiB are set aside, and a drain every five
    /// seconds.
    pub fn for_host() -> PagedOptions {
        let memory_bytes = usable::usable_memory().saturating_sub(OTHER_MEMORY) / 2;
        PagedOptions { memory_bytes, drain_interval: Duration::from_secs(5) }
    }

    /// Memory for pages, in pages.
    pub(super) fn limit(self) -> usize {
        ((self.memory_bytes / PAGE_SIZE) as usize).max(LEAST_MEMORY)
    }
}
