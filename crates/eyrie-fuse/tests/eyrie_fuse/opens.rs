//! Tests of the flags of opens through a mount.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use eyrie::{Credentials, MediumChoice, PagedOptions, PosixExt, Volume};
use rustix::fs::{Mode, OFlags};

use super::{Fixture, fixture};

/// Returns the bytes of `/log` as they would be after a failure of power now.
fn after_power_failure(volume: &Path, copy: &Path) -> Vec<u8> {
    let _ = fs::remove_dir_all(copy);
    fs::create_dir(copy).unwrap();
    for entry in fs::read_dir(volume).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    Volume::open(copy).unwrap().files(Credentials::root()).read("/log").unwrap()
}

#[test]
fn synchronous_writes_through_a_mount_are_durable() {
    let Some(Fixture { place, point, .. }) = fixture() else { return };
    let path = place.path().join("disk");
    let never = PagedOptions::new(64 << 20, Duration::from_secs(3600));
    let options = Volume::options().size(8 << 20).medium(MediumChoice::Paged).paged(never);
    let volume = options.create(&path).unwrap();
    volume.files(Credentials::root()).write("/log", "").unwrap();
    volume.sync().unwrap();
    for options in ["", "writeback_cache"] {
        let mut mount = eyrie_fuse::mount(&volume, &point, &options.parse().unwrap()).unwrap();
        let mut expected = fs::read(point.join("log")).unwrap();
        for flags in [OFlags::SYNC, OFlags::DSYNC, OFlags::DSYNC | OFlags::DIRECT] {
            let flags = flags.bits() as i32;
            let mut log =
                OpenOptions::new().append(true).custom_flags(flags).open(point.join("log")).unwrap();
            log.write_all(b"durable ").unwrap();
            expected.extend(b"durable ");
            assert_eq!(after_power_failure(&path, &place.path().join("copy")), expected, "{options}");
        }
        mount.unmount().unwrap();
    }
}

#[test]
fn handles_of_paths_work_through_a_mount() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    fs::create_dir(fixture.point.join("nest")).unwrap();
    fs::write(fixture.point.join("nest/egg"), "blue").unwrap();
    let open = |path: &str| rustix::fs::open(fixture.point.join(path), OFlags::PATH, Mode::empty()).unwrap();
    let (nest, egg) = (open("nest"), open("nest/egg"));
    assert_eq!(rustix::fs::statat(&nest, "egg", rustix::fs::AtFlags::empty()).unwrap().st_size, 4);
    assert_eq!(rustix::fs::fstat(&egg).unwrap().st_size, 4);
    assert_eq!(rustix::io::pread(&egg, &mut [0; 4], 0), Err(rustix::io::Errno::BADF));
    rustix::fs::unlinkat(&nest, "egg", rustix::fs::AtFlags::empty()).unwrap();
    drop((nest, egg));
    mount.unmount().unwrap();
}
