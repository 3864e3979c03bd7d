//! The cases of the crash run.

use eyrie_engine::volume::{REDO_SLOTS, redo_slot};
use eyrie_engine::{AttributeChange, Engine, FallocateMode, InodeFlags, Kind, RenameMode, Time, XattrMode};
use eyrie_faults::CrashPoints;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::path_op::{
    self, append, batch, create, directory, fallocate, file, link, put, rename, set_size, unlink, write,
    xattr,
};
use super::ranges::{self, ranges};
use super::{Case, CaseAct, CaseVolume, Opening, PathOp, calls, clones, rights, set_ids};
use crate::ops::InitialContent;

/// Number of pairs of Ops to draw.
const PAIRS: usize = 1200;

/// Returns a volume with a few objects of most kinds.
fn few(name: &'static str) -> CaseVolume {
    let changes = [
        file("a", 100),
        link("a2", "a"),
        file("b", 5000),
        file("c", 24),
        create("s", Kind::Symlink, InitialContent::Bytes(path_op::bytes(30, 3))),
        put("k", 40),
        put("k2", 3000),
        create("p", Kind::Fifo, InitialContent::Empty),
        directory("d"),
        file("d/x", 60),
        link("d/a3", "a"),
        directory("d/e"),
        directory("e"),
        directory("f"),
        file("f/z", 10),
        xattr("b", "user.one", 40, XattrMode::Set),
        xattr("b", "user.two", 2000, XattrMode::Set),
        xattr("d/x", "user.one", 20, XattrMode::Set),
        xattr("e", "user.one", 5000, XattrMode::Set),
        xattr("k2", "user.one", 60, XattrMode::Set),
    ];
    CaseVolume::after(name, true, &changes)
}

/// Returns a volume with files that have trees, a large extent, holes, and storage without written bytes.
fn large() -> CaseVolume {
    let changes = [
        // An overwrite turns an extent of more than 16 KiB into a tree.
        file("tree", 40_000),
        write("tree", 9000, 100),
        file("extent", 20_000),
        create("sparse", Kind::File, InitialContent::Empty),
        write("sparse", 30_000, 100),
        set_size("sparse", 3 << 20),
        file("page", 4000),
        file("reserved", 4000),
        fallocate("reserved", FallocateMode::Allocate, 4000, 10_000),
        file("ahead", 5000),
        fallocate("ahead", FallocateMode::KeepSize, 9000, 20_000),
    ];
    CaseVolume::after("large", true, &changes)
}

/// Returns a volume with a directory that has `entries` names. All of them name one file. The first name is
/// one byte long, and each of the others is at least `length` bytes long.
fn crowded(name: &'static str, entries: usize, length: usize) -> CaseVolume {
    let mut changes = vec![directory("d"), file("d/0", 10), file("other", 10)];
    changes.extend((1..entries).map(|index| link(&format!("d/{index:0>length$}"), "d/0")));
    CaseVolume::after(name, true, &changes)
}

/// Returns volumes that together have trees, large extents, shared extents, holes, split buckets, buckets
/// with further pages, extended attributes, a redo record that was not applied, ACLs, capabilities, inode
/// flags, project ids, and limits of quotas.
pub(crate) fn volumes() -> Vec<CaseVolume> {
    let few = few("few");
    let crowds = [crowded("two pages", 9, 220), crowded("many buckets", 180, 1)];
    let first = [interrupted(&few), few, large(), clones::cloned()];
    first.into_iter().chain(crowds).chain([rights::guarded()]).collect()
}

/// Returns Ops of the explorer's calls: those on the three large files if `are_large` is true, otherwise all
/// others. The Ops on the large files are for the volume [`large`], which has these files, and the others are
/// for [`few`]. Clones are left out, because they have cases of their own.
fn of_explorer_on(are_large: bool) -> Vec<PathOp> {
    let is_large = |op: &PathOp| ["tree", "sparse", "ahead"].contains(&op.path());
    let is_wanted = |op: &PathOp| !matches!(op, PathOp::CloneRange { .. }) && is_large(op) == are_large;
    calls::of_explorer().into_iter().filter(is_wanted).collect()
}

/// Returns creations with contents, creations of kinds that scripts cannot create, a second name for a
/// symbolic link, and the removal of a FIFO.
fn creations() -> Vec<PathOp> {
    vec![
        file("new", 50),
        file("new", 3000),
        file("d/new", 5000),
        create("new", Kind::Fifo, InitialContent::Empty),
        create("new", Kind::Socket, InitialContent::Empty),
        create("new", Kind::BlockDevice, InitialContent::Device(0x0801)),
        create("new", Kind::CharDevice, InitialContent::Device(0x0103)),
        file("a", 10),
        link("new", "s"),
        unlink("p"),
    ]
}

fn renames() -> Vec<PathOp> {
    use RenameMode::{Exchange, Replace};
    vec![rename("c", "d/a3", Replace), rename("c", "d/e", Exchange), rename("f", "e", Exchange)]
}

fn writes() -> Vec<PathOp> {
    vec![
        write("a", 100, 28),
        append("k", 10),
        set_size("a", 120),
        set_size("k2", 100),
        fallocate("a", FallocateMode::Allocate, 50, 300),
        fallocate("a", FallocateMode::PunchHole, 10, 20),
        fallocate("a", FallocateMode::InsertRange, 0, 4096),
        fallocate("b", FallocateMode::PunchHole, 4096, 4096),
        fallocate("b", FallocateMode::CollapseRange, 0, 4096),
        fallocate("k2", FallocateMode::ZeroRange, 0, 4096),
    ]
}

/// Returns changes of keys, batches, and Ops that change several attributes.
fn keys_and_attributes() -> Vec<PathOp> {
    let set = |path: &str, change| PathOp::SetAttributes { path: path.into(), change };
    let none = AttributeChange::default();
    let times = AttributeChange {
        accessed: Some(Time::new(-5, 1)),
        modified: Some(Time::new(77, 2)),
        ..AttributeChange::default()
    };
    vec![
        set("a", AttributeChange { mode: Some(0o4711), uid: Some(9), ..none }),
        set("", AttributeChange { mode: Some(0o700), gid: Some(1), ..times }),
        set("a", AttributeChange { flags: Some(InodeFlags::all()), mode: Some(0o600), ..none }),
        set("d", AttributeChange { flags: Some(InodeFlags::APPEND_ONLY), ..none }),
        put("a", 10),
        PathOp::Erase { path: "s".into() },
        batch("", &[("k", Some(20)), ("k2", None)]),
        batch("", &[("n1", Some(20)), ("n2", Some(100)), ("n3", Some(0))]),
        batch("", &[("a", None), ("b", None), ("missing", None)]),
        batch("d", &[("x", Some(64)), ("new", Some(70)), ("a3", None)]),
    ]
}

/// Returns changes of extended attributes, with many sizes and with modes that scripts lack.
fn xattrs() -> Vec<PathOp> {
    use XattrMode::{Create, Replace, Set};
    vec![
        xattr("a", "user.one", 10, Set),
        xattr("a", "user.one", 0, Create),
        xattr("d", "user.one", 100, Set),
        xattr("", "user.one", 100, Set),
        xattr("s", "trusted.one", 30, Set),
        xattr("p", "trusted.one", 9000, Create),
        xattr("b", "user.one", 40, Create),
        xattr("b", "user.one", 41, Replace),
        xattr("b", "user.three", 41, Replace),
        xattr("b", "user.three", 3000, Set),
        xattr("b", "user.three", 70_000, Set),
        xattr("d/x", "user.one", 5000, Replace),
        xattr("e", "user.one", 4999, Set),
        xattr("k2", "user.one", 61, Set),
        PathOp::RemoveXattr { path: "b".into(), name: "user.three".into() },
    ]
}

fn small_ops() -> Vec<PathOp> {
    [of_explorer_on(false), creations(), renames(), writes(), keys_and_attributes(), xattrs()].concat()
}

fn large_ops() -> Vec<PathOp> {
    let here = [
        write("tree", 40_000, 100),
        write("tree", 3 << 20, 50),
        set_size("tree", 100),
        set_size("tree", 50_000),
        set_size("tree", 4 << 20),
        rename("tree", "page", RenameMode::Replace),
        put("tree", 100),
        write("extent", 10_000, 20),
        write("extent", 16, 8),
        write("extent", 19_000, 9000),
        append("extent", 300),
        append("extent", 6000),
        set_size("extent", 18_000),
        set_size("extent", 5000),
        unlink("extent"),
        write("sparse", 1 << 20, 5000),
        write("sparse", (3 << 20) + 5000, 10),
        set_size("sparse", 10_000),
        write("page", 0, 4096),
        append("page", 96),
        append("page", 97),
    ];
    [of_explorer_on(true), here.to_vec(), ranges()].concat()
}

fn crowded_changes() -> Vec<PathOp> {
    let long = format!("d/{:x>200}", "y");
    vec![
        file("d/new", 40),
        file(&long, 40),
        link(&long, "other"),
        put(&long, 100),
        rename("other", &long, RenameMode::Replace),
        rename("d/0", &long, RenameMode::Replace),
        rename("other", "d/0", RenameMode::Exchange),
        batch("d", &[(&long[2..], Some(10)), ("k", Some(20))]),
        unlink("d/0"),
    ]
}

/// Returns cases of one Op each. Together the cases have every kind of Op. Most kinds are applied to several
/// structures, such as small files, large extents and trees.
pub fn single() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut all = |volume: &CaseVolume, changes: &[PathOp]| {
        cases.extend(changes.iter().map(|change| Case::ops(volume, std::slice::from_ref(change))));
    };
    let empty = CaseVolume::after("empty", false, &[]);
    let on_empty =
        [file("a", 100), file("a", 60_000), directory("d"), put("k", 5000), batch("", &[("k", Some(1))])];
    all(&empty, &on_empty);
    all(&few("few"), &small_ops());
    all(&large(), &large_ops());
    all(&clones::cloned(), &clones::changes());
    all(&set_ids::privileged(), &set_ids::changes());
    all(&rights::guarded(), &rights::changes());
    let crowds = [
        crowded("about to split", 22, 1),
        crowded("page full", 7, 220),
        crowded("two pages", 9, 220),
        crowded("about to widen", 180, 1),
    ];
    for volume in &crowds {
        all(volume, &crowded_changes());
    }
    cases
}

/// Returns 1200 pairs of Ops that are drawn from `seed`, and some fixed pairs. The second Op of a pair may
/// reuse the storage that the first Op freed.
pub fn pairs(seed: u64) -> Vec<Case> {
    let pools = [(few("few"), small_ops()), (large(), large_ops()), (clones::cloned(), clones::changes())];
    let mut random = SmallRng::seed_from_u64(seed);
    let mut cases: Vec<Case> = (0..PAIRS)
        .map(|index| {
            let (volume, changes): &(CaseVolume, Vec<PathOp>) = &pools[[0, 0, 0, 1, 0, 0, 2, 1][index % 8]];
            let mut draw = || changes[random.random_range(0..changes.len())].clone();
            Case::ops(volume, &[draw(), draw()])
        })
        .collect();
    // In these pairs, the second Op reuses the redo slot or the storage of the first Op.
    let few = &pools[0].0;
    let again = [
        [rename("c", "d/new", RenameMode::Replace), rename("d/new", "e/new", RenameMode::Replace)],
        [unlink("b"), file("new", 5000)],
        [put("k2", 2900), put("k2", 2950)],
        [write("b", 4090, 20), write("b", 4080, 30)],
        [xattr("b", "user.two", 2001, XattrMode::Set), xattr("b", "user.two", 2002, XattrMode::Set)],
        [unlink("b"), xattr("c", "user.one", 2000, XattrMode::Set)],
    ];
    cases.extend(again.iter().map(|changes| Case::ops(few, changes)));
    cases.extend(ranges::again().iter().map(|changes| Case::ops(&pools[1].0, changes)));
    cases
}

/// Returns the cases of closing, opening, recovery, and the first use of another header chunk or group.
pub fn lifecycle() -> Vec<Case> {
    let few = few("few");
    let empty = CaseVolume::after("empty", false, &[]);
    let case = |volume: &CaseVolume, opening, acts: &[CaseAct]| Case {
        volume: volume.clone(),
        opening,
        acts: acts.to_vec(),
    };
    let (before, traced) = (Opening::Before, Opening::Traced);
    let op = |change: PathOp| CaseAct::Op(change);
    let elsewhere = |count| CaseAct::Reserve { count, elsewhere: true };
    let headers = |count| CaseAct::Reserve { count, elsewhere: false };
    let interrupted = interrupted(&few);
    vec![
        case(&few, before, &[op(file("new", 100)), CaseAct::Close]),
        case(&few, traced, &[op(file("new", 6000)), op(unlink("b"))]),
        case(&few, traced, &[op(write("b", 0, 5000)), op(file("new", 5000)), CaseAct::Close]),
        case(&few, traced, &[CaseAct::Close]),
        case(&few, traced, &[op(write("c", 8, 8))]),
        // These two cases need more headers than the first header chunk has. In the first case this thread
        // reserves the headers, in the second case another thread. The second chunk is in memory that held
        // other data before.
        case(&few, before, &[headers(250), op(file("new", 100))]),
        case(&few, before, &[elsewhere(250), op(file("new", 100))]),
        // In the next two cases, this thread or another thread uses a group for the first time.
        case(&empty, before, &[op(file("a", 60_000)), op(file("b", 60_000))]),
        case(
            &empty,
            before,
            &[
                CaseAct::AllocateElsewhere(33_000),
                op(file("a", 16_000)),
                op(file("b", 16_000)),
                op(file("c", 16_000)),
            ],
        ),
        case(&few, Opening::Elsewhere, &[op(file("new", 6000)), op(unlink("b")), op(file("more", 100))]),
        case(&few, before, &[CaseAct::GenerationElsewhere, op(file("new", 100))]),
        case(&interrupted, traced, &[]),
        case(&interrupted, traced, &[op(rename("d/new", "e/new", RenameMode::Replace)), CaseAct::Close]),
    ]
}

/// Returns the case of a batch whose redo record needs an extent. The case has too many crash images to open
/// all of them.
pub fn long_batch() -> Case {
    // The batch changes at least one word for each key, and a redo slot has room for 252 words.
    const KEYS: usize = 253;
    let names: Vec<String> = (0..KEYS).map(|index| index.to_string()).collect();
    let mut changes = vec![directory("d")];
    changes.extend(names.iter().map(|name| put(&format!("d/{name}"), 10)));
    let volume = CaseVolume::of_bytes("many keys", 768 << 10, false, &changes);
    let parts: Vec<(&str, Option<usize>)> = names.iter().map(|name| (&name[..], Some(20))).collect();
    Case::ops(&volume, &[batch("d", &parts), put("d/0", 30)])
}

/// Returns a volume that crashed with a committed redo record, before any word of the record was applied.
fn interrupted(few: &CaseVolume) -> CaseVolume {
    let case = Case::ops(few, &[rename("c", "d/new", RenameMode::Replace)]);
    let run = case.run(None).expect("it works");
    let model = few.model.fork();
    let CaseAct::Op(change) = &case.acts[0] else { unreachable!("it is an Op") };
    let resolved = change.resolve(&model, Time::new(1000, 7)).expect("no ids").expect("there");
    model.apply(&resolved.record.decode().op()).expect("as the engine");
    let committed =
        |image: &[u8]| (0..REDO_SLOTS).any(|slot| image[redo_slot(slot).offset() as usize..][..8] != [0; 8]);
    let mut points = CrashPoints::new(&run.base, &run.events).expect("memory");
    let mut image = run.base;
    while !committed(&image) {
        points.next().expect("a record is committed");
        image = points.base().bytes();
    }
    CaseVolume { name: "interrupted", image: image.into(), model: model.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_op_finds_its_objects() {
        for (volume, changes) in [(few("few"), small_ops()), (large(), large_ops())] {
            for change in changes {
                let resolved = change.resolve(&volume.model.fork(), Time::new(1000, 7)).expect("ids");
                assert!(resolved.is_some(), "{}: {change:?}", volume.name);
            }
        }
    }
}
