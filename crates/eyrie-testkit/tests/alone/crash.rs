//! Tests of power failures inside Ops, inside opening and closing, and inside the creation of a volume.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use eyrie_medium::SiteKind;
use eyrie_sim::explore::{Counts, Limits};
use eyrie_testkit::crash::{Case, cases, explore_creation, plant, replay};

use crate::alone;

/// Seed of the pairs of Ops.
const SEED: u64 = 1;

fn explore_all(what: &str, cases: &[Case]) {
    let (began, mut counts) = (Instant::now(), Counts::default());
    let mut failures = Vec::new();
    for case in cases {
        match case.explore(None, Limits::ALL) {
            Ok(explored) => counts += explored,
            Err(failure) => failures.push(failure),
        }
    }
    println!("{what}: {} cases, {counts:?}, {:.1?}", cases.len(), began.elapsed());
    for failure in &failures {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} cases failed, see above; the first: {}", failures.len(), failures[0]);
}

#[test]
fn every_crash_in_an_op_leaves_it_whole_or_undone() {
    let _alone = alone();
    explore_all("single Ops", &cases::single());
}

#[test]
fn every_crash_in_two_ops_leaves_each_whole_or_undone() {
    let _alone = alone();
    explore_all("pairs of Ops", &cases::pairs(SEED));
}

#[test]
fn a_crash_in_a_batch_of_many_keys_leaves_all_or_none() {
    let _alone = alone();
    let counts = cases::long_batch()
        .explore(None, Limits { images: 100, sampled: 0, is_complete: false, recoveries: 0 });
    println!("a long batch: {:?}", counts.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn every_crash_in_opening_and_closing_leaves_the_same_volume() {
    let _alone = alone();
    explore_all("opening and closing", &cases::lifecycle());
    let (counts, _) = explore_creation(None, Limits::ALL).unwrap_or_else(|failure| panic!("{failure}"));
    println!("creation: {counts:?}");
}

/// Returns the kind of the point on a line of the engine's sources, or `None` if the line has no point.
fn kind_of(line: &str) -> Option<SiteKind> {
    let calls = |names: &[&str]| names.iter().any(|name| line.contains(name));
    if calls(&["barrier(", ".settle("]) {
        Some(SiteKind::Fence)
    } else if calls(&[".publish(", ".publish_apart(", ".publish_line(", ".publish_all("]) {
        Some(SiteKind::Publish)
    } else if calls(&[".flush_found("]) {
        Some(SiteKind::Flush)
    } else {
        calls(&[".verify("]).then_some(SiteKind::Checksum)
    }
}

/// Adds all points in the sources below `dir`: kind, file and line. Skips tests, mutants, and functions whose
/// points belong to their callers.
fn points_of(dir: &Path, points: &mut BTreeSet<(SiteKind, String, u32)>) {
    for entry in std::fs::read_dir(dir).expect("sources").map(|entry| entry.expect("sources").path()) {
        let name = entry.to_string_lossy().into_owned();
        if entry.is_dir() && !name.ends_with("/tests") {
            points_of(&entry, points);
        } else if name.ends_with(".rs") && !name.ends_with("/tests.rs") {
            let text = std::fs::read_to_string(&entry).expect("sources");
            let (mut is_for_caller, mut mutant) = (false, None);
            for (line, number) in
                text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().zip(1..)
            {
                is_for_caller |= line.contains("#[track_caller]");
                let indent = line.len() - line.trim_start().len();
                if line.contains("if broken(") && line.ends_with('{') {
                    mutant = Some(indent);
                } else if mutant.is_some_and(|outer| indent <= outer) {
                    mutant = None;
                }
                if let Some(kind) =
                    kind_of(line).filter(|_| !line.contains("fn ") && !is_for_caller && mutant.is_none())
                {
                    let (_, file) = name.rsplit_once("eyrie-engine/").expect("in the engine");
                    points.insert((kind, format!("crates/eyrie-engine/{file}"), number));
                }
                is_for_caller &= line != "    }";
            }
        }
    }
}

/// For every point of the engine, some run fails if the point is left out. The exceptions are the points of a
/// resize, of the number of owners, and of the record of a service's request.
#[test]
fn every_missing_point_is_noticed() {
    let _alone = alone();
    let cases = [cases::lifecycle(), cases::pairs(SEED), cases::single()].concat();
    let planted = plant::plant(&cases);
    for planted in &planted {
        println!("{}, in {} runs", planted.site, planted.trials);
        if let Some(what) = &planted.caught {
            println!("  {}", what.chars().take(400).collect::<String>());
        }
    }
    // The number of owners and the record of a service's request need not survive a power failure.
    let is_for_kills = |file: &str| file.ends_with("volume/owners.rs") || file.ends_with("volume/request.rs");
    let needed = planted.iter().filter(|planted| !is_for_kills(planted.site.file));
    let missed: Vec<_> = needed.clone().filter(|planted| planted.caught.is_none()).collect();
    assert!(missed.is_empty(), "nothing noticed that these are missing: {missed:#?}");
    let mut written = BTreeSet::new();
    points_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../eyrie-engine/src"), &mut written);
    // A resize is not an Op. `missing_resize_points_are_noticed` covers it.
    written.retain(|(_, file, _)| !file.ends_with("volume/resize.rs"));
    written.retain(|(_, file, _)| !is_for_kills(file));
    let met = needed.map(|planted| planted.site);
    let met: BTreeSet<_> = met.map(|site| (site.kind, site.file.to_string(), site.line)).collect();
    assert_eq!(written, met);
}

#[test]
fn a_failure_can_be_replayed() {
    let _alone = alone();
    let case = &cases::lifecycle()[0];
    let run = case.run(None).expect("it works");
    let (site, _) = run.plan.points().pop_first().expect("it fences");
    let failure = case.explore(Some(site), Limits::ALL).expect_err("a fence is missing");
    let replayed = replay(case, failure.dropped, failure.crash.after, &failure.crash.picks);
    assert_eq!(replayed, Ok(Some(failure.crash.what.clone())));
    assert_eq!(replay(case, None, run.events.len(), &[]), Ok(None));
}
