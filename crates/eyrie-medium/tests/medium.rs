//! Tests of a medium on the host: bounds, ordering, truncated files, forked children, and memory requested
//! ahead of need.

#![expect(clippy::unwrap_used, reason = "this is all tests")]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use eyrie_faults::in_forked_child;
use eyrie_medium::{AHEAD_BYTES, Addr, Fault, Medium, MediumKind, Ordered};

const BYTES: u64 = 64 << 10;
const GROWING: u64 = 128 << 20;

fn on_host() -> (Medium, std::fs::File) {
    let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
    file.set_len(BYTES).unwrap();
    (Medium::dram(vec![(file.try_clone().unwrap(), BYTES)]).unwrap(), file)
}

fn set(medium: &Medium, addr: Addr, value: u64) {
    let published = medium.publish(addr, value, Ordered::nothing()).unwrap();
    let _ = medium.settle(published);
}

#[test]
fn every_access_is_checked_against_the_mapping() {
    let (medium, _file) = on_host();
    assert_eq!(medium.kind(), MediumKind::Dram);
    let end = Addr::from_raw(BYTES);
    let outside = |result: Result<(), Fault>| assert!(matches!(result, Err(Fault::OutOfBounds { .. })));
    for addr in [end, Addr::from_raw(BYTES - 7), Addr::from_raw(1 << 40), Addr::from_raw(u64::MAX)] {
        outside(medium.load(addr).map(drop));
        outside(medium.read(addr, &mut [0; 8]));
        outside(medium.write(addr, &[0; 8]).map(drop));
        outside(medium.write_words(addr, [0].into_iter()).map(drop));
        outside(medium.zero(addr, 8).map(drop));
        outside(medium.copy(Addr::from_raw(0), addr, 8).map(drop));
        outside(medium.copy(addr, Addr::from_raw(0), 8).map(drop));
        outside(medium.publish(addr, 1, Ordered::nothing()).map(drop));
        outside(medium.provision(addr, 4096));
    }
    outside(medium.zero(Addr::from_raw(8), u64::MAX).map(drop));
    assert!(matches!(medium.load(Addr::from_raw(12)), Err(Fault::Misaligned { .. })));
    assert!(matches!(
        medium.publish(Addr::from_raw(4), 1, Ordered::nothing()),
        Err(Fault::Misaligned { .. })
    ));
    let unaligned = medium.write_words(Addr::from_raw(4), [0].into_iter()).map(drop);
    assert!(matches!(unaligned, Err(Fault::Misaligned { .. })));
    outside(medium.write_words(Addr::from_raw(BYTES - 8), [7, 7].into_iter()).map(drop));
    let mut last = [1; 8];
    medium.read(Addr::from_raw(BYTES - 8), &mut last).unwrap();
    assert_eq!(last, [0; 8], "a store that does not fit stores nothing");
    drop(medium.write_words(Addr::from_raw(BYTES - 16), [5, 6].into_iter()).unwrap());
    assert_eq!(medium.words(Addr::from_raw(BYTES - 16), 2).unwrap().load_all(), [5, 6]);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "publish while a write of this thread is not ordered")]
fn publish_over_an_open_write_panics() {
    let medium = Medium::memory(BYTES).unwrap();
    let _dirty = medium.write_word(Addr::from_raw(64), 1).unwrap();
    let _ = medium.publish(Addr::from_raw(0), 64, Ordered::nothing());
}

#[test]
fn publish_apart_ignores_open_writes() {
    let medium = Medium::memory(BYTES).unwrap();
    let dirty = medium.write_word(Addr::from_raw(64), 1).unwrap();
    let apart = medium.publish_apart(Addr::from_raw(128), 2, Ordered::nothing()).unwrap();
    let _ = medium.settle(apart);
    let published = medium.publish(Addr::from_raw(0), 64, medium.barrier(dirty)).unwrap();
    let _ = medium.settle(published);
    assert_eq!(medium.load(Addr::from_raw(128)).unwrap(), 2);
}

#[test]
fn truncated_file_fails_its_medium_only() {
    let (medium, file) = on_host();
    let (other, _file) = on_host();
    set(&medium, Addr::from_raw(8192), 7);
    set(&other, Addr::from_raw(8192), 7);
    file.set_len(4096).unwrap();
    medium.check().unwrap();
    assert_eq!(medium.load(Addr::from_raw(8192)).unwrap(), 0, "the program goes on with zeros");
    assert!(matches!(medium.check(), Err(Fault::Failed)));
    other.check().unwrap();
    assert_eq!(other.load(Addr::from_raw(8192)).unwrap(), 7);
}

#[test]
fn forked_child_gets_an_error() {
    let (medium, _file) = on_host();
    assert!(in_forked_child(|| matches!(medium.check(), Err(Fault::Forked))).unwrap());
    medium.check().unwrap();
    assert!(!in_forked_child(|| false).unwrap());
}

/// Makes a medium of [`GROWING`] bytes, and requests all of them ahead of need.
fn growing() -> (Medium, std::fs::File) {
    let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
    file.set_len(GROWING).unwrap();
    let medium = Medium::dram(vec![(file.try_clone().unwrap(), GROWING)]).unwrap();
    for offset in (0..GROWING).step_by(AHEAD_BYTES as usize) {
        assert!(medium.provide_ahead(Addr::from_raw(offset)));
    }
    (medium, file)
}

#[test]
fn each_range_requested_ahead_is_reported() {
    let (medium, file) = growing();
    medium.recall_ahead();
    let reports: BTreeMap<_, _> = std::iter::from_fn(|| medium.provided_ahead()).collect();
    assert_eq!(reports.len() as u64, GROWING / AHEAD_BYTES);
    let provided = reports.values().filter(|&&is_there| is_there).count() as u64 * AHEAD_BYTES;
    assert!(file.metadata().unwrap().blocks() * 512 >= provided);
    for outside in [GROWING, GROWING - 4096, 1, 1 << 40] {
        assert!(!medium.provide_ahead(Addr::from_raw(outside)));
    }
}

#[test]
fn forked_child_drops_a_medium_during_provisioning() {
    for _ in 0..5 {
        let (medium, _file) = growing();
        let child = in_forked_child(|| {
            medium.recall_ahead();
            let is_nothing = medium.provided_ahead().is_none() && !medium.provide_ahead(Addr::from_raw(0));
            drop(medium);
            is_nothing
        });
        assert!(child.unwrap());
    }
}
