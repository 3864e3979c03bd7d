//! Tests of Ops that change entries of one directory at the same time, under the locks of different shards.

use super::*;

/// Returns the names that a thread adds, and the Ops of that thread. The Ops of different threads concern
/// different names, so all of them succeed.
fn ops_of(start: &Start, thread: usize) -> (Vec<Vec<u8>>, Vec<OpRecord>) {
    let (dir, owner, time) = (start.dirs[1], OWNER, LATER);
    let added: Vec<_> = (0..5).map(|n| format!("thread-{thread}-{n}").into_bytes()).collect();
    let create = |n: usize| {
        let (id, content) = (start.fresh[thread * 6 + n], Content::Bytes(OLD));
        OpRecord::new(&Op::Create { dir, name: &added[n], id, owner, content, time })
    };
    let put = |n: usize| {
        OpRecord::new(&Op::Put {
            dir,
            name: &added[n],
            id: start.fresh[thread * 6 + n],
            owner,
            data: OLD,
            time,
        })
    };
    let rename = OpRecord::new(&Op::Rename {
        from_dir: dir,
        from_name: &entry(thread),
        to_dir: dir,
        to_name: &added[4],
        mode: RenameMode::NoReplace,
        whiteout: None,
        time,
    });
    let unlink = OpRecord::new(&Op::Unlink { dir, name: &entry(thread + 2), time });
    let ops = vec![create(0), put(1), rename, create(2), unlink, put(3)];
    (added, ops)
}

#[test]
fn ops_in_one_growing_directory_keep_every_entry() {
    let _alone = alone();
    for (seed, entries) in (0..).zip((8..130).step_by(6)) {
        let mut start = Start::make_with(entries);
        let dir = start.dirs[1];
        start.known = (entries % 4 == 0).then_some(dir);
        run(Bursts::new(seed, 60), move || {
            let engine = start.open();
            let changing: Vec<_> = (0..2)
                .map(|thread| {
                    let (engine, start) = (Arc::clone(&engine), start.clone());
                    shuttle::thread::spawn(move || {
                        let (added, ops) = ops_of(&start, thread);
                        for op in ops {
                            engine.apply(&op.decode().op()).expect("no other thread uses the names");
                        }
                        added
                    })
                })
                .collect();
            // A reader may build the summary of the directory meanwhile.
            engine.attributes(dir).expect("sound");
            let mut names: BTreeSet<Vec<u8>> = (4..entries).map(entry).collect();
            names.insert(b"b".to_vec());
            for thread in changing {
                names.extend(thread.join().expect("no panic"));
            }
            let mut listed = BTreeSet::new();
            engine.list(dir, 0, &mut |entry| listed.insert(entry.name.to_vec())).expect("sound");
            assert_eq!(listed, names);
            for name in &names {
                assert!(engine.lookup(dir, name).expect("sound").is_some(), "{}", name.escape_ascii());
            }
            assert_eq!(engine.attributes(dir).expect("sound").size, names.len() as u64);
            // Each thread has used the first four of its six ids.
            start.fresh.chunks(6).for_each(|ids| ids[4..].iter().for_each(|&id| engine.unreserve(id)));
            let report = engine.check().expect("sound");
            assert!(report.is_clean(), "{:?}", report.findings);
        });
    }
}

#[test]
fn removed_directory_takes_no_entry_in_any_shard() {
    let _alone = alone();
    let start = Start::make_with(MANY);
    run(Bursts::new(1, 200), move || {
        let engine = start.open();
        let Start { dirs: [root, dir], ref fresh, .. } = start;
        // The emptied directory keeps its buckets, so its entries have several shards.
        for name in (0..MANY).map(entry).chain([b"b".to_vec()]) {
            engine.apply(&Op::Unlink { dir, name: &name, time: LATER }).expect("there");
        }
        let creating: Vec<_> = (0..2)
            .map(|thread| {
                let (engine, id) = (Arc::clone(&engine), fresh[thread]);
                shuttle::thread::spawn(move || {
                    let (name, owner, time) = (entry(thread * 3), OWNER, LATER);
                    let content = Content::Empty;
                    engine.apply(&Op::Create { dir, name: &name, id, owner, content, time }).map(drop)
                })
            })
            .collect();
        let removed = engine.apply(&Op::RemoveDirectory { dir: root, name: b"dir", time: LATER });
        let created: Vec<_> = creating.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        match removed {
            Ok(_) => assert!(
                created.iter().all(|result| matches!(result, Err(Error::NotFound | Error::Stale))),
                "{created:?}"
            ),
            Err(error) => {
                assert!(matches!(error, Error::NotEmpty), "{error:?}");
                assert!(created.iter().any(Result::is_ok), "{created:?}");
            }
        }
        for (index, &id) in fresh.iter().enumerate() {
            if !created.get(index).is_some_and(Result::is_ok) {
                engine.unreserve(id);
            }
        }
        let report = engine.check().expect("sound");
        assert!(report.is_clean(), "{:?}", report.findings);
    });
}
