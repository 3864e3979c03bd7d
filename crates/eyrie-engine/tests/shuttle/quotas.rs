//! Tests of quotas: limits, changes of owners and frees, while several threads change files.

use eyrie_engine::quota::{QUOTA_XATTR, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable};

use super::*;

const PAGE: usize = 4096;
const ADA: QuotaId = QuotaId { kind: QuotaKind::User, number: 7 };

/// Opens the volume, and gives it a limit of three pages for user 7. The file `file` then belongs to this
/// user.
fn open_with_limit(start: &Start, file: ObjectId) -> Arc<Scm> {
    let engine = start.open();
    let (id, time, mut table) = (engine.root(), LATER, QuotaTable::default());
    let bytes = QuotaLimit { hard: 3 * PAGE as u64, ..QuotaLimit::default() };
    table.set(ADA, QuotaLimits { bytes, ..QuotaLimits::default() }).expect("possible");
    let (value, mode) = (table.encode(), XattrMode::Set);
    engine.apply(&Op::SetXattr { id, name: QUOTA_XATTR, value: &value, mode, time }).expect("room");
    set_owner(&engine, file, 7).expect("within the limit");
    engine
}

fn set_owner(engine: &Scm, id: ObjectId, uid: u32) -> Result<()> {
    let change = AttributeChange { uid: Some(uid), ..AttributeChange::default() };
    engine.apply(&Op::SetAttributes { id, change, time: LATER }).map(drop)
}

/// Checks the volume. The check compares the counts of usage with the objects.
fn assert_counted(engine: &Scm, start: &Start, used: usize) {
    start.fresh[used..].iter().for_each(|&id| engine.unreserve(id));
    let report = engine.check().expect("sound");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn limit_holds_for_all_threads_together() {
    let _alone = alone();
    let start = Start::make();
    run(Bursts::new(1, 100), move || {
        let engine = open_with_limit(&start, start.file);
        let (dir, owner) = (start.dirs[0], Owner { uid: 7, ..OWNER });
        let makers: Vec<_> = (0..2)
            .map(|thread| {
                let (engine, id) = (Arc::clone(&engine), start.fresh[thread]);
                shuttle::thread::spawn(move || {
                    let (name, content) = ([b'x', thread as u8], Content::Bytes(&[1; 2 * PAGE]));
                    let made =
                        engine.apply(&Op::Create { dir, name: &name, id, owner, content, time: LATER });
                    let is_there = engine.lookup(dir, &name).expect("sound").is_some();
                    assert_eq!(is_there, made.is_ok(), "a refused Op changes nothing");
                    match made {
                        Ok(_) => 1,
                        Err(Error::QuotaExceeded) => {
                            engine.unreserve(id);
                            0
                        }
                        Err(error) => panic!("{error}"),
                    }
                })
            })
            .collect();
        let made: usize = makers.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert!(made <= 1, "both files together are above the limit");
        assert_counted(&engine, &start, 2);
    });
}

#[test]
fn owners_change_beside_writes() {
    let _alone = alone();
    let start = Start::make();
    run(Bursts::new(2, 100), move || {
        let engine = open_with_limit(&start, start.file);
        let (id, other) = (start.file, Arc::clone(&engine));
        let writer = shuttle::thread::spawn(move || {
            for offset in [5000, 0, 9000] {
                let set_ids = SetIds::Keep;
                let write = Op::Write { id, offset, data: &[2; 100], set_ids, time: LATER };
                let written = other.apply(&write);
                assert!(matches!(written, Ok(_) | Err(Error::QuotaExceeded)), "{written:?}");
            }
        });
        for uid in [8, 7, 8] {
            let set = set_owner(&engine, id, uid);
            assert!(matches!(set, Ok(()) | Err(Error::QuotaExceeded)), "{set:?}");
        }
        writer.join().expect("no panic");
        assert_counted(&engine, &start, 0);
    });
}

#[test]
fn freed_files_give_their_storage_back() {
    let _alone = alone();
    let start = Start::make();
    run(Bursts::new(3, 100), move || {
        let engine = open_with_limit(&start, start.file);
        let (id, dir, owner) = (start.fresh[0], start.dirs[0], Owner { uid: 7, ..OWNER });
        let content = Content::Bytes(&[1; PAGE]);
        engine.apply(&Op::Create { dir, name: b"new", id, owner, content, time: LATER }).expect("room");
        engine.open(id).expect("alive");
        let other = Arc::clone(&engine);
        let closer = shuttle::thread::spawn(move || Engine::close(&*other, id));
        engine.apply(&Op::Unlink { dir, name: b"new", time: LATER }).expect("there");
        closer.join().expect("no panic");
        assert_counted(&engine, &start, 1);
    });
}
