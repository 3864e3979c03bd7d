//! The blocks that a paged medium keeps its bytes on: a host file or device, or (for tests) a simulated disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};

use super::ring::Ring;
use crate::addr::PAGE_SIZE;
use crate::mapping::punch;
use crate::plan::{self, SiteKind};

/// Least size of a sector, in bytes.
pub const SECTOR: u64 = 512;

/// Storage of blocks, which forgets what was written to it unless a [`Blocks::flush`] came after.
pub trait Blocks: Send + Sync {
    /// Its size, in bytes.
    ///
    /// # Errors
    /// The host's.
    fn size(&self) -> io::Result<u64>;

    /// What a transfer is a multiple of and starts at a multiple of, in bytes: 512, or the size of a page. A power failure
    /// harms no sector but those that were being written.
    fn sector(&self) -> u64;

    /// Fills `out` from `offset` on; both are page-aligned, but for the last bytes of a file.
    ///
    /// # Errors
    /// The host's; also when the storage ends before.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Stores whole sectors. The data is page-aligned in memory.
    ///
    /// # Errors
    /// The host's; any part of it may have been stored.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Stores several ranges that do not overlap, in any order.
    ///
    /// # Errors
    /// As [`Blocks::write`].
    fn write_all(&self, ranges: &[(u64, &[u8])]) -> io::Result<()> {
        ranges.iter().try_for_each(|&(offset, data)| self.write(offset, data))
    }

    /// Makes everything that was written so far survive a power failure.
    ///
    /// # Errors
    /// The host's. What of it survives is then unknown, and trying again proves nothing.
    fn flush(&self) -> io::Result<()>;

    /// Makes room for a range, so that no later write there fails for want of it.
    ///
    /// # Errors
    /// The host's.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Forgets a range, whose room may go to others.
    ///
    /// # Errors
    /// The host's.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Announces a call that is about to be made, or a checksum that is compared, and says whether it is. Disks of tests leave
    /// some out, or let them fail; those of files fail as the thread's plan says.
    ///
    /// # Errors
    /// That of the call.
    fn announce(&self, _kind: SiteKind, _location: &'static Location<'static>) -> io::Result<bool> {
        Ok(true)
    }
}

impl dyn Blocks + '_ {
    /// The same blocks, called by the caller of this.
    #[track_caller]
    pub(super) fn here(&self) -> Here<'_> {
        Here { blocks: self, location: Location::caller() }
    }
}

/// Blocks, and where in the sources they are called.
#[derive(Clone, Copy)]
pub(super) struct Here<'a> {
    blocks: &'a dyn Blocks,
    location: &'static Location<'static>,
}

impl Here<'_> {
    fn call(self, kind: SiteKind, call: impl FnOnce(&dyn Blocks) -> io::Result<()>) -> io::Result<()> {
        if self.blocks.announce(kind, self.location)? { call(self.blocks) } else { Ok(()) }
    }

    /// [`Blocks::size`].
    pub(super) fn size(self) -> io::Result<u64> {
        self.blocks.announce(SiteKind::Host, self.location)?;
        self.blocks.size()
    }

    /// [`Blocks::read`].
    pub(super) fn read(self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.call(SiteKind::Read, |blocks| blocks.read(offset, out))
    }

    /// [`Blocks::write`].
    pub(super) fn write(self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.call(SiteKind::Write, |blocks| blocks.write(offset, data))
    }

    /// [`Blocks::write_all`].
    pub(super) fn write_all(self, ranges: &[(u64, &[u8])]) -> io::Result<()> {
        self.call(SiteKind::Write, |blocks| blocks.write_all(ranges))
    }

    /// [`Blocks::flush`].
    pub(super) fn flush(self) -> io::Result<()> {
        self.call(SiteKind::Flush, |blocks| blocks.flush())
    }

    /// [`Blocks::allocate`].
    pub(super) fn allocate(self, offset: u64, len: u64) -> io::Result<()> {
        self.call(SiteKind::Back, |blocks| blocks.allocate(offset, len))
    }

    /// [`Blocks::discard`].
    pub(super) fn discard(self, offset: u64, len: u64) -> io::Result<()> {
        self.call(SiteKind::Unback, |blocks| blocks.discard(offset, len))
    }

    /// Whether a checksum is right, or is not compared.
    pub(super) fn verify(self, is_right: bool) -> bool {
        let compared = self.blocks.announce(SiteKind::Checksum, self.location);
        is_right || matches!(compared, Ok(false))
    }
}

/// A host file or block device. Files that were opened for direct transfers are best: the host then keeps no second
/// copy of the pages.
pub struct FileBlocks {
    file: File,
    /// Where they end; with the file, if nothing is said.
    end: Option<u64>,
    sector: u64,
    /// For several writes at a time; nothing where the host does not let us have one.
    ring: OnceLock<Option<Ring>>,
}

impl FileBlocks {
    /// The blocks of a file or device.
    pub fn new(file: File) -> FileBlocks {
        let asked = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        let sector = match asked {
            Ok(told) if told.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
                u64::from(told.stx_dio_offset_align).clamp(SECTOR, PAGE_SIZE)
            }
            // A host that does not tell takes whole pages.
            _ => PAGE_SIZE,
        };
        FileBlocks { file, end: None, sector, ring: OnceLock::new() }
    }

    /// The first `bytes` of them.
    pub fn up_to(self, bytes: u64) -> FileBlocks {
        FileBlocks { end: Some(bytes), ..self }
    }
}

impl Blocks for FileBlocks {
    fn size(&self) -> io::Result<u64> {
        if let Some(end) = self.end {
            return Ok(end);
        }
        // Unlike the file's length, this is right for devices, too.
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
        match self.ring.get_or_init(|| Ring::new().ok()) {
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
            // A device has its blocks already, and some file systems cannot promise any.
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(punch(&self.file, offset, len)?)
    }

    fn announce(&self, kind: SiteKind, location: &'static Location<'static>) -> io::Result<bool> {
        if kind != SiteKind::Checksum {
            plan::ask(kind, location)?;
        }
        Ok(true)
    }
}
