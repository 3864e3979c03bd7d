//! Tests of directories that are large enough to have a summary.

use super::shards::Overtaken;
use super::*;

/// Returns Ops on a directory with many entries.
fn many_ops(start: &Start) -> Vec<OpRecord> {
    let Start { dirs: [root, dir], file, ref fresh, .. } = *start;
    let (owner, time, content) = (OWNER, LATER, Content::Bytes(OLD));
    let [one, two, three] = [1, 2, 3].map(entry);
    let [one, two, three] = [&one[..], &two, &three];
    let rename = |from_dir, from_name, to_dir, to_name, mode| Op::Rename {
        from_dir,
        from_name,
        to_dir,
        to_name,
        mode,
        whiteout: None,
        time,
    };
    let put = Op::Put { dir, name: b"new", id: fresh[0], owner, data: OLD, time };
    let change = AttributeChange { modified: Some(Time::new(7, 7)), ..AttributeChange::default() };
    [
        Op::Create { dir, name: b"new", id: fresh[1], owner, content, time },
        Op::Link { dir, name: b"new", id: file, time },
        Op::Unlink { dir, name: one, time },
        Op::Batch {
            dir,
            ops: &[put, Op::Erase { dir, name: one, time }, Op::Erase { dir, name: two, time }],
            time,
        },
        rename(dir, one, dir, two, RenameMode::Replace),
        rename(dir, one, dir, b"new", RenameMode::NoReplace),
        rename(dir, three, root, b"new", RenameMode::NoReplace),
        rename(root, b"k", dir, two, RenameMode::Exchange),
        rename(root, b"k", dir, three, RenameMode::Replace),
        Op::SetAttributes { id: dir, change, time },
        Op::MarkAccess { id: dir, time },
    ]
    .iter()
    .map(OpRecord::new)
    .collect()
}

#[test]
fn large_directory_counts_are_linearizable() {
    let _alone = alone();
    let mut start = Start::make_with(MANY);
    let dir = start.dirs[1];
    let ops = many_ops(&start);
    let mut random = SmallRng::seed_from_u64(1);
    for round in 0..100 {
        // Half of the histories begin without a summary. In these histories, a thread builds the summary.
        start.known = (round % 2 == 0).then_some(dir);
        let mut any = || Request::Apply(ops[random.random_range(0..ops.len())].clone());
        let (first, second) = (any(), any());
        let counts = Request::Attributes(dir);
        let name = [b"new".to_vec(), entry(1), entry(2), entry(3)][random.random_range(0..4)].clone();
        let lookup = Request::Lookup { dir, name };
        let scripts = vec![
            vec![first, counts.clone()],
            vec![second, counts.clone()],
            vec![counts.clone(), lookup, counts],
        ];
        explain(&start, scripts, random.random(), 60);
    }
}

/// Creates a file in the large directory.
fn create(start: &Start, name: &[u8], id: ObjectId) -> OpRecord {
    let (dir, content) = (start.dirs[1], Content::Bytes(OLD));
    OpRecord::new(&Op::Create { dir, name, id, owner: OWNER, content, time: LATER })
}

/// Applies the Ops `first`, and counts the entries of the directory. Then runs the Ops of two threads beside
/// a thread that counts the entries several times. Asserts that each of these counts is at least the first
/// count, and at most `more` above it. The count at the end must equal the first count.
fn count_beside(start: &Start, first: Vec<OpRecord>, ops: [Vec<OpRecord>; 2], more: u64, seed: u64) {
    let (start, dir) = (start.clone(), start.dirs[1]);
    run(Bursts::new(seed, 60), move || {
        let engine = start.open();
        let count = |engine: &Scm| engine.attributes(dir).expect("sound").size;
        for op in &first {
            engine.apply(&op.decode().op()).expect("room");
        }
        let before = count(&engine);
        let writers: Vec<_> = ops
            .iter()
            .cloned()
            .map(|ops| {
                let engine = Arc::clone(&engine);
                shuttle::thread::spawn(move || {
                    for op in ops {
                        engine.apply(&op.decode().op()).expect("no other thread uses the names");
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            let now = count(&engine);
            assert!((before..=before + more).contains(&now), "{now} entries, {before} at the start");
        }
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        assert_eq!(count(&engine), before);
    });
}

/// Each thread creates an entry before it removes one, so a count is never below the one at the start. The
/// removed files have one name each, so no Op has a redo record.
#[test]
fn counts_beside_creates_and_unlinks_are_never_too_small() {
    let _alone = alone();
    let mut start = Start::make_with(MANY);
    let (dir, time) = (start.dirs[1], LATER);
    start.known = Some(dir);
    for seed in 0..20 {
        let name = |kind: &str, n: usize| format!("{kind}-{seed}-{n}").into_bytes();
        let first = (0..4).map(|n| create(&start, &name("old", n), start.fresh[n])).collect();
        let ops = [[0, 1], [2, 3]].map(|numbers| {
            let pairs = numbers.into_iter().flat_map(|n| {
                let unlink = Op::Unlink { dir, name: &name("old", n), time };
                [create(&start, &name("new", n), start.fresh[4 + n]), OpRecord::new(&unlink)]
            });
            pairs.collect()
        });
        count_beside(&start, first, ops, 2, seed);
    }
}

/// While a reader adds up the sums of the shards, another thread changes two shards: first a shard that the
/// reader has already read, and then a shard that it has not read yet. No Op has a redo record.
#[test]
fn counts_are_of_one_moment() {
    let _alone = alone();
    let mut start = Start::make_with(MANY);
    start.known = Some(start.dirs[1]);
    for (creates_first, steps) in
        [true, false].into_iter().flat_map(|first| (0..100).map(move |n| (first, n)))
    {
        let start = start.clone();
        run(Overtaken::new(steps, 1), move || {
            let engine = start.open();
            let dir = start.dirs[1];
            let in_shard = |shard: u64| {
                let is_in = |name: &Vec<u8>| engine.bucket_for_test(dir, name).expect("sound").1 % 8 == shard;
                (MANY..).map(entry).find(is_in).expect("some name")
            };
            let (new, old) =
                if creates_first { (in_shard(0), in_shard(7)) } else { (in_shard(7), in_shard(0)) };
            let create_old = create(&start, &old, start.fresh[0]);
            engine.apply(&create_old.decode().op()).expect("room");
            let before = engine.attributes(dir).expect("sound").size;
            let unlink = OpRecord::new(&Op::Unlink { dir, name: &old, time: LATER });
            let mut ops = [create(&start, &new, start.fresh[1]), unlink];
            if !creates_first {
                ops.reverse();
            }
            let (reader, writer) = (Arc::clone(&engine), Arc::clone(&engine));
            let reading = shuttle::thread::spawn(move || reader.attributes(dir).expect("sound").size);
            let writing = shuttle::thread::spawn(move || {
                ops.iter().for_each(|op| assert!(writer.apply(&op.decode().op()).is_ok()));
            });
            // The scheduler begins when three threads exist.
            let third = shuttle::thread::spawn(|| ());
            writing.join().expect("no panic");
            third.join().expect("no panic");
            let (now, less) = (reading.join().expect("no panic"), u64::from(!creates_first));
            assert!(
                (before - less..=before + 1 - less).contains(&now),
                "{now} after {before}, {steps} steps"
            );
        });
    }
}

/// A rename may move an entry to another shard. One commit must then change two partial sums.
#[test]
fn counts_beside_renames_do_not_change() {
    let _alone = alone();
    let mut start = Start::make_with(MANY);
    let dir = start.dirs[1];
    start.known = Some(dir);
    for seed in 0..20 {
        let ops = [0, 1].map(|thread: usize| {
            let rename = |n| {
                let new = format!("new-{n}").into_bytes();
                OpRecord::new(&Op::Rename {
                    from_dir: dir,
                    from_name: &entry(n),
                    to_dir: dir,
                    to_name: &new,
                    mode: RenameMode::NoReplace,
                    whiteout: None,
                    time: LATER,
                })
            };
            [0, 2].map(|n| rename(4 * seed + thread + n)).to_vec()
        });
        count_beside(&start, Vec::new(), ops, 0, seed as u64);
    }
}

/// A reader that finds a new entry also counts it, and a reader that counts the entry also finds it. The new
/// entry may have an earlier time than the others of its page, so that its Op drops the summary.
#[test]
fn count_includes_exactly_the_entries_that_look_ups_find() {
    let _alone = alone();
    let mut start = Start::make_with(MANY);
    start.known = Some(start.dirs[1]);
    for (seed, time) in (0..).zip([LATER, Time::new(0, 0)].repeat(10)) {
        let start = start.clone();
        run(Bursts::new(seed, 60), move || {
            let (engine, dir, name) = (start.open(), start.dirs[1], format!("new-{seed}").into_bytes());
            let count = |engine: &Scm| engine.attributes(dir).expect("sound").size;
            let before = count(&engine);
            let creating = shuttle::thread::spawn({
                let (engine, name, id) = (Arc::clone(&engine), name.clone(), start.fresh[0]);
                move || {
                    let content = Content::Bytes(OLD);
                    let op = Op::Create { dir, name: &name, id, owner: OWNER, content, time };
                    engine.apply(&op).expect("room");
                }
            });
            for _ in 0..2 {
                let found = engine.lookup(dir, &name).expect("sound").is_some();
                let counted = count(&engine);
                let found_later = engine.lookup(dir, &name).expect("sound").is_some();
                assert!((before + u64::from(found)..=before + u64::from(found_later)).contains(&counted));
            }
            creating.join().expect("no panic");
        });
    }
}

#[test]
fn stopped_writer_in_large_directory_stops_no_reader() {
    let _alone = alone();
    let mut start = Start::make_with(MANY);
    start.known = Some(start.dirs[1]);
    // Ops that commit several words are left out, because a reader may wait until all these words are stored
    // in their places.
    for op in many_ops(&start).into_iter().filter(|op| {
        let decoded = op.decode();
        matches!(decoded.op(), Op::Create { .. } | Op::SetAttributes { .. })
    }) {
        let steps = (0..).take_while(|&steps| stop_writer(&start, &op, steps)).count();
        assert!(steps > 10, "an Op has some steps");
    }
}
