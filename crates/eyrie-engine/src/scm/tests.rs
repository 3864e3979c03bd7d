//! Tests of recovery, batches, versions, locks, closes and panics, and of the engine on damaged pointers. A
//! read or write through a damaged pointer gives an error, every call ends, and no other bytes are damaged.
//! An unlink still removes the name of a damaged object.

mod clones;
mod many_pointers;
mod quotas;
mod unnamed;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use eyrie_medium::{Addr, Caller, Fault, Mapped, Observer, PAGE_SIZE, PagedOptions};

use super::*;
use crate::check::{Report, is_on_pages};
use crate::extent::{Class, Extent};
use crate::host::HostPlace;
use crate::object::collection::buckets::{FIRST_TABLE_BYTES, segment_slot};
use crate::object::collection::layout::{LINK, page_extent};
use crate::object::collection::{self, Collection, VISITS};
use crate::object::header::HotChange;
use crate::object::pointer::Pointer;
use crate::scm::locks::{EntryLock, stripe_of};
use crate::transaction::Transaction;
use crate::volume::{Options, redo_slot};
use crate::{
    Condition, Content, Engine, FallocateMode, Kind, Op, Owner, RenameMode, SetIds, Time, Version, recovery,
};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time::new(1, 0);
const LATER: Time = Time::new(2, 0);
const BYTES: u64 = 4 << 20;

fn options() -> Options {
    Options {
        group_bytes: 1 << 20,
        hash_seed: 7,
        volume_id: [1; 16],
        created: BORN,
        medium: crate::volume::MediumChoice::Auto,
        overwrite: false,
        checksums: false,
        paged: PagedOptions::for_host(),
    }
}

fn engine() -> Scm {
    let medium = Medium::memory(BYTES).expect("memory");
    Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume")
}

fn create(engine: &Scm, dir: ObjectId, name: &[u8], kind: Kind) -> Result<ObjectId> {
    let id = engine.reserve(kind)?;
    engine.apply(&Op::Create { dir, name, id, owner: OWNER, content: Content::Empty, time: BORN })?;
    Ok(id)
}

fn hot(engine: &Scm, id: ObjectId) -> Hot {
    Header::of(id).hot(engine.medium()).expect("alive")
}

/// Returns the table of a directory, and the first page of its first bucket.
fn table_and_page(engine: &Scm, dir: ObjectId) -> (Addr, Addr) {
    let table = hot(engine, dir).root.extent().expect("sound").addr;
    let first = engine.medium().load(segment_slot(table, 0)).expect("in bounds");
    (table, Pointer::from_raw(first).extent().expect("sound").addr)
}

/// Damages an object by giving it another root and size.
fn set_root(engine: &Scm, id: ObjectId, root: Pointer, size: u64) {
    let mut transaction = Transaction::begin(&engine.volume);
    Header::of(id).change(&mut transaction, &hot(engine, id), &HotChange::data(root, size, BORN));
    transaction.commit().expect("sound");
}

/// Damages a word of a table or page.
fn set_word(engine: &Scm, addr: Addr, value: u64) {
    drop(engine.medium().write_word(addr, value).expect("in bounds"));
}

/// Makes a new node whose slots all hold `child`.
fn node_over(engine: &Scm, child: Pointer) -> Pointer {
    let mut transaction = Transaction::begin(&engine.volume);
    let extent = transaction.allocate(PAGE_SIZE).expect("room");
    for slot in 0..PAGE_SIZE / 8 {
        transaction.write_word(extent.addr.add(slot * 8), child.raw()).expect("in bounds");
    }
    transaction.commit().expect("sound");
    Pointer::node(extent)
}

fn page(addr: Addr) -> Extent {
    Extent { addr, class: Class::PAGE }
}

fn findings(engine: &Scm) -> Vec<String> {
    let Report { findings, .. } = engine.check().expect("the medium is sound");
    findings
}

#[test]
fn regression_check_of_repeated_file_nodes_ends() {
    let engine = engine();
    let file = create(&engine, engine.root, b"file", Kind::File).expect("room");
    let is_found = |damaged: &[Addr]| is_on_pages(&engine.volume, file, damaged);
    assert_eq!(findings(&engine), [""; 0]);
    // The first tree has three nodes, with 512 times 512 paths to the lowest node. The second tree has the
    // maximum height and size.
    for (height, size) in [(3, 512 << 30), (6, i64::MAX as u64)] {
        let root = (0..height).fold(Pointer::NULL, |child, _| node_over(&engine, child));
        set_root(&engine, file, root.with_height(height), size);
        let found = findings(&engine);
        assert!(found[0].contains("bytes that belong to two extents"), "{found:?}");
        // The other findings only report storage that is no longer reachable.
        assert!(
            found.len() < 20 && found[1..].iter().all(|line| line.contains("no object reaches")),
            "{found:?}"
        );
        assert!(matches!(recovery::mark_reachable(&engine.volume, engine.root), Err(Error::Corrupt { .. })));
        // A scrub looks for the files on damaged pages.
        let node = root.extent().expect("a node").addr;
        assert_eq!([is_found(&[]), is_found(&[node])], [false, true]);
    }
}

#[test]
fn regression_check_of_cyclic_directories_ends() {
    let engine = engine();
    let dir = create(&engine, engine.root, b"dir", Kind::Directory).expect("room");
    let mut transaction = Transaction::begin(&engine.volume);
    let root = hot(&engine, dir).root;
    collection::insert(&mut transaction, root, b"up", engine.root, BORN, 0).expect("room");
    transaction.commit().expect("sound");
    assert!(findings(&engine)[0].contains("directory with two names"), "{:?}", findings(&engine));

    let (_, page) = table_and_page(&engine, dir);
    set_word(&engine, page.add(LINK), Pointer::node(page_extent(page)).raw());
    assert!(findings(&engine)[0].contains("bytes that belong to two extents"), "{:?}", findings(&engine));
}

#[test]
fn regression_repeated_file_nodes_are_not_freed() {
    let engine = engine();
    let file = create(&engine, engine.root, b"file", Kind::File).expect("room");
    let root = (0..3).fold(Pointer::NULL, |child, _| node_over(&engine, child));
    set_root(&engine, file, root.with_height(3), 512 << 30);
    let before = engine.space();
    for size in [0, 1] {
        let resized = engine.apply(&Op::SetSize { id: file, size, set_ids: SetIds::Keep, time: LATER });
        assert!(matches!(resized, Err(Error::Corrupt { .. })), "{resized:?}");
        assert_eq!(hot(&engine, file).size, 512 << 30);
    }
    // An unlink removes the name in spite of the damage.
    engine.apply(&Op::Unlink { dir: engine.root, name: b"file", time: LATER }).expect("removed");
    assert_eq!(engine.lookup(engine.root, b"file").expect("sound"), None);
    assert_eq!((engine.space(), engine.volume.space().refused_frees()), (before, 0));
}

/// Returns four pages that belong to no object. The first is a copy of the superblock, the second a redo
/// slot, and the third a page without headers in a header chunk. The fourth is not in use yet.
fn pages_of_nobody(engine: &Scm) -> [Addr; 4] {
    let headers = Addr::from_raw(engine.root.place()).align_down(PAGE_SIZE).add(4 * PAGE_SIZE);
    [Addr::from_raw(PAGE_SIZE), redo_slot(3), headers, Addr::from_raw(BYTES - PAGE_SIZE)]
}

fn bytes(engine: &Scm, addr: Addr) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE as usize];
    engine.medium().read(addr, &mut bytes).expect("in bounds");
    bytes
}

#[test]
fn regression_damaged_file_pointer_is_not_written_through() {
    let engine = engine();
    let id = create(&engine, engine.root, b"file", Kind::File).expect("room");
    for victim in pages_of_nobody(&engine) {
        let before = bytes(&engine, victim);
        let (leaf, node) = (Pointer::leaf(page(victim)), Pointer::node(page(victim)).with_height(1));
        let leaf_below = node_over(&engine, leaf).with_height(1);
        let unwritten_below = node_over(&engine, Pointer::unwritten(page(victim))).with_height(1);
        let write = |offset, data| Op::Write { id, offset, data, set_ids: SetIds::Keep, time: LATER };
        let append = Op::Append { id, data: &[b'+'; 10], set_ids: SetIds::Keep, time: LATER };
        let extend = |size| Op::SetSize { id, size, set_ids: SetIds::Keep, time: LATER };
        let (mode, offset, length) = (FallocateMode::Allocate, 0, PAGE_SIZE);
        let allocate = Op::Fallocate { id, mode, offset, length, set_ids: SetIds::Keep, time: LATER };
        let cases = [
            (leaf, PAGE_SIZE, write(8, b"in place")),
            (leaf, 100, append),
            (leaf, 100, extend(200)),
            (leaf_below, PAGE_SIZE, write(8, b"in place")),
            (leaf_below, 100, append),
            (leaf_below, 100, extend(200)),
            (node, 3 * PAGE_SIZE, write(2 * PAGE_SIZE + 100, b"a new pointer")),
            (node, 3 * PAGE_SIZE, append),
            (node, 100, extend(3 * PAGE_SIZE)),
            (unwritten_below, PAGE_SIZE, write(8, b"in place")),
            (unwritten_below, 100, append),
            (leaf_below, 100, allocate),
            (node, 100, allocate),
        ];
        for (root, size, op) in cases {
            set_root(&engine, id, root, size);
            let result = engine.apply(&op);
            assert!(matches!(result, Err(Error::Corrupt { .. })), "{op:?} at {victim}: {result:?}");
            assert!(bytes(&engine, victim) == before, "{op:?} at {victim}");
            assert_eq!(hot(&engine, id).root, root);
        }
    }
}

/// Creates files until one creation meets the damage. Returns the error of that creation.
fn fill(engine: &Scm, dir: ObjectId) -> Error {
    let names = 0..200_u32;
    let refused = names.map(|n| create(engine, dir, &n.to_le_bytes(), Kind::File)).find_map(Result::err);
    refused.expect("the damage is met")
}

#[test]
fn regression_damaged_directory_pointer_is_not_written_through() {
    for kind in 0..4 {
        for index in 0..4 {
            let engine = engine();
            let dir = create(&engine, engine.root, b"dir", Kind::Directory).expect("room");
            create(&engine, dir, b"first", Kind::File).expect("room");
            let victim = pages_of_nobody(&engine)[index];
            let (table, first) = table_and_page(&engine, dir);
            let half_page = Pointer::node(page_extent(victim)).raw();
            match kind {
                // The first three kinds of damage are wrong pointers: to the first bucket, to a further page
                // of the first bucket, and to the bucket that growth will add.
                0 => set_word(&engine, segment_slot(table, 0), half_page),
                1 => set_word(&engine, first.add(LINK), half_page),
                2 => set_word(&engine, segment_slot(table, 1), half_page),
                // The last kind of damage is a wrong address of the table.
                _ => {
                    let class = Class::fitting(FIRST_TABLE_BYTES).expect("a small one");
                    drop(engine.medium().copy(victim, table, class.bytes()).expect("in bounds"));
                    set_root(&engine, dir, Pointer::node(Extent { addr: victim, class }), 0);
                }
            }
            let before = bytes(&engine, victim);
            let error = fill(&engine, dir);
            assert!(matches!(error, Error::Corrupt { .. }), "{kind} at {victim}: {error}");
            assert!(bytes(&engine, victim) == before, "{kind} at {victim}");
        }
    }
}

#[test]
fn parallel_marking_equals_serial_marking() {
    let options = Options { group_bytes: 1 << 20, ..Options::random(BORN).expect("random bytes") };
    let medium = Medium::memory(64 << 20).expect("memory");
    let engine = Scm::create_on(medium, &options, OWNER, BORN).expect("a new volume");
    let dirs: Vec<_> = (0..10)
        .map(|n| create(&engine, engine.root, format!("d{n}").as_bytes(), Kind::Directory).expect("room"))
        .collect();
    let mut files = Vec::new();
    for number in 0..5000_usize {
        let dir = if number < 2000 { engine.root } else { dirs[number % 10] };
        let id = create(&engine, dir, format!("file-{number}").as_bytes(), Kind::File).expect("room");
        let data = vec![7; number % 9 * 700];
        engine
            .apply(&Op::Write { id, offset: 0, data: &data, set_ids: SetIds::Keep, time: LATER })
            .expect("room");
        files.push(id);
    }
    let marked =
        |threads| recovery::mark_by_threads(&engine.volume, engine.root, engine.volume.marks(), threads);
    for threads in [1, 2, 8] {
        let marks = marked(threads).expect("sound");
        assert_eq!(engine.volume.space().compare(&marks), [], "{threads} threads");
    }
    // Two files claim the same storage. They are in different directories, which different threads may mark.
    for (victim, other) in [(4, 4503), (2105, 8), (3021, 3022)] {
        let (was, root) = (hot(&engine, files[victim]), hot(&engine, files[other]).root);
        set_root(&engine, files[victim], root, was.size);
        for threads in [1, 4] {
            assert!(matches!(marked(threads), Err(Error::Corrupt { .. })), "{victim} {other} {threads}");
        }
        set_root(&engine, files[victim], was.root, was.size);
    }
    assert!(marked(4).is_ok());
}

/// Each value has an extent of its own. The number of these extents must not look like the endless storage of
/// one damaged object.
#[test]
fn regression_batch_replaces_many_values() {
    // More keys than `most_extents`, the bound for one object: the volume has 512 KiB, and the bound is one
    // extent for each 2 KiB.
    const KEYS: usize = (512 << 10) / 2048 + 20;
    let options = Options { group_bytes: 64 << 10, ..Options::random(BORN).expect("random bytes") };
    let medium = Medium::memory(512 << 10).expect("memory");
    let engine = Scm::create_on(medium, &options, OWNER, BORN).expect("a new volume");
    let dir = engine.root();
    let keys: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
    for data in [b"before", b"after!"] {
        let reserve = |key: &String| {
            let id = engine.reserve(Kind::File).expect("room");
            (id, key.clone())
        };
        let reserved: Vec<_> = keys.iter().map(reserve).collect();
        let ops: Vec<Op<'_>> = reserved
            .iter()
            .map(|(id, key)| Op::Put { dir, name: key.as_bytes(), id: *id, owner: OWNER, data, time: BORN })
            .collect();
        // Readers of other tests may delay the reuse of freed storage.
        let applied = (0..100).find_map(|_| match engine.apply(&Op::Batch { dir, ops: &ops, time: BORN }) {
            Err(Error::NoSpace) => {
                engine.volume().space().reclaim();
                None
            }
            done => Some(done),
        });
        applied.expect("room").expect("sound");
    }
    assert!(engine.check().expect("sound").is_clean());
}

/// Puts empty values of these keys into the root by one batch, and looks up all of them.
fn put_keys(engine: &Scm, keys: Range<usize>) {
    let dir = engine.root();
    let names: Vec<String> = keys.map(|key| key.to_string()).collect();
    let ids: Vec<_> = names.iter().map(|_| engine.reserve(Kind::File).expect("room")).collect();
    let puts = ids.iter().zip(&names).map(|(&id, name)| Op::Put {
        dir,
        name: name.as_bytes(),
        id,
        owner: OWNER,
        data: b"",
        time: BORN,
    });
    let ops: Vec<Op<'_>> = puts.collect();
    engine.apply(&Op::Batch { dir, ops: &ops, time: BORN }).expect("room");
    for (&id, name) in ids.iter().zip(&names) {
        assert_eq!(engine.lookup(dir, name.as_bytes()).expect("sound"), Some(id));
    }
}

/// Returns the number of buckets of the root.
fn buckets(engine: &Scm) -> u64 {
    Collection::new(&engine.volume, hot(engine, engine.root()).root).buckets().expect("sound")
}

/// The pages are empty before the batch, so no page is crowded. Without growth, all entries would go into one
/// chain of pages, which has a maximum length.
#[test]
fn large_batch_makes_short_chains() {
    let medium = Medium::memory(64 << 20).expect("memory");
    let engine = Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume");
    put_keys(&engine, 0..10_000);
    let buckets = buckets(&engine);
    VISITS.set(0);
    engine.list(engine.root(), 0, &mut |_| true).expect("sound");
    assert!(VISITS.get() <= 4 * buckets as usize, "{} pages in {buckets} buckets", VISITS.get());
    assert_eq!(findings(&engine), [""; 0]);
}

/// The table of the directory becomes larger for the ninth bucket, and then the segment of this bucket is
/// refused. The batch goes on with the larger table.
#[test]
fn batch_without_room_for_a_bucket_uses_the_new_table() {
    let engine = engine();
    let table_bytes = || hot(&engine, engine.root()).root.extent().expect("sound").bytes();
    let keys = (0..).find(|&key| {
        put_keys(&engine, key..key + 1);
        buckets(&engine) == 8
    });
    let keys = keys.expect("the directory grows") + 1;
    assert_eq!(table_bytes(), FIRST_TABLE_BYTES);
    engine.volume.space().promise(u64::MAX);
    put_keys(&engine, keys..keys + 1100);
    assert!(buckets(&engine) == 8 && table_bytes() > FIRST_TABLE_BYTES);
    assert_eq!(findings(&engine), [""; 0]);
}

#[test]
fn regression_batch_gives_back_the_ids_of_existing_keys() {
    let engine = engine();
    let (dir, data) = (engine.root(), b"value");
    let before = engine.space().objects;
    for time in [BORN, LATER] {
        let [id, other] = [(); 2].map(|()| engine.reserve(Kind::File).expect("room"));
        let put = |name, id| Op::Put { dir, name, id, owner: OWNER, data, time };
        engine.apply(&Op::Batch { dir, ops: &[put(b"k", id), put(b"l", other)], time }).expect("room");
        assert_eq!(engine.space().objects, before + 2);
    }
    assert!(engine.check().expect("sound").is_clean());
}

/// Returns the version of the file `id`. Asserts that a condition with this version holds for `name`, and
/// that no condition with an `earlier` version holds.
fn version_of(engine: &Scm, name: &[u8], id: ObjectId, earlier: &[Version]) -> Version {
    let dir = engine.root();
    let holds = |version| {
        let expect = Op::Expect { dir, name, condition: Condition::Version(version) };
        match engine.apply(&Op::Batch { dir, ops: &[expect], time: LATER }) {
            Ok(_) => true,
            Err(Error::ConditionFailed) => false,
            Err(error) => panic!("{error}"),
        }
    };
    let version = engine.version(id).expect("a file");
    assert!(holds(version));
    for &earlier in earlier {
        assert!(!holds(earlier), "{earlier:?} came back");
    }
    version
}

#[test]
fn no_version_of_a_file_comes_back() {
    let engine = engine();
    let (dir, time, set_ids) = (engine.root(), LATER, SetIds::Keep);
    let apply = |op: &Op<'_>| engine.apply(op).expect("room");
    let put = |name, data| {
        let id = engine.reserve(Kind::File).expect("room");
        if !apply(&Op::Put { dir, name, id, owner: OWNER, data, time }).created {
            engine.unreserve(id);
        }
        engine.lookup(dir, name).expect("sound").expect("there")
    };
    let mut seen = Vec::new();
    // The value of a key is sealed from the start. Any other file of the loop is sealed before one of the
    // Ops, or never.
    for (is_value, sealed_before) in [(true, None), (false, None), (false, Some(0)), (false, Some(3))] {
        let id =
            if is_value { put(b"k", b"v") } else { create(&engine, dir, b"k", Kind::File).expect("room") };
        let range = |mode| Op::Fallocate { id, mode, offset: 0, length: 4096, set_ids, time };
        let write = |offset, data| Op::Write { id, offset, data, set_ids, time };
        seen.push(version_of(&engine, b"k", id, &seen));
        let ops = [
            write(0, &[1; 100]),
            write(8, &[2; 8]),
            write(0, &[3; 100_000]),
            write(8, &[4; 8]),
            write(4000, &[5; 50]),
            Op::Write { id, offset: 8, data: &[6; 8], set_ids: SetIds::DropAsStranger, time },
            Op::Append { id, data: &[7; 100], set_ids, time },
            Op::SetSize { id, size: 50_000, set_ids, time },
            range(FallocateMode::ZeroRange),
            range(FallocateMode::PunchHole),
            range(FallocateMode::InsertRange),
            range(FallocateMode::CollapseRange),
        ];
        for (number, op) in ops.iter().enumerate() {
            if sealed_before == Some(number) {
                engine.seal(id).expect("room");
                assert_eq!(engine.version(id).ok(), seen.last().copied(), "a seal changes no byte");
            }
            apply(op);
            seen.push(version_of(&engine, b"k", id, &seen));
        }
        put(b"k", b"w");
        seen.push(version_of(&engine, b"k", id, &seen));
        // The same id may be used again for the next file of this name.
        apply(&Op::Erase { dir, name: b"k", time });
        engine.reclaim();
    }
}

/// A crash undoes a change whose version a program has seen. The next change must not get this version.
#[test]
fn version_of_a_change_that_a_crash_undid_does_not_come_back() {
    let engine = engine();
    let (dir, name) = (engine.root(), b"k");
    let put = |engine: &Scm, data| {
        let id = engine.reserve(Kind::File).expect("room");
        let put = Op::Put { dir, name, id, owner: OWNER, data, time: LATER };
        if !engine.apply(&put).expect("room").created {
            engine.unreserve(id);
        }
    };
    put(&engine, b"old");
    let id = engine.lookup(dir, name).expect("sound").expect("there");
    let mut seen = vec![version_of(&engine, name, id, &[])];
    let image = engine.medium().snapshot();
    put(&engine, b"lost");
    seen.push(version_of(&engine, name, id, &seen));
    let reopened = Scm::open_on(Medium::memory_holding(&image).expect("memory")).expect("a volume");
    seen.push(version_of(&reopened, name, id, &seen));
    put(&reopened, b"new");
    version_of(&reopened, name, id, &seen);
}

#[test]
fn regression_close_frees_unlinked_open_files() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("v");
    let place = HostPlace::Directory(&path);
    let engine = Scm::create_at(place, Some(BYTES), &options(), OWNER, BORN).expect("room");
    let (dir, name) = (engine.root(), b"file");
    let id = create(&engine, dir, name, Kind::File).expect("room");
    engine.apply(&Op::Append { id, data: &[7; 100_000], set_ids: SetIds::Keep, time: BORN }).expect("room");
    engine.open(id).expect("alive");
    engine.apply(&Op::Unlink { dir, name, time: LATER }).expect("there");
    engine.close().expect("sound");
    let engine = Scm::open_at(place, PagedOptions::for_host()).expect("a closed volume");
    assert!(!engine.recovered(), "the close left a clean mark");
    let report = engine.check().expect("sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Counts down before each store or commit of a word, and panics when the count goes from 1 to 0. Does
/// nothing while the count is 0.
#[derive(Default)]
struct PanicAtStore(AtomicU32);

impl PanicAtStore {
    fn count_down(&self) {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        assert!(left != 1, "planted");
    }
}

impl Observer for PanicAtStore {
    fn before_store(&self, _: Mapped<'_>, _: Addr, _: u64, _: Caller) -> std::result::Result<(), Fault> {
        self.count_down();
        Ok(())
    }

    fn before_publish(&self, _: Mapped<'_>, _: Addr, _: u64, _: Caller) -> std::result::Result<bool, Fault> {
        self.count_down();
        Ok(true)
    }
}

/// Each store of a create and of a rename with a redo record panics in turn. The next open finds the whole
/// change or none, and no two objects share storage.
#[test]
fn panic_inside_an_op_leaves_the_volume_to_recovery() {
    let mut panics_seen = 0;
    for is_rename in [false, true] {
        for store in 1.. {
            let panics = Arc::new(PanicAtStore::default());
            let observer = Arc::clone(&panics) as Arc<dyn Observer>;
            let medium = Medium::memory(BYTES).expect("memory").observed_by(observer);
            let engine = Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume");
            let root = engine.root();
            create(&engine, root, b"kept", Kind::File).expect("room");
            let dir = create(&engine, root, b"dir", Kind::Directory).expect("room");
            let id = engine.reserve(Kind::File).expect("room");
            let (mode, content) = (RenameMode::Replace, Content::Bytes(&[7; 10_000]));
            let (from_dir, from_name, to_dir, to_name) = (root, b"kept", dir, b"new");
            let op = if is_rename {
                Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout: None, time: LATER }
            } else {
                Op::Create { dir, name: b"new", id, owner: OWNER, content, time: LATER }
            };
            panics.0.store(store, Ordering::Relaxed);
            let applied = catch_unwind(AssertUnwindSafe(|| engine.apply(&op)));
            panics.0.store(0, Ordering::Relaxed);
            if let Ok(done) = applied {
                done.expect("no store panicked");
                break;
            }
            panics_seen += 1;
            // The Op released its locks, but no later change is made.
            let refused = create(&engine, root, b"later", Kind::File);
            assert!(matches!(refused, Err(Error::Fault(Fault::ReadOnly))), "{refused:?}");
            engine.lookup(root, b"kept").expect("readers go on");
            engine.save().expect("sound");
            let image = engine.medium().snapshot();
            let reopened = Scm::open_on(Medium::memory_holding(&image).expect("memory")).expect("a volume");
            assert!(reopened.recovered(), "the allocator was saved in spite of the panic");
            let has = |dir, name: &[u8]| reopened.lookup(dir, name).expect("sound").is_some();
            assert!(has(root, b"kept") != (is_rename && has(dir, b"new")), "store {store}");
            let report = reopened.check().expect("sound");
            assert!(report.is_clean(), "store {store}: {:#?}", report.findings);
        }
    }
    assert!(panics_seen > 10, "only {panics_seen} stores panicked");
}

#[test]
fn peeked_entry_is_confirmed_where_a_look_up_finds_it() {
    let engine = engine();
    let dir = create(&engine, engine.root, b"dir", Kind::Directory).expect("room");
    let name = |number: usize| format!("file-{number}").into_bytes();
    let (mut unchanged, mut others) = (0, 0);
    for number in 0..600 {
        create(&engine, dir, &name(number), Kind::File).expect("room");
        let _pin = eyrie_medium::epoch::pin();
        let peeked = engine.peek(dir, &name(number / 2)).expect("sound");
        // This Op may change the page of the peeked entry, and the directory may grow.
        create(&engine, dir, &name(1000 + number), Kind::File).expect("room");
        let parent = engine.parent(dir, peeked.lock()).expect("alive");
        let found = engine.find(&parent.hot, &name(number / 2)).expect("sound");
        let confirmed = engine.confirm(&parent, &name(number / 2), &peeked).expect("sound");
        // If the directory has grown, the name may be in another shard.
        assert!(found.is_some() && confirmed.is_none_or(|entry| entry == found), "{number}");
        others += usize::from(confirmed.is_none());
        let parent = engine.parent(dir, EntryLock::Directory(dir)).expect("alive");
        let confirmed = engine.confirm(&parent, &name(number / 2), &peeked).expect("sound");
        assert_eq!(confirmed, Some(found), "{number}");
        let collection = Collection::new(&engine.volume, parent.hot.root);
        let known = peeked.entry().expect("there");
        unchanged += usize::from(collection.is_unchanged(&name(number / 2), &known).expect("sound"));
    }
    assert!((300..600).contains(&unchanged), "{unchanged} of 600 pages were unchanged");
    assert!((1..20).contains(&others), "{others} of 600 names got another shard");
    let peeked = engine.peek(dir, &name(7)).expect("sound");
    engine.apply(&Op::Unlink { dir, name: &name(7), time: LATER }).expect("there");
    let parent = engine.parent(dir, peeked.lock()).expect("alive");
    assert_eq!(engine.confirm(&parent, &name(7), &peeked).expect("sound"), None);
    create(&engine, dir, &name(7), Kind::File).expect("room");
    let confirmed = engine.confirm(&parent, &name(7), &peeked).expect("sound");
    let now = engine.lookup(dir, &name(7)).expect("sound");
    assert!(confirmed.is_none() || now == peeked.id(), "another object has the name");
}

#[test]
fn released_lock_ends_the_op_for_its_object() {
    let engine = engine();
    let file = create(&engine, engine.root, b"file", Kind::File).expect("room");
    let entry = engine.peek(engine.root, b"file").expect("sound").lock();
    let mut held = engine.locks.hold_entry(entry, file);
    let ended = engine.locks.ended(engine.root);
    assert!(engine.locks.try_hold(engine.root).is_none(), "one shard of the directory is locked");
    held.release(&engine.locks, EntryLock::Shard(stripe_of(file)), file);
    assert!(engine.locks.try_hold(file).is_none(), "an object that shares the stripe stays locked");
    held.release(&engine.locks, entry, file);
    assert_eq!(engine.locks.ended(engine.root), ended + 1);
    assert!(engine.locks.try_hold(engine.root).is_some() && engine.locks.try_hold(file).is_none());
    drop(held);
    assert!(engine.locks.try_hold(file).is_some());
}
