//! Counts changes of directories, for callers that cache paths.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the changes that may make cached paths wrong. Begun and ended changes have separate counts.
/// Therefore no caller caches a path that was walked during a change.
#[derive(Default)]
pub(super) struct DirectoryChanges {
    begun: AtomicU64,
    ended: AtomicU64,
    unique: AtomicU64,
}

impl DirectoryChanges {
    /// Returns a number that is the same at two moments only if no change happened between them.
    #[inline]
    pub(super) fn current(&self) -> u64 {
        // `ended` is loaded first. If the counts are equal, no change was running when `begun` was loaded.
        let ended = self.ended.load(Ordering::Acquire);
        if ended == self.begun.load(Ordering::Acquire) {
            return ended;
        }
        // A change is running. Return a number that never repeats, so that no cached path matches it.
        1 << 63 | self.unique.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `change`, which changes directories.
    pub(super) fn during<T>(&self, change: impl FnOnce() -> T) -> T {
        self.begun.fetch_add(1, Ordering::AcqRel);
        let result = change();
        self.ended.fetch_add(1, Ordering::AcqRel);
        result
    }
}
