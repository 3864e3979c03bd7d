//! Tests of volumes as a whole: allocation, close and open, rebuilt free space, untrusted bytes, threads.

mod device;
mod directory;
mod growth;
mod host_failures;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use eyrie_faults::{
    CrashImage, CrashPoints, Failing, FailureKind, FaultPlan, ImageBase, Recorder, Site, SplitMix64,
    crash_medium, traced,
};
use eyrie_medium::{Addr, Medium, Ordered, Settled, epoch};

use super::*;
use crate::extent::{Class, Extent};
use crate::space::compare::{MismatchKind, SpaceMismatch};
use crate::tables::layout::{CHUNK_BYTES, CLEAN_MARK, HEADER_BYTES, VOLUME_PAGE};
use crate::{Error, ObjectId, Result, Time};

const GROUP: u64 = 1 << 18;

fn options() -> Options {
    Options {
        group_bytes: GROUP,
        hash_seed: 7,
        volume_id: [9; 16],
        created: Time::new(5, 6),
        medium: MediumChoice::Auto,
        overwrite: false,
        checksums: false,
        paged: eyrie_medium::PagedOptions::for_host(),
    }
}

fn memory(bytes: u64) -> Volume {
    Volume::create_on(Medium::memory(bytes).expect("memory"), &options()).expect("a volume")
}

fn settled(medium: &Medium) -> Settled {
    let published = medium.publish_apart(redo_slot(15), 1, Ordered::nothing()).expect("in bounds");
    medium.settle(published)
}

/// The storage that a test has allocated and not freed. `bytes` maps the address of each extent and header to
/// its length.
#[derive(Default)]
struct Held {
    bytes: BTreeMap<u64, u64>,
    extents: Vec<Extent>,
    headers: Vec<Addr>,
}

impl Held {
    fn claim(&mut self, addr: Addr, bytes: u64) {
        let before = self.bytes.range(..=addr.raw()).next_back();
        assert!(before.is_none_or(|(start, len)| start + len <= addr.raw()), "{addr} given out twice");
        let after = self.bytes.range(addr.raw()..).next();
        assert!(after.is_none_or(|(&start, _)| addr.raw() + bytes <= start), "{addr} given out twice");
        self.bytes.insert(addr.raw(), bytes);
    }

    fn hold(&mut self, extent: Extent) {
        self.claim(extent.addr, extent.bytes());
        self.extents.push(extent);
    }

    fn total(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// Allocates a header or an extent of a random size. Returns false if the volume has no room.
    fn allocate(&mut self, volume: &Volume, random: &mut SplitMix64) -> bool {
        if random.below(4) == 0 {
            let Ok(addr) = volume.space().allocate_header() else { return false };
            assert!(volume.is_header(addr));
            self.claim(addr, HEADER_BYTES);
            self.headers.push(addr);
            return true;
        }
        let most = 1 << (6 + random.below(13));
        match volume.space().allocate(1 + random.below(most)) {
            Ok(extent) => {
                assert!(volume.contains(extent), "{extent:?}");
                self.hold(extent);
                true
            }
            Err(Error::NoSpace) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Frees a random header or extent, by a release or a retirement.
    fn free(&mut self, volume: &Volume, random: &mut SplitMix64) {
        let settled = settled(volume.medium());
        let which = random.below(self.bytes.len() as u64) as usize;
        if which < self.headers.len() {
            let addr = self.headers.swap_remove(which);
            self.bytes.remove(&addr.raw());
            match random.below(2) {
                0 => volume.space().release_header(addr),
                _ => volume.space().retire_all(&[], &[addr], &settled),
            }
        } else {
            let extent = self.extents.swap_remove(which - self.headers.len());
            self.bytes.remove(&extent.addr.raw());
            match random.below(3) {
                0 => volume.space().release(extent),
                1 if extent.bytes() > 4096 => {
                    for page in 0..extent.bytes() / 4096 {
                        let piece = Extent { addr: extent.addr.add(page * 4096), class: Class::PAGE };
                        volume.space().retire(piece, &settled);
                    }
                }
                _ => volume.space().retire(extent, &settled),
            }
        }
    }

    fn marks(&self, volume: &Volume) -> Marks {
        let marks = volume.marks();
        self.extents.iter().for_each(|&extent| assert_eq!(marks.mark_extent(extent), Ok(())));
        self.headers.iter().for_each(|&addr| assert_eq!(marks.mark_header(addr), Ok(true)));
        marks
    }

    fn free_all(&mut self, volume: &Volume) {
        let mut random = SplitMix64(77);
        while !self.bytes.is_empty() {
            self.free(volume, &mut random);
        }
    }
}

fn storm(volume: &Volume, held: &mut Held, random: &mut SplitMix64, steps: u32) {
    let empty = volume.space().usage().free + held.total();
    for step in 0..steps {
        // For 2000 steps most steps allocate storage, and for the next 2000 steps most steps free storage.
        let fill = step / 2000 % 2 == 0;
        if held.bytes.is_empty() || random.below(10) < if fill { 7 } else { 3 } {
            held.allocate(volume, random);
        } else {
            held.free(volume, random);
        }
        if step % 64 == 0 {
            assert_eq!(volume.space().usage().free, empty - held.total(), "step {step}");
            assert_eq!(volume.space().usage().objects, held.headers.len() as u64);
        }
    }
}

#[test]
fn random_allocations_never_overlap_or_leak() {
    let volume = memory(4 << 20);
    let mut held = Held::default();
    let mut random = SplitMix64(42);
    storm(&volume, &mut held, &mut random, 40_000);
    assert_eq!(volume.space().compare(&held.marks(&volume)), []);
    held.free_all(&volume);
    assert_eq!(volume.space().compare(&volume.marks()), []);
    assert_eq!(volume.space().refused_frees(), 0);
    let usage = volume.space().usage();
    assert_eq!((usage.free, usage.objects), (usage.total, 0));
}

#[test]
fn every_page_can_be_used_and_used_again() {
    // The volume has four whole groups, and a last group of five pages.
    let volume = memory((1 << 20) + 20480);
    let pages = volume.space().usage().total / 4096;
    for round in 0..3 {
        let mut taken = Vec::new();
        while let Ok(extent) = volume.space().allocate(4096) {
            taken.push(extent);
        }
        assert_eq!(taken.len() as u64, pages, "round {round}");
        assert_eq!(volume.space().usage().free, 0);
        assert!(matches!(volume.space().allocate(64), Err(Error::NoSpace)));
        assert!(matches!(volume.space().allocate_header(), Err(Error::NoSpace)));
        let settled = settled(volume.medium());
        volume.space().retire(taken[5], &settled);
        volume.space().reclaim();
        assert_eq!(volume.space().allocate(4000).expect("the one retired").addr, taken[5].addr);
        taken.iter().for_each(|&extent| volume.space().retire(extent, &settled));
        volume.space().reclaim();
        let largest = volume.space().allocate(GROUP).expect("whole again");
        volume.space().release(largest);
    }
    assert!(matches!(volume.space().allocate(GROUP + 1), Err(Error::NoSpace)));
    assert!(matches!(volume.space().allocate(Class::MAX_BYTES + 1), Err(Error::TooLarge)));
}

#[test]
fn memory_in_other_threads_magazines_is_found() {
    let volume = memory(1 << 20);
    let pages = volume.space().usage().total / 4096;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let extent = volume.space().allocate(4096).expect("empty");
            volume.space().release(extent);
            // This thread stays alive with a free page in its magazine while another thread allocates all
            // pages.
            std::thread::scope(|inner| {
                inner.spawn(|| {
                    let count = std::iter::from_fn(|| volume.space().allocate(4096).ok()).count();
                    assert_eq!(count as u64, pages);
                });
            });
        });
    });
}

#[test]
fn odd_sizes_give_their_tails_back() {
    let volume = memory(4 << 20);
    let before = volume.space().usage().free;
    let extent = volume.space().allocate(20 << 10).expect("empty");
    assert_eq!(extent.bytes(), 20 << 10);
    let tail = volume.space().allocate(8 << 10).expect("empty");
    assert!(tail.addr.raw() >= extent.addr.raw() + extent.bytes());
    assert_eq!(volume.space().usage().free, before - (28 << 10));
}

fn reopened(volume: &Volume) -> (Volume, Opened) {
    let bytes = volume.medium().snapshot();
    open(&bytes).expect("a volume")
}

/// Saves `volume` and returns its bytes.
fn closed(volume: Volume) -> Vec<u8> {
    save::save(&volume.space, volume.volume_id()).expect("room");
    volume.medium().snapshot()
}

fn open(bytes: &[u8]) -> Result<(Volume, Opened)> {
    let base = ImageBase::new(bytes).expect("memory");
    Volume::open_on(crash_medium(&base, CrashImage::new(Default::default(), vec![])).expect("memory"))
}

#[test]
fn closed_rebuilt_and_live_free_maps_agree() {
    let volume = memory(4 << 20);
    let mut held = Held::default();
    let mut random = SplitMix64(4711);
    storm(&volume, &mut held, &mut random, 5_000);

    let (mut crashed, opened) = reopened(&volume);
    assert_eq!(opened, Opened::Crashed);
    assert!(matches!(crashed.space().allocate(1), Err(Error::NoSpace)), "nothing is known to be free");
    let marks = held.marks(&crashed);
    crashed.adopt(&marks);
    let rebuilt = crashed.space.free_map();
    assert_eq!(rebuilt, volume.space.free_map());

    let bytes = closed(volume);
    let (clean, opened) = open(&bytes).expect("a volume");
    assert_eq!(opened, Opened::Clean);
    assert_eq!(clean.space.free_map(), rebuilt);
    assert_eq!(reopened(&clean).1, Opened::Crashed, "the mark is gone as soon as the volume is open");
    for mut volume in [clean, crashed] {
        let mut held =
            Held { bytes: held.bytes.clone(), extents: held.extents.clone(), headers: held.headers.clone() };
        storm(&volume, &mut held, &mut random, 5_000);
        held.free_all(&volume);
        assert_eq!(volume.space().compare(&volume.marks()), []);
        volume.adopt(&volume.marks());
        assert_eq!(volume.space().usage().objects, 0);
    }
}

#[test]
fn generations_and_the_root_outlive_a_crash() {
    let mut volume = memory(1 << 20);
    assert_eq!(volume.root(), None);
    let header = volume.space().allocate_header().expect("empty");
    let root = ObjectId::new(header.raw(), crate::Kind::Directory);
    volume.set_root(root).expect("in bounds");
    let last = (0..1000).map(|_| volume.next_generation().expect("in bounds")).max();
    let (again, _) = reopened(&volume);
    assert_eq!(again.root(), Some(root));
    assert!(Some(again.next_generation().expect("in bounds")) > last);
    assert_eq!((again.hash_seed(), again.volume_id(), again.created()), (7, [9; 16], Time::new(5, 6)));
}

#[test]
fn marks_find_storage_with_two_owners() {
    let volume = memory(1 << 20);
    let header = volume.space().allocate_header().expect("empty");
    let big = volume.space().allocate(16 << 10).expect("empty");
    let small = volume.space().allocate(192).expect("empty");
    let marks = volume.marks();
    assert_eq!(marks.mark_extent(big), Ok(()));
    let page = Extent { addr: big.addr.add(4096), class: Class::PAGE };
    assert_eq!(marks.mark_extent(page), Err(Overlap::TwoOwners));
    assert_eq!(marks.mark_extent(Extent { class: small.class, ..page }), Err(Overlap::TwoOwners));
    assert_eq!(marks.mark_extent(small), Ok(()));
    assert_eq!(marks.mark_extent(small), Err(Overlap::TwoOwners));
    let other = Class::fitting(64).expect("small");
    let page = small.addr.align_down(4096);
    assert_eq!(marks.mark_extent(Extent { addr: page.add(4032), class: other }), Err(Overlap::TwoOwners));
    assert_eq!(marks.mark_extent(Extent { addr: page, class: Class::PAGE }), Err(Overlap::TwoOwners));
    let chunk = header.align_down(CHUNK_BYTES);
    assert_eq!(
        marks.mark_extent(Extent { addr: chunk.add(8192), class: Class::PAGE }),
        Err(Overlap::HeaderChunk)
    );
    assert_eq!(marks.mark_extent(Extent { addr: VOLUME_PAGE, class: Class::PAGE }), Err(Overlap::OutOfRange));
    assert_eq!(marks.mark_header(header), Ok(true));
    assert_eq!(marks.mark_header(header), Ok(false));
    assert_eq!(marks.mark_header(header.add(8)), Err(Overlap::NoHeader));
    assert_eq!(marks.mark_header(big.addr), Err(Overlap::NoHeader));
    assert_eq!(marks.mark_header(Addr::from_raw(u64::MAX)), Err(Overlap::NoHeader));
    assert_eq!(marks.unmarked_headers().count(), 255);
    assert_eq!(volume.space().compare(&marks), []);

    let lost = volume.space().allocate(8192).expect("empty");
    volume.space().release(big);
    let findings = volume.space().compare(&marks);
    assert_eq!(
        findings,
        [
            SpaceMismatch { addr: big.addr, bytes: big.bytes(), kind: MismatchKind::FreeInUse },
            SpaceMismatch { addr: lost.addr, bytes: lost.bytes(), kind: MismatchKind::Leaked }
        ]
    );
}

#[test]
fn freeing_twice_or_outside_does_no_harm() {
    let volume = memory(1 << 20);
    let extents: Vec<Extent> =
        [64, 2048, 8192].map(|bytes| volume.space().allocate(bytes).expect("empty")).into();
    let settled = settled(volume.medium());
    for bad in [Addr::NULL, Addr::from_raw(u64::MAX), Addr::from_raw((1 << 20) - 4096), VOLUME_PAGE] {
        volume.space().retire(Extent { addr: bad, class: extents[2].class }, &settled);
        volume.space().retire_all(&[], &[bad], &settled);
        volume.space().release_header(bad.add(16));
    }
    for extent in extents.iter().chain(&extents) {
        volume.space().central().free(volume.space().context(), *extent);
    }
    assert_eq!(volume.space().refused_frees(), 3);
}

#[test]
fn hostile_saved_allocator_does_no_harm() {
    let volume = memory(1 << 20);
    let mut held = Held::default();
    let mut random = SplitMix64(99);
    storm(&volume, &mut held, &mut random, 1_000);
    let bytes = closed(volume);
    assert_eq!(open(&bytes).expect("a volume").1, Opened::Clean);
    let line = CLEAN_MARK.offset() as usize;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let (start, len) = (word(line + 8), word(line + 16));
    for attempt in 0..4_000 {
        let mut bad = bytes.clone();
        // Flips one bit of the saved allocator: in every third attempt a bit of its head, which has 128
        // bytes.
        let at = random.below(if attempt % 3 == 0 { 128 } else { len as u64 }) as usize;
        bad[start + at] ^= 1 << random.below(8);
        if attempt % 5 == 0 {
            // Damages the address or the length of the saved allocator, in the line of the mark.
            bad[line + 8 + random.below(16) as usize] ^= 1 << random.below(8);
        } else if attempt % 5 != 1 {
            // In three of five attempts, makes the checksum match the damaged bytes.
            let sum = crc32c::crc32c(&bad[start..start + len]);
            bad[line + 24..line + 28].copy_from_slice(&sum.to_le_bytes());
        }
        let Ok((volume, opened)) = open(&bad) else { panic!("a damaged saved allocator is no error") };
        if opened == Opened::Clean {
            // The checksum matches the damaged bytes, so only a check of the volume could find the damage.
            // The use of the volume must still be safe.
            let mut held = Held::default();
            for _ in 0..50 {
                held.allocate(&volume, &mut random);
            }
            assert!(volume.close().is_ok());
        }
    }
}

#[test]
fn extent_with_a_free_step_is_not_freed() {
    let options = Options { group_bytes: 4 * GROUP, ..options() };
    let medium = Medium::memory(16 * GROUP).expect("memory");
    let volume = Volume::create_on(medium, &options).expect("a volume");
    let extent = volume.space().allocate(4 * GROUP).expect("empty");
    let mut bad = closed(volume);
    let line = CLEAN_MARK.offset() as usize;
    let word = |at: usize| u64::from_le_bytes(bad[at..at + 8].try_into().expect("8 bytes")) as usize;
    let (start, len) = (word(line + 8), word(line + 16));
    // The pages of a step of 256 KiB are the bits of one word. The second step of the extent becomes free.
    let step = (extent.addr.offset() / GROUP) as usize + 1;
    let at = start + size_of::<layout::SavedHeader>() + step * 8;
    assert_eq!(bad[at..at + 8], [0; 8], "in use");
    bad[at..at + 8].fill(0xff);
    let sum = crc32c::crc32c(&bad[start..start + len]);
    bad[line + 24..line + 28].copy_from_slice(&sum.to_le_bytes());
    let (volume, opened) = open(&bad).expect("a damaged saved allocator is no error");
    assert_eq!(opened, Opened::Clean);
    let free = volume.space.free_map();
    volume.space().central().free(volume.space().context(), extent);
    assert_eq!((volume.space().refused_frees(), volume.space.free_map()), (1, free));
}

#[test]
fn hostile_table_is_refused() {
    let volume = memory(1 << 20);
    volume.space().allocate_header().expect("empty");
    let bytes = volume.medium().snapshot();
    let with = |at: u64, value: u64| {
        let mut bad = bytes.clone();
        bad[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        open(&bad).map(|_| ()).err()
    };
    // The volume has 4 groups, and 16 chunks of 64 KiB. Chunk 0 has only tables.
    assert!(matches!(with(layout::GROUPS_IN_USE.offset(), 5), Some(Error::Corrupt { .. })));
    assert!(matches!(with(layout::CHUNK_MAP.offset(), 1), Some(Error::Corrupt { .. })));
    assert!(matches!(with(layout::CHUNK_MAP.offset(), 1 << 16), Some(Error::Corrupt { .. })));
    assert!(matches!(with(layout::CHUNK_MAP.offset(), 1 << 60), Some(Error::Corrupt { .. })));
    assert!(with(layout::GENERATION_LIMIT.offset(), u64::MAX).is_none());
}

#[test]
fn crash_during_close_or_open_leaves_a_volume() {
    const BYTES: u64 = 256 << 10;
    let options = Options { group_bytes: 1 << 16, ..options() };
    let recorder = Recorder::default();
    let medium = traced(BYTES, recorder.clone()).expect("memory");
    let mut volume = Volume::create_on(medium, &options).expect("a volume");
    let image = volume.medium().snapshot();
    let mut events = Vec::new();
    drop(recorder.take());
    for round in 0..2 {
        let header = volume.space().allocate_header().expect("empty");
        volume.set_root(ObjectId::new(header.raw(), crate::Kind::Directory)).expect("in bounds");
        volume.next_generation().expect("in bounds");
        let extent = volume.space().allocate(3 * 4096).expect("empty");
        save::save(&volume.space, volume.volume_id()).expect("room");
        events.extend(recorder.take());
        save::clear_mark(volume.medium()).expect("in bounds");
        if round == 0 {
            volume.space().release(extent);
        }
    }
    let mut seen = [0; 2];
    let mut points = CrashPoints::new(&image, &events).expect("memory");
    while let Some(point) = points.next() {
        let mut script = Some(Vec::new());
        while let Some(taken) = script {
            let image = CrashImage::new(point.pending.clone(), taken);
            let medium = crash_medium(points.base(), image.clone()).expect("memory");
            let (mut opened, how) = Volume::open_on(medium).expect("a volume");
            script = CrashImage::next_script(&image.choices());
            seen[usize::from(how == Opened::Clean)] += 1;
            if how == Opened::Crashed {
                opened.adopt(&opened.marks());
            }
            assert!(opened.space().allocate(64).is_ok());
            if seen[0] + seen[1] > 4_000 {
                break;
            }
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// The new number of owners is the first store of an open, so it may be durable although nothing else is.
#[test]
fn crash_after_the_count_of_an_owner_changes_nothing_else() {
    let volume = memory(1 << 20);
    storm(&volume, &mut Held::default(), &mut SplitMix64(7), 500);
    let free = volume.space.free_map();
    let crashed = volume.medium().snapshot();
    for (mut bytes, how) in [(crashed, Opened::Crashed), (closed(volume), Opened::Clean)] {
        let at = layout::OWNERS.offset() as usize;
        let owners = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        bytes[at..at + 8].copy_from_slice(&(owners + 1).to_le_bytes());
        let (opened, found) = open(&bytes).expect("a volume");
        assert_eq!((found, opened.owner_number().expect("in bounds")), (how, owners + 2));
        if how == Opened::Clean {
            assert_eq!(opened.space.free_map(), free);
        }
    }
}

#[test]
fn threads_never_see_memory_reused_under_a_pin() {
    const THREADS: u64 = 8;
    let volume = memory(8 << 20);
    let before = volume.space().usage().free;
    // Each slot is 0, or has the class and the address of an extent. The low six bits of the slot are the
    // expected first word of that extent.
    let slots: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, slots) = (&volume, &slots);
            scope.spawn(move || {
                let mut random = SplitMix64(thread + 1);
                for _ in 0..20_000 {
                    let guard = epoch::pin();
                    let slot = &slots[random.below(64) as usize];
                    if random.below(2) == 0 {
                        let Ok(extent) = volume.space().allocate(4096 >> (6 * random.below(2))) else {
                            drop(guard);
                            volume.space().reclaim();
                            continue;
                        };
                        let tag = random.below(64);
                        drop(volume.medium().write_word(extent.addr, tag).expect("in bounds"));
                        let class = u64::from(extent.class.raw());
                        let old = slot.swap(class << 56 | extent.addr.raw() | tag, SeqCst);
                        if let Some(old) = crate::object::pointer::Pointer::from_raw(old).extent() {
                            volume.space().retire(old, &settled(volume.medium()));
                        }
                    } else {
                        let seen = slot.load(SeqCst);
                        let place = Addr::from_raw(seen & Addr::MASK & !63);
                        for _ in 0..10 {
                            if seen != 0 {
                                let word = volume.medium().load(place).expect("in bounds");
                                assert_eq!(word, seen & 63, "reused under a pin");
                            }
                        }
                    }
                    drop(guard);
                }
            });
        }
    });
    let settled = settled(volume.medium());
    for slot in slots {
        if let Some(extent) = crate::object::pointer::Pointer::from_raw(slot.into_inner()).extent() {
            volume.space().retire(extent, &settled);
        }
    }
    assert_eq!(volume.space().usage().free, before);
    assert_eq!(volume.space().compare(&volume.marks()), []);
}

#[test]
fn discarded_group_is_reused_and_freed_once() {
    let volume = memory(4 << 20);
    let space = volume.space();
    let kept = space.allocate(4096).expect("empty");
    let extents: Vec<_> = std::iter::from_fn(|| space.allocate(GROUP).ok()).collect();
    assert!(extents.len() >= 14);
    extents.iter().for_each(|&extent| space.release(extent));
    let before = space.usage();
    for all in [false, true, false] {
        space.trim(all).expect("sound");
        assert_eq!(space.usage(), before);
    }
    space.release(extents[0]);
    assert_ne!(space.refused_frees(), 0, "it is free already");
    let again: Vec<_> = std::iter::from_fn(|| space.allocate(GROUP).ok()).collect();
    assert_eq!(again.len(), extents.len());
    let marks = volume.marks();
    again.iter().chain([&kept]).for_each(|&extent| assert_eq!(marks.mark_extent(extent), Ok(())));
    assert_eq!(space.compare(&marks), []);
}

/// If the medium refuses an allocation, the thread frees the page again. The free locks the magazine of the
/// thread, so the thread must not hold this lock then.
#[test]
fn regression_refused_allocation_does_not_deadlock() {
    let plan = FaultPlan::default();
    let medium = traced(1 << 20, Recorder::of(plan.clone())).expect("memory");
    let volume = Volume::create_on(medium, &options()).expect("created");
    let allocate = || volume.space().allocate(4096);
    plan.count_calls();
    let first = allocate().expect("empty");
    let is_here = |site: &Site| site.file.ends_with("tests.rs");
    let site = plan.calls().into_keys().find(is_here).expect("the call above");
    plan.fail(Some(Failing { site, kind: FailureKind::Full, first: 1, is_persistent: false }));
    assert!(matches!(allocate(), Err(Error::NoSpace)));
    assert_ne!(allocate().expect("room"), first);
}
