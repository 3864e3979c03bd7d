//! Tests of a directory that shrinks while other threads use it.

use super::*;

/// Number of entries of the directory before it loses most of them.
const BEFORE: usize = 640;

/// Returns a volume whose second directory shrinks at the next `Unlink`, and the number of the first entry
/// that is left.
fn about_to_shrink() -> (Start, usize) {
    let start = Start::make_with(BEFORE);
    let made = Arc::new(Mutex::new(None));
    let result = Arc::clone(&made);
    run(Bursts::new(0, 1), move || {
        let dir = start.dirs[1];
        let unlink = |engine: &Scm, n| {
            engine.apply(&Op::Unlink { dir, name: &entry(n), time: LATER }).expect("there");
            engine.bucket_for_test(dir, b"b").expect("sound").0
        };
        let engine = start.open();
        let all = engine.bucket_for_test(dir, b"b").expect("sound").0;
        assert!(all > 20);
        let first = (0..BEFORE).find(|&n| unlink(&engine, n) < all).expect("it shrinks");
        assert!(first < BEFORE - 60);
        let engine = start.open();
        assert!((0..first).all(|n| unlink(&engine, n) == all));
        let image = engine.volume().medium().snapshot().into();
        *made.lock().expect("alone") = Some((Start { image, ..start.clone() }, first));
    });
    let made = result.lock().expect("alone").take();
    made.expect("made")
}

/// Lists the directory in one call. Returns the number of entries and the set of their names.
fn list(engine: &Scm, dir: ObjectId) -> (usize, BTreeSet<Vec<u8>>) {
    let (mut count, mut names) = (0, BTreeSet::new());
    let listed = engine.list(dir, 0, &mut |entry| {
        count += 1;
        names.insert(entry.name.to_vec())
    });
    assert!(listed.is_ok() && names.len() == count, "{listed:?}, {count} entries, {} names", names.len());
    (count, names)
}

#[test]
fn ops_and_readers_beside_a_merge_lose_and_repeat_nothing() {
    let _alone = alone();
    let (start, first) = about_to_shrink();
    for seed in 0..6 {
        let start = start.clone();
        run(Bursts::new(seed, 60), move || {
            let engine = start.open();
            let (dir, time, owner) = (start.dirs[1], LATER, OWNER);
            let kept: BTreeSet<_> = (first + 8..BEFORE).map(entry).chain([b"b".to_vec()]).collect();
            let changing: Vec<_> = (0..2)
                .map(|thread| {
                    let (engine, start) = (Arc::clone(&engine), start.clone());
                    shuttle::thread::spawn(move || {
                        for n in 0..4 {
                            let name = format!("thread-{thread}-{n}").into_bytes();
                            let (id, content) = (start.fresh[thread * 6 + n], Content::Bytes(OLD));
                            engine
                                .apply(&Op::Unlink { dir, name: &entry(first + thread * 4 + n), time })
                                .expect("there");
                            engine
                                .apply(&Op::Create { dir, name: &name, id, owner, content, time })
                                .expect("room");
                        }
                    })
                })
                .collect();
            let reader = {
                let (engine, kept) = (Arc::clone(&engine), kept.clone());
                shuttle::thread::spawn(move || {
                    for _ in 0..2 {
                        assert!(list(&engine, dir).1.is_superset(&kept));
                        assert!(engine.lookup(dir, &entry(BEFORE - 1)).expect("sound").is_some());
                    }
                })
            };
            // This thread may build the summary of the directory.
            let size = engine.attributes(dir).expect("sound").size as usize;
            assert!(size.abs_diff(kept.len() + 8) <= 2, "{size}");
            changing.into_iter().chain([reader]).for_each(|thread| thread.join().expect("no panic"));
            let (count, names) = list(&engine, dir);
            assert!(count == kept.len() + 8 && names.is_superset(&kept));
            assert_eq!(engine.attributes(dir).expect("sound").size, count as u64);
            start.fresh.chunks(6).for_each(|ids| ids[4..].iter().for_each(|&id| engine.unreserve(id)));
            let report = engine.check().expect("sound");
            assert!(report.is_clean(), "{:?}", report.findings);
        });
    }
}

/// The creates are in all shards, so a merge under fewer locks would lose some of their entries.
#[test]
fn entries_created_beside_a_merge_stay() {
    let _alone = alone();
    let (start, first) = about_to_shrink();
    for seed in 0..4 {
        let start = start.clone();
        run(Bursts::new(seed, 60), move || {
            let engine = start.open();
            let dir = start.dirs[1];
            let creating = {
                let (engine, start) = (Arc::clone(&engine), start.clone());
                shuttle::thread::spawn(move || {
                    for (n, &id) in start.fresh.iter().enumerate() {
                        let (owner, content, time) = (OWNER, Content::Empty, LATER);
                        engine
                            .apply(&Op::Create { dir, name: &[n as u8 + 1], id, owner, content, time })
                            .expect("room");
                    }
                })
            };
            engine.apply(&Op::Unlink { dir, name: &entry(first), time: LATER }).expect("there");
            creating.join().expect("no panic");
            let kept = (first + 1..BEFORE).map(entry).chain([b"b".to_vec()]);
            let created = (0..start.fresh.len()).map(|n| vec![n as u8 + 1]);
            assert_eq!(list(&engine, dir).1, kept.chain(created).collect());
        });
    }
}
