//! Power fails at every write and barrier of every Op.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use eyrie_sim::explore::{Counts, Limits};
use eyrie_testkit::crash::{Case, cases, explore_creation, plant, replay};

/// Seed of the pairs of Ops.
const SEED: u64 = 1;

/// One test at a time: pins of one would hold up the reuse of memory in another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    let counts = cases::long_batch().explore(None, Limits { images: 100, is_complete: false, recoveries: 0 });
    println!("a long batch: {:?}", counts.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn every_crash_in_opening_and_closing_leaves_the_same_volume() {
    let _alone = alone();
    explore_all("opening and closing", &cases::lifecycle());
    let (counts, _) = explore_creation(None, Limits::ALL).unwrap_or_else(|failure| panic!("{failure}"));
    println!("creation: {counts:?}");
}

/// Where the engine's sources call for a fence, as file and line.
fn fences_of(dir: &Path, fences: &mut BTreeSet<(String, u32)>) {
    for entry in std::fs::read_dir(dir).expect("sources").map(|entry| entry.expect("sources").path()) {
        let name = entry.to_string_lossy().into_owned();
        if entry.is_dir() && !name.ends_with("/tests") {
            fences_of(&entry, fences);
        } else if name.ends_with(".rs") && !name.ends_with("/tests.rs") {
            let text = std::fs::read_to_string(&entry).expect("sources");
            let mut is_for_caller = false;
            for (line, number) in text.split("#[cfg(test)]").next().unwrap_or_default().lines().zip(1..) {
                is_for_caller |= line.contains("#[track_caller]");
                if (line.contains("barrier(") && !line.contains("fn ") || line.contains(".settle("))
                    && !is_for_caller
                {
                    let (_, file) = name.rsplit_once("eyrie-engine/").expect("in the engine");
                    fences.insert((format!("crates/eyrie-engine/{file}"), number));
                }
                is_for_caller &= line != "    }";
            }
        }
    }
}

#[test]
fn every_fence_of_the_engine_is_in_some_case() {
    let _alone = alone();
    let mut written = BTreeSet::new();
    fences_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../eyrie-engine/src"), &mut written);
    // A resize is no Op: `a_resize_that_is_stopped_at_any_step_leaves_either_size` stops it everywhere.
    written.retain(|(file, _)| !file.ends_with("volume/resize.rs"));
    let (_, mut seen) = explore_creation(None, Limits::ALL).unwrap_or_else(|failure| panic!("{failure}"));
    for case in [cases::lifecycle(), cases::single()].concat() {
        seen.extend(case.run(None).expect("it works").1);
    }
    let seen: BTreeSet<_> = seen.into_iter().map(|site| (site.file.to_string(), site.line)).collect();
    assert_eq!(written, seen);
}

#[test]
fn every_missing_fence_is_noticed() {
    let _alone = alone();
    let cases = [cases::lifecycle(), cases::pairs(SEED), cases::single()].concat();
    let planted = plant::plant(&cases);
    let missed: Vec<_> = planted.iter().filter(|planted| planted.caught.is_none()).collect();
    for planted in &planted {
        println!("{:?}, in {} cases", planted.site, planted.cases);
        if let Some(failure) = &planted.caught {
            println!("  {}", failure.to_string().chars().take(400).collect::<String>());
        }
    }
    assert!(missed.is_empty(), "nothing noticed that these are missing: {missed:#?}");
}

#[test]
fn a_failure_can_be_replayed() {
    let _alone = alone();
    let case = &cases::lifecycle()[0];
    let (run, sites) = case.run(None).expect("it works");
    let site = *sites.first().expect("it fences");
    let failure = case.explore(Some(site), Limits::ALL).expect_err("a fence is missing");
    let replayed = replay(case, failure.dropped, failure.crash.after, &failure.crash.picks);
    assert_eq!(replayed, Ok(Some(failure.crash.what.clone())));
    assert_eq!(replay(case, None, run.events.len(), &[]), Ok(None));
}
