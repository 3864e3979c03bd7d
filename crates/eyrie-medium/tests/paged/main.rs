//! Tests of the page cache of a volume on a simulated disk: drains, power failures, failures of the disk,
//! read-ahead, and threads.

mod ahead;
mod checksums;
mod failures;
mod stress;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyrie_faults::{SimulatedDisk, SplitMix64};
use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Fault, Medium, MediumKind, PagedOptions, SegmentId};

const PAGES: u64 = 512;
const BYTES: u64 = PAGES * 4096;

fn addr(offset: u64) -> Addr {
    Addr::new(SegmentId(0), offset)
}

fn options(pages: u64) -> PagedOptions {
    PagedOptions::new(pages * 4096, Duration::from_secs(3600))
}

fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new(Medium::paged_bytes(BYTES, false) as usize);
    Medium::format_paged(&disk, BYTES, false).expect("room");
    disk
}

fn open(disk: &SimulatedDisk) -> Medium {
    Medium::paged(Arc::new(disk.clone()), options(PAGES)).expect("sound")
}

fn word(medium: &Medium, offset: u64) -> u64 {
    let _pin = pin();
    medium.load(addr(offset)).expect("in range")
}

fn set(medium: &Medium, offset: u64, value: u64) {
    let _gate = medium.enter().expect("no failure");
    let _pin = pin();
    let _ = medium.barrier(medium.write_word(addr(offset), value).expect("in range"));
}

#[test]
fn power_failure_keeps_drained_changes_only() {
    let disk = disk();
    let medium = open(&disk);
    assert_eq!(medium.kind(), MediumKind::Paged);
    set(&medium, 8192, 7);
    medium.drain().expect("drained");
    set(&medium, 8192, 8);
    set(&medium, 40960, 9);
    let after = open(&disk.power_failure(|| true));
    assert_eq!((word(&after, 8192), word(&after, 40960)), (7, 0));
    medium.checkpoint().expect("drained");
    let after = open(&disk.power_failure(|| false));
    assert_eq!((word(&after, 8192), word(&after, 40960)), (8, 9));
    drop(medium);
}

#[test]
fn regression_no_time_between_drains_lets_the_keeper_sleep() {
    let begin = Instant::now();
    let options = PagedOptions::new(options(PAGES).memory_bytes, Duration::ZERO);
    let medium = Medium::paged(Arc::new(disk()), options).expect("sound");
    std::thread::sleep(Duration::from_millis(50));
    let drains = medium.paged_stats().expect("it is paged").drains;
    assert!(u128::from(drains) <= 1 + begin.elapsed().as_millis(), "{drains} drains");
}

#[test]
fn drain_without_changes_costs_no_flush() {
    let disk = disk();
    let medium = open(&disk);
    set(&medium, 0, 1);
    medium.drain().expect("drained");
    let flushes = disk.flushes();
    medium.drain().expect("drained");
    assert_eq!(disk.flushes(), flushes);
}

#[test]
fn one_line_costs_one_sector_of_journal_and_one_flush() {
    let disk = disk();
    let medium = open(&disk);
    set(&medium, 0, 1);
    medium.drain().expect("drained");
    let (written, flushes) = (disk.written(), disk.flushes());
    set(&medium, 123 * 4096, 1);
    medium.drain().expect("drained");
    assert_eq!((disk.written() - written, disk.flushes() - flushes), (512, 1));
}

/// Allocates a range of whole pages, and fills the range with `byte`.
fn take(medium: &Medium, pages: std::ops::Range<u64>, byte: u8) {
    let (at, len) = (addr(pages.start * 4096), (pages.end - pages.start) * 4096);
    let _gate = medium.enter().expect("open");
    medium.mark_allocated(at, len).expect("in range");
    let _ = medium.barrier(medium.write(at, &vec![byte; len as usize]).expect("in range"));
}

#[test]
fn fresh_pages_are_written_once_and_never_read() {
    let disk = disk();
    let medium = open(&disk);
    let mut before = disk.written();
    let mut written = |what: &dyn Fn()| {
        what();
        medium.drain().expect("drained");
        disk.written() - std::mem::replace(&mut before, disk.written())
    };
    (2..42).for_each(|page| disk.make_bad(page, true));
    assert_eq!(written(&|| take(&medium, 2..42, 5)), 40 * 4096 + 1024, "the pages, and a record of them");
    (2..42).for_each(|page| disk.make_bad(page, false));
    let after = open(&disk.power_failure(|| false));
    let fives = 0x0505_0505_0505_0505;
    assert_eq!((word(&after, 2 * 4096), word(&after, 41 * 4096)), (fives, fives));
    // In a small cut, a fresh page goes straight to its place only if the place was written before. The next
    // test has the other case.
    assert!(medium.mark_freed(addr(8192), 4096).is_some());
    assert_eq!(written(&|| set(&medium, 0, 1)), 512, "a line");
    assert_eq!(written(&|| take(&medium, 2..3, 6)), 4096 + 512, "the page, and a record of it");
    medium.checkpoint().expect("drained");
    assert_eq!(word(&open(&disk.power_failure(|| false)), 8192), 0x0606_0606_0606_0606);
}

/// The first write to a place may be slow on the host. So the drain of a small cut writes a fresh page into
/// the journal if the place of the page was not written before.
#[test]
fn few_fresh_pages_go_to_the_journal_first() {
    let disk = disk();
    let medium = open(&disk);
    let written = disk.written();
    take(&medium, 2..3, 5);
    set(&medium, 3 * 4096, 1);
    medium.drain().expect("drained");
    assert_eq!(disk.written() - written, 4096 + 512, "the record has the page");
    let after = open(&disk.power_failure(|| false));
    assert_eq!(word(&after, 8192), 0x0505_0505_0505_0505);
    // Of this fresh page the record has only the lines that were stored to, without their zero words.
    {
        let _gate = medium.enter().expect("open");
        medium.mark_allocated(addr(4 * 4096), 4096).expect("in range");
        let _ = medium.barrier(medium.write(addr(4 * 4096), &[7; 100]).expect("in range"));
    }
    let written = disk.written();
    medium.drain().expect("drained");
    assert_eq!(disk.written() - written, 512);
    medium.checkpoint().expect("drained");
    let after = open(&disk.power_failure(|| false));
    assert_eq!((word(&after, 8192), word(&after, 4 * 4096)), (0x0505_0505_0505_0505, 0x0707_0707_0707_0707));
}

/// A sync beside a writer of large files. Because the journal is large, the cut of the sync still counts as
/// small, so the fresh pages go to the journal. The process is killed before or after the flush of the
/// record. The next process is killed during its replay, and then power fails. After each such sequence of
/// kills and failures, the cut is whole or undone. It is not undone if its flush had returned.
#[test]
fn cut_beside_a_writer_is_whole_after_kills_and_a_power_failure() {
    // A 64th of this journal has 48 pages.
    const JOURNAL: u64 = 12 << 20;
    let disk = SimulatedDisk::new((Medium::place_bytes(BYTES, false) + JOURNAL + 4096) as usize);
    Medium::fill_paged(&disk, BYTES, false).expect("room");
    for is_flushed in [false, true] {
        let disk = disk.killed();
        let medium = open(&disk);
        medium.checkpoint().expect("drained");
        take(&medium, 2..42, 5);
        if !is_flushed {
            // The write of the record is call 1, and its flush is call 2.
            disk.fail_at(2, true);
        }
        assert_eq!(medium.drain().is_ok(), is_flushed);
        let mut place = [1; 4096];
        eyrie_medium::Blocks::read(&disk, 2 * 4096, &mut place).expect("there");
        assert_eq!(place, [0; 4096], "the page is in the journal, and not in its place");
        let killed = disk.killed();
        let calls = {
            let whole = killed.killed();
            open(&whole);
            whole.calls() - killed.calls()
        };
        assert!(calls > 2, "the replay writes and flushes");
        for call in 1..=calls + 1 {
            for seed in 0..8_u64 {
                let next = killed.killed();
                next.fail_at(call, true);
                let opened = Medium::paged(Arc::new(next.clone()), options(PAGES));
                assert_eq!(opened.is_ok(), call > calls);
                let mut random = seed;
                let after = open(&next.power_failure(|| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    seed != 0 && (seed == 1 || random >> 63 == 1)
                }));
                let words: Vec<u64> = (2..42).map(|page| word(&after, page * 4096 + 8 * page)).collect();
                let is_whole = words.iter().all(|&word| word == 0x0505_0505_0505_0505);
                let is_undone = words.iter().all(|&word| word == 0);
                assert!(is_whole || is_undone && !is_flushed, "call {call}, seed {seed}: {words:x?}");
            }
        }
    }
}

#[test]
fn freed_page_waits_for_a_durable_cut() {
    let disk = disk();
    let medium = open(&disk);
    take(&medium, 2..3, 5);
    medium.drain().expect("drained");
    // If the last durable cut uses a page that is freed, the page waits for the next durable cut. A page that
    // is allocated and freed within one cut need not wait.
    let until = medium.mark_freed(addr(8192), 4096).expect("has to wait");
    assert!(medium.durable_cut() < until);
    set(&medium, 0, 1);
    medium.drain().expect("drained");
    assert!(medium.durable_cut() >= until);
    let _gate = medium.enter().expect("open");
    medium.mark_allocated(addr(8192), 4096).expect("in range");
    assert_eq!(medium.mark_freed(addr(8192), 4096), None);
}

#[test]
fn failed_disk_makes_the_medium_read_only() {
    for call in 1..=2 {
        let disk = disk();
        let medium = open(&disk);
        set(&medium, 4096, 3);
        disk.fail_at(call, false);
        assert!(matches!(medium.drain(), Err(Fault::Io { .. })), "call {call}");
        assert!(matches!(medium.enter(), Err(Fault::ReadOnly)));
        set_fails(&medium);
        assert!(matches!(medium.drain(), Err(Fault::ReadOnly)));
        assert_eq!(word(&medium, 4096), 3, "it can still be read");
        let after = word(&open(&disk.power_failure(|| true)), 4096);
        assert!(after == 0 || after == 3);
    }
}

fn set_fails(medium: &Medium) {
    assert!(medium.enter().is_err_and(|fault| fault.to_string().contains("accepts no changes")));
}

#[test]
fn truncated_disk_is_refused() {
    let bytes = disk().power_failure(|| true);
    let mut short = vec![0; (BYTES + 4096) as usize];
    eyrie_medium::Blocks::read(&bytes, 0, &mut short).expect("there");
    let refused = Medium::paged(Arc::new(SimulatedDisk::holding(&short)), options(PAGES));
    assert!(matches!(refused.err(), Some(Fault::NotPaged)));
}

#[test]
fn memory_returns_to_its_limit() {
    let disk = disk();
    let medium = Medium::paged(Arc::new(disk), options(256)).expect("sound");
    for round in 1..=4 {
        for page in 0..PAGES {
            set(&medium, page * 4096, round * 1000 + page);
        }
        for page in 0..PAGES {
            assert_eq!(word(&medium, page * 4096), round * 1000 + page);
        }
    }
    let within = |medium: &Medium| medium.resident_bytes().is_some_and(|bytes| bytes <= 256 * 4096);
    // The keeper evicts pages in the background, so the test waits until the keeper has reached the limit.
    assert!((0..2000).any(|_| within(&medium) || {
        std::thread::sleep(Duration::from_millis(5));
        false
    }));
}

/// One thread stores random words and drains, and then the power fails. The disk then has a state between two
/// Ops, and that state is no older than the last successful drain.
#[test]
fn power_failure_leaves_a_cut_since_the_last_drain() {
    for seed in 0..150 {
        let mut choices = SplitMix64(seed);
        let disk = disk();
        let medium = Medium::paged(Arc::new(disk.clone()), options(256 + choices.below(256))).expect("sound");
        let words = 64;
        // The words after each Op.
        let mut history = vec![vec![0_u64; words]];
        let mut acknowledged = 0;
        for _ in 0..choices.below(60) {
            match choices.below(10) {
                0 => {
                    medium.drain().expect("drained");
                    acknowledged = history.len() - 1;
                }
                1 => {
                    medium.checkpoint().expect("drained");
                    acknowledged = history.len() - 1;
                }
                _ => {
                    let mut state = history.last().expect("one").clone();
                    let _gate = medium.enter().expect("open");
                    for _ in 0..=choices.below(4) {
                        let (at, value) = (choices.below(words as u64), choices.next());
                        state[at as usize] = value;
                        let place = addr(at * 3 * 4096 + 8 * (at % 512));
                        let _ = medium.barrier(medium.write_word(place, value).expect("in range"));
                    }
                    history.push(state);
                }
            }
        }
        if choices.below(3) == 0 {
            // The disk may fail in the middle of a drain, as in a power failure.
            disk.fail_at(1 + choices.below(4), false);
            let _ = medium.checkpoint();
        }
        let odds = 1 + choices.below(4);
        let after = open(&disk.power_failure(|| choices.below(4) < odds));
        let seen: Vec<u64> =
            (0..words as u64).map(|at| word(&after, at * 3 * 4096 + 8 * (at % 512))).collect();
        assert!(history[acknowledged..].contains(&seen), "seed {seed}: no state since the last drain");
    }
}

/// Three threads run Ops, each of which stores the same words to three pages of its thread. One thread also
/// drains. No cut may be in the middle of an Op, so on the disk the three pages of each thread must be equal.
#[test]
fn cut_is_between_ops_of_running_threads() {
    let disk = disk();
    let medium = Medium::paged(Arc::new(disk.clone()), options(256)).expect("sound");
    let (stop, drained) = (AtomicBool::new(false), AtomicU64::new(0));
    let failures: Vec<SimulatedDisk> = std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (medium, stop, drained) = (&medium, &stop, &drained);
            scope.spawn(move || {
                for round in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    {
                        let _gate = medium.enter().expect("open");
                        for page in [thread * 7, 100 + thread * 11, 200 + thread] {
                            let place = addr(page * 4096 + 8 * (round % 512));
                            let _ = medium.barrier(medium.write_word(place, round).expect("in range"));
                            let place = addr(page * 4096 + 8 * ((round + 1) % 512));
                            let _ = medium.barrier(medium.write_word(place, 0).expect("in range"));
                        }
                    }
                    if thread == 0 && round % 50 == 0 {
                        medium.drain().expect("drained");
                        drained.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut choices = SplitMix64(1);
        let mut failures = Vec::new();
        while failures.len() < 40 {
            std::thread::sleep(Duration::from_millis(3));
            failures.push(disk.power_failure(|| choices.below(2) == 0));
        }
        stop.store(true, Ordering::Relaxed);
        failures
    });
    assert!(drained.load(Ordering::Relaxed) > 0);
    for failure in failures {
        let after = open(&failure);
        for thread in 0..3 {
            let page =
                |page: u64| -> Vec<u64> { (0..512).map(|at| word(&after, page * 4096 + 8 * at)).collect() };
            let first = page(thread * 7);
            assert!(first == page(100 + thread * 11) && first == page(200 + thread), "a cut inside an Op");
        }
    }
}

#[test]
fn discard_after_a_checkpoint_loses_no_other_page() {
    let disk = disk();
    let medium = open(&disk);
    let page = 9 * 4096;
    set(&medium, 0, 1);
    take(&medium, 9..10, 6);
    // After this checkpoint the place of the page counts as written.
    medium.checkpoint().expect("sound");
    assert!(medium.mark_freed(addr(page), 4096).is_some());
    medium.drain().expect("sound");
    let written = disk.written();
    take(&medium, 9..10, 7);
    set(&medium, 0, 2);
    medium.drain().expect("sound");
    assert_eq!(disk.written() - written, 4096 + 512, "the page at its place, and a record");
    // The last record lists the page as fresh, and also has the change of word 0. After the discard the page
    // no longer matches this record. The checkpoint comes first, so that recovery no longer needs the record.
    let cut = medium.mark_freed(addr(page), 4096).expect("a durable cut uses it");
    medium.checkpoint().expect("sound");
    assert!(medium.durable_cut() >= cut);
    medium.discard(addr(page), 4096).expect("in range");
    let after = open(&disk.power_failure(|| false));
    assert_eq!(word(&after, 0), 2);
    medium.provision(addr(page), 4096).expect("room");
    set(&medium, page, 8);
    medium.drain().expect("sound");
    assert_eq!(word(&open(&disk.power_failure(|| false)), page), 8);
}
