//! Writes of pages to their places on the disk, which a drain gathers so that neighbours are written
//! together.

use std::io;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::buffer::PageBytes;
use super::page::{WRITING, WRITTEN};
use super::pager::Pager;
use crate::addr::PAGE_SIZE;

const PAGE: usize = PAGE_SIZE as usize;
/// Maximum number of pages that are gathered before they are written to their places. These pages are 1 MiB,
/// which is enough to write most neighbours together.
const GATHERED: usize = 256;

/// Pages that a drain will write to their places. They are gathered so that neighbours are written together.
pub(super) struct PlaceWrites<'a> {
    pager: &'a Pager,
    buffer: &'a mut Vec<PageBytes>,
    /// The gathered pages.
    pages: Vec<usize>,
    /// Pages that were written and may not yet be durable.
    written: Vec<usize>,
    /// The numbers and checksums of the pages that the record lists. They take effect after the next flush.
    pub(super) sums: Vec<(u64, u32)>,
}

impl<'a> PlaceWrites<'a> {
    pub(super) fn new(pager: &'a Pager, buffer: &'a mut Vec<PageBytes>) -> PlaceWrites<'a> {
        PlaceWrites { pager, buffer, pages: Vec::new(), written: Vec::new(), sums: Vec::new() }
    }

    /// Adds a page. `fill` stores its bytes, which this function returns.
    pub(super) fn add(&mut self, page: usize, fill: impl FnOnce(&mut PageBytes)) -> io::Result<&PageBytes> {
        if self.pages.len() == GATHERED {
            self.write(None)?;
        }
        let slot = self.pages.len();
        if slot == self.buffer.len() {
            self.buffer.push(PageBytes([0; PAGE]));
        }
        self.pages.push(page);
        fill(&mut self.buffer[slot]);
        Ok(&self.buffer[slot])
    }

    /// Writes the gathered pages in one batch. If `more` has the offset and the bytes of a journal record,
    /// the batch includes this record.
    #[track_caller]
    pub(super) fn write(&mut self, more: Option<(u64, &[u8])>) -> io::Result<()> {
        let mut rest = &self.buffer[..];
        let mut ranges = Vec::new();
        for run in self.pager.places.runs_of(&self.pages) {
            let (bytes, after) = rest.split_at(run.len());
            ranges.push((self.pager.places.offset(run.start), bytes.as_bytes()));
            rest = after;
        }
        ranges.extend(more);
        if !ranges.is_empty() {
            self.pager.blocks.here().write_all(&ranges)?;
            self.pager.counts.wrote(&ranges);
        }
        for &page in &self.pages {
            self.pager.pages.flags(page).fetch_or(WRITTEN, Ordering::AcqRel);
        }
        self.written.append(&mut self.pages);
        Ok(())
    }

    /// Flushes the disk. Only then may the written pages leave memory: if the flush fails, memory has the
    /// only certain copy of their bytes. The checksums of the pages take effect first, because the next read
    /// of a page from the disk compares the page with its checksum.
    #[track_caller]
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.pager.blocks.here().flush()?;
        if !self.sums.is_empty() {
            self.pager.checksums.set(self.sums.drain(..));
        }
        for page in self.written.drain(..) {
            self.pager.pages.flags(page).fetch_and(!WRITING, Ordering::AcqRel);
        }
        Ok(())
    }
}
