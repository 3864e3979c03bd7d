//! The bytes of a file: the pages that were written. All other pages are zeros. A reserved page has storage
//! even if it was never written, because an Op has allocated it.

use std::collections::BTreeMap;
use std::sync::Arc;

use eyrie_medium::PAGE_SIZE;

type Page = Arc<[u8; PAGE_SIZE as usize]>;

/// Bytes of a file of any size up to 2^63 - 1. Invariant: no page begins at `size` or past it, and the bytes
/// past `size` in the last page are zeros. Therefore an extension shows zeros without further work.
#[derive(Clone, Debug, Default)]
pub(super) struct FileData {
    size: u64,
    /// Pages by number. Forks of a model share a page until one fork writes to the page.
    pages: BTreeMap<u64, Page>,
    /// Pages that `Fallocate` has allocated. Some of them may also be written pages.
    reserved: PageSet,
}

/// A set of page numbers, as disjoint ranges: the first page of each range, and the page after its last.
#[derive(Clone, Debug, Default)]
struct PageSet(BTreeMap<u64, u64>);

impl PageSet {
    /// Splits the range that contains both `page` and the page before it, if there is such a range.
    fn split_range_at(&mut self, page: u64) {
        if let Some((_, end)) = self.0.range_mut(..page).next_back()
            && *end > page
        {
            let last = std::mem::replace(end, page);
            self.0.insert(page, last);
        }
    }

    fn remove(&mut self, first: u64, end: u64) {
        let tail = self.split_off(end);
        self.split_off(first);
        self.0.extend(tail.0);
    }

    fn contains(&self, page: u64) -> bool {
        self.0.range(..=page).next_back().is_some_and(|(_, end)| *end > page)
    }

    fn insert(&mut self, first: u64, end: u64) {
        if first < end {
            self.remove(first, end);
            self.0.insert(first, end);
        }
    }

    /// Removes the pages from `page` on, and returns them.
    fn split_off(&mut self, page: u64) -> PageSet {
        self.split_range_at(page);
        PageSet(self.0.split_off(&page))
    }

    /// Adds pages under new numbers. `moved` returns the new number of a page.
    fn extend(&mut self, pages: PageSet, moved: impl Fn(u64) -> u64) {
        self.0.extend(pages.0.into_iter().map(|(first, end)| (moved(first), moved(end))));
    }
}

impl FileData {
    pub(super) fn from_bytes(bytes: &[u8]) -> FileData {
        let mut data = FileData::default();
        data.write(0, bytes);
        data
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the size in bytes of all pages that were written or reserved.
    pub(super) fn allocated(&self) -> u64 {
        let reserved: u64 = self.reserved.0.iter().map(|(first, end)| end - first).sum();
        let only_written = self.pages.keys().filter(|&&page| !self.reserved.contains(page)).count();
        (reserved + only_written as u64) * PAGE_SIZE
    }

    /// Returns the offset at which the last written or reserved page ends.
    pub(super) fn end_of_storage(&self) -> u64 {
        let written = self.pages.last_key_value().map_or(0, |(page, _)| page + 1);
        written.max(self.reserved.0.last_key_value().map_or(0, |(_, end)| *end)) * PAGE_SIZE
    }

    /// Returns true if a page was written or reserved, and was not removed since then.
    pub(super) fn has_storage(&self) -> bool {
        !self.pages.is_empty() || !self.reserved.0.is_empty()
    }

    /// Reserves the pages of a range, which may be past the end of the file.
    pub(super) fn reserve(&mut self, offset: u64, end: u64) {
        self.reserved.insert(offset / PAGE_SIZE, end.div_ceil(PAGE_SIZE));
    }

    /// Stores `bytes` at `offset`. The bytes end at 2^63 - 1 or before, because a file has at most 2^63 - 1
    /// bytes. An empty write has no effect.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (at % PAGE_SIZE) as usize;
            let (now, later) = rest.split_at(rest.len().min(PAGE_SIZE as usize - within));
            let page = self.pages.entry(at / PAGE_SIZE).or_insert_with(|| Arc::new([0; PAGE_SIZE as usize]));
            Arc::make_mut(page)[within..within + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
        self.size = self.size.max(at);
    }

    /// Sets the size. Frees the storage past the end, unless the file becomes longer.
    pub(super) fn set_size(&mut self, size: u64) {
        self.pages.split_off(&size.div_ceil(PAGE_SIZE));
        if size <= self.size {
            self.reserved.split_off(size.div_ceil(PAGE_SIZE));
        }
        if let Some(last) = self.pages.get_mut(&(size / PAGE_SIZE)) {
            Arc::make_mut(last)[(size % PAGE_SIZE) as usize..].fill(0);
        }
        self.size = size;
    }

    /// Makes the bytes of a range zeros, and the whole pages of the range holes.
    pub(super) fn punch(&mut self, offset: u64, end: u64) {
        self.reserved.remove(offset.div_ceil(PAGE_SIZE), end / PAGE_SIZE);
        let numbers: Vec<u64> = self
            .pages
            .range(offset / PAGE_SIZE..end.div_ceil(PAGE_SIZE))
            .map(|(&number, _)| number)
            .collect();
        for number in numbers {
            let start = number * PAGE_SIZE;
            let (from, to) = (offset.max(start) - start, end.min(start + PAGE_SIZE) - start);
            if (from, to) == (0, PAGE_SIZE) {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                Arc::make_mut(page)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Removes a range of whole pages. The range ends before the end of the file.
    pub(super) fn collapse(&mut self, offset: u64, end: u64) {
        let moved = |number| number - (end - offset) / PAGE_SIZE;
        let tail = self.pages.split_off(&(end / PAGE_SIZE));
        self.pages.split_off(&(offset / PAGE_SIZE));
        self.pages.extend(tail.into_iter().map(|(number, page)| (moved(number), page)));
        let tail = self.reserved.split_off(end / PAGE_SIZE);
        self.reserved.split_off(offset / PAGE_SIZE);
        self.reserved.extend(tail, moved);
        self.size -= end - offset;
    }

    /// Inserts a hole of whole pages before the page at `offset`.
    pub(super) fn insert_hole(&mut self, offset: u64, length: u64) {
        let moved = |number| number + length / PAGE_SIZE;
        let tail = self.pages.split_off(&(offset / PAGE_SIZE));
        self.pages.extend(tail.into_iter().map(|(number, page)| (moved(number), page)));
        let tail = self.reserved.split_off(offset / PAGE_SIZE);
        self.reserved.extend(tail, moved);
        self.size += length;
    }

    /// Replaces the pages of a range by pages of `source`. A page that `source` has reserved but not written
    /// becomes a hole.
    pub(super) fn clone_range(&mut self, source: &FileData, from: u64, to: u64, length: u64) {
        let (first, end) = (from / PAGE_SIZE, (from + length).div_ceil(PAGE_SIZE));
        let size = self.size.max(to + length);
        self.punch(to, to + (end - first) * PAGE_SIZE);
        let pages = source.pages.range(first..end);
        self.pages.extend(pages.map(|(number, page)| (number - first + to / PAGE_SIZE, Arc::clone(page))));
        self.size = size;
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let end = self.size.min(offset.saturating_add(out.len() as u64));
        if offset >= end {
            return 0;
        }
        let length = (end - offset) as usize;
        out[..length].fill(0);
        for (&number, page) in self.pages.range(offset / PAGE_SIZE..end.div_ceil(PAGE_SIZE)) {
            let first = offset.max(number * PAGE_SIZE);
            let last = end.min((number + 1) * PAGE_SIZE);
            let from = &page[(first - number * PAGE_SIZE) as usize..(last - number * PAGE_SIZE) as usize];
            out[(first - offset) as usize..(last - offset) as usize].copy_from_slice(from);
        }
        length
    }

    /// Returns the next offset from `offset` on that is in a written page.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let (&number, _) = self.pages.range(offset / PAGE_SIZE..).next()?;
        Some(offset.max(number * PAGE_SIZE)).filter(|&at| at < self.size)
    }

    pub(super) fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut number = offset / PAGE_SIZE;
        while self.pages.contains_key(&number) {
            number += 1;
        }
        Some(offset.max(number * PAGE_SIZE).min(self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(data: &FileData) -> Vec<u8> {
        let mut out = vec![0xee; data.size() as usize];
        assert_eq!(data.read(0, &mut out), out.len());
        out
    }

    #[test]
    fn bytes_cut_off_do_not_come_back() {
        let mut data = FileData::from_bytes(&[7; 5000]);
        data.set_size(4100);
        data.set_size(100);
        data.set_size(5000);
        let bytes = all(&data);
        assert!(bytes[..100].iter().all(|&byte| byte == 7));
        assert!(bytes[100..].iter().all(|&byte| byte == 0));
        data.set_size(4096);
        data.set_size(0);
        assert_eq!(data.allocated(), 0);
    }

    #[test]
    fn reserved_pages_follow_the_bytes() {
        let mut data = FileData::default();
        data.set_size(10 * PAGE_SIZE);
        assert!(!data.has_storage());
        data.reserve(2 * PAGE_SIZE + 1, 3 * PAGE_SIZE + 1);
        data.punch(0, 2 * PAGE_SIZE);
        data.punch(3 * PAGE_SIZE + 1, 4 * PAGE_SIZE);
        data.insert_hole(3 * PAGE_SIZE, 5 * PAGE_SIZE);
        data.punch(2 * PAGE_SIZE, 8 * PAGE_SIZE);
        assert!(data.has_storage());
        data.collapse(0, 8 * PAGE_SIZE);
        data.set_size(PAGE_SIZE);
        assert!(data.has_storage());
        data.punch(1, PAGE_SIZE);
        assert!(data.has_storage());
        data.punch(0, PAGE_SIZE);
        assert!(!data.has_storage());
        data.reserve(PAGE_SIZE, 5 * PAGE_SIZE);
        assert_eq!((data.size(), data.allocated()), (PAGE_SIZE, 4 * PAGE_SIZE));
        data.write(4 * PAGE_SIZE, &[1]);
        data.set_size(4 * PAGE_SIZE + 2);
        assert_eq!((data.next_data(0), data.allocated()), (Some(4 * PAGE_SIZE), 4 * PAGE_SIZE));
        data.set_size(PAGE_SIZE);
        data.reserve(PAGE_SIZE, 5 * PAGE_SIZE);
        data.set_size(PAGE_SIZE);
        assert!(!data.has_storage());
    }

    #[test]
    fn an_empty_write_does_not_extend() {
        let mut data = FileData::default();
        data.write(10, &[]);
        assert_eq!(data.size(), 0);
        data.write(10, &[1]);
        assert_eq!(all(&data), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn far_write_costs_one_page() {
        let far = 1 << 62;
        let mut data = FileData::default();
        data.write(far + 10, b"x");
        assert_eq!(data.allocated(), PAGE_SIZE);
        assert_eq!(data.size(), far + 11);
        assert_eq!(data.next_data(0), Some(far));
        assert_eq!(data.next_data(far + 5), Some(far + 5));
        assert_eq!(data.next_data(far + 11), None);
        assert_eq!(data.next_hole(0), Some(0));
        assert_eq!(data.next_hole(far), Some(far + 11));
        assert_eq!(data.next_hole(far + 11), None);
        let mut out = [9; 4];
        assert_eq!(data.read(far + 9, &mut out), 2);
        assert_eq!(out, [0, b'x', 9, 9]);
    }

    #[test]
    fn last_byte_of_largest_file_is_writable() {
        let last = (1 << 63) - 2;
        let mut data = FileData::default();
        data.write(last, b"z");
        let mut out = [0; 3];
        assert_eq!(data.read(last, &mut out), 1);
        assert_eq!(out[0], b'z');
        assert_eq!(data.read(u64::MAX, &mut out), 0);
        assert_eq!(data.next_data(u64::MAX), None);
    }
}
