//! Files that share pages, and several threads that give the pages up.

use super::*;

/// Makes a clone of the file `tree`, and seals it. Returns the volume and the clone.
fn open_with_clone(start: &Start) -> (Arc<Scm>, ObjectId) {
    let engine = start.open();
    let (dir, id, owner, time) = (start.dirs[0], start.fresh[0], OWNER, LATER);
    let create = Op::Create { dir, name: b"clone", id, owner, content: Content::Empty, time };
    engine.apply(&create).expect("room");
    let (source, set_ids) = (start.tree, SetIds::Keep);
    let clone = Op::CloneRange { source, source_offset: 0, id, offset: 0, length: 0, set_ids, time };
    engine.apply(&clone).expect("room");
    engine.seal(id).expect("there");
    (engine, id)
}

fn truncate(engine: &Scm, id: ObjectId) {
    let truncate = Op::SetSize { id, size: 0, set_ids: SetIds::Keep, time: LATER };
    engine.apply(&truncate).expect("room");
}

/// Two files share pages, and each of two threads truncates one of the files. One thread has a view of its
/// file. The view may begin in a later epoch than the truncation of the other file. The other thread then
/// stores new bytes.
///
/// The test fails if a page that becomes free is retired in an epoch before that of the view.
#[test]
fn view_of_shared_pages_outlives_both_files() {
    let _alone = alone();
    let start = Start::make();
    run(Bursts::new(1, 3000), move || {
        let (engine, id) = open_with_clone(&start);
        let reader = shuttle::thread::spawn({
            let engine = Arc::clone(&engine);
            move || {
                epoch::advance();
                let guard = epoch::pin();
                let view = engine.view(id, (8192, 16_384), &guard).expect("there").expect("sealed").bytes;
                let before = view.to_vec();
                assert!(before.len() >= 4096 && before.iter().all(|&byte| byte == b'-'));
                truncate(&engine, id);
                for _ in 0..30 {
                    shuttle::thread::yield_now();
                    assert_eq!(view, before, "a page was used again under a view");
                }
            }
        });
        truncate(&engine, start.tree);
        for _ in 0..8 {
            epoch::advance();
            let (id, data, set_ids) = (start.tree, &[b'+'; 4096], SetIds::Keep);
            engine.apply(&Op::Append { id, data, set_ids, time: LATER }).expect("room");
        }
        reader.join().expect("no panic");
        start.fresh[1..].iter().for_each(|&id| engine.unreserve(id));
        assert!(engine.reclaim(), "no pin is left");
        let report = engine.check().expect("sound");
        assert!(report.is_clean(), "{:?}", report.findings);
        assert_eq!((report.saved_by_sharing, engine.volume().space().refused_frees()), (0, 0));
    });
}
