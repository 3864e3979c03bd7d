//! The state of each page: a word of flags and a word of changed lines.
//!
//! Threads change flags by compare-and-exchange, so that a change sees every other one. [`BUSY`] is the lock
//! of a page. While it is held, other threads change only marks: [`WARM`], [`LEAVING`], [`AHEAD`],
//! [`LOGGED`], [`WRITING`] and [`WRITTEN`].

use std::sync::atomic::{AtomicU64, Ordering};

use crate::addr::PAGE_SIZE;
use crate::rules::{SafetyRule, broken};

/// The page is in memory.
pub(super) const RESIDENT: u64 = 1;
/// The lock of the page: its holder reads, copies or drops the page.
pub(super) const BUSY: u64 = 1 << 1;
/// The page is dropped at the end of a grace period, unless it is used before.
pub(super) const LEAVING: u64 = 1 << 2;
/// The page was used since the hand of the clock passed it.
pub(super) const WARM: u64 = 1 << 3;
/// The page was changed since the cut before the one that [`ODD`] names.
pub(super) const DIRTY: u64 = 1 << 4;
/// The parity of the cut that a [`DIRTY`] page belongs to.
pub(super) const ODD: u64 = 1 << 5;
/// The page was allocated since the last cut. No committed byte is on it, so a drain writes it straight to
/// its place.
pub(super) const FRESH: u64 = 1 << 6;
/// The journal has lines of the page that its place on the disk lacks.
pub(super) const LOGGED: u64 = 1 << 7;
/// A drain has taken this fresh page and not written it to its place yet.
pub(super) const WRITING: u64 = 1 << 8;
/// The place on the disk was written since the volume was opened or the place was given back. Another write
/// there is cheap, but a first write makes the host note the block in its own journal.
pub(super) const WRITTEN: u64 = 1 << 9;
/// The page was read ahead as the first of a chunk, and not used yet. Its first use asks for the next chunk.
pub(super) const AHEAD: u64 = 1 << 10;

/// Flags that keep a page in memory.
pub(super) const PINNED: u64 = BUSY | DIRTY | LOGGED | WRITING;

/// All lines of a page.
pub(super) const ALL_LINES: u64 = u64::MAX;

/// The words of every page of a volume.
pub(super) struct Pages(Box<[AtomicU64]>);

impl Pages {
    /// Words for `count` pages, all zero: not in memory. The host provides their memory as it is used.
    pub(super) fn new(count: usize) -> Pages {
        let words = Box::into_raw(vec![0_u64; 2 * count].into_boxed_slice());
        // SAFETY: an atomic has the layout of its integer, and the box was just given up.
        Pages(unsafe { Box::from_raw(words as *mut [AtomicU64]) })
    }

    /// The number of pages.
    pub(super) fn count(&self) -> usize {
        self.0.len() / 2
    }

    #[inline(always)]
    pub(super) fn flags(&self, page: usize) -> &AtomicU64 {
        &self.0[2 * page]
    }

    /// The changed lines of a dirty page; zero for clean pages.
    #[inline(always)]
    pub(super) fn lines(&self, page: usize) -> &AtomicU64 {
        &self.0[2 * page + 1]
    }

    /// Changes the flags from `seen` to `new`. Returns false if they were not `seen` any more.
    #[inline]
    pub(super) fn compare_exchange(&self, page: usize, seen: u64, new: u64) -> bool {
        self.flags(page).compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Unlocks a page and changes flags. No other thread may change these flags while the lock is held.
    #[inline]
    pub(super) fn unlock(&self, page: usize, set: u64, clear: u64) {
        // A loop, not a store: other threads set flags such as `WARM` without the lock.
        let change = |flags: u64| Some((flags | set) & !(clear | BUSY));
        // The closure always gives a value.
        let _ = self.flags(page).fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }
}

/// The lines of a page that `len` bytes from `offset` touch.
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
