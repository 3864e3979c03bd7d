//! Tests of checksums: a damaged page is an error, and no other page is.

use super::*;

/// Three chunks of checksums, of which the last is short.
const MANY: u64 = 2500;

/// Returns a disk whose pages were never allocated.
fn new_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new(Medium::paged_bytes(MANY * 4096, true) as usize);
    Medium::format_paged(&disk, MANY * 4096, true).expect("room");
    disk
}

/// Returns a disk whose pages are all in use, and are filled with zeros.
fn checked_disk() -> SimulatedDisk {
    let disk = new_disk();
    let medium = open_many(&disk);
    for start in (2..MANY).step_by(500) {
        let _gate = medium.enter().expect("open");
        medium.mark_allocated(addr(start * 4096), (MANY - start).min(500) * 4096).expect("in range");
    }
    medium.checkpoint().expect("drained");
    disk
}

fn open_many(disk: &SimulatedDisk) -> Medium {
    Medium::paged(Arc::new(disk.clone()), options(MANY)).expect("sound")
}

fn read(medium: &Medium, page: u64) -> Result<u64, Fault> {
    let _pin = pin();
    medium.load(addr(page * 4096))
}

/// Returns the numbers of the damaged pages of the volume.
fn scrubbed(medium: &Medium) -> Vec<u64> {
    let damaged = medium.scrub(addr(0), MANY * 4096).expect("in range");
    damaged.into_iter().map(|addr| addr.offset() / 4096).collect()
}

/// Returns the disk after one of its bytes has changed.
fn damaged(disk: &SimulatedDisk, at: usize) -> SimulatedDisk {
    let mut bytes = disk.snapshot();
    bytes[at] ^= 4;
    SimulatedDisk::holding(&bytes)
}

/// Returns the offset of a page on the disk: the only one whose first word is `value`.
fn place_of(disk: &SimulatedDisk, value: u64) -> usize {
    let bytes = disk.snapshot();
    let volume = Medium::place_bytes(MANY * 4096, true) as usize;
    let mut found = (0..volume).step_by(4096).filter(|&at| bytes[at..at + 8] == value.to_le_bytes());
    let place = found.next().expect("the page is in its place");
    assert_eq!(found.next(), None);
    place
}

/// Asserts that `page` is the only damaged page, and that only its readers get an error.
fn assert_damaged(disk: &SimulatedDisk, page: u64, others: &[u64]) {
    let medium = open_many(disk);
    let fault = read(&medium, page).expect_err("the page is damaged");
    assert!(matches!(fault, Fault::Checksum { addr: found } if found == addr(page * 4096)), "{fault}");
    for &other in others.iter().filter(|&&other| other != page) {
        read(&medium, other).expect("this page is sound");
    }
    assert_eq!(scrubbed(&medium), [page]);
}

const EDGES: [u64; 8] = [2, 3, 1023, 1024, 1025, 2047, 2048, MANY - 1];

#[test]
fn damaged_byte_is_an_error_of_its_page() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    EDGES.iter().for_each(|&page| set(&medium, page * 4096, page | 1 << 40));
    medium.checkpoint().expect("drained");
    assert_eq!(scrubbed(&medium), []);
    for page in EDGES {
        let place = place_of(&disk, page | 1 << 40);
        for at in [0, 4095] {
            assert_damaged(&damaged(&disk, place + at), page, &EDGES);
        }
    }
}

#[test]
fn page_that_was_never_allocated_matches_nothing() {
    let disk = new_disk();
    let medium = open_many(&disk);
    take(&medium, 2..3, 0);
    medium.checkpoint().expect("drained");
    let medium = open_many(&disk);
    assert_eq!(read(&medium, 2).expect("it was recorded"), 0);
    assert!(matches!(read(&medium, 3), Err(Fault::Checksum { .. })));
    assert_eq!(scrubbed(&medium), (3..MANY).collect::<Vec<_>>());
}

/// A disk may lose a whole range, with a checksum page and the pages after it.
#[test]
fn zeros_over_a_checksum_page_and_its_pages_are_noticed() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    EDGES.iter().for_each(|&page| set(&medium, page * 4096, page | 1 << 40));
    medium.checkpoint().expect("drained");
    let mut bytes = disk.snapshot();
    let lost = 1025 * 4096..2050 * 4096;
    assert!(
        lost.contains(&place_of(&disk, 1024 | 1 << 40)) && lost.contains(&place_of(&disk, 2047 | 1 << 40))
    );
    bytes[lost].fill(0);
    let medium = open_many(&SimulatedDisk::holding(&bytes));
    for page in EDGES {
        let is_lost = (1024..2048).contains(&page);
        assert_eq!(matches!(read(&medium, page), Err(Fault::Checksum { .. })), is_lost, "page {page}");
    }
    assert_eq!(scrubbed(&medium), (1024..2048).collect::<Vec<_>>());
}

/// The offset of the checksum page of the pages from 1024 to 2047, in pages.
const SECOND_CHECKSUM_PAGE: u64 = 1025;

/// The pages of an unreadable checksum page are errors until they are written again. Other pages, and the
/// volume as a whole, can be used.
#[test]
fn unreadable_checksum_page_is_an_error_of_its_pages() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    EDGES.iter().for_each(|&page| set(&medium, page * 4096, page | 1 << 40));
    medium.checkpoint().expect("drained");
    disk.make_bad(SECOND_CHECKSUM_PAGE, true);
    let medium = open_many(&disk);
    for page in EDGES {
        let is_lost = (1024..2048).contains(&page);
        assert_eq!(matches!(read(&medium, page), Err(Fault::Checksum { .. })), is_lost, "page {page}");
    }
    assert_eq!(scrubbed(&medium), (1024..2048).collect::<Vec<_>>());
    take(&medium, 1025..1027, 9);
    medium.drain().expect("the other entries are not needed");
    let replayed = disk.killed();
    let damaged = open_many(&disk.killed());
    damaged.accept_unknown_checksums();
    assert_eq!(read(&damaged, 1024).expect("a repair reads it"), 1024 | 1 << 40);
    drop(damaged);
    // The entries of the two pages are known, although their checksum page still cannot be read.
    assert_eq!(scrubbed(&medium), [1024].into_iter().chain(1027..2048).collect::<Vec<_>>());
    // The checksum page itself has not changed, so a later read of it finds the other entries.
    disk.make_bad(SECOND_CHECKSUM_PAGE, false);
    assert_eq!(read(&medium, 1024).expect("it matches"), 1024 | 1 << 40);
    medium.checkpoint().expect("drained");
    assert_eq!(scrubbed(&open_many(&disk)), []);
    // A replay writes the checksum page anew. Then only pages that the journal's record lists have entries.
    let medium = open_many(&replayed);
    replayed.make_bad(SECOND_CHECKSUM_PAGE, false);
    assert_eq!(read(&medium, 1026).expect("it was recorded"), 0x0909_0909_0909_0909);
    assert!(matches!(read(&medium, 1024), Err(Fault::Checksum { .. })));
    assert_eq!(scrubbed(&medium), [1024].into_iter().chain(1027..2048).collect::<Vec<_>>());
}

#[test]
fn unreadable_checksum_page_is_written_anew() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    disk.make_bad(SECOND_CHECKSUM_PAGE, true);
    let again = open_many(&disk);
    take(&again, 1025..1027, 9);
    again.checkpoint().expect("drained");
    disk.make_bad(SECOND_CHECKSUM_PAGE, false);
    let lost = [1024].into_iter().chain(1027..2048).collect::<Vec<_>>();
    assert_eq!((scrubbed(&again), scrubbed(&open_many(&disk))), (lost.clone(), lost));
    drop(medium);
}

/// A drain replays the journal, because its record overflows, and stores the checksums of the pages from 1100
/// to 1499. Memory has the other entries of the unreadable checksum page.
#[test]
fn replay_by_a_drain_keeps_known_entries_of_an_unreadable_checksum_page() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    assert_eq!(read(&medium, 1024).expect("it matches"), 0);
    disk.make_bad(SECOND_CHECKSUM_PAGE, true);
    {
        let _gate = medium.enter_with(|| u64::MAX).expect("open");
        medium.lend(addr(2050 * 4096), 450 * 4096).expect("in range");
        for page in 1100..1500 {
            let bytes: Vec<u8> = (0..4096).map(|at| (at % 251) as u8 + 1).collect();
            let _ = medium.barrier(medium.write(addr(page * 4096), &bytes).expect("in range"));
        }
    }
    medium.drain().expect("drained");
    disk.make_bad(SECOND_CHECKSUM_PAGE, false);
    // The lent pages are free, and may have any bytes.
    assert!(scrubbed(&open_many(&disk)).iter().all(|page| *page >= 2050));
}

/// The entry of page 100 is in the first checksum page, which lies after the two superblocks.
#[test]
fn damaged_entry_is_an_error_of_its_page() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    set(&medium, 100 * 4096, 7);
    medium.checkpoint().expect("drained");
    let at = 2 * 4096 + 100 * 4;
    assert_ne!(disk.snapshot()[at..at + 4], [0; 4], "the entry is there");
    assert_damaged(&damaged(&disk, at), 100, &EDGES);
}

#[test]
fn superblocks_are_at_the_start_and_have_no_entry() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    set(&medium, 0, 5);
    set(&medium, 4096, 6);
    medium.checkpoint().expect("drained");
    let bytes = disk.snapshot();
    assert_eq!((bytes[0], bytes[4096]), (5, 6));
    assert_eq!(scrubbed(&open_many(&damaged(&disk, 100))), []);
}

/// The journal has one line of a page, and the disk damages another line. The replay must not give the
/// damaged page a checksum that matches the damage.
#[test]
fn replay_keeps_damage_visible() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    set(&medium, 9 * 4096, 7);
    medium.checkpoint().expect("drained");
    let place = place_of(&disk, 7);
    set(&medium, 9 * 4096 + 64, 8);
    medium.drain().expect("drained");
    let after = open_many(&disk.power_failure(|| false));
    assert_eq!((scrubbed(&after), word(&after, 9 * 4096 + 64)), (vec![], 8));
    assert_damaged(&damaged(&disk.power_failure(|| false), place + 200), 9, &EDGES);
}

/// The test drains fresh pages in small and in large cuts, changed pages, and a cut whose record is larger
/// than the journal.
#[test]
fn every_way_to_the_disk_keeps_checksums() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    let mut value = 0;
    let mut check = |medium: &Medium| {
        value += 1;
        assert_eq!(scrubbed(medium), [], "cut {value}");
        let after = open_many(&disk.power_failure(|| false));
        assert_eq!(scrubbed(&after), [], "after a failure of power, cut {value}");
        assert!((2..MANY).all(|page| read(&after, page).is_ok()));
    };
    take(&medium, 2..4, 1);
    medium.drain().expect("drained");
    check(&medium);
    (4..1400).step_by(349).for_each(|start| take(&medium, start..start + 349, 2));
    medium.drain().expect("drained");
    check(&medium);
    (2..1400).for_each(|page| set(&medium, page * 4096 + 512, page));
    medium.drain().expect("drained");
    check(&medium);
    {
        let _gate = medium.enter_with(|| u64::MAX).expect("open");
        medium.lend(addr(2000 * 4096), 450 * 4096).expect("in range");
        for page in 2..400 {
            let bytes: Vec<u8> = (0..4096).map(|at| (at % 251) as u8 + 1).collect();
            let _ = medium.barrier(medium.write(addr(page * 4096), &bytes).expect("in range"));
        }
    }
    medium.drain().expect("drained");
    // The pages that were lent to the record for its overflow are free, and may have any bytes.
    let lent = |page: &u64| (2000..2450).contains(page);
    assert!(scrubbed(&medium).iter().all(lent));
    let after = open_many(&disk.power_failure(|| false));
    assert!(scrubbed(&after).iter().all(lent));
    assert!((2..2000).all(|page| read(&after, page).is_ok()));
    medium.checkpoint().expect("drained");
    assert!(scrubbed(&medium).iter().all(lent));
    (2000..2450).step_by(225).for_each(|start| take(&medium, start..start + 225, 3));
    medium.checkpoint().expect("drained");
    check(&medium);
}

/// A fresh page gets a checksum although no Op has stored to it, so it can be read after a power failure.
#[test]
fn fresh_page_without_stores_can_be_read_again() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    take(&medium, 30..31, 9);
    medium.checkpoint().expect("drained");
    let _ = medium.mark_freed(addr(30 * 4096), 4096);
    medium.drain().expect("drained");
    {
        let _gate = medium.enter().expect("open");
        medium.mark_allocated(addr(30 * 4096), 4096).expect("in range");
    }
    medium.drain().expect("drained");
    set(&open_many(&disk.power_failure(|| false)), 30 * 4096 + 64, 1);
}

#[test]
fn damaged_page_can_be_allocated_again() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    set(&medium, 50 * 4096, 77);
    medium.checkpoint().expect("drained");
    let disk = damaged(&disk, place_of(&disk, 77));
    let medium = open_many(&disk);
    read(&medium, 50).expect_err("damaged");
    take(&medium, 50..51, 3);
    medium.checkpoint().expect("drained");
    assert_eq!(scrubbed(&open_many(&disk)), []);
}

/// Each disk has a journal that an open accepts. The largest journal has 64 MiB. On some disks with
/// checksums, such as those of 4156 and 8256 MiB, a journal in all pages that the largest volume leaves would
/// be one page larger.
#[test]
fn volume_fits_a_disk_of_any_size() {
    let sizes = (0..3000).map(|page| (4 << 20) + page * 4096);
    let larger = (0..3000).map(|page| (4150 << 20) + page * 4096);
    for disk in sizes.chain(larger).chain([4156 << 20, 8256 << 20]) {
        for checksums in [false, true] {
            let volume = Medium::volume_bytes_on(disk, checksums);
            let journal = disk - 4096 - Medium::place_bytes(volume, checksums);
            assert!(((1 << 20) - 4096..=64 << 20).contains(&journal), "{disk}: {journal}");
        }
    }
}

#[test]
fn volume_without_a_journal_is_read_with_little_memory() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    (2..MANY).for_each(|page| set(&medium, page * 4096, page | 1 << 40));
    medium.checkpoint().expect("drained");
    let kept = 2000 * 4096;
    let disk = SimulatedDisk::holding(&disk.snapshot()[..kept]);
    let options = PagedOptions::new(PagedOptions::MIN_MEMORY_BYTES, Duration::from_millis(1));
    let left = Medium::most_volume_bytes(kept as u64, true);
    let medium = Medium::paged_without_journal(Arc::new(disk), left, true, options).expect("memory");
    for page in 2..left / 4096 {
        assert_eq!(read(&medium, page).expect("sound"), page | 1 << 40);
        std::thread::sleep(Duration::from_micros(20));
    }
    medium.drain().expect("there is nothing to drain");
    let limit = 2 * PagedOptions::MIN_MEMORY_BYTES;
    assert!(medium.resident_bytes().is_some_and(|bytes| bytes <= limit), "{:?}", medium.resident_bytes());
    let _gate = medium.enter().expect("reads only");
    let stored = medium.write_word(addr(100 * 4096), 1);
    assert!(matches!(stored, Err(Fault::OpTooLarge { .. })));
}

#[test]
fn scrub_finds_unreadable_pages() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    set(&medium, 1500 * 4096, 78);
    medium.checkpoint().expect("drained");
    disk.make_bad((place_of(&disk, 78) / 4096) as u64, true);
    assert_eq!(scrubbed(&medium), [1500]);
}

/// A change that is only in memory or in the journal is no damage.
#[test]
fn scrub_leaves_out_pages_whose_newest_bytes_are_elsewhere() {
    let disk = checked_disk();
    let medium = open_many(&disk);
    set(&medium, 60 * 4096, 1);
    medium.drain().expect("drained");
    set(&medium, 61 * 4096, 1);
    take(&medium, 62..63, 1);
    assert_eq!(scrubbed(&medium), []);
}
