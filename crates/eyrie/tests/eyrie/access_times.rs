//! Tests of the access times that reads set.

use std::path::Path;
use std::time::Duration;

use eyrie::{
    AccessTimes, Credentials, Errno, Files, MediumChoice, Notice, OpenFlags, Posix, PosixExt, SetTime,
    Target, Time, Volume, WatchOptions,
};

use crate::{errno, side_by_side, small_volume};

const OLD: Time = Time::new(1000, 0);

fn relative(files: &Files) -> Files {
    files.with_access_times(AccessTimes::Relative)
}

/// Makes the access time of an object old.
fn age(files: &Files, path: &str) {
    files.utimens(Target::NoFollow(path.into()), SetTime::To(OLD), SetTime::Omit).unwrap();
}

fn accessed(files: &Files, path: &str) -> Time {
    files.symlink_metadata(path).unwrap().accessed
}

/// Makes a file, a directory, and a symbolic link to the file.
fn make(files: &Files) {
    files.create_dir("/dir").unwrap();
    files.write("/dir/file", vec![7; 100_000]).unwrap();
    files.symlink(Path::new("dir/file"), "/link".into()).unwrap();
}

type Read = fn(&Files);

/// The reads that set access times, each with the path of the object that is read.
const READS: [(&str, Read); 8] = [
    ("/dir/file", |files| {
        assert_eq!(files.open_file("/dir/file").unwrap().read_at(&mut [0; 9], 5).unwrap(), 9)
    }),
    ("/dir/file", |files| assert_eq!(files.open_file("/dir/file").unwrap().read_at(&mut [], 0).unwrap(), 0)),
    ("/dir/file", |files| drop(files.read("/dir/file").unwrap())),
    ("/dir/file", |files| drop(files.open_file("/dir/file").unwrap().view(..9, &files.pin()).unwrap())),
    ("/dir/file", |files| {
        let file = files.open_file("/dir/file").unwrap();
        assert_eq!(file.pieces(.., &files.pin()).map(|piece| piece.unwrap().len()).sum::<usize>(), 100_000);
    }),
    ("/dir", |files| assert_eq!(files.read_dir("/dir").unwrap().count(), 1)),
    ("/link", |files| drop(files.read_link("/link").unwrap())),
    ("/link", |files| assert!(files.metadata("/link").unwrap().is_file())),
];

#[test]
fn reads_that_count_set_only_the_access_time() {
    let _tests = side_by_side();
    for medium in [MediumChoice::Dram, MediumChoice::Paged] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("v");
        let volume = Volume::options().size(16 << 20).medium(medium).create(&path).unwrap();
        let quiet = volume.files(Credentials::root());
        make(&quiet);
        let (relative, strict) = (relative(&quiet), quiet.with_access_times(AccessTimes::Always));
        for (path, read) in READS {
            age(&quiet, path);
            let before = quiet.symlink_metadata(path).unwrap();
            read(&quiet);
            assert_eq!(quiet.symlink_metadata(path).unwrap(), before, "{path}");
            read(&relative);
            let after = quiet.symlink_metadata(path).unwrap();
            assert!(after.accessed >= before.changed, "{path}");
            let mut same = after;
            same.accessed = before.accessed;
            assert_eq!(same, before, "{path}");
            // After this pause, the clock of time stamps is later than the change time.
            std::thread::sleep(Duration::from_millis(12));
            read(&relative);
            let seen = accessed(&quiet, path);
            std::thread::sleep(Duration::from_millis(12));
            read(&relative);
            assert_eq!(accessed(&quiet, path), seen, "{path}: a second read changes nothing");
            read(&strict);
            assert!(accessed(&quiet, path) > seen, "{path}");
        }
        let seen = accessed(&quiet, "/dir/file");
        std::thread::sleep(Duration::from_millis(12));
        volume.store("/dir", Credentials::root()).unwrap().get("file").unwrap();
        relative.metadata("/dir/file").unwrap();
        assert_eq!(accessed(&quiet, "/dir/file"), seen, "a key and a stat are no reads");
        drop((quiet, relative, strict));
        volume.close().unwrap();
        let volume = Volume::open(&path).unwrap();
        assert_eq!(accessed(&volume.files(Credentials::root()), "/dir/file"), seen);
        assert!(volume.check().unwrap().findings.is_empty());
    }
}

#[test]
fn only_owners_open_without_access_times() {
    let _tests = side_by_side();
    let (_place, volume) = small_volume();
    let files = relative(&volume.files(Credentials::root()));
    make(&files);
    age(&files, "/dir/file");
    age(&files, "/dir");
    let quietly = OpenFlags::READ | OpenFlags::NOATIME;
    let ada = files.with_credentials(Credentials::new(1000, 1000, &[]));
    for path in ["/dir/file", "/dir"] {
        assert_eq!(errno(ada.open(path.into(), quietly, 0).map(drop)), Some(Errno::PERM));
        ada.close(ada.open(path.into(), quietly | OpenFlags::PATH, 0).unwrap()).unwrap();
    }
    let file = files.options().read(true).no_access_time(true).open("/dir/file").unwrap();
    file.read_at(&mut [0; 9], 0).unwrap();
    file.view(.., &files.pin()).unwrap();
    let dir = files.open("/dir".into(), quietly, 0).unwrap();
    files.list(&dir, 0, &mut |_| true).unwrap();
    files.close(dir).unwrap();
    assert_eq!([accessed(&files, "/dir/file"), accessed(&files, "/dir")], [OLD; 2]);
    ada.read("/dir/file").unwrap();
    assert!(accessed(&files, "/dir/file") > OLD, "a reader who owns nothing sets the access time");
}

#[test]
fn reads_succeed_where_access_times_cannot_be_set() {
    let _tests = side_by_side();
    let (place, volume) = small_volume();
    let files = volume.files(Credentials::root());
    make(&files);
    age(&files, "/dir/file");
    drop(files);
    volume.close().unwrap();
    let volume = Volume::open_read_only(place.path().join("vol")).unwrap();
    let files = relative(&volume.files(Credentials::root()));
    for (_, read) in READS {
        read(&files);
    }
    assert_eq!(accessed(&files, "/dir/file"), OLD);
}

#[test]
fn access_times_are_notices_but_no_events() {
    let _tests = side_by_side();
    let (_place, volume) = small_volume();
    let files = relative(&volume.files(Credentials::root()));
    make(&files);
    let nodes = volume.nodes().with_access_times(AccessTimes::Relative).watching(100);
    let mut watch = files.watch("/dir".into(), WatchOptions::new()).unwrap();
    let id = eyrie::ObjectId::from_raw(files.metadata("/dir/file").unwrap().inode).unwrap();
    age(&files, "/dir/file");
    assert_eq!(nodes.next_notice(Duration::ZERO), Some(Notice::Attributes(id)));
    files.read("/dir/file").unwrap();
    assert_eq!(nodes.next_notice(Duration::ZERO), Some(Notice::Access(id)));
    assert_eq!(nodes.next_notice(Duration::ZERO), None);
    age(&files, "/dir/file");
    nodes.next_notice(Duration::ZERO).unwrap();
    nodes.read(id, 0, &mut [0; 9]).unwrap();
    assert_eq!(accessed(&files, "/dir/file"), OLD, "a front-end decides if a read counts");
    nodes.mark_access(id);
    assert!(accessed(&files, "/dir/file") > OLD);
    assert_eq!(nodes.next_notice(Duration::ZERO), None, "its own changes are known");
    let kinds: Vec<_> = std::iter::from_fn(|| watch.poll()).map(|event| event.kind).collect();
    assert_eq!(kinds, [eyrie::WatchEventKind::AttributesChanged; 2], "only `age` makes events");
}
