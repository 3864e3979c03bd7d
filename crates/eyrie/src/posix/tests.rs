//! Tests that calls give the errors that the documentation promises, with the promised errno, path and
//! effects.

use std::cell::RefCell;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use eyrie_engine::model::Model;
use eyrie_engine::{FallocateMode, InodeFlags, Kind, RenameMode, Time, XattrMode};

use super::*;
use crate::pxfs::tests::empty;
use crate::{Credentials, Errno, Error, Host, Kvfs, LockKind, LockWait, Pxfs, Result};

/// The largest offset, and the largest size of a file.
const MOST: u64 = i64::MAX as u64;

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// Makes calls with ranges near the largest offset on an empty file and on a directory. Returns each call
/// with its count or its errno.
fn calls_near_the_largest_offset<P: Posix>(fs: &P) -> Vec<(String, std::result::Result<u64, Errno>)> {
    let mut answers = Vec::new();
    let mut note = |call: String, result: Result<u64>| {
        answers.push((call, result.map_err(|error| error.errno())));
    };
    let open = |path: &str, flags| fs.open(path.into(), flags, 0o600).unwrap();
    let (read, write) = (OpenFlags::READ, OpenFlags::WRITE);
    fs.mkdir("d".into(), 0o700).unwrap();
    let files = [
        ("both", open("f", read | write | OpenFlags::CREATE)),
        ("reading", open("f", read)),
        ("writing", open("f", write)),
        ("appending", open("f", write | OpenFlags::APPEND)),
        ("directory", open("d", read | OpenFlags::DIRECTORY)),
    ];
    let file = &files[0].1;
    for (name, handle) in &files {
        for (offset, length) in [
            (MOST, 0),
            (MOST, 1),
            (MOST - 1, 1),
            (MOST - 1, 2),
            (MOST + 1, 0),
            (MOST + 1, 1),
            (u64::MAX, 0),
            (u64::MAX, 2),
        ] {
            let range = format!("{name} {offset:#x} {length}");
            let mut bytes = vec![1; length];
            note(format!("read {range}"), fs.read_at(handle, &mut bytes, offset).map(|count| count as u64));
            note(format!("write {range}"), fs.write_at(handle, &bytes, offset).map(|count| count as u64));
            fs.truncate(Target::Open(file), 0).unwrap();
        }
        for size in [MOST, MOST + 1, u64::MAX] {
            note(format!("set_len {name} {size:#x}"), fs.truncate(Target::Open(handle), size).map(|()| 0));
            fs.truncate(Target::Open(file), 0).unwrap();
        }
        for whence in [Whence::Data, Whence::Hole] {
            for offset in [0, 1, MOST, MOST + 1, u64::MAX] {
                note(format!("seek {name} {offset:#x}"), fs.seek(handle, offset, whence));
            }
        }
        for mode in [FallocateMode::Allocate, FallocateMode::KeepSize, FallocateMode::PunchHole] {
            for (offset, length) in
                [(0, 0), (MOST, 1), (1, MOST), (MOST - 4095, 4096), (MOST + 1, 1), (0, MOST + 1)]
            {
                let range = format!("{name} {mode:?} {offset:#x} {length:#x}");
                note(format!("fallocate {range}"), fs.fallocate(handle, mode, offset, length).map(|()| 0));
            }
        }
    }
    for path in ["f", "d", "none"] {
        for size in [MOST, MOST + 1, u64::MAX] {
            note(format!("truncate {path} {size:#x}"), fs.truncate(path.into(), size).map(|()| 0));
        }
    }
    for size in [MOST, MOST - 1] {
        fs.truncate(Target::Open(file), size).unwrap();
        for length in [2, 0, 1] {
            let count = fs.append(&files[3].1, &vec![1; length]).map(|count| count as u64);
            note(format!("append {length} to {size:#x}"), count);
        }
    }
    for (_, handle) in files {
        fs.close(handle).unwrap();
    }
    answers
}

#[test]
fn ranges_past_the_largest_offset_fail_as_on_tmpfs() {
    let answers = calls_near_the_largest_offset(&empty());
    let find = |call: &str| answers.iter().find(|(name, _)| name == call).expect("the call was made").1;
    assert_eq!(find("read both 0x7fffffffffffffff 1"), Err(Errno::INVAL));
    assert_eq!(find("write both 0x7fffffffffffffff 1"), Err(Errno::INVAL));
    assert_eq!(find("fallocate both Allocate 0x1 0x7fffffffffffffff"), Err(Errno::FBIG));
    assert_eq!(find("seek both 0x8000000000000000"), Err(Errno::NXIO));
    assert_eq!(find("append 1 to 0x7fffffffffffffff"), Err(Errno::FBIG));
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let stat = rustix::fs::statfs(dir.path()).expect("the directory exists");
    if stat.f_type != 0x0102_1994 {
        eprintln!("skipped: there is no tmpfs to compare with");
        return;
    }
    let host = calls_near_the_largest_offset(&Host::new(dir.path()).expect("the directory exists"));
    for (ours, theirs) in answers.iter().zip(&host) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(answers.len(), host.len());
}

#[test]
fn append_writes_what_fits_while_another_thread_shortens_the_file() {
    let fs = empty();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let (file, other) =
        (fs.open("f".into(), flags, 0o600).unwrap(), fs.open("f".into(), flags, 0o600).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for size in [MOST - 2, 0] {
                        fs.truncate(Target::Open(&other), size).unwrap();
                    }
                }
            });
        }
        let counts = (0..400_000).map(|_| {
            // At least two bytes fit at any time, because only this thread appends.
            fs.truncate(Target::Open(&file), 0).unwrap();
            fs.append(&file, b"abc")
        });
        let wrong: Vec<_> = counts.filter(|count| !matches!(count, Ok(2 | 3))).collect();
        done.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), wrong.first());
    });
    fs.close(file).unwrap();
    fs.close(other).unwrap();
}

#[test]
fn append_writes_what_fits_after_another_thread_lengthened_the_file() {
    thread_local! {
        /// Number of calls of the clock until it makes the file `f` one byte longer, and the file system that
        /// has `f`.
        static LONGER: RefCell<Option<(u32, Pxfs<Model>)>> = const { RefCell::new(None) };
    }
    /// Works as a clock that changes the file in the middle of a call.
    fn clock() -> Time {
        LONGER.with_borrow_mut(|longer| {
            if let Some((calls, fs)) = longer {
                *calls -= 1;
                if *calls == 0 {
                    fs.truncate("f".into(), MOST - 1).unwrap();
                    *longer = None;
                }
            }
        });
        Time::new(1, 0)
    }
    let plain = empty();
    let fs = plain.with_clock(clock);
    fs.write("f", "").unwrap();
    fs.truncate("f".into(), MOST - 2).unwrap();
    let file = fs.open("f".into(), OpenFlags::WRITE, 0).unwrap();
    // The first stamp is that of the append of all bytes, which fails. The second is that of the bytes that
    // fit below the largest size.
    LONGER.set(Some((2, plain)));
    assert_eq!(fs.append(&file, b"abc").unwrap(), 1);
    assert_eq!(fs.stat("f".into()).unwrap().size, MOST);
    fs.close(file).unwrap();
}

#[test]
fn each_option_of_an_open_is_taken_back_alone() {
    let fs = empty();
    assert_eq!(errno(fs.options().write(true).create_new(false).open("f")), Some(Errno::NOENT));
    fs.options().write(true).create(true).create_new(false).open("f").unwrap();
    fs.options().write(true).create(true).create_new(true).create_new(false).open("f").unwrap();
    let new = fs.options().write(true).create_new(true).create(false);
    assert_eq!(errno(new.clone().open("f")), Some(Errno::EXIST));
    new.open("g").unwrap();
    let file = fs.options().append(true).write(false).open("f").unwrap();
    assert_eq!(file.append(b"1").unwrap(), 1);
    let file = fs.options().read(true).append(true).append(false).open("f").unwrap();
    assert_eq!(errno(file.write_at(b"2", 0)), Some(Errno::BADF));
    assert_eq!(errno(fs.options().append(true).append(false).open("f")), Some(Errno::INVAL));
    assert_eq!(fs.read("f").unwrap(), b"1");
}

#[test]
fn every_error_of_posix_ext_has_its_path() {
    let fs = empty();
    fs.write("/file", "x").unwrap();
    let path = Path::new("/file/below");
    let of = |error: Option<Error>| {
        let error = error.expect("a file has nothing below it");
        assert_eq!((error.errno(), error.path()), (Errno::NOTDIR, Some(path)), "{error}");
        assert!(error.to_string().contains(" /file/below: Not a directory"), "{error}");
    };
    of(fs.open_file(path).err());
    of(fs.create_file(path).err());
    of(fs.read(path).err());
    of(fs.write(path, "x").err());
    of(fs.metadata(path).err());
    of(fs.symlink_metadata(path).err());
    of(fs.xattr(path, "user.a").err());
    of(fs.symlink_xattr(path, "user.a").err());
    of(fs.xattr_names(path).err());
    of(fs.symlink_xattr_names(path).err());
    of(fs.create_dir(path).err());
    of(fs.create_dir_all(path).err());
    of(fs.remove_file(path).err());
    of(fs.remove_dir(path).err());
    of(fs.remove_dir_all(path).err());
    of(fs.read_dir(path).err());
    of(fs.copy(path, "/new").err());
    of(fs.copy("/file", path).err());
    of(fs.reflink(path, "/new").err());
    of(fs.reflink("/file", path).err());
    of(fs.rename(path, "/new").err());
    of(fs.hard_link(path, "/new").err());
    of(fs.hard_link("/file", path).err());
    of(fs.read_link(path).err());
    of(fs.canonicalize(path).err());
    of(fs.set_mode(path, 0o600).err());
    of(fs.set_times(path, SetTime::Now, SetTime::Omit).err());
    of(fs.read_to_string(path).err());
    of(fs.dir(path).err());
    of(fs.walk(path).err());
    of(Kvfs::open(&fs, path).err());
    assert!(!fs.exists("/new").unwrap());
    assert!(!fs.exists(path).unwrap());
    let long = "n".repeat(256);
    assert_eq!(fs.exists(&long).unwrap_err().path(), Some(Path::new(&long)));
    let user = fs.with_credentials(crate::Credentials::new(1, 1, &[]));
    let error = user.remove_dir_all("/file").unwrap_err();
    assert_eq!(error.to_string(), "unlink /file: Permission denied", "the root of the walk has its own path");
}

#[test]
fn every_error_of_a_file_has_the_path_of_its_open() {
    let fs = empty();
    fs.write("/file", "x").unwrap();
    let file = fs.options().path_only(true).open("/file").unwrap();
    fs.rename("/file", "/new").unwrap();
    let of = |error: Option<Error>| {
        let error = error.expect("a handle of a path does no more than name its object");
        assert_eq!((error.errno(), error.path()), (Errno::BADF, Some(Path::new("/file"))), "{error}");
    };
    of(file.inode_flags().err());
    of(file.set_inode_flags(InodeFlags::empty()).err());
    of(file.read_at(&mut [0], 0).err());
    of(file.write_at(b"1", 0).err());
    of(file.write_all_at(b"1", 0).err());
    of(file.append(b"1").err());
    of(file.set_len(0).err());
    of(file.fallocate(FallocateMode::Allocate, 0, 1).err());
    of(file.set_mode(0o600).err());
    of(file.set_times(SetTime::Now, SetTime::Omit).err());
    of(file.sync_all().err());
    of(file.sync_data().err());
    of(file.lock().err());
    of(file.lock_shared().err());
    of(file.unlock().err());
    of(file.lock_range(.., LockKind::Shared, LockWait::NO).err());
    of(file.unlock_range(..).err());
    of(file.find_range_lock(.., LockKind::Shared).err());
    let pin = fs.pin();
    of(file.view(.., &pin).err());
    of(file.pieces(.., &pin).next().and_then(Result::err));
    let other = fs.open_file("/new").unwrap();
    // Either file may be the cause of these errors.
    assert_eq!(file.copy_range((&other, 0), 0, 1).unwrap_err().path(), None);
    assert_eq!(file.clone_range((&other, 0), 0, 1).unwrap_err().path(), None);
    let handle = fs.open("/new".into(), OpenFlags::READ, 0).unwrap();
    let file = crate::File::from_handle(fs, handle, false);
    assert_eq!(file.write_at(b"1", 0).unwrap_err().path(), None);
}

#[test]
fn create_dir_all_keeps_the_directories_before_an_error() {
    let fs = empty();
    let error = fs.create_dir_all(format!("/a/b/{}", "n".repeat(256))).unwrap_err();
    assert_eq!(error.errno(), Errno::NAMETOOLONG);
    fs.create_dir_all("/a/b").unwrap();
    fs.write("/a/file", "").unwrap();
    assert_eq!(errno(fs.create_dir_all("/a/file")), Some(Errno::EXIST));
    assert_eq!(errno(fs.create_dir_all("/a/file/c")), Some(Errno::NOTDIR));
}

#[test]
fn remove_dir_all_keeps_removed_entries_removed_after_an_error() {
    let fs = empty();
    fs.create_dir_all("/t/open").unwrap();
    fs.create_dir_all("/t/shut").unwrap();
    fs.write("/t/open/f", "").unwrap();
    fs.write("/t/shut/f", "").unwrap();
    fs.chmod("/t".into(), 0o777).unwrap();
    fs.chmod("/t/open".into(), 0o777).unwrap();
    fs.chmod("/t/shut".into(), 0o755).unwrap();
    let user = fs.with_credentials(crate::Credentials::new(1, 1, &[]));
    let error = user.remove_dir_all("/t").unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::ACCESS, Some(Path::new("/t/shut/f"))));
    assert!(!fs.exists("/t/open").unwrap() && fs.exists("/t/shut/f").unwrap());
}

#[test]
fn root_stays_by_each_of_its_paths() {
    let fs = empty();
    for path in ["/", "//", "/.", ".", "./"] {
        fs.create_dir_all("/nest/in").unwrap();
        fs.write("/nest/egg", "").unwrap();
        let nest = fs.dir("/nest").unwrap();
        nest.remove_dir_all(path).unwrap();
        assert_eq!(nest.read_dir(path).unwrap().count(), 0, "{path}");
        fs.remove_dir_all(path).unwrap();
        assert_eq!(fs.read_dir(path).unwrap().count(), 0, "{path}");
    }
}

#[test]
fn calls_on_the_wrong_kind_of_file_give_the_promised_errors() {
    let fs = empty();
    fs.mkdir("/d".into(), 0o777).unwrap();
    fs.write("/f", "x").unwrap();
    fs.mknod("/p".into(), Kind::Fifo, 0o666, 0).unwrap();
    fs.symlink("f".as_ref(), "/l".into()).unwrap();
    let dir = fs.open("/d".into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0).unwrap();
    let file = fs.open("/f".into(), OpenFlags::READ, 0).unwrap();
    assert_eq!(errno(fs.stat((&file, "inside").into())), Some(Errno::NOTDIR));
    assert_eq!(errno(fs.read_at(&dir, &mut [0], 0)), Some(Errno::ISDIR));
    assert_eq!(errno(fs.truncate(Target::Open(&dir), 0)), Some(Errno::INVAL));
    assert_eq!(errno(fs.truncate(Target::Open(&file), 0)), Some(Errno::INVAL), "it is not open for writing");
    assert_eq!(errno(fs.seek(&dir, 0, Whence::Data)), Some(Errno::INVAL));
    assert_eq!(errno(fs.list(&file, 0, &mut |_| true)), Some(Errno::NOTDIR));
    for (path, expected) in [("/d", Errno::ISDIR), ("/p", Errno::INVAL)] {
        assert_eq!(errno(fs.truncate(path.into(), 0)), Some(expected), "{path}");
    }
    assert_eq!(errno(fs.unlink("/d".into())), Some(Errno::ISDIR));
    assert_eq!(errno(fs.rmdir("/f".into())), Some(Errno::NOTDIR));
    assert_eq!(errno(fs.readlink("/f".into())), Some(Errno::INVAL));
    assert_eq!(errno(fs.mknod("/new".into(), Kind::Directory, 0, 0)), Some(Errno::PERM));
    assert_eq!(errno(fs.mknod("/new".into(), Kind::Symlink, 0, 0)), Some(Errno::INVAL));
    let no_follow = fs.options().read(true).no_follow(true);
    assert_eq!(errno(no_follow.open("/l")), Some(Errno::LOOP));
    assert_eq!(errno(fs.options().read(true).directory(true).open("/f")), Some(Errno::NOTDIR));
    assert_eq!(
        errno(fs.setxattr(Target::NoFollow("/l".into()), b"user.a", b"", XattrMode::Set)),
        Some(Errno::PERM)
    );
    fs.rmdir("/d".into()).unwrap();
    assert_eq!(errno(fs.list(&dir, 0, &mut |_| true)), Some(Errno::NOENT));
    fs.close(dir).unwrap();
    fs.close(file).unwrap();
}

#[test]
fn reads_and_writes_through_std_keep_the_errno() {
    use std::io::{Read, Seek, SeekFrom, Write};
    let fs = empty();
    fs.write("/f", "x").unwrap();
    let mut file = fs.open_file("/f").unwrap();
    let raw = |error: std::io::Error| error.raw_os_error().map(Errno::from_raw_os_error);
    assert_eq!(file.write(b"y").err().and_then(raw), Some(Errno::BADF));
    let mut writer = fs.options().append(true).open("/f").unwrap();
    assert_eq!(writer.read(&mut [0]).err().and_then(raw), Some(Errno::BADF));
    writer.set_len(MOST).unwrap();
    assert_eq!(writer.write(b"y").err().and_then(raw), Some(Errno::FBIG));
    for to in [SeekFrom::Start(1 << 63), SeekFrom::Current(-1), SeekFrom::End(1)] {
        assert_eq!(file.seek(to).err().and_then(raw), Some(Errno::INVAL), "{to:?}");
    }
    file.seek(SeekFrom::Start(MOST)).unwrap();
    assert_eq!(file.read(&mut [0]).err().and_then(raw), Some(Errno::INVAL), "as on tmpfs");
    let question = || -> std::io::Result<()> { Ok(fs.create_dir("/f")?) };
    assert_eq!(question().err().and_then(raw), Some(Errno::EXIST));
    assert_eq!(question().unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

/// Makes calls on names in an open directory, on open files, and on links that are not followed. Returns each
/// call with its errno.
fn calls_on_every_kind_of_target<P: Posix + Clone>(fs: &P) -> Vec<(String, Option<Errno>)> {
    let mut answers = Vec::new();
    let (read, write) = (OpenFlags::READ, OpenFlags::WRITE);
    fs.create_dir_all("/d/sub").unwrap();
    fs.write("/top", "top").unwrap();
    fs.write("/d/file", "file").unwrap();
    fs.symlink("file".as_ref(), "/d/link".into()).unwrap();
    fs.symlink("none".as_ref(), "/d/broken".into()).unwrap();
    let dir = fs.open("/d".into(), read | OpenFlags::DIRECTORY, 0).unwrap();
    let removed = {
        fs.create_dir("/gone").unwrap();
        let removed = fs.open("/gone".into(), read | OpenFlags::DIRECTORY, 0).unwrap();
        fs.remove_dir("/gone").unwrap();
        removed
    };
    let file = fs.open((&dir, "file").into(), read | write, 0).unwrap();
    let orphan = fs.open((&dir, "orphan").into(), write | OpenFlags::CREATE, 0o600).unwrap();
    fs.unlink((&dir, "orphan").into()).unwrap();
    let dirs = [("dir", &dir), ("removed", &removed), ("file", &file)];
    for (at, handle) in dirs {
        for name in ["file", "sub/../file", "../top", "/top", "link", "broken", "none", ".", "..", ""] {
            // A removed directory has no parent, so a path through its `..` fails with `ESTALE` in a volume.
            if at == "removed" && name.contains("..") {
                continue;
            }
            let mut note = |call: &str, result: Result<()>| {
                answers.push((format!("{call} {at} {name}"), errno(result)));
            };
            let path = PathAt { dir: Some(handle), path: name.as_ref() };
            for (how, target) in [("", Target::Follow(path)), (" nofollow", Target::NoFollow(path))] {
                note(&format!("stat{how}"), fs.stat(target).map(drop));
                note(&format!("chmod{how}"), fs.chmod(target, 0o700));
                note(&format!("chown{how}"), fs.chown(target, None, None));
                note(&format!("utimens{how}"), fs.utimens(target, SetTime::Now, SetTime::Now));
                note(&format!("access{how}"), fs.access(target, Access::READ));
                note(&format!("statvfs{how}"), fs.statvfs(target).map(drop));
                note(&format!("truncate{how}"), fs.truncate(target, 3));
                note(&format!("listxattr{how}"), fs.listxattr(target, &mut []).map(drop));
                note(&format!("link{how}"), fs.link(target, (&dir, "new").into()));
                let _ = fs.unlink((&dir, "new").into());
            }
            note("readlink", fs.readlink(Target::NoFollow(path)).map(drop));
            note("open", fs.open(path, read, 0).and_then(|opened| fs.close(opened)));
            note("mkdir", fs.mkdir(path, 0o700));
            note("symlink", fs.symlink("x".as_ref(), path));
            note("mknod", fs.mknod(path, Kind::Fifo, 0o600, 0));
            note("rmdir", fs.rmdir(path));
            note("rename", fs.rename_with(path, (&dir, "moved").into(), RenameMode::Replace));
            let _ = fs.rename_with((&dir, "moved").into(), path, RenameMode::Replace);
        }
    }
    for (name, handle) in [("dir", &dir), ("removed", &removed), ("file", &file), ("orphan", &orphan)] {
        let mut note =
            |call: &str, result: Result<()>| answers.push((format!("{call} {name}"), errno(result)));
        let target = Target::Open(handle);
        note("stat", fs.stat(target).map(drop));
        note("statvfs", fs.statvfs(target).map(drop));
        note("chmod", fs.chmod(target, 0o700));
        note("chown", fs.chown(target, None, None));
        note("utimens", fs.utimens(target, SetTime::Now, SetTime::Omit));
        note("truncate", fs.truncate(target, 2));
        note("listxattr", fs.listxattr(target, &mut []).map(drop));
        note("link", fs.link(target, (&dir, &format!("{name}-linked")).into()));
        note("fdatasync", fs.fdatasync(handle));
    }
    let inode = |target| fs.stat(target).unwrap().inode;
    assert_eq!(inode(Target::NoFollow((&dir, "file-linked").into())), inode(Target::Open(&file)));
    for handle in [dir, removed, file, orphan] {
        fs.close(handle).unwrap();
    }
    answers
}

#[test]
fn targets_have_the_results_of_the_kernel() {
    let fs = empty();
    let answers = calls_on_every_kind_of_target(&fs);
    let find = |call: &str| answers.iter().find(|(name, _)| name == call).expect("the call was made").1;
    assert_eq!(find("stat dir file"), None);
    assert_eq!(find("stat dir /top"), None);
    assert_eq!(find("stat file file"), Some(Errno::NOTDIR));
    assert_eq!(find("stat removed file"), Some(Errno::NOENT));
    assert_eq!(find("chmod nofollow dir link"), Some(Errno::OPNOTSUPP));
    assert_eq!(find("truncate nofollow dir link"), Some(Errno::LOOP));
    assert_eq!(find("link orphan"), Some(Errno::NOENT));
    // The calls work in the same way through a trait object, and in a directory as a file system.
    let object: &dyn Posix<Handle = crate::pxfs::Handle> = &empty();
    assert_eq!(answers, calls_on_every_kind_of_target(&object));
    let Ok(place) = tempfile::tempdir_in("/dev/shm") else { return };
    let host = Host::new(place.path()).expect("the directory exists");
    for (ours, theirs) in answers.iter().zip(calls_on_every_kind_of_target(&host)) {
        assert_eq!(*ours, theirs);
    }
}

#[test]
fn utimens_that_omits_both_times_does_nothing() {
    let fs = empty();
    fs.write("/file", "old").unwrap();
    let before = fs.stat("/file".into()).unwrap();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    let file = fs.options().read(true).open("/file").unwrap();
    file.set_inode_flags(InodeFlags::IMMUTABLE).unwrap();
    let flagged = fs.stat("/file".into()).unwrap();
    let check = |fs: &dyn Posix<Handle = crate::pxfs::Handle>, name: &str| {
        fs.utimens(name.into(), SetTime::Omit, SetTime::Omit).unwrap();
        fs.utimens(Target::NoFollow(name.into()), SetTime::Omit, SetTime::Omit).unwrap();
    };
    // The kernel does not even look the path up.
    for name in ["/file", "/missing", "/file/below"] {
        check(&fs, name);
        check(&user, name);
    }
    file.set_times(SetTime::Omit, SetTime::Omit).unwrap();
    let after = fs.stat("/file".into()).unwrap();
    assert_eq!((after.accessed, after.modified), (before.accessed, before.modified));
    assert_eq!(after.changed, flagged.changed);
    assert_eq!(errno(user.utimens("/file".into(), SetTime::Omit, SetTime::Now)), Some(Errno::PERM));
    let host = Host::new("/").unwrap();
    host.utimens("/no such file".into(), SetTime::Omit, SetTime::Omit).unwrap();
}

#[test]
fn directory_is_a_file_system() {
    let fs = empty();
    fs.create_dir_all("/a/b").unwrap();
    fs.write("/top", "top").unwrap();
    fs.symlink("/top".as_ref(), "/a/absolute".into()).unwrap();
    let dir = fs.dir("/a").unwrap();
    dir.write("/b/file", "inside").unwrap();
    assert_eq!(fs.read("/a/b/file").unwrap(), b"inside");
    assert_eq!(dir.read("../top").unwrap(), b"top");
    assert_eq!(dir.read("absolute").unwrap(), b"top", "the link begins at the true root");
    assert_eq!(errno(dir.canonicalize("absolute")), Some(Errno::NOENT), "the file lies outside");
    assert_eq!(dir.canonicalize("b/../b/./file").unwrap(), Path::new("/b/file"));
    let handle = dir.open("b".into(), OpenFlags::READ | OpenFlags::DIRECTORY, 0).unwrap();
    let inode = |path: PathAt<'_, _>| dir.stat(Target::Follow(path)).map(|stat| stat.inode);
    let inside = fs.stat("/a/b/file".into()).unwrap().inode;
    assert_eq!(inode((&handle, "file").into()).unwrap(), inside);
    assert_eq!(inode((&handle, "/b/file").into()).unwrap(), inside, "the path begins at the directory");
    assert_eq!(inode((&handle, "//").into()).unwrap(), fs.stat("/a".into()).unwrap().inode);
    assert_eq!(errno(inode((&handle, "/top").into())), Some(Errno::NOENT));
    let whole = crate::Dir::root(&fs);
    assert!(whole.stat(Target::Follow((&handle, "/top").into())).is_ok());
    dir.close(handle).unwrap();
    let below = dir.subdirectory("b").unwrap();
    drop(dir);
    fs.rename("/a/b", "/b").unwrap();
    assert_eq!(below.clone().read_to_string("file").unwrap(), "inside", "the directory stays the same");
    let names: Vec<_> = below.read_dir("/").unwrap().map(|entry| entry.unwrap().name().to_owned()).collect();
    assert_eq!(names, ["file"]);
    assert_eq!(errno(fs.dir("/top").map(drop)), Some(Errno::NOTDIR));
}

#[test]
fn file_in_a_struct_moves_to_threads() {
    use std::io::{Read, Seek, SeekFrom, Write};

    struct Log {
        file: crate::File<Pxfs<Model>>,
    }

    let fs = empty();
    let log = Log { file: fs.options().read(true).write(true).create(true).open("/log").unwrap() };
    drop(fs);
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let file = log.file.try_clone().unwrap();
            std::thread::spawn(move || (0..100).for_each(|_| (&file).write_all(b"0123").unwrap()))
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    // The clones share one position, so no write went over another.
    assert_eq!(log.file.metadata().unwrap().size, 1600);
    assert_eq!((&log.file).stream_position().unwrap(), 1600);
    let mut all = String::new();
    (&log.file).seek(SeekFrom::Start(0)).unwrap();
    (&log.file).read_to_string(&mut all).unwrap();
    assert_eq!(all, "0123".repeat(400));
    let error = log.file.read_exact_at(&mut [0; 2], 1599).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    let clone = log.file.try_clone().unwrap();
    log.file.close().unwrap();
    assert_eq!(clone.read_at(&mut [0; 2], 0).unwrap(), 2, "the clone keeps the file open");
}

#[test]
fn functions_of_std_fs_have_their_results() {
    let fs = empty();
    fs.write("/a", [0xff]).unwrap();
    fs.set_mode("/a", 0o640).unwrap();
    assert_eq!(errno(fs.read_to_string("/a")), Some(Errno::ILSEQ));
    assert_eq!(fs.copy("/a", "/b").unwrap(), 1);
    assert_eq!((fs.read("/b").unwrap(), fs.metadata("/b").unwrap().mode), (vec![0xff], 0o640));
    fs.hard_link("/b", "/c").unwrap();
    assert_eq!(errno(fs.copy("/b", "/c")), Some(Errno::INVAL), "both names lead to one file");
    assert_eq!(fs.read("/c").unwrap(), [0xff], "the bytes are still there");
    assert_eq!(errno(fs.copy("/", "/d")), Some(Errno::INVAL));
    fs.symlink("sub/../c".as_ref(), "/link".into()).unwrap();
    fs.create_dir("/sub").unwrap();
    assert_eq!(fs.read_link("/link").unwrap(), Path::new("sub/../c"));
    assert_eq!(fs.canonicalize("link").unwrap(), Path::new("/c"));
    fs.symlink("loop".as_ref(), "/loop".into()).unwrap();
    assert_eq!(errno(fs.canonicalize("/loop")), Some(Errno::LOOP));
    fs.rename("/b", "/c").unwrap();
    assert!(fs.exists("/b").unwrap(), "both names lead to one file, so both stay");
    fs.rename("/a", "/sub/a").unwrap();
    assert_eq!(fs.walk("/sub").unwrap().count(), 3);
}

#[test]
fn copies_have_no_set_id_bits() {
    let fs = empty();
    fs.write("/program", "bytes").unwrap();
    fs.set_mode("/program", 0o6755).unwrap();
    fs.copy("/program", "/copy").unwrap();
    fs.reflink("/program", "/clone").unwrap();
    for path in ["/copy", "/clone"] {
        assert_eq!(fs.metadata(path).unwrap().mode, 0o755, "{path}");
    }
}

/// Two threads append records, each through an open file of its own. After each write the position is the end
/// of the record, whatever the other thread has appended since.
fn appends_move_the_position<P: PosixExt + Send + Sync>(fs: &P) {
    fs.write("log", "").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2_u8 {
            scope.spawn(move || {
                let mut file = fs.options().read(true).append(true).open("log").unwrap();
                for number in 0..3000_u16 {
                    let record = [&[thread; 6][..], &number.to_le_bytes()].concat();
                    file.write_all(&record).unwrap();
                    let end = file.stream_position().unwrap();
                    let mut found = [0; 8];
                    file.read_exact_at(&mut found, end - 8).unwrap();
                    assert_eq!(found, record[..], "the position is behind another record");
                }
            });
        }
    });
    let mut file = fs.options().append(true).open("log").unwrap();
    assert_eq!(file.write(b"").unwrap(), 0);
    assert_eq!(file.stream_position().unwrap(), 0, "an empty write moves no position");
    assert_eq!(fs.append_range(file.handle(), b"end").unwrap(), 48_000..48_003);
    assert_eq!(fs.append_range(file.handle(), b"").unwrap().count(), 0);
}

#[test]
fn append_moves_the_position_to_its_end() {
    appends_move_the_position(&empty());
    let place = tempfile::tempdir().unwrap();
    appends_move_the_position(&Host::new(place.path()).unwrap());
}

#[test]
fn copy_of_a_proc_file_is_whole() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (Path::new("/proc/sys/kernel/pid_max"), place.path().join("copy"));
    crate::Host::new("/").unwrap().copy(from, &to).unwrap();
    assert_eq!(std::fs::read(&to).unwrap(), std::fs::read(from).unwrap());
}

#[test]
fn copy_to_a_device_keeps_its_permission_bits() {
    let host = Host::new("/").unwrap();
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("file");
    std::fs::write(&from, "bytes").unwrap();
    // Even a change to the same bits would move the change time, and would fail for users other than root.
    let before = host.metadata("/dev/null").unwrap();
    host.set_mode(&from, before.mode).unwrap();
    assert_eq!(host.copy(&from, "/dev/null").unwrap(), 5);
    assert_eq!(host.metadata("/dev/null").unwrap().changed, before.changed);
}
