//! Compares summaries of directories with full passes over their pages.

use std::collections::HashMap;

use eyrie_medium::{Medium, epoch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::object::collection::VISITS;
use crate::scm::locks::stripe_of;
use crate::volume::{MediumChoice, Options};
use crate::{AttributeChange, Content, Engine, Error, Kind, Op, Owner, RenameMode};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time::new(1, 0);
const LATER: Time = Time::new(2, 0);

fn engine(bytes: u64) -> Scm {
    let options = Options {
        group_bytes: 1 << 20,
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

fn create(engine: &Scm, dir: ObjectId, name: &[u8], kind: Kind, time: Time) -> Result<ObjectId> {
    let id = engine.reserve(kind)?;
    let made = engine.apply(&Op::Create { dir, name, id, owner: OWNER, content: Content::Empty, time });
    if made.is_err() {
        engine.unreserve(id);
    }
    made.map(|_| id)
}

/// Makes a directory in the root, with `entries` links to one file.
fn directory(engine: &Scm, name: &[u8], entries: usize) -> ObjectId {
    let dir = create(engine, engine.root, name, Kind::Directory, BORN).expect("room");
    fill(engine, dir, entries);
    dir
}

/// Fills an empty directory with `entries` links to one file.
fn fill(engine: &Scm, dir: ObjectId, entries: usize) {
    let file = create(engine, dir, &entry(0), Kind::File, BORN).expect("room");
    for n in 1..entries {
        engine.apply(&Op::Link { dir, name: &entry(n), id: file, time: BORN }).expect("room");
    }
}

fn entry(n: usize) -> Vec<u8> {
    format!("entry-{n}").into_bytes()
}

/// Returns the summary of a full pass over all pages of a directory.
fn pass(engine: &Scm, dir: ObjectId) -> CollectionSummary {
    let (hot, cold) = Header::of(dir).hot_and_cold(engine.medium()).expect("sound");
    collection::summary(&engine.volume, || Ok(hot.root), cold.times_version).expect("sound").0
}

/// Asserts that the partial sums of a directory, if the directory has a summary, are right for the part that
/// they cover.
fn assert_right(engine: &Scm, dir: ObjectId) {
    let (hot, cold) = Header::of(dir).hot_and_cold(engine.medium()).expect("sound");
    let Some((mut sums, coverage)) = engine.summaries.known(dir) else { return };
    sums.iter_mut().for_each(|sum| sum.begin_times_version(cold.times_version));
    let collection = Collection::new(&engine.volume, hot.root);
    let mut expected = [CollectionSummary::default(); SHARDS];
    let mut add = |shard: usize, summary: &CollectionSummary| expected[shard].add(summary);
    let mut at = Some(0);
    while let Some(from) =
        at.filter(|at| coverage == SumCoverage::Complete || SumCoverage::Before(*at) != coverage)
    {
        at = collection.add_summaries(from, 1, cold.times_version, &mut add).expect("sound");
    }
    assert_eq!(sums.map(|sum| sum.summary), expected, "{coverage:?}");
}

/// Returns the number of entries in the summary of a directory, if the directory has one.
fn known_entries(engine: &Scm, dir: ObjectId) -> Option<u64> {
    engine.summaries.known(dir).map(|(sums, _)| sums.iter().map(|sum| sum.summary.entries).sum())
}

/// Applies a random Op, with a random time, to one or both of two directories.
fn change(engine: &Scm, random: &mut SmallRng, dirs: [ObjectId; 2]) {
    let time = Time::new(random.random_range(10..40), random.random_range(0..3));
    let mut any = || (dirs[random.random_range(0..2)], entry(random.random_range(0..300)));
    let ((dir, name), (to_dir, to_name), (_, third)) = (any(), any(), any());
    let (name, to_name, owner) = (&name[..], &to_name[..], OWNER);
    let kind = [Kind::File, Kind::Directory][random.random_range(0..2)];
    let (id, content) = (engine.reserve(kind).expect("room"), Content::Empty);
    let data: &[u8] = b"value";
    let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
    let modified = random.random::<bool>().then_some(time);
    let op = match random.random_range(0..17) {
        0..3 => Op::Create { dir, name, id, owner, content, time },
        3 => match engine.lookup(dir, name).expect("sound") {
            Some(id) => Op::Link { dir: to_dir, name: to_name, id, time },
            None => Op::Unlink { dir, name, time },
        },
        4..6 => Op::Unlink { dir, name, time },
        6 => Op::RemoveDirectory { dir, name, time },
        7..11 => {
            let mode = modes[random.random_range(0..3)];
            Op::Rename { from_dir: dir, from_name: name, to_dir, to_name, mode, whiteout: None, time }
        }
        11..13 if kind == Kind::File => Op::Put { dir, name, id, owner, data, time },
        15 => Op::MarkAccess { id: dir, time },
        13 => Op::SetAttributes { id: dir, change: AttributeChange { modified, ..Default::default() }, time },
        14 => {
            let ops = [Op::Erase { dir, name, time }, Op::Erase { dir, name: &third, time }];
            let put = [Op::Put { dir, name, id, owner, data, time }, ops[1]];
            let ops = if kind == Kind::File { &put } else { &ops };
            return give_back(engine, id, engine.apply(&Op::Batch { dir, ops, time }).is_ok());
        }
        _ => Op::Erase { dir, name, time },
    };
    let applied = engine.apply(&op);
    let used = match op {
        Op::Create { .. } => applied.is_ok(),
        Op::Put { .. } => applied.is_ok_and(|applied| applied.created),
        _ => false,
    };
    give_back(engine, id, used);
}

/// Returns an id to the engine if no Op used it.
fn give_back(engine: &Scm, id: ObjectId, used: bool) {
    if !used {
        engine.unreserve(id);
    }
}

#[test]
fn summary_matches_pages_after_any_op() {
    let mut complete = 0;
    for seed in 0..60 {
        let mut random = SmallRng::seed_from_u64(seed);
        let engine = engine(16 << 20);
        let dirs = [directory(&engine, b"one", 150), directory(&engine, b"two", 200)];
        for _ in 0..300 {
            let _pin = epoch::pin();
            let dir = dirs[random.random_range(0..2)];
            match random.random_range(0..40) {
                0 => engine.summaries.forget(dir),
                1 => drop(engine.attributes(dir).expect("sound")),
                2..5 => drop(engine.build_part(dir, Header::of(dir), 3).expect("sound")),
                _ => change(&engine, &mut random, dirs),
            }
            for dir in dirs {
                assert_right(&engine, dir);
                complete += usize::from(
                    engine
                        .summaries
                        .known(dir)
                        .is_some_and(|(_, coverage)| coverage == SumCoverage::Complete),
                );
            }
        }
    }
    assert!(complete > 5000, "complete summaries were compared {complete} times");
}

#[test]
fn summary_matches_pages_after_threads_end() {
    for seed in 0..10 {
        let engine = engine(32 << 20);
        let dirs = [directory(&engine, b"one", 1000), directory(&engine, b"two", 200)];
        std::thread::scope(|scope| {
            let engine = &engine;
            let writers = [0, 1, 2].map(|thread| {
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed * 3 + thread);
                    for _ in 0..2000 {
                        let _pin = epoch::pin();
                        change(engine, &mut random, dirs);
                    }
                })
            });
            let mut random = SmallRng::seed_from_u64(seed);
            while writers.iter().any(|writer| !writer.is_finished()) {
                let _pin = epoch::pin();
                let dir = dirs[random.random_range(0..2)];
                let size = engine.attributes(dir).expect("sound").size;
                assert!(size < 2000, "{size}");
                if random.random_ratio(1, 20) {
                    let _held = engine.locks.try_hold(dir);
                    if _held.is_some() {
                        engine.summaries.forget(dir);
                    }
                }
            }
        });
        for dir in dirs {
            assert_right(&engine, dir);
            let (attributes, expected) = (engine.attributes(dir).expect("sound"), pass(&engine, dir));
            assert_eq!(attributes.size, expected.entries);
            assert_eq!(u64::from(attributes.links), 2 + expected.subdirectories);
            assert_eq!(known_entries(&engine, dir), Some(expected.entries));
        }
    }
}

#[test]
fn only_first_stat_of_large_directory_visits_pages() {
    let engine = engine(256 << 20);
    let dir = directory(&engine, b"many", 100_000);
    let pages = Collection::new(&engine.volume, Header::of(dir).hot(engine.medium()).expect("sound").root)
        .buckets()
        .expect("sound") as usize;
    let visits = |attributes: &dyn Fn() -> u64| {
        VISITS.set(0);
        let size = attributes();
        (size, VISITS.get())
    };
    let attributes = || engine.attributes(dir).expect("sound").size;
    let (size, cold) = visits(&attributes);
    assert!(size == 100_000 && cold >= pages && cold <= 3 * pages, "{cold} visits of {pages} pages");
    assert_eq!(visits(&attributes), (100_000, 0));
    create(&engine, dir, b"one more", Kind::Directory, LATER).expect("room");
    assert_eq!(visits(&attributes), (100_001, 0));
    engine.apply(&Op::Unlink { dir, name: &entry(77), time: LATER }).expect("there");
    let (from_name, to_name) = (&entry(78)[..], &entry(79)[..]);
    for mode in [RenameMode::Exchange, RenameMode::Replace] {
        let moved = Op::Rename {
            from_dir: dir,
            from_name,
            to_dir: engine.root,
            to_name,
            mode,
            whiteout: None,
            time: LATER,
        };
        assert_eq!(engine.apply(&moved).is_ok(), mode == RenameMode::Replace);
    }
    assert_eq!(visits(&attributes), (99_999, 0));
    assert_eq!(engine.attributes(dir).map(|dir| (dir.links, dir.modified)).ok(), Some((3, LATER)));
    let in_root = || u64::from(engine.parent_of(dir).expect("sound") == Some(engine.root));
    assert_eq!((visits(&in_root), engine.is_removed(dir).ok()), ((1, 0), Some(false)));
}

/// Makes directories in the root until one stripe has `count` of them, and returns these.
fn directories_of_one_stripe(engine: &Scm, count: usize) -> Vec<ObjectId> {
    let mut stripes: HashMap<usize, Vec<ObjectId>> = HashMap::new();
    for n in 0.. {
        let dir = create(engine, engine.root, &entry(n), Kind::Directory, BORN).expect("room");
        let dirs = stripes.entry(stripe_of(dir)).or_default();
        dirs.push(dir);
        if dirs.len() == count {
            return dirs.clone();
        }
    }
    unreachable!("a loop without end")
}

#[test]
fn stats_in_turn_of_directories_of_one_stripe_visit_no_pages() {
    let engine = engine(64 << 20);
    let dirs = directories_of_one_stripe(&engine, 5);
    for (n, &dir) in dirs.iter().enumerate() {
        fill(&engine, dir, 1000 + n);
    }
    let stat_in_turn = |dirs: &[ObjectId]| {
        VISITS.set(0);
        for (n, &dir) in dirs.iter().enumerate() {
            assert_eq!(engine.attributes(dir).map(|dir| dir.size).ok(), Some(1000 + n as u64));
        }
        VISITS.get()
    };
    assert!(stat_in_turn(&dirs[..4]) > 0);
    for _ in 0..3 {
        assert_eq!(stat_in_turn(&dirs[..4]), 0);
    }
    // Five directories have four slots, so they evict one another. Their counts are right, too.
    for _ in 0..3 {
        stat_in_turn(&dirs);
        dirs.iter().for_each(|&dir| assert_right(&engine, dir));
    }
}

/// Lists a directory with fetches of at most `part` entries. Returns the numbers of entries and of fetches.
fn list_in_parts(engine: &Scm, dir: ObjectId, part: usize) -> (usize, usize) {
    let (mut seen, mut cookie, mut fetches) = (0, Some(0), 0);
    while let Some(from) = cookie.take() {
        let mut count = 0;
        let listed = engine.list(dir, from, &mut |entry| {
            count += 1;
            cookie = (count == part).then_some(entry.next);
            count < part
        });
        listed.expect("sound");
        (seen, fetches) = (seen + count, fetches + 1);
    }
    (seen, fetches)
}

#[test]
fn listing_visits_pages_once_plus_few_per_part() {
    let engine = engine(256 << 20);
    let dir = directory(&engine, b"many", 100_000);
    VISITS.set(0);
    assert_eq!(pass(&engine, dir).entries, 100_000);
    let pages = VISITS.get();
    for part in [32, 1000, usize::MAX] {
        VISITS.set(0);
        let (seen, fetches) = list_in_parts(&engine, dir, part);
        let bound = pages + 3 * fetches;
        assert!(
            seen == 100_000 && VISITS.get() <= bound,
            "{} visits of {pages} pages in {fetches} fetches",
            VISITS.get()
        );
    }
}

#[test]
fn nearly_empty_directory_filled_by_threads_is_read_in_one_pass() {
    const THREADS: usize = 4;
    const EACH: usize = 10_000;
    let engine = engine(256 << 20);
    let dir = directory(&engine, b"shared", 1);
    let file = engine.lookup(dir, &entry(0)).expect("sound").expect("there");
    let numbers = |thread| (1 + thread * EACH)..=(thread + 1) * EACH;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                for n in numbers(thread) {
                    let name = &entry(n);
                    engine.apply(&Op::Link { dir, name, id: file, time: BORN }).expect("room");
                }
            });
        }
    });
    VISITS.set(0);
    assert_eq!(pass(&engine, dir).entries, 1 + (THREADS * EACH) as u64);
    let pages = VISITS.get();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                for n in numbers(thread).filter(|n| n % 400 != 0) {
                    engine.apply(&Op::Unlink { dir, name: &entry(n), time: LATER }).expect("there");
                }
            });
        }
    });
    let left = 1 + THREADS * EACH / 400;
    // The first count reads each page twice: before it takes the locks, and under the locks. The bound leaves
    // a margin.
    VISITS.set(0);
    assert_eq!(engine.attributes(dir).map(|dir| dir.size).ok(), Some(left as u64));
    assert!(VISITS.get() <= 3 * pages, "{} visits of {pages} pages for a count", VISITS.get());
    for part in [1, 7, usize::MAX] {
        VISITS.set(0);
        let (seen, fetches) = list_in_parts(&engine, dir, part);
        let bound = pages + 3 * fetches;
        assert!(
            seen == left && VISITS.get() <= bound,
            "{seen} entries, {} visits of {pages} pages in {fetches} fetches",
            VISITS.get()
        );
    }
}

#[test]
fn removal_during_listing_visits_few_pages_again() {
    let engine = engine(64 << 20);
    let dir = directory(&engine, b"many", 20_000);
    engine.attributes(dir).expect("sound");
    VISITS.set(0);
    assert_eq!(pass(&engine, dir).entries, 20_000);
    let pages = VISITS.replace(0);
    let (mut cookie, mut fetches) = (Some(0), 0);
    while let Some(from) = cookie.take() {
        let mut names = Vec::new();
        let listed = engine.list(dir, from, &mut |entry| {
            names.push(entry.name.to_vec());
            cookie = (names.len() == 64).then_some(entry.next);
            names.len() < 64
        });
        listed.expect("sound");
        fetches += 1;
        for name in names {
            engine.apply(&Op::Unlink { dir, name: &name, time: LATER }).expect("there");
        }
    }
    assert!(VISITS.get() <= pages + 3 * fetches, "{} visits of {pages} pages", VISITS.get());
    assert_eq!(engine.attributes(dir).map(|dir| dir.size).ok(), Some(0));
    engine.apply(&Op::RemoveDirectory { dir: engine.root, name: b"many", time: LATER }).expect("empty");
}

#[test]
fn ops_that_fail_are_not_counted() {
    let engine = engine(2 << 20);
    let dir = directory(&engine, b"dir", 200);
    let mut random = SmallRng::seed_from_u64(1);
    let mut failed = 0;
    for n in 0..20_000 {
        engine.attributes(dir).expect("sound");
        let kind = [Kind::File, Kind::Directory][n % 2];
        // Long names fill the volume soon.
        let name = [&entry(n)[..], &[b'-'; 200]].concat();
        match create(&engine, dir, &name, kind, Time::new(random.random_range(3..9), 0)) {
            Ok(_) => {}
            Err(Error::NoSpace) => failed += 1,
            Err(error) => panic!("{error}"),
        }
        assert_right(&engine, dir);
        if failed == 10 {
            break;
        }
    }
    assert_eq!(failed, 10);
    assert!(engine.summaries.known(dir).is_some());
}

#[test]
fn reused_header_gets_new_summary() {
    let engine = engine(16 << 20);
    let first = directory(&engine, b"first", 200);
    engine.attributes(first).expect("sound");
    assert!(engine.summaries.known(first).is_some());
    for n in 0..200 {
        engine.apply(&Op::Unlink { dir: first, name: &entry(n), time: LATER }).expect("there");
    }
    engine.apply(&Op::RemoveDirectory { dir: engine.root, name: b"first", time: LATER }).expect("empty");
    assert_eq!(engine.summaries.known(first), None);
    for n in 0..1000 {
        engine.reclaim();
        let dir = create(&engine, engine.root, &entry(n), Kind::Directory, LATER).expect("room");
        assert_eq!(engine.attributes(dir).map(|dir| (dir.size, dir.links)).ok(), Some((0, 2)));
        if dir == first {
            return;
        }
    }
    panic!("the header was not used again");
}
