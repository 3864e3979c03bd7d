use std::collections::BTreeSet;

use eyrie_faults::{CrashPoints, CrashRule, Event, FaultPlan, Site};
use eyrie_medium::SiteKind;

use super::faults::Faults;
use super::recovery::Recovery;
use super::trace::{LineLoss, Trace, TraceError};
use super::*;
use crate::script::Script;

mod killed;
mod stress_scripts;
mod together;

const BYTES: u64 = 512 << 10;

fn script(text: &str) -> Script {
    Script::parse("test", text.as_bytes()).expect("a script")
}

fn start() -> StartVolume {
    StartVolume::empty(CrashRule::Lines, BYTES).expect("room")
}

/// Opens every image, and explores crashes in some recoveries.
const DEEP: Limits = Limits { recoveries: 1, ..Limits::ALL };

fn explored(recorded: &Recorded) -> Result<ExploreReport, CrashFailure> {
    recorded.explore(DEEP, &mut |_| true)
}

#[test]
fn every_crash_of_a_script_leaves_whole_calls() {
    let script =
        script("mkdir /d\ncreat /d/a\nwrite /d/a 0 5000 1\nrename /d/a /b\nput /d k 100 2\nunlink /none\n");
    let recorded =
        record(&start(), &script, RecordOptions { closes: true, dropped: None }).expect("as the model");
    let report = explored(&recorded).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.calls.len(), 8, "six calls, the close, and the crashes after the close");
    assert_eq!(report.calls[5].call, "6 unlink /none = ENOENT (No such file or directory)");
    let of_calls: u64 = report.calls.iter().map(|call| call.images).sum();
    let of_sites: u64 = report.sites.iter().map(|site| site.images).sum();
    assert!((of_calls, of_sites) == (report.images, report.images) && report.distinct <= report.images);
    assert!(report.of_recovery > report.points, "{}", report.of_recovery);
    // A rename commits in several steps, so the power can fail between two of them.
    assert!(report.calls[3].images > 4, "{:?}", report.calls[3]);
}

#[test]
fn single_calls_and_some_pairs_survive_every_crash() {
    let start = StartVolume::empty(CrashRule::Lines, 1 << 20)
        .and_then(|empty| empty.after_script(&workload::setup()))
        .expect("room");
    let mut images = 0;
    for script in workload::singles().into_iter().chain(workload::pairs().take(100)) {
        let recorded = record(&start, &script, RecordOptions::default())
            .unwrap_or_else(|error| panic!("{script}{error}"));
        assert_eq!(recorded.without_room, 0, "{script}");
        images += explored(&recorded).unwrap_or_else(|failure| panic!("{script}{failure}")).images;
    }
    assert!(images > 3000, "only {images} images");
}

#[test]
fn random_scripts_survive_every_crash() {
    for seed in 0..6 {
        let script = workload::random(seed);
        let recorded = record(&start(), &script, RecordOptions::default())
            .unwrap_or_else(|error| panic!("{script}{error}"));
        explored(&recorded).unwrap_or_else(|failure| panic!("seed {seed}:\n{script}{failure}"));
    }
}

#[test]
fn a_missing_fence_is_found_replayed_and_shrunk() {
    let script = script("mkdir /d\ncreat /a\nwrite /a 0 100 1\nmkdir /e\nrename /a /d/b\nrename /d/b /e/c\n");
    let points = record(&start(), &script, RecordOptions::default()).expect("as the model").points();
    let is_fence = |site: &Site| site.kind == SiteKind::Fence && site.file.ends_with("redo.rs");
    let redo: BTreeSet<Site> = points.into_keys().filter(is_fence).collect();
    assert!(!redo.is_empty());
    for site in redo {
        let options = RecordOptions { closes: false, dropped: Some(site) };
        let recorded = record(&start(), &script, options).expect("as the model");
        let Err(failure) = explored(&recorded) else { continue };
        let replayed = recorded.run.replay(failure.after, &failure.picks, failure.recovery_crash.as_ref());
        assert_eq!(replayed, Ok(Some(failure.what.clone())));
        let (short, _) =
            shrink(&start(), &script, options, &|run| run.explore(Limits::ALL, &mut |_| true).err(), &|| {
                true
            })
            .expect("it fails");
        assert!(short.lines().len() < script.lines().len(), "{short}");
        return;
    }
    panic!("no left-out fence of a redo record was noticed");
}

/// Leaves out fences of recovery. Only a crash inside recovery can show that such a fence is missing.
#[test]
fn a_fence_that_recovery_lacks_is_found_and_replayed() {
    let script = script("mkdir /d\ncreat /a\nmkdir /e\nrename /a /d/b\n");
    let recorded = record(&start(), &script, RecordOptions::default()).expect("as the model");
    let mut fences = BTreeSet::new();
    let mut points = CrashPoints::new(&recorded.run.base, &recorded.run.events).expect("memory");
    while points.next().is_some() {
        let recovery =
            Recovery::of(CrashRule::Lines, points.base().bytes(), &FaultPlan::default()).expect("it opens");
        fences.extend(recovery.events.iter().filter_map(|event| match event {
            Event::Fence { site, .. } if site.file.ends_with("redo.rs") => Some(*site),
            _ => None,
        }));
    }
    assert!(!fences.is_empty(), "no recovery replayed a redo record");
    let caught = fences.into_iter().filter(|site| {
        let options = RecordOptions { closes: false, dropped: Some(*site) };
        let recorded = record(&start(), &script, options).expect("as the model");
        let limits = Limits { recoveries: u64::MAX, ..Limits::ALL };
        let Err(failure) = recorded.explore(limits, &mut |_| true) else { return false };
        assert!(failure.recovery_crash.is_some(), "{failure}");
        let replayed = recorded.run.replay(failure.after, &failure.picks, failure.recovery_crash.as_ref());
        assert_eq!(replayed, Ok(Some(failure.what)));
        assert_eq!(recorded.run.replay(failure.after, &failure.picks, None), Ok(None));
        true
    });
    assert!(caught.count() > 0, "no left-out fence of recovery was noticed");
}

#[test]
fn missing_images_are_reported() {
    let script = script("mkdir /d\ncreat /a\nrename /a /d/b\n");
    let recorded = record(&start(), &script, RecordOptions::default()).expect("as the model");
    assert_eq!(recorded.run.replay(1 << 40, &[], None), Err(NoImage::Point { after: 1 << 40 }));
    let end = recorded.run.events.len();
    assert_eq!(recorded.run.replay(end, &[], None), Ok(None));
    assert_eq!(recorded.run.replay(end, &[0], None), Err(NoImage::Pick { index: 0 }));
    let first = Limits { images: 1, sampled: 0, is_complete: false, recoveries: 0 };
    let report = recorded.explore(first, &mut |_| true).expect("nothing is lost");
    assert!(report.limited > 0 && report.images == report.points, "{report:?}");
    assert_eq!(explored(&recorded).expect("nothing is lost").limited, 0);
}

/// Fills a volume. A call that finds no room must change nothing, and the volume must keep its contents in
/// every crash.
#[test]
fn full_volume_keeps_its_contents_in_every_crash() {
    let calls: String = (0..60).map(|key| format!("put / k{key} 16K {key}\n")).collect();
    let recorded = record(&start(), &script(&calls), RecordOptions::default()).expect("as the model");
    assert!((1..60).contains(&recorded.without_room), "{}", recorded.without_room);
    let few = Limits { images: 3, sampled: 0, is_complete: false, recoveries: 0 };
    recorded.explore(few, &mut |_| true).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn every_pair_comes_up_once() {
    let all: BTreeSet<String> = workload::pairs().map(|script| script.to_string()).collect();
    assert_eq!(all.len(), workload::singles().len().pow(2));
}

#[test]
fn a_trace_makes_the_images_that_a_crash_may_leave() {
    let script = script("creat /a\nwrite /a 0 24 1\n");
    let recorded = record(&start(), &script, RecordOptions::default()).expect("as the model");
    let text = trace::text(&recorded);
    let trace = Trace::parse(&text).expect("a trace");
    assert_eq!(trace.events(), recorded.run.events.len());
    assert_eq!(trace.image(0, &[]).expect("the start"), recorded.run.base);
    let mut points = CrashPoints::new(&recorded.run.base, &recorded.run.events).expect("memory");
    let mut lost = 0;
    while let Some(point) = points.next() {
        let offsets = point.pending.keys().map(|line| LineLoss { offset: line.offset(), kept: 0 });
        let losses: Vec<LineLoss> = offsets.collect();
        assert_eq!(trace.image(point.after, &losses).expect("a crash"), points.base().bytes());
        if let Some(loss) = losses.first() {
            lost += 1;
            let kept = LineLoss { kept: point.pending.values().next().map_or(0, Vec::len), ..*loss };
            let refused = trace.image(point.after, &[kept]);
            assert_eq!(
                refused,
                Err(TraceError::NotPending { offset: loss.offset }),
                "a crash that keeps all stores of the line loses nothing"
            );
        }
    }
    assert!(lost > 2);
    let events = trace.events();
    assert_eq!(trace.image(events + 1, &[]), Err(TraceError::Until { events }));
}

#[test]
fn damaged_traces_are_refused() {
    let first =
        |line| Err(TraceError::Line { line, expected: "base, store, fence or mark with its arguments" });
    for line in [
        "store 0 0x0",
        "store 0 0x0 0",
        "store 0 0x0 zz",
        "store 0 0x3f 0000",
        "store 0 0x10000 00",
        "store 0 0xfffffffffffffff8 0000000000000000",
        "store x 0x0 00",
        "base 0x10000 00",
        "fence",
        "mark",
        "other 1",
        "",
    ] {
        assert_eq!(Trace::parse(&format!("eyrie-trace 1 65536\nmark 1 x\n{line}\n")), first(3), "{line}");
    }
    for head in ["", "eyrie-trace 2 65536", "eyrie-trace 1 2000000000", "eyrie-trace 1 x"] {
        assert!(matches!(Trace::parse(head), Err(TraceError::Line { line: 1, .. })), "{head}");
    }
}

#[test]
fn every_crash_of_a_disk_leaves_a_state_since_the_last_sync() {
    let start = StartVolume::empty(CrashRule::Sectors, 512 << 10).expect("room");
    let script = script(
        "mkdir /d\ncreat /d/a\nwrite /d/a 0 5000 1\nfsync /d/a\nwrite /d/a 100 50 2\nrename /d/a /b\n\
         sync\nunlink /b\n",
    );
    let recorded =
        record(&start, &script, RecordOptions { closes: true, dropped: None }).expect("as the model");
    assert_eq!(recorded.run.durable, [0, 0, 0, 0, 4, 4, 4, 7, 7, 9]);
    let limits = Limits { images: 40, sampled: 40, is_complete: false, recoveries: 1 };
    let report = recorded.explore(limits, &mut |_| true).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.images > 200 && report.of_recovery > 100, "{report:?}");
}

#[test]
fn built_in_calls_reach_limits_of_quotas() {
    let start = StartVolume::empty(CrashRule::Lines, 1 << 20).expect("room");
    let recorded = record(&start, &script(&quotas::calls()), RecordOptions::default()).expect("as the model");
    let failing = |errno: &str| recorded.calls.iter().filter(|call| call.contains(errno)).count();
    assert_eq!((failing("= EDQUOT"), failing("= EXDEV"), failing("= E")), (7, 2, 9), "{:#?}", recorded.calls);
}

#[test]
fn growth_and_shrinking_survive_every_crash() {
    let limits = Limits { images: 20, sampled: 0, is_complete: false, recoveries: 0 };
    for script in workload::growth() {
        let recorded = record(
            &StartVolume::empty(CrashRule::Lines, 1 << 20).expect("room"),
            &script,
            RecordOptions::default(),
        )
        .unwrap_or_else(|error| panic!("{script}{error}"));
        assert_eq!(recorded.without_room, 0, "{script}");
        recorded.explore(limits, &mut |_| true).unwrap_or_else(|failure| panic!("{script}{failure}"));
    }
}

#[test]
fn calls_on_a_full_volume_survive_every_crash() {
    let start = StartVolume::empty(CrashRule::Lines, 1 << 20)
        .and_then(|empty| empty.after_script(&workload::filling()));
    let (start, mut without_room) = (start.expect("the volume has room for some of the calls"), 0);
    for script in workload::singles() {
        let recorded = record(&start, &script, RecordOptions::default())
            .unwrap_or_else(|error| panic!("{script}{error}"));
        without_room += recorded.without_room;
        explored(&recorded).unwrap_or_else(|failure| panic!("{script}{failure}"));
    }
    assert!((10..90).contains(&without_room), "{without_room} of the calls have no room");
}

fn beside(calls: &str, others: &str, seed: u64) -> Recorded {
    let start = start().after_script(&workload::setup()).expect("room");
    let beside = ParallelScript { script: script(others), seed };
    record_beside(&start, &script(calls), &beside, RecordOptions::default())
        .unwrap_or_else(|error| panic!("{calls}beside\n{others}seed {seed}: {error}"))
}

#[test]
fn two_threads_leave_some_order_of_their_calls() {
    let cases = [
        ("write /c 0 24 9\nappend /c 10 8\n", "write /c 8 8 7\n"),
        ("rename /a /new\n", "rename /b /new\n"),
        ("creat /d/new\nwrite /d/new 0 100 1\n", "rmdir /e\nmkdir /d/other\n"),
        ("put / k 50 1\n", "put / k 60 2\nerase / k2\n"),
        ("unlink /a\n", "link /a /d/new\n"),
        ("rename /d /g\n", "rename /e /d/e2\n"),
    ];
    let mut images = 0;
    for (calls, others) in cases {
        for seed in 0..6 {
            let recorded = beside(calls, others, seed);
            let report = explored(&recorded)
                .unwrap_or_else(|failure| panic!("{calls}beside\n{others}seed {seed}: {failure}"));
            images += report.images;
        }
    }
    assert!(images > 500, "only {images} images");
}

#[test]
fn two_threads_do_the_same_again_from_the_same_seed() {
    let stores = |seed| {
        let recorded = beside("rename /a /new\nwrite /b 0 100 1\n", "creat /d/new\nput / k 60 2\n", seed);
        let place = |event: &Event| match event {
            Event::Store { addr, bytes, .. } => Some((*addr, bytes.clone())),
            _ => None,
        };
        recorded.run.events.iter().filter_map(place).collect::<Vec<_>>()
    };
    let runs: Vec<_> = (0..4).map(stores).collect();
    assert!(runs.iter().any(|run| *run != runs[0]), "all seeds gave the same order of the threads");
    // Threads of other tests take numbers from the same counter, and the number of a thread selects the
    // memory that it allocates. So only some pairs of runs are equal.
    assert!((0..50).any(|_| stores(1) == stores(1)), "no run was repeated exactly");
}

#[test]
fn a_fence_that_one_of_two_threads_lacks_is_noticed() {
    let start = start().after_script(&workload::setup()).expect("room");
    let (calls, others) = (script("rename /a /new\n"), script("rename /c /d/new\n"));
    let clean = beside("rename /a /new\n", "rename /c /d/new\n", 1);
    explored(&clean).unwrap_or_else(|failure| panic!("{failure}"));
    let in_redo = |site: &Site| site.kind == SiteKind::Fence && site.file.ends_with("redo.rs");
    let fences: Vec<Site> = clean.points().into_keys().filter(in_redo).collect();
    let noticed = |&site: &Site| {
        let options = RecordOptions { dropped: Some(site), closes: false };
        (0..4).any(|seed| {
            let beside = ParallelScript { script: others.clone(), seed };
            record_beside(&start, &calls, &beside, options)
                .map_or(true, |recorded| explored(&recorded).is_err())
        })
    };
    assert!(fences.iter().filter(|site| noticed(site)).count() >= 2, "of {fences:?}");
}

/// Injects failures of a disk into each call and the sync after the call, and into open, recovery, trim and
/// close. Each call must be whole or change nothing.
#[test]
fn every_failure_of_a_disk_leaves_whole_calls() {
    let start = StartVolume::empty(CrashRule::Sectors, 1 << 20)
        .and_then(|empty| empty.after_script(&workload::setup()));
    let start = start.expect("room");
    let mut faults = Faults::new(None);
    let calls = script(
        "creat /new\nwrite /new 0 300K 1\nwrite /new 100 50 2\nfsync /new\nrename /new /moved\nmkdir /dir\n\
         put / key 5000 3\nfallocate /moved punch-hole 4096 8192\ntruncate /moved 10\nunlink /moved\nsync\n",
    );
    let done = faults.calls(&start, &calls, &mut || true);
    let after = done.unwrap_or_else(|failure| panic!("{failure}"));
    faults.lifecycle(&after, &mut || true).unwrap_or_else(|failure| panic!("{failure}"));
    let sites = faults.reports().map(|report| (report.kind, &report.site)).collect::<BTreeSet<_>>();
    assert!(sites.len() >= 12, "{sites:?}");
    for kind in ["provision", "flush", "read", "discard", "write"] {
        assert!(faults.reports().any(|report| report.kind == kind && report.injected > 0), "{kind}");
    }
}

/// Injects failures of the host into single calls, and into open, recovery, trim and close. Each call must be
/// whole or change nothing. Storage that cannot be read while its object is removed leaks until the next
/// recovery.
#[test]
fn every_failure_of_the_host_leaves_whole_calls() {
    let start = StartVolume::empty(CrashRule::Lines, 1 << 20)
        .and_then(|empty| empty.after_script(&workload::setup()))
        .expect("room");
    let mut faults = Faults::new(None);
    for script in workload::singles() {
        let explored = faults.calls(&start, &script, &mut || true).map(drop);
        explored.unwrap_or_else(|failure| panic!("{script}{failure}"));
    }
    // These calls make the host provide memory. The calls below fill a directory until it grows, and need
    // another chunk of headers. They create the names in four ranges. Failures are injected only into the
    // calls of the ranges of at most 20 names.
    let large = script("write /b 0 200K 3\nput / k 60K 4\n");
    faults.calls(&start, &large, &mut || true).unwrap_or_else(|failure| panic!("{failure}"));
    let names = |range: std::ops::Range<usize>| {
        script(&range.map(|number| format!("creat /f/{number:0>60}\n")).collect::<String>())
    };
    let mut crowded = start.clone();
    for (from, to) in [(0, 14), (14, 34), (34, 228), (228, 244)] {
        crowded = if to - from > 20 {
            crowded.after_script(&names(from..to)).expect("room")
        } else {
            faults
                .calls(&crowded, &names(from..to), &mut || true)
                .unwrap_or_else(|failure| panic!("{failure}"))
        };
    }
    faults.lifecycle(&crowded, &mut || true).unwrap_or_else(|failure| panic!("{failure}"));
    for kind in ["allocate", "provision", "discard", "read", "write", "publish"] {
        assert!(faults.reports().any(|report| report.kind == kind && report.injected > 0), "{kind}");
    }
}

#[test]
fn regression_unreadable_storage_is_free_after_a_close() {
    let start = StartVolume::empty(CrashRule::Lines, 1 << 20)
        .and_then(|empty| empty.after_script(&workload::setup()))
        .expect("room");
    let explored = Faults::new(None).calls(&start, &script("unlink /tree\n"), &mut || true).map(drop);
    explored.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_flush_that_a_disk_lacks_is_noticed() {
    let start = StartVolume::empty(CrashRule::Sectors, 512 << 10).expect("room");
    let script = script("creat /a\nwrite /a 0 5000 1\nfsync /a\nwrite /a 0 6000 2\nsync\n");
    let limits = Limits { images: 40, sampled: 40, is_complete: false, recoveries: 0 };
    let explored = |dropped| {
        let recorded = record(&start, &script, RecordOptions { closes: true, dropped })
            .unwrap_or_else(|error| panic!("{dropped:?}: {error}"));
        let found = recorded.explore(limits, &mut |_| true).map(drop);
        (found.is_err(), recorded.points())
    };
    let (is_wrong, points) = explored(None);
    assert!(!is_wrong);
    let is_of_drain = |site: &Site| site.kind == SiteKind::Flush && site.file.ends_with("drain.rs");
    let flushes: Vec<Site> = points.into_keys().filter(is_of_drain).collect();
    assert!(!flushes.is_empty());
    let missed: Vec<Site> = flushes.into_iter().filter(|&flush| !explored(Some(flush)).0).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// Explores two threads. Each of the first 64 runs switches to the second thread once, after a different
/// number of steps of the first thread. Most of the further runs switch between the threads at random.
fn beside_anywhere([calls, others]: [&str; 2]) {
    for seed in (0..64).map(|store| 16 * store + 3).chain(0..20) {
        let explored = beside(calls, others, seed).explore(Limits::ALL, &mut |_| true).map(drop);
        explored.unwrap_or_else(|failure| panic!("{calls}beside\n{others}seed {seed}: {failure}"));
    }
}

#[test]
fn regression_no_op_call_waits_for_concurrent_change() {
    beside_anywhere(["truncate /a 0\n"; 2]);
    beside_anywhere(["write /a 200 8 1\n", "truncate /a 208\n"]);
    beside_anywhere(["creat /n\n", "rename /n /n\n"]);
}

#[test]
fn dependent_change_waits_for_durable_object() {
    beside_anywhere(["mkdir /n\n", "creat /n/m\n"]);
    beside_anywhere(["creat /n\n", "write /n 0 100 1\n"]);
    beside_anywhere(["creat /n\n", "link /n /d/n\n"]);
    beside_anywhere(["creat /n\n", "fsync /n\n"]);
    beside_anywhere(["put / n 40 1\n", "write /n 0 100 2\n"]);
}

/// Checks that an error promises nothing: a crash may undo the change of another thread that the error
/// reveals.
#[test]
fn error_may_expose_change_that_a_crash_undoes() {
    let mut overtaken = 0;
    for seed in 0..100 {
        let recorded = beside("unlink /b\n", "chown /b 9 -1\n", seed);
        let is_gone = recorded.calls[1].contains("ENOENT");
        let mut seen = |seen: &SeenImage| {
            // The call of the second thread has returned, and that of the first has not.
            overtaken += u64::from(is_gone && seen.done == 1);
            true
        };
        recorded.explore(DEEP, &mut seen).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
    assert!(overtaken > 0, "no call failed because of a change that was not durable");
}

#[test]
fn report_counts_the_returned_calls_of_two_threads() {
    let report = explored(&beside("creat /x\ncreat /y\n", "creat /z\n", 1)).expect("nothing is lost");
    let names: BTreeSet<&str> = report.calls.iter().map(|call| &call.call[..]).collect();
    assert_eq!(names.len(), report.calls.len(), "{names:?}");
    assert!(names.contains("after 2 calls of one thread and 1 of the other"), "{names:?}");
}
