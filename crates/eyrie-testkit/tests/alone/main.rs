//! Tests that run one at a time, in a process without other tests.
//!
//! In `crash` and `memory`, a pin of another test would delay the reuse of freed memory. A crash run would
//! then meet other images, and a volume would keep more pages. `group` measures the memory of a process that
//! it starts. `killed` starts processes, and kills each of them after some time. `served` starts services
//! that kill themselves, and `clients` starts clients that kill or stop themselves. Other tests at the same
//! time would disturb the measurements and the kills.

use std::sync::{Mutex, MutexGuard};

use eyrie_medium::sync::unpoisoned;

mod clients;
mod crash;
mod group;
mod killed;
mod memory;
mod served;

/// Returns the lock that each test of this binary holds while it runs. The lock ignores poison, so a failed
/// test does not fail the next test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    unpoisoned(ALONE.lock())
}
