//! Chains of killed processes.

use eyrie_medium::SiteKind;

use super::super::suite::{Work, kinds};
use super::*;

fn kills(moments: u64, processes: u32) -> KillLimits {
    let limits = Limits { images: 8, sampled: 8, is_complete: false, recoveries: 1 };
    KillLimits { moments, processes, limits }
}

fn start_on(rule: CrashRule) -> StartVolume {
    let empty = StartVolume::empty(rule, 1 << 20).expect("room");
    empty.after_script(&workload::setup()).expect("room")
}

fn scripts(rule: CrashRule) -> Vec<Script> {
    let calls = "mkdir /n\nrename /a /d/new\nwrite /tree 4000 200 23\nfsync /tree\nput / k 3000 41\n\
                 rename /c /e exchange\n\
                 sync\nunlink /b\nlink /tree /n/tree\nappend /c 5000 3\nsync\ntruncate /tree 100\n";
    let random = workload::random(3);
    let random = if rule == CrashRule::Sectors { workload::synced(&random) } else { random };
    vec![script(calls), random]
}

#[test]
fn three_killed_processes_and_a_power_failure_leave_whole_calls() {
    for rule in [CrashRule::Lines, CrashRule::Sectors] {
        let start = start_on(rule);
        let mut images = 0;
        for script in scripts(rule) {
            let recorded = record(&start, &script, RecordOptions::default()).expect("as the model");
            let found = recorded.explore_kills(kills(3, 3), &mut || true);
            images += found.unwrap_or_else(|failure| panic!("{rule:?}\n{script}{failure}"));
        }
        assert!(images > 1000, "{rule:?}: only {images} images");
    }
}

/// The record of a call that is larger than the journal overflows to free pages. Processes are killed while
/// such a record is written, read, and applied.
#[test]
fn killed_processes_tear_no_call_larger_than_the_journal() {
    let all = kinds(CrashRule::Sectors, 1 << 20, 1);
    let work = all.into_iter().find(|kind| kind.name == "killed processes, more than the journal");
    let Some(Work::Scripts(mut work)) = work.map(|kind| kind.work) else { panic!("there are scripts") };
    let start = work.start().expect("room");
    let mut images = 0;
    for (script, _) in work.scripts.by_ref().take(1) {
        let recorded = record(&start, &script, RecordOptions::default()).expect("as the model");
        assert_eq!(recorded.without_room, 0);
        let found = recorded.explore_kills(kills(8, 2), &mut || true);
        images += found.unwrap_or_else(|failure| panic!("{failure}"));
    }
    assert!(images > 100, "only {images} images");
}

/// Recovery flushes the bytes that it finds. This test leaves out that flush. At least one chain of processes
/// then loses a call, and a replay of that chain shows the same failure.
#[test]
fn a_flush_that_recovery_lacks_after_a_kill_is_found_and_replayed() {
    for (rule, file) in
        [(CrashRule::Lines, "volume/open.rs"), (CrashRule::Sectors, "paged/journal/replay.rs")]
    {
        let start = start_on(rule);
        let mut found = 0;
        for script in scripts(rule) {
            let recorded = record(&start, &script, RecordOptions::default()).expect("as the model");
            recorded.explore_kills(kills(3, 1), &mut || true).expect("nothing is lost");
            let flushes = recorded.points().into_keys();
            let flushes = flushes.filter(|site| site.kind == SiteKind::Flush && site.file.ends_with(file));
            for site in flushes {
                let options = RecordOptions { closes: false, dropped: Some(site) };
                let recorded = record(&start, &script, options).expect("as the model");
                let Err(failure) = recorded.explore_kills(kills(60, 1), &mut || true) else { continue };
                let replayed = recorded.replay_killed(&failure.links, failure.after, &failure.picks);
                assert_eq!(replayed, Ok(Some(failure.what.clone())), "{failure}");
                println!("{site}: {failure}");
                found += 1;
            }
        }
        assert!(found > 0, "{rule:?}: no left-out flush was noticed");
    }
}
