//! Tests of inode flags.

use std::fs;

use eyrie::posix::{Posix, SetTime};
use eyrie::{
    Batch, Capabilities, Condition, Credentials, Errno, FallocateMode, Host, InodeFlags, MediumChoice,
    PosixExt, Target, Volume, XattrMode,
};

use crate::{errno, side_by_side, small_volume};

const NONE: InodeFlags = InodeFlags::empty();
const IMMUTABLE: InodeFlags = InodeFlags::IMMUTABLE;
const APPEND_ONLY: InodeFlags = InodeFlags::APPEND_ONLY;

fn set<P: Posix + Clone>(fs: &P, path: &str, flags: InodeFlags) -> eyrie::Result<()> {
    fs.open_file(path)?.set_inode_flags(flags)
}

fn get<P: Posix + Clone>(fs: &P, path: &str) -> InodeFlags {
    fs.open_file(path).unwrap().inode_flags().unwrap()
}

/// Makes calls that each of the two flags forbids, and returns their errors.
fn forbidden<P: Posix + Clone>(fs: &P, path: &str) -> Vec<Option<Errno>> {
    let target = || Target::Follow(path.into());
    vec![
        errno(fs.options().write(true).open(path)),
        errno(fs.options().write(true).truncate(true).open(path)),
        errno(fs.truncate(target(), 0)),
        errno(fs.chmod(target(), 0o600)),
        errno(fs.chown(target(), Some(1), None)),
        errno(fs.utimens(target(), SetTime::Now, SetTime::Omit)),
        errno(fs.setxattr(target(), b"trusted.a", b"x", XattrMode::Set)),
        errno(fs.hard_link(path, "/link")),
        errno(fs.rename(path, "/moved")),
        errno(fs.rename("/other", path)),
        errno(fs.remove_file(path)),
    ]
}

fn calls_on_flagged_files<P: Posix + Clone>(fs: &P) {
    for path in ["/fixed", "/log", "/other"] {
        fs.write(path, "blue").unwrap();
    }
    let old = fs.options().write(true).open("/fixed").unwrap();
    set(fs, "/fixed", IMMUTABLE).unwrap();
    set(fs, "/log", APPEND_ONLY).unwrap();
    assert_eq!((get(fs, "/fixed"), get(fs, "/log"), get(fs, "/other")), (IMMUTABLE, APPEND_ONLY, NONE));

    assert_eq!(forbidden(fs, "/fixed"), [Some(Errno::PERM); 11]);
    assert_eq!(forbidden(fs, "/log"), [Some(Errno::PERM); 11]);
    assert_eq!(errno(fs.options().append(true).open("/fixed")), Some(Errno::PERM));
    assert_eq!(errno(fs.utimens("/fixed".into(), SetTime::Now, SetTime::Now)), Some(Errno::PERM));
    assert_eq!(errno(fs.utimens("/log".into(), SetTime::Now, SetTime::Now)), None);
    old.write_all_at(b"B", 0).unwrap();
    assert_eq!(fs.read("/fixed").unwrap(), b"Blue", "an open handle keeps its rights");
    let allocated = fs.fallocate(old.handle(), FallocateMode::Allocate, 0, 1);
    assert_eq!(errno(allocated), Some(Errno::PERM));
    let log = fs.options().append(true).open("/log").unwrap();
    log.write_all_at(b" sky", 0).unwrap();
    assert_eq!(fs.read("/log").unwrap(), b"blue sky");
    assert_eq!(errno(log.set_len(0)), Some(Errno::PERM));

    for dir in ["/sealed", "/growing"] {
        fs.create_dir(dir).unwrap();
        fs.write(format!("{dir}/egg"), "x").unwrap();
    }
    set(fs, "/sealed", IMMUTABLE).unwrap();
    set(fs, "/growing", APPEND_ONLY).unwrap();
    assert_eq!(errno(fs.write("/sealed/new", "x")), Some(Errno::PERM));
    assert_eq!(errno(fs.create_dir("/sealed/new")), Some(Errno::PERM));
    fs.write("/sealed/egg", "the file itself has no flag").unwrap();
    fs.write("/growing/new", "x").unwrap();
    for dir in ["/sealed", "/growing"] {
        let egg = format!("{dir}/egg");
        assert_eq!(errno(fs.remove_file(&egg)), Some(Errno::PERM));
        assert_eq!(errno(fs.rename(&egg, "/egg")), Some(Errno::PERM));
        assert_eq!(errno(fs.remove_dir(dir)), Some(Errno::PERM));
    }

    for path in ["/fixed", "/log", "/sealed", "/growing"] {
        set(fs, path, NONE).unwrap();
    }
    fs.remove_file("/fixed").unwrap();
    fs.remove_file("/log").unwrap();
    fs.remove_dir_all("/sealed").unwrap();
    fs.remove_dir_all("/growing").unwrap();
}

#[test]
fn flags_forbid_the_same_calls_as_on_the_host() {
    let _side_by_side = side_by_side();
    let (place, volume) = small_volume();
    calls_on_flagged_files(&volume.files(Credentials::root()));
    let host = place.path().join("host");
    fs::create_dir(&host).unwrap();
    let host = Host::new(host).unwrap();
    host.write("/probe", "").unwrap();
    match set(&host, "/probe", IMMUTABLE).and_then(|()| set(&host, "/probe", NONE)) {
        Ok(()) => calls_on_flagged_files(&host),
        Err(error) => eprintln!("not compared with the host, which sets no flags: {error}"),
    }
}

#[test]
fn only_the_capability_changes_flags() {
    let _side_by_side = side_by_side();
    let (_place, volume) = small_volume();
    let root = volume.files(Credentials::root());
    root.write("/egg", "blue").unwrap();
    root.chown("/egg".into(), Some(1), Some(1)).unwrap();
    let user =
        |capabilities| root.with_credentials(Credentials::new(1, 1, &[]).with_capabilities(capabilities));
    let none = user(Capabilities::empty());
    assert_eq!(errno(set(&none, "/egg", IMMUTABLE)), Some(Errno::PERM));
    assert_eq!(errno(set(&none, "/egg", NONE)), None, "the owner may set the flags that the file has");
    set(&user(Capabilities::LINUX_IMMUTABLE), "/egg", IMMUTABLE).unwrap();
    let other =
        root.with_credentials(Credentials::new(2, 2, &[]).with_capabilities(Capabilities::LINUX_IMMUTABLE));
    assert_eq!(errno(set(&other, "/egg", NONE)), Some(Errno::PERM), "another user's file");
    let all = Capabilities::all() - Capabilities::LINUX_IMMUTABLE;
    assert_eq!(errno(set(&user(all), "/egg", NONE)), Some(Errno::PERM));
}

#[test]
fn flags_forbid_changes_of_keys() {
    let _side_by_side = side_by_side();
    let (_place, volume) = small_volume();
    let files = volume.files(Credentials::root());
    files.create_dir("/store").unwrap();
    let store = volume.store("/store", Credentials::root()).unwrap();
    for key in ["fixed", "log", "free"] {
        store.put(key, "blue").unwrap();
    }
    set(&files, "/store/fixed", IMMUTABLE).unwrap();
    set(&files, "/store/log", APPEND_ONLY).unwrap();
    for key in ["fixed", "log"] {
        let mut batch = Batch::new();
        batch.put("free", "green");
        batch.erase(key);
        let refused = [
            errno(store.put(key, "red")),
            errno(store.put_if(key, "red", Condition::Present)),
            errno(store.erase(key)),
            errno(store.erase_if(key, Condition::Present)),
            errno(store.commit(&batch)),
        ];
        assert_eq!(refused, [Some(Errno::PERM); 5], "{key}");
        assert_eq!(store.get(key).unwrap().as_deref(), Some(&b"blue"[..]));
    }
    store.put("free", "red").unwrap();
    set(&files, "/store", APPEND_ONLY).unwrap();
    store.put("new", "red").unwrap();
    assert_eq!(errno(store.erase("free")), Some(Errno::PERM));
    set(&files, "/store", IMMUTABLE).unwrap();
    assert_eq!(errno(store.put("newer", "red")), Some(Errno::PERM));
    store.put("free", "green").unwrap();
}

#[test]
fn flags_are_kept_by_the_volume() {
    let _side_by_side = side_by_side();
    for medium in [MediumChoice::Dram, MediumChoice::Paged] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("vol");
        let volume = Volume::options().size(8 << 20).medium(medium).create(&path).unwrap();
        let files = volume.files(Credentials::root());
        files.create_dir("/nest").unwrap();
        files.write("/nest/egg", "blue").unwrap();
        files.write("/free", "x").unwrap();
        set(&files, "/nest/egg", IMMUTABLE).unwrap();
        set(&files, "/nest", IMMUTABLE | APPEND_ONLY).unwrap();
        drop(files);
        volume.close().unwrap();

        let volume = Volume::open(&path).unwrap();
        let files = volume.files(Credentials::root());
        // No call has set a flag since the volume was opened.
        assert_eq!(errno(files.remove_file("/nest/egg")), Some(Errno::PERM));
        assert_eq!(errno(files.options().write(true).open("/nest/egg")), Some(Errno::PERM));
        assert_eq!(get(&files, "/nest"), IMMUTABLE | APPEND_ONLY);
        files.rename("/free", "/renamed").unwrap();
        assert!(volume.check().unwrap().is_clean());
        drop(files);
        volume.close().unwrap();
        let copy = Volume::open_read_only(&path).unwrap();
        let files = copy.files(Credentials::root());
        assert_eq!(get(&files, "/nest/egg"), IMMUTABLE);
        assert_eq!(errno(set(&files, "/nest/egg", NONE)), Some(Errno::ROFS));
    }
}
