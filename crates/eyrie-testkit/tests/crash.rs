//! Power fails at every write and barrier of every Op.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use eyrie_testkit::crash::{Case, Counts, Limits, cases, explore_creation, plant, replay};

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
fn every_crash_in_opening_and_closing_leaves_the_same_volume() {
    let _alone = alone();
    explore_all("opening and closing", &cases::lifecycle());
    let (counts, _) = explore_creation(None, Limits::ALL).unwrap_or_else(|failure| panic!("{failure}"));
    println!("creation: {counts:?}");
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
    let run = case.run(None).expect("it works");
    let site = *run.sites.first().expect("it fences");
    let failure = case.explore(Some(site), Limits::ALL).expect_err("a fence is missing");
    let replayed = replay(case, failure.dropped, failure.after, failure.script.clone());
    assert_eq!(replayed, Err(failure.what.clone()));
    assert_eq!(replay(case, None, run.events.len(), Vec::new()), Ok(()));
}
