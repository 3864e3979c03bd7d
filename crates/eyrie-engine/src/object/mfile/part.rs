//! The bytes of a write, and the decision whether they are stored past the caches (straight to memory,
//! without a copy in the caches of the processor).

use eyrie_medium::{Addr, PAGE_SIZE};

use crate::Result;
use crate::transaction::Transaction;

/// Bytes to store, and their offset from the start of a subtree.
#[derive(Clone, Copy)]
pub(super) struct FilePart<'a> {
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
    /// True if whole pages are stored past the caches.
    past_caches: bool,
}

/// Least size of a file whose pages are overwritten past the caches. The new page is usually one that an
/// earlier overwrite of the file retired. In a file of this size, such a page has probably left the caches.
const COLD_FILE_BYTES: u64 = 16 << 20;
/// Least size of a file to which pages are appended past the caches. The memory of these pages is seldom in
/// the caches, and a file of this size is larger than the second-level cache of most processors.
const COLD_APPEND_BYTES: u64 = 1 << 20;
/// Least number of bytes that one write stores past the caches in a smaller file.
const COLD_WRITE_BYTES: usize = 256 << 10;

impl<'a> FilePart<'a> {
    /// Makes a part of a file of `size` bytes.
    pub(super) fn new(size: u64, offset: u64, data: &'a [u8]) -> FilePart<'a> {
        let past_caches = size >= COLD_FILE_BYTES || data.len() >= COLD_WRITE_BYTES;
        FilePart { offset, data, past_caches }
    }

    /// Makes a part at or past the end of a file of `size` bytes.
    pub(super) fn appended(size: u64, offset: u64, data: &'a [u8]) -> FilePart<'a> {
        let past_caches = size >= COLD_APPEND_BYTES || data.len() >= COLD_WRITE_BYTES;
        FilePart { offset, data, past_caches }
    }

    /// Returns true if the part may cover two whole pages.
    #[inline]
    pub(super) fn is_large(self) -> bool {
        self.data.len() as u64 >= 2 * PAGE_SIZE
    }

    /// Returns true if no byte is in the part.
    pub(super) fn is_empty(self) -> bool {
        self.data.is_empty()
    }

    /// Stores the bytes at an address that no reader can reach before the commit.
    #[inline]
    pub(super) fn store(self, transaction: &mut Transaction<'_>, addr: Addr) -> Result<()> {
        if self.past_caches && self.data.len() as u64 >= PAGE_SIZE {
            transaction.write_past_caches(addr, self.data)
        } else {
            transaction.write(addr, self.data)
        }
    }

    pub(super) fn end(self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// Returns the bytes before `at`, and the bytes from `at` on. The offsets of both results count from the
    /// same point as the offset of this part. `at` is at the start of the part or past it.
    pub(super) fn split(self, at: u64) -> (FilePart<'a>, FilePart<'a>) {
        let (before, after) = self.data.split_at(self.data.len().min((at - self.offset) as usize));
        (FilePart { data: before, ..self }, FilePart { offset: at, data: after, ..self })
    }

    /// Returns the bytes that are in the child at `start..start + len`. The offset of the result counts from
    /// the start of the child.
    pub(super) fn within(self, start: u64, len: u64) -> FilePart<'a> {
        let from = self.offset.max(start);
        let to = self.end().min(start.saturating_add(len));
        let data = &self.data[(from - self.offset) as usize..(to - self.offset) as usize];
        FilePart { offset: from - start, data, past_caches: self.past_caches }
    }
}
