use super::*;
use crate::posix::PosixExt;

#[test]
fn host_directory_has_the_same_calls() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path()).unwrap();
    host.create_dir_all("/a/b").unwrap();
    host.write("/a/b/file", "some bytes").unwrap();
    assert_eq!(host.read("a/b/file").unwrap(), b"some bytes");
    assert_eq!(host.metadata("//a/b/file").unwrap().size, 10);
    assert!(host.metadata("/").unwrap().is_dir());
    host.truncate("a/b/file".into(), 4).unwrap();
    assert_eq!(host.read("a/b/file").unwrap(), b"some");
    let names: Vec<_> = host.read_dir("/a").unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [Path::new("/a/b")]);
    host.remove_dir_all("a").unwrap();
    assert_eq!(host.stat("a".into()).unwrap_err().errno(), Errno::NOENT);
}

#[test]
fn host_xattrs_have_the_same_calls() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for (host, base) in
        [(Host::new(dir.path()).unwrap(), "/"), (Host::new("/").unwrap(), dir.path().to_str().unwrap())]
    {
        let path = Path::new(base).join("file");
        host.write(&path, "").unwrap();
        host.symlink("file".as_ref(), (&Path::new(base).join("link")).into()).unwrap();
        let link = Path::new(base).join("link");
        match host.setxattr((&link).into(), b"user.a", b"value", XattrMode::Create) {
            Err(error) if error.errno() == Errno::OPNOTSUPP => return,
            set => set.unwrap(),
        }
        let errno = |result: Result<()>| result.unwrap_err().errno();
        assert_eq!(errno(host.setxattr((&path).into(), b"user.a", b"", XattrMode::Create)), Errno::EXIST);
        assert_eq!(
            errno(host.setxattr(Target::NoFollow((&path).into()), b"user.b", b"", XattrMode::Replace)),
            Errno::NODATA
        );
        assert_eq!(errno(host.setxattr("".into(), b"user.b", b"", XattrMode::Set)), Errno::NOENT);
        assert_eq!(host.xattr(&link, "user.a").unwrap(), b"value");
        assert!(host.xattr_names(&link).unwrap().contains(&b"user.a".to_vec()));
        assert!(!host.symlink_xattr_names(&link).unwrap().contains(&b"user.a".to_vec()));
        let file = host.open_file(&path).unwrap();
        host.setxattr(Target::Open(file.handle()), b"user.b", &[7; 1000], XattrMode::Set).unwrap();
        assert_eq!(host.getxattr(Target::Open(file.handle()), b"user.b", &mut []).unwrap(), 1000);
        assert_eq!(
            host.getxattr(Target::Open(file.handle()), b"user.b", &mut [0; 999]).unwrap_err().errno(),
            Errno::RANGE
        );
        assert_eq!(host.symlink_xattr(&path, "user.b").unwrap(), [7; 1000]);
        host.removexattr(Target::Open(file.handle()), b"user.b").unwrap();
        host.removexattr((&link).into(), b"user.a").unwrap();
        assert_eq!(errno(host.removexattr(Target::NoFollow((&path).into()), b"user.a")), Errno::NODATA);
        assert_eq!(host.xattr(&path, "user.a").unwrap_err().errno(), Errno::NODATA);
        host.unlink((&path).into()).unwrap();
        host.unlink((&link).into()).unwrap();
    }
}

#[test]
fn host_store_is_a_map() {
    let dir = tempfile::tempdir().unwrap();
    let store = HostStore::open(dir.path()).unwrap();
    assert_eq!(store.get("a").unwrap(), None);
    for value in [&b""[..], &b"1"[..], &[7; 4096], &[8; 10_000]] {
        store.put("a/b", value).unwrap();
        assert_eq!(store.get("a/b").unwrap().as_deref(), Some(value));
    }
    assert!(store.erase("a/b").unwrap());
    assert!(!store.erase("a/b").unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn host_store_refuses_keys_as_a_volume_does() {
    let fs = crate::pxfs::tests::empty();
    fs.create_dir_all("/kv/dir").unwrap();
    let store = crate::Kvfs::open(&fs, "/kv").unwrap();
    let place = tempfile::tempdir().unwrap();
    let host = HostStore::open(place.path()).unwrap();
    std::fs::create_dir(place.path().join("dir")).unwrap();
    for key in [&b""[..], &[b'k'; 256], b"dir", b"none"] {
        let errno = |error: Error| error.errno();
        assert_eq!(host.get(key).map_err(errno), store.get(key).map_err(errno), "{key:?}");
        let mut out = vec![1];
        let into = store.get_into(key, &mut out).map_err(errno);
        assert_eq!(host.get_into(key, &mut out).map_err(errno), into, "{key:?}");
        assert_eq!(host.erase(key).map_err(errno), store.erase(key).map_err(errno), "{key:?}");
        let put = store.put(key, "value").map(drop).map_err(errno);
        assert_eq!(host.put(key, "value").map_err(errno), put, "{key:?}");
    }
    // The file name has 4 bytes, and three for each `/`: 256 bytes, one more than the host allows.
    let long = [b'/'; 84];
    assert_eq!(host.put(long, "value").unwrap_err().errno(), Errno::NAMETOOLONG);
    store.put(long, "value").unwrap();
    let names: Vec<_> =
        std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "a put that fails leaves no temporary file: {names:?}");
}

#[test]
fn put_passes_over_temporary_names_that_exist() {
    let dir = tempfile::tempdir().unwrap();
    let store = HostStore::open(dir.path()).unwrap();
    for number in 0..1000 {
        std::fs::write(dir.path().join(format!("%kv%{:x}-{number:x}", std::process::id())), "").unwrap();
    }
    store.put("key", "value").unwrap();
    assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1001);
}
