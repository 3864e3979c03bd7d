//! Views of files in place, beside changes of the bytes.

use std::sync::Arc;

use super::*;

/// Runs `ops` one after the other beside a thread that seals the file `id` and takes a view of a range.
/// Asserts that the view has the first bytes of the range as they were before or after one of the Ops. The
/// bytes of the view must not change.
fn view_beside(start: &Start, id: ObjectId, range: (u64, u64), ops: &[Op<'_>]) {
    let model = start.model.fork();
    let read = || {
        let mut bytes = vec![0; (range.1 - range.0) as usize];
        let count = model.read(id, range.0, &mut bytes).expect("there");
        bytes.truncate(count);
        bytes
    };
    let mut states = vec![read()];
    for op in ops {
        model.apply(op).expect("room");
        states.push(read());
    }
    let (start, ops) = (start.clone(), Arc::new(ops.iter().map(OpRecord::new).collect::<Vec<_>>()));
    run(Bursts::new(1, 500), move || {
        let engine = start.open();
        let writer = shuttle::thread::spawn({
            let (engine, ops) = (Arc::clone(&engine), Arc::clone(&ops));
            move || {
                for op in &ops[..] {
                    engine.apply(&op.decode().op()).expect("room");
                }
            }
        });
        engine.seal(id).expect("there");
        let guard = epoch::pin();
        let view = engine.view(id, range, &guard).expect("there").expect("the file is sealed").bytes;
        let before = view.to_vec();
        // A view may be shorter than the range, because it ends at a hole and at the end of contiguous bytes.
        assert!(states.iter().any(|state| state.starts_with(&before)), "torn");
        shuttle::thread::yield_now();
        writer.join().expect("no panic");
        assert_eq!(view, before);
    });
}

#[test]
fn view_of_a_file_is_sealed_against_a_writer() {
    let _alone = alone();
    let start = Start::make();
    for id in [start.file, start.tree] {
        // Without the seal, these eight bytes would be stored in place.
        let write = |data| Op::Write { id, offset: 8, data, set_ids: SetIds::Keep, time: LATER };
        view_beside(&start, id, (8, 16), &[write(&[b'1'; 8]), write(&[b'2'; 8]), write(&[b'3'; 8])]);
    }
}

#[test]
fn view_of_a_file_is_sealed_against_a_shorter_size_and_zeros() {
    let _alone = alone();
    let start = Start::make();
    let (set_ids, time, mode) = (SetIds::Keep, LATER, FallocateMode::ZeroRangeKeepSize);
    for (id, at) in [(start.file, 10), (start.tree, 5010)] {
        let range = (at - 10, at + 20);
        // Without the seal, the append would overwrite the bytes that the shorter size removed.
        let shorten = Op::SetSize { id, size: at, set_ids, time };
        view_beside(&start, id, range, &[shorten, Op::Append { id, data: &[b'+'; 16], set_ids, time }]);
        // Without the seal, a part of a page would be zeroed in place.
        view_beside(&start, id, range, &[Op::Fallocate { id, mode, offset: at, length: 8, set_ids, time }]);
    }
}
