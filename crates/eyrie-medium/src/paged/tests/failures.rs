//! Disks that fail or are too small, processes that fork, threads that panic.

use std::io;
use std::sync::{OnceLock, Weak};

use super::*;
use crate::Blocks;

/// A medium that drains only when it is told to.
fn quiet(disk: &SimulatedDisk) -> Medium {
    Medium::paged(Arc::new(disk.clone()), options(16 * PAGES)).expect("sound")
}

fn fill(medium: &Medium, pages: std::ops::Range<u64>, byte: u8) {
    let _gate = medium.enter().expect("open");
    for page in pages {
        let _ = medium.barrier(medium.write(addr(page * 4096), &[byte; 4096]).expect("in range"));
    }
}

fn is_full_of(medium: &Medium, pages: std::ops::Range<u64>, byte: u8) -> bool {
    let _pin = pin();
    let mut bytes = vec![0; ((pages.end - pages.start) * 4096) as usize];
    medium.read(addr(pages.start * 4096), &mut bytes).expect("in range");
    bytes.iter().all(|&found| found == byte)
}

fn pager(medium: &Medium) -> &super::super::Pager {
    match &medium.backing {
        crate::backing::Backing::Paged(keeper) => keeper.pager(),
        _ => unreachable!("it is paged"),
    }
}

/// The journal starts over, and the first record of its new life is torn while its old name comes back: what the records
/// of the old life said first must not come back, too.
#[test]
fn a_torn_record_after_a_restart_brings_nothing_back() {
    let disk = disk();
    let medium = quiet(&disk);
    for value in 1..=3 {
        set(&medium, 8192, value);
        medium.drain().expect("drained");
    }
    medium.drain_home().expect("drained");
    (100..450).for_each(|page| set(&medium, page * 4096, 1));
    disk.fail_at(2, true);
    assert!(medium.drain().is_err());
    let mut pending = 0;
    disk.power_failure(|| {
        pending += 1;
        false
    });
    // The record has two pages, of which the second is stored.
    assert!(pending >= 16);
    let mut number = 0;
    let after = open(&disk.power_failure(|| {
        number += 1;
        number > pending - 8
    }));
    assert_eq!(word(&after, 8192), 3);
}

#[test]
fn more_changes_than_the_journal_holds_are_refused_as_a_whole() {
    let disk = disk();
    let medium = quiet(&disk);
    fill(&medium, 0..10, 1);
    medium.drain().expect("drained");
    fill(&medium, 0..300, 2);
    let refused = medium.drain().expect_err("too much");
    let Fault::Io { source, .. } = &refused else { panic!("{refused}") };
    assert!(source.to_string().contains("than the journal holds"), "{source}");
    assert!(matches!(medium.enter(), Err(Fault::ReadOnly)));
    assert!(is_full_of(&medium, 0..300, 2), "it can still be read");
    for survives in [false, true] {
        let after = open(&disk.power_failure(|| survives));
        assert!(is_full_of(&after, 0..10, 1) && is_full_of(&after, 10..300, 0));
    }
}

/// A record does not fit behind the others, which are then replayed: but not over what is fresh in it.
#[test]
fn a_journal_that_is_full_goes_home_without_what_is_fresh_now() {
    let disk = disk();
    let medium = quiet(&disk);
    fill(&medium, 100..200, 1);
    set(&medium, 8192, 1);
    medium.drain().expect("drained");
    let until = medium.freed(addr(8192), 4096).expect("has to wait");
    set(&medium, 0, 1);
    medium.drain().expect("drained");
    assert!(medium.durable() >= until);
    take(&medium, 2..3, 7);
    fill(&medium, 200..360, 2);
    medium.drain().expect("drained");
    let after = open(&disk.power_failure(|| false));
    assert!(is_full_of(&after, 2..3, 7), "old lines came back");
    assert!(is_full_of(&after, 100..200, 1) && is_full_of(&after, 200..360, 2));
}

/// A cut in which nothing but freeing happened makes pages free that the last record lists as fresh. What is written to
/// them next must not make that record void.
#[test]
fn regression_what_a_record_lists_as_fresh_is_taken_again_without_making_it_void() {
    let disk = disk();
    let medium = quiet(&disk);
    take(&medium, 2..42, 5);
    set(&medium, 0, 1);
    medium.drain().expect("drained");
    let until = medium.freed(addr(8192), 40 * 4096).expect("a durable cut has it");
    medium.drain().expect("drained");
    assert!(medium.durable() >= until);
    take(&medium, 2..42, 6);
    // The pages are written, the next record is not.
    disk.fail_at(2, true);
    let _ = medium.drain();
    for kept in [true, false] {
        assert_eq!(word(&open(&disk.power_failure(|| kept)), 0), 1, "an acknowledged change is gone");
    }
}

/// Every page of a long read is tried with ever fewer others, not with all that are left.
#[test]
fn regression_a_bad_page_costs_few_reads_of_the_pages_before_it() {
    let disk = disk();
    disk.make_bad(255, true);
    let medium = quiet(&disk);
    let before = disk.pages_read();
    let _pin = pin();
    let mut bytes = vec![0; 256 * 4096];
    assert!(medium.read(addr(0), &mut bytes).is_err());
    let read = disk.pages_read() - before;
    assert!(read < 256 * 10, "{read} pages were read");
}

/// An Op that is under way when a drain fails ends as it would have.
#[test]
fn an_op_that_was_let_in_goes_on_when_the_disk_fails() {
    let disk = disk();
    let medium = quiet(&disk);
    set(&medium, 0, 1);
    {
        let gate = medium.enter().expect("open");
        let _pin = pin();
        let _ = medium.barrier(medium.write_word(addr(8192), 1).expect("in range"));
        pager(&medium).failed.store(true, Ordering::Release);
        let _ = medium.barrier(medium.write_word(addr(40960), 1).expect("it was let in"));
        drop(gate);
    }
    assert_eq!((word(&medium, 8192), word(&medium, 40960)), (1, 1));
    assert!(matches!(medium.enter(), Err(Fault::ReadOnly)));
}

#[test]
fn fresh_pages_do_not_fill_the_journal() {
    let disk = disk();
    let medium = quiet(&disk);
    for round in 0..3 {
        let (written, flushes) = (disk.written(), disk.flushes());
        take(&medium, round * 150..round * 150 + 150, 1);
        medium.drain().expect("drained");
        assert_eq!(
            (disk.written() - written, disk.flushes() - flushes),
            (150 * 4096 + 2560, 1),
            "round {round}"
        );
    }
}

#[test]
fn no_page_stays_locked_when_a_drain_fails() {
    for call in 1..=8 {
        let disk = disk();
        let medium = quiet(&disk);
        for page in [3, 5, 7] {
            take(&medium, page..page + 1, 1);
            set(&medium, (page + 100) * 4096, 1);
        }
        disk.fail_at(call, true);
        assert!(medium.drain_home().is_err(), "call {call}");
        let pager = pager(&medium);
        let locked =
            |page: &usize| pager.pages.flags(*page).load(Ordering::Relaxed) & super::super::BUSY != 0;
        assert_eq!((0..PAGES as usize).find(locked), None, "call {call}");
        assert!(is_full_of(&medium, 3..4, 1) && word(&medium, 107 * 4096) == 1, "it can still be read");
    }
}

#[test]
fn a_page_that_cannot_be_read_fails_its_call_alone() {
    let disk = disk();
    let medium = quiet(&disk);
    fill(&medium, 0..40, 1);
    medium.drain_home().expect("drained");
    drop(medium);
    let medium = quiet(&disk);
    disk.make_bad(12, true);
    // Reading ahead, too, meets the bad page.
    (0..12).for_each(|page| assert_eq!(word(&medium, page * 4096), 0x0101_0101_0101_0101));
    {
        let _pin = pin();
        let mut bytes = vec![0; 3 * 4096];
        for _ in 0..2 {
            assert!(matches!(medium.load(addr(12 * 4096)), Err(Fault::Io { .. })));
            assert!(matches!(medium.read(addr(11 * 4096), &mut bytes), Err(Fault::Io { .. })));
        }
    }
    // A store of several pages, of which one cannot be read: nothing of it happens, now or later.
    for first in [10, 12] {
        let gate = medium.enter().expect("no drain has failed");
        let refused = medium.write(addr(first * 4096), &[2; 3 * 4096]);
        assert!(matches!(refused, Err(Fault::Io { .. })));
        drop(gate);
    }
    set(&medium, 13 * 4096 + 64, 9);
    medium.drain().expect("drained");
    let cut = disk.power_failure(|| false);
    disk.make_bad(12, false);
    assert!(is_full_of(&medium, 0..13, 1) && word(&medium, 13 * 4096 + 64) == 9);
    assert!(is_full_of(&open(&cut), 0..13, 1));
    fill(&medium, 10..13, 2);
    medium.drain().expect("drained");
    assert!(is_full_of(&open(&disk.power_failure(|| false)), 10..13, 2));
}

#[test]
fn a_disk_without_room_says_so() {
    let disk = disk();
    let medium = open(&disk);
    disk.limit_room(Some(64 * 4096));
    assert!(medium.back(addr(0), 64 * 4096).is_ok());
    assert!(matches!(medium.back(addr(4096), 64 * 4096), Err(Fault::HostFull)));
}

#[test]
fn a_forked_child_is_told_so_and_ends() {
    let disk = disk();
    let medium = open(&disk);
    set(&medium, 0, 1);
    let told = crate::in_forked_child(|| {
        let forked = |fault: Option<Fault>| matches!(fault, Some(Fault::Forked));
        let refused = forked(medium.check().err())
            && forked(medium.enter().err())
            && forked(medium.drain().err())
            && forked(medium.load(addr(300 * 4096)).err());
        drop(medium);
        refused
    });
    assert!(told.expect("a child"));
}

#[test]
fn a_panic_inside_a_gate_opens_it() {
    let disk = disk();
    let medium = open(&disk);
    std::thread::scope(|scope| {
        let died = scope.spawn(|| {
            let _gate = medium.enter().expect("open");
            let _ = medium.barrier(medium.write_word(addr(0), 1).expect("in range"));
            std::panic::panic_any("on purpose");
        });
        assert!(died.join().is_err());
    });
    medium.drain().expect("drained");
    set(&medium, 8, 2);
    medium.drain().expect("drained");
    assert_eq!(word(&open(&disk.power_failure(|| false)), 8), 2);
}

#[test]
fn a_view_keeps_its_bytes_while_memory_is_short() {
    let disk = disk();
    let medium = Medium::paged(Arc::new(disk), options(256)).expect("sound");
    let churn = |round: u8| (1..PAGES / 32).for_each(|part| fill(&medium, part * 32..part * 32 + 32, round));
    fill(&medium, 0..1, 5);
    medium.drain_home().expect("drained");
    {
        let guard = pin();
        let view = medium.bytes(addr(0), 4096, &guard).expect("in range");
        (1..5).for_each(churn);
        assert!(view.iter().all(|&byte| byte == 5));
    }
    churn(6);
    assert!(is_full_of(&medium, 0..1, 5));
}

/// A disk on which something happens before each write.
struct Watched {
    disk: SimulatedDisk,
    medium: OnceLock<Weak<Medium>>,
    before_write: fn(&Medium),
}

impl Blocks for Watched {
    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }

    fn sector(&self) -> u64 {
        self.disk.sector()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(medium) = self.medium.get().and_then(Weak::upgrade) {
            (self.before_write)(&medium);
        }
        self.disk.write(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.allocate(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.discard(offset, len)
    }
}

/// All memory is asked for before every write of a drain: what the disk does not have yet has to stay.
#[test]
fn what_a_drain_has_not_written_stays_in_memory() {
    let before_write = |medium: &Medium| {
        pager(medium).shrink(0);
        assert!(is_full_of(medium, 2..6, 7) && is_full_of(medium, 8..9, 7), "a fresh page was lost");
        assert!(word(medium, 100 * 4096) == 3, "a changed page was lost");
    };
    let watched = Arc::new(Watched { disk: disk(), medium: OnceLock::new(), before_write });
    let blocks: Arc<dyn Blocks> = Arc::clone(&watched) as Arc<dyn Blocks>;
    let medium = Arc::new(Medium::paged(blocks, options(16 * PAGES)).expect("sound"));
    take(&medium, 2..6, 7);
    take(&medium, 8..9, 7);
    set(&medium, 100 * 4096, 3);
    watched.medium.set(Arc::downgrade(&medium)).expect("once");
    medium.drain().expect("drained");
    medium.drain_home().expect("drained");
    // Pins of other tests may be in the way.
    assert!((0..1000).any(|_| pager(&medium).shrink(0) && medium.resident_bytes() == Some(0)));
    before_write(&medium);
}

#[test]
fn a_page_of_a_durable_cut_waits_even_if_it_changed_since() {
    let disk = disk();
    let medium = quiet(&disk);
    take(&medium, 2..3, 7);
    medium.drain().expect("drained");
    set(&medium, 8192, 1);
    let until = medium.freed(addr(8192), 4096).expect("a durable cut has it");
    assert!(until > medium.durable());
}
