use eyrie_engine::Condition;
use eyrie_engine::model::Model;

use super::*;
use crate::posix::PosixExt;
use crate::pxfs::tests::empty;
use crate::{Credentials, Errno, InodeFlags, Volume};

fn store() -> (Pxfs<Model>, Kvfs<Model>) {
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
    let operations = [
        store.get("").map(drop),
        store.version("").map(drop),
        store.value_len("").map(drop),
        store.contains_key("").map(drop),
    ];
    let operations = operations.map(|result| result.unwrap_err().operation());
    assert_eq!(operations, ["get", "version", "value_len", "contains_key"]);
    let large = vec![0; VALUE_MAX + 1];
    assert_eq!(store.put("big", &large).unwrap_err().errno(), Errno::FBIG);
    let mut batch = Batch::new();
    batch.put("big", large);
    let error = store.commit(&batch).unwrap_err();
    assert_eq!((error.errno(), error.operation()), (Errno::FBIG, "commit"));
}

#[test]
fn scans_give_keys_and_values() {
    let (fs, store) = store();
    let expected: Vec<_> =
        (0..100).map(|number| (format!("k{number:03}").into_bytes(), vec![number])).collect();
    for (key, value) in &expected {
        store.put(key, value).unwrap();
    }
    // A call on files replaces this value.
    fs.write("/kv/k050", [50]).unwrap();
    let range = KeyRange::new("k010"..);
    let copied: Result<Vec<_>> = store.scan_values(range.clone(), Order::ByKey).collect();
    assert_eq!(copied.unwrap(), expected[10..]);
    let pin = store.pin();
    let in_place = store.scan_in_place(range, Order::ByKey, &pin).map(|entry| {
        let (key, value) = entry.unwrap();
        (key, value.into_vec())
    });
    assert_eq!(in_place.collect::<Vec<_>>(), expected[10..]);
}

#[test]
fn scan_leaves_out_keys_that_were_erased() {
    let (_fs, store) = store();
    for key in ["a", "b", "c"] {
        store.put(key, "").unwrap();
    }
    let (mut values, pin) = (store.scan_values(KeyRange::all(), Order::ByKey), store.pin());
    let mut in_place = store.scan_in_place(KeyRange::all(), Order::ByKey, &pin);
    assert!(values.next().is_some() && in_place.next().is_some());
    store.erase("b").unwrap();
    assert_eq!(values.map(|entry| entry.unwrap().0).collect::<Vec<_>>(), [b"c"]);
    assert_eq!(in_place.last().unwrap().unwrap().0, b"c");
}

#[test]
fn batch_is_all_or_nothing() {
    let (fs, store) = store();
    store.put("old", "1").unwrap();
    store.put("gone", "1").unwrap();
    let mut batch = Batch::new();
    batch.put("new", "2").put("old", "2").put("twice", "1").put("twice", "2").erase("gone").erase("never");
    store.commit(&batch).unwrap();
    for key in ["new", "old", "twice"] {
        assert_eq!(store.get(key).unwrap().unwrap(), b"2");
    }
    assert!(!store.contains_key("gone").unwrap());
    fs.create_dir("/kv/dir").unwrap();
    let mut batch = Batch::new();
    batch.put("a", "1").put("dir", "1");
    assert!(store.commit(&batch).is_err());
    assert!(!store.contains_key("a").unwrap());
}

#[test]
fn store_needs_all_rights_on_its_directory() {
    let (fs, _store) = store();
    let user = fs.with_credentials(Credentials::new(1, 1, &[]));
    fs.chmod("/kv".into(), 0o755).unwrap();
    assert_eq!(Kvfs::open(&user, "/kv").unwrap_err().errno(), Errno::ACCESS);
    fs.write("/file", "").unwrap();
    assert_eq!(Kvfs::open(&fs, "/file").unwrap_err().errno(), Errno::NOTDIR);
}

#[test]
fn keys_of_other_files_and_a_removed_directory_are_refused() {
    let (fs, store) = store();
    fs.mknod("/kv/pipe".into(), Kind::Fifo, 0o666, 0).unwrap();
    fs.symlink("pipe".as_ref(), "/kv/link".into()).unwrap();
    fs.create_dir("/kv/dir").unwrap();
    let errno = |error: Error| error.errno();
    for (key, expected) in [("pipe", Errno::INVAL), ("link", Errno::INVAL), ("dir", Errno::ISDIR)] {
        let errors = [
            store.get(key).err(),
            store.version(key).err(),
            store.value_len(key).err(),
            store.contains_key(key).err(),
        ];
        for error in errors.map(Option::unwrap) {
            assert_eq!((error.errno(), error.path()), (expected, Some(Path::new(key))), "{error}");
        }
        assert_eq!(store.get(key).map_err(errno), Err(expected), "{key}");
        assert_eq!(store.get_into(key, &mut Vec::new()).map_err(errno), Err(expected), "{key}");
        assert_eq!(store.contains_key(key).map_err(errno), Err(expected), "{key}");
        assert_eq!(store.put(key, "1").map_err(errno), Err(expected), "{key}");
        assert_eq!(store.erase(key).map_err(errno), Err(expected), "{key}");
        let mut batch = Batch::new();
        batch.put("new", "1").put(key, "1");
        assert_eq!(store.commit(&batch).map_err(errno), Err(expected), "{key}");
    }
    store.put("twin", "1").unwrap();
    fs.hard_link("/kv/twin", "/kv/twin2").unwrap();
    let mut batch = Batch::new();
    batch.put("twin", "2").put("twin2", "2");
    assert_eq!(store.commit(&batch).map_err(errno), Err(Errno::INVAL));
    assert_eq!(
        (store.get("twin").unwrap().unwrap(), store.contains_key("new").unwrap()),
        (b"1".to_vec(), false)
    );
    fs.remove_dir_all("/kv").unwrap();
    assert_eq!(store.put("key", "1").map_err(errno), Err(Errno::NOENT));
    assert_eq!((store.get("key").unwrap(), store.erase("key").unwrap()), (None, false));
    let mut batch = Batch::new();
    batch.put("key", "1");
    assert_eq!(store.commit(&batch).map_err(errno), Err(Errno::NOENT));
}

#[test]
fn clones_share_the_directory_until_the_last_is_dropped() {
    struct Birds {
        store: Kvfs<Model>,
    }
    let (fs, store) = store();
    let birds = Birds { store: store.clone() };
    let scan = birds.store.scan(KeyRange::all(), Order::Unordered);
    drop(store);
    std::thread::spawn(move || birds.store.put("eagle", "1").map(drop)).join().unwrap().unwrap();
    fs.remove_file("/kv/eagle").unwrap();
    let id = fs.engine().lookup(fs.engine().root(), b"kv").unwrap().unwrap();
    fs.remove_dir("/kv").unwrap();
    fs.engine().attributes(id).expect("the scan keeps the directory");
    assert_eq!(scan.count(), 0);
    assert!(matches!(fs.engine().attributes(id), Err(eyrie_engine::Error::Stale)));
}

#[test]
fn conditions_decide_about_changes() {
    let (_fs, store) = store();
    let done = |outcome: Result<Outcome>| outcome.unwrap() == Outcome::Done;
    assert!(!done(store.put_if("k", "1", Condition::Present)));
    assert!(!done(store.erase_if("k", Condition::Present)));
    assert!(done(store.put_if("k", "1", Condition::Absent)));
    assert!(!done(store.put_if("k", "2", Condition::Absent)));
    let seen = Condition::Version(store.version("k").unwrap().unwrap());
    assert!(done(store.put_if("k", "2", Condition::Present)));
    assert!(!done(store.put_if("k", "3", seen)) && !done(store.erase_if("k", seen)));
    let (value, version) = store.get_with_version("k").unwrap().unwrap();
    assert_eq!((&value[..], Some(version)), (&b"2"[..], store.version("k").unwrap()));
    assert!(done(store.put_if("k", "3", Condition::Version(version))));
    let seen = Condition::Version(store.version("k").unwrap().unwrap());
    assert!(done(store.erase_if("k", seen)));
    assert!(!done(store.put_if("k", "4", seen)));
    store.put("k", "3").unwrap();
    assert!(!done(store.put_if("k", "4", seen)), "the key was removed meanwhile");
    assert_eq!((store.version("none").unwrap(), store.get_with_version("none").unwrap()), (None, None));
    assert_eq!(store.value_len("k").unwrap(), Some(1));
    assert_eq!(store.put_if("", "", Condition::Absent).unwrap_err().errno(), Errno::INVAL);
}

#[test]
fn batch_with_a_failed_condition_is_canceled() {
    let (_fs, store) = store();
    store.put("k", "1").unwrap();
    let version = Condition::Version(store.version("k").unwrap().unwrap());
    let mut batch = Batch::new();
    batch.require("k", version).require("none", Condition::Absent).put("k", "2").put("new", "2");
    store.commit(&batch).unwrap();
    let error = store.commit(&batch).unwrap_err();
    assert_eq!(error.errno(), Errno::CANCELED);
    assert_eq!(error.to_string(), "commit: a condition does not hold");
    batch.require("k", Condition::Present);
    store.commit(&batch).unwrap();
}

/// Several threads increment a counter in a value, and then a counter in a file that a call on files made. An
/// increment is lost if two changes of one version succeed.
#[test]
fn one_change_of_each_version_succeeds() {
    const THREADS: u64 = 4;
    const EACH: u64 = 2000;
    let place = tempfile::tempdir().unwrap();
    let volume = Volume::create(place.path().join("v"), 64 << 20).unwrap();
    let store = volume.store("/", Credentials::root()).unwrap();
    let files = volume.files(Credentials::root());
    store.put("value", 0_u64.to_le_bytes()).unwrap();
    // This file is not sealed, so a write changes its bytes in place.
    files.write("/file", 0_u64.to_le_bytes()).unwrap();
    for key in ["value", "file"] {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let store = store.clone();
                std::thread::spawn(move || {
                    let (mut done, mut failed) = (0, 0_u64);
                    while done < EACH {
                        let (value, version) = store.get_with_version(key).unwrap().unwrap();
                        let next = u64::from_le_bytes(value.try_into().unwrap()) + 1;
                        match store.put_if(key, next.to_le_bytes(), Condition::Version(version)).unwrap() {
                            Outcome::Done => done += 1,
                            Outcome::ConditionFailed => failed += 1,
                        }
                    }
                    failed
                })
            })
            .collect();
        let failed: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        let value = store.get(key).unwrap().unwrap();
        assert_eq!(u64::from_le_bytes(value.try_into().unwrap()), THREADS * EACH, "{failed} failed");
    }
    let old = store.version("file").unwrap().unwrap();
    files.options().write(true).open("/file").unwrap().write_all_at(&[1; 8], 0).unwrap();
    assert_eq!(store.put_if("file", "", Condition::Version(old)).unwrap(), Outcome::ConditionFailed);
    drop((store, files));
    volume.close().unwrap();
    let volume = Volume::open(place.path().join("v")).unwrap();
    let store = volume.store("/", Credentials::root()).unwrap();
    assert_eq!(store.put_if("file", "", Condition::Version(old)).unwrap(), Outcome::ConditionFailed);
}

#[test]
fn store_opens_in_an_immutable_directory() {
    let (fs, store) = store();
    store.put("colour", "blue").unwrap();
    drop(store);
    fs.open_file("/kv").unwrap().set_inode_flags(InodeFlags::IMMUTABLE).unwrap();
    let store = Kvfs::open(&fs, "/kv").unwrap();
    assert_eq!(store.get("colour").unwrap().as_deref(), Some(&b"blue"[..]));
    assert_eq!(store.put("size", "small").unwrap_err().errno(), Errno::PERM);
    assert_eq!(store.put_if("size", "small", Condition::Absent).unwrap_err().errno(), Errno::PERM);
    assert_eq!(store.erase("colour").unwrap_err().errno(), Errno::PERM);
    assert!(!store.erase("size").unwrap(), "a missing key needs no change");
    assert!(!store.put("colour", "green").unwrap(), "the file of the key has no flag");
}
