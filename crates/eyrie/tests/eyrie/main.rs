//! Tests of volumes through the interfaces of this crate.

#![expect(clippy::unwrap_used, reason = "this is all tests")]

mod bad_input;
mod checksums;
mod dropped;
mod flags;
mod lives;
mod nodes;
mod opens;
mod read_only;
mod refusals;
mod space;
mod views;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lock that every test holds. Pins belong to the process, and a pin of one test delays the reuse of memory
/// in the volume of another test. Some tests need the last free page of a volume. Therefore the tests of
/// `bad_input` run alone. The tests of the other modules run side by side.
static PINS: RwLock<()> = RwLock::new(());

/// Waits until no other test runs. No other test runs while the guard lives.
fn alone() -> RwLockWriteGuard<'static, ()> {
    PINS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no test runs that must run alone. No such test runs while the guard lives.
fn side_by_side() -> RwLockReadGuard<'static, ()> {
    PINS.read().unwrap_or_else(PoisonError::into_inner)
}
