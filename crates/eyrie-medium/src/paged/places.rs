//! The places of pages on the disk, with and without the checksums of pages.
//!
//! Without checksums the offset of a page on the disk is its offset in the volume. With checksums, a
//! *checksum page* comes before each chunk of [`CHUNK_PAGES`] pages, and holds an entry for each of them. The
//! first two pages have the superblocks, which programs read and write before they know the journal. So these
//! two pages always lie at the start of the disk and have no entry, and the first checksum page comes after
//! them.

use std::ops::Range;

use crate::addr::PAGE_SIZE;

/// Number of pages whose entries fill one checksum page.
pub(super) const CHUNK_PAGES: usize = PAGE_SIZE as usize / size_of::<u32>();
/// Number of pages at the start of the disk that have no entry.
pub(super) const PLAIN_PAGES: usize = 2;

/// The places of the pages of one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    pages: usize,
    checksums: bool,
}

impl Places {
    /// Returns the places of a volume of `volume_bytes`.
    pub(crate) fn new(volume_bytes: u64, checksums: bool) -> Places {
        Places { pages: (volume_bytes / PAGE_SIZE) as usize, checksums }
    }

    /// Returns the size of the largest volume whose pages and checksum pages fit in `bytes`.
    pub(crate) fn most_volume_bytes(bytes: u64, checksums: bool) -> u64 {
        let pages = bytes / PAGE_SIZE;
        let checksum_pages = if checksums { pages.div_ceil(CHUNK_PAGES as u64 + 1) } else { 0 };
        (pages - checksum_pages) * PAGE_SIZE
    }

    /// Returns true if the volume has checksums of its pages.
    pub(crate) fn has_checksums(&self) -> bool {
        self.checksums
    }

    /// Returns the number of chunks.
    pub(super) fn chunks(&self) -> usize {
        if self.checksums { self.pages.div_ceil(CHUNK_PAGES) } else { 0 }
    }

    /// Returns the number of bytes that the pages and the checksum pages take together.
    pub(crate) fn end(&self) -> u64 {
        (self.pages + self.chunks()) as u64 * PAGE_SIZE
    }

    /// Returns the offset of a page on the disk.
    pub(super) fn offset(&self, page: usize) -> u64 {
        let before = if self.checksums && page >= PLAIN_PAGES { page / CHUNK_PAGES + 1 } else { 0 };
        (page + before) as u64 * PAGE_SIZE
    }

    /// Returns the offset of the checksum page of a chunk.
    pub(super) fn checksum_page(chunk: usize) -> u64 {
        let page = if chunk == 0 { PLAIN_PAGES } else { chunk * (CHUNK_PAGES + 1) };
        page as u64 * PAGE_SIZE
    }

    /// Returns the offset of the checksum page with the entry of a page.
    pub(super) fn checksum_page_of(page: usize) -> u64 {
        Places::checksum_page(page / CHUNK_PAGES)
    }

    /// Splits a range of pages into ranges whose pages are neighbours on the disk.
    pub(super) fn runs(self, pages: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut start = pages.start;
        std::iter::from_fn(move || {
            let first = start;
            start = if !self.checksums {
                pages.end
            } else if first < PLAIN_PAGES {
                PLAIN_PAGES
            } else {
                (first + 1).next_multiple_of(CHUNK_PAGES)
            };
            start = start.min(pages.end);
            (first < start).then_some(first..start)
        })
    }

    /// Splits a list of pages into ranges. The pages of a range follow one another in the list, and are
    /// neighbours on the disk.
    pub(super) fn runs_of(self, pages: &[usize]) -> impl Iterator<Item = Range<usize>> {
        let neighbours = pages.chunk_by(|page, next| page + 1 == *next);
        neighbours.flat_map(move |pages| self.runs(pages[0]..pages[0] + pages.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_checksum_pages_fill_the_disk_once() {
        for pages in [3, 1023, 1024, 1025, 2048, 5000] {
            let places = Places::new(pages as u64 * PAGE_SIZE, true);
            let mut found: Vec<u64> = (0..pages).map(|page| places.offset(page)).collect();
            found.extend((0..places.chunks()).map(Places::checksum_page));
            found.sort_unstable();
            let expected: Vec<u64> = (0..places.end()).step_by(PAGE_SIZE as usize).collect();
            assert!(found == expected, "{pages} pages");
            assert_eq!(Places::new(pages as u64 * PAGE_SIZE, false).end(), pages as u64 * PAGE_SIZE);
        }
    }

    #[test]
    fn pages_of_a_run_are_neighbours() {
        for (checksums, count) in [(true, 5), (false, 1)] {
            let places = Places::new(5000 * PAGE_SIZE, checksums);
            let runs: Vec<_> = places.runs(1..4000).collect();
            assert_eq!(runs.len(), count);
            assert!(runs.iter().cloned().flatten().eq(1..4000));
            for run in runs {
                let bytes = places.offset(run.end - 1) - places.offset(run.start);
                assert_eq!(bytes, (run.len() - 1) as u64 * PAGE_SIZE);
            }
            assert_eq!(places.runs(7..7).count(), 0);
        }
    }

    #[test]
    fn largest_volume_fits_and_a_larger_one_does_not() {
        for pages in 4..5000 {
            for checksums in [false, true] {
                let bytes = pages * PAGE_SIZE;
                let most = Places::most_volume_bytes(bytes, checksums);
                assert!(Places::new(most, checksums).end() <= bytes);
                assert!(Places::new(most + 2 * PAGE_SIZE, checksums).end() > bytes);
            }
        }
    }
}
