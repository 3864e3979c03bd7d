//! Tests of the flags of opens through a mount.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use eyrie::{Credentials, Kind, MediumChoice, PagedOptions, PosixExt, Volume};
use rustix::fs::{FileType, IFlags, Mode, OFlags};

use super::{Fixture, errno, fixture};

const EPERM: i32 = rustix::io::Errno::PERM.raw_os_error();

/// Returns the bytes of `/log` as they would be after a power failure at this moment.
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
        crate::unmount_idle(&mut mount);
    }
}

#[test]
fn pipes_and_sockets_in_a_mount_carry_bytes() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    let pipe = fixture.point.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&pipe, "through a pipe").unwrap());
        assert_eq!(fs::read(&pipe).unwrap(), b"through a pipe");
    });

    let address = fixture.point.join("socket");
    let listener = UnixListener::bind(&address).unwrap();
    let mut client = UnixStream::connect(&address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"through a socket").unwrap();
    drop(client);
    let mut bytes = Vec::new();
    server.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"through a socket");
    drop((server, listener));
    crate::unmount_idle(&mut mount);
    let kind = |path: &str| fixture.files.symlink_metadata(path).unwrap().kind;
    assert_eq!([kind("/pipe"), kind("/socket")], [Kind::Fifo, Kind::Socket]);
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
    crate::unmount_idle(&mut mount);
}

#[test]
fn flags_are_set_and_obeyed_through_a_mount() {
    let Some(fixture) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: only root sets flags");
        return;
    }
    let mut mount = fixture.mount();
    let at = |name: &str| fixture.point.join(name);
    fs::create_dir(at("nest")).unwrap();
    for name in ["fixed", "log", "nest/egg"] {
        fs::write(at(name), "blue").unwrap();
    }
    let set = |name: &str, flags| {
        let file = fs::File::open(at(name)).unwrap();
        rustix::fs::ioctl_setflags(&file, flags).map(|()| rustix::fs::ioctl_getflags(&file).unwrap())
    };
    for (name, flags) in [("fixed", IFlags::IMMUTABLE), ("log", IFlags::APPEND), ("nest", IFlags::IMMUTABLE)]
    {
        assert_eq!(set(name, flags), Ok(flags));
    }
    assert_eq!(set("fixed", IFlags::NODUMP), Err(rustix::io::Errno::OPNOTSUPP));

    let write = |name: &str| {
        let file = OpenOptions::new().write(true).open(at(name)).unwrap();
        errno(file.write_at(b"x", 0))
    };
    let append = |name: &str| {
        let mut file = OpenOptions::new().append(true).open(at(name)).unwrap();
        errno(file.write_all(b" sky"))
    };
    assert_eq!((write("fixed"), append("fixed")), (Some(EPERM), Some(EPERM)));
    assert_eq!((write("log"), append("log")), (Some(EPERM), None));
    assert_eq!(fs::read(at("log")).unwrap(), b"blue sky");
    for name in ["fixed", "log"] {
        assert_eq!(errno(fs::write(at(name), "")), Some(EPERM), "an open that sets the size");
        assert_eq!(errno(fs::remove_file(at(name))), Some(EPERM));
        assert_eq!(errno(fs::rename(at(name), at("other"))), Some(EPERM));
        assert_eq!(errno(fs::hard_link(at(name), at("other"))), Some(EPERM));
        assert_eq!(errno(fs::set_permissions(at(name), fs::Permissions::from_mode(0o600))), Some(EPERM));
    }
    assert_eq!(errno(fs::remove_file(at("nest/egg"))), Some(EPERM));
    assert_eq!(errno(fs::write(at("nest/new"), "")), Some(EPERM));
    for name in ["fixed", "log", "nest"] {
        assert_eq!(set(name, IFlags::empty()), Ok(IFlags::empty()));
    }
    fs::remove_dir_all(at("nest")).unwrap();
    fs::remove_file(at("fixed")).unwrap();
    crate::unmount_idle(&mut mount);
}

#[test]
fn cached_appends_reach_an_append_only_file() {
    let Some(fixture) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: only root sets flags");
        return;
    }
    let mut mount = fixture.mount_with("writeback_cache");
    let path = fixture.point.join("log");
    let set = |flags| rustix::fs::ioctl_setflags(fs::File::open(&path).unwrap(), flags).unwrap();
    fs::write(&path, "blue").unwrap();
    set(IFlags::APPEND);
    for text in [" sky", " sea"] {
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        log.write_all(text.as_bytes()).unwrap();
        log.sync_all().unwrap();
    }
    assert_eq!(fixture.files.read("/log").unwrap(), b"blue sky sea");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let changed = file.write_at(b"B", 0).and_then(|_| file.sync_all());
    assert_eq!(errno(changed), Some(EPERM));
    assert_eq!(fixture.files.read("/log").unwrap(), b"blue sky sea");
    drop(file);
    set(IFlags::empty());
    crate::unmount_idle(&mut mount);
}
