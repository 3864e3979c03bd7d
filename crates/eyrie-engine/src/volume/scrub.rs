//! Scrubs a volume on a disk: reads all pages in use from the disk, and compares them with their checksums.

use std::ops::Range;

use eyrie_medium::{Addr, Fault, PAGE_SIZE, SegmentId};
use zerocopy::FromBytes;

use super::Volume;
use crate::tables::geometry::{page_addr, page_of};
use crate::tables::layout::{MAGIC, SUPERBLOCKS, Superblock};
use crate::tables::superblock;
use crate::{Error, Result};

/// Maximum number of pages in a batch: 1 MiB. No drain runs while the pages of a batch are read.
const BATCH_PAGES: u32 = 256;

/// The result of [`Volume::scrub`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Scrubbed {
    /// Bytes of the pages that were read.
    pub read_bytes: u64,
    /// Addresses of the pages that cannot be read from the disk, or that do not match their checksums, in
    /// ascending order. If the scrub ended early, some of these pages may have been freed meanwhile.
    pub damaged: Vec<Addr>,
}

impl Volume {
    /// Reads every page in use from the disk, even pages that are in memory. Other threads may use the volume
    /// meanwhile. After each batch, `progress` gets the number of bytes that were read so far and the number
    /// of bytes to read in all. If `progress` returns false, the scrub ends.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the volume is not on a disk. [`Error::Fault`] if its changes cannot be made
    /// durable first.
    pub fn scrub(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Scrubbed> {
        if self.medium().disk_bytes().is_none() {
            return Err(Error::Unsupported("a scrub of a volume that is not on a disk"));
        }
        let used = self.durable_pages()?;
        let total = used.iter().map(|run| run.len() as u64 * PAGE_SIZE).sum();
        let mut done = Scrubbed { read_bytes: 0, damaged: self.damaged_superblocks()? };
        let mut suspects = Vec::new();
        for run in used {
            for start in run.clone().step_by(BATCH_PAGES as usize) {
                let pages = start..(start + BATCH_PAGES).min(run.end);
                done.read_bytes += pages.len() as u64 * PAGE_SIZE;
                suspects.extend(self.damaged_pages(pages)?.iter().map(|addr| page_of(addr.offset())));
                if !progress(done.read_bytes, total) {
                    return Ok(done.with(&suspects));
                }
            }
        }
        if !suspects.is_empty() {
            // A page that was freed meanwhile may have any bytes. So a page counts only if it is still in use
            // and still damaged.
            let used = self.durable_pages()?;
            let is_used = |page: &u32| {
                used.get(used.partition_point(|run| run.end <= *page)).is_some_and(|run| run.contains(page))
            };
            suspects.retain(is_used);
            let mut read = 0;
            while let Some(&first) = suspects.get(read) {
                let in_a_row = (first..first + BATCH_PAGES).zip(&suspects[read..]);
                let count = in_a_row.take_while(|(a, b)| a == *b).count();
                read += count;
                done.damaged.extend(self.damaged_pages(first..first + count as u32)?);
                if !progress(done.read_bytes, total) {
                    break;
                }
            }
            suspects.drain(..read);
        }
        Ok(done.with(&suspects))
    }

    /// Returns the addresses of the copies of the superblock on the disk that are not whole, or that belong
    /// to another volume. Each copy has its own checksum. The medium has no checksums of these two pages, so
    /// its scrub does not compare them.
    fn damaged_superblocks(&self) -> Result<Vec<Addr>> {
        let is_sound = |bytes: &[u8]| {
            Superblock::ref_from_bytes(bytes).is_ok_and(|copy| {
                copy.magic == MAGIC && copy.volume_id == self.volume_id() && superblock::is_whole(copy)
            })
        };
        let mut damaged = Vec::new();
        for place in SUPERBLOCKS {
            match self.medium().read_from_disk(place) {
                Ok(bytes) => damaged.extend(bytes.filter(|bytes| !is_sound(bytes)).map(|_| place)),
                // The scrub of the medium finds pages that cannot be read.
                Err(Fault::Io { .. }) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(damaged)
    }

    /// Writes all pages to their places, and returns the ranges of the pages in use.
    fn durable_pages(&self) -> Result<Vec<Range<u32>>> {
        self.medium().checkpoint()?;
        let free = self.space.free_map().pages;
        let mut next = 0;
        let mut used = Vec::new();
        for (start, end) in free.runs() {
            used.push(next..start);
            next = end;
        }
        used.push(next..page_of(self.space.context().end_of_used_groups()));
        used.retain(|run| !run.is_empty());
        Ok(used)
    }

    /// Returns the addresses of the damaged pages of a range.
    fn damaged_pages(&self, pages: Range<u32>) -> Result<Vec<Addr>> {
        let (start, end) = (u64::from(pages.start) * PAGE_SIZE, u64::from(pages.end) * PAGE_SIZE);
        Ok(self.medium().scrub(Addr::new(SegmentId(0), start), end - start)?)
    }
}

impl Scrubbed {
    /// Adds further damaged pages.
    fn with(mut self, pages: &[u32]) -> Scrubbed {
        self.damaged.extend(pages.iter().map(|&page| page_addr(page)));
        self.damaged.sort_unstable();
        self
    }
}
