use std::io::{Read, Seek, SeekFrom, Write};

use eyrie_engine::model::Model;
use eyrie_engine::{FallocateMode, Kind, ObjectId, Owner, RenameMode, XattrMode};

use eyrie_engine::access::{Capabilities, Sticky};

use super::*;
use crate::Kvfs;
use crate::posix::{OpenFlags, Posix, PosixExt, SetTime, Target, Whence};

/// Returns a file system over an empty model, with the credentials of root.
pub(crate) fn empty() -> Pxfs<Model> {
    let root = ObjectId::new(64, Kind::Directory);
    let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
    Pxfs::new(Arc::new(Model::new(root, owner, Time::default())), Credentials::root())
}

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

#[test]
fn files_read_back_what_was_written() {
    let fs = empty();
    fs.create_dir_all("/a/b/c").unwrap();
    fs.write("/a/b/c/file", "hello").unwrap();
    assert_eq!(fs.read("/a/b/c/file").unwrap(), b"hello");
    let mut file = fs.options().read(true).write(true).open("a/b/c/file").unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b", world").unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello, world");
    fs.remove_dir_all("/a").unwrap();
    assert!(!fs.exists("/a").unwrap());
    let mut buffer = [0; 5];
    file.read_exact_at(&mut buffer, 7).unwrap();
    assert_eq!(&buffer, b"world", "an unlinked file can be read through its handle");
}

#[test]
fn append_goes_to_the_current_end() {
    let fs = empty();
    fs.write("log", "1").unwrap();
    let mut file = fs.options().append(true).open("log").unwrap();
    fs.write("log", "123").unwrap();
    file.write_all(b"4").unwrap();
    assert_eq!(file.stream_position().unwrap(), 4);
    file.append(b"5").unwrap();
    assert_eq!(fs.read("log").unwrap(), b"12345");
}

#[test]
fn errors_name_the_call_and_the_path() {
    let fs = empty();
    let error = fs.open_file("/missing/file").unwrap_err();
    assert_eq!(error.to_string(), "open /missing/file: No such file or directory");
    assert_eq!(errno(fs.stat("".into())), Some(Errno::NOENT));
    assert_eq!(errno(fs.stat("a\0b".into())), Some(Errno::INVAL));
    assert_eq!(errno(fs.stat((&"a/".repeat(2048)).into())), Some(Errno::NAMETOOLONG));
    assert_eq!(errno(fs.stat((&"a".repeat(256)).into())), Some(Errno::NAMETOOLONG));
    assert_eq!(errno(fs.stat((&"a".repeat(255)).into())), Some(Errno::NOENT));
}

#[test]
fn at_most_forty_links_are_followed() {
    let fs = empty();
    fs.write("l0", "end").unwrap();
    for link in 1..=41 {
        fs.symlink(format!("l{}", link - 1).as_ref(), (&format!("l{link}")).into()).unwrap();
    }
    assert_eq!(fs.read("l40").unwrap(), b"end");
    assert_eq!(errno(fs.stat("l41".into())), Some(Errno::LOOP));
}

#[test]
fn cached_prefixes_follow_changes_of_directories() {
    let fs = empty();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    fs.create_dir_all("/a/b").unwrap();
    fs.write("/a/b/f", "1").unwrap();
    for _ in 0..2 {
        assert_eq!(user.read("/a/b/f").unwrap(), b"1");
    }
    fs.chmod("/a".into(), 0o700).unwrap();
    assert_eq!(errno(user.stat("/a/b/f".into())), Some(Errno::ACCESS));
    fs.chmod("/a".into(), 0o755).unwrap();
    assert_eq!(errno(user.stat("/a/b/f".into())), None);
    fs.rename_with("/a/b".into(), "/a/c".into(), RenameMode::Replace).unwrap();
    assert_eq!(errno(user.stat("/a/b/f".into())), Some(Errno::NOENT));
    fs.create_dir("/a/b").unwrap();
    fs.write("/a/b/f", "2").unwrap();
    assert_eq!(user.read("/a/b/f").unwrap(), b"2");
    fs.rename_with("/a/b".into(), "/a/c".into(), RenameMode::Exchange).unwrap();
    assert_eq!(user.read("/a/b/f").unwrap(), b"1");
    fs.rename_with("/a/b".into(), "/b".into(), RenameMode::Replace).unwrap();
    fs.symlink("/b".as_ref(), "/a/b".into()).unwrap();
    assert_eq!(user.read("/a/b/f").unwrap(), b"1");
    fs.unlink("/a/b".into()).unwrap();
    assert_eq!(errno(user.read("/a/b/f")), Some(Errno::NOENT));
}

/// A thread's own `rmdir` leaves its other cached prefixes valid, but not that of the removed directory.
#[test]
fn prefix_of_a_removed_directory_is_forgotten() {
    let fs = empty();
    fs.create_dir_all("/a/kept").unwrap();
    fs.write("/a/kept/f", "1").unwrap();
    for round in 0..60 {
        fs.create_dir("/a/gone").unwrap();
        fs.write("/a/gone/f", "2").unwrap();
        assert_eq!(fs.read("/a/gone/f").unwrap(), b"2");
        // In every second round the removed directory stays open, and so its header is not reused.
        let open = (round % 2 == 1).then(|| fs.open("/a/gone".into(), OpenFlags::READ, 0).unwrap());
        fs.remove_file("/a/gone/f").unwrap();
        fs.remove_dir("/a/gone").unwrap();
        assert_eq!(fs.read("/a/kept/f").unwrap(), b"1");
        assert_eq!(errno(fs.stat("/a/gone/f".into())), Some(Errno::NOENT));
        assert_eq!(errno(fs.create_dir("/a/gone/d")), Some(Errno::NOENT));
        // A new directory gets the name of the removed one, and has a file with the same name.
        fs.create_dir("/a/gone").unwrap();
        fs.write("/a/gone/f", "3").unwrap();
        assert_eq!(fs.read("/a/gone/f").unwrap(), b"3");
        fs.remove_dir_all("/a/gone").unwrap();
        open.into_iter().for_each(|handle| fs.close(handle).unwrap());
    }
}

#[test]
fn open_handle_keeps_its_rights() {
    let fs = empty();
    fs.chmod("/".into(), 0o777).unwrap();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    let file = user.options().read(true).write(true).create_new(true).mode(0).open("f").unwrap();
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(errno(user.open_file("f")), Some(Errno::ACCESS));
    let reader = fs.open_file("f").unwrap();
    assert_eq!(errno(reader.write_at(b"y", 0)), Some(Errno::BADF));
    assert_eq!(errno(reader.set_len(0)), Some(Errno::INVAL));
    assert_eq!(errno(reader.fallocate(FallocateMode::PunchHole, 0, 1)), Some(Errno::BADF));
    assert_eq!(errno(reader.fallocate(FallocateMode::PunchHole, 0, 0)), Some(Errno::INVAL));
    assert_eq!(errno(file.fallocate(FallocateMode::InsertRange, 4096, 4096)), Some(Errno::INVAL));
}

#[test]
fn offsets_end_at_the_largest_size() {
    let fs = empty();
    let file = fs.options().read(true).write(true).create(true).open("f").unwrap();
    for offset in [1 << 63, u64::MAX] {
        assert_eq!(errno(file.read_at(&mut [0], offset)), Some(Errno::INVAL));
        assert_eq!(errno(file.write_at(&[0], offset)), Some(Errno::INVAL));
        assert_eq!(errno(file.set_len(offset)), Some(Errno::INVAL));
        for mode in FallocateMode::ALL {
            assert_eq!(errno(file.fallocate(mode, offset, 1)), Some(Errno::INVAL));
            assert_eq!(errno(file.fallocate(mode, 0, offset)), Some(Errno::INVAL));
            assert_eq!(errno(file.fallocate(mode, 1, i64::MAX as u64)), Some(Errno::FBIG));
        }
    }
    assert_eq!(errno(file.write_at(&[0, 0], i64::MAX as u64 - 1)), Some(Errno::INVAL));
    assert_eq!(file.read_at(&mut [], i64::MAX as u64).unwrap(), 0);
    file.set_len(i64::MAX as u64 - 1).unwrap();
    assert_eq!(file.append(b"12").unwrap(), 1, "only the bytes that fit are appended");
    assert_eq!(errno(file.append(b"12")), Some(Errno::FBIG));
}

#[test]
fn clock_is_injected_and_umask_is_the_callers() {
    let fs = empty().with_clock(|| Time::new(7, 8));
    let careful = fs.with_credentials(Credentials::root().with_umask(0o027));
    careful.create_dir("d").unwrap();
    assert_eq!(fs.metadata("d").unwrap().mode, 0o750);
    assert_eq!(fs.metadata("d").unwrap().modified, Time::new(7, 8));
    fs.utimens("d".into(), SetTime::To(Time::new(-1, 5)), SetTime::Omit).unwrap();
    assert_eq!(fs.metadata("d").unwrap().accessed, Time::new(-1, 5));
}

#[test]
fn opens_without_access_and_of_pipes_fail() {
    let fs = empty();
    assert_eq!(errno(fs.options().open("f")), Some(Errno::INVAL));
    let both = OpenFlags::READ | OpenFlags::CREATE | OpenFlags::DIRECTORY;
    assert_eq!(errno(fs.open("f".into(), both, 0)), Some(Errno::INVAL));
    fs.mknod("pipe".into(), Kind::Fifo, 0o666, 0).unwrap();
    assert_eq!(errno(fs.open_file("pipe")), Some(Errno::NXIO));
}

#[test]
fn xattrs_stay_with_their_file() {
    let fs = empty();
    fs.write("/file", "bytes").unwrap();
    fs.symlink("file".as_ref(), "/link".into()).unwrap();
    fs.setxattr("/link".into(), b"user.a", b"value", XattrMode::Create).unwrap();
    fs.setxattr("/".into(), b"user.root", b"", XattrMode::Set).unwrap();
    fs.setxattr(Target::NoFollow("/link".into()), b"trusted.own", b"of the link", XattrMode::Set).unwrap();
    assert_eq!(fs.xattr("/file", "user.a").unwrap(), b"value");
    assert_eq!(fs.xattr("/", "user.root").unwrap(), b"");
    assert_eq!(fs.symlink_xattr_names("/link").unwrap(), [b"trusted.own"]);
    assert_eq!(errno(fs.setxattr("/file".into(), b"user.a", b"", XattrMode::Create)), Some(Errno::EXIST));
    assert_eq!(errno(fs.setxattr("/file".into(), b"user.b", b"", XattrMode::Replace)), Some(Errno::NODATA));
    fs.rename_with("/file".into(), "/moved".into(), RenameMode::Replace).unwrap();
    let file = fs.open_file("/moved").unwrap();
    fs.unlink("/moved".into()).unwrap();
    fs.setxattr(Target::Open(file.handle()), b"user.b", &[1; 5000], XattrMode::Set).unwrap();
    let mut names = [0; 14];
    assert_eq!(fs.listxattr(Target::Open(file.handle()), &mut names).unwrap(), 14);
    assert_eq!(&names, b"user.a\0user.b\0");
    fs.removexattr(Target::Open(file.handle()), b"user.a").unwrap();
    assert_eq!(errno(fs.getxattr(Target::Open(file.handle()), b"user.a", &mut [])), Some(Errno::NODATA));
    let error = fs.xattr("/", "user.none").unwrap_err();
    assert!(error.to_string().starts_with("getxattr /: No data available"), "{error}");
}

#[test]
fn too_small_xattr_buffer_is_refused() {
    let fs = empty();
    fs.setxattr("/".into(), b"user.a", b"12345", XattrMode::Set).unwrap();
    // The two values have 65,536 bytes together, which is the most that an object can have.
    fs.setxattr("/".into(), b"user.long", &[9; 65_536 - 5], XattrMode::Set).unwrap();
    let mut out = [0; 8];
    assert_eq!(fs.getxattr("/".into(), b"user.a", &mut []).unwrap(), 5);
    assert_eq!(errno(fs.getxattr("/".into(), b"user.a", &mut out[..4])), Some(Errno::RANGE));
    assert_eq!(fs.getxattr("/".into(), b"user.a", &mut out).unwrap(), 5);
    assert_eq!(&out, b"12345\0\0\0");
    assert_eq!(fs.xattr("/", "user.long").unwrap(), vec![9; 65_536 - 5]);
    assert_eq!(fs.listxattr("/".into(), &mut []).unwrap(), 17);
    assert_eq!(errno(fs.listxattr("/".into(), &mut [0; 16])), Some(Errno::RANGE));
    assert_eq!(errno(fs.setxattr("/".into(), b"user.b", b"1", XattrMode::Set)), Some(Errno::NOSPC));
    assert_eq!(errno(fs.setxattr("/".into(), b"user.b", &[1; 65_537], XattrMode::Set)), Some(Errno::TOOBIG));
    for name in ["", &"n".repeat(256)] {
        assert_eq!(
            errno(fs.setxattr("/none".into(), name.as_bytes(), b"", XattrMode::Set)),
            Some(Errno::RANGE)
        );
        assert_eq!(errno(fs.getxattr("/none".into(), name.as_bytes(), &mut [])), Some(Errno::RANGE));
        assert_eq!(errno(fs.removexattr("/none".into(), name.as_bytes())), Some(Errno::RANGE));
    }
    assert_eq!(errno(fs.setxattr("/".into(), b"user.a\0b", b"", XattrMode::Set)), Some(Errno::INVAL));
    fs.setxattr("/".into(), format!("user.{}", "n".repeat(250)).as_bytes(), b"", XattrMode::Set).unwrap();
}

#[test]
fn trusted_xattrs_are_hidden_from_users() {
    let fs = empty();
    fs.write("/file", "").unwrap();
    fs.chmod("/file".into(), 0o666).unwrap();
    for name in ["user.a", "trusted.a", "security.a"] {
        fs.setxattr("/file".into(), name.as_bytes(), b"1", XattrMode::Set).unwrap();
    }
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    assert_eq!(fs.xattr_names("/file").unwrap(), [&b"security.a"[..], b"trusted.a", b"user.a"]);
    assert_eq!(user.xattr_names("/file").unwrap(), [&b"security.a"[..], b"user.a"]);
    assert_eq!(errno(user.xattr("/file", "trusted.a")), Some(Errno::NODATA));
    assert_eq!(user.xattr("/file", "security.a").unwrap(), b"1");
    for name in ["trusted.a", "security.a"] {
        assert_eq!(
            errno(user.setxattr("/file".into(), name.as_bytes(), b"2", XattrMode::Set)),
            Some(Errno::PERM)
        );
        assert_eq!(errno(user.removexattr("/file".into(), name.as_bytes())), Some(Errno::PERM));
    }
    user.setxattr("/file".into(), b"user.a", b"2", XattrMode::Replace).unwrap();
    for name in ["system.other", "other.a"] {
        assert_eq!(
            errno(fs.setxattr("/file".into(), name.as_bytes(), b"2", XattrMode::Set)),
            Some(Errno::OPNOTSUPP)
        );
        assert_eq!(errno(fs.xattr("/file", name)), Some(Errno::OPNOTSUPP));
    }
}

#[test]
fn capabilities_are_set_by_root_and_lost_with_a_change() {
    const NAME: &str = "security.capability";
    let value = [&[1, 0, 0, 2, 2][..], &[0; 15]].concat();
    let fs = empty();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    let admin = Capabilities::all() - Capabilities::SETFCAP;
    let admin = fs.with_credentials(Credentials::root().with_capabilities(admin));
    fs.write("/f", vec![7; 9000]).unwrap();
    fs.set_mode("/f", 0o777).unwrap();
    let set = |fs: &Pxfs<Model>, value: &[u8]| {
        errno(fs.setxattr("/f".into(), NAME.as_bytes(), value, XattrMode::Set))
    };
    let has = || fs.xattr_names("/f").unwrap() == [NAME.as_bytes()];
    for fs in [&user, &admin] {
        assert_eq!([set(fs, &value), set(fs, b"x")], [Some(Errno::PERM), Some(Errno::INVAL)]);
    }
    assert_eq!((set(&fs, b""), set(&fs, &value)), (Some(Errno::INVAL), None));
    for fs in [&user, &admin] {
        assert_eq!(errno(fs.removexattr("/f".into(), NAME.as_bytes())), Some(Errno::PERM));
        assert_eq!(fs.xattr("/f", NAME).unwrap(), value);
    }
    fs.set_mode("/f", 0o755).unwrap();
    fs.set_times("/f", SetTime::Now, SetTime::Now).unwrap();
    let file = fs.options().read(true).write(true).open("/f").unwrap();
    file.write_at(b"", 0).unwrap();
    file.read_at(&mut [0; 9], 0).unwrap();
    assert!(has(), "no bytes and no owner have changed");
    let changes: [&dyn Fn(); 8] = [
        &|| assert_eq!(file.write_at(b"x", 0).unwrap(), 1),
        &|| assert_eq!(file.append(b"x").unwrap(), 1),
        &|| file.set_len(100).unwrap(),
        &|| fs.truncate("/f".into(), 100).unwrap(),
        &|| file.fallocate(FallocateMode::Allocate, 0, 100).unwrap(),
        &|| fs.chown("/f".into(), None, None).unwrap(),
        &|| fs.chown("/f".into(), Some(0), None).unwrap(),
        &|| assert!(!Kvfs::open(&fs, "/").unwrap().put("f", "value").unwrap()),
    ];
    for (index, change) in changes.iter().enumerate() {
        change();
        assert!(fs.xattr_names("/f").unwrap().is_empty(), "change {index}");
        assert_eq!(set(&fs, &value), None);
    }
    drop(file);
    fs.create_dir("/dir").unwrap();
    fs.setxattr("/dir".into(), NAME.as_bytes(), &value, XattrMode::Set).unwrap();
    fs.chown("/dir".into(), Some(1), Some(1)).unwrap();
    assert_eq!(fs.xattr("/dir", NAME).unwrap(), value, "as on Linux, a directory keeps it");
}

#[test]
fn threads_share_a_file_system() {
    let fs = empty();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                for round in 0..200 {
                    let dir = format!("/d{}", round % 3);
                    let _ = fs.mkdir((&dir).into(), 0o755);
                    let _ = fs.write(format!("{dir}/f{thread}"), "x");
                    let _ = fs.rename_with(
                        (&dir).into(),
                        (&format!("/d{}", (round + 1) % 3)).into(),
                        RenameMode::Replace,
                    );
                    let _ = fs.remove_dir_all(&dir);
                }
            });
        }
    });
    fs.remove_dir_all("/").unwrap();
    assert_eq!(fs.read_dir("/").unwrap().count(), 0);
}

#[test]
fn allocation_drops_set_id_bits_like_a_write() {
    let fs = empty();
    fs.chmod("/".into(), 0o777).unwrap();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    for mode in FallocateMode::ALL {
        fs.write("f", [1; 20_000]).unwrap();
        fs.chmod("f".into(), 0o6777).unwrap();
        fs.options().write(true).open("f").unwrap().fallocate(mode, 4096, 4096).unwrap();
        assert_eq!(fs.stat("f".into()).unwrap().mode, 0o6777, "a call of root keeps the set-id bits");
        user.options().write(true).open("f").unwrap().fallocate(mode, 4096, 4096).unwrap();
        assert_eq!(fs.stat("f".into()).unwrap().mode, 0o777, "{mode:?}");
        fs.unlink("f".into()).unwrap();
    }
}

#[test]
fn failed_append_keeps_set_id_bits() {
    let fs = empty();
    fs.chmod("/".into(), 0o777).unwrap();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    fs.write("f", "").unwrap();
    fs.truncate("f".into(), i64::MAX as u64).unwrap();
    fs.chmod("f".into(), 0o6777).unwrap();
    let file = user.open("f".into(), OpenFlags::WRITE, 0).unwrap();
    assert_eq!(errno(user.append(&file, b"abc")), Some(Errno::FBIG));
    assert_eq!(fs.stat("f".into()).unwrap().mode, 0o6777);
    user.close(file).unwrap();
}

#[test]
fn device_numbers_are_those_of_linux() {
    let fs = empty();
    for (number, device) in [0, 0x103, u64::from(u32::MAX)].into_iter().enumerate() {
        let name = format!("d{number}");
        fs.mknod((&name).into(), Kind::BlockDevice, 0o600, device).unwrap();
        assert_eq!(fs.stat((&name).into()).unwrap().device, device);
    }
    for kind in [Kind::BlockDevice, Kind::CharDevice, Kind::Fifo, Kind::File] {
        assert_eq!(errno(fs.mknod("large".into(), kind, 0o600, 1 << 32)), Some(Errno::INVAL), "{kind:?}");
    }
}

#[test]
fn truncation_to_same_size_sets_times_of_files_with_storage() {
    static NOW: AtomicU64 = AtomicU64::new(1);
    let fs = empty().with_clock(|| Time::new(NOW.fetch_add(1, Ordering::Relaxed) as i64, 0));
    fs.chmod("/".into(), 0o777).unwrap();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    let cases = [
        ("", 0, 0, false),
        ("", 100, 0, false),
        ("", 100, 100, true),
        ("", 5 << 20, 1, true),
        ("bytes", 5, 0, true),
    ];
    for (bytes, size, allocated, moves) in cases {
        fs.write("f", bytes).unwrap();
        fs.truncate("f".into(), size).unwrap();
        if allocated > 0 {
            let file = fs.open("f".into(), OpenFlags::WRITE, 0).unwrap();
            fs.fallocate(&file, FallocateMode::Allocate, size - allocated, allocated).unwrap();
            fs.close(file).unwrap();
        }
        fs.chmod("f".into(), 0o6777).unwrap();
        let before = fs.stat("f".into()).unwrap();
        user.truncate("f".into(), size).unwrap();
        let after = fs.stat("f".into()).unwrap();
        assert_eq!(after.mode, 0o777, "{bytes:?}");
        let case = format!("{bytes:?}, {size} bytes, {allocated} allocated");
        assert_eq!(after.modified != before.modified, moves, "{case}");
        assert_eq!(after.changed != before.changed, moves, "{case}");
        fs.unlink("f".into()).unwrap();
    }
}

#[test]
fn seen_time_moves_with_the_next_change() {
    let fs = empty();
    fs.mkdir("/d".into(), 0o755).unwrap();
    fs.mkdir("/s".into(), 0o755).unwrap();
    let store = crate::Kvfs::open(&fs, "/s").unwrap();
    let (mut file, mut dir, mut value) = (Time::default(), Time::default(), Time::default());
    for round in 0..2000 {
        fs.write("/d/f", [round as u8; 10]).unwrap();
        let now = fs.stat("/d/f".into()).unwrap();
        assert!(now.modified > file, "round {round}: {:?} after {file:?}", now.modified);
        assert!(now.changed == now.modified);
        file = now.modified;
        fs.mknod((&format!("/d/{round}")).into(), Kind::Fifo, 0o600, 0).unwrap();
        let now = fs.stat("/d".into()).unwrap().modified;
        assert!(now > dir, "round {round}: {now:?} after {dir:?}");
        dir = now;
        store.put("k", [round as u8]).unwrap();
        let now = fs.stat("/s/k".into()).unwrap().modified;
        assert!(now > value, "round {round}: {now:?} after {value:?}");
        value = now;
    }
}

#[test]
fn change_times_move_with_every_call_that_sets_them() {
    let fs = empty();
    fs.mkdir("/d".into(), 0o755).unwrap();
    fs.write("/d/f", "").unwrap();
    let file = fs.open("/d/f".into(), OpenFlags::READ | OpenFlags::WRITE, 0).unwrap();
    let mut last = fs.stat(Target::Open(&file)).unwrap().changed;
    let mut moved = |what: &str| {
        let now = fs.stat(Target::Open(&file)).unwrap().changed;
        assert!(now > last, "{what}: {now:?} after {last:?}");
        last = now;
    };
    for _ in 0..50 {
        fs.append(&file, b"more").unwrap();
        moved("append");
        fs.truncate(Target::Open(&file), 1).unwrap();
        moved("ftruncate");
        fs.fallocate(&file, FallocateMode::Allocate, 0, 100).unwrap();
        moved("fallocate");
        fs.chmod(Target::Open(&file), 0o600).unwrap();
        moved("fchmod");
        fs.utimens(Target::Open(&file), SetTime::Now, SetTime::Now).unwrap();
        moved("futimens");
        fs.setxattr(Target::Open(&file), b"user.a", b"1", XattrMode::Set).unwrap();
        moved("fsetxattr");
        fs.removexattr(Target::Open(&file), b"user.a").unwrap();
        moved("fremovexattr");
        fs.hard_link("/d/f", "/d/g").unwrap();
        moved("link");
        fs.unlink("/d/g".into()).unwrap();
        moved("unlink");
        fs.rename_with("/d/f".into(), "/d/h".into(), RenameMode::Replace).unwrap();
        moved("rename");
        fs.rename_with("/d/h".into(), "/f".into(), RenameMode::Replace).unwrap();
        moved("rename to another directory");
        fs.rename_with("/f".into(), "/d/f".into(), RenameMode::Replace).unwrap();
        moved("rename back");
    }
    fs.close(file).unwrap();
}

#[test]
fn times_of_files_follow_the_order_of_writes() {
    let fs = empty();
    let modified = |name: &str| {
        // `stat` would note that a caller has seen the time, so this test reads the attributes from the
        // engine.
        let id = fs.engine().lookup(fs.engine().root(), name.as_bytes()).unwrap().unwrap();
        fs.engine().attributes(id).unwrap().modified
    };
    let mut last = Time::default();
    for round in 0..2000 {
        let name = ["a", "b"][round % 2];
        fs.write(name, [1]).unwrap();
        assert!(modified(name) >= last, "round {round}: {:?} after {last:?}", modified(name));
        last = modified(name);
        if round % 3 == 0 {
            // A change of this file in the same tick of the coarse clock now needs a fine stamp. A change of
            // the other file does not.
            fs.stat(name.into()).unwrap();
        }
    }
}

#[test]
fn rules_protect_links_and_files_in_shared_directories() {
    let plain = empty();
    plain.mkdir("/tmp".into(), 0o1777).unwrap();
    plain.chmod("/tmp".into(), 0o1777).unwrap();
    plain.write("/target", "").unwrap();
    plain.chmod("/target".into(), 0o666).unwrap();
    let of = |fs: &Pxfs<Model>, uid| fs.with_credentials(Credentials::new(uid, uid, &[]));
    let trap = of(&plain, 1);
    trap.symlink("/target".as_ref(), "/tmp/link".into()).unwrap();
    trap.symlink("/tmp/link".as_ref(), "/tmp/link2".into()).unwrap();
    trap.symlink("/".as_ref(), "/tmp/up".into()).unwrap();
    trap.write("/tmp/file", "").unwrap();
    trap.chmod("/tmp/file".into(), 0o666).unwrap();
    let create = OpenFlags::WRITE | OpenFlags::CREATE;
    let opened = |fs: &Pxfs<Model>, path: &str, flags| {
        errno(fs.open(path.into(), flags, 0o600).and_then(|handle| fs.close(handle)))
    };
    let mut rules = plain.rules();
    rules.protected_symlinks = true;
    rules.protected_regular = Sticky::WritableByAll;
    let guarded = plain.with_rules(rules);
    for uid in [0, 2] {
        let (free, safe) = (of(&plain, uid), of(&guarded, uid));
        for path in ["/tmp/link", "/tmp/link2", "/tmp/up"] {
            assert_eq!(errno(free.stat(path.into())), None, "{path}");
            assert_eq!(errno(safe.stat(path.into())), Some(Errno::ACCESS), "{path}");
            assert_eq!(errno(safe.stat(Target::NoFollow(path.into()))), None, "{path}");
        }
        assert_eq!(errno(safe.stat("/tmp/up/".into())), Some(Errno::ACCESS));
        assert_eq!(
            errno(safe.stat("/tmp/up/target".into())),
            None,
            "only the last link of a path is protected"
        );
        assert_eq!(opened(&safe, "/tmp/link", create), Some(Errno::ACCESS));
        assert_eq!(opened(&safe, "/tmp/file", create), Some(Errno::ACCESS));
        assert_eq!(opened(&safe, "/tmp/file", OpenFlags::WRITE), None);
        assert_eq!(opened(&free, "/tmp/file", create), None);
    }
    assert_eq!(errno(of(&guarded, 1).stat("/tmp/link2".into())), None, "the owner of a link may follow it");
    assert_eq!(opened(&of(&guarded, 1), "/tmp/file", create), None);
}

#[test]
fn hard_links_are_protected_unless_that_is_off() {
    let fs = empty();
    fs.chmod("/".into(), 0o777).unwrap();
    fs.write("file", "").unwrap();
    fs.chmod("file".into(), 0o644).unwrap();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    assert_eq!(errno(user.hard_link("file", "name")), Some(Errno::PERM));
    assert_eq!(errno(user.with_rules(AccessRules::NONE).hard_link("file", "name")), None);
}

#[test]
fn handle_of_another_volume_is_refused() {
    let (mine, other) = (empty(), empty());
    for fs in [&mine, &other] {
        fs.create_dir("/d").unwrap();
        fs.write("/d/f", "x").unwrap();
    }
    let file = mine.open("/d/f".into(), OpenFlags::READ | OpenFlags::WRITE, 0).unwrap();
    let dir = mine.open("/d".into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0).unwrap();
    for refused in [
        errno(other.read_at(&file, &mut [0], 0)),
        errno(other.write_at(&file, b"y", 0)),
        errno(other.append(&file, b"y")),
        errno(other.fallocate(&file, FallocateMode::Allocate, 0, 1)),
        errno(other.seek(&file, 0, Whence::Data)),
        errno(other.fsync(&file)),
        errno(other.list(&dir, 0, &mut |_| true)),
        errno(other.stat(Target::Open(&file))),
        errno(other.truncate(Target::Open(&file), 0)),
        errno(other.chmod(Target::Open(&file), 0)),
        errno(other.setxattr(Target::Open(&file), b"user.a", b"", XattrMode::Set)),
        errno(other.link(Target::Open(&file), "/new".into())),
    ] {
        assert_eq!(refused, Some(Errno::BADF));
    }
    for refused in [
        errno(other.stat((&dir, "f").into())),
        errno(other.open((&dir, "f").into(), OpenFlags::READ, 0)),
        errno(other.unlink((&dir, "f").into())),
        errno(other.rename_with((&dir, "f").into(), "/new".into(), RenameMode::Replace)),
        errno(other.rename_with("/d/f".into(), (&dir, "new").into(), RenameMode::Replace)),
    ] {
        assert_eq!(refused, Some(Errno::XDEV));
    }
    assert_eq!(other.stat((&dir, "/d/f").into()).unwrap().size, 1, "the path begins at the root");
    assert_eq!(errno(other.close(file)), Some(Errno::BADF));

    let same = Pxfs::new(Arc::clone(mine.engine()), Credentials::new(1, 1, &[]));
    assert_eq!(same.stat((&dir, "f").into()).unwrap().size, 1);
    same.close(dir).unwrap();
}

#[test]
fn view_past_the_end_is_empty() {
    let fs = empty();
    fs.write("f", [1; 100]).unwrap();
    fs.create_dir("d").unwrap();
    let (file, dir, pin) = (fs.open_file("f").unwrap(), fs.open_file("d").unwrap(), fs.pin());
    for start in [100, 101, 200, i64::MAX as u64] {
        assert!(file.view(start.., &pin).unwrap().is_empty());
        assert!(file.pieces(start.., &pin).next().is_none());
    }
    assert_eq!(&file.view(99.., &pin).unwrap()[..], [1]);
    assert_eq!(errno(dir.view(.., &pin)), Some(Errno::ISDIR));
    assert_eq!(errno(dir.pieces(200.., &pin).next().unwrap()), Some(Errno::ISDIR));
}

#[test]
fn temporary_file_has_no_name_until_it_is_linked() {
    let fs = empty();
    fs.mkdir("/d".into(), 0o775).unwrap();
    fs.chown("/d".into(), None, Some(7)).unwrap();
    fs.chmod("/d".into(), 0o2775).unwrap();
    let before = fs.metadata("/d").unwrap();
    let file = fs.options().read(true).write(true).temporary(true).mode(0o640).open("/d").unwrap();
    file.write_all_at(b"blue", 0).unwrap();
    let stat = file.metadata().unwrap();
    assert_eq!((stat.links, stat.gid, stat.mode, stat.len()), (0, 7, 0o640, 4), "as a new file of /d");
    assert_eq!(fs.metadata("/d").unwrap(), before, "the directory does not change");
    assert_eq!(fs.read_dir("/d").unwrap().count(), 0);
    file.link_at("/d/egg").unwrap();
    assert_eq!((file.metadata().unwrap().links, fs.read("/d/egg").unwrap()), (1, b"blue".to_vec()));
    assert_eq!(errno(file.link_at("/d/egg")), Some(Errno::EXIST));
    file.link_at("/other").unwrap();
    fs.remove_file("/d/egg").unwrap();
    fs.remove_file("/other").unwrap();
    assert_eq!(errno(file.link_at("/again")), Some(Errno::NOENT), "it has lost its last name");
}

#[test]
fn temporary_file_follows_the_flags_of_its_open() {
    let fs = empty();
    fs.write("/file", "x").unwrap();
    fs.mkdir("/d".into(), 0o755).unwrap();
    fs.symlink("d".as_ref(), "/link".into()).unwrap();
    let open = |path: &str, flags| fs.open(path.into(), OpenFlags::TEMPORARY | flags, 0o600);
    assert_eq!(errno(open("/d", OpenFlags::READ)), Some(Errno::INVAL));
    assert_eq!(errno(open("/d", OpenFlags::WRITE | OpenFlags::CREATE)), Some(Errno::INVAL));
    assert_eq!(errno(open("/file", OpenFlags::WRITE)), Some(Errno::NOTDIR));
    assert_eq!(errno(open("/none", OpenFlags::WRITE)), Some(Errno::NOENT));
    assert_eq!(errno(open("/link", OpenFlags::WRITE | OpenFlags::NOFOLLOW)), Some(Errno::NOTDIR));
    fs.close(open("/link", OpenFlags::WRITE).unwrap()).unwrap();
    let never = fs.options().write(true).temporary(true).create_new(true).open("/d").unwrap();
    assert_eq!(errno(never.link_at("/name")), Some(Errno::NOENT), "O_EXCL");
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    let flags = OpenFlags::TEMPORARY | OpenFlags::WRITE;
    assert_eq!(errno(user.open("/d".into(), flags, 0o600)), Some(Errno::ACCESS));
    fs.chmod("/d".into(), 0o777).unwrap();
    let own = user.options().write(true).temporary(true).mode(0).open("/d").unwrap();
    own.write_all_at(b"its open lets it write", 0).unwrap();
    own.link_at("/d/own").unwrap();
    let dir = fs.options().read(true).open("/d").unwrap();
    assert_eq!(errno(dir.link_at("/dir")), Some(Errno::PERM));
}

#[test]
fn rename_leaves_a_whiteout_of_its_user() {
    let fs = empty();
    fs.mkdir("/d".into(), 0o777).unwrap();
    fs.chmod("/d".into(), 0o777).unwrap();
    let user = fs.with_credentials(Credentials::new(1, 2, &[]));
    user.write("/d/a", "blue").unwrap();
    user.rename_with("/d/a".into(), "/d/b".into(), RenameMode::Whiteout).unwrap();
    let whiteout = fs.metadata("/d/a").unwrap();
    assert_eq!((whiteout.kind, whiteout.device, whiteout.mode, whiteout.links), (Kind::CharDevice, 0, 0, 1));
    assert_eq!((whiteout.uid, whiteout.gid), (1, 2));
    assert_eq!(user.read("/d/b").unwrap(), b"blue");
    let to_b = |mode| fs.rename_with("/d/a".into(), "/d/b".into(), mode);
    assert_eq!(errno(to_b(RenameMode::NoReplaceWhiteout)), Some(Errno::EXIST));
    fs.hard_link("/d/b", "/d/c").unwrap();
    fs.rename_with("/d/b".into(), "/d/c".into(), RenameMode::Whiteout).unwrap();
    assert_eq!(fs.read("/d/b").unwrap(), b"blue", "two names of one file stay, without a whiteout");
    to_b(RenameMode::Whiteout).unwrap();
    assert_eq!(fs.metadata("/d/b").unwrap().inode, whiteout.inode, "a whiteout moves as any other object");
    assert_eq!(fs.metadata("/d/a").unwrap().kind, Kind::CharDevice);
    fs.chmod("/d".into(), 0o755).unwrap();
    let refused = user.rename_with("/d/c".into(), "/d/e".into(), RenameMode::Whiteout);
    assert_eq!(errno(refused), Some(Errno::ACCESS));
}
