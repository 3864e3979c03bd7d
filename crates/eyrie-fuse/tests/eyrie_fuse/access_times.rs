//! Tests of the access times that reads through a mount set.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::time::{Duration, SystemTime};

use eyrie::{AccessTimes, Posix, PosixExt, SetTime};
use rustix::fs::OFlags;

use super::{Fixture, eventually, fixture};

/// Makes `/dir/file` and a link to it, with old access times.
fn make(fixture: &Fixture) {
    fixture.files.create_dir("/dir").unwrap();
    fixture.files.write("/dir/file", vec![7; 100_000]).unwrap();
    fixture.files.symlink("dir/file".as_ref(), "/link".into()).unwrap();
    for path in ["/dir", "/dir/file"] {
        fixture.files.set_times(path, SystemTime::UNIX_EPOCH.into(), SetTime::Omit).unwrap();
    }
}

#[test]
fn mount_option_decides_about_access_times() {
    let Some(fixture) = fixture() else { return };
    make(&fixture);
    let shows = |option: &str| {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let point = fixture.point.to_str().unwrap();
        mounts.lines().find(|line| line.contains(point)).unwrap().contains(option)
    };
    let at = |name: &str| fixture.point.join(name);
    let accessed = |name: &str| fs::symlink_metadata(at(name)).unwrap().atime();
    let mut mount = fixture.mount();
    assert!(shows("noatime"));
    fs::read(at("dir/file")).unwrap();
    assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 1);
    assert_eq!([accessed("dir/file"), accessed("dir")], [0, 0]);
    crate::unmount_idle(&mut mount);
    let mut mount = fixture.mount_with("ro,strictatime");
    fs::read(at("dir/file")).unwrap();
    assert_eq!(accessed("dir/file"), 0);
    crate::unmount_idle(&mut mount);
    let mut mount = fixture.mount_with("relatime,nodiratime");
    assert!(!shows("noatime"));
    assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 1);
    assert_eq!(accessed("dir"), 0);
    crate::unmount_idle(&mut mount);

    let mut mount = fixture.mount_with("relatime");
    let quiet = OFlags::NOATIME.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(quiet).open(at("dir/file")).unwrap();
    file.read_exact_at(&mut [0; 100], 0).unwrap();
    assert_eq!(accessed("dir/file"), 0);
    let changed = fs::metadata(at("dir/file")).unwrap().ctime_nsec();
    File::open(at("dir/file")).unwrap().read_exact_at(&mut [0; 100], 80_000).unwrap();
    assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 1);
    assert!(accessed("dir/file") > 0 && accessed("dir") > 0, "the kernel asks for the new times");
    assert_eq!(fs::metadata(at("dir/file")).unwrap().ctime_nsec(), changed);
    symlink("dir", at("new")).unwrap();
    let made = fs::symlink_metadata(at("new")).unwrap();
    std::thread::sleep(Duration::from_millis(12));
    fs::read_link(at("new")).unwrap();
    let read = fs::symlink_metadata(at("new")).unwrap();
    assert!((read.atime(), read.atime_nsec()) > (made.atime(), made.atime_nsec()));
    drop(file);
    crate::unmount_idle(&mut mount);
    assert!(fixture.volume.check().unwrap().findings.is_empty());
}

#[test]
fn access_times_set_beside_the_mount_become_visible() {
    let Some(fixture) = fixture() else { return };
    make(&fixture);
    let _mount = fixture.mount();
    let path = fixture.point.join("dir/file");
    assert_eq!(fs::metadata(&path).unwrap().atime(), 0);
    fixture.files.with_access_times(AccessTimes::Relative).read("/dir/file").unwrap();
    eventually("the access time", || fs::metadata(&path).unwrap().atime() > 0);
}
