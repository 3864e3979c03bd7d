//! Tests of volumes that are opened read-only.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use eyrie::{
    Batch, Condition, Credentials, Errno, FallocateMode, Files, Kind, MediumChoice, OpenFlags, PagedOptions,
    Posix, PosixExt, RenameMode, Result, SetTime, Target, Volume, XattrMode,
};
use rustix::fs::{Gid, Uid};

use crate::side_by_side;

const MEDIA: [MediumChoice; 2] = [MediumChoice::Dram, MediumChoice::Paged];
/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

fn root(volume: &Volume) -> Files {
    volume.files(Credentials::root())
}

/// Makes a volume with some files, and leaves it open.
fn make(path: &Path, medium: MediumChoice) -> Volume {
    let volume = Volume::options().size(16 << 20).medium(medium).create(path).unwrap();
    let files = root(&volume);
    files.create_dir("/dir").unwrap();
    files.write("/dir/file", vec![7; 100_000]).unwrap();
    files.symlink(Path::new("dir/file"), "/link".into()).unwrap();
    let name = b"user.colour";
    files.setxattr(Target::Follow("/dir/file".into()), name, b"blue", XattrMode::Create).unwrap();
    volume.store("/dir", Credentials::root()).unwrap().put("key", "value").unwrap();
    volume
}

/// Asserts that the volume has the files of [`make`].
fn assert_made(volume: &Volume) {
    let files = root(volume);
    assert_eq!(files.read("/link").unwrap(), vec![7; 100_000]);
    assert_eq!(files.xattr("/dir/file", "user.colour").unwrap(), b"blue");
    assert_eq!(files.read_dir("/dir").unwrap().count(), 2);
    let store = volume.store("/dir", Credentials::root()).unwrap();
    assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// The contents, times and sizes of the host's files of a volume, by path. Any change of a file shows here.
type HostState = BTreeMap<PathBuf, (Vec<u8>, [i64; 6])>;

fn host_state(volume: &Path) -> HostState {
    let files = fs::read_dir(volume).unwrap().map(|entry| entry.unwrap().path());
    let state = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        let (modified, changed) = (found.mtime(), found.ctime());
        [
            modified,
            found.mtime_nsec(),
            changed,
            found.ctime_nsec(),
            found.size() as i64,
            found.blocks() as i64,
        ]
    };
    let mut all: HostState =
        files.map(|path| (path.clone(), (fs::read(&path).unwrap(), state(&path)))).collect();
    assert_eq!(all.len(), 2, "the segment and the lock");
    all.insert(volume.to_path_buf(), (Vec::new(), state(volume)));
    all
}

/// Asserts that this process has files of the volume open, and none of them for writing.
fn assert_open_for_reading(volume: &Path) {
    let mut open = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        // Another thread may have closed the descriptor meanwhile.
        let Ok(file) = fs::read_link(entry.path()) else { continue };
        if file.starts_with(volume) {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let info = fs::read_to_string(info).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            assert_eq!(
                u32::from_str_radix(flags, 8).unwrap() & 3,
                0,
                "{} is open for writing",
                file.display()
            );
            open += 1;
        }
    }
    assert!(open > 0, "at least the lock is open");
}

fn errno<T>(result: Result<T>) -> Errno {
    result.err().expect("an error").errno()
}

#[test]
fn read_only_opens_stand_beside_each_other_and_exclude_a_writer() {
    let _side_by_side = side_by_side();
    for medium in MEDIA {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("v");
        make(&path, medium).close().unwrap();
        let before = host_state(&path);
        let (first, second) =
            (Volume::open_read_only(&path).unwrap(), Volume::open_read_only(&path).unwrap());
        assert_made(&first);
        assert_made(&second);
        assert!(Volume::inspect(&path, PagedOptions::for_host()).unwrap().is_clean());
        for _ in 0..2 {
            let refused = Volume::open(&path).expect_err("in use");
            assert_eq!(refused.errno(), Errno::BUSY);
            let why = format!("in use by process {} (", std::process::id());
            let text = refused.to_string();
            assert!(text.contains(&why) && text.ends_with("which has it open read-only"), "{text}");
            assert_eq!(errno(Volume::resize(&path, 32 << 20)), Errno::BUSY);
        }
        first.close().unwrap();
        assert_eq!(errno(Volume::open(&path)), Errno::BUSY, "the second still has it open");
        drop(second);
        assert!(host_state(&path) == before, "{medium:?}: the files have changed");

        let writer = Volume::open(&path).unwrap();
        assert!(!writer.information().recovered, "the clean mark is still there");
        assert_eq!(errno(Volume::open_read_only(&path)), Errno::BUSY);
        assert_eq!(errno(Volume::inspect(&path, PagedOptions::for_host())), Errno::BUSY);
        writer.close().unwrap();
        assert_made(&Volume::open_read_only(&path).unwrap());
    }
}

/// Copies the files of an open volume, which gives the volume that a killed process leaves.
fn copy_of_open_volume(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in ["segment-0000", "lock"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[test]
fn read_only_open_recovers_without_a_change_of_a_file() {
    let _side_by_side = side_by_side();
    for medium in MEDIA {
        let place = tempfile::tempdir().unwrap();
        let (path, killed) = (place.path().join("v"), place.path().join("killed"));
        let volume = make(&path, medium);
        volume.sync().unwrap();
        copy_of_open_volume(&path, &killed);
        let information = volume.information();
        drop(volume);
        let before = host_state(&killed);
        for _ in 0..2 {
            let volume = Volume::open_read_only(&killed).unwrap();
            assert_open_for_reading(&killed);
            assert_made(&volume);
            let found = volume.information();
            assert!(found.recovered, "{medium:?}: the copy was not closed");
            assert_eq!((found.medium, found.objects), (information.medium, information.objects));
            assert_eq!(found.journal_bytes.is_some(), medium == MediumChoice::Paged);
            assert!(volume.check().unwrap().is_clean());
            change_everything(&volume);
            assert_made(&volume);
            volume.sync().unwrap();
            volume.close().unwrap();
            assert!(host_state(&killed) == before, "{medium:?}: a close has changed the files");
            drop(Volume::open_read_only(&killed).unwrap());
            assert!(host_state(&killed) == before, "{medium:?}: a drop has changed the files");
        }
        let volume = Volume::open(&killed).unwrap();
        assert!(volume.information().recovered);
        assert_made(&volume);
    }
}

#[test]
fn read_only_open_makes_no_lock_file() {
    let _side_by_side = side_by_side();
    for medium in MEDIA {
        let place = tempfile::tempdir().unwrap();
        let (path, copy) = (place.path().join("v"), place.path().join("copy"));
        make(&path, medium).close().unwrap();
        fs::create_dir(&copy).unwrap();
        fs::copy(path.join("segment-0000"), copy.join("segment-0000")).unwrap();
        let names = || fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name());
        let volume = Volume::open_read_only(&copy).unwrap();
        assert_open_for_reading(&copy);
        assert_made(&volume);
        assert_eq!(errno(Volume::open(&copy)), Errno::BUSY);
        volume.close().unwrap();
        assert_eq!(names().collect::<Vec<_>>(), ["segment-0000"]);
        assert_made(&Volume::open(&copy).unwrap());
        assert_eq!(names().count(), 2, "an owner makes the lock file");
    }
}

/// Checks that every call that changes a volume fails, each in a case in which it would succeed on a volume
/// that is open for changes.
fn change_everything(volume: &Volume) {
    let files = root(volume);
    let file = files.open_file("/dir/file").unwrap();
    let target = || Target::Follow("/dir/file".into());
    let new = "/new".into();
    let store = volume.store("/dir", Credentials::root()).unwrap();
    let mut batch = Batch::new();
    batch.put("other", "value").erase("key");
    let name = b"user.colour";
    let refused = [
        ("create", errno(files.open(new, OpenFlags::WRITE | OpenFlags::CREATE, 0o644))),
        ("create to read", errno(files.open(new, OpenFlags::READ | OpenFlags::CREATE, 0o644))),
        ("write", errno(files.open("/dir/file".into(), OpenFlags::WRITE, 0))),
        ("write by link", errno(files.open("/link".into(), OpenFlags::READ | OpenFlags::WRITE, 0))),
        ("truncate by open", errno(files.open("/dir/file".into(), OpenFlags::READ | OpenFlags::TRUNCATE, 0))),
        ("truncate", errno(files.truncate(target(), 5))),
        ("truncate to the same size", errno(files.truncate(target(), 100_000))),
        ("mkdir", errno(files.mkdir(new, 0o755))),
        ("rmdir", errno(files.remove_dir_all("/dir"))),
        ("unlink", errno(files.unlink("/link".into()))),
        ("rename", errno(files.rename_with("/link".into(), new, RenameMode::Replace))),
        ("exchange", errno(files.rename_with("/link".into(), "/dir".into(), RenameMode::Exchange))),
        ("link", errno(files.link(target(), new))),
        ("symlink", errno(files.symlink(Path::new("x"), new))),
        ("mknod", errno(files.mknod(new, Kind::Fifo, 0o644, 0))),
        ("chmod", errno(files.chmod(target(), 0o600))),
        ("fchmod", errno(file.set_mode(0o600))),
        ("chown", errno(files.chown(target(), Some(1), Some(1)))),
        ("utimens", errno(files.utimens(target(), SetTime::Now, SetTime::Omit))),
        ("futimens", errno(file.set_times(SetTime::Now, SetTime::Now))),
        ("setxattr", errno(files.setxattr(target(), name, b"red", XattrMode::Set))),
        ("removexattr", errno(files.removexattr(target(), name))),
        ("access", errno(files.access(target(), eyrie::Access::WRITE))),
        ("put", errno(store.put("other", "value"))),
        ("put again", errno(store.put("key", "value"))),
        ("put if", errno(store.put_if("key", "value", Condition::Present))),
        ("erase", errno(store.erase("key"))),
        ("erase missing", errno(store.erase("missing"))),
        ("erase if", errno(store.erase_if("key", Condition::Present))),
        ("commit", errno(store.commit(&batch))),
        ("trim", errno(volume.trim())),
    ];
    for (call, errno) in refused {
        assert_eq!(errno, Errno::ROFS, "{call}");
    }
    // No handle for writing exists, so these calls fail as on any handle for reading.
    assert_eq!(errno(file.write_at(b"x", 0)), Errno::BADF);
    assert_eq!(errno(file.append(b"x")), Errno::BADF);
    assert_eq!(errno(file.set_len(5)), Errno::INVAL);
    assert_eq!(errno(file.fallocate(FallocateMode::Allocate, 0, 4096)), Errno::BADF);
    // A sync and calls that only read succeed.
    file.sync_all().unwrap();
    files.access(target(), eyrie::Access::READ).unwrap();
    assert_eq!(files.stat(target()).unwrap().mode, 0o666);
}

#[test]
fn times_of_last_access_stay() {
    let _side_by_side = side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("v");
    make(&path, MediumChoice::Dram).close().unwrap();
    let volume = Volume::open_read_only(&path).unwrap();
    let files = root(&volume);
    let before = files.metadata("/dir/file").unwrap();
    assert_made(&volume);
    assert_eq!(files.metadata("/dir/file").unwrap(), before);
}

#[test]
fn user_who_may_only_read_the_files_opens_a_volume() {
    let _side_by_side = side_by_side();
    for medium in MEDIA {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("v");
        make(&path, medium).close().unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set(&path.join("segment-0000"), 0o444);
        set(&path.join("lock"), 0o444);
        set(&path, 0o555);
        set(place.path(), 0o755);
        let before = host_state(&path);
        let read = || {
            // Permissions do not bind root, so a thread of root becomes another user. The owner of the files
            // may not write them, either.
            if Credentials::of_process().uid() == 0 {
                let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            }
            assert_eq!(errno(Volume::open(&path)), Errno::ACCESS);
            let volume = Volume::open_read_only(&path).unwrap();
            assert_open_for_reading(&path);
            assert_made(&volume);
            change_everything(&volume);
            volume.close().unwrap();
        };
        thread::scope(|scope| scope.spawn(read).join()).unwrap();
        assert!(host_state(&path) == before, "{medium:?}: the files have changed");
        set(&path, 0o755);
    }
}

#[test]
fn lengths_of_values_are_read_without_the_values() {
    let _side_by_side = side_by_side();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("v");
    let volume = Volume::options().size(64 << 20).medium(MediumChoice::Paged).create(&path).unwrap();
    root(&volume).create_dir("/store").unwrap();
    let store = volume.store("/store", Credentials::root()).unwrap();
    for key in 0..16 {
        store.put(format!("{key}"), vec![1; 1 << 20]).unwrap();
    }
    drop(store);
    volume.close().unwrap();
    let volume = Volume::open_read_only(&path).unwrap();
    let store = volume.store("/store", Credentials::root()).unwrap();
    let keys: Vec<_> = store.scan(eyrie::KeyRange::prefix(""), eyrie::Order::ByKey).collect();
    assert_eq!(keys.len(), 16);
    for key in keys {
        assert_eq!(store.value_len(key.unwrap()).unwrap(), Some(1 << 20));
    }
    let resident = volume.information().resident_bytes.unwrap();
    assert!(resident < 1 << 20, "{resident} bytes of 16 MiB of values are in memory");
}
