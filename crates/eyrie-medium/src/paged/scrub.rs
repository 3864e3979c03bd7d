//! Scrubbing: reads pages from the disk, whether or not they are in memory, and compares them with their
//! checksums.

use std::ops::Range;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::buffer::page_buffer;
use super::fetch::failed;
use super::page::{FRESH, LOGGED};
use super::pager::Pager;
use crate::addr::PAGE_SIZE;
use crate::fault::Fault;

/// Maximum number of pages that one read takes from the disk: 1 MiB.
const SCRUBBED: usize = 256;

impl Pager {
    /// Returns those pages of a range that cannot be read from the disk, or that do not match their
    /// checksums. Leaves out pages whose places may lack the bytes of the last durable cut. No drain runs
    /// during the call, so callers pass short ranges.
    ///
    /// # Errors
    /// [`Fault::Forked`] in a forked child.
    pub(crate) fn scrub(&self, pages: Range<usize>) -> Result<Vec<usize>, Fault> {
        self.refuse_if_forked()?;
        let _no_drain = self.lock_drain();
        let mut damaged = Vec::new();
        let mut buffer = page_buffer(SCRUBBED.min(pages.len()) * PAGE_SIZE as usize);
        for start in pages.clone().step_by(SCRUBBED) {
            for run in self.places.runs(start..(start + SCRUBBED).min(pages.end)) {
                let bytes = &mut buffer.as_mut_bytes()[..run.len() * PAGE_SIZE as usize];
                let is_read = self.blocks.here().read(self.places.offset(run.start), bytes).is_ok();
                for (page, bytes) in run.zip(bytes.chunks_mut(PAGE_SIZE as usize)) {
                    // After a failed read of several pages, each page is read alone.
                    let is_read = is_read || self.blocks.here().read(self.places.offset(page), bytes).is_ok();
                    if self.is_newest(page) && !(is_read && self.matches(page, bytes)) {
                        damaged.push(page);
                    }
                }
            }
        }
        Ok(damaged)
    }

    /// Returns the bytes of a page on the disk, whether or not the page is in memory. Returns `None` if the
    /// place of the page may lack the bytes of the last durable cut.
    ///
    /// # Errors
    /// [`Fault::Io`]. [`Fault::Forked`] in a forked child.
    pub(crate) fn read_place(&self, page: usize) -> Result<Option<Vec<u8>>, Fault> {
        self.refuse_if_forked()?;
        let _no_drain = self.lock_drain();
        let mut bytes = page_buffer(PAGE_SIZE as usize);
        self.blocks.here().read(self.places.offset(page), bytes.as_mut_bytes()).map_err(failed)?;
        Ok(self.is_newest(page).then(|| bytes.as_bytes().to_vec()))
    }

    /// Returns true if the place of a page certainly has the bytes of the last durable cut: the page was not
    /// allocated after that cut, and is not marked as [`LOGGED`].
    fn is_newest(&self, page: usize) -> bool {
        self.pages.flags(page).load(Ordering::Acquire) & (FRESH | LOGGED) == 0
    }

    /// Returns true if `bytes` match the checksum of a page, or if the volume has no checksums.
    fn matches(&self, page: usize, bytes: &[u8]) -> bool {
        if !self.places.has_checksums() {
            return true;
        }
        self.checksums.load(&*self.blocks, page);
        self.blocks.here().verify(self.checksums.is_right(page, bytes))
    }
}
