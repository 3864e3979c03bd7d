//! Room in the journal: the space that the changes of an Op, and of a cut, may take in a record.

use super::journal::PACKED_LINE;
use super::pager::Pager;
use crate::addr::{LINE_SIZE, PAGE_SIZE};

/// Upper bound of the bytes that the entry of a page takes in a record, without the lines.
pub(crate) const PAGE_ENTRY: u64 = 32;

/// Returns the room in the journal that stores to `len` consecutive bytes may need, in bytes.
pub(crate) fn most_room(len: u64) -> u64 {
    (len / PAGE_SIZE + 2) * PAGE_ENTRY + (len / LINE_SIZE + 2) * PACKED_LINE as u64
}

impl Pager {
    /// Returns the room in the journal for all Ops of one cut, in bytes. The rest of the journal is for the
    /// head of the record and its last sector.
    pub(super) fn room_of_a_cut(&self) -> u64 {
        self.journal_bytes.saturating_sub(PAGE_SIZE)
    }

    /// Returns the largest room that one Op gets in the journal, in bytes.
    pub(crate) fn most_room_of_an_op(&self) -> u64 {
        self.room_of_a_cut() / 2
    }
}
