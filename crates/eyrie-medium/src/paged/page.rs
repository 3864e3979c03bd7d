//! What is known of each page: two words, one of flags and one of changed lines.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::rules::{SafetyRule, broken};

/// Its bytes are in memory.
pub const RESIDENT: u64 = 1;
/// Someone reads it in, copies it or drops it: the page's lock.
pub const BUSY: u64 = 1 << 1;
/// To be dropped when a grace period is over, unless it is used before.
pub const LEAVING: u64 = 1 << 2;
/// Used since the hand of the clock passed it.
pub const WARM: u64 = 1 << 3;
/// Changed since the cut before the one that [`ODD`] tells.
pub const DIRTY: u64 = 1 << 4;
/// The parity of the cut that a [`DIRTY`] page belongs to.
pub const ODD: u64 = 1 << 5;
/// Taken into use since the last cut: nothing that is committed is on it, so it goes straight to its place.
pub const FRESH: u64 = 1 << 6;
/// The journal has lines of it that its place on the disk lacks.
pub const LOGGED: u64 = 1 << 7;
/// A fresh page that a drain has taken and not written to its place yet.
pub const HOMING: u64 = 1 << 8;
/// Its place on the disk was written since the volume was opened or the place given back: writing there again is cheap,
/// while the host has to note in its own journal what is written for the first time.
pub const WRITTEN: u64 = 1 << 9;
/// Read ahead as the first page of a chunk, and not used yet: its use asks for the next chunk.
pub const AHEAD: u64 = 1 << 10;

/// Flags that keep a page in memory.
pub const PINNED: u64 = BUSY | DIRTY | LOGGED | HOMING;

/// All lines of a page.
pub const ALL_LINES: u64 = u64::MAX;

/// The words of every page of a volume.
pub struct Pages(Box<[AtomicU64]>);

impl Pages {
    /// Pages of which nothing is known. The host provides the memory as it is used.
    pub fn new(count: usize) -> Pages {
        let words = Box::into_raw(vec![0_u64; 2 * count].into_boxed_slice());
        // SAFETY: an atomic has the layout of its integer, and the box was just given up.
        Pages(unsafe { Box::from_raw(words as *mut [AtomicU64]) })
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len() / 2
    }

    #[inline(always)]
    pub fn flags(&self, page: usize) -> &AtomicU64 {
        &self.0[2 * page]
    }

    /// The lines of a dirty page that were changed; none of others.
    #[inline(always)]
    pub fn lines(&self, page: usize) -> &AtomicU64 {
        &self.0[2 * page + 1]
    }

    /// Changes flags from `seen` to `new`; whether they still were `seen`.
    #[inline]
    pub fn turn(&self, page: usize, seen: u64, new: u64) -> bool {
        self.flags(page).compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the lock of a page, changing flags: none of those may be changed by others while it is held.
    #[inline]
    pub fn unlock(&self, page: usize, set: u64, clear: u64) {
        let change = |flags: u64| Some((flags | set) & !(clear | BUSY));
        // The closure always gives a value.
        let _ = self.flags(page).fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }
}

/// Lines of a page that `len` bytes from `offset` in it touch.
#[inline]
pub fn lines_of(offset: u64, len: u64) -> u64 {
    debug_assert!(len > 0 && offset + len <= 4096);
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
    fn lines_cover_exactly_the_bytes() {
        assert_eq!(lines_of(0, 4096), ALL_LINES);
        assert_eq!(lines_of(0, 1), 1);
        assert_eq!(lines_of(63, 2), 3);
        assert_eq!(lines_of(4095, 1), 1 << 63);
        assert_eq!(lines_of(64, 128), 6);
    }
}
