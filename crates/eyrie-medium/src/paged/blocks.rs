//! The blocks that a paged medium keeps its bytes on: a host file or device, or (for tests) a simulated disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;

use crate::mapping::punch;

/// Storage of blocks, which forgets what was written to it unless a [`Blocks::flush`] came after.
pub trait Blocks: Send + Sync {
    /// Its size, in bytes.
    ///
    /// # Errors
    /// The host's.
    fn size(&self) -> io::Result<u64>;

    /// Fills `out` from `offset` on; both are page-aligned, but for the last bytes of a file.
    ///
    /// # Errors
    /// The host's; also when the storage ends before.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Stores whole pages.
    ///
    /// # Errors
    /// The host's; any part of it may have been stored.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

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
}

/// A host file or block device. Files that were opened for direct transfers are best: the host then keeps no second
/// copy of the pages.
pub struct FileBlocks(pub File);

impl Blocks for FileBlocks {
    fn size(&self) -> io::Result<u64> {
        // Unlike the file's length, this is right for devices, too.
        Ok(rustix::fs::seek(&self.0, rustix::fs::SeekFrom::End(0))?)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let done = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, len)
        });
        match done {
            // A device has its blocks already, and some file systems cannot promise any.
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(punch(&self.0, offset, len)?)
    }
}
