//! Files without an engine. The tests examine their storage, and the effect of changes on it.

use eyrie_faults::{Failing, FailureKind, FaultPlan, Site};
use eyrie_medium::{Addr, Medium, PAGE_SIZE, SiteKind};

use super::tree::TreeNode;
use super::*;
use crate::extent::{Class, Extent};
use crate::object::header::Selector;
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::volume::{MediumChoice, Options, Volume};
use crate::{Error, Kind, Result, Time};

const LARGE: u64 = 2 << 20;

/// The fields that the header of a file would have.
struct LooseFile<'v> {
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

impl<'v> LooseFile<'v> {
    fn new(volume: &'v Volume) -> LooseFile<'v> {
        LooseFile { volume, sealed: false, root: Pointer::NULL, size: 0 }
    }

    fn tree(&self) -> FileTree {
        FileTree { root: self.root, size: self.size, at: Addr::NULL }
    }

    /// Prepares and commits a change, and keeps the new root and size, as an Op does in the header.
    fn change(
        &mut self,
        size: u64,
        prepare: impl FnOnce(&mut Transaction<'_>, FileTree, Selector) -> Result<Pointer>,
    ) {
        let mut transaction = Transaction::begin(self.volume);
        let selector = Selector::first(Kind::File, self.sealed);
        self.root = prepare(&mut transaction, self.tree(), selector).expect("room");
        self.size = size;
        transaction.commit().expect("sound");
    }

    fn allocate(&mut self, offset: u64, end: u64, zeros: bool) {
        let to = self.size.max(end);
        self.change(to, |transaction, file, selector| {
            allocate(
                transaction,
                selector,
                file,
                to,
                (offset, end),
                if zeros { AllocatedAs::Zeros } else { AllocatedAs::Storage },
            )
        });
    }

    /// Allocates a range and keeps the size.
    fn keep(&mut self, offset: u64, end: u64) {
        let size = self.size;
        self.change(size, |transaction, file, selector| {
            allocate(transaction, selector, file, size, (offset, end), AllocatedAs::Storage)
        });
    }

    fn set_size(&mut self, to: u64) {
        self.change(to, |transaction, file, _| set_size(transaction, file, to));
    }

    fn punch(&mut self, offset: u64, end: u64) {
        let size = self.size;
        self.change(size, |transaction, file, _| punch(transaction, file, offset, end));
    }

    fn insert(&mut self, offset: u64, length: u64) {
        let size = self.size;
        self.change(size + length, |transaction, file, _| insert(transaction, file, offset, length));
    }

    fn collapse(&mut self, offset: u64, length: u64) {
        let size = self.size;
        self.change(size - length, |transaction, file, _| collapse(transaction, file, offset, length));
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = self.size.max(offset + data.len() as u64);
        self.change(end, |transaction, file, selector| {
            Ok(match write(transaction, selector, file, offset, data)? {
                FileChange::Root(root, _) => root,
                FileChange::BelowRoot => file.root,
            })
        });
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0xee; self.size as usize];
        let count = read(self.volume.medium(), self.tree(), 0, &mut bytes).expect("sound");
        assert_eq!(count, bytes.len());
        bytes
    }

    /// Returns all extents, including nodes.
    fn storage(&self) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut visit = |extent, _| {
            extents.push(extent);
            Ok(())
        };
        visit_storage(self.volume.medium(), self.tree(), &mut visit).expect("sound");
        extents
    }

    /// Returns the bytes of storage, without nodes.
    fn allocated(&self) -> u64 {
        allocated(self.volume.medium(), self.tree(), true).expect("sound")
    }

    fn seek(&self, offset: u64, hole: bool) -> Option<u64> {
        seek(self.volume.medium(), self.tree(), offset, hole, false).expect("sound")
    }
}

fn free(volume: &Volume) -> u64 {
    volume.space().usage().free
}

#[test]
fn allocated_range_reads_zeros_and_is_written_in_place() {
    let volume = volume(16 << 20);
    let mut file = LooseFile::new(&volume);
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
    // A write to more than one word of a written page copies the page, so its extent changes.
    file.write(100, &[8; 200]);
    assert_ne!(file.storage(), storage);
}

#[test]
fn append_after_allocated_range_shows_zeros() {
    let volume = volume(16 << 20);
    let mut file = LooseFile::new(&volume);
    file.write(0, &[1; 100]);
    file.allocate(4000, 9000, false);
    file.write(9000, &[2; 10]);
    file.write(9100, &[3; 10]);
    let expected = [vec![1; 100], vec![0; 8900], vec![2; 10], vec![0; 90], vec![3; 10]].concat();
    assert_eq!(file.bytes(), expected);
}

#[test]
fn large_allocation_uses_large_extents() {
    let volume = volume(32 << 20);
    let mut file = LooseFile::new(&volume);
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
fn regression_single_pages_hold_large_writes_on_a_full_host() {
    let plan = FaultPlan::default();
    plan.count_calls();
    plan.on_this_thread(|| {
        let volume = volume(32 << 20);
        let pages: Vec<_> = (0..4096).map(|_| volume.space().allocate(PAGE_SIZE).expect("room")).collect();
        // No two free pages are neighbours.
        pages.iter().step_by(2).for_each(|page| volume.space().release(*page));
        let is_step =
            |site: &Site| site.kind == SiteKind::Provision && site.file.ends_with("space/central.rs");
        let site = plan.calls().into_keys().find(is_step).expect("the volume has grown");
        plan.fail(Some(Failing { site, kind: FailureKind::Full, first: 1, is_persistent: true }));
        let mut file = LooseFile::new(&volume);
        file.write(0, &vec![7; LARGE as usize]);
        file.write(0, &vec![8; LARGE as usize]);
        file.allocate(LARGE, 2 * LARGE, false);
        assert!(plan.failed() > 0);
        assert_eq!(file.allocated(), 2 * LARGE);
        assert!(file.bytes() == [vec![8; LARGE as usize], vec![0; LARGE as usize]].concat());
    });
}

#[test]
fn zeroed_storage_is_reused_unless_sealed() {
    let volume = volume(16 << 20);
    for sealed in [false, true] {
        let mut file = LooseFile { sealed, ..LooseFile::new(&volume) };
        file.write(0, &[5; 40_000]);
        file.punch(4096, 8192);
        let pages = |file: &LooseFile<'_>| {
            let storage = file.storage();
            // The first extent is the node, which is no page of the file.
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
fn small_file_without_hole_stays_one_extent() {
    let volume = volume(16 << 20);
    let mut file = LooseFile::new(&volume);
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
fn aligned_shift_reuses_subtrees() {
    let volume = volume(64 << 20);
    let mut file = LooseFile::new(&volume);
    file.write(0, &[1; 100]);
    for large in 1..4 {
        file.write(large * LARGE, &vec![large as u8; LARGE as usize]);
    }
    file.write(5 * LARGE - 100, &[5; 100]);
    let before = file.bytes();
    let leaves = |file: &LooseFile<'_>| {
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
    // A shift by one page divides every large extent after the inserted page. The large extent before that
    // page stays.
    file.insert(2 * LARGE, PAGE_SIZE);
    assert_eq!(leaves(&file), kept[..1]);
    file.collapse(2 * LARGE, PAGE_SIZE);
    assert!(file.bytes() == before);
    file.collapse(0, 3 * LARGE);
    assert!(file.bytes() == before[3 * LARGE as usize..]);
}

#[test]
fn oversized_allocation_fails_at_once() {
    let volume = volume(4 << 20);
    let before = free(&volume);
    let mut transaction = Transaction::begin(&volume);
    let selector = Selector::first(Kind::File, false);
    for ((size, to), range) in
        [((0, 1 << 62), (0, 1 << 62)), ((100, 100), (0, 1 << 62)), ((0, 5 << 20), (1, 5 << 20))]
    {
        let file = FileTree { root: Pointer::NULL, size, at: Addr::NULL };
        let refused = allocate(&mut transaction, selector, file, to, range, AllocatedAs::Storage);
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        assert_eq!(free(&volume), before);
    }
}

/// Appends pages to two files in turn, so that neighbours in a file are not neighbours in memory.
fn interleaved<'v>(volume: &'v Volume, pages: u64) -> [LooseFile<'v>; 2] {
    let mut files = [LooseFile::new(volume), LooseFile::new(volume)];
    for page in 0..pages {
        files.iter_mut().for_each(|file| file.write(page * PAGE_SIZE, &[page as u8; 4096]));
    }
    files
}

#[test]
fn pages_of_a_large_write_are_neighbours() {
    let volume = volume(32 << 20);
    let [mut file, _other] = interleaved(&volume, 600);
    let mut expected = file.bytes();
    // Neither end of the range is at a page boundary, and the range goes from one lowest node to the next.
    let (offset, data) = (300 * PAGE_SIZE - 100, vec![0xab; 250 * 4096 + 300]);
    file.write(offset, &data);
    expected[offset as usize..][..data.len()].copy_from_slice(&data);
    assert_eq!(file.bytes(), expected);
    let extents: Vec<_> = file.storage().into_iter().filter(|extent| extent.bytes() == PAGE_SIZE).collect();
    // The write allocates extents of 64 pages or fewer. Therefore a few pages do not follow, in memory, the
    // previous page of the file.
    let neighbours = extents.windows(2).filter(|pair| pair[0].addr.add(PAGE_SIZE) == pair[1].addr).count();
    assert!(neighbours >= 240, "{neighbours} pages follow their neighbours");
    let before = free(&volume);
    for round in 0..20 {
        file.write(offset, &vec![round; data.len()]);
        assert_eq!(free(&volume), before);
    }
    file.write(file.size, &data);
    assert_eq!(&file.bytes()[expected.len()..], data);
}

#[test]
fn large_write_uses_scattered_pages_before_the_volume_grows() {
    let volume = volume(32 << 20);
    let [mut file, mut other] = interleaved(&volume, 700);
    other.set_size(0);
    volume.space().reclaim();
    let groups = volume.space().central().groups();
    file.write(file.size, &vec![7; 600 * 4096]);
    assert_eq!(volume.space().central().groups(), groups);
    assert_eq!(file.bytes()[700 * 4096..], vec![7; 600 * 4096]);
}

/// No Op makes a root of height 7, but the three bits of the height can hold this number.
#[test]
fn regression_root_above_the_maximum_height_is_corrupt() {
    let volume = volume(4 << 20);
    let mut file = LooseFile::new(&volume);
    file.write(0, &[7; 8192]);
    let (medium, size) = (volume.medium(), file.size);
    for root in [file.root, Pointer::NULL] {
        let tree = FileTree { root: root.with_height(7), size, at: Addr::NULL };
        let results = [
            read(medium, tree, 0, &mut [0; 8192]).map(drop),
            seek(medium, tree, 0, false, false).map(drop),
            seek(medium, tree, 0, true, false).map(drop),
            contiguous(medium, tree, (0, size), |_| Ok(())).map(drop),
            allocated(medium, tree, false).map(drop),
            allocated(medium, tree, true).map(drop),
            has_storage(medium, tree).map(drop),
            visit_storage(medium, tree, &mut |_, _| Ok(())),
        ];
        for (reader, result) in results.iter().enumerate() {
            let is_corrupt =
                matches!(result, Err(Error::Corrupt { what: "file tree of an impossible height", .. }));
            assert!(is_corrupt, "reader {reader} of {root:?}: {result:?}");
        }
    }
}

#[test]
fn regression_salvage_tells_a_repeated_extent_from_too_many_bytes() {
    let volume = volume(16 << 20);
    let lost = |step: u64| {
        let mut node = TreeNode::empty();
        for slot in 0..16 {
            let addr = Addr::from_raw((4 << 20) + slot as u64 * step);
            let class = Class::fitting(LARGE).expect("a class");
            node.set(slot, Pointer::leaf(Extent { addr, class }));
        }
        let mut file = LooseFile::new(&volume);
        file.change(16 * LARGE, |transaction, _, _| Ok(node.write(transaction)?.with_height(2)));
        let mut reasons = Vec::new();
        let mut note = |part| {
            if let SalvagedPart::Lost(_, _, Error::Corrupt { what, .. }) = part {
                reasons.push(what);
            }
            Ok(())
        };
        salvage(volume.medium(), file.tree(), &mut note).expect("the visitor fails for no part");
        reasons
    };
    assert_eq!(lost(0), ["extent that occurs twice in a file"; 15]);
    // The first eight extents have as many bytes as the volume, although they overlap.
    assert_eq!(lost(PAGE_SIZE), ["more bytes of a file than the volume has room for"; 8]);
}

#[test]
fn storage_past_the_end_takes_appends_in_place() {
    let volume = volume(16 << 20);
    let mut file = LooseFile::new(&volume);
    file.keep(0, 6 * PAGE_SIZE);
    assert_eq!((file.size, file.allocated()), (0, 6 * PAGE_SIZE));
    assert!(has_storage(volume.medium(), file.tree()).expect("sound"));
    let (before, storage) = (free(&volume), file.storage());
    let mut expected = Vec::new();
    // Appends within a page, appends that end in the next page, and appends past a gap.
    for (gap, length) in [(0, 100), (0, 3000), (0, 3000), (0, 4096), (3000, 50), (4000, 9)] {
        let data = vec![expected.len() as u8 | 1; length];
        file.write(file.size + gap, &data);
        expected.resize(expected.len() + gap as usize, 0);
        expected.extend(data);
        assert_eq!(file.bytes(), expected);
        assert_eq!(file.allocated(), 6 * PAGE_SIZE);
    }
    let pages = |storage: &[Extent]| storage.iter().skip(1).copied().collect::<Vec<_>>();
    assert_eq!((free(&volume), pages(&file.storage())), (before, pages(&storage)));
    file.set_size(5 * PAGE_SIZE + 1);
    expected.resize(5 * 4096 + 1, 0);
    assert_eq!((file.bytes(), file.allocated()), (expected, 6 * PAGE_SIZE));
}

#[test]
fn truncation_frees_the_storage_past_the_end() {
    let volume = volume(32 << 20);
    let empty = free(&volume);
    for size in [0_u64, 100, 4096, 5000, 20_000, 3 << 20] {
        for to in [size, size / 2, size.saturating_sub(1)] {
            let mut file = LooseFile::new(&volume);
            file.write(0, &vec![3; size as usize]);
            let allocated = file.allocated();
            for range in [(size, size + 100_000), (4 << 20, 7 << 20), (1 << 40, (1 << 40) + 1)] {
                file.keep(range.0, range.1);
            }
            assert!(file.allocated() >= allocated + (3 << 20) + 100_000 - 4096);
            assert_eq!(file.bytes(), vec![3; size as usize]);
            file.set_size(to);
            assert_eq!(file.allocated(), to.next_multiple_of(PAGE_SIZE), "{size} to {to}");
            assert_eq!(file.bytes(), vec![3; to as usize]);
            file.write(size + 5000, b"x");
            assert!(file.bytes()[to as usize..].iter().all(|&byte| byte == 0 || byte == b'x'));
            file.set_size(0);
            volume.space().reclaim();
            assert_eq!((free(&volume), file.root), (empty, Pointer::NULL));
        }
    }
}

#[test]
fn storage_past_the_end_moves_and_goes_with_its_range() {
    let volume = volume(64 << 20);
    let mut file = LooseFile::new(&volume);
    file.write(0, &[1; 10_000]);
    file.keep(0, LARGE + 5 * PAGE_SIZE);
    file.insert(4096, 8192);
    file.keep(0, 4096);
    file.collapse(0, 4096);
    let expected = [vec![0; 8192], vec![1; 5904]].concat();
    assert_eq!(file.bytes(), expected);
    assert_eq!(file.allocated(), LARGE + 4 * PAGE_SIZE);
    file.punch(16_384, LARGE);
    assert_eq!((file.bytes(), file.allocated()), (expected.clone(), 8192 + 6 * PAGE_SIZE));
    // A write over the whole file and past its end keeps the storage that follows.
    file.write(0, &[4; 17_000]);
    assert_eq!((file.bytes(), file.allocated()), (vec![4; 17_000], 20_480 + 6 * PAGE_SIZE));
    file.allocate(16_384, 3 * LARGE, true);
    assert_eq!(file.allocated(), 3 * LARGE);
    assert_eq!(file.bytes()[..20_000], [vec![4; 16_384], vec![0; 3616]].concat());
    file.punch(0, 3 * LARGE);
    assert_eq!((file.allocated(), file.root), (0, Pointer::NULL));
    file.set_size(0);
    file.keep((1 << 63) - 5000, (1 << 63) - 1);
    assert_eq!(file.allocated(), 8192);
    file.write(0, &[5; 10]);
    let mut transaction = Transaction::begin(&volume);
    let refused = insert(&mut transaction, file.tree(), 0, 4096);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    drop(transaction);
    file.set_size(10);
    assert_eq!(file.allocated(), 4096);
}

/// A failed append leaves pointers in the slots past the end, and bytes past the end in the last page.
#[test]
fn leftovers_of_a_failed_append_stay_invisible() {
    let volume = volume(16 << 20);
    let mut file = LooseFile::new(&volume);
    file.write(0, &[1; 20_000]);
    file.write(9000, &[1; 100]);
    let fail = |file: &LooseFile<'_>| {
        let mut transaction = Transaction::begin(&volume);
        let selector = Selector::first(Kind::File, false);
        write(&mut transaction, selector, file.tree(), file.size, &[9; 40_000]).expect("room");
    };
    fail(&file);
    let allocated = file.allocated();
    file.keep(30_000, 31_000);
    assert_eq!(file.allocated(), allocated + PAGE_SIZE);
    fail(&file);
    assert_eq!(file.allocated(), allocated + PAGE_SIZE);
    let size = file.size;
    file.set_size(40_000);
    assert_eq!(file.bytes(), [vec![1; size as usize], vec![0; 40_000 - size as usize]].concat());
}

#[test]
fn written_storage_past_the_end_is_corrupt() {
    let volume = volume(16 << 20);
    let mut file = LooseFile::new(&volume);
    file.write(0, &[1; 5000]);
    file.keep(8192, 12_288);
    let visited = |file: &LooseFile<'_>| visit_storage(volume.medium(), file.tree(), &mut |_, _| Ok(()));
    assert!(visited(&file).is_ok());
    // The page past the end becomes a written one, as a lost bit would make it.
    let root = file.root.extent().expect("a tree").addr;
    let slot = root.add(2 * 8);
    let page = Pointer::from_raw(volume.medium().load(slot).expect("sound")).extent().expect("a page");
    file.change(5000, |transaction, file, _| {
        transaction.write_word(slot, Pointer::leaf(page).raw())?;
        Ok(file.root)
    });
    let is_corrupt = |result: &Result<()>| {
        matches!(result, Err(Error::Corrupt { what: "written storage past the end of a file", .. }))
    };
    assert!(is_corrupt(&visited(&file)));
    file.size = 12_288;
    assert!(visited(&file).is_ok());
    let leaf = Pointer::unwritten(page);
    for (root, size) in [(leaf, 10), (leaf.with_height(2), 10), (Pointer::node(page), 0)] {
        let file = LooseFile { root, size, ..LooseFile::new(&volume) };
        assert!(matches!(visited(&file), Err(Error::Corrupt { .. })), "{root:?}");
    }
}
