//! Counts of the work of a page cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// The state of the page cache of a volume on a disk, and its work since the volume was opened. Sizes are in
/// bytes. The numbers are read one after another while other threads work, so together they may describe no
/// single moment.
///
/// ```
/// # fn f(stats: eyrie_medium::PagedStats) {
/// println!("{} KiB wait for the next drain", stats.dirty_bytes / 1024);
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PagedStats {
    /// Memory that the cached pages take.
    pub resident_bytes: u64,
    /// Size of the pages that changed since the last drain.
    pub dirty_bytes: u64,
    /// Number of drains, which make earlier changes durable.
    pub drains: u64,
    /// Bytes that drains wrote to the journal, to the places of pages, and to the checksum pages. A drain
    /// replays the journal if a record does not fit, and the writes of this replay count, too. The writes of
    /// the replay at an open do not count.
    pub written_bytes: u64,
    /// Bytes of the pages that were read from the disk into the cache.
    pub read_bytes: u64,
}

/// Counters of the work of a page cache. They count only work with the disk, so a call that needs no disk
/// does not pay for them.
#[derive(Default)]
pub(super) struct DiskCounts {
    drains: AtomicU64,
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

impl DiskCounts {
    pub(super) fn drained(&self) {
        self.drains.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self, ranges: &[(u64, &[u8])]) {
        self.wrote_bytes(ranges.iter().map(|(_, bytes)| bytes.len() as u64).sum());
    }

    pub(super) fn wrote_bytes(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn read(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the counts for a cache whose pages in memory have `resident_bytes`, and whose changed pages
    /// have `dirty_bytes`.
    pub(super) fn stats(&self, resident_bytes: u64, dirty_bytes: u64) -> PagedStats {
        PagedStats {
            resident_bytes,
            dirty_bytes,
            drains: self.drains.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
        }
    }
}
