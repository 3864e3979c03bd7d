//! The record of a cut, as a drain builds it.

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{ChangedPage, FreshPage, LINE, MAX_OVERFLOW_BYTES, PAGE, RECORD_MAGIC, RecordHead};
use super::lines::pack;
use crate::addr::PAGE_SIZE;
use crate::paged::blocks::SECTOR;
use crate::paged::buffer::{PageBytes, page_buffer};
use crate::rules::{SafetyRule, broken};

/// A record that a drain builds: the entries of its fresh pages, the encoded entries of its changed pages,
/// and the number of changed pages.
#[derive(Default)]
pub(in crate::paged) struct CutRecord {
    pub(super) fresh: Vec<FreshPage>,
    pub(super) changed: Vec<u8>,
    changed_pages: u32,
    /// The numbers and checksums of the changed pages, if the volume has checksums.
    changed_sums: Option<Vec<(u64, u32)>>,
}

impl CutRecord {
    /// Makes an empty record of a volume with or without checksums of its pages.
    pub(in crate::paged) fn new(checksums: bool) -> CutRecord {
        CutRecord { changed_sums: checksums.then(Vec::new), ..CutRecord::default() }
    }

    /// Adds the number and checksum of a fresh page, which the drain writes to its place.
    pub(in crate::paged) fn fresh(&mut self, page: usize, bytes: &[u8; PAGE]) {
        self.fresh.push(FreshPage::of(page, bytes));
    }

    /// Adds the changed lines of a page.
    pub(in crate::paged) fn changed(&mut self, page: usize, lines: u64, bytes: &[u8; PAGE]) {
        self.changed.extend_from_slice(ChangedPage { page: page as u64, lines }.as_bytes());
        self.changed_pages += 1;
        if let Some(sums) = &mut self.changed_sums {
            sums.push((page as u64, crc32c::crc32c(bytes)));
        }
        let mut rest = lines;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize * LINE;
            pack(&bytes[at..at + LINE], &mut self.changed);
            rest &= rest - 1;
        }
    }

    /// Returns true if the record lists fresh pages.
    pub(in crate::paged) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Returns true if the record is empty.
    pub(in crate::paged) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.changed_pages == 0
    }

    /// Returns the numbers and checksums of all pages of the record.
    pub(in crate::paged) fn sums(&self) -> impl Iterator<Item = (u64, u32)> {
        let fresh = self.fresh.iter().map(|entry| (entry.page, entry.checksum));
        fresh.chain(self.changed_sums.iter().flatten().copied())
    }

    /// Returns the end of the body: the checksums of the changed pages.
    fn encoded_sums(&self) -> Vec<u8> {
        self.changed_sums.iter().flatten().flat_map(|(_, checksum)| checksum.to_le_bytes()).collect()
    }

    /// Returns the number of bytes that the record would take if all of it were in the journal, in whole
    /// sectors of `sector` bytes.
    pub(in crate::paged) fn bytes(&self, sector: u64) -> u64 {
        let sums = self.changed_sums.as_ref().map_or(0, |sums| sums.len() * size_of::<u32>());
        let entries = self.fresh.len() * size_of::<FreshPage>() + self.changed.len() + sums;
        ((size_of::<RecordHead>() + entries) as u64).next_multiple_of(sector)
    }

    /// Returns the overflow of a record of more than `journal_bytes`: for each overflow page its number, and
    /// the part of the body that goes there. Takes as many of the free pages `lent` as the record needs.
    /// Returns `None` if there are too few.
    pub(in crate::paged) fn overflow(
        &self,
        journal_bytes: u64,
        lent: impl Iterator<Item = usize>,
    ) -> Option<Vec<(usize, PageBytes)>> {
        let body = [self.fresh.as_bytes(), &self.changed, &self.encoded_sums()].concat();
        let entry = size_of::<FreshPage>();
        let room = (journal_bytes as usize).saturating_sub(size_of::<RecordHead>());
        // An overflow page takes a page of bytes out of the journal, and its own entry goes into the journal.
        let count = body.len().saturating_sub(room).div_ceil(PAGE - entry);
        let pages: Vec<usize> = lent.take(count.min((MAX_OVERFLOW_BYTES / PAGE_SIZE) as usize)).collect();
        if pages.len() < count {
            return None;
        }
        let inline = room.checked_sub(count * entry)?.min(body.len());
        let parts = body[inline..].chunks(PAGE);
        let contents = |part: &[u8]| {
            let mut page = PageBytes([0; PAGE]);
            page.0[..part.len()].copy_from_slice(part);
            page
        };
        Some(pages.into_iter().zip(parts.map(contents)).collect())
    }

    /// Encodes the part of the record that is in the journal, with its checksum, in the first `bytes` bytes
    /// of the result. The rest of the last page is zeros. `overflow` is empty or the overflow of the record.
    pub(in crate::paged) fn seal(
        &self,
        id: [u8; 16],
        sequence: u64,
        bytes: u64,
        overflow: &[(usize, PageBytes)],
    ) -> Vec<PageBytes> {
        let mut pages = page_buffer(bytes as usize);
        let mut head = RecordHead {
            magic: RECORD_MAGIC,
            id,
            sequence,
            bytes,
            fresh: self.fresh.len() as u32,
            changed: self.changed_pages,
            overflow: overflow.len() as u32,
            ..RecordHead::new_zeroed()
        };
        let entries: Vec<FreshPage> =
            overflow.iter().map(|(page, contents)| FreshPage::of(*page, &contents.0)).collect();
        let bytes = &mut pages.as_mut_bytes()[..bytes as usize];
        let mut rest = &mut *bytes;
        let sums = self.encoded_sums();
        for part in [head.as_bytes(), entries.as_bytes(), self.fresh.as_bytes(), &self.changed, &sums] {
            // The bytes that exceed the journal are in the overflow.
            let len = part.len().min(rest.len());
            let (place, after) = rest.split_at_mut(len);
            place.copy_from_slice(&part[..len]);
            rest = after;
        }
        head.checksum = sum(bytes);
        bytes[..size_of::<RecordHead>()].copy_from_slice(head.as_bytes());
        pages
    }
}

impl FreshPage {
    /// Returns the entry of a page with these bytes.
    fn of(page: usize, bytes: &[u8; PAGE]) -> FreshPage {
        FreshPage { page: page as u64, checksum: crc32c::crc32c(bytes), reserved: 0 }
    }
}

/// Returns the checksum of a record whose checksum field is zero.
pub(super) fn sum(record: &[u8]) -> u32 {
    let covered = if broken(SafetyRule::RecordChecksumCoversAll) { SECTOR as usize } else { record.len() };
    crc32c::crc32c(&record[..covered])
}
