//! Tests of collections. Each collection has its root in a word of a volume in memory.

mod crash;
mod damage;
mod growth;
mod shrinking;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use eyrie_faults::SplitMix64;
use eyrie_medium::{Addr, Medium, epoch};

use super::buckets::BucketPlace;
use super::commit::Commit;
use super::layout::{CAPACITY, LINES, PAGE_BYTES, Tags, home, line_of, tags_at};
use super::read::for_each_page;
use super::table::{StoredEntry, Table, bits};
use super::*;
use crate::extent::Extent;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::volume::{MediumChoice, Options, Volume};
use crate::{Error, Kind, ObjectId, Result, Time};

const NOW: Time = Time::new(1_000, 7);
const TIMES_VERSION: u32 = 3;

fn volume(bytes: u64) -> Volume {
    volume_on(Medium::memory(bytes).expect("memory"), 64 << 20)
}

fn volume_on(medium: Medium, group_bytes: u64) -> Volume {
    let options = Options {
        group_bytes,
        hash_seed: 42,
        volume_id: [7; 16],
        created: NOW,
        medium: MediumChoice::Auto,
        overwrite: false,
        checksums: false,
        paged: eyrie_medium::PagedOptions::for_host(),
    };
    Volume::create_on(medium, &options).expect("a volume")
}

/// A collection whose root is in a word of the volume. The word takes the place of a directory's header.
struct Directory<'v> {
    volume: &'v Volume,
    word: Addr,
}

impl<'v> Directory<'v> {
    fn new(volume: &'v Volume) -> Directory<'v> {
        let mut tx = Transaction::begin(volume);
        let root = create(&mut tx).expect("space");
        let word = tx.allocate(64).expect("space").addr;
        tx.word(word, root.raw());
        tx.commit().expect("committed");
        Directory { volume, word }
    }

    fn root(&self) -> Pointer {
        Pointer::from_raw(self.volume.medium().load(self.word).expect("in bounds"))
    }

    fn view(&self) -> Collection<'v> {
        Collection::new(self.volume, self.root())
    }

    fn lookup(&self, name: &[u8]) -> Result<Option<FoundEntry>> {
        let _pin = epoch::pin();
        self.volume.board().stable(|| {
            loop {
                let root = self.root();
                let found = Collection::new(self.volume, root).lookup(name)?;
                if found.is_some() || self.root() == root {
                    return Ok(found);
                }
            }
        })
    }

    fn make_room(&self, name: &[u8]) {
        let root = make_room(self.volume, self.root(), name, |tx, root| {
            tx.word(self.word, root.raw());
            Ok(())
        });
        assert!(root.expect("grown").is_none_or(|root| root == self.root()));
    }

    fn change(&self, change: impl FnOnce(&mut Transaction<'v>) -> Result<()>) {
        let _pin = epoch::pin();
        let mut tx = Transaction::begin(self.volume);
        change(&mut tx).expect("prepared");
        tx.commit().expect("committed");
    }

    fn insert(&self, name: &[u8], id: ObjectId) {
        let _pin = epoch::pin();
        self.make_room(name);
        self.change(|tx| insert(tx, self.root(), name, id, NOW, TIMES_VERSION));
    }

    fn remove(&self, name: &[u8]) {
        let found = self.lookup(name).expect("sound").expect("there");
        self.change(|tx| remove(tx, &found, NOW, TIMES_VERSION).map(drop));
        while may_shrink(self.volume, self.root(), name).expect("sound") && self.shrink(name) {}
    }

    fn shrink(&self, name: &[u8]) -> bool {
        let _pin = epoch::pin();
        let shrunk = shrink(self.volume, self.root(), name, TIMES_VERSION, |tx, root| {
            tx.word(self.word, root.raw());
            Ok(())
        });
        shrunk.expect("shrunk")
    }

    fn replace(&self, name: &[u8], id: ObjectId) {
        let found = self.lookup(name).expect("sound").expect("there");
        self.change(|tx| replace(tx, &found, id, NOW, TIMES_VERSION));
    }

    fn list(&self, cookie: u64, limit: usize) -> Result<Vec<(Vec<u8>, ObjectId, u64)>> {
        let _pin = epoch::pin();
        let mut entries = Vec::new();
        list(self.volume, || Ok(self.root()), cookie, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.id, entry.next));
            entries.len() < limit
        })?;
        Ok(entries)
    }

    fn summary(&self) -> Result<CollectionSummary> {
        let _pin = epoch::pin();
        Ok(summary(self.volume, || Ok(self.root()), TIMES_VERSION)?.0)
    }

    fn extents(&self) -> Result<Vec<Extent>> {
        let mut extents = Vec::new();
        self.view().visit_storage(&mut |extent| {
            extents.push(extent);
            Ok(())
        })?;
        Ok(extents)
    }

    fn entries(&self) -> Result<BTreeMap<Vec<u8>, ObjectId>> {
        let mut entries = BTreeMap::new();
        let view = self.view();
        view.visit_entries(0..view.bucket_count()?, &mut |name, id| {
            assert_eq!(entries.insert(name.to_vec(), id), None);
            Ok(())
        })?;
        Ok(entries)
    }

    fn assert_is(&self, model: &BTreeMap<Vec<u8>, ObjectId>) {
        assert_eq!(self.entries().expect("sound"), *model);
        let listed = self.list(0, usize::MAX).expect("sound");
        assert_eq!(listed.len(), model.len());
        assert_eq!(listed.into_iter().map(|(name, id, _)| (name, id)).collect::<BTreeMap<_, _>>(), *model);
        let directories = model.values().filter(|id| id.is_directory()).count();
        let summary = self.summary().expect("sound");
        assert_eq!((summary.entries, summary.subdirectories), (model.len() as u64, directories as u64));
        assert_eq!(self.view().is_empty().expect("sound"), model.is_empty());
        for (name, id) in model {
            let found = self.lookup(name).expect("sound").map(|found| found.id);
            assert_eq!(found, Some(*id), "{name:?}");
        }
        let mut extents = self.extents().expect("sound");
        extents.sort();
        assert!(extents.windows(2).all(|pair| pair[0].addr.raw() + pair[0].bytes() <= pair[1].addr.raw()));
    }
}

fn id(number: u64) -> ObjectId {
    let kind = if number.is_multiple_of(5) { Kind::Directory } else { Kind::File };
    ObjectId::new((number + 1) * 64, kind)
}

/// Returns name number `n`. Names have 8 to 255 bytes, and all byte values occur.
fn name(n: u64) -> Vec<u8> {
    let mut random = SplitMix64(n);
    let len = match random.below(8) {
        0 => 255,
        1 => random.below(240) + 10,
        _ => random.below(20) + 8,
    };
    let mut name: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    name[..8].copy_from_slice(&n.to_le_bytes());
    name
}

/// A bucket with the maximum number of pages refuses a further name. No read fails because of the long chain
/// of pages. All names are in this bucket, as if they collided on purpose.
#[test]
fn full_bucket_refuses_a_further_name() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    let name = |number: u64| [&[b'n'; 247][..], &number.to_be_bytes()].concat();
    // Without growth all names are in one bucket.
    let insert = |number: u64| {
        let mut tx = Transaction::begin(&volume);
        insert(&mut tx, directory.root(), &name(number), id(number), NOW, TIMES_VERSION)?;
        tx.commit().map(drop)
    };
    let count = (0..).find(|&number| insert(number).is_err()).expect("an end");
    // The error is not that of a full volume, in which a service would expel clients with pins.
    assert!(matches!(insert(count), Err(Error::DirectoryFull)));
    assert!(count > 256 * 4, "{count} names fill 256 pages");
    assert!(volume.space().allocate(PAGE_BYTES).is_ok(), "the volume has room");
    for number in [0, count - 1] {
        assert_eq!(directory.lookup(&name(number)).expect("sound").expect("there").id, id(number));
    }
    assert!(directory.lookup(&name(count)).expect("sound").is_none());
    let mut listed = 0;
    list(&volume, || Ok(directory.root()), 0, &mut |_| {
        listed += 1;
        true
    })
    .expect("sound");
    assert_eq!(listed, count);
}

#[test]
fn random_changes_match_a_map() {
    let volume = volume(256 << 20);
    let directory = Directory::new(&volume);
    let mut model = BTreeMap::new();
    let mut random = SplitMix64(1);
    for step in 0..60_000_u64 {
        let name = name(random.below(6_000));
        let known = directory.lookup(&name).expect("sound").map(|found| found.id);
        assert_eq!(known, model.get(&name).copied());
        match (known, random.below(3)) {
            (None, _) => {
                directory.insert(&name, id(step));
                model.insert(name, id(step));
            }
            (Some(_), 0) => {
                directory.replace(&name, id(step));
                model.insert(name, id(step));
            }
            (Some(_), _) => {
                directory.remove(&name);
                model.remove(&name);
            }
        }
        if step % 20_000 == 100 {
            directory.assert_is(&model);
        }
    }
    directory.assert_is(&model);
    for name in model.keys() {
        directory.remove(name);
    }
    directory.assert_is(&BTreeMap::new());
}

#[test]
fn a_hundred_thousand_entries_take_few_pages() {
    let volume = volume(256 << 20);
    let directory = Directory::new(&volume);
    let name = |n: u64| format!("file-{n:06}").into_bytes();
    for n in 0..100_000 {
        directory.insert(&name(n), id(n));
    }
    directory.assert_is(&(0..100_000).map(|n| (name(n), id(n))).collect());
    for n in 100_000..150_000 {
        assert_eq!(directory.lookup(&name(n)).expect("sound"), None);
    }
    let table = Table::open(volume.medium(), directory.root()).expect("sound");
    let buckets = table.buckets().expect("sound").count();
    assert!((5_000..10_000).contains(&buckets), "{buckets} buckets");
    let extents = directory.extents().expect("sound");
    let further = extents.iter().filter(|extent| extent.bytes() == PAGE_BYTES).count();
    assert!(further < buckets as usize / 30, "{further} further pages for {buckets} buckets");
}

/// Returns names whose hashes share their low 12 bits.
fn colliding(volume: &Volume, count: usize) -> Vec<Vec<u8>> {
    let names = (0_u64..).map(|n| n.to_string().into_bytes());
    names.filter(|name| hash(volume.hash_seed(), name) & 0xfff == 0).take(count).collect()
}

/// Returns a name of 32 bytes, whose hash is the same for each number. XXH3 multiplies pairs of 8 bytes of
/// such a name, each after an exclusive-or with a secret word. The first factor is 0 here, so the second one,
/// which has the number, does not matter.
fn of_equal_hash(volume: &Volume, number: u64) -> Vec<u8> {
    let first_word_of_secret = u64::from_le_bytes([0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe]);
    let first = first_word_of_secret.wrapping_add(volume.hash_seed());
    [first, number, 0, 0].map(u64::to_le_bytes).concat()
}

/// Each entry has a position of its own, so a listing in steps ends although all hashes are equal.
#[test]
fn listing_of_equal_hashes_shows_everything_once() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    for n in 0..600 {
        directory.insert(&of_equal_hash(&volume, n), id(n));
        directory.insert(&name(n), id(1000 + n));
    }
    let hash_of = |n| hash(volume.hash_seed(), &of_equal_hash(&volume, n));
    assert!((1..600).all(|n| hash_of(n) == hash_of(0)));
    for step in [1, 7, 100] {
        let (mut cookie, mut seen) = (0, BTreeMap::new());
        loop {
            let part = directory.list(cookie, step).expect("sound");
            let Some(last) = part.last() else { break };
            assert!(last.2 > cookie, "the listing does not go on");
            cookie = last.2;
            for (name, id, _) in part {
                assert_eq!(seen.insert(name, id), None, "shown twice");
            }
        }
        assert_eq!(seen.len(), 1200);
    }
}

#[test]
fn names_that_collide_fill_further_pages() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    let names = colliding(&volume, 400);
    let mut model = BTreeMap::new();
    for (n, name) in names.iter().enumerate() {
        directory.insert(name, id(n as u64));
        model.insert(name.clone(), id(n as u64));
    }
    directory.assert_is(&model);
    for (n, name) in names.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
        directory.remove(name);
        model.remove(name);
        if n % 2 == 0 {
            directory.insert(name, id(n as u64 + 1000));
            model.insert(name.clone(), id(n as u64 + 1000));
        }
    }
    for (n, name) in names.iter().enumerate().filter(|(n, _)| n % 3 == 0) {
        directory.replace(name, id(n as u64 + 2000));
        model.insert(name.clone(), id(n as u64 + 2000));
    }
    directory.assert_is(&model);
}

/// Returns names whose entries have line 2 as their home.
fn of_one_line(volume: &Volume, count: usize) -> Vec<Vec<u8>> {
    let names = (0_u64..).map(|n| n.to_string().into_bytes());
    names.filter(|name| home(hash(volume.hash_seed(), name)) == 2).take(count).collect()
}

#[test]
fn a_line_that_is_full_spills_into_the_others() {
    let volume = volume(8 << 20);
    let directory = Directory::new(&volume);
    let names = of_one_line(&volume, 2 * CAPACITY as usize);
    let (names, absent) = names.split_at(CAPACITY as usize);
    let mut model = BTreeMap::new();
    let mut lines = [0; LINES];
    for (n, name) in names.iter().enumerate() {
        directory.change(|tx| insert(tx, directory.root(), name, id(n as u64), NOW, TIMES_VERSION));
        model.insert(name.clone(), id(n as u64));
        lines[line_of(directory.lookup(name).expect("sound").expect("there").slot) as usize] += 1;
        assert_eq!(lines[2], (n + 1).min(7));
    }
    assert_eq!(lines, [7; LINES]);
    directory.assert_is(&model);
    // A spilled entry is found even if its home has room again.
    for name in names.iter().take(20).skip(2) {
        directory.remove(name);
        model.remove(name);
        directory.assert_is(&model);
    }
    for name in absent {
        assert_eq!(directory.lookup(name).expect("sound"), None);
    }
}

#[test]
fn a_split_forgets_the_spilled_entries_that_move() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    let (mut spilled, mut outside) = (0, 0);
    for n in 0..5_000 {
        directory.insert(&name(n), id(n));
    }
    let medium = volume.medium();
    let table = Table::open(medium, directory.root()).expect("sound");
    for bucket in 0..table.buckets().expect("sound").count() {
        for_each_page(&table, bucket, |page| {
            let mut expected = [0; LINES];
            for slot in bits(Commit::from_raw(medium.load(page)?).live()) {
                let home = home(StoredEntry::read(medium, page, slot)?.hash);
                if line_of(slot) != home {
                    expected[home as usize] |= 1 << line_of(slot);
                    outside += 1;
                }
            }
            for (line, expected) in (0..).zip(expected) {
                assert_eq!(Tags::from_raw(medium.load(tags_at(page, line))?).spilled(), expected);
                spilled += expected.count_ones();
            }
            Ok(())
        })
        .expect("sound");
    }
    assert!((20..500).contains(&outside) && spilled <= outside, "{outside} entries outside their lines");
}

#[test]
fn several_changes_of_a_page_are_one_word() {
    let volume = volume(8 << 20);
    let directory = Directory::new(&volume);
    directory.insert(b"from", id(1));
    directory.insert(b"stays", id(2));
    let page = directory.lookup(b"from").expect("sound").expect("there").page;
    let before = volume.medium().load(page).expect("in bounds");
    directory.change(|tx| {
        let from = directory.lookup(b"from")?.expect("there");
        remove(tx, &from, NOW, TIMES_VERSION)?;
        insert(tx, directory.root(), b"to", id(1), NOW, TIMES_VERSION)?;
        assert_eq!(volume.medium().load(page)?, before);
        // The old entry remains unchanged until the commit.
        assert_eq!(directory.lookup(b"from")?.map(|found| found.id), Some(id(1)));
        let stays = directory.lookup(b"stays")?.expect("there");
        replace(tx, &stays, id(3), NOW, TIMES_VERSION)
    });
    let after = Commit::from_raw(volume.medium().load(page).expect("in bounds"));
    assert_eq!(after.with_live(0), Commit::from_raw(before).next_stamped().with_live(0));
    directory.assert_is(&BTreeMap::from([(b"to".to_vec(), id(1)), (b"stays".to_vec(), id(3))]));
}

#[test]
fn batch_may_need_further_pages() {
    let volume = volume(8 << 20);
    let directory = Directory::new(&volume);
    let model: BTreeMap<_, _> = (0..300).map(|n| (name(n), id(n))).collect();
    directory.change(|tx| {
        model.iter().try_for_each(|(name, id)| insert(tx, directory.root(), name, *id, NOW, TIMES_VERSION))
    });
    directory.assert_is(&model);
    directory.change(|tx| {
        model.keys().try_for_each(|name| {
            let found = directory.lookup(name)?.expect("there");
            remove(tx, &found, NOW, TIMES_VERSION).map(drop)
        })
    });
    directory.assert_is(&BTreeMap::new());
}

#[test]
fn a_dropped_transaction_changes_nothing() {
    let volume = volume(8 << 20);
    let directory = Directory::new(&volume);
    let model: BTreeMap<_, _> = (0..20).map(|n| (name(n), id(n))).collect();
    for (name, id) in &model {
        directory.insert(name, *id);
    }
    let mut tx = Transaction::begin(&volume);
    for n in 0..20 {
        let found = directory.lookup(&name(n)).expect("sound").expect("there");
        remove(&mut tx, &found, NOW, TIMES_VERSION).expect("prepared");
        insert(&mut tx, directory.root(), &name(n + 100), id(n), NOW, TIMES_VERSION).expect("prepared");
    }
    drop(tx);
    directory.assert_is(&model);
}

#[test]
fn latest_change_counts_per_times_version() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    assert_eq!(directory.summary().expect("sound").changed, None);
    for n in 0..500 {
        directory.make_room(&name(n));
        let time = Time::new(n as i64 - 250, 1);
        directory.change(|tx| insert(tx, directory.root(), &name(n), id(n), time, TIMES_VERSION));
    }
    let summary = directory.summary().expect("sound");
    assert_eq!((summary.changed, summary.modified), (Some(Time::new(249, 1)), Some(Time::new(249, 1))));
    directory.change(|tx| {
        let found = directory.lookup(&name(3))?.expect("there");
        remove(tx, &found, Time::new(900, 0), TIMES_VERSION + 1).map(drop)
    });
    let summary = directory.summary().expect("sound");
    assert_eq!(summary.changed, Some(Time::new(900, 0)));
    // The stamp of the removal has another version, so `modified` does not include its time. But this stamp
    // may have replaced the stamp with the latest time of `TIMES_VERSION`.
    assert!(summary.modified <= Some(Time::new(249, 1)));
}

#[test]
fn listing_in_steps_shows_everything_once() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    let mut model = BTreeMap::new();
    let mut seen = BTreeMap::new();
    for n in 0..1000 {
        directory.insert(&name(n), id(n));
        model.insert(name(n), id(n));
    }
    let (mut cookie, mut more) = (0, 10_000);
    loop {
        let part = directory.list(cookie, 7).expect("sound");
        let Some(last) = part.last() else { break };
        cookie = last.2;
        for (name, id, _) in part {
            assert_eq!(seen.insert(name, id), None, "shown twice");
        }
        // The collection grows between two parts of the listing.
        for _ in 0..20 {
            directory.insert(&name(more), id(more));
            more += 1;
        }
    }
    assert!(model.iter().all(|(name, id)| seen.get(name) == Some(id)));
    assert_eq!(directory.list(u64::MAX, 1).expect("sound"), []);
}

#[test]
fn listing_during_growth_loses_and_repeats_nothing() {
    let volume = volume(256 << 20);
    let directory = Directory::new(&volume);
    let old: BTreeMap<_, _> = (0..2_000).map(|n| (name(n), id(n))).collect();
    for (name, id) in &old {
        directory.insert(name, *id);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 2_000..22_000 {
                directory.insert(&name(n), id(n));
            }
            done.store(true, Ordering::Release);
        });
        let mut rounds = 0;
        while !done.load(Ordering::Acquire) || rounds < 2 {
            let listed = directory.list(0, usize::MAX).expect("sound");
            let count = listed.len();
            let names: BTreeMap<_, _> = listed.into_iter().map(|(name, id, _)| (name, id)).collect();
            assert_eq!(names.len(), count, "an entry was shown twice");
            assert!(old.iter().all(|(name, id)| names.get(name) == Some(id)), "an entry was lost");
            assert!(directory.summary().expect("sound").entries >= count as u64);
            rounds += 1;
        }
    });
}

#[test]
fn readers_see_each_change_whole() {
    let volume = volume(256 << 20);
    let directory = Directory::new(&volume);
    for n in 0..300 {
        directory.insert(&name(n), id(n));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (directory, done) = (&directory, &done);
            scope.spawn(move || {
                let mut random = SplitMix64(reader);
                while !done.load(Ordering::Acquire) {
                    let n = random.below(300);
                    let found = directory.lookup(&name(n)).expect("sound").map(|found| found.id);
                    match n % 3 {
                        // This entry never changes.
                        0 => assert_eq!(found, Some(id(n))),
                        // This entry is replaced again and again.
                        1 => assert!(found == Some(id(n)) || found == Some(id(n + 1_000_000))),
                        // This entry is removed and inserted again and again.
                        _ => assert!(found.is_none_or(|found| found == id(n))),
                    }
                }
            });
        }
        let mut random = SplitMix64(77);
        for step in 0..60_000 {
            let n = random.below(300);
            match n % 3 {
                0 => directory.insert(&name(1_000 + step), id(step)),
                1 => directory.replace(&name(n), id(if step % 2 == 0 { n } else { n + 1_000_000 })),
                _ if directory.lookup(&name(n)).expect("sound").is_some() => directory.remove(&name(n)),
                _ => directory.insert(&name(n), id(n)),
            }
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn a_half_done_split_changes_no_answer() {
    let volume = volume(64 << 20);
    let directory = Directory::new(&volume);
    let mut model = BTreeMap::new();
    for n in 0..2_000 {
        directory.make_room(&name(n));
        let interrupted = n % 7 == 0;
        if interrupted {
            // Build the state after a crash that follows the publish of the new number of buckets.
            let table = Table::open(volume.medium(), directory.root()).expect("sound");
            let buckets = table.buckets().expect("sound");
            if BucketPlace::of(buckets.count()).segment < table.slots() {
                grow::copy_to_new_bucket(&volume, &table, buckets).expect("space");
                directory.assert_is(&model);
            }
        }
        directory.change(|tx| insert(tx, directory.root(), &name(n), id(n), NOW, TIMES_VERSION));
        model.insert(name(n), id(n));
    }
    directory.assert_is(&model);
}
