//! The state of each page: a word of flags and a word of changed lines.
//!
//! Threads change flags by atomic read-modify-write operations, so that no change is lost. [`BUSY`] is the
//! lock of a page. While a thread holds this lock, other threads change only these flags: [`WARM`],
//! [`LEAVING`], [`AHEAD`], [`LOGGED`], [`WRITING`] and [`WRITTEN`].

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::addr::PAGE_SIZE;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};
use crate::shared::{SharedAccess, SharedMemory, announce_store};

/// Number of pages of a region: a power of two. The pager counts the pages of each region that are in memory.
pub(super) const REGION: usize = 512;

/// The page is in memory.
pub(super) const RESIDENT: u64 = 1;
/// The lock of the page. The thread that set this flag reads, copies or drops the page, or drops its changes.
pub(super) const BUSY: u64 = 1 << 1;
/// The page leaves memory at the end of a grace period, unless a thread uses the page before.
pub(super) const LEAVING: u64 = 1 << 2;
/// A thread used the page since the eviction's clock hand last passed it.
pub(super) const WARM: u64 = 1 << 3;
/// The page belongs to a cut whose drain still needs the bytes of the page. [`ODD`] tells which cut.
pub(super) const DIRTY: u64 = 1 << 4;
/// Parity of the number of the cut to which a [`DIRTY`] page belongs. One bit is enough, because only the cut
/// of the drain in progress and the next cut have such pages.
pub(super) const ODD: u64 = 1 << 5;
/// The page was allocated in the cut to which it belongs. No durable pointer leads to the page, so a drain
/// may write it straight to its place.
pub(super) const FRESH: u64 = 1 << 6;
/// The journal has lines of the page that its place on the disk lacks. After a drain has replayed the
/// journal, the place has these lines, too, but the flag stays until the next checkpoint.
pub(super) const LOGGED: u64 = 1 << 7;
/// A drain has taken this fresh page, and its bytes are not yet durable in its place.
pub(super) const WRITING: u64 = 1 << 8;
/// The place of the page was written after the volume was opened, and was not given back to the host after
/// that. Another write there is cheap. The first write is not, because it makes the host note the block in
/// the host's own journal.
pub(super) const WRITTEN: u64 = 1 << 9;
/// The page was read ahead as the first of a chunk (the pages of one request of read-ahead), and no thread
/// has used it yet. Its first use requests the next chunk.
pub(super) const AHEAD: u64 = 1 << 10;

/// Flags each of which keeps a page in memory.
pub(super) const UNEVICTABLE: u64 = BUSY | DIRTY | LOGGED | WRITING;

/// True if the flags say that a page is in memory and that a pinned thread may read it. A page without
/// [`LEAVING`] stays in memory while the thread is pinned, because every later eviction first sets
/// [`LEAVING`] and then waits for a grace period. [`WARM`] only tells the clock of the eviction that the page
/// is in use.
#[inline]
pub(super) fn are_readable(flags: u64) -> bool {
    flags & (RESIDENT | WARM | LEAVING) == RESIDENT | WARM
}

/// Returns the size of the words of `count` pages, in bytes.
fn table_bytes(count: usize) -> usize {
    (count * 2 * size_of::<u64>()).next_multiple_of(PAGE_SIZE as usize)
}

/// All lines of a page.
pub(super) const ALL_LINES: u64 = u64::MAX;

/// Two words for each page of a volume: its flags, and its changed lines.
pub(super) struct Pages {
    words: SharedMemory,
    count: usize,
}

impl Pages {
    /// Makes the words for `count` pages. All are zero, so no page is in memory. The kernel provides the
    /// memory of the words at their first use. If `shared` is true, other processes can map the words for
    /// reading.
    pub(super) fn new(count: usize, shared: bool) -> Result<Pages, Fault> {
        let bytes = table_bytes(count);
        let words =
            if shared { SharedMemory::create_for_readers(bytes) } else { SharedMemory::private(bytes) };
        Ok(Pages { words: words?, count })
    }

    /// Maps the words for `count` pages of another process, which changes them.
    pub(super) fn of_owner(file: File, count: usize) -> Result<Pages, Fault> {
        let words = SharedMemory::map(file.into(), table_bytes(count), SharedAccess::Read)?;
        Ok(Pages { words, count })
    }

    /// Maps the words of another process in place of these. The other process has words for the same number
    /// of pages.
    pub(super) fn replace(&self, file: File) -> Result<(), Fault> {
        self.words.replace(file.into())
    }

    /// Returns the file of the words, if other processes may read them.
    pub(super) fn file(&self) -> Option<&File> {
        self.words.file()
    }

    /// Returns the number of pages.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the word of flags of a page.
    #[inline(always)]
    pub(super) fn flags(&self, page: usize) -> &AtomicU64 {
        &self.words.words()[2 * page]
    }

    /// Returns the word of the changed lines of a dirty page. The word of a clean page is zero.
    #[inline(always)]
    pub(super) fn lines(&self, page: usize) -> &AtomicU64 {
        &self.words.words()[2 * page + 1]
    }

    /// Changes the flags from `seen` to `new`. Returns false, and changes nothing, if the flags are not
    /// `seen` any more.
    #[inline]
    #[track_caller]
    pub(super) fn compare_exchange(&self, page: usize, seen: u64, new: u64) -> bool {
        announce_store();
        self.flags(page).compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Unlocks a page, and sets and clears flags. The caller holds the lock, and passes only flags that no
    /// other thread changes meanwhile. A thread that loads the new flags with acquire ordering also sees the
    /// bytes that the caller has read into the page.
    #[inline]
    #[track_caller]
    pub(super) fn unlock(&self, page: usize, set: u64, clear: u64) {
        // This is a compare-and-exchange loop and not a store, because other threads set flags such as `WARM`
        // without the lock.
        let change = |flags: u64| Some((flags | set) & !(clear | BUSY));
        announce_store();
        // The update cannot fail, because the closure always returns a value.
        let _ = self.flags(page).fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }
}

/// Returns the lines of a page that `len` bytes from `offset` on touch, as a bit for each line.
#[inline]
pub(super) fn lines_of(offset: u64, len: u64) -> u64 {
    debug_assert!(len > 0 && offset + len <= PAGE_SIZE);
    let (first, mut last) = (offset / 64, (offset + len - 1) / 64);
    if broken(SafetyRule::DirtyLinesCoverStores) {
        last = first.max(last.saturating_sub(1));
    }
    (ALL_LINES << first) & (ALL_LINES >> (63 - last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cover_the_bytes_exactly() {
        assert_eq!(lines_of(0, 4096), ALL_LINES);
        assert_eq!(lines_of(0, 1), 1);
        assert_eq!(lines_of(63, 2), 3);
        assert_eq!(lines_of(4095, 1), 1 << 63);
        assert_eq!(lines_of(64, 128), 6);
    }
}
