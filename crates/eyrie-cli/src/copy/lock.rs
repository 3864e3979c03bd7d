//! Locks that stay usable after a panic of another thread.

use std::sync::{LockResult, PoisonError};

/// Returns the guard or the content of a lock, also after a panic of the thread that held the lock. The
/// values behind these locks stay consistent, because no thread panics between two changes that belong
/// together.
pub(super) fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}
