//! Tests that calls on damaged volumes return an answer or an error, and that they end.
//!
//! These tests have a binary of their own and run one at a time, because they count the panics of the process
//! and bound the growth of its memory.

use std::sync::{Mutex, MutexGuard};

use eyrie_engine::scm::Scm;
use eyrie_engine::transaction::redo;
use eyrie_engine::{Engine, Error, Kind, Volume};
use eyrie_medium::sync::unpoisoned;
use eyrie_testkit::hostile::{Damage, HostileReport, Image, LowestSlots, bases, disk_bases, run, run_disks};

const IMAGES: u64 = 100_000;
const DISKS: u64 = 10_000;
/// Number of images (or disks) before the first measurement of memory, and between two measurements.
const WARM_UP: u64 = 5000;
/// Maximum growth of memory after the first measurement, in bytes.
const MAX_GROWTH: u64 = 64 << 20;

/// Returns the lock that each test of this binary holds while it runs. The lock ignores poison, so a failed
/// test does not fail the next test.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    unpoisoned(ALONE.lock())
}

/// Returns the peak memory of this process, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel has this file");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Returns a callback that checks the growth of memory.
fn memory_is_bounded() -> impl FnMut(&HostileReport) {
    let mut peak = u64::MAX;
    move |report| {
        if report.images == WARM_UP {
            peak = peak_memory();
        }
        if report.images % WARM_UP == 0 {
            let growth = peak_memory().saturating_sub(peak);
            assert!(growth < MAX_GROWTH, "{growth} bytes more after {} images", report.images);
        }
    }
}

fn assert_answered(report: &HostileReport) {
    assert_eq!(report.panicked, [] as [u64; 0]);
    assert!(report.refused > 0 && report.broken > 0 && report.sound > 0, "{report:?}");
}

#[test]
fn hostile_images_give_an_answer_or_an_error() {
    let _alone = alone();
    assert_answered(&run(&bases(), 0..IMAGES, memory_is_bounded()));
}

#[test]
fn hostile_disks_give_an_answer_or_an_error() {
    let _alone = alone();
    assert_answered(&run_disks(&disk_bases(), 0..DISKS, memory_is_bounded()));
}

#[test]
fn regression_a_seek_in_a_tree_of_repeated_pages_ends() {
    let _alone = alone();
    let bases = bases();
    let base = bases.iter().find(|base| base.name == "large").expect("a base with trees");
    // A tree of only leaves has no hole, and a tree of only null pointers has no data. So the seek finds
    // nothing early.
    for (slots, hole) in [(LowestSlots::Leaves, true), (LowestSlots::Null, false)] {
        let mut image = Image::new(base);
        let file = base.hot_copy(b"tree");
        Damage::Bomb { file, page: base.bytes.len() as u64 - (8 << 12), slots }.apply(&mut image);
        let engine = Scm::open_on(image.medium()).expect("a volume that was closed opens without a walk");
        let id = engine.lookup(engine.root(), b"tree").expect("sound").expect("there");
        assert_eq!((id.kind(), engine.attributes(id).expect("alive").size), (Kind::File, i64::MAX as u64));
        let found = engine.seek(id, 0, hole);
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
    }
}

#[test]
fn regression_a_redo_record_with_a_bad_word_changes_nothing() {
    let _alone = alone();
    let bases = bases();
    // The base `few`.
    let base = &bases[1];
    let mut image = Image::new(base);
    // The first word is in the volume. The address of the second word is outside.
    let words = vec![(base.hot_copy(b"a"), 0), (u64::MAX << 20, 1)];
    for damage in [Damage::Unclean, Damage::Redo { slot: 3, words }] {
        damage.apply(&mut image);
    }
    image.mend_checksums();
    let medium = image.medium();
    let (volume, _) = Volume::open_on(medium).expect("the tables are sound");
    let before = volume.medium().snapshot();
    assert!(redo::replay(&volume).is_err());
    assert!(volume.medium().snapshot() == before);
}
