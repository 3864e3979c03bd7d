//! Collections with damaged bytes. Reads return errors or answers, and never panic or hang.

use eyrie_medium::Addr;

use super::layout::{
    EntrySlot, Gap, HEAP_UNIT, INVENTORY, Inventory, PAGE_UNITS, index_of, length_at, slot_at,
};
use super::*;
use crate::Error;

/// Looks names up in a damaged collection, lists it, sums it up and checks it. Also prepares changes, but
/// does not commit them. These calls may return errors or answers, but must not panic or hang. Returns the
/// number of errors.
fn use_it(directory: &Directory<'_>, names: &[Vec<u8>]) -> usize {
    let mut errors = 0;
    let mut note = |failed: bool| errors += usize::from(failed);
    for name in names {
        let found = directory.view().lookup(name);
        note(found.is_err());
        let mut tx = Transaction::begin(directory.volume);
        if let Ok(Some(found)) = found {
            note(replace(&mut tx, &found, id(9), NOW, TIMES_VERSION).is_err());
        }
        note(insert(&mut tx, directory.root(), b"an inserted name", id(5), NOW, TIMES_VERSION).is_err());
    }
    note(directory.list(0, 10_000).is_err());
    note(directory.summary().is_err());
    note(directory.view().is_empty().is_err());
    note(directory.extents().is_err());
    let view = directory.view();
    let entries = view.bucket_count().and_then(|count| view.visit_entries(0..count, &mut |_, _| Ok(())));
    note(entries.is_err());
    errors
}

fn set_root(directory: &Directory<'_>, root: u64) {
    drop(directory.volume.medium().write_word(directory.word, root).expect("in bounds"));
}

#[test]
fn damage_gives_errors_or_answers() {
    let volume = volume(8 << 20);
    let directory = Directory::new(&volume);
    let names: Vec<_> = (0..90).map(name).chain(colliding(&volume, 40)).collect();
    for (n, name) in names.iter().enumerate() {
        directory.insert(name, id(n as u64));
    }
    let medium = volume.medium();
    let probes = [names[0].clone(), names[50].clone(), names[100].clone()];
    let found = directory.lookup(&names[0]).expect("sound").expect("there");
    let table = directory.root().extent().expect("sound").addr;
    let root = directory.root();
    let mut found_out = 0;
    let mut random = SplitMix64(5);
    for (start, len) in [(table, 128), (found.page, PAGE_BYTES)] {
        let mut sound = vec![0; len as usize];
        medium.read(start, &mut sound).expect("in bounds");
        let restore = |at: Addr, bytes: &[u8]| drop(medium.write(at, bytes).expect("in bounds"));
        // The loop inverts all bits of a byte at an even offset, and one bit of a byte at an odd offset.
        for offset in 0..len as usize {
            let flip = [0xff, 1 << (offset % 8)][offset % 2];
            restore(start.add(offset as u64), &[sound[offset] ^ flip]);
            found_out += usize::from(use_it(&directory, &probes) != 0);
            restore(start, &sound);
        }
        for _ in 0..300 {
            let garbage: Vec<u8> = sound.iter().map(|_| random.next() as u8).collect();
            restore(start, &garbage);
            use_it(&directory, &probes);
            restore(start, &sound);
        }
    }
    // Damage of bytes that these calls do not use gives no error.
    assert!(found_out > 400, "only {found_out} damaged bytes were found");
    for n in 0..64 {
        set_root(&directory, root.raw() ^ 1 << n);
        use_it(&directory, &probes);
    }
    for _ in 0..300 {
        set_root(&directory, random.next());
        use_it(&directory, &probes);
    }
    set_root(&directory, root.raw());
    assert!(directory.list(0, usize::MAX).is_ok());
}

#[test]
fn a_cycle_of_pages_is_corrupt() {
    let volume = volume(8 << 20);
    let directory = Directory::new(&volume);
    directory.insert(b"a", id(1));
    let page = directory.lookup(b"a").expect("sound").expect("there").page;
    let link = Pointer::node(directory.extents().expect("sound")[1]);
    drop(volume.medium().write_word(page.add(layout::LINK), link.raw()).expect("in bounds"));
    assert!(matches!(directory.lookup(b"b"), Err(Error::Corrupt { .. })));
    assert!(matches!(directory.list(0, usize::MAX), Err(Error::Corrupt { .. })));
    assert!(matches!(directory.extents(), Err(Error::Corrupt { .. })));
}

#[test]
fn growth_over_damage_gives_errors_or_goes_on() {
    let volume = volume_on(Medium::memory(1 << 20).expect("memory"), 64 << 10);
    let directory = Directory::new(&volume);
    for n in 0..100 {
        directory.insert(&name(n), id(n));
    }
    let medium = volume.medium();
    let write = |at: Addr, bytes: &[u8]| drop(medium.write(at, bytes).expect("in bounds"));
    let extents = directory.extents().expect("sound");
    let sound = medium.snapshot();
    let mut random = SplitMix64(11);
    for _ in 0..400 {
        let extent = extents[random.below(extents.len() as u64) as usize];
        for _ in 0..=random.below(40) {
            // On average, more than half of the damaged bytes are among the first 160 bytes of an extent. In
            // this range, the table and the first page of an extent keep the words on which all reads depend.
            let span = if random.below(2) == 0 { 160 } else { extent.bytes() };
            write(extent.addr.add(random.below(span.min(extent.bytes()))), &[random.next() as u8]);
        }
        for _ in 0..4 {
            let name = name(1_000 + random.below(1_000));
            let room = make_room(&volume, directory.root(), &name, |tx, root| {
                tx.word(directory.word, root.raw());
                Ok(())
            });
            let mut tx = Transaction::begin(&volume);
            if let Ok(root) = room
                && insert(&mut tx, root.unwrap_or(directory.root()), &name, id(1), NOW, TIMES_VERSION).is_ok()
            {
                tx.commit().expect("committed");
            }
        }
        // The test restores only the bytes of the collection, not the volume's tables. Therefore storage that
        // was allocated meanwhile is only leaked.
        for extent in &extents {
            let start = extent.addr.offset() as usize;
            write(extent.addr, &sound[start..start + extent.bytes() as usize]);
        }
        write(directory.word, &sound[directory.word.offset() as usize..][..8]);
    }
    assert_eq!(directory.entries().expect("sound").len(), 100);
}

/// Stores `word` at the address `at` in a sound collection, checks the collection, and restores the old word.
/// Returns the error that the check has found.
fn found_out(directory: &Directory<'_>, at: Addr, word: u64) -> String {
    let medium = directory.volume.medium();
    let sound = medium.load(at).expect("in bounds");
    drop(medium.write_word(at, word).expect("in bounds"));
    let view = directory.view();
    let checked = view.bucket_count().and_then(|count| view.visit_entries(0..count, &mut |_, _| Ok(())));
    drop(medium.write_word(at, sound).expect("in bounds"));
    checked.expect_err("damaged").to_string()
}

#[test]
fn check_finds_hidden_entries_and_wrong_words() {
    let volume = volume(8 << 20);
    let directory = Directory::new(&volume);
    let names = of_one_line(&volume, 8);
    for (n, name) in names.iter().enumerate() {
        directory.insert(name, id(n as u64));
    }
    let medium = volume.medium();
    let load = |at| medium.load(at).expect("in bounds");
    let first = directory.lookup(&names[0]).expect("sound").expect("there");
    let spilled = directory.lookup(&names[7]).expect("sound").expect("there");
    let (page, commit) = (first.page, Commit::from_raw(load(first.page)));
    assert_eq!((line_of(first.slot), line_of(spilled.slot)), (2, 3));

    // A wrong tag or a missing spilled bit hides exactly one entry.
    let tags = tags_at(page, 2);
    for (word, hidden, said) in [
        (load(tags) ^ 1 << (8 * index_of(first.slot)), 0, "wrong tag of an entry"),
        (Tags::from_raw(load(tags)).with_spilled(0b0011).raw(), 7, "without its spilled bit"),
    ] {
        assert!(found_out(&directory, tags, word).contains(said));
        let sound = load(tags);
        drop(medium.write_word(tags, word).expect("in bounds"));
        for (n, name) in names.iter().enumerate() {
            let found = directory.lookup(name).expect("sound").map(|found| found.id);
            assert_eq!(found, (n != hidden).then_some(id(n as u64)));
        }
        drop(medium.write_word(tags, sound).expect("in bounds"));
    }

    let inventory = Inventory::from_raw(load(page.add(INVENTORY)));
    let slot = EntrySlot::from_raw(load(slot_at(page, first.slot)));
    let lengths = load(length_at(page, first.slot));
    let heap = Gap { start: HEAP_UNIT, end: PAGE_UNITS };
    for (at, word, said) in [
        (page, commit.raw() | 1 << 7, "without a slot"),
        (page.add(INVENTORY), inventory.raw() ^ 1 << first.slot, "wrong kind"),
        (page.add(INVENTORY), inventory.with_gap(heap).raw(), "overlap"),
        (page.add(INVENTORY), inventory.with_gap(Gap { start: 0, end: 50 }).raw(), "gap outside"),
        (page.add(INVENTORY), inventory.with_gap(Gap { start: 90, end: 80 }).raw(), "gap outside"),
        (slot_at(page, first.slot), EntrySlot::new(first.id, 3).raw(), "record outside"),
        (slot_at(page, spilled.slot), EntrySlot::new(spilled.id, slot.unit()).raw(), "overlap"),
        (slot_at(page, first.slot), slot.raw() & !63, "without an object"),
        (length_at(page, first.slot), lengths & !(0xff << (8 * index_of(first.slot))), "record outside"),
        (length_at(page, first.slot), lengths + (1 << (8 * index_of(first.slot))), "length of a name"),
    ] {
        let found = found_out(&directory, at, word);
        assert!(found.contains(said), "{found}: not {said}");
    }
    directory.entries().expect("sound");
}
