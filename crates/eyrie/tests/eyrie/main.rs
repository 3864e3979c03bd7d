//! Tests of volumes through the interfaces of this crate.

#![expect(clippy::unwrap_used, reason = "this is all tests")]

mod access_times;
mod bad_input;
mod birth;
mod checksums;
mod clones;
mod dropped;
mod flags;
mod listings;
mod lives;
mod nodes;
mod opens;
mod quotas;
mod read_only;
mod refusals;
mod short_writes;
mod space;
mod views;
mod watches;

use std::fs;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use eyrie::{Errno, Volume};

/// A lock that every test holds. Pins belong to the process, and a pin of one test delays the reuse of memory
/// in the volume of another test. Some tests need the last free page of a volume. Therefore the tests of
/// `bad_input`, and some other tests that fill a volume, run alone. The others run side by side.
static PINS: RwLock<()> = RwLock::new(());

/// Waits until no other test runs. No other test runs while the guard lives.
fn alone() -> RwLockWriteGuard<'static, ()> {
    PINS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no test that must run alone is running. No such test runs while the guard lives.
fn side_by_side() -> RwLockReadGuard<'static, ()> {
    PINS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a volume of 8 MiB with the name `vol` in a new directory, in shared memory if the host has it.
fn small_volume() -> (tempfile::TempDir, Volume) {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let volume = Volume::create(place.path().join("vol"), 8 << 20).unwrap();
    (place, volume)
}

fn errno<T>(result: eyrie::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// Opens a copy of the directory of a volume. The copy is the volume that a death of the process would leave
/// now. On a disk, it is the volume that a power failure would leave now.
fn copy_of_now(volume: &Path, place: &Path) -> Volume {
    let copy = place.join("copy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(volume).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    Volume::open(&copy).unwrap()
}

#[test]
fn every_test_holds_the_lock() {
    let _tests = side_by_side();
    let mut folders = vec![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/eyrie").into()];
    let (mut count, mut free) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let code = std::fs::read_to_string(&path).unwrap();
            for test in code.split("#[test]\n").skip(1) {
                count += 1;
                let body = test.split("\n}").next().unwrap();
                if !["side_by_side()", "alone()"].iter().any(|lock| body.contains(lock)) {
                    free.push(format!("{}: {}", path.display(), test.lines().next().unwrap()));
                }
            }
        }
    }
    assert!(count > 30, "{count} tests");
    assert!(free.is_empty(), "{free:#?}");
}
