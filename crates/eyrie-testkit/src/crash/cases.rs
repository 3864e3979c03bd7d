//! The cases of the crash run.

use eyrie_engine::volume::{REDO_SLOTS, redo_slot};
use eyrie_engine::{AttributeChange, Engine, FallocateMode, Kind, RenameMode, Time, XattrMode};
use eyrie_medium::CrashPoints;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::ranges::{self, fallocate, ranges};
use super::{Act, Case, Change, Opening, Volume, set_ids};
use crate::ops::{Bytes, Start};

/// Pairs of Ops that are drawn (a count).
const PAIRS: usize = 1200;

fn bytes(length: usize, pattern: u32) -> Bytes {
    Bytes { length, pattern }
}

fn create(path: &str, kind: Kind, start: Start) -> Change {
    Change::Create { path: path.into(), kind, start }
}

pub(super) fn file(path: &str, length: usize) -> Change {
    create(path, Kind::File, Start::Bytes(bytes(length, 100 + length as u32)))
}

fn directory(path: &str) -> Change {
    create(path, Kind::Directory, Start::Empty)
}

fn link(path: &str, of: &str) -> Change {
    Change::Link { path: path.into(), of: of.into() }
}

fn unlink(path: &str) -> Change {
    Change::Unlink { path: path.into() }
}

fn rename(from: &str, to: &str, mode: RenameMode) -> Change {
    Change::Rename { from: from.into(), to: to.into(), mode }
}

pub(super) fn write(path: &str, offset: u64, length: usize) -> Change {
    Change::Write { path: path.into(), offset, bytes: bytes(length, 7) }
}

pub(super) fn append(path: &str, length: usize) -> Change {
    Change::Append { path: path.into(), bytes: bytes(length, 8) }
}

pub(super) fn set_size(path: &str, size: u64) -> Change {
    Change::SetSize { path: path.into(), size }
}

fn put(path: &str, length: usize) -> Change {
    Change::Put { path: path.into(), bytes: bytes(length, 9) }
}

fn xattr(path: &str, name: &'static str, length: usize, mode: XattrMode) -> Change {
    Change::SetXattr { path: path.into(), name, bytes: bytes(length, 11), mode }
}

fn batch(dir: &str, parts: &[(&str, Option<usize>)]) -> Change {
    let part =
        |&(name, length): &(&str, Option<usize>)| (name.to_string(), length.map(|length| bytes(length, 10)));
    Change::Batch { dir: dir.into(), parts: parts.iter().map(part).collect() }
}

/// A little of everything.
fn few(name: &'static str) -> Volume {
    let changes = [
        file("a", 100),
        link("a2", "a"),
        file("b", 5000),
        file("c", 24),
        create("s", Kind::Symlink, Start::Bytes(bytes(30, 3))),
        put("k", 40),
        put("k2", 3000),
        create("p", Kind::Fifo, Start::Empty),
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
    Volume::after(name, true, &changes)
}

/// Files with trees, a large extent and holes.
fn large() -> Volume {
    let changes = [
        // An overwritten extent of more than 16 KiB becomes a tree.
        file("tree", 40_000),
        write("tree", 9000, 100),
        file("extent", 20_000),
        create("sparse", Kind::File, Start::Empty),
        write("sparse", 30_000, 100),
        set_size("sparse", 3 << 20),
        file("page", 4000),
        file("reserved", 4000),
        fallocate("reserved", FallocateMode::Allocate, 4000, 10_000),
    ];
    Volume::after("large", true, &changes)
}

/// A directory with so many entries of one file, whose names are `length` bytes long.
fn crowded(name: &'static str, entries: usize, length: usize) -> Volume {
    let mut changes = vec![directory("d"), file("d/0", 10), file("other", 10)];
    changes.extend((1..entries).map(|index| link(&format!("d/{index:0>length$}"), "d/0")));
    Volume::after(name, true, &changes)
}

/// Volumes that between them have every structure of the format: trees, large extents, holes, split buckets and further
/// pages of them, extended attributes, a redo record that was not applied.
pub(crate) fn volumes() -> Vec<Volume> {
    let few = few("few");
    vec![interrupted(&few), few, large(), crowded("two pages", 9, 220), crowded("many buckets", 180, 1)]
}

fn creations() -> Vec<Change> {
    vec![
        create("new", Kind::File, Start::Empty),
        file("new", 50),
        file("new", 3000),
        file("d/new", 5000),
        directory("new"),
        directory("d/e/new"),
        create("new", Kind::Symlink, Start::Bytes(bytes(20, 1))),
        create("new", Kind::Fifo, Start::Empty),
        create("new", Kind::Socket, Start::Empty),
        create("new", Kind::BlockDevice, Start::Device(0x0801)),
        create("new", Kind::CharDevice, Start::Device(0x0103)),
        file("a", 10),
        link("new", "c"),
        link("d/new", "a"),
        link("new", "s"),
    ]
}

fn removals() -> Vec<Change> {
    let rmdir = |path: &str| Change::RemoveDirectory { path: path.into() };
    vec![
        unlink("a"),
        unlink("b"),
        unlink("c"),
        unlink("s"),
        unlink("p"),
        unlink("d/a3"),
        rmdir("e"),
        rmdir("d/e"),
        rmdir("d"),
    ]
}

fn renames() -> Vec<Change> {
    use RenameMode::{Exchange, NoReplace, Replace};
    vec![
        rename("a", "new", Replace),
        rename("a", "new", NoReplace),
        rename("a", "c", NoReplace),
        rename("a", "a2", Replace),
        rename("c", "b", Replace),
        rename("b", "a", Replace),
        rename("c", "d/new", Replace),
        rename("c", "d/x", Replace),
        rename("d/x", "a", Replace),
        rename("a2", "d/a3", Replace),
        rename("c", "d/a3", Replace),
        rename("k", "s", Replace),
        rename("e", "new", Replace),
        rename("e", "d/e", Replace),
        rename("f", "e", Replace),
        rename("f", "d/new", Replace),
        rename("d/e", "g", Replace),
        rename("d", "d/e/new", Replace),
        rename("a", "c", Exchange),
        rename("c", "d/x", Exchange),
        rename("c", "e", Exchange),
        rename("c", "d/e", Exchange),
        rename("f", "d/e", Exchange),
        rename("f", "e", Exchange),
        rename("d", "d/x", Exchange),
    ]
}

fn writes() -> Vec<Change> {
    vec![
        write("c", 8, 8),
        write("c", 3, 4),
        write("c", 3, 12),
        write("a", 0, 100),
        write("a", 50, 100),
        write("a", 100, 28),
        write("a", 200, 10),
        write("a", 5000, 10),
        write("b", 4090, 20),
        write("b", 0, 6000),
        write("k", 8, 8),
        append("c", 8),
        append("c", 100),
        append("a", 20),
        append("b", 4000),
        append("k", 10),
        set_size("a", 0),
        set_size("a", 10),
        set_size("a", 120),
        set_size("a", 9000),
        set_size("b", 4096),
        set_size("b", 20_000),
        set_size("k2", 100),
        fallocate("a", FallocateMode::Allocate, 50, 300),
        fallocate("a", FallocateMode::Allocate, 0, 9000),
        fallocate("a", FallocateMode::PunchHole, 10, 20),
        fallocate("a", FallocateMode::InsertRange, 0, 4096),
        fallocate("b", FallocateMode::PunchHole, 4096, 4096),
        fallocate("b", FallocateMode::CollapseRange, 0, 4096),
        fallocate("k2", FallocateMode::ZeroRange, 0, 4096),
    ]
}

fn keys_and_attributes() -> Vec<Change> {
    let set = |path: &str, change| Change::SetAttributes { path: path.into(), change };
    let none = AttributeChange::default();
    let times = AttributeChange {
        accessed: Some(Time::new(-5, 1)),
        modified: Some(Time::new(77, 2)),
        ..AttributeChange::default()
    };
    vec![
        set("a", AttributeChange { mode: Some(0o4711), uid: Some(9), ..none }),
        set("b", times),
        set("d", times),
        set("", AttributeChange { mode: Some(0o700), gid: Some(1), ..times }),
        set("s", AttributeChange { uid: Some(5), ..none }),
        put("new", 100),
        put("d/new", 5000),
        put("k", 41),
        put("k2", 0),
        put("b", 300),
        put("a", 10),
        Change::Erase { path: "k".into() },
        Change::Erase { path: "a".into() },
        Change::Erase { path: "s".into() },
        batch("", &[("k", Some(20)), ("k2", None)]),
        batch("", &[("n1", Some(20)), ("n2", Some(100)), ("n3", Some(0))]),
        batch("", &[("a", None), ("b", None), ("missing", None)]),
        batch("d", &[("x", Some(64)), ("new", Some(70)), ("a3", None)]),
    ]
}

fn xattrs() -> Vec<Change> {
    use XattrMode::{Create, Replace, Set};
    let remove = |path: &str, name| Change::RemoveXattr { path: path.into(), name };
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
        remove("b", "user.one"),
        remove("b", "user.three"),
        remove("d/x", "user.one"),
        remove("e", "user.one"),
    ]
}

fn large_changes() -> Vec<Change> {
    vec![
        write("tree", 4096, 8),
        write("tree", 100, 3),
        write("tree", 4000, 200),
        write("tree", 8192, 4096),
        write("tree", 39_000, 3000),
        write("tree", 40_000, 100),
        write("tree", 60_000, 50),
        write("tree", 3 << 20, 50),
        append("tree", 5000),
        set_size("tree", 0),
        set_size("tree", 100),
        set_size("tree", 12_288),
        set_size("tree", 39_999),
        set_size("tree", 50_000),
        set_size("tree", 4 << 20),
        unlink("tree"),
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
        write("sparse", 0, 8),
        write("sparse", 29_990, 20),
        write("sparse", 1 << 20, 5000),
        write("sparse", (3 << 20) + 5000, 10),
        append("sparse", 4096),
        set_size("sparse", 30_050),
        set_size("sparse", 10_000),
        unlink("sparse"),
        write("page", 0, 4096),
        append("page", 96),
        append("page", 97),
    ]
}

fn crowded_changes() -> Vec<Change> {
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

/// Every Op by itself, wherever it makes a difference.
pub fn single() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut all = |volume: &Volume, changes: &[Change]| {
        cases.extend(changes.iter().map(|change| Case::ops(volume, std::slice::from_ref(change))));
    };
    let empty = Volume::after("empty", false, &[]);
    let on_empty =
        [file("a", 100), file("a", 60_000), directory("d"), put("k", 5000), batch("", &[("k", Some(1))])];
    all(&empty, &on_empty);
    let few = few("few");
    for changes in [creations(), removals(), renames(), writes(), keys_and_attributes(), xattrs()] {
        all(&few, &changes);
    }
    let large = large();
    all(&large, &large_changes());
    all(&large, &ranges());
    all(&set_ids::privileged(), &set_ids::changes());
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

/// Two Ops, the second of which may use what the first freed: drawn by `seed`.
pub fn pairs(seed: u64) -> Vec<Case> {
    let few_changes =
        [creations(), removals(), renames(), writes(), keys_and_attributes(), xattrs()].into_iter().flatten();
    let pools = [(few("few"), few_changes.collect()), (large(), [large_changes(), ranges()].concat())];
    let mut random = SmallRng::seed_from_u64(seed);
    let mut cases: Vec<Case> = (0..PAIRS)
        .map(|index| {
            let (volume, changes): &(Volume, Vec<Change>) = &pools[usize::from(index % 4 == 3)];
            let mut draw = || changes[random.random_range(0..changes.len())].clone();
            Case::ops(volume, &[draw(), draw()])
        })
        .collect();
    // The second of these takes the redo slot, or the memory, of the first.
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

/// Closing, opening, recovering, and taking more of the volume into use.
pub fn lifecycle() -> Vec<Case> {
    let few = few("few");
    let empty = Volume::after("empty", false, &[]);
    let case = |volume: &Volume, opening, acts: &[Act]| Case {
        volume: volume.clone(),
        opening,
        acts: acts.to_vec(),
    };
    let (before, traced) = (Opening::Before, Opening::Traced);
    let op = |change: Change| Act::Op(change);
    let elsewhere = |count| Act::Reserve { count, elsewhere: true };
    let headers = |count| Act::Reserve { count, elsewhere: false };
    let interrupted = interrupted(&few);
    vec![
        case(&few, before, &[op(file("new", 100)), Act::Close]),
        case(&few, traced, &[op(file("new", 6000)), op(unlink("b"))]),
        case(&few, traced, &[op(write("b", 0, 5000)), op(file("new", 5000)), Act::Close]),
        case(&few, traced, &[Act::Close]),
        case(&few, traced, &[op(write("c", 8, 8))]),
        // More headers than the first chunk has, on memory that was something else before.
        case(&few, before, &[headers(250), op(file("new", 100))]),
        case(&few, before, &[elsewhere(250), op(file("new", 100))]),
        // Another group, with and without the thread that took it into use.
        case(&empty, before, &[op(file("a", 60_000)), op(file("b", 60_000))]),
        case(
            &empty,
            before,
            &[
                Act::AllocateElsewhere(33_000),
                op(file("a", 16_000)),
                op(file("b", 16_000)),
                op(file("c", 16_000)),
            ],
        ),
        case(&few, Opening::Elsewhere, &[op(file("new", 6000)), op(unlink("b")), op(file("more", 100))]),
        case(&few, before, &[Act::GenerationElsewhere, op(file("new", 100))]),
        case(&interrupted, traced, &[]),
        case(&interrupted, traced, &[op(rename("d/new", "e/new", RenameMode::Replace)), Act::Close]),
    ]
}

/// A batch whose redo record needs an extent: too many images to open all.
pub fn long_batch() -> Case {
    const KEYS: usize = 253;
    let names: Vec<String> = (0..KEYS).map(|index| index.to_string()).collect();
    let mut changes = vec![directory("d")];
    changes.extend(names.iter().map(|name| put(&format!("d/{name}"), 10)));
    let volume = Volume::of_bytes("many keys", 768 << 10, false, &changes);
    let parts: Vec<(&str, Option<usize>)> = names.iter().map(|name| (&name[..], Some(20))).collect();
    Case::ops(&volume, &[batch("d", &parts), put("d/0", 30)])
}

/// A volume that crashed with a committed redo record, of which nothing was applied.
fn interrupted(few: &Volume) -> Volume {
    let case = Case::ops(few, &[rename("c", "d/new", RenameMode::Replace)]);
    let run = case.run(None).expect("it works");
    let model = few.model.fork();
    let Act::Op(change) = &case.acts[0] else { unreachable!("it is an Op") };
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
    Volume { name: "interrupted", image: image.into(), model: model.into() }
}
