//! Replay: reads the records of a journal, and writes their lines to the places of their pages. On a volume
//! with checksums, a replay also writes the checksums of the listed pages to the checksum pages.
//!
//! A replay reads and writes pages in batches. One call reads all pages of a batch that are neighbours on the
//! disk, and one call writes all pages of a batch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use zerocopy::{FromBytes, IntoBytes};

use super::anchor::io_fault;
use super::layout::{
    Anchor, ChangedPage, FreshPage, LINE, MAX_OVERFLOW_BYTES, PAGE, RECORD_MAGIC, RecordHead, TRANSFER_BYTES,
};
use super::lines::{take, unpack};
use super::record::{CutRecord, sum};
use crate::addr::PAGE_SIZE;
use crate::fault::Fault;
use crate::paged::blocks::{Blocks, SECTOR};
use crate::paged::buffer::{PageBytes, page_buffer};
use crate::paged::checksums::{self, Checksums};
use crate::paged::places::Places;
use crate::rules::{SafetyRule, broken};

/// Maximum number of pages of a batch.
const BATCH: usize = TRANSFER_BYTES as usize / PAGE;

/// A record that was read from the journal. Its checksum is right, and its page numbers are within the
/// volume.
#[derive(Default)]
struct ReadRecord {
    fresh: Vec<FreshPage>,
    changed: Vec<ChangedLines>,
    /// The checksums of the changed pages, if the volume has checksums.
    changed_sums: Vec<u32>,
    body: Vec<u8>,
}

/// A changed page of a record.
#[derive(Clone, Copy)]
struct ChangedLines {
    page: u64,
    /// A bit for each changed line.
    lines: u64,
    /// Offset of the packed lines in the body of the record.
    at: usize,
}

impl ChangedLines {
    /// Stores the lines in the bytes of their page. `body` is that of the record.
    fn apply(&self, body: &[u8], page: &mut PageBytes) {
        let (mut lines, mut packed) = (self.lines, &body[self.at..]);
        while lines != 0 {
            let Some(line) = unpack(&mut packed) else { return };
            let at = lines.trailing_zeros() as usize * LINE;
            page.0[at..at + LINE].copy_from_slice(&line);
            lines &= lines - 1;
        }
    }
}

/// Parses a record. Returns `None` unless its checksum is right, its overflow pages match their checksums,
/// and all its numbers are possible.
fn parse_record(blocks: &dyn Blocks, bytes: &mut [u8], anchor: &Anchor) -> io::Result<Option<ReadRecord>> {
    let Ok((mut head, _)) = RecordHead::read_from_prefix(bytes) else { return Ok(None) };
    // The drain computed the checksum while the checksum field of the head was zero.
    let checksum = std::mem::take(&mut head.checksum);
    bytes[..size_of::<RecordHead>()].copy_from_slice(head.as_bytes());
    if !blocks.here().verify(sum(bytes) == checksum) {
        return Ok(None);
    }
    let pages = anchor.volume_bytes / PAGE_SIZE;
    let mut rest = &bytes[size_of::<RecordHead>()..];
    let Some(overflow) = take_entries(&mut rest, head.overflow, pages) else { return Ok(None) };
    if overflow.is_empty() {
        return Ok(parse_body(head, rest.to_vec(), anchor));
    }
    let body = read_overflow(blocks, anchor, &overflow, rest.to_vec())?;
    Ok(body.and_then(|body| parse_body(head, body, anchor)))
}

/// Takes `count` entries of fresh pages or overflow pages from `rest`. Returns `None` if bytes are missing,
/// or if a page is not among the first `pages`.
fn take_entries(rest: &mut &[u8], count: u32, pages: u64) -> Option<Vec<FreshPage>> {
    let bytes = take(rest, (count as usize).checked_mul(size_of::<FreshPage>())?)?;
    let entries = bytes.chunks_exact(size_of::<FreshPage>());
    let entries: Vec<_> = entries.filter_map(|entry| FreshPage::read_from_bytes(entry).ok()).collect();
    entries.iter().all(|entry| entry.page < pages).then_some(entries)
}

/// Appends the bytes of overflow pages to the part of a body that is in the journal. Returns `None` if one of
/// the pages does not match its checksum or is listed twice, or if there are more pages than a record may
/// have.
fn read_overflow(
    blocks: &dyn Blocks,
    anchor: &Anchor,
    overflow: &[FreshPage],
    mut body: Vec<u8>,
) -> io::Result<Option<Vec<u8>>> {
    if overflow.len() as u64 > MAX_OVERFLOW_BYTES / PAGE_SIZE {
        return Ok(None);
    }
    let pages: BTreeSet<u64> = overflow.iter().map(|entry| entry.page).collect();
    if pages.len() < overflow.len() {
        return Ok(None);
    }
    let are_whole = all_pages(blocks, anchor, overflow, |entry, page| {
        body.extend_from_slice(&page.0);
        let whole = crc32c::crc32c(&page.0) == entry.checksum;
        blocks.here().verify(whole) || broken(SafetyRule::OverflowIsChecked)
    })?;
    Ok(are_whole.then_some(body))
}

/// Reads listed pages, and calls `is_right` with each of them. Returns false after the first call that
/// returns false.
fn all_pages(
    blocks: &dyn Blocks,
    anchor: &Anchor,
    entries: &[FreshPage],
    mut is_right: impl FnMut(&FreshPage, &PageBytes) -> bool,
) -> io::Result<bool> {
    let mut buffer = page_buffer(PAGE * entries.len().min(BATCH));
    for batch in entries.chunks(BATCH) {
        let pages: Vec<usize> = batch.iter().map(|entry| entry.page as usize).collect();
        read_pages(blocks, anchor.places(), &pages, &mut buffer)?;
        if !batch.iter().zip(&buffer).all(|(entry, page)| is_right(entry, page)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads the pages of a batch into `buffer`.
fn read_pages(
    blocks: &dyn Blocks,
    places: Places,
    pages: &[usize],
    mut buffer: &mut [PageBytes],
) -> io::Result<()> {
    for run in places.runs_of(pages) {
        let (bytes, after) = buffer.split_at_mut(run.len());
        blocks.here().read(places.offset(run.start), bytes.as_mut_bytes())?;
        buffer = after;
    }
    Ok(())
}

/// Writes the pages of a batch from `buffer`.
fn write_pages(
    blocks: &dyn Blocks,
    places: Places,
    pages: &[usize],
    mut buffer: &[PageBytes],
) -> io::Result<()> {
    let mut ranges = Vec::new();
    for run in places.runs_of(pages) {
        let (bytes, after) = buffer.split_at(run.len());
        ranges.push((places.offset(run.start), bytes.as_bytes()));
        buffer = after;
    }
    blocks.here().write_all(&ranges)
}

/// Parses the body of a record.
fn parse_body(head: RecordHead, body: Vec<u8>, anchor: &Anchor) -> Option<ReadRecord> {
    let pages = anchor.volume_bytes / PAGE_SIZE;
    let mut rest = &body[..];
    let fresh = take_entries(&mut rest, head.fresh, pages)?;
    let mut changed = Vec::new();
    for _ in 0..head.changed {
        let entry = ChangedPage::read_from_bytes(take(&mut rest, size_of::<ChangedPage>())?).ok()?;
        // A drain records no page without changed lines, so such an entry is damage.
        if entry.lines == 0 || entry.page >= pages {
            return None;
        }
        changed.push(ChangedLines { page: entry.page, lines: entry.lines, at: body.len() - rest.len() });
        for _ in 0..entry.lines.count_ones() {
            unpack(&mut rest)?;
        }
    }
    let mut changed_sums = Vec::new();
    if anchor.places().has_checksums() {
        let bytes = take(&mut rest, changed.len() * size_of::<u32>())?;
        changed_sums.extend(bytes.as_chunks().0.iter().map(|sum| u32::from_le_bytes(*sum)));
    }
    Some(ReadRecord { fresh, changed, changed_sums, body })
}

/// Durably writes the lines of the valid records to the places of their pages, and the checksums of the
/// listed pages to the checksum pages. Ignores the last record unless its fresh pages match their checksums.
///
/// A flush comes before the first write. A process may be killed between a write and its flush. The next
/// process then reads the written bytes from the host's cache, but a power failure may still undo them. So
/// replay changes a page because of a record only after that record and its fresh pages are durable.
///
/// # Errors
/// [`Fault::Io`]. A damaged record is not an error: the journal ends before it.
pub(in crate::paged) fn replay(blocks: &dyn Blocks, anchor: &Anchor) -> Result<(), Fault> {
    let replayed = || {
        let mut records = read_records(blocks, anchor)?;
        if records.is_empty() {
            return Ok(());
        }
        if !broken(SafetyRule::FoundRecordsAreFlushed) {
            blocks.here().flush()?;
        }
        if let Some(newest) = records.last()
            && !fresh_pages_are_whole(blocks, anchor, newest)?
        {
            records.pop();
        }
        apply_before(blocks, anchor, records, &CutRecord::default(), None).map(drop)
    };
    replayed().map_err(io_fault("replaying the journal"))
}

/// As [`replay`], without its first flush, because this process has flushed every record of the journal. For
/// the same reason the last record counts even if the disk has damaged one of its fresh pages. `count` is the
/// number of these records, and `next` is the record that the caller will write next. The caller has already
/// written the fresh pages of `next` to their places, so this function applies no older lines to these pages.
/// If a checksum page cannot be read, the entries that are in `checksums` are written. Returns the number of
/// bytes that were written.
///
/// # Errors
/// The disk's error. Another error if the disk does not return the records that were written.
pub(in crate::paged) fn replay_own(
    blocks: &dyn Blocks,
    anchor: &Anchor,
    count: u64,
    next: &CutRecord,
    checksums: &Checksums,
) -> io::Result<u64> {
    let records = read_records(blocks, anchor)?;
    if records.len() as u64 != count {
        return Err(io::Error::other("the journal does not read back as it was written"));
    }
    apply_before(blocks, anchor, records, next, Some(checksums))
}

/// Applies `records`, but leaves out the lines of pages that are fresh in `next`. Returns the number of bytes
/// that were written.
fn apply_before(
    blocks: &dyn Blocks,
    anchor: &Anchor,
    mut records: Vec<ReadRecord>,
    next: &CutRecord,
    known: Option<&Checksums>,
) -> io::Result<u64> {
    let fresh = if broken(SafetyRule::NextFreshPagesAreLeft) { Vec::new() } else { next.fresh.clone() };
    records.push(ReadRecord { fresh, ..ReadRecord::default() });
    apply(blocks, anchor.places(), &records, known)
}

/// A reader of the journal's bytes. It reads [`TRANSFER_BYTES`] at a time, or more for a longer record.
struct JournalReader<'a> {
    blocks: &'a dyn Blocks,
    anchor: &'a Anchor,
    from: u64,
    pages: Vec<PageBytes>,
}

impl JournalReader<'_> {
    /// Returns the `len` bytes at offset `at` of the journal. The caller has checked that the journal has
    /// `at + len` bytes.
    fn get(&mut self, at: u64, len: u64) -> io::Result<&mut [u8]> {
        if at < self.from || at + len > self.from + self.pages.as_bytes().len() as u64 {
            self.from = at - at % PAGE_SIZE;
            let end = (at + len).next_multiple_of(PAGE_SIZE);
            let ahead = end.max(self.from + TRANSFER_BYTES);
            // The bytes after `end` may be older than the journal, and then nobody needs them.
            self.read_to(ahead).or_else(|_| self.read_to(end))?;
        }
        Ok(&mut self.pages.as_mut_bytes()[(at - self.from) as usize..][..len as usize])
    }

    /// Reads the bytes from `self.from` to `end`, or to the end of the journal.
    fn read_to(&mut self, end: u64) -> io::Result<()> {
        self.pages = page_buffer((end.min(self.anchor.journal_bytes) - self.from) as usize);
        self.blocks.here().read(self.anchor.journal_start() + self.from, self.pages.as_mut_bytes())
    }
}

/// Reads the records of the journal, up to the first one that is not valid, or to one that overflows.
fn read_records(blocks: &dyn Blocks, anchor: &Anchor) -> io::Result<Vec<ReadRecord>> {
    let mut reader = JournalReader { blocks, anchor, from: 0, pages: Vec::new() };
    let mut records = Vec::new();
    let mut at = 0;
    while at + SECTOR <= anchor.journal_bytes {
        let Ok((head, _)) = RecordHead::read_from_prefix(reader.get(at, SECTOR)?) else { break };
        let fits = head.bytes >= SECTOR && head.bytes.is_multiple_of(SECTOR);
        let known = head.magic == RECORD_MAGIC
            && (head.id == anchor.id || broken(SafetyRule::RecordsHaveTheJournalsName));
        let follows = head.sequence == records.len() as u64 + 1;
        // The journal ends at the first record with another name or sequence number. Records with an earlier
        // name may follow.
        if !known || !fits || !follows || head.bytes > anchor.journal_bytes - at {
            break;
        }
        let bytes = reader.get(at, head.bytes)?;
        let Some(found) = parse_record(blocks, bytes, anchor)? else { break };
        records.push(found);
        if head.overflow > 0 {
            break;
        }
        at += head.bytes;
    }
    if broken(SafetyRule::ReplayGoesToTheLastRecord) {
        records.pop();
    }
    Ok(records)
}

/// Returns true if the fresh pages of a record match their checksums.
fn fresh_pages_are_whole(blocks: &dyn Blocks, anchor: &Anchor, record: &ReadRecord) -> io::Result<bool> {
    let unchecked = usize::from(broken(SafetyRule::FreshPagesAreChecked)).min(record.fresh.len());
    all_pages(blocks, anchor, &record.fresh[unchecked..], |entry, page| {
        blocks.here().verify(crc32c::crc32c(&page.0) == entry.checksum)
    })
}

/// Returns the lines that a replay writes, each with the body of its record: in ascending order of the pages,
/// and for each page in the order of the records, so that the lines of a later record overwrite those of an
/// earlier one.
fn changed_lines(records: &[ReadRecord]) -> Vec<(ChangedLines, &[u8])> {
    // For each fresh page the number of the last record that lists it. The bytes of such a page are in its
    // place already, and are newer than every line of the records up to this one.
    let mut fresh = HashMap::new();
    for (number, record) in records.iter().enumerate() {
        let listed = record.fresh.iter().filter(|_| !broken(SafetyRule::FreshPageEndsOlderLines));
        fresh.extend(listed.map(|entry| (entry.page, number)));
    }
    let mut all = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let is_newer = |lines: &&ChangedLines| fresh.get(&lines.page).is_none_or(|&last| last < number);
        all.extend(record.changed.iter().filter(is_newer).map(|lines| (*lines, &record.body[..])));
    }
    if broken(SafetyRule::LaterRecordWins) {
        all.reverse();
    }
    // The sort keeps the order of the lines of a page.
    all.sort_by_key(|(lines, _)| lines.page);
    all
}

/// Writes the lines of `records` to the places of their pages, and the checksums of their pages to the
/// checksum pages, durably. Returns the number of bytes that were written.
fn apply(
    blocks: &dyn Blocks,
    places: Places,
    records: &[ReadRecord],
    known: Option<&Checksums>,
) -> io::Result<u64> {
    let mut sums = BTreeMap::new();
    if places.has_checksums() && !broken(SafetyRule::ReplayStoresChecksums) {
        for record in records {
            let changed =
                record.changed.iter().map(|lines| lines.page).zip(record.changed_sums.iter().copied());
            sums.extend(record.fresh.iter().map(|entry| (entry.page, entry.checksum)).chain(changed));
        }
    }
    let lines = changed_lines(records);
    if lines.is_empty() && sums.is_empty() {
        return Ok(0);
    }
    let mut written = 0;
    let mut of_pages = lines.chunk_by(|(one, _), (other, _)| one.page == other.page);
    let mut buffer = page_buffer(PAGE * lines.len().min(BATCH));
    loop {
        let batch: Vec<_> = of_pages.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        let pages: Vec<usize> = batch.iter().map(|lines| lines[0].0.page as usize).collect();
        read_pages(blocks, places, &pages, &mut buffer)?;
        for (lines, page) in batch.iter().zip(&mut buffer) {
            lines.iter().for_each(|(lines, body)| lines.apply(body, page));
        }
        write_pages(blocks, places, &pages, &buffer)?;
        written += pages.len() as u64 * PAGE_SIZE;
    }
    let of_sums = checksums::store(blocks, known, &sums.into_iter().collect::<Vec<_>>())?;
    blocks.here().flush()?;
    Ok(written + of_sums)
}
