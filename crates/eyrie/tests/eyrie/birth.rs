//! Tests of the times of birth, in a volume and on the host.

use std::time::{Duration, SystemTime};

use eyrie::{Credentials, Errno, Host, OpenFlags, PosixBirth, PosixExt, SetTime, Target, Time, Volume};

use crate::errno;

/// Returns the present time, in seconds.
fn now() -> i64 {
    Time::from(SystemTime::now()).seconds
}

/// Makes objects, changes them, and checks that their times of birth stay.
fn births_stay<P: PosixBirth + Clone>(fs: P) {
    let born = |path: &str| fs.created(Target::NoFollow(path.into())).unwrap();
    // The clock of file times may lag behind the system's clock by one tick. It may also be ahead by up to a
    // second, if a test beside this one has seen a file with such a time.
    let before = now() - 1;
    fs.write("/egg", "blue").unwrap();
    fs.create_dir("/nest").unwrap();
    fs.symlink("egg".as_ref(), "/link".into()).unwrap();
    let made = ["/egg", "/nest", "/link"].map(born);
    assert!(made.iter().all(|time| (before..=now() + 1).contains(&time.seconds)), "{made:?}");
    // This loop waits until every new stamp is later than these.
    let latest = made.iter().max().unwrap();
    while Time::from(SystemTime::now() - Duration::from_millis(30)) <= *latest {
        std::thread::sleep(Duration::from_millis(1));
    }

    let file = fs.options().write(true).open("/egg").unwrap();
    file.write_all_at(b"white", 0).unwrap();
    fs.utimens("/egg".into(), SetTime::To(Time::new(1, 0)), SetTime::To(Time::new(2, 0))).unwrap();
    fs.chmod("/egg".into(), 0o600).unwrap();
    fs.rename("/egg", "/nest/egg").unwrap();
    fs.hard_link("/nest/egg", "/egg").unwrap();
    assert_eq!(["/egg", "/nest", "/link"].map(born), made);
    assert_eq!(fs.created("/link".into()).unwrap(), made[0]); // the link leads to the file
    assert_eq!(Time::from(file.created().unwrap()), made[0]);
    assert_eq!(fs.dir("/nest").unwrap().created("/egg".into()).unwrap(), made[0]);
    let path = fs.open("/nest".into(), OpenFlags::PATH, 0).unwrap();
    assert_eq!(fs.created(Target::Open(&path)).unwrap(), made[1]);
    fs.close(path).unwrap();

    // Another object under the same name is younger.
    fs.remove_file("/egg").unwrap();
    assert_eq!(errno(fs.created("/egg".into())), Some(Errno::NOENT));
    fs.write("/egg", "red").unwrap();
    assert!(born("/egg") > made[0]);
}

#[test]
fn time_of_birth_stays_in_a_volume_and_on_the_host() {
    let _tests = crate::side_by_side();
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = Volume::create(place.path().join("volume"), 64 << 20).unwrap();
    births_stay(volume.files(Credentials::root()));
    std::fs::create_dir(place.path().join("host")).unwrap();
    births_stay(Host::new(place.path().join("host")).unwrap());
}

#[test]
fn host_without_times_of_birth_says_so() {
    let _tests = crate::side_by_side();
    // procfs keeps no such times.
    let host = Host::new("/proc").unwrap();
    assert_eq!(errno(host.created("/version".into())), Some(Errno::OPNOTSUPP));
}
