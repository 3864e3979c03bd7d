//! The blocks under a paged medium: a host file, a block device, an overlay in memory, or a simulated disk of
//! a test.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};

use super::ring::Ring;
use crate::addr::PAGE_SIZE;
use crate::host;
use crate::mapping::punch;
use crate::site::{Caller, SiteKind};

/// The smallest possible sector, in bytes.
pub const SECTOR: u64 = 512;

/// Storage of blocks. A power failure may undo a write until the next [`Blocks::flush`] returns.
pub trait Blocks: Send + Sync {
    /// Returns the size, in bytes.
    ///
    /// # Errors
    /// The host's error.
    fn size(&self) -> io::Result<u64>;

    /// Returns the size of a sector, in bytes: a power of two from 512 to the size of a page. The offset and
    /// length of each write are multiples of this size. A power failure damages only sectors that are being
    /// written.
    fn sector(&self) -> u64;

    /// Fills `out` with the bytes at `offset`. Offset and length are multiples of the size of a page, except
    /// at the end of the storage.
    ///
    /// # Errors
    /// The host's error, or an error if the storage ends inside the range.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Stores whole sectors. The caller passes data that is page-aligned in memory.
    ///
    /// # Errors
    /// The host's error; any part of the data may have been stored.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Stores several ranges that do not overlap, in any order.
    ///
    /// # Errors
    /// As [`Blocks::write`].
    fn write_all(&self, ranges: &[(u64, &[u8])]) -> io::Result<()> {
        ranges.iter().try_for_each(|&(offset, data)| self.write(offset, data))
    }

    /// Makes every earlier write survive a power failure.
    ///
    /// # Errors
    /// The host's error. It is then unknown which writes survive, and a later success proves nothing about
    /// them.
    fn flush(&self) -> io::Result<()>;

    /// Allocates blocks for a range, so that no later write to the range fails for lack of room. On storage
    /// that cannot allocate in advance, the call does nothing and succeeds.
    ///
    /// # Errors
    /// The host's error.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Gives a range back to the host, if the host supports that. Callers expect no particular bytes in the
    /// range afterwards.
    ///
    /// # Errors
    /// The host's error.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Announces a call of these blocks, or the comparison of a checksum. Returns false if a test leaves that
    /// call or comparison out, and the caller then skips it. [`FileBlocks`] announces calls to the thread's
    /// observer, but no comparisons.
    ///
    /// # Errors
    /// The error that the caller returns instead of making the call.
    fn announce(&self, _kind: SiteKind, _caller: Caller) -> io::Result<bool> {
        Ok(true)
    }
}

impl dyn Blocks + '_ {
    /// Returns these blocks with the caller of this function as the call site.
    #[track_caller]
    pub(crate) fn here(&self) -> Here<'_> {
        Here { blocks: self, caller: Location::caller() }
    }
}

/// Blocks, and the call site in the sources that calls them.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    blocks: &'a dyn Blocks,
    caller: Caller,
}

impl Here<'_> {
    /// Announces a call, and makes it unless a test leaves it out.
    fn call(self, kind: SiteKind, call: impl FnOnce(&dyn Blocks) -> io::Result<()>) -> io::Result<()> {
        if self.blocks.announce(kind, self.caller)? { call(self.blocks) } else { Ok(()) }
    }

    /// Announces and makes a call of [`Blocks::size`].
    pub(crate) fn size(self) -> io::Result<u64> {
        self.blocks.announce(SiteKind::Host, self.caller)?;
        self.blocks.size()
    }

    /// Announces and makes a call of [`Blocks::read`].
    pub(super) fn read(self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.call(SiteKind::Read, |blocks| blocks.read(offset, out))
    }

    /// Announces and makes a call of [`Blocks::write`].
    pub(super) fn write(self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.call(SiteKind::Write, |blocks| blocks.write(offset, data))
    }

    /// Announces and makes a call of [`Blocks::write_all`].
    pub(super) fn write_all(self, ranges: &[(u64, &[u8])]) -> io::Result<()> {
        self.call(SiteKind::Write, |blocks| blocks.write_all(ranges))
    }

    /// Announces and makes a call of [`Blocks::flush`].
    pub(super) fn flush(self) -> io::Result<()> {
        self.call(SiteKind::Flush, |blocks| blocks.flush())
    }

    /// Announces and makes a call of [`Blocks::allocate`].
    pub(super) fn allocate(self, offset: u64, len: u64) -> io::Result<()> {
        self.call(SiteKind::Provision, |blocks| blocks.allocate(offset, len))
    }

    /// Announces and makes a call of [`Blocks::discard`].
    pub(super) fn discard(self, offset: u64, len: u64) -> io::Result<()> {
        self.call(SiteKind::Discard, |blocks| blocks.discard(offset, len))
    }

    /// Returns `is_right`, the result of comparing a checksum. Returns true in any case if a test leaves this
    /// comparison out.
    pub(super) fn verify(self, is_right: bool) -> bool {
        let compared = self.blocks.announce(SiteKind::Checksum, self.caller);
        is_right || matches!(compared, Ok(false))
    }
}

/// A host file or block device. Callers should open the file for direct transfers (`O_DIRECT`), because the
/// host then keeps no second copy of the pages.
pub struct FileBlocks {
    file: File,
    /// End of the blocks, in bytes. `None` means the end of the file.
    end: Option<u64>,
    sector: u64,
    /// A ring (of io_uring) for concurrent writes, made at its first use. The inner value is `None` if the
    /// host has no ring for this file.
    ring: OnceLock<Option<Ring>>,
}

/// Returns the size of a sector. `align` is the alignment that the host reports for direct transfers. It is
/// `None` if the host reports no alignment, and 0 if the host has no direct transfers for the file. In both
/// cases writes have whole pages: every disk accepts them, and the host itself writes whole pages from its
/// cache.
fn sector_of(align: Option<u32>) -> u64 {
    match align {
        Some(0) | None => PAGE_SIZE,
        Some(align) => u64::from(align).clamp(SECTOR, PAGE_SIZE),
    }
}

impl FileBlocks {
    /// Makes the blocks of a file or device.
    pub fn new(file: File) -> FileBlocks {
        let asked = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        let told = asked.ok().filter(|told| told.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
        let sector = sector_of(told.map(|told| told.stx_dio_offset_align));
        FileBlocks { file, end: None, sector, ring: OnceLock::new() }
    }

    /// Makes [`Blocks::size`] return `bytes`, for a volume that takes only the start of a device. Reads and
    /// writes past this end are not refused.
    pub fn up_to(self, bytes: u64) -> FileBlocks {
        FileBlocks { end: Some(bytes), ..self }
    }
}

impl Blocks for FileBlocks {
    fn size(&self) -> io::Result<u64> {
        if let Some(end) = self.end {
            return Ok(end);
        }
        // A seek to the end finds the size of a device, too. The length in the metadata of a device is 0.
        Ok(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?)
    }

    fn sector(&self) -> u64 {
        self.sector
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn write_all(&self, ranges: &[(u64, &[u8])]) -> io::Result<()> {
        if let &[(offset, data)] = ranges {
            return self.write(offset, data);
        }
        match self.ring.get_or_init(|| Ring::new(&self.file).ok()) {
            Some(ring) => ring.write_all(&self.file, ranges),
            None => ranges.iter().try_for_each(|&(offset, data)| self.write(offset, data)),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let done = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len)
        });
        match done {
            // A device has its blocks already, and some file systems cannot allocate in advance.
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(punch(&self.file, offset, len)?)
    }

    fn announce(&self, kind: SiteKind, caller: Caller) -> io::Result<bool> {
        if kind != SiteKind::Checksum {
            host::announce(kind, caller)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a file has no direct transfers, the host writes whole pages. A power failure may damage every
    /// sector of such a page, also those of earlier records.
    #[test]
    fn regression_file_without_direct_transfers_has_sectors_of_a_page() {
        assert_eq!([None, Some(0)].map(sector_of), [PAGE_SIZE; 2]);
        assert_eq!([1, 512, 4096, 65536].map(|align| sector_of(Some(align))), [512, 512, 4096, 4096]);
    }
}
