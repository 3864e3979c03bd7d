//! Replay: reads the records of a journal, and writes their lines to the places of their pages. On a volume
//! with checksums, a replay also writes the checksums of the listed pages to the checksum pages.

use std::collections::{BTreeMap, BTreeSet};
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

/// A record that was read from the journal. Its checksum is right, and its page numbers are within the
/// volume.
struct ReadRecord {
    fresh: Vec<FreshPage>,
    /// For each changed page its number, the bits of its changed lines, and these lines in packed form.
    changed: Vec<(u64, u64, Vec<u8>)>,
    /// The checksums of the changed pages, if the volume has checksums.
    changed_sums: Vec<u32>,
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
        return Ok(parse_body(head, rest, anchor));
    }
    let Some(tail) = read_overflow(blocks, anchor, &overflow)? else { return Ok(None) };
    Ok(parse_body(head, &[rest, &tail].concat(), anchor))
}

/// Takes `count` entries of fresh pages or overflow pages from `rest`. Returns `None` if bytes are missing,
/// or if a page is not among the first `pages`.
fn take_entries(rest: &mut &[u8], count: u32, pages: u64) -> Option<Vec<FreshPage>> {
    let bytes = take(rest, (count as usize).checked_mul(size_of::<FreshPage>())?)?;
    let entries = bytes.chunks_exact(size_of::<FreshPage>());
    let entries: Vec<_> = entries.filter_map(|entry| FreshPage::read_from_bytes(entry).ok()).collect();
    entries.iter().all(|entry| entry.page < pages).then_some(entries)
}

/// Returns the bytes of overflow pages. Returns `None` if one of the pages does not match its checksum or is
/// listed twice, or if there are more pages than a record may have.
fn read_overflow(
    blocks: &dyn Blocks,
    anchor: &Anchor,
    overflow: &[FreshPage],
) -> io::Result<Option<Vec<u8>>> {
    if overflow.len() as u64 > MAX_OVERFLOW_BYTES / PAGE_SIZE {
        return Ok(None);
    }
    let pages: BTreeSet<u64> = overflow.iter().map(|entry| entry.page).collect();
    if pages.len() < overflow.len() {
        return Ok(None);
    }
    let mut tail = Vec::new();
    let mut page = page_buffer(PAGE);
    for entry in overflow {
        blocks.here().read(anchor.places().offset(entry.page as usize), page.as_mut_bytes())?;
        let whole = crc32c::crc32c(page.as_bytes()) == entry.checksum;
        if !blocks.here().verify(whole) && !broken(SafetyRule::OverflowIsChecked) {
            return Ok(None);
        }
        tail.extend_from_slice(page.as_bytes());
    }
    Ok(Some(tail))
}

/// Parses the body of a record.
fn parse_body(head: RecordHead, mut rest: &[u8], anchor: &Anchor) -> Option<ReadRecord> {
    let pages = anchor.volume_bytes / PAGE_SIZE;
    let fresh = take_entries(&mut rest, head.fresh, pages)?;
    let mut changed = Vec::new();
    for _ in 0..head.changed {
        let entry = ChangedPage::read_from_bytes(take(&mut rest, size_of::<ChangedPage>())?).ok()?;
        // A drain records no page without changed lines, so such an entry is damage.
        if entry.lines == 0 || entry.page >= pages {
            return None;
        }
        let packed = rest;
        for _ in 0..entry.lines.count_ones() {
            unpack(&mut rest)?;
        }
        changed.push((entry.page, entry.lines, packed[..packed.len() - rest.len()].to_vec()));
    }
    let mut changed_sums = Vec::new();
    if anchor.places().has_checksums() {
        let bytes = take(&mut rest, changed.len() * size_of::<u32>())?;
        changed_sums.extend(bytes.as_chunks().0.iter().map(|sum| u32::from_le_bytes(*sum)));
    }
    Some(ReadRecord { fresh, changed, changed_sums })
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
    records.push(ReadRecord { fresh, changed: Vec::new(), changed_sums: Vec::new() });
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
    let mut page = page_buffer(PAGE);
    let unchecked = usize::from(broken(SafetyRule::FreshPagesAreChecked));
    for entry in record.fresh.iter().skip(unchecked) {
        blocks.here().read(anchor.places().offset(entry.page as usize), page.as_mut_bytes())?;
        if !blocks.here().verify(crc32c::crc32c(page.as_bytes()) == entry.checksum) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes the lines of `records` to the places of their pages, and the checksums of their pages to the
/// checksum pages, durably. Returns the number of bytes that were written.
fn apply(
    blocks: &dyn Blocks,
    places: Places,
    records: &[ReadRecord],
    known: Option<&Checksums>,
) -> io::Result<u64> {
    let mut pages: BTreeMap<u64, Vec<(u64, &[u8])>> = BTreeMap::new();
    for record in records {
        // The changes of a page are in the order of the records, so the lines of a later record overwrite
        // those of an earlier one.
        for (page, lines, bytes) in &record.changed {
            let changes = pages.entry(*page).or_default();
            let at = if broken(SafetyRule::LaterRecordWins) { 0 } else { changes.len() };
            changes.insert(at, (*lines, bytes));
        }
        // The bytes of a fresh page are in its place already, and are newer than every line of the records so
        // far.
        for entry in record.fresh.iter().filter(|_| !broken(SafetyRule::FreshPageEndsOlderLines)) {
            pages.remove(&entry.page);
        }
    }
    let mut sums = BTreeMap::new();
    if places.has_checksums() && !broken(SafetyRule::ReplayStoresChecksums) {
        for record in records {
            let changed =
                record.changed.iter().map(|(page, ..)| *page).zip(record.changed_sums.iter().copied());
            sums.extend(record.fresh.iter().map(|entry| (entry.page, entry.checksum)).chain(changed));
        }
    }
    if pages.is_empty() && sums.is_empty() {
        return Ok(0);
    }
    let written = pages.len() as u64 * PAGE_SIZE;
    let mut page = page_buffer(PAGE);
    for (number, changes) in pages {
        blocks.here().read(places.offset(number as usize), page.as_mut_bytes())?;
        let out = page.as_mut_bytes();
        for (mut lines, mut packed) in changes {
            while let Some(line) = unpack(&mut packed) {
                let at = lines.trailing_zeros() as usize * LINE;
                out[at..at + LINE].copy_from_slice(&line);
                lines &= lines - 1;
            }
        }
        blocks.here().write(places.offset(number as usize), page.as_bytes())?;
    }
    let of_sums = checksums::store(blocks, known, &sums.into_iter().collect::<Vec<_>>())?;
    blocks.here().flush()?;
    Ok(written + of_sums)
}
