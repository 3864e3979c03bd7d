//! Tests of opening, measuring and closing volumes.

use std::fs;
use std::path::PathBuf;

use eyrie::{
    Batch, Canceller, CloseError, Credentials, Dir, DirEntry, Errno, Error, File, Files, Host, HostStore,
    KeyRange, Ladder, MediumChoice, OpenOptions, PosixExt, ReadDir, Report, Scan, ScanValues, Store, Volume,
    VolumeEngine, VolumeNodes, VolumeOptions, Walk, WalkEntry, WalkStep, Watch, WatchStopper,
};

use crate::side_by_side;

const MIB: u64 = 1 << 20;

/// A directory for volumes, and the path of one volume in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("vol");
    (place, path)
}

fn options(medium: MediumChoice) -> VolumeOptions {
    Volume::options().size(8 * MIB).medium(medium)
}

fn root(volume: &Volume) -> Files {
    volume.files(Credentials::root())
}

#[test]
fn close_in_use_gives_the_volume_back() {
    let _side_by_side = side_by_side();
    for medium in [MediumChoice::Dram, MediumChoice::Paged] {
        let (_place, path) = place();
        let volume = options(medium).create(&path).unwrap();
        let file = root(&volume).create_file("/file").unwrap();
        let error = volume.close().expect_err("a file is open");
        assert_eq!(error.errno(), Errno::BUSY);
        assert_eq!(error.to_string(), error.error().to_string());
        let volume = error.into_volume();
        file.write_all_at(b"after the attempt", 0).unwrap();
        file.close().unwrap();
        volume.close().unwrap();
        let volume = Volume::open(&path).unwrap();
        assert!(!volume.information().recovered, "{medium:?}");
        assert_eq!(root(&volume).read("/file").unwrap(), b"after the attempt");
    }
}

#[test]
fn close_that_fails_can_be_tried_again() {
    let _side_by_side = side_by_side();
    let (_place, path) = place();
    let volume = options(MediumChoice::Dram).create(&path).unwrap();
    root(&volume).write("/file", "x").unwrap();
    let segment = volume.information().segments[0].0.clone();
    fs::File::options().write(true).open(segment).unwrap().set_len(4096).unwrap();
    assert_eq!(root(&volume).read("/file").map_err(|error| error.errno()), Err(Errno::IO));
    let error = volume.close().expect_err("the file of the volume is too short");
    let again = error.into_volume().close().expect_err("it is still too short");
    assert_eq!(std::io::Error::from(again).raw_os_error(), Some(Errno::IO.raw_os_error()));
    let unlocked = Volume::open(&path).expect_err("no superblock is left");
    assert_eq!(unlocked.errno(), Errno::INVAL, "a drop of the error releases the volume");
}

#[test]
fn open_or_create_keeps_what_is_there() {
    let _side_by_side = side_by_side();
    let (place, path) = place();
    let make = || options(MediumChoice::Dram).overwrite(true).open_or_create(&path);
    root(&make().unwrap()).write("/file", "kept").unwrap();
    assert_eq!(root(&make().unwrap()).read("/file").unwrap(), b"kept");
    let smaller = Volume::open_or_create(&path, MIB).unwrap();
    assert_eq!(smaller.information().size_bytes, 8 * MIB, "an existing volume keeps its size");
    assert_eq!(make().err().map(|error| error.errno()), Some(Errno::BUSY));
    drop(smaller);

    let empty = place.path().join("empty");
    fs::create_dir(&empty).unwrap();
    Volume::open_or_create(&empty, MIB).unwrap().close().unwrap();
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter"), "dear").unwrap();
    let refused = Volume::open_or_create(&other, MIB).expect_err("a directory with other contents");
    assert_eq!(refused.errno(), Errno::INVAL);
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1, "nothing is added");
    let deep = place.path().join("missing/vol");
    assert_eq!(Volume::open_or_create(&deep, MIB).err().map(|error| error.errno()), Some(Errno::NOENT));
}

#[test]
fn root_directory_gets_only_permission_bits() {
    let _side_by_side = side_by_side();
    let (_place, path) = place();
    // The host's `st_mode` of a directory also has the kind.
    let volume = options(MediumChoice::Dram).owner(0o41750, 1, 2).create(&path).unwrap();
    let stat = root(&volume).metadata("/").unwrap();
    assert_eq!((stat.mode, stat.uid, stat.gid), (0o1750, 1, 2));
    assert_eq!(volume.check().unwrap().findings, [""; 0]);
}

#[test]
fn stats_count_objects_and_work_of_the_disk() {
    let _side_by_side = side_by_side();
    let (_place, path) = place();
    let volume = options(MediumChoice::Paged).create(&path).unwrap();
    let before = volume.stats();
    root(&volume).write("/file", vec![1; 1 << 20]).unwrap();
    let changed = volume.stats();
    assert_eq!(changed.objects, before.objects + 1);
    assert!(changed.used_bytes >= before.used_bytes + MIB);
    assert_eq!(changed.used_bytes + changed.free_bytes, before.used_bytes + before.free_bytes);
    volume.sync().unwrap();
    let synced = volume.stats().disk.unwrap();
    let start = before.disk.unwrap();
    assert!(synced.drains > start.drains);
    assert!(synced.written_bytes >= start.written_bytes + MIB);
    assert!(synced.resident_bytes >= MIB);
    assert_eq!(synced.dirty_bytes, 0);
    volume.close().unwrap();

    let volume = Volume::open(&path).unwrap();
    let before = volume.stats().disk.unwrap();
    root(&volume).read("/file").unwrap();
    assert!(volume.stats().disk.unwrap().read_bytes >= before.read_bytes + MIB);

    let (_place, path) = place();
    assert_eq!(options(MediumChoice::Dram).create(&path).unwrap().stats().disk, None);
}

/// The types of open files, listings, scans and batches fit into structures, and can move to other threads.
#[test]
fn types_own_what_they_need() {
    fn owned<T: Send + Sync + 'static>() {}
    let _tests = side_by_side();
    owned::<(Volume, Files, Store, VolumeNodes)>();
    owned::<(File<Files>, Dir<Files>, OpenOptions<Files>, ReadDir<Files>, DirEntry)>();
    owned::<(Walk<Files>, WalkEntry<Files>, WalkStep<Files>, Ladder<Files>)>();
    owned::<(Scan<VolumeEngine>, ScanValues<VolumeEngine>, Batch, KeyRange)>();
    owned::<(Watch<VolumeEngine>, WatchStopper<VolumeEngine>, Canceller)>();
    owned::<(Host, HostStore, Credentials, Error, CloseError, Report)>();
}
