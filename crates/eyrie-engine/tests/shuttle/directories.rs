//! Tests of directories that are large enough to have a summary.

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

/// Runs the Ops of two threads beside a thread that reads the number of entries of the directory several
/// times. Asserts that each of the numbers is the number of entries at the start, or at most `more` larger.
fn count_beside(start: &Start, ops: [Vec<OpRecord>; 2], more: u64, seed: u64, schedules: usize) {
    let (start, dir) = (start.clone(), start.dirs[1]);
    run(Bursts::new(seed, schedules), move || {
        let engine = start.open();
        let count = |engine: &Scm| engine.attributes(dir).expect("sound").size;
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

/// Each thread creates an entry before it removes one, so a count is never below the one at the start.
#[test]
fn counts_beside_creates_and_unlinks_are_never_too_small() {
    let _alone = alone();
    let mut start = Start::make_with(MANY);
    let (dir, owner, time, content) = (start.dirs[1], OWNER, LATER, Content::Bytes(OLD));
    start.known = Some(dir);
    for seed in 0..20 {
        let ops = [0, 1].map(|thread: usize| {
            let names = [0, 2].map(|n| 4 * seed + thread + n);
            let pairs = names.into_iter().enumerate().flat_map(|(n, name)| {
                let (new, id) = (format!("new-{name}").into_bytes(), start.fresh[2 * thread + n]);
                let create = Op::Create { dir, name: &new, id, owner, content, time };
                [OpRecord::new(&create), OpRecord::new(&Op::Unlink { dir, name: &entry(name), time })]
            });
            pairs.collect()
        });
        count_beside(&start, ops, 2, seed as u64, 60);
    }
}

/// A rename moves an entry to another shard. So one commit must change two partial sums.
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
        count_beside(&start, ops, 0, seed as u64, 60);
    }
}

/// After the end of a create, a reader in another thread sees the new count. The create may be the one of an
/// Op with an earlier time, which drops the summary.
#[test]
fn count_after_a_look_up_includes_the_found_entry() {
    let _alone = alone();
    let mut start = Start::make_with(MANY);
    let (dir, owner, content) = (start.dirs[1], OWNER, Content::Bytes(OLD));
    start.known = Some(dir);
    for (seed, time) in (0..).zip([LATER, Time::new(0, 0)].repeat(10)) {
        let name = format!("new-{seed}").into_bytes();
        let op = Op::Create { dir, name: &name, id: start.fresh[0], owner, content, time };
        let counts = Request::Attributes(dir);
        let lookup = Request::Lookup { dir, name: name.clone() };
        let reads = vec![lookup.clone(), counts.clone(), lookup];
        let scripts = vec![vec![Request::Apply(OpRecord::new(&op))], reads.clone(), reads];
        explain(&start, scripts, seed, 60);
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
