use std::collections::BTreeSet;

use eyrie_medium::{CrashPoints, Event, Plan, Site, SiteKind};

use super::faults::Faults;
use super::recovery::Recovery;
use super::trace::{Loss, Trace, TraceError};
use super::*;
use crate::script::Script;

const BYTES: u64 = 512 << 10;

fn script(text: &str) -> Script {
    Script::parse("test", text.as_bytes()).expect("a script")
}

fn start() -> Start {
    Start::empty(BYTES).expect("room")
}

/// Everything, and what crashes in some recoveries leave.
const DEEP: Limits = Limits { recoveries: 1, ..Limits::ALL };

fn explored(recorded: &Recorded) -> Result<Report, Failure> {
    recorded.explore(DEEP, &mut || true)
}

#[test]
fn every_crash_of_a_script_leaves_whole_calls() {
    let script =
        script("mkdir /d\ncreat /d/a\nwrite /d/a 0 5000 1\nrename /d/a /b\nput /d k 100 2\nunlink /none\n");
    let recorded = record(&start(), &script, Options { closes: true, dropped: None }).expect("as the model");
    let report = explored(&recorded).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.calls.len(), 8, "six calls, the close, and what comes after");
    assert_eq!(report.calls[5].call, "6 unlink /none = ENOENT (No such file or directory)");
    let of_calls: u64 = report.calls.iter().map(|call| call.images).sum();
    let of_sites: u64 = report.sites.iter().map(|site| site.images).sum();
    assert!((of_calls, of_sites) == (report.images, report.images) && report.distinct <= report.images);
    assert!(report.of_recovery > report.points, "{}", report.of_recovery);
    // A rename of a name commits in steps, so power can fail in the middle of it.
    assert!(report.calls[3].images > 4, "{:?}", report.calls[3]);
}

#[test]
fn single_calls_and_some_pairs_survive_every_crash() {
    let start = Start::empty(1 << 20).and_then(|empty| empty.after(&workload::setup())).expect("room");
    let mut images = 0;
    for script in workload::singles().into_iter().chain(workload::pairs().take(100)) {
        let recorded =
            record(&start, &script, Options::default()).unwrap_or_else(|error| panic!("{script}{error}"));
        assert_eq!(recorded.without_room, 0, "{script}");
        images += explored(&recorded).unwrap_or_else(|failure| panic!("{script}{failure}")).images;
    }
    assert!(images > 3000, "only {images} images");
}

#[test]
fn random_scripts_survive_every_crash() {
    for seed in 0..6 {
        let script = workload::random(seed);
        let recorded =
            record(&start(), &script, Options::default()).unwrap_or_else(|error| panic!("{script}{error}"));
        explored(&recorded).unwrap_or_else(|failure| panic!("seed {seed}:\n{script}{failure}"));
    }
}

#[test]
fn a_missing_fence_is_found_replayed_and_shrunk() {
    let script = script("mkdir /d\ncreat /a\nwrite /a 0 100 1\nmkdir /e\nrename /a /d/b\nrename /d/b /e/c\n");
    let points = record(&start(), &script, Options::default()).expect("as the model").points();
    let is_fence = |site: &Site| site.kind == SiteKind::Fence && site.file.ends_with("redo.rs");
    let redo: BTreeSet<Site> = points.into_keys().filter(is_fence).collect();
    assert!(!redo.is_empty());
    for site in redo {
        let options = Options { closes: false, dropped: Some(site) };
        let recorded = record(&start(), &script, options).expect("as the model");
        let Err(failure) = explored(&recorded) else { continue };
        let replayed = recorded.run.replay(failure.after, &failure.picks, failure.again.as_ref());
        assert_eq!(replayed, Ok(Some(failure.what.clone())));
        let (short, _) = shrink(&start(), &script, options, Limits::ALL, &|| true).expect("it fails");
        assert!(short.lines().len() < script.lines().len(), "{short}");
        return;
    }
    panic!("no fence of a redo record is missed");
}

/// The fences that only recovery has are missed only when power fails in a recovery.
#[test]
fn a_fence_that_recovery_lacks_is_found_and_replayed() {
    let script = script("mkdir /d\ncreat /a\nmkdir /e\nrename /a /d/b\n");
    let recorded = record(&start(), &script, Options::default()).expect("as the model");
    let mut fences = BTreeSet::new();
    let mut points = CrashPoints::new(&recorded.run.base, &recorded.run.events).expect("memory");
    while points.next().is_some() {
        let recovery = Recovery::of(points.base().bytes(), &Plan::default()).expect("it opens");
        fences.extend(recovery.events.iter().filter_map(|event| match event {
            Event::Fence { site, .. } if site.file.ends_with("redo.rs") => Some(*site),
            _ => None,
        }));
    }
    assert!(!fences.is_empty(), "no record was ever replayed");
    let caught = fences.into_iter().filter(|site| {
        let options = Options { closes: false, dropped: Some(*site) };
        let recorded = record(&start(), &script, options).expect("as the model");
        let limits = Limits { recoveries: u64::MAX, ..Limits::ALL };
        let Err(failure) = recorded.explore(limits, &mut || true) else { return false };
        assert!(failure.again.is_some(), "{failure}");
        let replayed = recorded.run.replay(failure.after, &failure.picks, failure.again.as_ref());
        assert_eq!(replayed, Ok(Some(failure.what)));
        assert_eq!(recorded.run.replay(failure.after, &failure.picks, None), Ok(None));
        true
    });
    assert!(caught.count() > 0, "nobody misses a fence of recovery");
}

#[test]
fn what_is_no_image_and_what_was_not_opened_is_told() {
    let script = script("mkdir /d\ncreat /a\nrename /a /d/b\n");
    let recorded = record(&start(), &script, Options::default()).expect("as the model");
    assert_eq!(recorded.run.replay(1 << 40, &[], None), Err(NoImage::Point { after: 1 << 40 }));
    let end = recorded.run.events.len();
    assert_eq!(recorded.run.replay(end, &[], None), Ok(None));
    assert_eq!(recorded.run.replay(end, &[0], None), Err(NoImage::Pick { index: 0 }));
    let first = Limits { images: 1, is_complete: false, recoveries: 0 };
    let report = recorded.explore(first, &mut || true).expect("nothing is lost");
    assert!(report.cut > 0 && report.images == report.points, "{report:?}");
    assert_eq!(explored(&recorded).expect("nothing is lost").cut, 0);
}

/// A full volume is no failure: what it has is there, and nothing else happens.
#[test]
fn crashes_of_a_full_volume_leave_what_it_has() {
    let calls: String = (0..60).map(|key| format!("put / k{key} 16K {key}\n")).collect();
    let recorded = record(&start(), &script(&calls), Options::default()).expect("as the model");
    assert!((1..60).contains(&recorded.without_room), "{}", recorded.without_room);
    let few = Limits { images: 3, is_complete: false, recoveries: 0 };
    recorded.explore(few, &mut || true).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn every_pair_comes_up_once() {
    let all: BTreeSet<String> = workload::pairs().map(|script| script.to_string()).collect();
    assert_eq!(all.len(), workload::singles().len().pow(2));
}

#[test]
fn a_trace_makes_the_images_that_a_crash_may_leave() {
    let script = script("creat /a\nwrite /a 0 24 1\n");
    let recorded = record(&start(), &script, Options::default()).expect("as the model");
    let text = trace::text(&recorded);
    let trace = Trace::parse(&text).expect("a trace");
    assert_eq!(trace.events(), recorded.run.events.len());
    assert_eq!(trace.image(0, &[]).expect("the start"), recorded.run.base);
    let mut points = CrashPoints::new(&recorded.run.base, &recorded.run.events).expect("memory");
    let mut lost = 0;
    while let Some(point) = points.next() {
        let offsets = point.pending.keys().map(|line| Loss { offset: line.offset(), kept: 0 });
        let losses: Vec<Loss> = offsets.collect();
        assert_eq!(trace.image(point.after, &losses).expect("a crash"), points.base().bytes());
        if let Some(loss) = losses.first() {
            lost += 1;
            let kept = Loss { kept: point.pending.values().next().map_or(0, Vec::len), ..*loss };
            let refused = trace.image(point.after, &[kept]);
            assert_eq!(refused, Err(TraceError::Settled { offset: loss.offset }), "all of it is no loss");
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

/// Every single call and every failure that it can meet. What an object has that cannot be read when it is removed is free
/// again when the volume was closed.
#[test]
fn every_failure_of_the_host_leaves_whole_calls() {
    let start = Start::empty(1 << 20).and_then(|empty| empty.after(&workload::setup())).expect("room");
    let mut faults = Faults::new(None);
    for script in workload::singles() {
        let explored = faults.calls(&start, &script, &mut || true).map(drop);
        explored.unwrap_or_else(|failure| panic!("{script}{failure}"));
    }
    // More memory of the host; directories that grow, and one more chunk of headers.
    let large = script("write /b 0 200K 3\nput / k 60K 4\n");
    faults.calls(&start, &large, &mut || true).unwrap_or_else(|failure| panic!("{failure}"));
    let names = |range: std::ops::Range<usize>| {
        script(&range.map(|number| format!("creat /f/{number:0>60}\n")).collect::<String>())
    };
    let mut crowded = start.clone();
    for (from, to) in [(0, 14), (14, 34), (34, 228), (228, 244)] {
        crowded = if to - from > 20 {
            crowded.after(&names(from..to)).expect("room")
        } else {
            faults
                .calls(&crowded, &names(from..to), &mut || true)
                .unwrap_or_else(|failure| panic!("{failure}"))
        };
    }
    faults.lifecycle(&crowded, &mut || true).unwrap_or_else(|failure| panic!("{failure}"));
    for report in faults.reports() {
        println!("{report:?}");
    }
    let injected: u64 = faults.reports().map(|report| report.injected).sum();
    println!("{} sites, {injected} failures", faults.reports().count());
    for kind in ["allocate", "back", "unback", "read", "write", "publish"] {
        assert!(faults.reports().any(|report| report.kind == kind && report.injected > 0), "{kind}");
    }
}

#[test]
fn regression_what_cannot_be_read_when_it_is_removed_is_free_after_a_close() {
    let start = Start::empty(1 << 20).and_then(|empty| empty.after(&workload::setup())).expect("room");
    let explored = Faults::new(None).calls(&start, &script("unlink /tree\n"), &mut || true).map(drop);
    explored.unwrap_or_else(|failure| panic!("{failure}"));
}
