//! Files without an engine: what storage they have, and what of it changes.

use eyrie_medium::{Medium, PAGE_SIZE};

use super::*;
use crate::object::header::Selector;
use crate::object::pointer::{Extent, Pointer};
use crate::transaction::Transaction;
use crate::volume::{MediumChoice, Options, Volume};
use crate::{Error, Kind, Result, Time};

const LARGE: u64 = 2 << 20;

/// A file as a header would have it.
struct File<'v> {
    volume: &'v Volume,
    sealed: bool,
    root: Pointer,
    size: u64,
}

fn volume(bytes: u64) -> Volume {
    let options = Options {
        group_bytes: 4 << 20,
        medium: MediumChoice::Auto,
        ..Options::random(Time::new(0, 0)).expect("random bytes")
    };
    Volume::create_on(Medium::memory(bytes).expect("memory"), &options).expect("a new volume")
}

impl<'v> File<'v> {
    fn new(volume: &'v Volume) -> File<'v> {
        File { volume, sealed: false, root: Pointer::NULL, size: 0 }
    }

    /// Makes a change whose new root and size are known, as a commit does.
    fn change(
        &mut self,
        size: u64,
        prepare: impl FnOnce(&mut Transaction<'_>, Pointer, Selector) -> Result<Pointer>,
    ) {
        let mut transaction = Transaction::begin(self.volume);
        let selector = Selector::first(Kind::File, self.sealed);
        self.root = prepare(&mut transaction, self.root, selector).expect("room");
        self.size = size;
        transaction.commit().expect("sound");
    }

    fn allocate(&mut self, offset: u64, end: u64, zeros: bool) {
        let (from, to) = (self.size, self.size.max(end));
        self.change(to, |transaction, root, selector| {
            allocate(transaction, selector, root, (from, to), (offset, end), zeros)
        });
    }

    fn punch(&mut self, offset: u64, end: u64) {
        let size = self.size;
        self.change(size, |transaction, root, _| punch(transaction, root, size, offset, end));
    }

    fn insert(&mut self, offset: u64, length: u64) {
        let size = self.size;
        self.change(size + length, |transaction, root, _| insert(transaction, root, size, offset, length));
    }

    fn collapse(&mut self, offset: u64, length: u64) {
        let size = self.size;
        self.change(size - length, |transaction, root, _| collapse(transaction, root, size, offset, length));
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let size = self.size;
        let end = size.max(offset + data.len() as u64);
        self.change(end, |transaction, root, selector| {
            Ok(match write(transaction, selector, root, size, offset, data)? {
                Change::Root(root, _) => root,
                Change::Below => root,
            })
        });
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0xee; self.size as usize];
        let count = read(self.volume.medium(), self.root, self.size, 0, &mut bytes).expect("sound");
        assert_eq!(count, bytes.len());
        bytes
    }

    /// All extents, nodes included.
    fn storage(&self) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut visit = |extent| {
            extents.push(extent);
            Ok(())
        };
        visit_storage(self.volume.medium(), self.root, self.size, &mut visit).expect("sound");
        extents
    }

    /// Bytes of storage without nodes.
    fn allocated(&self) -> u64 {
        allocated(self.volume.medium(), self.root, self.size, true).expect("sound")
    }

    fn seek(&self, offset: u64, hole: bool) -> Option<u64> {
        seek(self.volume.medium(), self.root, self.size, offset, hole).expect("sound")
    }
}

fn free(volume: &Volume) -> u64 {
    volume.space().usage().free
}

#[test]
fn what_is_allocated_reads_as_zeros_and_is_written_in_place() {
    let volume = volume(16 << 20);
    let mut file = File::new(&volume);
    file.allocate(0, 5 * PAGE_SIZE, false);
    assert_eq!((file.bytes(), file.allocated()), (vec![0; 5 * 4096], 5 * PAGE_SIZE));
    assert_eq!((file.seek(0, false), file.seek(0, true)), (None, Some(0)));
    let (before, storage) = (free(&volume), file.storage());
    let mut expected = vec![0; 5 * 4096];
    for page in [2, 0, 4, 3, 1] {
        file.write(page * PAGE_SIZE + 100, &[7; 200]);
        expected[page as usize * 4096 + 100..][..200].fill(7);
        assert_eq!(file.bytes(), expected);
        assert_eq!((free(&volume), file.storage()), (before, storage.clone()));
    }
    assert_eq!((file.seek(0, false), file.seek(0, true)), (Some(0), Some(5 * PAGE_SIZE)));
    // What has bytes of its own is not changed in place.
    file.write(100, &[8; 200]);
    assert_ne!(file.storage(), storage);
}

#[test]
fn an_append_after_allocated_bytes_shows_zeros_before_it() {
    let volume = volume(16 << 20);
    let mut file = File::new(&volume);
    file.write(0, &[1; 100]);
    file.allocate(4000, 9000, false);
    file.write(9000, &[2; 10]);
    file.write(9100, &[3; 10]);
    let expected = [vec![1; 100], vec![0; 8900], vec![2; 10], vec![0; 90], vec![3; 10]].concat();
    assert_eq!(file.bytes(), expected);
}

#[test]
fn a_large_range_is_allocated_in_large_extents_and_comes_apart_page_by_page() {
    let volume = volume(32 << 20);
    let mut file = File::new(&volume);
    file.allocate(0, 2 * LARGE, false);
    assert_eq!(file.storage().iter().filter(|extent| extent.bytes() == LARGE).count(), 2);
    file.write(LARGE + 5 * PAGE_SIZE, &[9; 4096]);
    assert_eq!((file.seek(0, false), file.allocated()), (Some(LARGE + 5 * PAGE_SIZE), 2 * LARGE));
    file.punch(LARGE, LARGE + 5 * PAGE_SIZE);
    file.punch(100, LARGE - 100);
    assert_eq!(file.allocated(), LARGE - 3 * PAGE_SIZE);
    file.allocate(0, 2 * LARGE, false);
    assert_eq!(file.allocated(), 2 * LARGE);
    let mut expected = vec![0; 2 * LARGE as usize];
    expected[(LARGE + 5 * PAGE_SIZE) as usize..][..4096].fill(9);
    assert!(file.bytes() == expected);
    let before = free(&volume);
    file.write(0, &vec![4; LARGE as usize]);
    assert!(file.bytes()[..LARGE as usize] == vec![4; LARGE as usize]);
    assert!(before.abs_diff(free(&volume)) <= 2 * PAGE_SIZE, "{before}, {}", free(&volume));
}

#[test]
fn storage_of_zeros_is_used_again_unless_a_view_may_show_it() {
    let volume = volume(16 << 20);
    for sealed in [false, true] {
        let mut file = File { sealed, ..File::new(&volume) };
        file.write(0, &[5; 40_000]);
        file.punch(4096, 8192);
        let pages = |file: &File<'_>| {
            let storage = file.storage();
            storage.into_iter().filter(|extent| extent.bytes() == PAGE_SIZE).skip(1).collect::<Vec<_>>()
        };
        let before = pages(&file);
        file.allocate(8192, 16_384, true);
        assert_eq!(file.bytes()[..20_000], [vec![5; 4096], vec![0; 12_288], vec![5; 3616]].concat());
        assert_eq!(pages(&file) == before, !sealed);
        assert_eq!(file.allocated(), 40_960 - PAGE_SIZE);
        assert_eq!(file.seek(4096, false), Some(16_384));
    }
}

#[test]
fn small_files_stay_one_extent_where_no_page_becomes_a_hole() {
    let volume = volume(16 << 20);
    let mut file = File::new(&volume);
    file.write(0, &[6; 100]);
    file.punch(20, 30);
    file.allocate(90, 95, true);
    file.allocate(50, 1000, false);
    let expected = [vec![6; 20], vec![0; 10], vec![6; 60], vec![0; 5], vec![6; 5], vec![0; 900]].concat();
    assert_eq!((file.bytes(), file.storage().len()), (expected.clone(), 1));
    file.punch(0, 1000);
    assert_eq!((file.bytes(), file.storage().len()), (vec![0; 1000], 1));
    file.punch(0, 4096);
    assert_eq!((file.bytes(), file.storage().len(), file.allocated()), (vec![0; 1000], 0, 0));
    file.write(0, &expected);
    file.insert(0, 4096);
    assert_eq!(file.bytes(), [vec![0; 4096], expected.clone()].concat());
    file.collapse(0, 4096);
    assert_eq!((file.bytes(), file.allocated()), (expected, 4096));
}

#[test]
fn what_moves_by_its_own_size_is_taken_over_as_it_is() {
    let volume = volume(64 << 20);
    let mut file = File::new(&volume);
    file.write(0, &[1; 100]);
    for large in 1..4 {
        file.write(large * LARGE, &vec![large as u8; LARGE as usize]);
    }
    file.write(5 * LARGE - 100, &[5; 100]);
    let before = file.bytes();
    let leaves = |file: &File<'_>| {
        let storage = file.storage();
        storage.into_iter().filter(|extent| extent.bytes() == LARGE).collect::<Vec<_>>()
    };
    let kept = leaves(&file);
    assert_eq!(kept.len(), 3);
    file.insert(2 * LARGE, 600 * LARGE);
    assert_eq!((leaves(&file), file.size), (kept.clone(), 605 * LARGE));
    assert_eq!(file.seek(2 * LARGE, false), Some(602 * LARGE));
    file.collapse(2 * LARGE, 600 * LARGE);
    assert!(leaves(&file) == kept && file.bytes() == before);
    // By a page everything behind comes apart, but what is before stays.
    file.insert(2 * LARGE, PAGE_SIZE);
    assert_eq!(leaves(&file), kept[..1]);
    file.collapse(2 * LARGE, PAGE_SIZE);
    assert!(file.bytes() == before);
    file.collapse(0, 3 * LARGE);
    assert!(file.bytes() == before[3 * LARGE as usize..]);
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_tried() {
    let volume = volume(4 << 20);
    let before = free(&volume);
    let mut transaction = Transaction::begin(&volume);
    let selector = Selector::first(Kind::File, false);
    for (sizes, range) in
        [((0, 1 << 62), (0, 1 << 62)), ((100, 100), (0, 1 << 62)), ((0, 5 << 20), (1, 5 << 20))]
    {
        let refused = allocate(&mut transaction, selector, Pointer::NULL, sizes, range, false);
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        assert_eq!(free(&volume), before);
    }
}
