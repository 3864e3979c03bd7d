//! The record of a cut, as a drain builds it.

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{ChangedPage, FreshPage, LINE, PAGE, PageBytes, RECORD_MAGIC, RecordHead, page_buffer};
use super::lines::pack;
use crate::paged::blocks::SECTOR;
use crate::rules::{SafetyRule, broken};

/// A record that a drain builds: the entries of its fresh pages, the encoded entries of its changed pages,
/// and the number of changed pages.
#[derive(Default)]
pub(in crate::paged) struct CutRecord {
    pub(super) fresh: Vec<FreshPage>,
    pub(super) changed: Vec<u8>,
    changed_pages: u32,
}

impl CutRecord {
    /// Adds the number and checksum of a fresh page, which the drain writes to its place.
    pub(in crate::paged) fn fresh(&mut self, page: usize, bytes: &[u8; PAGE]) {
        self.fresh.push(FreshPage { page: page as u64, checksum: crc32c::crc32c(bytes), reserved: 0 });
    }

    /// Adds the changed lines of a page.
    pub(in crate::paged) fn changed(&mut self, page: usize, lines: u64, bytes: &[u8; PAGE]) {
        self.changed.extend_from_slice(ChangedPage { page: page as u64, lines }.as_bytes());
        self.changed_pages += 1;
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

    /// Returns the size of the record on a disk with sectors of `sector` bytes, in bytes.
    pub(in crate::paged) fn bytes(&self, sector: u64) -> u64 {
        let bytes = size_of::<RecordHead>() + self.fresh.len() * size_of::<FreshPage>() + self.changed.len();
        (bytes as u64).next_multiple_of(sector)
    }

    /// Encodes the record with its checksum in the first `bytes` bytes of the result. The rest of the last
    /// page is zeros.
    pub(in crate::paged) fn seal(&self, id: [u8; 16], sequence: u64, bytes: u64) -> Vec<PageBytes> {
        let mut pages = page_buffer(bytes as usize);
        let mut head = RecordHead {
            magic: RECORD_MAGIC,
            id,
            sequence,
            bytes,
            fresh: self.fresh.len() as u32,
            changed: self.changed_pages,
            ..RecordHead::new_zeroed()
        };
        let bytes = &mut pages.as_mut_bytes()[..bytes as usize];
        let (head_bytes, rest) = bytes.split_at_mut(size_of::<RecordHead>());
        let (fresh, rest) = rest.split_at_mut(self.fresh.len() * size_of::<FreshPage>());
        fresh.copy_from_slice(self.fresh.as_bytes());
        rest[..self.changed.len()].copy_from_slice(&self.changed);
        head_bytes.copy_from_slice(head.as_bytes());
        head.checksum = sum(bytes);
        bytes[..size_of::<RecordHead>()].copy_from_slice(head.as_bytes());
        pages
    }
}

/// Returns the checksum of a record whose checksum field is zero.
pub(super) fn sum(record: &[u8]) -> u32 {
    let covered = if broken(SafetyRule::RecordChecksumCoversAll) { SECTOR as usize } else { record.len() };
    crc32c::crc32c(&record[..covered])
}
