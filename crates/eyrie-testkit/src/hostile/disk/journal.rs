//! Finds the journal's structures on a disk, as `docs/format.md` describes them.

use std::mem::offset_of;

use eyrie_medium::{Anchor, ChangedPage, FreshPage, PAGE_SIZE, RecordHead, SECTOR};

const RECORD_MAGIC: &[u8] = b"EyrCut\0\0";

/// Places of the journal's structures on a disk, as offsets in bytes.
#[derive(Clone, Default, Debug)]
pub(super) struct Journal {
    /// The anchor.
    pub anchor: u64,
    /// Offset and length of each record.
    pub records: Vec<(u64, u64)>,
    /// Entries of fresh pages in the records.
    pub fresh: Vec<u64>,
    /// Entries of changed pages in the records.
    pub changed: Vec<u64>,
    /// The checksum pages.
    pub checksums: Vec<u64>,
}

/// Returns the number in four bytes, or zero if one of the bytes is past the end of the disk.
pub(super) fn half(disk: &[u8], at: u64) -> u32 {
    let bytes = usize::try_from(at).ok().and_then(|at| disk.get(at..)?.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Returns the number in eight bytes. Each half of four bytes counts as zero if one of its bytes is past
/// the end of the disk.
pub(super) fn word(disk: &[u8], at: u64) -> u64 {
    u64::from(half(disk, at)) | u64::from(half(disk, at.saturating_add(4))) << 32
}

/// Overwrites bytes. Bytes past the end of the disk are ignored.
pub(super) fn put(disk: &mut [u8], at: u64, bytes: &[u8]) {
    let start = disk.len().min(usize::try_from(at).unwrap_or(usize::MAX));
    let room = &mut disk[start..];
    let len = room.len().min(bytes.len());
    room[..len].copy_from_slice(&bytes[..len]);
}

/// Returns the offset of the anchor: the last whole page.
pub(super) fn anchor(disk: &[u8]) -> u64 {
    (disk.len() as u64 / PAGE_SIZE).saturating_sub(1) * PAGE_SIZE
}

/// Returns the size of the volume according to the anchor.
pub(super) fn volume_bytes(disk: &[u8]) -> u64 {
    word(disk, anchor(disk) + offset_of!(Anchor, volume_bytes) as u64)
}

/// Number of pages whose checksums fill one page.
const COVERED_PAGES: u64 = PAGE_SIZE / 4;
/// The version of a journal whose volume has checksums of its pages.
const VERSION_WITH_CHECKSUMS: u32 = 3;

/// True if the pages of the volume have checksums, according to the anchor.
pub(super) fn has_checksums(disk: &[u8]) -> bool {
    half(disk, anchor(disk) + offset_of!(Anchor, version) as u64) == VERSION_WITH_CHECKSUMS
}

/// Returns the offset on the disk of a byte of a volume with or without checksums. With checksums, a checksum
/// page comes before each [`COVERED_PAGES`] pages. Pages 0 and 1 of the volume are an exception: they come
/// before the first checksum page.
pub(super) fn place(checksums: bool, at: u64) -> u64 {
    let page = at / PAGE_SIZE;
    let before = if checksums && page >= 2 { page / COVERED_PAGES + 1 } else { 0 };
    at.saturating_add(before * PAGE_SIZE)
}

/// Returns the offset of the checksum of a page in the checksum pages.
pub(super) fn entry_of(page: u64) -> u64 {
    let checksum_page = if page < COVERED_PAGES { 2 } else { page / COVERED_PAGES * (COVERED_PAGES + 1) };
    checksum_page * PAGE_SIZE + page % COVERED_PAGES * 4
}

/// Returns the offset of the journal of a volume of `volume_bytes`.
pub(super) fn start(volume_bytes: u64, checksums: bool) -> u64 {
    let checksum_pages = if checksums { (volume_bytes / PAGE_SIZE).div_ceil(COVERED_PAGES) } else { 0 };
    volume_bytes.saturating_add(checksum_pages * PAGE_SIZE)
}

/// Returns the offset of the journal according to the anchor.
fn own_start(disk: &[u8]) -> u64 {
    start(volume_bytes(disk), has_checksums(disk))
}

/// Makes the checksums of these pages valid, on a disk with checksums. Ignores pages past the end of the
/// disk, and pages 0 and 1, which have no entry. A crc32c of 0 is stored as 1, because an entry of 0 matches
/// no page.
pub(super) fn mend_pages(disk: &mut [u8], pages: impl Iterator<Item = u64>) {
    for page in pages.filter(|&page| page >= 2) {
        let at = place(true, page * PAGE_SIZE) as usize;
        if let Some(bytes) = disk.get(at..at + PAGE_SIZE as usize) {
            let sum = crc32c::crc32c(bytes).max(1);
            put(disk, entry_of(page), &sum.to_le_bytes());
        }
    }
}

/// Overwrites bytes of a volume with or without checksums. Bytes past the end of the disk are ignored.
pub(super) fn put_in_volume(disk: &mut [u8], checksums: bool, mut at: u64, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (part, rest) = bytes.split_at(bytes.len().min((PAGE_SIZE - at % PAGE_SIZE) as usize));
        put(disk, place(checksums, at), part);
        (at, bytes) = (at.saturating_add(part.len() as u64), rest);
    }
}

/// Returns the offset and length of each record that a reader of the journal reaches: the first record is at
/// the start of the journal, and each other record directly follows the one before it. The records may be
/// damaged.
pub(super) fn records(disk: &[u8]) -> Vec<(u64, u64)> {
    let (mut at, mut found) = (own_start(disk), Vec::new());
    let record_at = |at: u64| {
        let start = usize::try_from(at).ok().filter(|&start| start < disk.len())?;
        let bytes = word(disk, at + offset_of!(RecordHead, bytes) as u64);
        let fits = bytes >= SECTOR && at.checked_add(bytes).is_some_and(|end| end <= disk.len() as u64);
        (disk[start..].starts_with(RECORD_MAGIC) && fits).then_some(bytes)
    };
    while let Some(bytes) = record_at(at) {
        found.push((at, bytes));
        at += bytes;
    }
    found
}

/// Returns the end and the number of the live records: those before the first record whose name (a random id)
/// differs from the name in the anchor.
pub(super) fn end(disk: &[u8]) -> (u64, usize) {
    let id = word(disk, anchor(disk) + offset_of!(Anchor, id) as u64);
    let has_id = |&&(at, _): &&(u64, u64)| word(disk, at + offset_of!(RecordHead, id) as u64) == id;
    let records = records(disk);
    let count = records.iter().take_while(has_id).count();
    let last = count.checked_sub(1).map(|last| records[last]);
    (last.map_or_else(|| own_start(disk), |(at, bytes)| at + bytes), count)
}

impl Journal {
    /// Surveys a sound disk. The function does not check the numbers on the disk.
    pub(super) fn of(disk: &[u8]) -> Journal {
        let mut journal = Journal { anchor: anchor(disk), records: records(disk), ..Journal::default() };
        if has_checksums(disk) {
            let pages = volume_bytes(disk) / PAGE_SIZE;
            journal.checksums.extend((0..pages).step_by(COVERED_PAGES as usize).map(entry_of));
        }
        for &(at, _) in &journal.records {
            let mut entry = at + size_of::<RecordHead>() as u64;
            for _ in 0..half(disk, at + offset_of!(RecordHead, fresh) as u64) {
                journal.fresh.push(entry);
                entry += size_of::<FreshPage>() as u64;
            }
            for _ in 0..half(disk, at + offset_of!(RecordHead, changed) as u64) {
                journal.changed.push(entry);
                let lines = word(disk, entry + offset_of!(ChangedPage, lines) as u64);
                entry += size_of::<ChangedPage>() as u64;
                for _ in 0..lines.count_ones() {
                    let words = half(disk, entry) as u8;
                    entry += 1 + 8 * u64::from(words.count_ones());
                }
            }
        }
        journal
    }
}

/// Recomputes the checksums of the anchor and of all records that follow one another.
pub(super) fn mend(disk: &mut [u8]) {
    let (anchor, checksum) = (anchor(disk), offset_of!(Anchor, checksum) as u64);
    if let Some(covered) = disk.get(anchor as usize..(anchor + checksum) as usize) {
        let sum = crc32c::crc32c(covered);
        put(disk, anchor + checksum, &sum.to_le_bytes());
    }
    for (at, bytes) in records(disk) {
        let checksum = at + offset_of!(RecordHead, checksum) as u64;
        put(disk, checksum, &[0; 4]);
        let sum = crc32c::crc32c(&disk[at as usize..(at + bytes) as usize]);
        put(disk, checksum, &sum.to_le_bytes());
    }
}
