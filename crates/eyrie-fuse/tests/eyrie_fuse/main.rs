//! Tests of mounts. They need `/dev/fuse`, and the rights of root or `fusermount3`.

#![expect(clippy::unwrap_used, reason = "this is all tests")]

mod access_times;
mod copies;
mod kernel;
mod listings;
mod locks;
mod opens;
mod places;
mod quotas;
mod short_writes;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use eyrie::{Credentials, Files, Posix, PosixExt, Volume};
use eyrie_fuse::{Mount, MountError, MountOptions};
use rustix::fs::{FallocateFlags, RenameFlags, XattrFlags};

/// A volume, and a place for its mount.
struct Fixture {
    volume: Volume,
    files: Files,
    point: PathBuf,
    place: tempfile::TempDir,
}

/// Returns a new volume in memory. If this machine has no FUSE, prints a line that says so, and returns
/// `None`.
fn fixture() -> Option<Fixture> {
    if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        eprintln!("NOT TESTED: /dev/fuse cannot be opened");
        return None;
    }
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = Volume::create(place.path().join("volume"), 64 << 20).unwrap();
    let point = place.path().join("mount");
    fs::create_dir(&point).unwrap();
    let files = volume.files(Credentials::of_process());
    Some(Fixture { volume, files, point, place })
}

impl Fixture {
    fn mount(&self) -> Mount {
        self.mount_with("")
    }

    fn mount_with(&self, options: &str) -> Mount {
        eyrie_fuse::mount(&self.volume, &self.point, &options.parse().unwrap()).unwrap()
    }
}

/// Waits until a change that did not come through the mount is visible in the mount.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Unmounts a file system whose files this test has closed. Between its fork and its exec, a process that
/// another test starts has copies of all open files, so the file system may be in use for a moment.
fn unmount_idle(mount: &mut Mount) {
    eventually("the file system is not in use", || match mount.unmount() {
        Err(MountError::Refused { .. }) => false,
        ended => {
            ended.unwrap();
            true
        }
    });
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();
const EEXIST: i32 = rustix::io::Errno::EXIST.raw_os_error();
const EROFS: i32 = rustix::io::Errno::ROFS.raw_os_error();
const EOPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

#[test]
fn calls_of_the_kernel_reach_the_volume() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    let at = |name: &str| fixture.point.join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/b/file"), "0123456789").unwrap();
    assert_eq!(fixture.files.read("/a/b/file").unwrap(), b"0123456789");
    let mut file = fs::OpenOptions::new().read(true).append(true).open(at("a/b/file")).unwrap();
    file.write_all(b"ab").unwrap();
    file.seek(SeekFrom::Start(8)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "89ab");
    file.set_len(4).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(at("a/b/file")).unwrap().len(), 4);
    fs::hard_link(at("a/b/file"), at("second")).unwrap();
    symlink("a/b/file", at("link")).unwrap();
    assert_eq!(fs::read(at("link")).unwrap(), b"0123");
    assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 2);
    for entry in rustix::fs::Dir::new(fs::File::open(&fixture.point).unwrap()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == c"." || entry.file_name() == c"second" {
            let name = entry.file_name().to_str().unwrap();
            assert_eq!(entry.ino(), fs::metadata(at(name)).unwrap().ino(), "{name}");
        }
    }
    fs::set_permissions(at("second"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fixture.files.metadata("/a/b/file").unwrap().mode, 0o640);
    let here = rustix::fs::CWD;
    let swapped = |flags| rustix::fs::renameat_with(here, at("second"), here, at("link"), flags);
    assert_eq!(swapped(RenameFlags::NOREPLACE).map_err(|error| error.raw_os_error()), Err(EEXIST));
    swapped(RenameFlags::EXCHANGE).unwrap();
    assert!(fs::symlink_metadata(at("second")).unwrap().is_symlink());
    fs::rename(at("a/b"), at("moved")).unwrap();
    assert!(fixture.files.exists("/moved/file").unwrap());
    rustix::fs::setxattr(at("moved"), "user.colour", b"blue", XattrFlags::CREATE).unwrap();
    assert_eq!(rustix::fs::getxattr(at("moved"), "user.colour", &mut [0_u8; 10][..]).unwrap(), 4);
    assert_eq!(rustix::fs::listxattr(at("moved"), &mut [0_u8; 100][..]).unwrap(), 12);
    fs::remove_dir_all(at("moved")).unwrap();
    let space = rustix::fs::statvfs(&fixture.point).unwrap();
    assert!(space.f_blocks * space.f_frsize >= 32 << 20 && space.f_namemax == 255);
    drop(file);
    unmount_idle(&mut mount);
    assert_eq!(fs::read_dir(&fixture.point).unwrap().count(), 0);
    assert!(fixture.volume.check().unwrap().findings.is_empty());
}

#[test]
fn storage_of_files_changes_through_the_mount() {
    let Some(fixture) = fixture() else { return };
    let _mount = fixture.mount();
    let path = fixture.point.join("file");
    let file = fs::File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.write_all_at(&[7; 40_960], 0).unwrap();
    let change = |flags, offset, length| {
        rustix::fs::fallocate(&file, flags, offset, length).map_err(|error| error.raw_os_error())
    };
    change(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 8192, 8192).unwrap();
    change(FallocateFlags::ZERO_RANGE, 0, 4096).unwrap();
    change(FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(change(FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(EOPNOTSUPP));
    let stored = fixture.files.read("/file").unwrap();
    assert_eq!(stored.len(), 100_000);
    assert!(stored[..4096].iter().chain(&stored[8192..16_384]).all(|&byte| byte == 0));
    assert!(stored[4096..8192].iter().chain(&stored[16_384..40_960]).all(|&byte| byte == 7));
    // The punched range is a hole, as on tmpfs.
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(4096)).unwrap(), 8192);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(8192)).unwrap(), 16_384);
    let (mut from, mut to) = (4096, 200_000);
    let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &file, Some(&mut to), 4096).unwrap();
    assert_eq!(copied, 4096);
    assert_eq!(fixture.files.read("/file").unwrap()[200_000..], [7; 4096]);
    // Storage past the end counts until a truncation to the same size.
    let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks;
    file.set_len(40_960).unwrap();
    let before = blocks();
    change(FallocateFlags::KEEP_SIZE, 40_960, 1 << 20).unwrap();
    assert_eq!((blocks(), file.metadata().unwrap().len()), (before + (1 << 11), 40_960));
    file.write_all_at(&[8; 5000], 40_960).unwrap();
    assert_eq!(blocks(), before + (1 << 11));
    file.set_len(45_960).unwrap();
    assert_eq!(blocks(), before + 16);
    assert_eq!(fixture.files.read("/file").unwrap()[40_960..], [8; 5000]);
}

#[test]
fn changes_beside_the_mount_become_visible() {
    let Some(fixture) = fixture() else { return };
    let _mount = fixture.mount();
    let at = |name: &str| fixture.point.join(name);
    fixture.files.create_dir("/dir").unwrap();
    fixture.files.write("/dir/file", "first").unwrap();
    assert_eq!(fs::read(at("dir/file")).unwrap(), b"first");
    assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 1);
    // The kernel has the bytes, the attributes and the entries in its cache now.
    fixture.files.write("/dir/file", "the second").unwrap();
    eventually("bytes", || fs::read(at("dir/file")).unwrap() == b"the second");
    fixture.files.set_mode("/dir/file", 0o600).unwrap();
    eventually("mode", || fs::metadata(at("dir/file")).unwrap().mode() & 0o7777 == 0o600);
    fixture.files.write("/dir/new", "").unwrap();
    eventually("listing", || fs::read_dir(at("dir")).unwrap().count() == 2);
    fixture.files.rename("/dir/new", "/dir/file").unwrap();
    eventually("replaced file", || fs::read(at("dir/file")).unwrap().is_empty());
    eventually("old name", || !at("dir/new").exists());
    fixture.files.remove_file("/dir/file").unwrap();
    eventually("removed file", || !at("dir/file").exists());
    fixture.files.rename("/dir", "/other").unwrap();
    eventually("moved directory", || !at("dir").exists() && at("other").exists());
}

#[test]
fn lost_notices_make_the_kernel_forget_everything() {
    const MANY: usize = 200_000;
    let Some(fixture) = fixture() else { return };
    let _mount = fixture.mount();
    let at = |name: &str| fixture.point.join(name);
    let last_bytes = || fs::metadata(at("last")).unwrap().len();
    fs::write(at("last"), "").unwrap();
    // The kernel keeps this size until a notice comes.
    assert_eq!(last_bytes(), 0);
    fixture.files.create_dir_all("/kept/below").unwrap();
    fixture.files.write("/kept/below/file", "old").unwrap();
    assert_eq!(fs::read(at("kept/below/file")).unwrap(), b"old");
    // Notices keep the order of the changes: after the notice of `/last`, the kernel knows all changes above.
    fixture.files.write("/last", "end").unwrap();
    eventually("notice", || last_bytes() == 3);
    let (kept, file) = (fs::File::open(at("kept")).unwrap(), fs::File::open(at("kept/below/file")).unwrap());
    // The thread that passes notices on cannot keep up with so many changes, so some notices are lost.
    fixture.files.write("/a", "").unwrap();
    for _ in 0..MANY / 2 {
        fixture.files.rename("/a", "/b").unwrap();
        fixture.files.rename("/b", "/a").unwrap();
    }
    fixture.files.write("/kept/below/file", "new!").unwrap();
    fixture.files.write("/kept/below/more", "").unwrap();
    eventually("bytes of an open file", || {
        let mut bytes = [0; 4];
        let length = file.read_at(&mut bytes, 0).unwrap();
        &bytes[..length] == b"new!"
    });
    // Older kernels forget the path of a working directory until somebody looks it up again.
    if kernel_version() >= (6, 16) {
        let path = fs::read_link(format!("/proc/self/fd/{}", kept.as_raw_fd())).unwrap();
        assert_eq!(path, at("kept"));
    }
    eventually("listing", || fs::read_dir(at("kept/below")).unwrap().count() == 2);
}

/// Returns the first two numbers of the version of the kernel.
fn kernel_version() -> (u32, u32) {
    let release = rustix::system::uname().release().to_str().unwrap().to_owned();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn unlinked_open_file_keeps_its_bytes() {
    let Some(fixture) = fixture() else { return };
    let mount = fixture.mount();
    let before = fixture.volume.information().objects;
    let path = fixture.point.join("file");
    fs::write(&path, "still here").unwrap();
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(io::read_to_string(&file).unwrap(), "still here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    eventually("freed", || fixture.volume.information().objects == before);
    // A file that is open when the mount ends is freed, too.
    fs::write(&path, "x").unwrap();
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    mount.unmounter().end();
    let _ = mount.wait();
    drop(file);
    eventually("freed after the end", || fixture.volume.information().objects == before);
}

#[test]
fn names_of_any_bytes_and_keys_are_listed() {
    let Some(fixture) = fixture() else { return };
    let _mount = fixture.mount();
    let name = OsStr::from_bytes(b"\xff\xfe\n");
    fs::write(fixture.point.join(name), "bytes").unwrap();
    assert!(fixture.files.exists(Path::new("/").join(name)).unwrap());
    let store = fixture.volume.store("/", Credentials::of_process()).unwrap();
    store.put("a/b", "key").unwrap();
    let listed = || -> Vec<_> {
        let names = fs::read_dir(&fixture.point).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    eventually("both", || listed().len() == 2);
    let key = listed().into_iter().find(|listed| listed != name).unwrap();
    assert_eq!(fs::read(fixture.point.join(&key)).unwrap(), b"key", "{key:?}");
}

#[test]
fn large_directory_is_listed_once() {
    let Some(fixture) = fixture() else { return };
    let _mount = fixture.mount();
    fixture.files.create_dir("/dir").unwrap();
    for number in 0..5000 {
        fixture.files.write(format!("/dir/{number}"), "").unwrap();
    }
    let dir = fixture.point.join("dir");
    for _ in 0..2 {
        let mut seen: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap()).collect();
        assert!(seen.iter().all(|entry| entry.metadata().unwrap().ino() == entry.ino()));
        seen.sort_by_key(fs::DirEntry::file_name);
        seen.dedup_by_key(|entry| entry.file_name());
        assert_eq!(seen.len(), 5000);
    }
}

#[test]
fn read_only_mount_refuses_changes() {
    let Some(fixture) = fixture() else { return };
    fixture.files.write("/file", "text").unwrap();
    let mut mount = fixture.mount_with("ro");
    assert_eq!(fs::read(fixture.point.join("file")).unwrap(), b"text");
    assert_eq!(errno(fs::write(fixture.point.join("file"), "x")), Some(EROFS));
    assert_eq!(errno(fs::remove_file(fixture.point.join("file"))), Some(EROFS));
    unmount_idle(&mut mount);
}

#[test]
fn writes_through_the_cache_of_the_kernel_are_kept() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount_with("writeback_cache");
    let path = fixture.point.join("file");
    let mut file = fs::File::create(&path).unwrap();
    for number in 0..10_000_u32 {
        file.write_all(&number.to_le_bytes()).unwrap();
    }
    file.sync_all().unwrap();
    let expected: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(fixture.files.read("/file").unwrap(), expected);
    file.write_all(b"unsynced").unwrap();
    // The bytes that only the kernel has are data, too.
    let end = file.metadata().unwrap().len();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(end - 1)), Ok(end - 1));
    drop(file);
    unmount_idle(&mut mount);
    assert!(fixture.files.read("/file").unwrap().ends_with(b"unsynced"));
}

#[test]
fn direct_reads_and_writes_see_the_volume() {
    let Some(fixture) = fixture() else { return };
    let _mount = fixture.mount();
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let path = fixture.point.join("file");
    let mut options = fs::File::options();
    let file = options.read(true).write(true).create(true).custom_flags(direct).open(&path).unwrap();
    file.write_all_at(&[3; 8192], 0).unwrap();
    fixture.files.write("/file", vec![4; 8192]).unwrap();
    let mut bytes = vec![0; 8192];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [4; 8192]);
}

#[test]
fn mount_in_use_stays_after_a_refused_unmount() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    let file = fs::File::create(fixture.point.join("file")).unwrap();
    let refused = mount.unmount().unwrap_err();
    assert!(matches!(&refused, MountError::Refused { source, .. } if source.raw_os_error() == Some(EBUSY)));
    file.write_all_at(b"later", 0).unwrap();
    drop(file);
    assert_eq!(fs::read(fixture.point.join("file")).unwrap(), b"later");
    unmount_idle(&mut mount);
    unmount_idle(&mut mount);
    assert_eq!(fs::read_dir(&fixture.point).unwrap().count(), 0);
}

#[test]
fn threads_of_programs_are_served_beside_long_requests() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    fs::write(fixture.point.join("large"), vec![7; 8 << 20]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let dir = fixture.point.join(format!("dir-{thread}"));
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                for number in 0..300_u32 {
                    let path = dir.join(number.to_string());
                    fs::write(&path, number.to_le_bytes()).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), number.to_le_bytes());
                    fs::remove_file(&path).unwrap();
                }
                fs::remove_dir(&dir).unwrap();
            });
        }
        let point = &fixture.point;
        scope.spawn(move || {
            let from = fs::File::open(point.join("large")).unwrap();
            for _ in 0..20 {
                let to = fs::File::create(point.join("copy")).unwrap();
                let copied = rustix::fs::copy_file_range(&from, Some(&mut 0), &to, None, 8 << 20).unwrap();
                assert_eq!(copied, 8 << 20);
                to.sync_all().unwrap();
            }
        });
    });
    assert_eq!(fs::read(fixture.point.join("copy")).unwrap(), vec![7; 8 << 20]);
    unmount_idle(&mut mount);
    assert!(fixture.volume.check().unwrap().findings.is_empty());
}

#[test]
fn mode_of_a_file_decides_about_its_execution() {
    let Some(fixture) = fixture() else { return };
    for options in ["", "default_permissions"] {
        let mut mount = fixture.mount_with(options);
        let path = fixture.point.join("script");
        fs::write(&path, "#!/bin/sh\n").unwrap();
        let can_execute = || rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok();
        assert!(!can_execute(), "{options}");
        assert_eq!(errno(std::process::Command::new(&path).status()), Some(EACCES), "{options}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(can_execute(), "{options}");
        assert!(std::process::Command::new(&path).status().unwrap().success(), "{options}");
        fs::remove_file(&path).unwrap();
        unmount_idle(&mut mount);
    }
}

/// Runs a program as a user, and returns its output. `None` if the program is missing.
fn output(user: u32, program: &str, arguments: &[&OsStr]) -> Option<(bool, String)> {
    let mut command = Command::new(program);
    command.args(arguments).uid(user).gid(user);
    match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        output => {
            let output = output.unwrap();
            Some((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
        }
    }
}

#[test]
fn acls_of_setfacl_are_obeyed_and_inherited() {
    let Some(fixture) = fixture() else { return };
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || output(0, "setfacl", &["--version".as_ref()]).is_none() {
        eprintln!("NOT TESTED: only root tests ACLs of several users, with setfacl (package acl)");
        return;
    }
    // The directory of the fixture is private to its owner.
    fs::set_permissions(fixture.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut mount = fixture.mount_with("allow_other");
    let (file, dir) = (fixture.point.join("file"), fixture.point.join("dir"));
    fs::write(&file, "blue").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(&dir).unwrap();
    let run = |user, line: &str, path: &Path| {
        let mut words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
        words.push(path.as_os_str());
        output(user, line.split(' ').next().unwrap(), &words[1..]).unwrap()
    };
    assert!(!run(1000, "cat", &file).0);
    assert!(run(0, "setfacl -m u:1000:r", &file).0);
    assert_eq!(run(1000, "cat", &file), (true, "blue".into()));
    assert!(!run(1001, "cat", &file).0);
    assert!(run(0, "ls -l", &file).1.starts_with("-rw-r-----+"));
    let listed = run(0, "getfacl -cpn", &file).1;
    assert_eq!(listed.trim(), "user::rw-\nuser:1000:r--\ngroup::r--\nmask::r--\nother::---");
    // The mask follows the mode. Linux looks at no ACL whose mask is empty.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!run(1000, "cat", &file).0);
    assert!(run(0, "getfacl -cpn", &file).1.contains("mask::---"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    // If an ACL is removed, but not through the mount, the kernel forgets the ACL that it has cached.
    assert!(run(1000, "cat", &file).0);
    fixture.files.removexattr("/file".into(), b"system.posix_acl_access").unwrap();
    eventually("the ACL has gone", || !run(1000, "cat", &file).0);

    assert!(run(0, "setfacl -dm u:1000:rwx,o:-", &dir).0);
    assert!(run(0, "setfacl -m u:1000:rwx", &dir).0);
    let (inner, made) = (dir.join("inner"), dir.join("made"));
    let arguments = ["-c".as_ref(), "umask 077; mkdir \"$1\"; echo x > \"$2\"".as_ref(), "sh".as_ref()];
    let made_by = [&arguments[..], &[inner.as_os_str(), made.as_os_str()]].concat();
    assert!(output(1000, "sh", &made_by).unwrap().0);
    assert_eq!(made.metadata().unwrap().mode() & 0o7777, 0o660, "no umask");
    assert_eq!(inner.metadata().unwrap().mode() & 0o7777, 0o770);
    assert!(run(0, "getfacl -cpn", &inner).1.contains("default:user:1000:rwx"));
    let of_made = run(0, "getfacl -cpn", &made).1;
    assert!(of_made.contains("user:1000:rwx") && of_made.contains("#effective:rw-"), "{of_made}");
    // Only the owner sets ACLs, and `cp -a` keeps them.
    assert!(!run(1001, "setfacl -m u:1001:rwx", &made).0);
    let copy = fixture.point.join("copy");
    assert!(output(0, "cp", &["-a".as_ref(), dir.as_os_str(), copy.as_os_str()]).unwrap().0);
    assert_eq!(run(0, "getfacl -cpn", &copy.join("made")).1, of_made);
    assert_eq!(run(0, "getfacl -cpn", &copy).1, run(0, "getfacl -cpn", &dir).1);
    assert!(run(0, "setfacl -Rbk", &dir).0);
    assert!(run(0, "ls -l", &made).1.starts_with("-rw-r----- "));
    unmount_idle(&mut mount);
    assert!(fixture.volume.check().unwrap().findings.is_empty());
}

#[test]
fn unusable_mount_points_are_refused() {
    let Some(fixture) = fixture() else { return };
    let try_at = |path: &Path| eyrie_fuse::mount(&fixture.volume, path, &MountOptions::default());
    let missing = try_at(&fixture.place.path().join("missing")).unwrap_err();
    assert!(matches!(&missing, MountError::MountPoint { .. }), "{missing}");
    assert!(missing.to_string().ends_with("missing: No such file or directory"), "{missing}");
    let file = fixture.place.path().join("file");
    fs::write(&file, "").unwrap();
    let no_directory = try_at(&file).unwrap_err();
    assert!(no_directory.to_string().ends_with("Not a directory"), "{no_directory}");
    let mut mount = try_at(&fixture.point).unwrap();
    let busy = try_at(&fixture.point).unwrap_err();
    assert!(matches!(&busy, MountError::Busy { .. }), "{busy}");
    unmount_idle(&mut mount);
    let nothing = eyrie_fuse::unmount(&fixture.point, false).unwrap_err();
    assert!(matches!(&nothing, MountError::Refused { .. }), "{nothing}");
}

#[test]
fn mount_in_use_is_unmounted_only_by_its_end() {
    let Some(fixture) = fixture() else { return };
    let mount = fixture.mount();
    fs::write(fixture.point.join("file"), "text").unwrap();
    let file = fs::File::open(fixture.point.join("file")).unwrap();
    let refused = eyrie_fuse::unmount(&fixture.point, false).unwrap_err();
    assert!(matches!(&refused, MountError::Refused { source, .. } if source.raw_os_error() == Some(EBUSY)));
    assert!(refused.to_string().contains("unmount it lazily"), "{refused}");
    assert!(mount.is_running());
    mount.unmounter().end();
    let _ = mount.wait();
    assert_eq!(fs::read_dir(&fixture.point).unwrap().count(), 0);
    assert!(io::read_to_string(&file).is_err(), "nobody serves the file any more");
    assert_eq!(fixture.files.read("/file").unwrap(), b"text");
}

#[test]
fn regression_end_of_a_lazily_unmounted_volume_keeps_the_next_mount() {
    let Some(fixture) = fixture() else { return };
    let next_volume = Volume::create(fixture.place.path().join("next"), 4 << 20).unwrap();
    next_volume.files(Credentials::of_process()).write("/next", "").unwrap();
    let mount = fixture.mount();
    let file = fs::File::create(fixture.point.join("file")).unwrap();
    eyrie_fuse::unmount(&fixture.point, true).unwrap();
    let mut next = eyrie_fuse::mount(&next_volume, &fixture.point, &MountOptions::default()).unwrap();
    assert!(mount.is_running(), "a file is open");
    mount.unmounter().end();
    assert!(fixture.point.join("next").exists());
    drop(file);
    let _ = mount.wait();
    assert!(fixture.point.join("next").exists());
    unmount_idle(&mut next);
}

#[test]
fn regression_unmounter_of_an_ended_mount_keeps_the_next_mount() {
    let Some(fixture) = fixture() else { return };
    let mut mount = fixture.mount();
    let unmounter = mount.unmounter();
    unmount_idle(&mut mount);
    // The kernel may give the number of the ended connection to the next one.
    let mut next = fixture.mount();
    fs::write(fixture.point.join("egg"), "blue").unwrap();
    unmounter.end();
    assert!(next.is_running());
    assert_eq!(fs::read(fixture.point.join("egg")).unwrap(), b"blue");
    unmount_idle(&mut next);
}
