use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use eyrie_faults::SplitMix64;
use rustix::fs::MemfdFlags;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::layout::{MAX_JOURNAL_BYTES, PAGE, RECORD_MAGIC, WORD};
use super::*;
use crate::addr::PAGE_SIZE;
use crate::paged::blocks::{Blocks, FileBlocks};
use crate::paged::buffer::{PageBytes, page_buffer};
use crate::paged::checksums::Checksums;

const PAGES: u64 = 16;
const JOURNAL: u64 = 32 * PAGE_SIZE;
const ID: [u8; 16] = [7; 16];

/// A generator of random numbers, many of which are edge cases.
struct Odd(SplitMix64);

impl Odd {
    fn edge(&mut self) -> u64 {
        let edges = [0, 1, 2, PAGES - 1, PAGES, PAGE_SIZE, JOURNAL, 1 << 32, u64::MAX - 4095, u64::MAX];
        if self.0.below(4) == 0 { self.0.next() } else { edges[self.0.below(edges.len() as u64) as usize] }
    }
}

impl CutRecord {
    /// Returns the encoded record in whole pages.
    fn seal_whole(&self, sequence: u64) -> Vec<PageBytes> {
        self.seal(ID, sequence, self.bytes(PAGE_SIZE), &[])
    }
}

/// Makes a disk in memory.
fn disk_of(bytes: u64) -> FileBlocks {
    let file = rustix::fs::memfd_create(c"disk", MemfdFlags::CLOEXEC).map(File::from).expect("memory");
    file.set_len(bytes).expect("memory");
    FileBlocks::new(file)
}

/// Makes a volume with an empty journal. Each page is filled with its number plus one.
fn volume() -> (FileBlocks, Anchor) {
    volume_with(false)
}

/// Works like [`volume`], with or without checksums of the pages.
fn volume_with(checksums: bool) -> (FileBlocks, Anchor) {
    let anchor = Anchor::new(ID, PAGES * PAGE_SIZE, JOURNAL, checksums);
    let disk = disk_of(anchor.journal_start() + JOURNAL + PAGE_SIZE);
    for page in 0..PAGES as usize {
        disk.write(anchor.places().offset(page), &[page as u8 + 1; PAGE]).expect("room");
    }
    anchor.write_page(&disk).expect("room");
    (disk, anchor)
}

fn volume_bytes(disk: &FileBlocks) -> Vec<u8> {
    let mut bytes = vec![0; PAGES as usize * PAGE];
    disk.read(0, &mut bytes).expect("there");
    bytes
}

/// Makes the checksum of a record right, and changes nothing else.
fn bless(record: &mut [PageBytes]) {
    let bytes = record.as_mut_bytes();
    let (mut head, _) = RecordHead::read_from_prefix(bytes).expect("a page");
    head.checksum = 0;
    bytes[..size_of::<RecordHead>()].copy_from_slice(head.as_bytes());
    head.checksum = crc32c::crc32c(bytes);
    bytes[..size_of::<RecordHead>()].copy_from_slice(head.as_bytes());
}

fn head(bytes: u64, fresh: u32, changed: u32) -> RecordHead {
    let (magic, id) = (RECORD_MAGIC, ID);
    RecordHead { magic, id, sequence: 1, bytes, fresh, changed, ..RecordHead::new_zeroed() }
}

/// Makes a record of `pages` pages: this head, then these words, and a right checksum.
fn forged(head: RecordHead, words: &[u64], pages: usize) -> Vec<PageBytes> {
    let mut record = page_buffer(pages * PAGE);
    let bytes = record.as_mut_bytes();
    bytes[..size_of::<RecordHead>()].copy_from_slice(head.as_bytes());
    bytes[size_of::<RecordHead>()..][..words.len() * 8].copy_from_slice(words.as_bytes());
    bless(&mut record);
    record
}

/// Makes a volume, writes `record` at the start of its journal, and replays the journal.
fn replayed(record: &[PageBytes]) -> FileBlocks {
    replayed_on(volume(), record)
}

fn replayed_on((disk, anchor): (FileBlocks, Anchor), record: &[PageBytes]) -> FileBlocks {
    disk.write(anchor.journal_start(), record.as_bytes()).expect("room");
    replay(&disk, &anchor).expect("the disk is sound");
    disk
}

#[test]
fn replay_changes_the_recorded_lines_only() {
    let mut record = CutRecord::default();
    record.changed(3, 0b10, &[0xee; PAGE]);
    let disk = replayed(&record.seal_whole(1));
    let mut expected = volume_bytes(&volume().0);
    expected[3 * PAGE + 64..3 * PAGE + 128].fill(0xee);
    assert!(volume_bytes(&disk) == expected);
}

#[test]
fn packed_lines_survive_a_replay() {
    let mut page = [0; PAGE];
    page[64..72].fill(1);
    page[120..128].fill(2);
    page[192..256].fill(3);
    let mut record = CutRecord::default();
    record.changed(3, 0b1111, &page);
    // The record has four lines: two of zeros, one with two words that are not zero, and a full one.
    assert_eq!(record.changed.len(), size_of::<ChangedPage>() + 4 + 2 * WORD + 8 * WORD);
    let disk = replayed(&record.seal_whole(1));
    let mut expected = volume_bytes(&volume().0);
    expected[3 * PAGE..][..256].copy_from_slice(&page[..256]);
    assert!(volume_bytes(&disk) == expected);
}

#[test]
fn impossible_record_is_ignored() {
    let page = PAGE_SIZE;
    let one = 1 << 1;
    let many = [&[0][..], &[u64::MAX; 501]].concat();
    let cases: [(&str, RecordHead, &[u64]); 13] = [
        ("no bytes", head(0, 0, 1), &[0, one]),
        ("less than a sector", head(64, 0, 1), &[0, one]),
        ("no whole sectors", head(page + 8, 0, 1), &[0, one]),
        ("longer than the journal", head(JOURNAL + page, 0, 1), &[0, one]),
        ("longer than any number", head(u64::MAX - 4095, 0, 1), &[0, one]),
        ("more fresh pages than bytes", head(page, u32::MAX, 0), &[]),
        ("more changed pages than bytes", head(page, 0, u32::MAX), &[0, one]),
        ("more lines than bytes", head(page, 0, 1), &many),
        ("a changed page outside", head(page, 0, 1), &[PAGES, one]),
        ("a changed page far outside", head(page, 0, 1), &[u64::MAX, one]),
        ("a fresh page outside", head(page, 1, 1), &[PAGES, 0, 0, one]),
        ("a fresh page where numbers overflow", head(page, 1, 1), &[1 << 52, 0, 0, one]),
        ("another sequence number", RecordHead { sequence: 2, ..head(page, 0, 1) }, &[0, one]),
    ];
    let before = volume_bytes(&volume().0);
    for (what, head, words) in cases {
        assert!(volume_bytes(&replayed(&forged(head, words, 1))) == before, "{what}");
    }
    // The same record without any of these errors is valid.
    assert!(volume_bytes(&replayed(&forged(head(page, 0, 1), &[0, one], 1))) != before);
}

#[test]
fn torn_record_ends_the_journal() {
    let mut long = CutRecord::default();
    (0..3).for_each(|page| long.changed(page, u64::MAX, &[0xee; PAGE]));
    let mut short = CutRecord::default();
    short.changed(9, 1, &[0xdd; PAGE]);
    let sealed = [long.seal_whole(1), short.seal_whole(2)].concat();
    let before = volume_bytes(&volume().0);
    for lost in 0..long.bytes(PAGE_SIZE) as usize / PAGE {
        let mut torn = sealed.clone();
        torn[lost] = PageBytes([0; PAGE]);
        assert!(volume_bytes(&replayed(&torn)) == before, "without page {lost}");
    }
}

/// Makes a volume with one record, which is larger than the journal and overflows. Returns the volume, and
/// the bytes that a replay leaves. The pages 12 to 15 are lent to the record.
fn overflowing() -> (FileBlocks, Anchor, Vec<u8>) {
    const SMALL_JOURNAL: u64 = 2 * PAGE_SIZE;
    let disk = disk_of(PAGES * PAGE_SIZE + SMALL_JOURNAL + PAGE_SIZE);
    let anchor = Anchor::new(ID, PAGES * PAGE_SIZE, SMALL_JOURNAL, false);
    let mut record = CutRecord::default();
    let mut expected = volume_bytes(&disk);
    for page in 0..4 {
        let bytes = [page as u8 + 1; PAGE];
        record.changed(page, u64::MAX, &bytes);
        expected[page * PAGE..][..PAGE].copy_from_slice(&bytes);
    }
    let overflow = record.overflow(SMALL_JOURNAL, 12..16).expect("enough pages");
    assert_eq!(
        overflow.iter().map(|(page, _)| *page).collect::<Vec<_>>(),
        [12, 13, 14],
        "as few as possible"
    );
    for (page, contents) in &overflow {
        disk.write(*page as u64 * PAGE_SIZE, &contents.0).expect("room");
        expected[page * PAGE..][..PAGE].copy_from_slice(&contents.0);
    }
    let sealed = record.seal(ID, 1, SMALL_JOURNAL, &overflow);
    disk.write(anchor.volume_bytes, sealed.as_bytes()).expect("room");
    (disk, anchor, expected)
}

#[test]
fn record_larger_than_the_journal_is_replayed() {
    let (disk, anchor, expected) = overflowing();
    for _ in 0..2 {
        replay(&disk, &anchor).expect("the disk is sound");
        assert!(volume_bytes(&disk) == expected);
    }
}

#[test]
fn torn_overflow_voids_its_record() {
    for page in 12..15 {
        let (disk, anchor, _) = overflowing();
        disk.write(page * PAGE_SIZE + 512, &[0x55; 512]).expect("room");
        let before = volume_bytes(&disk);
        replay(&disk, &anchor).expect("the disk is sound");
        assert!(volume_bytes(&disk) == before, "page {page}");
    }
}

/// Returns the volume after the replay of two records: one that lists this overflow, and one without any.
fn replayed_after_an_overflow(overflow: &[usize]) -> Vec<u8> {
    let mut records = [CutRecord::default(), CutRecord::default()];
    records[0].changed(3, 1, &[0xee; PAGE]);
    records[1].changed(4, 1, &[0xee; PAGE]);
    // The whole body of the first record is in the journal. Each page is filled with its number plus one.
    let overflow: Vec<_> = overflow.iter().map(|&page| (page, PageBytes([page as u8 + 1; PAGE]))).collect();
    let sealed = [records[0].seal(ID, 1, PAGE_SIZE, &overflow), records[1].seal_whole(2)].concat();
    volume_bytes(&replayed(&sealed))
}

#[test]
fn journal_ends_with_a_record_that_overflows() {
    let changed = |bytes: &[u8]| [3, 4].map(|page| bytes[page * PAGE] == 0xee);
    assert_eq!(changed(&replayed_after_an_overflow(&[])), [true, true]);
    assert_eq!(changed(&replayed_after_an_overflow(&[12, 13])), [true, false]);
}

/// Without this check, a small journal could name one page any number of times, and a replay would take a
/// page of memory each time.
#[test]
fn overflow_with_a_page_twice_voids_its_record() {
    assert!(replayed_after_an_overflow(&[12, 13, 12]) == volume_bytes(&volume().0));
}

#[test]
fn record_without_enough_lent_pages_is_known() {
    let mut record = CutRecord::default();
    (0..4).for_each(|page| record.changed(page, u64::MAX, &[1; PAGE]));
    assert!(record.overflow(2 * PAGE_SIZE, 12..14).is_none());
    assert_eq!(record.overflow(8 * PAGE_SIZE, 12..14).map(|pages| pages.len()), Some(0));
}

/// A disk that counts its reads, its writes, and the calls that write.
struct CountedDisk {
    disk: FileBlocks,
    reads: AtomicUsize,
    writes: AtomicUsize,
    batches: AtomicUsize,
}

impl CountedDisk {
    fn new(disk: FileBlocks) -> CountedDisk {
        let count = AtomicUsize::default;
        CountedDisk { disk, reads: count(), writes: count(), batches: count() }
    }

    /// Returns the three counts.
    fn calls(&self) -> [usize; 3] {
        [&self.reads, &self.writes, &self.batches].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Blocks for CountedDisk {
    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }

    fn sector(&self) -> u64 {
        self.disk.sector()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all(&[(offset, data)])
    }

    fn write_all(&self, ranges: &[(u64, &[u8])]) -> io::Result<()> {
        self.writes.fetch_add(ranges.len(), Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.disk.write_all(ranges)
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

#[test]
fn replay_reads_and_writes_neighbours_together() {
    let (disk, anchor) = volume();
    let mut records = [CutRecord::default(), CutRecord::default()];
    for page in (0..14).filter(|page| *page != 9) {
        records[page % 2].changed(page, 0b11, &[0xee; PAGE]);
    }
    records[1].changed(0, 0b10, &[0xdd; PAGE]);
    for page in [14, 15] {
        records[1].fresh(page, &[page as u8 + 1; PAGE]);
    }
    let sealed = [records[0].seal_whole(1), records[1].seal_whole(2)].concat();
    disk.write(anchor.journal_start(), sealed.as_bytes()).expect("room");
    let mut expected = volume_bytes(&disk);
    for page in (0..14).filter(|page| *page != 9) {
        expected[page * PAGE..][..128].fill(0xee);
    }
    expected[64..128].fill(0xdd);
    let counted = CountedDisk::new(disk);
    replay(&counted, &anchor).expect("the disk is sound");
    assert!(volume_bytes(&counted.disk) == expected);
    // One read is of the journal, one of the fresh pages, and two of the pages on both sides of page 9.
    assert_eq!(counted.calls(), [4, 2, 1]);
}

#[test]
fn replay_writes_many_checksum_pages_at_once() {
    const CHUNKS: u64 = 5;
    const CHUNK: u64 = PAGE_SIZE / 4;
    let anchor = Anchor::new(ID, CHUNKS * CHUNK * PAGE_SIZE, JOURNAL, true);
    let disk = disk_of(anchor.journal_start() + JOURNAL + PAGE_SIZE);
    let mut record = CutRecord::new(true);
    let pages = (0..CHUNKS).map(|chunk| (chunk * CHUNK + 7) as usize);
    pages.clone().for_each(|page| record.changed(page, 1, &[page as u8; PAGE]));
    disk.write(anchor.journal_start(), record.seal_whole(1).as_bytes()).expect("room");
    let counted = CountedDisk::new(disk);
    replay(&counted, &anchor).expect("the disk is sound");
    // The journal, the pages and the checksum pages are read. The pages and the checksum pages are written.
    assert_eq!(counted.calls(), [1 + 2 * CHUNKS as usize, 2 * CHUNKS as usize, 2]);
    let checksums = Checksums::new(anchor.places()).expect("memory");
    for page in pages {
        checksums.load(&counted, page);
        assert!(checksums.is_right(page, &[page as u8; PAGE]), "page {page}");
    }
}

/// The replay takes the checksums from the records. If several records have a checksum of one page, the
/// replay takes the last one.
#[test]
fn replay_stores_the_checksums_of_the_records() {
    let (disk, anchor) = volume_with(true);
    let mut record = CutRecord::new(true);
    record.changed(3, 1, &[0xee; PAGE]);
    record.changed(4, 1, &[0xdd; PAGE]);
    disk.write(anchor.journal_start(), record.seal_whole(1).as_bytes()).expect("room");
    let mut later = CutRecord::new(true);
    later.changed(3, 2, &[0xcc; PAGE]);
    disk.write(anchor.journal_start() + PAGE_SIZE, later.seal_whole(2).as_bytes()).expect("room");
    replay(&disk, &anchor).expect("the disk is sound");
    let checksums = Checksums::new(anchor.places()).expect("memory");
    checksums.load(&disk, 3);
    assert!(checksums.is_right(3, &[0xcc; PAGE]) && !checksums.is_right(3, &[0xee; PAGE]));
    assert!(checksums.is_right(4, &[0xdd; PAGE]) && !checksums.is_right(5, &[0; PAGE]));
}

/// A replay of any journal must not panic, and a second replay must change no byte.
#[test]
fn hostile_journals_do_no_harm() {
    for seed in 0..4000 {
        let mut odd = Odd(SplitMix64(seed));
        let pages = 1 + odd.0.below(4) as usize;
        let words: Vec<u64> = (0..64 * pages).map(|_| odd.edge()).collect();
        let mut head = head(pages as u64 * PAGE_SIZE, odd.edge() as u32, odd.edge() as u32);
        head.overflow = if odd.0.below(4) == 0 { odd.edge() as u32 } else { 0 };
        if odd.0.below(8) == 0 {
            (head.bytes, head.sequence) = (odd.edge(), odd.edge());
        }
        let mut record = forged(head, &words, pages);
        if odd.0.below(4) == 0 {
            let noise: Vec<u64> = (0..pages * PAGE / 8).map(|_| odd.0.next()).collect();
            record.as_mut_bytes().copy_from_slice(noise.as_bytes());
        }
        let checksums = seed % 2 == 1;
        let disk = replayed_on(volume_with(checksums), &record);
        let once = volume_bytes(&disk);
        replay(&disk, &volume_with(checksums).1).expect("the disk is sound");
        assert!(volume_bytes(&disk) == once, "seed {seed}");
    }
}

#[test]
fn anchor_that_contradicts_the_disk_is_refused() {
    let (disk, sound) = volume();
    let found = |disk: &FileBlocks| Anchor::read(disk).expect("the disk is sound");
    assert_eq!(found(&disk), Some(sound));
    let last = PAGES * PAGE_SIZE + JOURNAL;
    for (volume_bytes, journal_bytes, checksums) in [
        (PAGES * PAGE_SIZE, JOURNAL + PAGE_SIZE, false),
        (PAGES * PAGE_SIZE - PAGE_SIZE, JOURNAL, false),
        (0, last, false),
        (u64::MAX - 4095, last + PAGE_SIZE, false),
        (last - 64, 64, false),
        (u64::MAX, u64::MAX, false),
        // A checksum page takes room, too, and comes after two other pages.
        (PAGES * PAGE_SIZE, JOURNAL, true),
        (2 * PAGE_SIZE, last - 3 * PAGE_SIZE, true),
        (u64::MAX - 4095, last, true),
    ] {
        let forged = Anchor::new(ID, volume_bytes, journal_bytes, checksums);
        let mut page = page_buffer(PAGE);
        page.as_mut_bytes()[..64].copy_from_slice(forged.as_bytes());
        disk.write(last, page.as_bytes()).expect("room");
        assert_eq!(found(&disk), None, "{volume_bytes} and {journal_bytes} bytes");
    }
    for damaged in [Anchor { version: 4, ..sound }, Anchor { checksum: !sound.checksum, ..sound }] {
        let mut page = page_buffer(PAGE);
        page.as_mut_bytes()[..64].copy_from_slice(damaged.as_bytes());
        disk.write(last, page.as_bytes()).expect("room");
        assert_eq!(found(&disk), None, "{damaged:?}");
    }
    // Replay reads a record as a whole, so a very large journal could make replay allocate any amount of
    // memory.
    let journal = MAX_JOURNAL_BYTES + PAGE_SIZE;
    let disk = disk_of(journal + 2 * PAGE_SIZE);
    Anchor::new(ID, PAGE_SIZE, journal, false).write_page(&disk).expect("room");
    assert_eq!(found(&disk), None);
    // An address has 40 bits of offset, so a volume has at most 1 TiB.
    for (volume_bytes, fits) in [(1 << 40, true), ((1 << 40) + PAGE_SIZE, false)] {
        let disk = disk_of(volume_bytes + JOURNAL + PAGE_SIZE);
        Anchor::new(ID, volume_bytes, JOURNAL, false).write_page(&disk).expect("room");
        assert_eq!(found(&disk).is_some(), fits);
    }
}

#[test]
fn replay_leaves_fresh_pages_of_the_next_record() {
    let (disk, anchor) = volume();
    let mut old = CutRecord::default();
    old.changed(3, 1, &[0xee; PAGE]);
    old.changed(4, 1, &[0xee; PAGE]);
    disk.write(anchor.volume_bytes, old.seal_whole(1).as_bytes()).expect("room");
    let mut next = CutRecord::default();
    disk.write(3 * PAGE_SIZE, &[0xdd; PAGE]).expect("room");
    next.fresh(3, &[0xdd; PAGE]);
    let checksums = Checksums::new(anchor.places()).expect("memory");
    replay_own(&disk, &anchor, 2, &next, &checksums).expect_err("one record is missing");
    let written = replay_own(&disk, &anchor, 1, &next, &checksums).expect("the disk is sound");
    assert_eq!(written, PAGE_SIZE, "only page 4 is written");
    let after = volume_bytes(&disk);
    assert!(after[3 * PAGE..4 * PAGE] == [0xdd; PAGE] && after[4 * PAGE..4 * PAGE + 64] == [0xee; 64]);
}

/// This process has flushed its records, so a fresh page that does not match is damaged and not torn.
#[test]
fn replay_of_own_records_keeps_one_with_a_damaged_fresh_page() {
    let (disk, anchor) = volume();
    let mut record = CutRecord::default();
    record.fresh(3, &[0xdd; PAGE]);
    record.changed(4, 1, &[0xee; PAGE]);
    disk.write(anchor.volume_bytes, record.seal_whole(1).as_bytes()).expect("room");
    replay(&disk, &anchor).expect("the disk is sound");
    assert_eq!(volume_bytes(&disk)[4 * PAGE], 5, "another process may have been killed in the write");
    let checksums = Checksums::new(anchor.places()).expect("memory");
    replay_own(&disk, &anchor, 1, &CutRecord::default(), &checksums).expect("the disk is sound");
    assert_eq!(volume_bytes(&disk)[4 * PAGE], 0xee);
}
