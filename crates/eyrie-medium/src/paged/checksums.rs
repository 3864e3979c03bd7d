//! The checksums of the pages of a volume: CRC-32C of each page as it is in its place on the disk. A page is
//! compared with its checksum when it is read into memory.
//!
//! The entries are on the disk in the checksum pages (see `places`), and in memory. A *chunk* is the
//! [`CHUNK_PAGES`] pages whose entries fill one checksum page. The entries are read into memory a chunk at a
//! time. An entry in memory changes when the record that lists the page is durable. The checksum pages on the
//! disk change only when the journal is about to start over. Until then the records have the newer checksums,
//! and a replay stores them.
//!
//! Invariants:
//! - The entry 0 matches no page. A page that no record has listed yet has this entry. A lost checksum page
//!   reads as zeros, so its entries match no page, not even a lost page that reads as zeros, too. (After
//!   [`Checksums::accept_unknown`] the entry 0 matches every page.)
//! - The entries of free pages have no meaning. So a page that becomes allocated must not be read from the
//!   disk. The allocator calls `Pager::mark_allocated` for it, and the page is then in memory without a read.
//!   The creation of a volume does the same for its tables. Only read-ahead reads free pages.
//! - A checksum page that cannot be read counts as zeros, except for the entries that later records have set.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use zerocopy::IntoBytes;

use super::blocks::Blocks;
use super::buffer::{PageBytes, page_buffer};
use super::places::{CHUNK_PAGES, PLAIN_PAGES, Places};
use crate::addr::PAGE_SIZE;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};
use crate::shared::SharedMemory;
use crate::sync::{schedule, unpoisoned};

const PAGE: usize = PAGE_SIZE as usize;

/// Number of attempts to read a checksum page before it is written without its unknown entries.
const ATTEMPTS: usize = 2;
/// Maximum number of checksum pages that one call of [`store`] to the disk writes.
const BATCH: usize = 256;
/// The entry of a page that no record has listed.
const NEVER: u32 = 0;

/// Returns the entry of a page with this CRC-32C. If the CRC-32C is 0, the entry is 1, because the entry 0
/// matches no page.
fn entry(checksum: u32) -> u32 {
    checksum.max(1)
}

/// The checksums of the pages of one volume, in memory.
pub(super) struct Checksums {
    /// The entries, of four bytes each. In a chunk that is not loaded, an entry other than [`NEVER`] is
    /// known, because a later record has set it.
    entries: SharedMemory,
    /// For each chunk true if all its entries are in memory.
    loaded: Box<[AtomicBool]>,
    /// Chunks with entries that are newer in memory than on the disk. While a thread loads a chunk, it holds
    /// the lock, so that no entry of the chunk changes meanwhile.
    changed: Mutex<BTreeSet<usize>>,
    /// True if a page with entry 0 counts as right. An entry is 0 if no record has listed the page, or if the
    /// disk has lost the entry or cannot read it.
    accepts_unknown: AtomicBool,
}

impl Checksums {
    /// Makes the state for a volume. Reads nothing.
    pub(super) fn new(places: Places) -> Result<Checksums, Fault> {
        let chunks = places.chunks();
        Ok(Checksums {
            // The host provides memory at the first use of an entry. The host refuses a mapping of no bytes.
            entries: SharedMemory::private(chunks.max(1) * PAGE)?,
            loaded: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            changed: Mutex::default(),
            accepts_unknown: AtomicBool::new(false),
        })
    }

    /// Returns the entries of all pages.
    fn entries(&self) -> &[AtomicU32] {
        self.entries.short_words()
    }

    /// Locks the set of changed chunks. A thread under a test's schedule must not block in the lock, and
    /// waits through the schedule instead.
    fn lock(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        while schedule::is_scheduled() && matches!(self.changed.try_lock(), Err(TryLockError::WouldBlock)) {
            schedule::wait();
        }
        unpoisoned(self.changed.lock())
    }

    /// Reads the entry of a page, if the entry is not in memory. If the disk cannot read the checksum page,
    /// the entry stays unknown, and the next call reads the checksum page again.
    pub(super) fn load(&self, blocks: &dyn Blocks, page: usize) {
        let chunk = page / CHUNK_PAGES;
        let is_known = self.loaded[chunk].load(Ordering::Acquire)
            || self.entries()[page].load(Ordering::Relaxed) != NEVER
            || page < PLAIN_PAGES;
        if !is_known {
            let _ = self.load_chunk(blocks, chunk);
        }
    }

    /// Reads the entries of a chunk, if they are not in memory. Entries that are known already stay, because
    /// they are newer.
    fn load_chunk(&self, blocks: &dyn Blocks, chunk: usize) -> io::Result<()> {
        let _changed = self.lock();
        if self.loaded[chunk].load(Ordering::Acquire) {
            return Ok(());
        }
        let found = read(blocks, chunk)?;
        for (place, bytes) in self.entries()[chunk * CHUNK_PAGES..].iter().zip(found.0.as_chunks().0) {
            if place.load(Ordering::Relaxed) == NEVER {
                place.store(u32::from_le_bytes(*bytes), Ordering::Relaxed);
            }
        }
        self.loaded[chunk].store(true, Ordering::Release);
        Ok(())
    }

    /// From now on accepts every page whose entry is 0.
    pub(super) fn accept_unknown(&self) {
        self.accepts_unknown.store(true, Ordering::Relaxed);
    }

    /// Returns true if `bytes` have the checksum of the page. The caller has loaded the entry of the page.
    pub(super) fn is_right(&self, page: usize, bytes: &[u8]) -> bool {
        if page < PLAIN_PAGES {
            return true;
        }
        let entry_now = self.entries()[page].load(Ordering::Relaxed);
        let is_lost = entry_now == NEVER && bytes.iter().all(|&byte| byte == 0);
        entry_now == entry(crc32c::crc32c(bytes))
            || entry_now == NEVER && self.accepts_unknown.load(Ordering::Relaxed)
            || is_lost && broken(SafetyRule::ZeroEntryMatchesNothing)
    }

    /// Stores the checksums of pages, given as pairs of a page and its CRC-32C.
    pub(super) fn set(&self, sums: impl Iterator<Item = (u64, u32)>) {
        let mut changed = self.lock();
        for (page, checksum) in sums {
            self.entries()[page as usize].store(entry(checksum), Ordering::Relaxed);
            changed.insert(page as usize / CHUNK_PAGES);
        }
    }

    /// Writes the changed entries to the disk, without a flush. Returns the number of bytes that were
    /// written. A checksum page that cannot be read is written with the known entries and zeros, because the
    /// known entries would otherwise be lost when the journal starts over.
    pub(super) fn write(&self, blocks: &dyn Blocks) -> io::Result<u64> {
        let changed = std::mem::take(&mut *self.lock());
        let is_unknown = |chunk| (0..ATTEMPTS).all(|_| self.load_chunk(blocks, chunk).is_err());
        let unknown: Vec<usize> = changed.iter().copied().filter(|&chunk| is_unknown(chunk)).collect();
        if !unknown.is_empty() && broken(SafetyRule::UnreadableEntriesAreWrittenAnew) {
            return Err(io::Error::other("a checksum page cannot be read"));
        }
        let mut pages = page_buffer(changed.len() * PAGE);
        for (&chunk, page) in changed.iter().zip(&mut pages) {
            *page = self.known_page(chunk);
        }
        let ranges: Vec<(u64, &[u8])> = changed
            .iter()
            .zip(&pages)
            .map(|(&chunk, page)| (Places::checksum_page(chunk), &page.0[..]))
            .collect();
        if !ranges.is_empty() {
            blocks.here().write_all(&ranges)?;
        }
        // The disk and memory have the same entries of these chunks: the known entries, and zeros.
        for chunk in unknown {
            self.loaded[chunk].store(true, Ordering::Release);
        }
        Ok((ranges.len() * PAGE) as u64)
    }

    /// Returns the checksum page of a chunk with the known entries, and zeros.
    fn known_page(&self, chunk: usize) -> PageBytes {
        let mut page = PageBytes([0; PAGE]);
        let entries = &self.entries()[chunk * CHUNK_PAGES..];
        for (bytes, entry) in page.0.as_chunks_mut().0.iter_mut().zip(entries) {
            *bytes = entry.load(Ordering::Relaxed).to_le_bytes();
        }
        page
    }

    /// Notes that the disk has every entry that was newer in memory, because a replay has written them.
    pub(super) fn written(&self) {
        self.lock().clear();
    }
}

/// Reads the checksum page of a chunk.
fn read(blocks: &dyn Blocks, chunk: usize) -> io::Result<PageBytes> {
    let mut page = PageBytes([0; PAGE]);
    blocks.here().read(Places::checksum_page(chunk), page.as_mut_bytes())?;
    Ok(page)
}

/// Changes entries on the disk, without a flush. `sums` has pairs of a page and its CRC-32C, in ascending
/// order of the pages. A checksum page that cannot be read is written with these entries, the entries that
/// are `known` in memory, and zeros. One call writes up to [`BATCH`] checksum pages. Returns the number of
/// bytes that were written.
pub(super) fn store(blocks: &dyn Blocks, known: Option<&Checksums>, sums: &[(u64, u32)]) -> io::Result<u64> {
    let chunk_of = |page: u64| page as usize / CHUNK_PAGES;
    let of_chunks: Vec<_> = sums.chunk_by(|a, b| chunk_of(a.0) == chunk_of(b.0)).collect();
    let changed = |sums: &&[(u64, u32)]| {
        let chunk = chunk_of(sums[0].0);
        let found = (0..ATTEMPTS).find_map(|_| read(blocks, chunk).ok());
        let in_memory = || known.map_or(PageBytes([0; PAGE]), |known| known.known_page(chunk));
        let mut page = found.unwrap_or_else(in_memory);
        for &(number, checksum) in *sums {
            page.0.as_chunks_mut().0[number as usize % CHUNK_PAGES] = entry(checksum).to_le_bytes();
        }
        (Places::checksum_page(chunk), page)
    };
    for batch in of_chunks.chunks(BATCH) {
        let pages: Vec<_> = batch.iter().map(changed).collect();
        let ranges: Vec<_> = pages.iter().map(|(place, page)| (*place, &page.0[..])).collect();
        blocks.here().write_all(&ranges)?;
    }
    Ok(of_chunks.len() as u64 * PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_of_no_page_is_zero() {
        assert_ne!(entry(crc32c::crc32c(&[0; PAGE])), NEVER);
        assert_eq!(entry(0), 1);
        assert_eq!(entry(u32::MAX), u32::MAX);
    }
}
