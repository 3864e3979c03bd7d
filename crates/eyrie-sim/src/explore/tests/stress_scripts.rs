//! Every crash leaves an allowed state on nearly full volumes, in batches, and with journals that start over.
//! The checks of readers, damage and resizes find no error.

use eyrie_engine::object::header::Header;
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, Errno};
use eyrie_medium::{Medium, epoch};

use super::super::record::RecordSession;
use super::super::suite::{RunKind, Scripts, WITH_CHECKSUMS, Work, kinds};
use super::super::{damage, readers, resizing};
use super::*;
use crate::script::{Call, Script, perform};

/// Kinds with tight volumes. Only the first two of them are also in memory.
const TIGHT: [&str; 8] = [
    "batches",
    "reuse",
    "journals that start over",
    "reuse on a disk",
    "several syncs",
    "several calls in a cut",
    "a full journal",
    "more than the journal",
];

/// Explores a few images of each crash.
fn survives(name: &str, mut work: Scripts, scripts: usize) {
    let start = work.start().unwrap_or_else(|error| panic!("{name}: {error}"));
    let limits = Limits { images: 2, sampled: 2, is_complete: false, recoveries: 0 };
    for (script, beside) in work.scripts.by_ref().take(scripts) {
        let recorded = match &beside {
            None => record(&start, &script, RecordOptions { closes: work.closes, dropped: None }),
            Some(beside) => record_beside(&start, &script, beside, RecordOptions::default()),
        };
        let recorded = recorded.unwrap_or_else(|error| panic!("{name}: {error}\n{script}"));
        recorded
            .explore(limits, &mut |_| true)
            .unwrap_or_else(|failure| panic!("{name}: {failure}\n{script}"));
    }
}

fn scripts(rule: CrashRule, wanted: &[&str], each: usize) {
    let mut found = 0;
    for RunKind { name, work, .. } in kinds(rule, 1 << 20, each) {
        if let (Work::Scripts(work), true) = (work, wanted.contains(&name)) {
            survives(name, work, each);
            found += 1;
        }
    }
    assert_eq!(found, wanted.len(), "{rule:?} lacks one of {wanted:?}");
}

#[test]
fn tight_volumes_in_memory_survive_every_crash() {
    scripts(CrashRule::Lines, &TIGHT[..2], 10);
    scripts(CrashRule::Lines, &["long names", "closing", "two threads in one directory"], 12);
}

#[test]
fn first_uses_of_features_survive_every_crash() {
    scripts(CrashRule::Lines, &["features"], 20);
}

#[test]
fn tight_volumes_on_disks_survive_every_crash() {
    scripts(CrashRule::Sectors, &TIGHT, 10);
}

#[test]
fn two_threads_on_a_disk_leave_some_order_since_the_last_sync() {
    scripts(CrashRule::Sectors, &["two threads on a disk"], 8);
}

#[test]
fn each_named_kind_has_checksums() {
    let has_checksums = |work: &Work| matches!(work, Work::Scripts(scripts) if scripts.medium.checksums);
    let mut found: Vec<&str> = kinds(CrashRule::Sectors, 1 << 20, 1)
        .iter()
        .filter(|kind| has_checksums(&kind.work))
        .map(|kind| kind.name)
        .collect();
    let mut named = WITH_CHECKSUMS;
    found.sort_unstable();
    named.sort_unstable();
    assert_eq!(found, named);
}

#[test]
fn a_small_journal_starts_over_several_times() {
    let all = kinds(CrashRule::Sectors, 1 << 20, 1);
    let work = all.into_iter().find(|kind| kind.name == "journals that start over").map(|kind| kind.work);
    let Some(Work::Scripts(mut work)) = work else { panic!("there are scripts") };
    let start = work.start().expect("room");
    let (script, _) = work.scripts.next().expect("a script");
    let recorded = record(&start, &script, RecordOptions::default()).expect("as the model");
    let volume = Medium::place_bytes(work.medium.bytes, work.medium.checksums);
    let anchor = (volume + work.medium.journal_bytes.expect("small")) as usize;
    let is_anchor =
        |event: &&Event| matches!(event, Event::Store { addr, .. } if addr.offset() as usize == anchor);
    let writes = recorded.run.events.iter().filter(is_anchor).count();
    assert!(writes >= 4, "the anchor was written only {writes} times");
}

/// Returns the number of buckets of a directory in the root, or 0 if it does not exist.
fn buckets(engine: &Scm, name: &[u8]) -> u64 {
    let Some(id) = engine.lookup(engine.root(), name).expect("sound") else { return 0 };
    let medium = engine.volume().medium();
    let _pin = epoch::pin();
    let table = Header::of(id).hot(medium).expect("alive").root.extent().expect("a table");
    medium.load(table.addr).expect("a table")
}

#[test]
fn a_cut_has_a_split_and_a_removal_or_an_object_made_twice() {
    let all = kinds(CrashRule::Sectors, 1 << 20, 1);
    let work = all.into_iter().find(|kind| kind.name == "several calls in a cut").map(|kind| kind.work);
    let Some(Work::Scripts(work)) = work else { panic!("there are scripts") };
    let start = work.start().expect("room");
    let (mut split_and_removal, mut made_twice) = (0, 0);
    for (script, _) in work.scripts {
        let session = RecordSession::open(&start, &FaultPlan::default()).expect("a sound volume");
        let (mut before, mut removals, mut made) = (0, 0, Vec::new());
        for line in script.lines() {
            session.set_clock(line);
            if let Err(error) = perform(&session.files, &line.call) {
                let refusals = [Errno::PERM, Errno::NOENT, Errno::DQUOT, Errno::XDEV];
                let refused = refusals.contains(&error.errno());
                assert!(refused, "only inode flags and quotas refuse calls: {error}");
                continue;
            }
            match &line.call {
                Call::Unlink { .. } => removals += 1,
                Call::Mkdir { path, .. } => made.push(path.clone()),
                Call::Sync => {
                    let now = buckets(session.files.engine(), b"turnover");
                    split_and_removal += u32::from(now > before && before > 0 && removals > 0);
                    let names: BTreeSet<_> = made.iter().collect();
                    made_twice += u32::from(names.len() < made.len());
                    (before, removals, made) = (now, 0, Vec::new());
                }
                _ => {}
            }
        }
    }
    assert!(split_and_removal >= 3 && made_twice >= 2, "{split_and_removal}, {made_twice}");
}

#[test]
fn calls_larger_than_the_journal_overflow() {
    let all = kinds(CrashRule::Sectors, 1 << 20, 1);
    let work = all.into_iter().find(|kind| kind.name == "more than the journal").map(|kind| kind.work);
    let Some(Work::Scripts(mut work)) = work else { panic!("there are scripts") };
    let start = work.start().expect("room");
    for (number, (script, _)) in work.scripts.by_ref().enumerate() {
        let recorded = record(&start, &script, RecordOptions::default()).expect("as the model");
        assert_eq!(recorded.without_room, 0, "script {number}");
        let journal = Medium::place_bytes(work.medium.bytes, work.medium.checksums);
        let overflow = std::mem::offset_of!(eyrie_medium::RecordHead, overflow);
        let overflows = recorded.run.events.iter().any(|event| match event {
            Event::Store { addr, bytes, .. } if addr.offset() == journal => {
                bytes.get(overflow..overflow + 4).is_some_and(|count| *count != [0; 4])
            }
            _ => false,
        });
        assert!(overflows, "no record of script {number} overflows");
    }
}

#[test]
fn writers_leave_views_and_orphans_unchanged() {
    for rule in [CrashRule::Lines, CrashRule::Sectors] {
        let start = StartVolume::empty(rule, 1 << 20).expect("room");
        // A pin of a test beside this one delays the reuse of storage, so that a put may find no room.
        let explored = (0..50).find_map(|_| match readers::explore(&start, &mut || true) {
            Err(what) if what.contains("No space left") => None,
            explored => Some(explored),
        });
        explored.expect("room at some time").unwrap_or_else(|what| panic!("{rule:?}: {what}"));
    }
}

#[test]
fn damage_under_a_checksum_is_never_believed() {
    let start = StartVolume::empty(CrashRule::Lines, 512 << 10).expect("room");
    let counts = damage::explore(&start, &mut || true).unwrap_or_else(|what| panic!("{what}"));
    assert!(counts.images > 300 && counts.points >= 3, "{counts:?}");
}

#[test]
fn lost_pages_of_a_disk_with_checksums_are_noticed() {
    let counts = lost_pages::explore(&mut || true).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(counts.images, 11);
}

#[test]
fn volumes_that_change_their_size_survive_crashes_and_failures() {
    let counts = resizing::explore(&mut || true).unwrap_or_else(|what| panic!("{what}"));
    assert!(counts.images > 50, "{counts:?}");
}

#[test]
fn a_batch_is_one_call() {
    let start = start().after_script(&workload::setup()).expect("room");
    let script = script("batch / put k 10 1 put new 5000 2 erase k2 erase none\nbatch / put k 0 0\n");
    let recorded = record(&start, &script, RecordOptions::default()).expect("as the model");
    assert_eq!(recorded.calls[0], "1 batch / put k 10 1 put new 5000 2 erase k2 erase none = 0");
    explored(&recorded).unwrap_or_else(|failure| panic!("{failure}"));
    let again = Script::parse("again", script.to_string().as_bytes()).expect("a script");
    assert_eq!(again, script);
    for bad in ["batch", "batch / pot k 1 1", "batch / put k 1", "batch / erase"] {
        assert!(Script::parse("bad", bad.as_bytes()).is_err(), "{bad}");
    }
}
