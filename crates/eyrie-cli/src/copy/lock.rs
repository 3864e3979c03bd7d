//! Locks that a panic of another thread left.

use std::sync::{LockResult, PoisonError};

/// Returns the guard or the content of a lock, also after a panic of the thread that held the lock. The
/// tables behind these locks are consistent after each statement.
pub(super) fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}
