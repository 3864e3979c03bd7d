//! Tests of limits and of the counts of usage.

use super::super::quotas::REPORTED;
use super::*;
use crate::quota::{QUOTA_XATTR, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable, QuotaUsage};
use crate::transaction::SUMMED;
use crate::{Applied, AttributeChange, XattrMode, salvage};

const ADA: Owner = Owner { mode: 0o755, uid: 7, gid: 70 };
const USER: QuotaId = QuotaId { kind: QuotaKind::User, number: 7 };
const GROUP: QuotaId = QuotaId { kind: QuotaKind::Group, number: 70 };
const TREE: QuotaId = QuotaId { kind: QuotaKind::Tree, number: 9 };
const NONE: QuotaLimit = QuotaLimit { soft: 0, hard: 0, deadline: 0 };

fn hard(limit: u64) -> QuotaLimit {
    QuotaLimit { hard: limit, ..NONE }
}

pub(super) fn set_limits(engine: &Scm, limits: &[(QuotaId, QuotaLimits)]) -> Result<Applied> {
    let mut table = QuotaTable::default();
    (table.bytes_grace, table.files_grace) = (100, 200);
    limits.iter().for_each(|&(id, limits)| table.set(id, limits).expect("possible"));
    let (id, value) = (engine.root, table.encode());
    engine.apply(&Op::SetXattr { id, name: QUOTA_XATTR, value: &value, mode: XattrMode::Set, time: BORN })
}

fn with_limit(id: QuotaId, bytes: QuotaLimit, files: QuotaLimit) -> Scm {
    let engine = engine();
    set_limits(&engine, &[(id, QuotaLimits { bytes, files })]).expect("room");
    engine
}

fn make(engine: &Scm, dir: ObjectId, name: &[u8], owner: Owner, content: Content<'_>) -> Result<ObjectId> {
    let id = engine.reserve(Kind::File)?;
    let made = engine.apply(&Op::Create { dir, name, id, owner, content, time: BORN });
    made.inspect_err(|_| engine.unreserve(id)).map(|_| id)
}

fn write_at(engine: &Scm, id: ObjectId, offset: u64, data: &[u8]) -> Result<Applied> {
    engine.apply(&Op::Write { id, offset, data, set_ids: SetIds::Keep, time: BORN })
}

fn change(engine: &Scm, id: ObjectId, change: AttributeChange) -> Result<Applied> {
    engine.apply(&Op::SetAttributes { id, change, time: BORN })
}

fn usage(engine: &Scm, id: QuotaId) -> QuotaUsage {
    let reports = engine.quotas().expect("sound").expect("switched on");
    reports.iter().find(|report| report.id == id).map_or(QuotaUsage::default(), |report| report.usage)
}

fn is_refused<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::QuotaExceeded))
}

#[test]
fn hard_limit_refuses_storage_and_changes_nothing() {
    let engine = with_limit(USER, hard(3 * PAGE_SIZE), NONE);
    let file = make(&engine, engine.root, b"file", ADA, Content::Empty).expect("room");
    write_at(&engine, file, 0, &[1; 4096]).expect("below the limit");
    assert_eq!(usage(&engine, USER), QuotaUsage { bytes: PAGE_SIZE, files: 1 });
    assert!(is_refused(write_at(&engine, file, 4096, &[2; 12_288])));
    assert_eq!(engine.attributes(file).expect("alive").size, 4096);
    assert_eq!(usage(&engine, USER).bytes, PAGE_SIZE);
    write_at(&engine, file, 0, &[3; 4096]).expect("an overwrite takes nothing");
    assert!(is_refused(make(&engine, engine.root, b"large", ADA, Content::Bytes(&[1; 20_000]))));
    let other = make(&engine, engine.root, b"other", OWNER, Content::Bytes(&[1; 20_000])).expect("no limit");
    let to_ada = AttributeChange { uid: Some(7), ..AttributeChange::default() };
    assert!(is_refused(change(&engine, other, to_ada)));
    assert_eq!(engine.attributes(other).expect("alive").uid, 0);
    let refused = Op::Write { id: file, offset: 4096, data: &[2; 12_288], set_ids: SetIds::Keep, time: BORN };
    engine.apply_above_limits(&refused).expect("no limit stops this caller");
    assert_eq!(findings(&engine), [""; 0]);
    engine.apply(&Op::Unlink { dir: engine.root, name: b"file", time: BORN }).expect("there");
    assert_eq!(usage(&engine, USER), QuotaUsage::default());
    assert_eq!(findings(&engine), [""; 0]);
}

#[test]
fn limit_of_files_counts_every_object() {
    let engine = with_limit(GROUP, NONE, hard(2));
    let first = make(&engine, engine.root, b"first", ADA, Content::Empty).expect("room");
    make(&engine, engine.root, b"second", ADA, Content::Empty).expect("room");
    assert!(is_refused(make(&engine, engine.root, b"third", ADA, Content::Empty)));
    engine
        .apply(&Op::Link { dir: engine.root, name: b"link", id: first, time: BORN })
        .expect("no new object");
    let dir = engine.reserve(Kind::Directory).expect("room");
    let made = Op::Create {
        dir: engine.root,
        name: b"dir",
        id: dir,
        owner: ADA,
        content: Content::Empty,
        time: BORN,
    };
    assert!(is_refused(engine.apply(&made)));
    engine.open(first).expect("alive");
    for name in [&b"first"[..], b"link"] {
        engine.apply(&Op::Unlink { dir: engine.root, name, time: BORN }).expect("there");
    }
    assert!(is_refused(engine.apply(&made)), "the file is still open");
    Engine::close(&engine, first);
    engine.apply(&made).expect("the last close gave the file back");
    assert_eq!(usage(&engine, GROUP), QuotaUsage { bytes: 0, files: 2 });
    assert_eq!(findings(&engine), [""; 0]);
}

#[test]
fn soft_limit_refuses_after_its_grace_time() {
    let soft = QuotaLimit { soft: PAGE_SIZE, hard: 4 * PAGE_SIZE, deadline: 0 };
    let mut engine = with_limit(USER, soft, NONE);
    let file = make(&engine, engine.root, b"file", ADA, Content::Empty).expect("room");
    let write = |engine: &Scm, page: u64, seconds| {
        let time = Time::new(BORN.seconds + seconds, 0);
        let offset = page * PAGE_SIZE;
        engine.apply(&Op::Write { id: file, offset, data: &[1; 4096], set_ids: SetIds::Keep, time })
    };
    write(&engine, 0, 0).expect("not above the soft limit");
    // The second page needs a node, too.
    write(&engine, 1, 50).expect("the grace time begins");
    assert!(usage(&engine, USER).bytes > 2 * PAGE_SIZE);
    for reopens in [false, true] {
        if reopens {
            let image = {
                engine.save().expect("room");
                engine.medium().snapshot()
            };
            engine = Scm::open_on(Medium::memory_holding(&image).expect("memory")).expect("sound");
        }
        write(&engine, 1, 149).expect("an overwrite");
        assert!(is_refused(write(&engine, 2, 150)), "the grace time is over, reopened: {reopens}");
    }
    let size = |size, seconds| {
        let time = Time::new(BORN.seconds + seconds, 0);
        engine.apply(&Op::SetSize { id: file, size, set_ids: SetIds::Keep, time })
    };
    size(0, 151).expect("a truncation gives back");
    write(&engine, 0, 160).expect("not above the soft limit");
    write(&engine, 1, 170).expect("a new grace time begins");
    assert_eq!(findings(&engine), [""; 0]);
}

#[test]
fn freed_file_begins_no_grace_time() {
    let soft = QuotaLimit { soft: PAGE_SIZE, ..NONE };
    let engine = with_limit(USER, soft, NONE);
    for name in [&b"a"[..], b"b", b"c"] {
        make(&engine, engine.root, name, ADA, Content::Bytes(&[1; 4096])).expect("no hard limit");
    }
    // The crash loses the end of the grace time.
    let image = engine.medium().snapshot();
    let engine = Scm::open_on(Medium::memory_holding(&image).expect("memory")).expect("sound");
    engine.apply(&Op::Unlink { dir: engine.root, name: b"a", time: BORN }).expect("there");
    assert!(usage(&engine, USER).bytes > PAGE_SIZE, "still above the soft limit");
    let (id, time) = (engine.reserve(Kind::File).expect("room"), Time::new(1000, 0));
    let content = Content::Bytes(&[1; 4096]);
    let create = Op::Create { dir: engine.root, name: b"d", id, owner: ADA, content, time };
    engine.apply(&create).expect("the grace time begins");
    let reports = engine.quotas().expect("sound").expect("switched on");
    let report = reports.iter().find(|report| report.id == USER).expect("limited");
    assert_eq!(report.limits.bytes.deadline, time.seconds + 100);
    assert_eq!(findings(&engine), [""; 0]);
}

#[test]
fn grace_time_begins_with_a_lower_limit() {
    let engine = with_limit(USER, NONE, NONE);
    for name in [&b"a"[..], b"b", b"c"] {
        make(&engine, engine.root, name, ADA, Content::Empty).expect("no limit");
    }
    let soft = |soft| QuotaLimit { soft, ..NONE };
    let files = || {
        let reports = engine.quotas().expect("sound").expect("switched on");
        reports.iter().find(|report| report.id == USER).expect("limited").limits.files
    };
    for (limit, deadline) in [(3, 0), (2, BORN.seconds + 200), (1, BORN.seconds + 200), (3, 0)] {
        set_limits(&engine, &[(USER, QuotaLimits { bytes: NONE, files: soft(limit) })]).expect("room");
        assert_eq!(files(), QuotaLimit { deadline, ..soft(limit) });
    }
    assert_eq!(findings(&engine), [""; 0]);
}

#[test]
fn owners_move_usage_with_the_object() {
    let engine = with_limit(USER, hard(1 << 20), NONE);
    let file = make(&engine, engine.root, b"file", ADA, Content::Bytes(&[1; 30_000])).expect("room");
    let before = usage(&engine, USER);
    assert!(before.bytes >= 30_000);
    let to_bob = AttributeChange { uid: Some(8), size: Some(0), ..AttributeChange::default() };
    change(&engine, file, to_bob).expect("no limit");
    assert_eq!(usage(&engine, USER), QuotaUsage::default());
    assert_eq!(usage(&engine, QuotaId { number: 8, ..USER }), QuotaUsage { bytes: 0, files: 1 });
    assert_eq!(usage(&engine, GROUP), QuotaUsage { bytes: 0, files: 1 });
    assert_eq!(findings(&engine), [""; 0]);
}

/// The storage of a damaged file cannot be counted. Only a change of its owner needs the count.
#[test]
fn change_that_keeps_the_owner_counts_no_storage() {
    let engine = with_limit(USER, hard(1 << 20), NONE);
    let file = make(&engine, engine.root, b"file", ADA, Content::Empty).expect("room");
    for page in 0..3 {
        write_at(&engine, file, page * PAGE_SIZE, &[1; 4096]).expect("room");
    }
    let medium = engine.medium();
    let root = engine.header(file).and_then(|header| header.hot(medium)).expect("alive").root;
    drop(medium.write_word(root.extent().expect("a node").addr, u64::MAX).expect("in bounds"));
    let to_bob = AttributeChange { uid: Some(8), ..AttributeChange::default() };
    assert!(matches!(change(&engine, file, to_bob), Err(Error::Corrupt { .. })));
    for kept in [
        AttributeChange { mode: Some(0o600), ..AttributeChange::default() },
        AttributeChange { modified: Some(LATER), ..AttributeChange::default() },
        AttributeChange { uid: Some(ADA.uid), gid: Some(ADA.gid), ..AttributeChange::default() },
    ] {
        change(&engine, file, kept).expect("the owner stays");
    }
}

#[test]
fn batches_are_charged_as_a_whole() {
    let engine = with_limit(USER, hard(4 * PAGE_SIZE), hard(2));
    let put = |name: &'static [u8], data: &'static [u8]| {
        let (dir, id) = (engine.root, engine.reserve(Kind::File).expect("room"));
        Op::Put { dir, name, id, owner: ADA, data, time: BORN }
    };
    let apply = |ops: &[Op<'_>]| engine.apply(&Op::Batch { dir: engine.root, ops, time: BORN });
    apply(&[put(b"a", &[1; 4096]), put(b"b", &[2; 4096])]).expect("within the limits");
    assert_eq!(usage(&engine, USER), QuotaUsage { bytes: 2 * PAGE_SIZE, files: 2 });
    assert!(is_refused(apply(&[put(b"a", &[1; 8192]), put(b"c", &[2; 1])])), "a third file");
    assert!(is_refused(apply(&[put(b"a", &[1; 16_384]), put(b"b", &[2; 4096])])));
    apply(&[put(b"a", &[1; 12_288]), put(b"b", &[2; 4000])]).expect("exactly the limit");
    engine.apply(&put(b"a", &[1; 100])).expect("room");
    engine.apply(&Op::Erase { dir: engine.root, name: b"b", time: BORN }).expect("there");
    assert_eq!(usage(&engine, USER).files, 1);
    assert_eq!(engine.compare_usages().expect("sound"), [""; 0]);
}

/// Each key of a batch has extents of its own. The charge of a key must not add up those of all other keys.
#[test]
fn charge_of_a_batch_takes_few_steps_for_each_key() {
    const KEYS: usize = 500;
    let engine = with_limit(USER, hard(BYTES), NONE);
    let names: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
    for data in [&[1; 100][..], &[2; 200]] {
        let dir = engine.root;
        let ids: Vec<_> = names.iter().map(|_| engine.reserve(Kind::File).expect("room")).collect();
        let parts = ids.iter().zip(&names);
        let put =
            parts.map(|(&id, name)| Op::Put { dir, name: name.as_bytes(), id, owner: ADA, data, time: BORN });
        let ops: Vec<Op<'_>> = put.collect();
        SUMMED.set(0);
        engine.apply(&Op::Batch { dir, ops: &ops, time: BORN }).expect("room");
        assert!(SUMMED.get() <= 8 * KEYS, "{} steps", SUMMED.get());
        assert_eq!(usage(&engine, USER).files, KEYS as u64);
    }
    assert_eq!(engine.compare_usages().expect("sound"), [""; 0]);
}

#[test]
fn report_about_one_account_looks_at_no_other() {
    let engine = with_limit(USER, hard(BYTES), NONE);
    for uid in 1..100 {
        let (name, owner) = (uid.to_string(), Owner { uid, ..ADA });
        make(&engine, engine.root, name.as_bytes(), owner, Content::Bytes(b"egg")).expect("room");
    }
    let reports = engine.quotas().expect("sound").expect("switched on");
    assert!(reports.len() > 100);
    for report in reports {
        REPORTED.set(0);
        assert_eq!(engine.quota(report.id).expect("sound"), Some(report));
        assert_eq!(REPORTED.get(), 1);
    }
}

#[test]
fn limits_and_usage_survive_close_and_crash() {
    let engine = with_limit(USER, hard(8 * PAGE_SIZE), NONE);
    let file = make(&engine, engine.root, b"file", ADA, Content::Bytes(&[1; 10_000])).expect("room");
    engine.apply(&Op::Link { dir: engine.root, name: b"again", id: file, time: BORN }).expect("room");
    let open = make(&engine, engine.root, b"open", ADA, Content::Bytes(&[1; 5000])).expect("room");
    engine.open(open).expect("alive");
    engine.apply(&Op::Unlink { dir: engine.root, name: b"open", time: BORN }).expect("there");
    let crashed = engine.medium().snapshot();
    assert!(usage(&engine, USER).files == 2, "the open file counts");
    engine.save().expect("room");
    let closed = engine.medium().snapshot();
    for image in [crashed, closed] {
        let engine = Scm::open_on(Medium::memory_holding(&image).expect("memory")).expect("sound");
        assert_eq!(usage(&engine, USER).files, 1);
        assert!(is_refused(write_at(&engine, file, 10_000, &[1; 40_000])));
        assert_eq!(findings(&engine), [""; 0]);
    }
}

#[test]
fn quotas_begin_and_end_with_their_attribute() {
    let engine = engine();
    make(&engine, engine.root, b"early", ADA, Content::Bytes(&[1; 5000])).expect("room");
    assert!(engine.quotas().expect("sound").is_none());
    set_limits(&engine, &[]).expect("room");
    assert_eq!(usage(&engine, USER).files, 1);
    let (id, mode) = (engine.root, XattrMode::Set);
    let wrong = engine.apply(&Op::SetXattr { id, name: QUOTA_XATTR, value: b"x", mode, time: BORN });
    assert!(matches!(wrong, Err(Error::Invalid(_))));
    engine.apply(&Op::RemoveXattr { id, name: QUOTA_XATTR, time: BORN }).expect("there");
    assert!(engine.quotas().expect("sound").is_none());
    make(&engine, engine.root, b"late", ADA, Content::Bytes(&[1; 5000])).expect("no limits");
    set_limits(&engine, &[]).expect("room");
    assert_eq!(usage(&engine, USER).files, 2);
    assert_eq!(findings(&engine), [""; 0]);
}

#[test]
fn trees_count_what_is_made_in_them() {
    let engine = with_limit(TREE, NONE, hard(3));
    let dir = create(&engine, engine.root, b"dir", Kind::Directory).expect("room");
    let tree = |project| AttributeChange { project: Some(project), ..AttributeChange::default() };
    change(&engine, dir, tree(9)).expect("room");
    let inner = create(&engine, dir, b"inner", Kind::Directory).expect("room");
    assert_eq!(engine.project(inner).expect("alive"), 9);
    let file = make(&engine, inner, b"file", ADA, Content::Bytes(&[1; 5000])).expect("room");
    assert_eq!(usage(&engine, TREE).files, 3);
    let refused = make(&engine, inner, b"more", ADA, Content::Empty);
    assert!(is_refused(refused));
    let outside = make(&engine, engine.root, b"outside", ADA, Content::Empty).expect("no limit");
    let linked = engine.apply(&Op::Link { dir, name: b"link", id: outside, time: BORN });
    assert!(matches!(linked, Err(Error::OtherTree)));
    let rename = |from_dir, from_name, to_dir, to_name, mode| {
        let whiteout = None;
        engine.apply(&Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time: BORN })
    };
    let root = engine.root;
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        let moved = rename(root, b"outside", inner, b"file", mode);
        assert!(matches!(moved, Err(Error::OtherTree)));
    }
    let exchanged = rename(inner, b"file", root, b"outside", RenameMode::Exchange);
    assert!(matches!(exchanged, Err(Error::OtherTree)));
    rename(inner, b"file", dir, b"file", RenameMode::Replace).expect("the same tree");
    rename(dir, b"file", root, b"file", RenameMode::Replace).expect("no tree");
    assert_eq!(usage(&engine, TREE).files, 3, "the file still belongs to the tree");
    change(&engine, file, tree(0)).expect("no limit");
    assert_eq!(usage(&engine, TREE), QuotaUsage { bytes: 0, files: 2 });
    assert_eq!(findings(&engine), [""; 0]);
}

#[test]
fn repair_keeps_limits_and_trees() {
    let engine = with_limit(TREE, NONE, hard(3));
    let dir = create(&engine, engine.root, b"dir", Kind::Directory).expect("room");
    change(&engine, dir, AttributeChange { project: Some(9), ..AttributeChange::default() }).expect("room");
    let files: [&[u8]; 2] = [b"a", b"b"];
    for name in files {
        make(&engine, dir, name, ADA, Content::Bytes(&[1; 5000])).expect("room");
    }
    let medium = Medium::memory_holding(&engine.medium().snapshot()).expect("memory");
    let damaged = Volume::open_damaged_on(medium).expect("sound");
    let to = super::engine();
    let salvaged = salvage::salvage(&damaged, &to, LATER).expect("memory does not fail");
    assert_eq!((salvaged.losses, salvaged.files), (Vec::new(), 2));
    assert_eq!(usage(&to, TREE), usage(&engine, TREE));
    let dir = to.lookup(to.root, b"dir").expect("sound").expect("there");
    assert!(is_refused(make(&to, dir, b"c", ADA, Content::Empty)));
    assert_eq!(findings(&to), [""; 0]);
}

/// Applies random Ops of several owners. The counts are compared with the objects after each Op.
#[test]
fn random_ops_are_counted_exactly() {
    for seed in 0..30_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let engine = with_limit(USER, hard(200_000), hard(6));
        let dir = engine.root;
        let data = vec![7; 100_000];
        let names: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];
        let mut refused = 0;
        for step in 0..150 {
            let (name, other) = (names[below(6) as usize], names[below(6) as usize]);
            let owner = Owner { uid: [0, 7, 8][below(3) as usize], gid: [70, 71][below(2) as usize], ..ADA };
            let data = &data[..[0, 1, 100, 4096, 5000, 30_000, 100_000][below(7) as usize]];
            let offset = [0, 100, 4096, 50_000, 5 << 20][below(5) as usize];
            let (time, set_ids, mode) = (BORN, SetIds::Keep, XattrMode::Set);
            let new = engine.reserve(Kind::File).expect("room");
            let found = engine.lookup(dir, name).expect("sound");
            let op = match (below(13), found) {
                (0, _) => Op::Create { dir, name, id: new, owner, content: Content::Bytes(data), time },
                (1, _) => Op::Put { dir, name, id: new, owner, data, time },
                (2, _) => Op::Unlink { dir, name, time },
                (3, Some(id)) => Op::Link { dir, name: other, id, time },
                (4, _) => Op::Rename {
                    from_dir: dir,
                    from_name: name,
                    to_dir: dir,
                    to_name: other,
                    mode: RenameMode::Replace,
                    whiteout: None,
                    time,
                },
                (5, Some(id)) => Op::SetSize { id, size: offset, set_ids, time },
                (6, Some(id)) => {
                    let mode = FallocateMode::ALL[below(FallocateMode::ALL.len() as u64) as usize];
                    let offset = if mode.shifts() { offset / PAGE_SIZE * PAGE_SIZE } else { offset };
                    Op::Fallocate { id, mode, offset, length: 2 * PAGE_SIZE, set_ids, time }
                }
                (7, Some(id)) => {
                    let size = (below(2) == 0).then_some(offset);
                    let (uid, project) = (Some(owner.uid), Some(below(2) as u32 * 9));
                    let change = AttributeChange { uid, size, project, ..AttributeChange::default() };
                    Op::SetAttributes { id, change, time }
                }
                (8, Some(id)) => Op::SetXattr { id, name: b"user.a", value: data, mode, time },
                (9, Some(id)) => Op::RemoveXattr { id, name: b"user.a", time },
                (10, Some(id)) => Op::Append { id, data, set_ids, time },
                (11, Some(source)) => {
                    let id = engine.lookup(dir, other).expect("sound").unwrap_or(source);
                    let (source_offset, length) = (below(2) * PAGE_SIZE, below(3) * PAGE_SIZE);
                    let offset = below(20) * PAGE_SIZE;
                    Op::CloneRange { source, source_offset, id, offset, length, set_ids, time }
                }
                (_, Some(id)) => Op::Write { id, offset, data, set_ids, time },
                _ => Op::CreateUnnamed { dir, id: new, owner, linkable: false, time },
            };
            let done = if below(8) == 0 { engine.apply_above_limits(&op) } else { engine.apply(&op) };
            refused += u32::from(is_refused(done.map(drop)));
            assert_eq!(engine.compare_usages().expect("sound"), [""; 0], "seed {seed}, step {step}: {op:?}");
        }
        assert!(refused > 0, "seed {seed}");
    }
}
