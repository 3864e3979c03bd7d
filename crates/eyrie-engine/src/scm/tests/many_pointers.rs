//! Tests of clones at their limits: very many pointers to the same pages, stores that fail, and wrong saved
//! counts.

use super::clones::{
    PAGE, after_close, assert_clean, bytes, clone, fallocate, file, read, unlink, used, write,
};
use super::*;
use crate::tables::layout::CLEAN_MARK;

/// Makes a file whose 64 pages occur 64 times, so that it has more pages than the volume. Returns its bytes,
/// too.
fn repeated(engine: &Scm, name: &[u8]) -> (ObjectId, Vec<u8>) {
    let mut data = bytes(64 * PAGE, 1);
    let id = file(engine, name, &data[..PAGE]);
    for page in 1..64 {
        write(engine, id, (page * PAGE) as u64, &data[page * PAGE..(page + 1) * PAGE]);
    }
    for _ in 0..6 {
        let len = data.len() as u64;
        clone(engine, (id, 0), (id, len), len).expect("room");
        data.extend_from_within(..);
    }
    assert!(data.len() as u64 > 3 * BYTES);
    (id, data)
}

#[test]
fn file_with_more_pages_than_the_volume_is_changed_and_removed() {
    let engine = engine();
    let empty = used(&engine);
    let (id, mut data) = repeated(&engine, b"file");
    let copy = file(&engine, b"copy", b"x");
    clone(&engine, (id, 0), (copy, 0), 0).expect("room");
    clone(&engine, (id, 0), (copy, 0), 0).expect("every page of the target is replaced");
    assert!(read(&engine, copy) == data);
    let part = 3000 * PAGE;
    fallocate(&engine, id, FallocateMode::PunchHole, PAGE_SIZE, part as u64);
    data[PAGE..PAGE + part].fill(0);
    fallocate(&engine, copy, FallocateMode::CollapseRange, 0, part as u64);
    assert!(read(&engine, id) == data && read(&engine, copy).len() == data.len() - part);
    assert_clean(&engine);
    engine.apply(&Op::SetSize { id, size: 0, set_ids: SetIds::Keep, time: BORN }).expect("room");
    unlink(&engine, b"copy");
    assert_clean(&engine);
    let (dir, time) = (engine.root, LATER);
    repeated(&engine, b"value");
    let put = Op::Put { dir, name: b"value", id: copy, owner: OWNER, data: b"short", time };
    engine.apply(&put).expect("the key exists");
    repeated(&engine, b"last");
    unlink(&engine, b"last");
    [&b"file"[..], b"value"].into_iter().for_each(|name| unlink(&engine, name));
    assert_eq!(used(&engine), empty);
    let reopened = after_close(engine);
    assert!(!reopened.recovered(), "no storage has leaked");
    assert_clean(&reopened);
}

/// The tree has six nodes, with 512 to the power of six paths to one page.
#[test]
fn clone_of_an_endless_tree_ends() {
    let engine = engine();
    let source = file(&engine, b"source", &[1; PAGE]);
    let target = file(&engine, b"target", b"x");
    clone(&engine, (source, 0), (target, 0), 0).expect("room");
    let page = hot(&engine, source).root;
    assert!(page.is_shared());
    let root = (0..6).fold(page, |child, _| node_over(&engine, child));
    set_root(&engine, source, root.with_height(6), i64::MAX as u64);
    let cloned = clone(&engine, (source, 0), (target, 0), 0);
    assert!(matches!(cloned, Err(Error::Corrupt { .. })), "{cloned:?}");
    assert_eq!(read(&engine, target), [1; PAGE]);
    unlink(&engine, b"source");
    assert_eq!(engine.lookup(engine.root, b"source").expect("sound"), None);
}

/// Counts reads. Counts down before each store or commit of a word, and fails the store or commit at which
/// the count goes from 1 to 0.
#[derive(Default)]
struct FailAtStore {
    reads: AtomicU32,
    stores: AtomicU32,
}

impl FailAtStore {
    fn engine() -> (Arc<FailAtStore>, Scm) {
        let observer = Arc::new(FailAtStore::default());
        let seen = Arc::clone(&observer) as Arc<dyn Observer>;
        let medium = Medium::memory(BYTES).expect("memory").observed_by(seen);
        (observer, Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume"))
    }

    fn count_down(&self) -> std::result::Result<(), Fault> {
        let left = self.stores.load(Ordering::Relaxed);
        self.stores.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 1 { Err(Fault::ReadOnly) } else { Ok(()) }
    }
}

impl Observer for FailAtStore {
    fn before_read(&self, _: Mapped<'_>, _: Addr, _: u64, _: Caller) -> std::result::Result<(), Fault> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn before_store(&self, _: Mapped<'_>, _: Addr, _: u64, _: Caller) -> std::result::Result<(), Fault> {
        self.count_down()
    }

    fn before_publish(&self, _: Mapped<'_>, _: Addr, _: u64, _: Caller) -> std::result::Result<bool, Fault> {
        self.count_down().map(|()| true)
    }
}

#[test]
fn clone_reads_each_pointer_few_times() {
    let (seen, engine) = FailAtStore::engine();
    let source = file(&engine, b"source", &bytes(PAGE, 2));
    let last = (511 * PAGE) as u64;
    for page in 1..8 {
        // Pages that were allocated one by one have a pointer each.
        fallocate(&engine, source, FallocateMode::Allocate, page * PAGE_SIZE, PAGE_SIZE);
    }
    write(&engine, source, last, &bytes(PAGE, 3));
    let target = file(&engine, b"target", b"x");
    seen.reads.store(0, Ordering::Relaxed);
    clone(&engine, (source, 0), (target, 0), 0).expect("room");
    let reads = seen.reads.load(Ordering::Relaxed);
    assert!(reads < 10 * 512, "{reads} reads for 512 pointers");
    assert!(read(&engine, target) == read(&engine, source));
    assert_clean(&engine);
}

#[test]
fn clone_that_fails_at_any_store_changes_no_count() {
    for is_second in [false, true] {
        let mut failed = 0;
        for store in 1.. {
            let (seen, engine) = FailAtStore::engine();
            let data = bytes(5 * PAGE + 100, 4);
            let source = file(&engine, b"source", &data);
            // The second write makes the file a tree.
            write(&engine, source, 0, &data[..PAGE]);
            let target = file(&engine, b"target", &[7; 100]);
            if is_second {
                let third = file(&engine, b"third", b"x");
                clone(&engine, (source, 0), (third, 0), 0).expect("room");
            }
            let before = used(&engine);
            seen.stores.store(store, Ordering::Relaxed);
            let cloned = clone(&engine, (source, 0), (target, 0), 0);
            seen.stores.store(0, Ordering::Relaxed);
            let kept = if cloned.is_ok() { &data[..] } else { &[7; 100] };
            assert!(read(&engine, target) == kept && read(&engine, source) == data, "store {store}");
            assert_clean(&engine);
            if cloned.is_ok() {
                break;
            }
            failed += 1;
            assert_eq!(used(&engine), before, "store {store}");
            unlink(&engine, b"source");
            assert_clean(&engine);
        }
        assert!(failed > 1, "{failed} stores");
    }
}

/// Uses a volume whose counts may be wrong. The calls may fail.
fn use_volume(engine: &Scm, ids: &[ObjectId]) {
    let (set_ids, time) = (SetIds::Keep, LATER);
    let _ = clone(engine, (ids[1], 0), (ids[0], 0), 0);
    for &id in ids {
        let _ = engine.apply(&Op::Write { id, offset: 8, data: &[3; 8], set_ids, time });
        let _ = engine.apply(&Op::Append { id, data: &[4; 9000], set_ids, time });
    }
    let _ = engine.apply(&Op::SetSize { id: ids[2], size: 3 * PAGE_SIZE, set_ids, time });
    let _ = clone(engine, (ids[2], 0), (ids[1], PAGE_SIZE), 0);
    for name in [b"0", b"1"] {
        let _ = engine.apply(&Op::Unlink { dir: engine.root, name, time });
    }
    engine.reclaim();
}

#[test]
fn wrong_saved_counts_do_no_harm() {
    let engine = engine();
    let data = bytes(30 * PAGE, 5);
    let ids = [b"0", b"1", b"2"].map(|name| file(&engine, name, &data[..5 * PAGE]));
    write(&engine, ids[0], 0, &data);
    write(&engine, ids[0], 0, &data[..PAGE]);
    for &id in &ids[1..] {
        clone(&engine, (ids[0], 0), (id, 0), 0).expect("room");
    }
    // Now three runs of pages have pointers from three, two and three files.
    write(&engine, ids[1], 10 * PAGE_SIZE, &data[..PAGE]);
    let medium = Arc::clone(&engine.volume.space().context().medium);
    engine.close().expect("room");
    let sound = medium.snapshot();
    let line = CLEAN_MARK.offset() as usize;
    let word = |at: usize| u64::from_le_bytes(sound[at..at + 8].try_into().expect("8 bytes")) as usize;
    let (start, end) = (word(line + 8), word(line + 8) + word(line + 16));
    let (mut accepted, mut found) = (0, 0);
    for (at, value) in (end - 3 * 16..end).flat_map(|at| [0, 1, 2, 0x7f, 0xff].map(|value| (at, value))) {
        let mut bad = sound.clone();
        bad[at] = value;
        let sum = crc32c::crc32c(&bad[start..end]);
        bad[line + 24..line + 28].copy_from_slice(&sum.to_le_bytes());
        let medium = Medium::memory_holding(&bad).expect("memory");
        let engine = Scm::open_on(medium).expect("damaged saved counts are no error");
        accepted += usize::from(!engine.recovered());
        found += usize::from(!findings(&engine).is_empty());
        use_volume(&engine, &ids);
        findings(&engine);
        engine.close().expect("sound");
    }
    assert!(accepted > 20 && found > 10, "{accepted} accepted, {found} found");
}
