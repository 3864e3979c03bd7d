//! Tests of read-ahead for sequential readers.

use super::*;

/// Makes a volume of which no page is in memory. Each page begins with its number plus one.
fn numbered() -> (SimulatedDisk, Medium) {
    let disk = disk();
    let medium = open(&disk);
    (0..PAGES).for_each(|page| set(&medium, page * 4096, page + 1));
    medium.checkpoint().expect("drained");
    drop(medium);
    let medium = Medium::paged(Arc::new(disk.clone()), options(16 * PAGES)).expect("sound");
    (disk, medium)
}

fn resident(medium: &Medium) -> u64 {
    medium.resident_bytes().expect("it is paged") / 4096
}

/// Reads pages with one call, and checks their numbers.
fn read(medium: &Medium, pages: std::ops::Range<u64>) -> Result<(), Fault> {
    let _pin = pin();
    let mut bytes = vec![0; ((pages.end - pages.start) * 4096) as usize];
    medium.read(addr(pages.start * 4096), &mut bytes)?;
    for (page, bytes) in pages.zip(bytes.chunks(4096)) {
        assert_eq!(bytes[..8], (page + 1).to_le_bytes(), "page {page}");
    }
    Ok(())
}

#[test]
fn pages_arrive_before_a_sequential_reader_needs_them() {
    let (_, medium) = numbered();
    let deadline = Instant::now() + Duration::from_secs(60);
    for step in 0..8 {
        read(&medium, step * 16..step * 16 + 16).expect("sound");
    }
    // The reader has used 128 pages. At least 64 further pages arrive although the reader does not read them.
    while resident(&medium) < 8 * 16 + 64 {
        assert!(Instant::now() < deadline, "only {} pages came", resident(&medium));
        std::thread::yield_now();
    }
    for step in 8..PAGES / 16 {
        read(&medium, step * 16..step * 16 + 16).expect("sound");
    }
    assert_eq!(resident(&medium), PAGES);
}

#[test]
fn concurrent_readers_find_their_pages() {
    let (_, medium) = numbered();
    std::thread::scope(|scope| {
        for from in [0, PAGES / 4, PAGES / 2] {
            let medium = &medium;
            scope.spawn(move || (from..PAGES).for_each(|page| read(medium, page..page + 1).expect("sound")));
        }
    });
    assert_eq!(resident(&medium), PAGES);
}

#[test]
fn random_reader_gets_no_read_ahead() {
    let (_, medium) = numbered();
    let before = resident(&medium);
    let mut choices = SplitMix64(7);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        // Two such pages are never neighbours.
        let page = choices.below(PAGES / 3) * 3 + 1;
        if seen.insert(page) {
            read(&medium, page..page + 1).expect("sound");
        }
    }
    assert_eq!(resident(&medium), before + seen.len() as u64);
}

#[test]
fn bad_page_fails_its_own_reader_only() {
    let (disk, medium) = numbered();
    disk.make_bad(300, true);
    for page in 0..PAGES {
        assert_eq!(read(&medium, page..page + 1).is_err(), page == 300, "page {page}");
    }
    disk.make_bad(300, false);
    read(&medium, 300..301).expect("it can be read again");
}
