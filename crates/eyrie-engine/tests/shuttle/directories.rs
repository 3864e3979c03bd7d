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
