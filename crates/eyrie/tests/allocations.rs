//! Tests that frequent calls allocate no memory after a thread has filled its caches.
//!
//! These tests are a binary of their own, because the crate that counts allocations replaces the allocator of
//! the whole process. The other tests must use the same allocator as programs do.

#![expect(clippy::unwrap_used, reason = "this is all tests")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use allocation_counter::measure;
use eyrie::{Credentials, OpenFlags, Posix, PosixExt, RenameMode, Target, Volume, WatchOptions, XattrMode};

/// Number of calls that fill the caches of the thread.
const WARMING: usize = 5000;
/// Number of calls whose allocations are counted.
const COUNTED: usize = 500;

/// Waits until no other test uses a volume. No other test uses a volume while the guard lives. Otherwise a
/// pin of another test would delay the reuse of freed memory.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn volume() -> (tempfile::TempDir, Volume) {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let options = Volume::options().size(32 << 20).group_size(1 << 20);
    let volume = options.create(place.path().join("vol")).unwrap();
    (place, volume)
}

#[track_caller]
fn assert_allocates_nothing(what: &str, bytes: usize, call: impl FnMut()) {
    assert_allocates(0, what, bytes, call);
}

/// Asserts that each call makes `expected` allocations.
#[track_caller]
fn assert_allocates(expected: usize, what: &str, bytes: usize, mut call: impl FnMut()) {
    (0..WARMING).for_each(|_| call());
    let counted = measure(|| (0..COUNTED).for_each(|_| call())).count_total;
    let expected = (expected * COUNTED) as u64;
    assert_eq!(counted, expected, "{what} ({bytes} bytes): allocations in {COUNTED} calls");
}

#[test]
fn allocation_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(vec![0; 10]))).count_total, 1);
}

#[test]
fn calls_on_files_allocate_nothing() {
    let _alone = alone();
    let (_place, volume) = volume();
    let fs = volume.files(Credentials::root());
    fs.create_dir_all("/a/deep/directory").unwrap();
    let (path, flags) = ("/a/deep/directory/file", OpenFlags::READ | OpenFlags::WRITE);
    // A file of 16 KiB or less is one extent, which an overwrite of several words copies whole. The larger
    // files are trees of one level and of two levels.
    for bytes in [100, 4096, 16_384, 100_000, 5_000_000] {
        fs.write(path, vec![1; bytes]).unwrap();
        let handle = fs.open(path.into(), flags, 0).unwrap();
        let mut block = vec![2; bytes.min(4096)];
        let size = bytes as u64;
        assert_allocates_nothing("stat", bytes, || assert_eq!(fs.stat(path.into()).unwrap().size, size));
        assert_allocates_nothing("fstat", bytes, || {
            assert_eq!(fs.stat(Target::Open(&handle)).unwrap().size, size)
        });
        assert_allocates_nothing("open and close", bytes, || {
            fs.close(fs.open(path.into(), flags, 0).unwrap()).unwrap();
        });
        assert_allocates_nothing("read", bytes, || {
            assert_eq!(fs.read_at(&handle, &mut block, 0).unwrap(), block.len());
        });
        assert_allocates_nothing("write in place", bytes, || {
            assert_eq!(fs.write_at(&handle, b"in place", 8).unwrap(), 8);
        });
        assert_allocates_nothing("overwrite", bytes, || {
            assert_eq!(fs.write_at(&handle, &block, 0).unwrap(), block.len());
        });
        fs.close(handle).unwrap();
        assert_allocates_nothing("metadata", bytes, || assert_eq!(fs.metadata(path).unwrap().size, size));
        assert_allocates_nothing("whole write", bytes, || fs.write("/a/small", &block).unwrap());
        // The only allocation is that of the returned vector.
        assert_allocates(1, "whole read", bytes, || assert_eq!(fs.read("/a/small").unwrap(), block));
    }
    assert_allocates_nothing("create and unlink", 0, || {
        fs.close(fs.open("/a/new".into(), flags | OpenFlags::CREATE, 0o600).unwrap()).unwrap();
        fs.unlink("/a/new".into()).unwrap();
    });
    assert_allocates_nothing("rename", 0, || {
        fs.rename_with(path.into(), "/a/file".into(), RenameMode::Replace).unwrap();
        fs.rename_with("/a/file".into(), path.into(), RenameMode::Replace).unwrap();
    });
}

#[test]
fn reads_of_xattrs_allocate_nothing() {
    let _alone = alone();
    let (_place, volume) = volume();
    let fs = volume.files(Credentials::root());
    fs.write("/file", "").unwrap();
    let names = [64, 65, 254, 255].map(|bytes| format!("user.{}", "n".repeat(bytes - 5)));
    for name in &names {
        fs.setxattr("/file".into(), name.as_bytes(), b"value", XattrMode::Set).unwrap();
    }
    let mut out = [0; 1024];
    for name in &names {
        assert_allocates_nothing("getxattr", name.len(), || {
            assert_eq!(fs.getxattr("/file".into(), name.as_bytes(), &mut out).unwrap(), 5);
        });
    }
    assert_allocates_nothing("listxattr", out.len(), || {
        assert_eq!(fs.listxattr("/file".into(), &mut out).unwrap(), 64 + 65 + 254 + 255 + 4);
    });
}

#[test]
fn calls_on_stores_allocate_nothing() {
    let _alone = alone();
    let (_place, volume) = volume();
    let store = volume.store("/", Credentials::root()).unwrap();
    for bytes in [0, 100, 4096, 100_000] {
        let value = vec![3; bytes];
        store.put("key", &value).unwrap();
        let mut out = Vec::new();
        assert_allocates_nothing("get into a buffer", bytes, || {
            assert!(store.get_into("key", &mut out).unwrap());
        });
        assert_eq!(out, value);
        assert_allocates_nothing("get in place", bytes, || {
            let pin = store.pin();
            assert_eq!(store.get_in_place("key", &pin).unwrap().unwrap().len(), bytes);
        });
        assert_allocates_nothing("put", bytes, || assert!(!store.put("key", &value).unwrap()));
        assert_allocates_nothing("erase and put", bytes, || {
            assert!(store.erase("key").unwrap());
            assert!(store.put("key", &value).unwrap());
        });
    }
}

#[test]
fn changes_pay_for_a_watch_only_while_it_lives() {
    let _alone = alone();
    let (_place, volume) = volume();
    let fs = volume.files(Credentials::root());
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let create_and_unlink = || {
        fs.close(fs.open("/new".into(), flags, 0o600).unwrap()).unwrap();
        fs.unlink("/new".into()).unwrap();
    };
    let watch = fs.watch("/".into(), WatchOptions::new()).unwrap();
    let stopper = watch.stopper();
    assert!(measure(create_and_unlink).count_total >= 2, "the names of two notices");
    drop(watch);
    assert_allocates_nothing("create and unlink", 0, create_and_unlink);
    stopper.stop();
}
