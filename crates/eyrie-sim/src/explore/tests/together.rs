//! Runs that no pair of scripts describes: more than two threads, and calls that succeed although another
//! thread has already made their change.

use eyrie::{Kvfs, PosixExt};
use eyrie_engine::volume::REDO_SLOTS;
use eyrie_faults::ThreadSchedule;

use super::super::record::RecordSession;
use super::super::redo_slots::{self, ThreadCall, named, together};
use super::*;
use crate::compare::Tree;

#[test]
fn redo_slots_that_are_all_in_use_survive_every_crash() {
    let empty = StartVolume::empty(CrashRule::Lines, 1 << 20).expect("room");
    let (counts, most) =
        redo_slots::explore(&empty, 30, &mut || true).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(most, REDO_SLOTS, "no crash left records in all slots");
    assert!(counts.images > 2000, "only {} images", counts.images);
}

/// Two threads make the same call. The change of the first thread is visible before it is durable. If the
/// second thread makes its call between these two moments, the call finds nothing to do. After this call has
/// returned, no crash may lose the change.
#[test]
fn call_that_changes_nothing_returns_after_existing_change_is_durable() {
    type Case = (&'static str, fn(&RecordSession), fn(&RecordSession), fn(&Tree) -> bool);
    let has_n = |tree: &Tree| named(tree, "n").next().is_some();
    let erase = |session: &RecordSession| {
        let keys = Kvfs::open(&session.files, "/").expect("a directory");
        keys.erase("k2").map(drop).expect("a key or none");
    };
    let create = |session: &RecordSession| {
        let opened = session.files.options().write(true).create(true).open("/n");
        drop(opened.expect("it is there"));
    };
    let cases: [Case; 2] =
        [("erase", erase, erase, |tree| named(tree, "k2").next().is_none()), ("open", create, create, has_n)];
    let start = start().after_script(&workload::setup()).expect("room");
    for (name, first, second, holds) in cases {
        // Each of these seeds switches to the second thread once, after a different number of steps.
        for seed in (0..64).map(|store| 16 * store + 3) {
            let calls: [ThreadCall<'_>; 2] = [Box::new(first), Box::new(second)];
            let run = together(&start, &ThreadSchedule::new(2, seed), &calls).expect("a run");
            let crashed = run.crash(1, &mut |_, _, done, found| {
                assert!(done & 2 == 0 || holds(found), "{name}, seed {seed}");
                Ok(true)
            });
            crashed.unwrap_or_else(|what| panic!("{name}, seed {seed}: {what}"));
        }
    }
}
