use super::*;
use crate::posix::PosixExt;

#[test]
fn a_directory_of_the_host_has_the_same_calls() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path()).unwrap();
    host.create_dir_all("/a/b").unwrap();
    host.write("/a/b/file", "some bytes").unwrap();
    assert_eq!(host.read("a/b/file").unwrap(), b"some bytes");
    assert_eq!(host.metadata("//a/b/file").unwrap().size, 10);
    assert!(host.metadata("/").unwrap().is_dir());
    host.truncate("a/b/file", 4).unwrap();
    assert_eq!(host.read("a/b/file").unwrap(), b"some");
    let names: Vec<_> = host.read_dir("/a").unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [Path::new("/a/b")]);
    host.remove_dir_all("a").unwrap();
    assert_eq!(host.stat("a").unwrap_err().errno(), Errno::NOENT);
}

#[test]
fn a_host_store_is_a_map() {
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
