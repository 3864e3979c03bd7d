//! Tests of the page cache that read its internal state. `tests/paged` tests its behaviour from outside.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rustix::fs::MemfdFlags;

use super::blocks::{Blocks, FileBlocks};
use super::evict::MOVES;
use super::pace::{FEW, MIN_FRESH};
use super::page::{AHEAD, BUSY, RESIDENT};
use super::places::Places;
use super::read_ahead::Piece;
use super::{PagedOptions, Pager};
use crate::backing::Backing;
use crate::epoch::pin;
use crate::sync::unpoisoned;
use crate::{Addr, Fault, Medium, SegmentId};

const PAGES: u64 = 512;
const BYTES: u64 = PAGES * 4096;

/// Makes a file in memory that serves as a disk.
fn memory_file(bytes: u64) -> File {
    let file = rustix::fs::memfd_create(c"disk", MemfdFlags::CLOEXEC).map(File::from).expect("memory");
    file.set_len(bytes).expect("memory");
    file
}

/// A function that a disk calls before each write and flush. An error of the function becomes the error of
/// that write or flush.
type Hook = Box<dyn FnMut(&Medium) -> io::Result<()> + Send>;

/// A disk with a hook. The hook gets the medium that is on this disk.
struct Hooked {
    blocks: FileBlocks,
    medium: OnceLock<Weak<Medium>>,
    hook: Mutex<Option<Hook>>,
    /// The offset of a page that cannot be read.
    bad: AtomicU64,
}

impl Hooked {
    fn call_hook(&self) -> io::Result<()> {
        let Some(medium) = self.medium.get().and_then(Weak::upgrade) else { return Ok(()) };
        unpoisoned(self.hook.lock()).as_mut().map_or(Ok(()), |hook| hook(&medium))
    }
}

impl Blocks for Hooked {
    fn size(&self) -> io::Result<u64> {
        self.blocks.size()
    }

    fn sector(&self) -> u64 {
        self.blocks.sector()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if (offset..offset + out.len() as u64).contains(&self.bad.load(Ordering::Relaxed)) {
            return Err(rustix::io::Errno::IO.into());
        }
        self.blocks.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.call_hook()?;
        self.blocks.write(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.call_hook()?;
        self.blocks.flush()
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.blocks.allocate(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.blocks.discard(offset, len)
    }
}

/// Makes a medium that drains only on request. Its disk calls `hook` before each write and flush.
fn hooked(hook: impl FnMut(&Medium) -> io::Result<()> + Send + 'static) -> Arc<Medium> {
    let blocks = FileBlocks::new(memory_file(Medium::paged_bytes(BYTES, false)));
    Medium::format_paged(&blocks, BYTES, false).expect("room");
    let disk = Arc::new(Hooked {
        blocks,
        medium: OnceLock::new(),
        hook: Mutex::new(Some(Box::new(hook))),
        bad: AtomicU64::new(u64::MAX),
    });
    let medium = Arc::new(opened(&disk));
    disk.medium.set(Arc::downgrade(&medium)).expect("once");
    medium
}

/// Opens a disk. The medium drains only on request.
fn opened(disk: &Arc<Hooked>) -> Medium {
    let options = PagedOptions::new(16 * PAGES * 4096, Duration::from_secs(3600));
    Medium::paged(Arc::clone(disk) as Arc<dyn Blocks>, options).expect("sound")
}

fn pager(medium: &Medium) -> &Pager {
    match &medium.backing {
        Backing::Paged(keeper) => keeper.pager(),
        _ => unreachable!("it is paged"),
    }
}

fn addr(offset: u64) -> Addr {
    Addr::new(SegmentId(0), offset)
}

fn word(medium: &Medium, offset: u64) -> u64 {
    let _pin = pin();
    medium.load(addr(offset)).expect("in range")
}

fn set(medium: &Medium, offset: u64, value: u64) {
    let _gate = medium.enter().expect("no failure");
    set_inside(medium, offset, value);
}

fn set_inside(medium: &Medium, offset: u64, value: u64) {
    let _pin = pin();
    let _ = medium.barrier(medium.write_word(addr(offset), value).expect("in range"));
}

/// Allocates a range of whole pages, and fills the range with `byte`.
fn take(medium: &Medium, pages: Range<u64>, byte: u8) {
    let (at, len) = (addr(pages.start * 4096), (pages.end - pages.start) * 4096);
    let _gate = medium.enter().expect("open");
    medium.mark_allocated(at, len).expect("in range");
    let _ = medium.barrier(medium.write(at, &vec![byte; len as usize]).expect("in range"));
}

fn is_full_of(medium: &Medium, pages: Range<u64>, byte: u8) -> bool {
    let _pin = pin();
    let mut bytes = vec![0; ((pages.end - pages.start) * 4096) as usize];
    medium.read(addr(pages.start * 4096), &mut bytes).expect("in range");
    bytes.iter().all(|&found| found == byte)
}

/// Allocates pages one by one in a new volume of 16 huge pages, with memory for `limit` pages. Returns the
/// numbers of all pages that have memory afterwards.
fn pages_with_memory(limit: u64, pages: impl Iterator<Item = u64>) -> Vec<u64> {
    const BYTES: u64 = 16 << 21;
    let blocks = FileBlocks::new(memory_file(Medium::paged_bytes(BYTES, false)));
    Medium::format_paged(&blocks, BYTES, false).expect("room");
    let options = PagedOptions::new(limit * 4096, Duration::from_secs(3600));
    let medium = Medium::paged(Arc::new(blocks), options).expect("sound");
    pages.for_each(|page| take(&medium, page..page + 1, 1));
    let mut found = vec![0_u8; (BYTES / 4096) as usize];
    // SAFETY: the range is the whole mapping, and the vector has a byte for each of its pages.
    let asked =
        unsafe { libc::mincore(pager(&medium).memory.base().cast(), BYTES as usize, found.as_mut_ptr()) };
    assert_eq!(asked, 0);
    (0..).zip(found).filter(|(_, found)| found & 1 == 1).map(|(page, _)| page).collect()
}

#[test]
fn allocation_provides_huge_pages_while_memory_suffices() {
    let next = |range: Range<u64>| pages_with_memory(8192, range);
    assert_eq!(next(0..512), Vec::from_iter(0..512), "few pages in use: no memory is taken in advance");
    assert_eq!(next(0..513), Vec::from_iter(0..1024), "one page provides its huge page");
    assert_eq!(next(0..1025), Vec::from_iter(0..1536));
    assert_eq!(next(0..5000).len(), 5000, "no memory is taken in advance beyond half of the limit");
    assert_eq!(pages_with_memory(2000, 0..900), Vec::from_iter(0..900));
    // One page in each of twelve huge pages: their unused rest stays below the pages in use.
    let sparse = pages_with_memory(8192, (0..1100).chain((3..15).map(|huge| huge * 512)));
    assert!(sparse.len() < 2 * 1112 && sparse.len() > 1536, "{}", sparse.len());
}

/// The flags of this volume take 64 MiB.
#[test]
fn regression_discard_of_unused_pages_takes_no_memory_for_their_flags() {
    const BYTES: u64 = 16 << 30;
    let blocks = FileBlocks::new(memory_file(BYTES + (1 << 20) + 4096));
    Medium::fill_paged(&blocks, BYTES, false).expect("room");
    let options = PagedOptions::new(16 << 20, Duration::from_secs(3600));
    let medium = Medium::paged(Arc::new(blocks), options).expect("sound");
    let has_memory = |page: usize| {
        let place = std::ptr::from_ref(pager(&medium).pages.flags(page)).cast_mut();
        let (place, mut found) = (place.map_addr(|at| at - at % 4096), [0_u8; 1]);
        // SAFETY: the range is a page of the table, and the array has room for its flag.
        let asked = unsafe { libc::mincore(place.cast(), 4096, found.as_mut_ptr()) };
        asked == 0 && found[0] & 1 == 1
    };
    take(&medium, 2..3, 1);
    medium.checkpoint().expect("drained");
    medium.discard(addr(4096), BYTES - 4096).expect("in range");
    let last = (BYTES / 4096) as usize - 1;
    assert!(has_memory(0) && !has_memory(last / 2) && !has_memory(last));
}

/// An Op that holds its gate ends normally even if a drain fails meanwhile. The test does not make a drain
/// fail: it sets `failed`, as a failed drain does.
#[test]
fn op_inside_the_gate_ends_although_the_disk_fails() {
    let medium = hooked(|_| Ok(()));
    set(&medium, 0, 1);
    {
        let gate = medium.enter().expect("open");
        let _pin = pin();
        let _ = medium.barrier(medium.write_word(addr(8192), 1).expect("in range"));
        pager(&medium).failed.store(true, Ordering::Release);
        let _ = medium.barrier(medium.write_word(addr(40960), 1).expect("it is inside the gate"));
        drop(gate);
    }
    assert_eq!((word(&medium, 8192), word(&medium, 40960)), (1, 1));
    assert!(matches!(medium.enter(), Err(Fault::ReadOnly)));
}

/// In each round one of the first eight writes and flushes fails, and so do all later ones.
#[test]
fn failed_drain_leaves_no_page_locked() {
    for call in 1..=8 {
        let mut calls = 0;
        let medium = hooked(move |_| {
            calls += 1;
            if calls >= call { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
        });
        for page in [3, 5, 7] {
            take(&medium, page..page + 1, 1);
            set(&medium, (page + 100) * 4096, 1);
        }
        assert!(medium.checkpoint().is_err(), "call {call}");
        let pager = pager(&medium);
        let locked = |page: &usize| pager.pages.flags(*page).load(Ordering::Relaxed) & BUSY != 0;
        assert_eq!((0..PAGES as usize).find(locked), None, "call {call}");
        assert!(is_full_of(&medium, 3..4, 1) && word(&medium, 107 * 4096) == 1, "it can still be read");
    }
}

#[test]
fn panic_in_a_drain_makes_the_medium_read_only() {
    let medium = hooked(|_| panic!("planted"));
    set(&medium, 0, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| medium.drain())).is_err());
    assert!(matches!(medium.enter(), Err(Fault::ReadOnly)));
    assert!(matches!(medium.checkpoint(), Err(Fault::ReadOnly)));
    assert_eq!(word(&medium, 0), 1, "it can still be read");
}

/// Changes each line of a page in place.
fn fill(medium: &Medium, page: u64, byte: u8) -> Result<(), Fault> {
    let _pin = pin();
    let _ = medium.barrier(medium.write(addr(page * 4096), &[byte; 4096])?);
    Ok(())
}

#[test]
fn op_without_room_in_the_journal_fails_and_tells_its_need() {
    let medium = hooked(|_| Ok(()));
    let gate = medium.enter().expect("open");
    let failed = (0..64).find_map(|page| fill(&medium, page, 1).err());
    let Some(Fault::OpTooLarge { needed }) = failed else { panic!("{failed:?}") };
    drop(gate);
    let _gate = medium.enter_with(|| needed).expect("the journal has room");
    (0..4).for_each(|page| fill(&medium, page, 2).expect("room"));
}

/// Stores until an ordinary Op has no room left for the entry of another page.
fn spend_room(medium: &Medium) {
    (410..413).for_each(|page| fill(medium, page, 1).expect("room"));
    let _pin = pin();
    let store = |page: u64, line: u64| medium.write_word(addr(page * 4096 + line * 64), 1).map(drop);
    // The stores of the first loop fail when the rest of the room is too small for a line. Those of the
    // second loop fail when the rest is too small for an entry.
    (0..64).for_each(|line| drop(store(413, line)));
    (420..430).for_each(|page| drop(store(page, 0)));
}

/// An Op without room stores to a page that the drain in progress still needs. The page must not leave memory
/// before the drain has written its bytes.
#[test]
fn op_without_room_leaves_the_pages_of_a_drain() {
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let medium = hooked(move |medium| {
        // This is the first write of the drain: the drain has gathered 256 fresh pages, and has not taken
        // page 400 yet.
        if is_armed.swap(false, Ordering::Relaxed) {
            let gate = medium.enter().expect("open");
            spend_room(medium);
            {
                let _pin = pin();
                medium.write_word(addr(400 * 4096 + 64), 1).expect_err("no room is left");
            }
            drop(gate);
            pager(medium).shrink(0);
        }
        Ok(())
    });
    [2..142, 142..282].into_iter().for_each(|pages| take(&medium, pages, 1));
    set(&medium, 400 * 4096, 7);
    armed.store(true, Ordering::Relaxed);
    medium.drain().expect("drained");
    assert!(!armed.load(Ordering::Relaxed));
    medium.checkpoint().expect("drained");
    pager(&medium).shrink(0);
    assert_eq!((word(&medium, 400 * 4096), word(&medium, 400 * 4096 + 64)), (7, 0));
}

/// An Op waits while other Ops have reserved the journal. A large Op gets at most half of the journal.
#[test]
fn ops_in_progress_share_the_journal() {
    let medium = hooked(|_| Ok(()));
    let journal = medium.journal_bytes().expect("paged");
    let half = medium.most_room();
    assert!(2 * half <= journal && 3 * half > journal);
    let pages = half / (65 * 64 + 32);
    let write = |first: u64| {
        let _gate = medium.enter_with(|| u64::MAX).expect("open");
        (first..first + pages).try_for_each(|page| fill(&medium, page, 7))
    };
    std::thread::scope(|scope| {
        let threads = [0, 128, 256].map(|first| scope.spawn(move || (0..20).try_for_each(|_| write(first))));
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic").expect("each Op has its room"));
    });
    medium.drain().expect("the record fits");
}

/// Changes 300 pages in place, which is more than the journal holds, and lends pages for these changes. The
/// caller holds the gate.
fn change_more_than_the_journal_holds(medium: &Medium) {
    let cut = medium.lend(addr(400 * 4096), 112 * 4096).expect("in range");
    assert!(medium.durable_cut() < cut);
    medium.lend(addr(320 * 4096), 80 * 4096).expect("in range");
    // The bytes have no zeros, so the record has every word of the lines.
    (0..300).for_each(|page| fill(medium, page, 3 + page as u8 % 200).expect("room was lent"));
}

#[test]
fn changes_larger_than_the_journal_are_durable() {
    let medium = hooked(|_| Ok(()));
    assert!(300 * 4096 > medium.journal_bytes().expect("paged"));
    set(&medium, 310 * 4096, 5);
    medium.drain().expect("drained");
    let gate = medium.enter_with(|| u64::MAX).expect("open");
    change_more_than_the_journal_holds(&medium);
    drop(gate);
    let before = pager(&medium).stats().written_bytes;
    medium.drain().expect("the record overflows");
    // The drain writes the pages once into the record. The record overflows, so the drain then replays the
    // journal at once, which writes the pages to their places.
    let written = pager(&medium).stats().written_bytes - before;
    assert!(written >= 2 * 300 * 4096, "{written}");
    let places = |page: u64| {
        let mut bytes = [0; 4096];
        pager(&medium).blocks.read(page * 4096, &mut bytes).expect("in range");
        bytes
    };
    assert!((0..300).all(|page| places(page) == [3 + page as u8 % 200; 4096]), "each page is in its place");
    // The next cuts are ordinary ones.
    set(&medium, 311 * 4096, 6);
    medium.drain().expect("drained");
    assert_eq!((word(&medium, 310 * 4096), word(&medium, 311 * 4096)), (5, 6));
}

/// An Op in progress changes more than the journal holds, after a drain has decided that it is no checkpoint.
#[test]
fn large_op_beside_the_start_of_a_drain_is_durable() {
    let medium = hooked(|_| Ok(()));
    let gate = medium.enter_with(|| u64::MAX).expect("open");
    set_inside(&medium, 310 * 4096, 5);
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| medium.drain());
        while !pager(&medium).turnstile.is_closed() {
            std::thread::yield_now();
        }
        change_more_than_the_journal_holds(&medium);
        drop(gate);
        drain.join().expect("no panic").expect("the record overflows");
    });
    let blocks = Arc::clone(&pager(&medium).blocks);
    let reopened = Medium::paged(blocks, PagedOptions::for_host()).expect("sound");
    assert!((0..300).all(|page| is_full_of(&reopened, page..page + 1, 3 + page as u8 % 200)));
    assert_eq!(word(&reopened, 310 * 4096), 5);
}

/// Takes 16 pages in each of many Ops. Returns the largest number of fresh pages that an Op found.
fn take_many(medium: &Medium) -> Result<usize, Fault> {
    let mut most = 0;
    for first in (2..498).step_by(16) {
        let _gate = medium.enter_with(|| Medium::room_of_new(16 * 4096))?;
        most = most.max(pager(medium).pace.fresh());
        medium.mark_allocated(addr(first * 4096), 16 * 4096)?;
    }
    Ok(most)
}

/// Makes another thread call `sync`, and waits for it.
fn sync_elsewhere(medium: &Medium) {
    // This thread claims its slot in the table of pins first. Otherwise it could get the slot that the other
    // thread leaves, and `Pace` would take it for the thread that synchronised.
    drop(pin());
    std::thread::scope(|scope| scope.spawn(|| medium.sync().expect("drained")).join().expect("no panic"));
    // The test may have to wait for a processor, so the limit must not expire meanwhile.
    pager(medium).pace.set_lasting(true);
}

#[test]
fn ops_leave_few_fresh_pages_to_the_next_sync() {
    let medium = hooked(|_| Ok(()));
    let before = medium.durable_cut();
    assert!(take_many(&medium).expect("no failure") > 400, "no thread synchronises, so no Op waits");
    assert_eq!(medium.durable_cut(), before);
    sync_elsewhere(&medium);
    let synced = medium.durable_cut();
    // The limit grows by an eighth of the pages that become fresh, and includes the 16 pages of each Op. An
    // Op counts the fresh pages before it takes its own 16 pages.
    let limit = MIN_FRESH + PAGES as usize / 8 - 16;
    assert!(take_many(&medium).expect("no failure") <= limit);
    let drained = medium.durable_cut();
    assert!(drained > synced, "the Ops drained");
    medium.sync().expect("drained");
    assert!(take_many(&medium).expect("no failure") > 400, "a thread does not wait because of its own sync");
    assert_eq!(medium.durable_cut(), drained + 1);
}

#[test]
fn ops_do_not_wait_after_the_last_of_the_syncs() {
    let medium = hooked(|_| Ok(()));
    sync_elsewhere(&medium);
    pager(&medium).pace.set_lasting(false);
    let synced = medium.durable_cut();
    assert!(take_many(&medium).expect("no failure") > 400);
    assert_eq!(medium.durable_cut(), synced);
}

#[test]
fn small_ops_wait_at_twice_as_many_fresh_pages() {
    let medium = hooked(|_| Ok(()));
    sync_elsewhere(&medium);
    let is_ahead = |pages| pager(&medium).pace.is_ahead(pages);
    let large = FEW + 1;
    // With these pages and its own pages, a large Op would reach the limit, which is `MIN_FRESH`. With one
    // page more it would exceed the limit.
    take(&medium, 2..2 + (MIN_FRESH - large) as u64, 1);
    assert!(!is_ahead(large));
    take(&medium, 100..101, 1);
    assert!(is_ahead(large) && !is_ahead(FEW));
    // Then two more pages than twice the limit are fresh.
    take(&medium, 101..101 + (MIN_FRESH + large + 1) as u64, 1);
    assert!(is_ahead(FEW));
    medium.mark_freed(addr(100 * 4096), (MIN_FRESH + large + 2) as u64 * 4096);
    assert!(!is_ahead(large) && !is_ahead(FEW), "freed pages do not count");
}

/// The pages of an Op count before the Op makes them fresh. So a sync waits for one large Op and not for two.
#[test]
fn large_op_waits_unless_few_pages_are_fresh() {
    let medium = hooked(|_| Ok(()));
    sync_elsewhere(&medium);
    let is_ahead = |pages| pager(&medium).pace.is_ahead(pages);
    take(&medium, 2..2 + FEW as u64, 1);
    assert!(!is_ahead(MIN_FRESH) && !is_ahead(PAGES as usize), "every Op goes on after a drain");
    take(&medium, 100..101, 1);
    assert!(is_ahead(MIN_FRESH) && is_ahead(PAGES as usize) && !is_ahead(MIN_FRESH - FEW - 1));
    sync_elsewhere(&medium);
    assert!(!is_ahead(MIN_FRESH));
}

/// Other threads make pages fresh during each drain. A large Op waits for two cuts, and then goes on.
#[test]
fn large_op_waits_for_few_cuts() {
    let mut first = 2;
    let medium = hooked(move |medium| {
        first += FEW as u64 + 1;
        if first > PAGES / 2 {
            return Err(io::Error::other("the Op drains again and again"));
        }
        take(medium, first - FEW as u64 - 1..first, 1);
        Ok(())
    });
    sync_elsewhere(&medium);
    take(&medium, PAGES - 20..PAGES, 1);
    let before = medium.durable_cut();
    drop(medium.enter_with(|| Medium::room_of_new(MIN_FRESH as u64 * 4096)).expect("it goes on"));
    assert_eq!(medium.durable_cut() - before, 2);
}

/// If the drain of an Op that is ahead of its pace fails, the Op gets an error and does not wait for ever.
#[test]
fn failed_drain_ends_the_wait_for_fewer_fresh_pages() {
    let fails = Arc::new(AtomicBool::new(false));
    let hook_fails = Arc::clone(&fails);
    let medium =
        hooked(
            move |_| {
                if hook_fails.load(Ordering::Relaxed) { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
            },
        );
    sync_elsewhere(&medium);
    fails.store(true, Ordering::Relaxed);
    assert!(matches!(take_many(&medium), Err(Fault::ReadOnly)));
}

/// Evicts as many pages as possible before every write and flush of a drain. The cut has too many pages for a
/// small cut, so its fresh pages are written to their places. These pages must stay in memory until the flush
/// has made them durable, because the flush may fail.
#[test]
fn written_pages_stay_in_memory_until_the_flush() {
    let fresh = 2..40;
    let is_resident = |medium: &Medium, page: usize| {
        pager(medium).pages.flags(page).load(Ordering::Relaxed) & RESIDENT != 0
    };
    let medium = hooked(move |medium| {
        // Pins of other tests may delay the eviction, so the hook tries again.
        (0..20).for_each(|_| _ = pager(medium).shrink(0));
        assert_eq!(fresh.clone().find(|&page| !is_resident(medium, page)), None, "a page left too early");
        Ok(())
    });
    take(&medium, 2..40, 7);
    medium.drain().expect("drained");
    assert!((0..1000).any(|_| pager(&medium).shrink(0) && medium.resident_bytes() == Some(0)));
}

/// Evicts as many pages as possible before every write and flush of a drain. Pages whose bytes the disk lacks
/// must stay in memory.
#[test]
fn unwritten_pages_stay_in_memory() {
    let check = |medium: &Medium| {
        pager(medium).shrink(0);
        assert!(is_full_of(medium, 2..6, 7) && is_full_of(medium, 8..9, 7), "a fresh page was lost");
        assert!(word(medium, 100 * 4096) == 3, "a changed page was lost");
        Ok(())
    };
    let medium = hooked(check);
    take(&medium, 2..6, 7);
    take(&medium, 8..9, 7);
    set(&medium, 100 * 4096, 3);
    medium.drain().expect("drained");
    medium.checkpoint().expect("drained");
    // Pins of other tests may delay the eviction, so the test tries again.
    assert!((0..1000).any(|_| pager(&medium).shrink(0) && medium.resident_bytes() == Some(0)));
    check(&medium).expect("the check always returns Ok");
}

/// Of a piece that is read ahead, only these pages stay absent: a damaged page, an unreadable page, and a
/// page that was never allocated.
#[test]
fn bad_page_of_a_piece_keeps_no_other_page_absent() {
    let blocks = FileBlocks::new(memory_file(Medium::paged_bytes(BYTES, true)));
    Medium::format_paged(&blocks, BYTES, true).expect("room");
    let (medium, hook, bad) = (OnceLock::new(), Mutex::default(), AtomicU64::new(u64::MAX));
    let disk = Arc::new(Hooked { blocks, medium, hook, bad });
    let medium = opened(&disk);
    take(&medium, 2..300, 1);
    take(&medium, 301..PAGES, 1);
    medium.checkpoint().expect("drained");
    let places = Places::new(BYTES, true);
    let mut damaged = vec![1; 4096];
    damaged[100] = 2;
    disk.blocks.write(places.offset(400), &damaged).expect("room");
    disk.bad.store(places.offset(40), Ordering::Relaxed);
    let medium = opened(&disk);
    pager(&medium).bring_piece(&Piece { pages: 2..PAGES as usize, marked: 2 });
    let flags = |page: usize| pager(&medium).pages.flags(page).load(Ordering::Relaxed);
    let absent: Vec<usize> = (2..PAGES as usize).filter(|&page| flags(page) & RESIDENT == 0).collect();
    assert_eq!(absent, [40, 300, 400]);
    assert!(
        (2..PAGES as usize).all(|page| flags(page) & BUSY == 0 && (flags(page) & AHEAD != 0) == (page == 2))
    );
    assert_eq!(pager(&medium).resident(), PAGES as usize - 5);
}

#[test]
fn eviction_skips_regions_without_pages_in_memory() {
    const MANY: u64 = 1 << 18;
    let blocks = FileBlocks::new(memory_file(Medium::paged_bytes(MANY * 4096, false)));
    Medium::format_paged(&blocks, MANY * 4096, false).expect("room");
    let options = PagedOptions::new(MANY * 4096, Duration::from_secs(3600));
    let medium = Medium::paged(Arc::new(blocks), options).expect("sound");
    let before = medium.resident_bytes().expect("paged");
    for page in [1000, MANY / 2, MANY - 1] {
        assert_eq!(word(&medium, page * 4096), 0);
    }
    assert!(medium.resident_bytes().is_some_and(|bytes| bytes >= before + 3 * 4096));
    // A pin of another test may end an eviction early.
    let evicted = || {
        MOVES.set(0);
        (pager(&medium).shrink(0) && medium.resident_bytes() == Some(0)).then(|| MOVES.get())
    };
    let moves = (0..1000).find_map(|_| evicted()).expect("no page must stay");
    assert!(moves as u64 <= MANY / 10, "{moves} moves");
}
