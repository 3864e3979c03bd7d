//! Collections that lose most of their entries.

use super::*;
use crate::object::collection::buckets::FIRST_TABLE_BYTES;

/// Returns the bytes of all extents.
fn storage(directory: &Directory<'_>) -> u64 {
    directory.extents().expect("sound").iter().map(|extent| extent.bytes()).sum()
}

/// The storage of a collection without entries, in bytes.
const LEAST: u64 = FIRST_TABLE_BYTES + PAGE_BYTES;

fn filled(directory: &Directory<'_>, count: u64) -> BTreeMap<Vec<u8>, ObjectId> {
    (0..count)
        .map(|n| {
            directory.insert(&name(n), id(n));
            (name(n), id(n))
        })
        .collect()
}

/// Returns the names in the order of listings.
fn listed(directory: &Directory<'_>) -> Vec<Vec<u8>> {
    directory.list(0, usize::MAX).expect("sound").into_iter().map(|(name, ..)| name).collect()
}

#[test]
fn emptied_collection_has_one_page() {
    for in_order in [false, true] {
        let volume = volume(256 << 20);
        let directory = Directory::new(&volume);
        assert_eq!(storage(&directory), LEAST);
        let mut model = filled(&directory, 20_000);
        let full = storage(&directory);
        let names = if in_order { listed(&directory) } else { model.keys().cloned().collect() };
        for (n, name) in names.iter().enumerate() {
            directory.remove(name);
            model.remove(name);
            if n % 1500 == 0 || model.len() < 40 {
                directory.assert_is(&model);
            }
        }
        directory.assert_is(&model);
        assert_eq!(storage(&directory), LEAST, "{full} bytes before the removals, in order: {in_order}");
        let model = filled(&directory, 3_000);
        directory.assert_is(&model);
    }
}

#[test]
fn random_removals_keep_storage_in_proportion() {
    let volume = volume(256 << 20);
    let directory = Directory::new(&volume);
    let model = filled(&directory, 20_000);
    let full = storage(&directory);
    for (n, name) in model.keys().enumerate() {
        // The hashes do not depend on the order of the names, so the removals hit the buckets at random.
        directory.remove(name);
        let left = (model.len() - n - 1) as u64;
        // The bound is generous, because only a sample of the pages decides if the collection shrinks.
        assert!(storage(&directory) <= 12 * full * left / 20_000 + 40 * PAGE_BYTES, "{left} entries left");
    }
}

#[test]
fn chain_without_use_is_given_up() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    let names = colliding(&volume, 400);
    let mut model = BTreeMap::new();
    // No call of `make_room` comes before these inserts. So the collection does not grow, and the entries
    // fill further pages of one bucket.
    for (n, name) in names.iter().enumerate() {
        directory.change(|tx| insert(tx, directory.root(), name, id(n as u64), NOW, TIMES_VERSION));
        model.insert(name.clone(), id(n as u64));
    }
    let full = storage(&directory);
    for name in names.iter().skip(3).rev() {
        directory.remove(name);
        model.remove(name);
    }
    directory.assert_is(&model);
    assert_eq!(storage(&directory), LEAST, "{full} bytes before the removals");
}

#[test]
fn shrinking_keeps_the_latest_times() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    for n in 0..2000 {
        directory.make_room(&name(n));
        let time = Time::new(1000 + n as i64, 0);
        directory.change(|tx| insert(tx, directory.root(), &name(n), id(n), time, TIMES_VERSION));
    }
    let remove = |n: u64, seconds: i64| {
        let found = directory.lookup(&name(n)).expect("sound").expect("there");
        directory.change(|tx| remove(tx, &found, Time::new(seconds, 0), TIMES_VERSION).map(drop));
        let before = directory.summary().expect("sound");
        while directory.shrink(&name(n)) {}
        assert_eq!(directory.summary().expect("sound"), before);
    };
    // The clock goes back: the time of a removal is earlier than the time of the entry's insert. So the pages
    // of removed entries get earlier times than other pages.
    (0..1990).for_each(|n| remove(n, n as i64));
    let few = directory.view().bucket_count().expect("sound");
    assert!(few < 10, "{few}");
}

#[test]
fn listing_in_steps_of_shrinking_collection_shows_everything_once() {
    for part in [1, 7, 40] {
        let volume = volume(64 << 20);
        let directory = Directory::new(&volume);
        let all = filled(&directory, 3_000);
        let kept: BTreeMap<_, _> = all.iter().filter(|(name, _)| name[0] == 7).collect();
        let mut seen = BTreeMap::new();
        let mut doomed = all.keys().filter(|name| name[0] != 7);
        let mut cookie = 0;
        loop {
            let listed = directory.list(cookie, part).expect("sound");
            let Some(last) = listed.last() else { break };
            cookie = last.2;
            for (name, id, _) in listed {
                assert_eq!(seen.insert(name, id), None, "shown twice");
            }
            for name in doomed.by_ref().take(20 * part) {
                directory.remove(name);
            }
        }
        assert!(kept.iter().all(|(name, id)| seen.get(*name) == Some(id)));
        assert!(doomed.next().is_none() && directory.view().bucket_count().expect("sound") < 10);
    }
}

#[test]
fn readers_beside_growth_and_shrinking_lose_and_repeat_nothing() {
    let volume = volume(256 << 20);
    let directory = Directory::new(&volume);
    let old: BTreeMap<_, _> = (0..30).map(|n| (name(n), id(n))).collect();
    for (name, id) in &old {
        directory.insert(name, *id);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = SplitMix64(5);
            while !done.load(Ordering::Acquire) {
                let n = random.below(30);
                assert_eq!(directory.lookup(&name(n)).expect("sound").map(|found| found.id), Some(id(n)));
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let listed = directory.list(0, usize::MAX).expect("sound");
                let count = listed.len();
                let names: BTreeMap<_, _> = listed.into_iter().map(|(name, id, _)| (name, id)).collect();
                assert_eq!(names.len(), count, "an entry was shown twice");
                assert!(old.iter().all(|(name, id)| names.get(name) == Some(id)), "an entry was lost");
            }
        });
        for _ in 0..30 {
            for n in 100..1_500 {
                directory.insert(&name(n), id(n));
            }
            assert!(directory.view().bucket_count().expect("sound") > 50);
            for n in 100..1_500 {
                directory.remove(&name(n));
            }
            assert!(directory.view().bucket_count().expect("sound") < 10);
        }
        done.store(true, Ordering::Release);
    });
    directory.assert_is(&old);
}

#[test]
fn remembered_entry_is_not_taken_for_one_of_a_later_page() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    // As in an Op, a pin keeps the allocator from reusing the pages of the remembered entries.
    let _pin = epoch::pin();
    let mut remembered = Vec::new();
    for round in 0..6 {
        for n in 0..600 {
            directory.insert(&name(n), id(n));
        }
        let found = |n| (n, directory.lookup(&name(n)).expect("sound").expect("there"));
        remembered.extend((0..600).map(found));
        // In odd rounds the entries are removed in another order, so the merges move other entries.
        for n in 0..600 {
            let name = name(if round % 2 == 0 { n } else { n * 7 % 600 });
            directory.remove(&name);
        }
        assert_eq!(directory.view().bucket_count().expect("sound"), 1);
    }
    for n in (0..600).rev() {
        directory.insert(&name(n), id(n + 1000));
    }
    for (n, found) in remembered {
        assert!(!directory.view().is_unchanged(&name(n), &found).expect("sound"), "{n}");
    }
}

#[test]
fn merge_after_a_half_done_split_keeps_every_entry() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    let mut model = filled(&directory, 400);
    let table = Table::open(volume.medium(), directory.root()).expect("sound");
    // This call leaves the collection as a crash in a split may leave it: the new number of buckets is
    // published, but the old bucket still holds the entries that have moved.
    grow::copy_to_new_bucket(&volume, &table, table.buckets().expect("sound")).expect("space");
    for name in model.keys().cloned().collect::<Vec<_>>() {
        directory.remove(&name);
        model.remove(&name);
        directory.assert_is(&model);
    }
    assert_eq!(storage(&directory), LEAST);
}
