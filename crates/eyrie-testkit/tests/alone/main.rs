//! Tests that run one at a time, in a process that runs nothing else.
//!
//! `crash` and `memory` need every grace period to end at once. A pin of another test would delay the reuse
//! of freed memory: a crash run would meet other images, and a volume would keep more pages. `group` and
//! `killed` measure processes of their own against a limit or against time, and other tests would take both
//! from them.

use std::sync::{Mutex, MutexGuard};

use eyrie_medium::sync::unpoisoned;

mod crash;
mod group;
mod killed;
mod memory;

/// Returns the held by a test while it runs. A test that failed does not fail the next one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    unpoisoned(ALONE.lock())
}
