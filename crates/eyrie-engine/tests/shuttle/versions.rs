//! Versions of the bytes of files, and conditions, beside changes of the bytes.

use std::collections::HashMap;
use std::sync::Arc;

use eyrie_engine::{Condition, Version};

use super::*;

/// Reads all bytes of a file, and their version. Returns `None` if the version changed during the read.
fn read_version(engine: &Scm, id: ObjectId) -> Option<(Version, Vec<u8>)> {
    let _pin = epoch::pin();
    let before = engine.version(id).expect("there");
    let mut bytes = vec![0; 32_000];
    let count = engine.read(id, 0, &mut bytes).expect("there");
    bytes.truncate(count);
    (engine.version(id).expect("there") == before).then_some((before, bytes))
}

/// Runs `ops` one after the other beside two readers of the file `id`. If `seals` is true, one reader seals
/// the file between two reads. Asserts that reads with the same version gave the same bytes.
fn read_versions_beside(start: &Start, id: ObjectId, seals: bool, ops: &[Op<'_>]) {
    let (start, ops) = (start.clone(), ops.iter().map(OpRecord::new).collect::<Vec<_>>());
    run(Bursts::new(1, 500), move || {
        let engine = start.open();
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let engine = Arc::clone(&engine);
                shuttle::thread::spawn(move || {
                    [0, 1, 2].map(|read| {
                        if seals && (reader, read) == (0, 1) {
                            engine.seal(id).expect("there");
                        }
                        read_version(&engine, id)
                    })
                })
            })
            .collect();
        for op in &ops {
            engine.apply(&op.decode().op()).expect("room");
        }
        let mut seen = HashMap::from([read_version(&engine, id).expect("no Op is running")]);
        for (version, bytes) in
            readers.into_iter().flat_map(|reader| reader.join().expect("no panic")).flatten()
        {
            assert_eq!(*seen.entry(version).or_insert_with(|| bytes.clone()), bytes, "{version:?}");
        }
    });
}

#[test]
fn a_version_belongs_to_one_state_of_the_bytes() {
    let _alone = alone();
    let start = Start::make();
    let (dir, time) = (start.dirs[0], LATER);
    for id in [start.key, start.file, start.tree] {
        // In a file that is not a value, 8 bytes are stored in place. In a tree, 100 bytes change one
        // pointer.
        let write = |data: &'static [u8], set_ids| Op::Write { id, offset: 8, data, set_ids, time };
        for data in [[&[b'1'; 8][..], &[b'2'; 8]], [&[b'1'; 100], &[b'2'; 100]]] {
            for seals in [false, true] {
                // The values of keys are sealed from the start.
                if !seals || id != start.key {
                    read_versions_beside(&start, id, seals, &data.map(|data| write(data, SetIds::Keep)));
                }
            }
        }
        // The file first gets set-id bits. The write clears them, so it commits several words.
        let change = AttributeChange { mode: Some(0o6755), ..AttributeChange::default() };
        let set = Op::SetAttributes { id, change, time };
        read_versions_beside(&start, id, true, &[set, write(&[b'3'; 8], SetIds::DropAsStranger)]);
    }
    let put = |id, data| Op::Put { dir, name: b"k", id, owner: OWNER, data, time };
    let puts = [put(start.fresh[0], b"1"), put(start.fresh[1], b"2")];
    read_versions_beside(&start, start.key, false, &puts);
    read_versions_beside(&start, start.key, false, &[Op::Batch { dir, ops: &puts[..1], time }, puts[1]]);
}

/// Adds 1 to the number in the first byte of a file, if the file still has the version that this call read.
/// Returns true if the Op was done.
fn increment(engine: &Scm, dir: ObjectId, name: &[u8], file: ObjectId, id: ObjectId) -> bool {
    let Some((version, bytes)) = read_version(engine, file) else { return false };
    let data = &[bytes[0] + 1, 0, 0, 0, 0, 0, 0, 0];
    let expect = Op::Expect { dir, name, condition: Condition::Version(version) };
    let put = Op::Put { dir, name, id, owner: OWNER, data, time: LATER };
    match engine.apply(&Op::Batch { dir, ops: &[expect, put], time: LATER }) {
        Ok(_) => true,
        Err(Error::ConditionFailed) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn one_of_two_changes_of_a_version_is_done() {
    let _alone = alone();
    let start = Start::make();
    for (name, file) in [(&b"k"[..], start.key), (b"a", start.file)] {
        let (start, dir) = (start.clone(), start.dirs[0]);
        run(Bursts::new(2, 1000), move || {
            let engine = start.open();
            let first = read_version(&engine, file).expect("no Op is running").1[0];
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    let (engine, id) = (Arc::clone(&engine), start.fresh[thread]);
                    shuttle::thread::spawn(move || increment(&engine, dir, name, file, id))
                })
                .collect();
            let done =
                threads.into_iter().map(|thread| u8::from(thread.join().expect("no panic"))).sum::<u8>();
            let last = read_version(&engine, file).expect("no Op is running").1[0];
            assert!(done >= 1, "the first of the three changes finds its version");
            assert_eq!(last, first + done);
        });
    }
}
