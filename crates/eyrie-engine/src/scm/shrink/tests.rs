//! Directories that lose most of their entries.

use eyrie_medium::Medium;

use super::*;
use crate::object::collection::VISITS;
use crate::object::header::Header;
use crate::volume::{MediumChoice, Options};
use crate::{Content, Engine, Error, Kind, Owner, RenameMode, Time};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time::new(1, 0);
const LATER: Time = Time::new(2, 0);

fn engine(bytes: u64) -> Scm {
    engine_of_groups(bytes, 64 << 20)
}

fn engine_of_groups(bytes: u64, group_bytes: u64) -> Scm {
    let options = Options {
        group_bytes,
        hash_seed: 7,
        volume_id: [1; 16],
        created: BORN,
        medium: MediumChoice::Auto,
        overwrite: false,
        checksums: false,
        paged: eyrie_medium::PagedOptions::for_host(),
    };
    Scm::create_on(Medium::memory(bytes).expect("memory"), &options, OWNER, BORN).expect("a new volume")
}

fn create(engine: &Scm, dir: ObjectId, name: &[u8], kind: Kind) -> Result<ObjectId> {
    let id = engine.reserve(kind)?;
    let made = engine.apply(&Op::Create { dir, name, id, owner: OWNER, content: Content::Empty, time: BORN });
    if made.is_err() {
        engine.unreserve(id);
    }
    made.map(|_| id)
}

fn entry(n: usize) -> Vec<u8> {
    format!("entry-{n}").into_bytes()
}

/// Makes a directory in the root, with `entries` links to one file. Returns both.
fn directory(engine: &Scm, entries: usize) -> (ObjectId, ObjectId) {
    let dir = create(engine, engine.root, b"dir", Kind::Directory).expect("room");
    let file = create(engine, engine.root, b"file", Kind::File).expect("room");
    for n in 0..entries {
        engine.apply(&Op::Link { dir, name: &entry(n), id: file, time: BORN }).expect("room");
    }
    (dir, file)
}

fn unlink(engine: &Scm, dir: ObjectId, name: &[u8]) {
    engine.apply(&Op::Unlink { dir, name, time: LATER }).expect("there");
}

fn list(engine: &Scm, dir: ObjectId) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let listed = engine.list(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    });
    listed.expect("sound");
    names
}

fn free(engine: &Scm) -> u64 {
    engine.reclaim();
    engine.space().free
}

fn buckets(engine: &Scm, dir: ObjectId) -> u64 {
    let root = Header::of(dir).hot(engine.medium()).expect("sound").root;
    Collection::new(&engine.volume, root).buckets().expect("sound")
}

fn assert_clean(engine: &Scm) {
    let report = engine.check().expect("sound");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn space_of_lost_entries_comes_back() {
    for in_order in [false, true] {
        let engine = engine(256 << 20);
        let (dir, file) = directory(&engine, 0);
        let before = free(&engine);
        for n in 0..100_000 {
            engine.apply(&Op::Link { dir, name: &entry(n), id: file, time: BORN }).expect("room");
        }
        assert!(before - free(&engine) > 10 << 20);
        let names = if in_order { list(&engine, dir) } else { (0..100_000).map(entry).collect() };
        let (kept, lost) = names.split_at(5);
        lost.iter().for_each(|name| unlink(&engine, dir, name));
        let taken = before - free(&engine);
        assert!(taken <= 16 << 10, "{taken} bytes for 5 entries, in order: {in_order}");
        VISITS.set(0);
        let mut listed = list(&engine, dir);
        assert!(VISITS.get() <= 4, "{} visits", VISITS.get());
        VISITS.set(0);
        assert_eq!(engine.attributes(dir).map(|dir| (dir.size, dir.modified)).ok(), Some((5, LATER)));
        assert!(VISITS.get() <= 12, "{} visits", VISITS.get());
        listed.sort();
        let mut kept = kept.to_vec();
        kept.sort();
        assert_eq!(listed, kept);
        kept.iter().for_each(|name| unlink(&engine, dir, name));
        assert_eq!((free(&engine), list(&engine, dir).len()), (before, 0));
        assert_clean(&engine);
    }
}

#[test]
fn every_op_that_removes_entries_shrinks_their_directory() {
    let ops = |engine: &Scm, dir, how: usize| {
        for n in (0..3000).step_by(50) {
            let names: Vec<_> = (n..n + 50).map(entry).collect();
            let erases: Vec<_> = names.iter().map(|name| Op::Erase { dir, name, time: LATER }).collect();
            match how {
                0 => erases.iter().for_each(|erase| {
                    engine.apply(erase).expect("there");
                }),
                1 => {
                    engine.apply(&Op::Batch { dir, ops: &erases, time: LATER }).expect("there");
                }
                2 => names.iter().for_each(|name| {
                    let moved = Op::Rename {
                        from_dir: dir,
                        from_name: name,
                        to_dir: engine.root,
                        to_name: name,
                        mode: RenameMode::NoReplace,
                        whiteout: None,
                        time: LATER,
                    };
                    engine.apply(&moved).expect("there");
                }),
                _ => names.iter().for_each(|name| {
                    engine.apply(&Op::RemoveDirectory { dir, name, time: LATER }).expect("there");
                }),
            }
        }
    };
    for how in 0..4 {
        let engine = engine(64 << 20);
        let dir = create(&engine, engine.root, b"dir", Kind::Directory).expect("room");
        let kind = if how == 3 { Kind::Directory } else { Kind::File };
        for n in 0..3000 {
            create(&engine, dir, &entry(n), kind).expect("room");
        }
        assert!(buckets(&engine, dir) > 100);
        ops(&engine, dir, how);
        assert_eq!(buckets(&engine, dir), 1, "{how}");
        assert_clean(&engine);
    }
}

#[test]
fn summary_stays_right_while_a_directory_shrinks() {
    let engine = engine(64 << 20);
    let (dir, _) = directory(&engine, 4000);
    for n in 0..4000 {
        unlink(&engine, dir, &entry(n));
        if n % 7 == 0 || n > 3900 {
            let size = engine.attributes(dir).expect("sound").size;
            assert_eq!(size, 3999 - n as u64);
        }
    }
    assert_eq!(buckets(&engine, dir), 1);
    // The directory has lost its summary with its buckets, and gets another when it has grown again.
    let file = engine.lookup(engine.root, b"file").expect("sound").expect("there");
    for n in 0..1000 {
        engine.apply(&Op::Link { dir, name: &entry(n), id: file, time: BORN }).expect("room");
        assert_eq!(engine.attributes(dir).expect("sound").size, 1 + n as u64);
    }
}

#[test]
fn removals_in_a_full_volume_shrink_directories() {
    let engine = engine_of_groups(4 << 20, 1 << 20);
    let (dir, file) = directory(&engine, 0);
    let before = free(&engine);
    let link = |n| engine.apply(&Op::Link { dir, name: &entry(n), id: file, time: BORN });
    let count = (0..).find(|&n| matches!(link(n), Err(Error::NoSpace))).expect("full");
    assert!(count > 10_000);
    (0..count).for_each(|n| unlink(&engine, dir, &entry(n)));
    assert_eq!((free(&engine), buckets(&engine, dir)), (before, 1));
    assert_clean(&engine);
}

#[test]
fn growth_and_shrinking_do_not_alternate() {
    let engine = engine(64 << 20);
    let (dir, file) = directory(&engine, 10_000);
    // The number of entries at which a directory begins to shrink is far from the number at which it grows.
    (0..8500).for_each(|n| unlink(&engine, dir, &entry(n)));
    let (mut at, mut changes) = (buckets(&engine, dir), 0);
    for n in 0..3000 {
        let name = entry(20_000 + n);
        engine.apply(&Op::Link { dir, name: &name, id: file, time: BORN }).expect("room");
        unlink(&engine, dir, &entry(if n < 1000 { 8500 + n } else { 19_000 + n }));
        let now = buckets(&engine, dir);
        changes += usize::from(now > at);
        at = now;
    }
    assert!(changes < 20, "{changes} splits");
}
