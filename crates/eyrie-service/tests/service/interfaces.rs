//! Programs that use one directory through different interfaces at the same time.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use eyrie::{Batch, KeyRange, Kvfs, OpenFlags, Order, Posix, PosixExt};
use eyrie_engine::Errno;

use crate::Served;

const BYTES: usize = 4096;
const ROUNDS: usize = 200;

/// Requires that a value is whole: all its bytes come from one change.
fn assert_whole(value: &[u8], call: &str) {
    assert_eq!(value.len(), BYTES, "{call}");
    assert!(value.iter().all(|byte| *byte == value[0]), "{call}");
}

#[test]
fn values_are_whole_through_each_interface_while_the_others_change_them() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    files.create_dir("/store").unwrap();
    files.write("/store/egg", [1; BYTES]).unwrap();
    let done = AtomicBool::new(false);
    let is_done = || done.load(Ordering::Acquire);
    std::thread::scope(|scope| {
        let file_writer = scope.spawn(|| {
            let files = served.files();
            for round in 0..ROUNDS {
                let file = files.options().write(true).open("/store/egg").unwrap();
                file.write_all_at(&[round as u8; BYTES], 0).unwrap();
            }
        });
        let renamer = scope.spawn(|| {
            let files = served.files();
            for round in 0..ROUNDS {
                files.write("/new", [round as u8; BYTES]).unwrap();
                files.rename("/new", "/store/egg").unwrap();
            }
        });
        let putter = scope.spawn(|| {
            let keys = Kvfs::open(&served.files(), "/store").unwrap();
            for round in 0..ROUNDS {
                keys.put("egg", [round as u8; BYTES]).unwrap();
            }
        });
        scope.spawn(|| {
            let files = served.files();
            let mut bytes = [0; BYTES];
            while !is_done() {
                let file = files.options().read(true).open("/store/egg").unwrap();
                file.read_exact_at(&mut bytes, 0).unwrap();
                assert_whole(&bytes, "read");
            }
        });
        scope.spawn(|| {
            let keys = Kvfs::open(&served.files(), "/store").unwrap();
            while !is_done() {
                assert_whole(&keys.get("egg").unwrap().unwrap(), "get");
                {
                    let pin = keys.pin();
                    if let Some(value) = keys.get_in_place("egg", &pin).unwrap() {
                        assert_whole(&value, "get in place");
                    }
                }
                for entry in keys.scan_values(KeyRange::all(), Order::Unordered) {
                    assert_whole(&entry.unwrap().1, "scan");
                }
            }
        });
        let writers = [file_writer, renamer, putter];
        let ended = writers.map(std::thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Release);
        for ended in ended {
            ended.unwrap();
        }
    });
    drop(files);
    served.stop();
}

#[test]
fn handle_and_key_of_one_file_agree() {
    let (mut served, [files, other]) = Served::with_clients(64 << 20);
    files.create_dir("/store").unwrap();
    let keys = Kvfs::open(&other, "/store").unwrap();
    keys.put("egg", "blue").unwrap();
    let inode = files.metadata("/store/egg").unwrap().inode;
    let file = files.options().read(true).append(true).open("/store/egg").unwrap();
    let read = || {
        let mut bytes = [0; 16];
        let length = file.read_at(&mut bytes, 0).unwrap();
        bytes[..length].to_vec()
    };
    // A put changes the file of the key, so an open handle reads the new bytes.
    keys.put("egg", "green").unwrap();
    assert_eq!((read(), files.metadata("/store/egg").unwrap().inode), (b"green".to_vec(), inode));
    file.append(b"ish").unwrap();
    assert_eq!(keys.get("egg").unwrap().as_deref(), Some(&b"greenish"[..]));
    // After an erase, the handle keeps the old file. The next put makes another one.
    assert!(keys.erase("egg").unwrap());
    keys.put("egg", "red").unwrap();
    assert_eq!(read(), b"greenish");
    assert_eq!(files.read("/store/egg").unwrap(), b"red");
    files.rename("/store/egg", "/elsewhere").unwrap();
    assert_eq!(keys.get("egg").unwrap(), None);
    // A store checks rights when it is opened, and not again. A file checks them at each open.
    files.chmod("/store".into(), 0o700).unwrap();
    keys.put("stone", "grey").unwrap();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let made = files.open("/store/stone".into(), flags, 0o644);
    assert_eq!(made.unwrap_err().errno(), Errno::EXIST);
    drop((file, files, other, keys));
    served.stop();
}

on_disk! {
    values_are_whole_through_each_interface_while_the_others_change_them
    handle_and_key_of_one_file_agree
}

/// One call of `append`, `write` or `write_at` writes at most 64 MiB. `write_all_at` repeats the call until
/// all bytes are written.
#[test]
fn long_writes_are_made_in_parts() {
    let mut served = Served::new(512 << 20);
    let files = served.files();
    let data: Vec<u8> = (0..80_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let file = files.options().read(true).append(true).create(true).open("/appended").unwrap();
    assert_eq!(file.append(&data).unwrap(), 64 << 20);
    assert_eq!((&file).write(&data[64 << 20..]).unwrap(), 16 << 20);
    assert!(files.read("/appended").unwrap() == data);
    drop(file);
    files.remove_file("/appended").unwrap();
    let file = files.options().write(true).create(true).open("/written").unwrap();
    assert_eq!(file.write_at(&data, 5).unwrap(), 64 << 20);
    file.write_all_at(&data, 0).unwrap();
    assert!(files.read("/written").unwrap() == data);
    drop((file, files));
    served.stop();
}

/// A client reserves an id for each value of a batch before it sends the batch.
#[test]
fn batch_of_many_keys_has_an_id_for_each() {
    let mut served = Served::new(64 << 20);
    let files = served.files();
    let keys = Kvfs::open(&files, "/").unwrap();
    let batch_of = |count: u32| {
        let mut batch = Batch::new();
        for number in 0..count {
            batch.put(number.to_le_bytes(), "blue");
        }
        batch
    };
    keys.commit(&batch_of(5000)).unwrap();
    assert_eq!(keys.len().unwrap(), 5000);
    let too_many = batch_of((1 << 16) + 1);
    assert_eq!(keys.commit(&too_many).unwrap_err().errno(), Errno::FBIG);
    assert!(keys.put("egg", "green").unwrap(), "the ids are free again");
    assert_eq!(keys.len().unwrap(), 5001);
    drop((keys, files));
    served.stop();
}
