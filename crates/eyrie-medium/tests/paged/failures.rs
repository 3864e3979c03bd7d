//! Tests of disks that fail or are too small, of full journals, of processes that fork, of threads that
//! panic, and of freed and viewed pages.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Makes a medium that drains only on request.
fn quiet(disk: &SimulatedDisk) -> Medium {
    Medium::paged(Arc::new(disk.clone()), options(16 * PAGES)).expect("sound")
}

/// Stores to whole pages in one Op. The last pages of the volume are lent to the journal.
fn fill(medium: &Medium, pages: std::ops::Range<u64>, byte: u8) {
    let _gate = medium.enter_with(|| u64::MAX).expect("open");
    medium.lend(addr((PAGES - 22) * 4096), 22 * 4096).expect("in range");
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

/// The journal starts over under a new name. A power failure tears the first record with the new name. The
/// old name must not come back. If it did, replay could apply the old records before the torn sectors, but
/// none of the later old records. So it would replace newer bytes by older ones.
#[test]
fn torn_record_after_a_restart_undoes_nothing() {
    let disk = disk();
    let medium = quiet(&disk);
    for value in 1..=3 {
        set(&medium, 8192, value);
        medium.drain().expect("drained");
    }
    medium.checkpoint().expect("drained");
    (100..450).for_each(|page| set(&medium, page * 4096, 1));
    // The write of the record succeeds, and the flush fails.
    disk.fail_at(2, true);
    assert!(medium.drain().is_err());
    let mut pending = 0;
    disk.power_failure(|| {
        pending += 1;
        false
    });
    // The record has at least 16 sectors. The power failure keeps only the last eight of them.
    assert!(pending >= 16);
    let mut number = 0;
    let after = open(&disk.power_failure(|| {
        number += 1;
        number > pending - 8
    }));
    assert_eq!(word(&after, 8192), 3);
}

/// A record that does not fit makes the drain replay the journal. The replay must not overwrite the fresh
/// pages of that record.
#[test]
fn full_journal_is_replayed_without_fresh_pages() {
    let disk = disk();
    let medium = quiet(&disk);
    // The journal of 1 MiB has no room for the records of both large cuts, which change 108 and 145 pages.
    fill(&medium, 100..208, 1);
    set(&medium, 8192, 1);
    medium.drain().expect("drained");
    let until = medium.mark_freed(addr(8192), 4096).expect("has to wait");
    set(&medium, 0, 1);
    medium.drain().expect("drained");
    assert!(medium.durable_cut() >= until);
    take(&medium, 2..3, 7);
    fill(&medium, 208..353, 2);
    medium.drain().expect("drained");
    let after = open(&disk.power_failure(|| false));
    assert!(is_full_of(&after, 2..3, 7), "old lines came back");
    assert!(is_full_of(&after, 100..208, 1) && is_full_of(&after, 208..353, 2));
}

/// After a cut that only frees pages, the allocator may reuse pages that the last record lists as fresh. New
/// bytes in these pages must not make that record invalid.
#[test]
fn regression_reused_fresh_page_keeps_its_record_valid() {
    let disk = disk();
    let medium = quiet(&disk);
    take(&medium, 2..42, 5);
    set(&medium, 0, 1);
    medium.drain().expect("drained");
    let until = medium.mark_freed(addr(8192), 40 * 4096).expect("a durable cut has it");
    medium.drain().expect("drained");
    assert!(medium.durable_cut() >= until);
    take(&medium, 2..42, 6);
    // The write of the pages succeeds, and the write of the next record fails.
    disk.fail_at(2, true);
    let _ = medium.drain();
    for kept in [true, false] {
        assert_eq!(word(&open(&disk.power_failure(|| kept)), 0), 1, "an acknowledged change is gone");
    }
}

/// A long read that fails is tried again with half as many pages each time, so a bad page costs few reads.
#[test]
fn regression_bad_page_costs_few_reads() {
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

#[test]
fn fresh_pages_do_not_fill_the_journal() {
    let disk = disk();
    let medium = quiet(&disk);
    for round in 0..3 {
        let (written, flushes) = (disk.written(), disk.flushes());
        take(&medium, round * 150..round * 150 + 150, 1);
        medium.drain().expect("drained");
        // The record has 150 entries of 16 bytes and a head, so it takes five sectors.
        assert_eq!(
            (disk.written() - written, disk.flushes() - flushes),
            (150 * 4096 + 2560, 1),
            "round {round}"
        );
    }
}

#[test]
fn unreadable_page_fails_its_call_only() {
    let disk = disk();
    let medium = quiet(&disk);
    fill(&medium, 0..40, 1);
    medium.checkpoint().expect("drained");
    drop(medium);
    let medium = quiet(&disk);
    disk.make_bad(12, true);
    // Read-ahead of these pages also tries to read the bad page.
    (0..12).for_each(|page| assert_eq!(word(&medium, page * 4096), 0x0101_0101_0101_0101));
    {
        let _pin = pin();
        let mut bytes = vec![0; 3 * 4096];
        for _ in 0..2 {
            assert!(matches!(medium.load(addr(12 * 4096)), Err(Fault::Io { .. })));
            assert!(matches!(medium.read(addr(11 * 4096), &mut bytes), Err(Fault::Io { .. })));
        }
    }
    // A store to several pages fails if one of these pages cannot be read. No byte of that store may ever be
    // stored.
    for first in [10, 12] {
        let gate = medium.enter().expect("no drain has failed");
        let refused = medium.write(addr(first * 4096), &[2; 3 * 4096]);
        assert!(matches!(refused, Err(Fault::Io { .. })));
        drop(gate);
    }
    set(&medium, 13 * 4096 + 64, 9);
    medium.drain().expect("drained");
    let after = disk.power_failure(|| false);
    disk.make_bad(12, false);
    assert!(is_full_of(&medium, 0..13, 1) && word(&medium, 13 * 4096 + 64) == 9);
    assert!(is_full_of(&open(&after), 0..13, 1));
    fill(&medium, 10..13, 2);
    medium.drain().expect("drained");
    assert!(is_full_of(&open(&disk.power_failure(|| false)), 10..13, 2));
}

/// One read asks for the whole journal, although its record takes one sector. The journal begins after the
/// pages of the volume.
#[test]
fn unreadable_page_behind_the_records_does_not_hinder_an_open() {
    let disk = disk();
    let medium = quiet(&disk);
    set(&medium, 8192, 7);
    medium.drain().expect("drained");
    for bad in [PAGES + 1, PAGES + 255] {
        let after = disk.power_failure(|| false);
        after.make_bad(bad, true);
        assert_eq!(word(&open(&after), 8192), 7, "page {bad}");
    }
    // A record that cannot be read may be durable, so an open must not ignore it.
    let after = disk.power_failure(|| false);
    after.make_bad(PAGES, true);
    assert!(matches!(Medium::paged(Arc::new(after.clone()), options(PAGES)), Err(Fault::Io { .. })));
    after.make_bad(PAGES, false);
    assert_eq!(word(&open(&after), 8192), 7);
}

#[test]
fn full_disk_refuses_to_provision() {
    let disk = disk();
    let medium = open(&disk);
    disk.limit_room(Some(64 * 4096));
    assert!(medium.provision(addr(0), 64 * 4096).is_ok());
    assert!(matches!(medium.provision(addr(4096), 64 * 4096), Err(Fault::HostFull)));
}

#[test]
fn forked_child_gets_errors_and_ends() {
    let disk = disk();
    let medium = open(&disk);
    set(&medium, 0, 1);
    let child = eyrie_faults::in_forked_child(|| {
        let forked = |fault: Option<Fault>| matches!(fault, Some(Fault::Forked));
        let refused = forked(medium.check().err())
            && forked(medium.enter().err())
            && forked(medium.drain().err())
            && forked(medium.load(addr(300 * 4096)).err());
        drop(medium);
        refused
    });
    assert!(child.expect("a child"));
}

/// In the child, a new thread may have the memory that described a thread of the medium. The drop of the
/// medium must not detach the new thread.
#[test]
fn regression_forked_child_joins_its_threads_after_the_drop_of_a_medium() {
    let medium = open(&disk());
    let child = eyrie_faults::in_forked_child(|| {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Other tests may have threads at the fork, too. So the child starts many threads, and some of
            // them get the memory of the threads of the medium.
            let is_over = || {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            let threads: Vec<_> = (0..100).map(|_| scope.spawn(is_over)).collect();
            drop(medium);
            over.store(true, Ordering::Relaxed);
            // The join of a detached thread panics.
            let joined = threads.into_iter().map(|thread| catch_unwind(AssertUnwindSafe(|| thread.join())));
            joined.filter(|joined| !matches!(joined, Ok(Ok(())))).count() == 0
        })
    });
    assert!(child.expect("a child"), "a thread cannot be joined");
}

#[test]
fn panic_inside_a_gate_releases_it() {
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
fn view_keeps_its_bytes_while_memory_is_short() {
    let disk = disk();
    let medium = Medium::paged(Arc::new(disk), options(256)).expect("sound");
    let churn = |round: u8| (1..PAGES / 32).for_each(|part| fill(&medium, part * 32..part * 32 + 32, round));
    fill(&medium, 0..1, 5);
    medium.checkpoint().expect("drained");
    {
        let guard = pin();
        let view = medium.bytes(addr(0), 4096, &guard).expect("in range");
        (1..5).for_each(churn);
        assert!(view.iter().all(|&byte| byte == 5));
    }
    churn(6);
    assert!(is_full_of(&medium, 0..1, 5));
}

#[test]
fn freed_page_that_changed_waits_for_a_durable_cut() {
    let disk = disk();
    let medium = quiet(&disk);
    take(&medium, 2..3, 7);
    medium.drain().expect("drained");
    set(&medium, 8192, 1);
    let until = medium.mark_freed(addr(8192), 4096).expect("a durable cut has it");
    assert!(until > medium.durable_cut());
}
