//! Tests of the trait, on each store.

use std::sync::Arc;

use super::*;
use crate::posix::{Posix, PosixExt};
use crate::pxfs::tests::empty;
use crate::{Condition, Errno, HostStore, Kvfs};

/// Calls `test` with an empty store of each kind.
fn on_each(test: impl Fn(&dyn KeyValueStore)) {
    test(&Kvfs::open(&empty(), "/").unwrap());
    let place = tempfile::tempdir().unwrap();
    test(&HostStore::open(place.path()).unwrap());
}

#[test]
fn stores_are_maps_behind_the_trait() {
    on_each(|store| {
        assert_eq!((store.get(b"a").unwrap(), store.contains_key(b"a").unwrap()), (None, false));
        store.put(b"a", b"1").unwrap();
        store.put(b"a/b", b"").unwrap();
        store.put(b"a", b"22").unwrap();
        let mut out = vec![9; 100];
        assert!(store.get_into(b"a", &mut out).unwrap() && out == b"22");
        assert!(!store.get_into(b"c", &mut out).unwrap() && out.is_empty());
        assert!(store.contains_key(b"a/b").unwrap());
        assert!(store.erase(b"a").unwrap() && !store.erase(b"a").unwrap());
        assert_eq!(store.get(b"").unwrap_err().errno(), Errno::INVAL);
        assert_eq!(store.contains_key(&[b'k'; 256]).unwrap_err().errno(), Errno::NAMETOOLONG);
    });
}

#[test]
fn batches_change_all_of_their_keys() {
    on_each(|store| {
        store.put(b"gone", b"1").unwrap();
        let mut batch = Batch::new();
        batch.put("new", "1").put("new", "2").erase("gone").erase("never").put("last", "3").erase("last");
        assert_eq!((batch.len(), batch.is_empty()), (4, false));
        store.commit(&batch).unwrap();
        store.commit(&Batch::new()).unwrap();
        let found: Vec<_> =
            store.scan_values(KeyRange::all(), Order::ByKey).unwrap().map(Result::unwrap).collect();
        assert_eq!(found, [(b"new".to_vec(), b"2".to_vec())]);
    });
}

#[test]
fn scans_give_the_keys_of_their_range() {
    on_each(|store| {
        for number in 0..300 {
            store.put(format!("k/{number:03}").as_bytes(), b"v").unwrap();
        }
        store.put(b"k", b"").unwrap();
        store.put(b"l", b"").unwrap();
        let expected: Vec<_> = (0..300).map(|number| format!("k/{number:03}").into_bytes()).collect();
        for order in [Order::ByKey, Order::Unordered] {
            let scan = |range| {
                let keys: Result<Vec<_>> = store.scan(range, order).unwrap().collect();
                let mut keys = keys.unwrap();
                if order == Order::Unordered {
                    keys.sort();
                }
                keys
            };
            assert_eq!(scan(KeyRange::prefix("k/")), expected);
            assert_eq!(scan(KeyRange::new("k/100".."k/103")), expected[100..103]);
            assert_eq!(scan(KeyRange::new("k/298"..)), [&expected[298..], &[b"l".to_vec()]].concat());
            assert_eq!(scan(KeyRange::new("z".."a")), Vec::<Vec<u8>>::new());
            assert_eq!(scan(KeyRange::all()).len(), 302);
        }
    });
}

#[test]
fn only_a_volume_has_conditions() {
    on_each(|store| {
        let mut batch = Batch::new();
        batch.put("new", "1").require("none", Condition::Present);
        let error = store.commit(&batch).unwrap_err();
        assert!([Errno::CANCELED, Errno::OPNOTSUPP].contains(&error.errno()), "{error}");
        assert!(!store.contains_key(b"new").unwrap());
    });
}

#[test]
fn stores_are_shared_by_threads() {
    let place = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn KeyValueStore>; 2] =
        [Arc::new(Kvfs::open(&empty(), "/").unwrap()), Arc::new(HostStore::open(place.path()).unwrap())];
    for store in stores {
        let threads = [b"a", b"b"].map(|key| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || store.put(key, key))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        assert_eq!(store.scan(KeyRange::all(), Order::Unordered).unwrap().count(), 2);
    }
}

#[test]
fn files_of_other_kinds_are_no_keys() {
    let fs = empty();
    fs.create_dir("/dir").unwrap();
    fs.symlink("dir".as_ref(), "/link".into()).unwrap();
    assert_eq!(Kvfs::open(&fs, "/").unwrap().scan(KeyRange::all(), Order::ByKey).count(), 0);
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("dir")).unwrap();
    std::os::unix::fs::symlink("dir", place.path().join("link")).unwrap();
    // No key has this file name: a put that was interrupted by a crash leaves such files.
    std::fs::write(place.path().join("%kv%0-0"), "").unwrap();
    let host = HostStore::open(place.path()).unwrap();
    assert_eq!(host.scan(KeyRange::all(), Order::ByKey).unwrap().count(), 0);
    assert_eq!(host.contains_key("dir").unwrap_err().errno(), Errno::ISDIR);
}
