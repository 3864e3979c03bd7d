use super::*;
use crate::Credentials;
use crate::posix::PosixExt;
use crate::pxfs::tests::empty;

fn store() -> (Pxfs<eyrie_engine::model::Model>, Kvfs<eyrie_engine::model::Model>) {
    let fs = empty();
    fs.create_dir("/kv").unwrap();
    let store = Kvfs::open(&fs, "/kv").unwrap();
    (fs, store)
}

#[test]
fn store_is_a_map() {
    let (_fs, store) = store();
    assert!(store.is_empty().unwrap());
    assert!(store.put("a", "1").unwrap());
    assert!(!store.put("a", "22").unwrap());
    assert!(store.put("b", "").unwrap());
    assert_eq!(store.get("a").unwrap().unwrap(), b"22");
    assert_eq!(store.get("b").unwrap().unwrap(), b"");
    assert_eq!(store.get("c").unwrap(), None);
    assert_eq!(store.len().unwrap(), 2);
    let mut out = vec![9; 100];
    assert!(store.get_into("a", &mut out).unwrap());
    assert_eq!(out, b"22");
    assert!(!store.get_into("c", &mut out).unwrap() && out.is_empty());
    let pin = store.pin();
    assert_eq!(&*store.get_in_place("a", &pin).unwrap().unwrap(), b"22");
    assert!(store.erase("a").unwrap());
    assert!(!store.erase("a").unwrap());
    assert!(!store.contains_key("a").unwrap());
}

#[test]
fn any_bytes_are_a_key_with_a_file_name() {
    let (fs, store) = store();
    for key in [&b"a/b"[..], b"..", b"\0", b"%kv%x", &[b'/'; 255]] {
        store.put(key, key).unwrap();
        assert_eq!(store.get(key).unwrap().as_deref(), Some(key));
    }
    assert_eq!(fs.read("/kv/%kv%a%2Fb").unwrap(), b"a/b");
    for entry in fs.read_dir("/kv").unwrap() {
        let entry = entry.unwrap();
        let value = fs.read(entry.path()).unwrap();
        assert_eq!(&*crate::names::encode(&value), entry.name_bytes());
        fs.remove_file(entry.path()).unwrap();
    }
    assert!(store.is_empty().unwrap());
    fs.write("/kv/plain", "x").unwrap();
    assert_eq!(store.get("plain").unwrap().unwrap(), b"x");
    assert_eq!(fs.write("/kv/%kv%plain", "x").unwrap_err().errno(), Errno::INVAL);
    assert_eq!(fs.metadata("/kv/%kv%plain").unwrap_err().errno(), Errno::NOENT);
}

#[test]
fn bad_keys_and_values_are_refused() {
    let (fs, store) = store();
    fs.create_dir("/kv/dir").unwrap();
    assert_eq!(store.get("").unwrap_err().errno(), Errno::INVAL);
    assert_eq!(store.put("", "").unwrap_err().errno(), Errno::INVAL);
    assert_eq!(store.put([b'x'; 256], "").unwrap_err().errno(), Errno::NAMETOOLONG);
    assert_eq!(store.get("dir").unwrap_err().errno(), Errno::ISDIR);
    let large = vec![0; VALUE_MAX + 1];
    assert_eq!(store.put("big", &large).unwrap_err().errno(), Errno::FBIG);
    let mut batch = store.batch();
    batch.put("big", large);
    let error = batch.commit().unwrap_err();
    assert_eq!((error.errno(), error.operation()), (Errno::FBIG, "batch"));
}

#[test]
fn scan_lists_every_key_with_the_prefix() {
    let (_fs, store) = store();
    for number in 0..1000 {
        store.put(format!("k{number:03}"), "").unwrap();
        store.put(format!("other{number}"), "").unwrap();
    }
    let sorted: Vec<_> = store.scan("k", true).unwrap().map(Result::unwrap).collect();
    let expected: Vec<_> = (0..1000).map(|number| format!("k{number:03}").into_bytes()).collect();
    assert_eq!(sorted, expected);
    let mut unsorted: Vec<_> = store.scan("k", false).unwrap().map(Result::unwrap).collect();
    unsorted.sort();
    assert_eq!(unsorted, expected);
    assert_eq!(store.scan("", false).unwrap().count(), 2000);
}

#[test]
fn batch_is_all_or_nothing() {
    let (fs, store) = store();
    store.put("old", "1").unwrap();
    store.put("gone", "1").unwrap();
    let mut batch = store.batch();
    batch.put("new", "2").put("old", "2").put("twice", "1").put("twice", "2").erase("gone").erase("never");
    batch.commit().unwrap();
    for key in ["new", "old", "twice"] {
        assert_eq!(store.get(key).unwrap().unwrap(), b"2");
    }
    assert!(!store.contains_key("gone").unwrap());
    fs.create_dir("/kv/dir").unwrap();
    let mut batch = store.batch();
    batch.put("a", "1").put("dir", "1");
    assert!(batch.commit().is_err());
    assert!(!store.contains_key("a").unwrap());
}

#[test]
fn store_needs_all_rights_on_its_directory() {
    let (fs, _store) = store();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    fs.chmod("/kv", 0o755).unwrap();
    assert_eq!(Kvfs::open(&user, "/kv").unwrap_err().errno(), Errno::ACCESS);
    fs.write("/file", "").unwrap();
    assert_eq!(Kvfs::open(&fs, "/file").unwrap_err().errno(), Errno::NOTDIR);
}

#[test]
fn keys_of_other_files_and_a_removed_directory_are_refused() {
    let (fs, store) = store();
    fs.mknod("/kv/pipe", Kind::Fifo, 0o666, 0).unwrap();
    fs.symlink("pipe", "/kv/link").unwrap();
    fs.create_dir("/kv/dir").unwrap();
    let errno = |error: Error| error.errno();
    for (key, expected) in [("pipe", Errno::INVAL), ("link", Errno::INVAL), ("dir", Errno::ISDIR)] {
        assert_eq!(store.get(key).map_err(errno), Err(expected), "{key}");
        assert_eq!(store.get_into(key, &mut Vec::new()).map_err(errno), Err(expected), "{key}");
        assert_eq!(store.contains_key(key).map_err(errno), Err(expected), "{key}");
        assert_eq!(store.put(key, "1").map_err(errno), Err(expected), "{key}");
        assert_eq!(store.erase(key).map_err(errno), Err(expected), "{key}");
        let mut batch = store.batch();
        batch.put("new", "1").put(key, "1");
        assert_eq!(batch.commit().map_err(errno), Err(expected), "{key}");
    }
    store.put("twin", "1").unwrap();
    fs.link("/kv/twin", "/kv/twin2").unwrap();
    let mut batch = store.batch();
    batch.put("twin", "2").put("twin2", "2");
    assert_eq!(batch.commit().map_err(errno), Err(Errno::INVAL));
    assert_eq!(
        (store.get("twin").unwrap().unwrap(), store.contains_key("new").unwrap()),
        (b"1".to_vec(), false)
    );
    fs.remove_dir_all("/kv").unwrap();
    assert_eq!(store.put("key", "1").map_err(errno), Err(Errno::NOENT));
    assert_eq!((store.get("key").unwrap(), store.erase("key").unwrap()), (None, false));
    let mut batch = store.batch();
    batch.put("key", "1");
    assert_eq!(batch.commit().map_err(errno), Err(Errno::NOENT));
}
