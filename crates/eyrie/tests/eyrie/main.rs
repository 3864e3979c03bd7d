//! Tests of volumes through the interfaces of this crate.

#![expect(clippy::unwrap_used, reason = "this is all tests")]

mod bad_input;
mod space;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Held by every test. Pins belong to the process, and a pin of one test delays the reuse of memory in the
/// volume of another. Some tests need the last free page of a volume, so they run alone. The others run side
/// by side.
static PINS: RwLock<()> = RwLock::new(());

/// No other test runs while the guard lives.
fn alone() -> RwLockWriteGuard<'static, ()> {
    PINS.write().unwrap_or_else(PoisonError::into_inner)
}

/// No test that must run alone runs while the guard lives.
fn side_by_side() -> RwLockReadGuard<'static, ()> {
    PINS.read().unwrap_or_else(PoisonError::into_inner)
}
