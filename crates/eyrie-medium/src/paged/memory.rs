//! A disk of memory: one that is traced, or the image of a crash.

use std::io;
use std::panic::Location;

use super::blocks::{Blocks, SECTOR};
use crate::plan::{Plan, SiteKind};
use crate::trace::{Recorder, Rule};
use crate::{Addr, CrashImage, Fault, ImageBase, Medium, SegmentId};

/// A disk whose sectors are lines of a medium of memory: what is written to it is recorded, or what a crash left of it is decided
/// as it is read.
pub struct MemoryDisk {
    medium: Medium,
    plan: Plan,
    recorder: Option<Recorder>,
}

fn place(offset: u64) -> Addr {
    Addr::new(SegmentId(0), offset)
}

impl MemoryDisk {
    /// A disk that holds `bytes` (whole pages), every write and flush recorded.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn traced(bytes: &[u8], recorder: Recorder) -> Result<MemoryDisk, Fault> {
        let recorder = recorder.by(Rule::Sectors);
        let medium = Medium::traced_from(bytes, recorder.unplanned())?;
        Ok(MemoryDisk { medium, plan: recorder.plan().clone(), recorder: Some(recorder) })
    }

    /// A disk as a crash left it.
    ///
    /// # Errors
    /// [`Fault::Io`] when there is no memory.
    pub fn image(base: &ImageBase, image: CrashImage) -> Result<MemoryDisk, Fault> {
        let plan = image.plan().clone();
        Ok(MemoryDisk { medium: Medium::image(base, image)?, plan, recorder: None })
    }

    /// All its bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        self.medium.snapshot()
    }

    fn change(
        &self,
        offset: u64,
        len: u64,
        change: impl FnOnce(Addr) -> Result<(), Fault>,
    ) -> io::Result<()> {
        debug_assert!((offset | len).is_multiple_of(SECTOR), "whole sectors");
        if let Some(image) = self.medium.crash_image() {
            image.forget(place(offset), len);
        }
        change(place(offset)).map_err(io::Error::other)
    }
}

impl Blocks for MemoryDisk {
    fn announce(&self, kind: SiteKind, location: &'static Location<'static>) -> io::Result<bool> {
        if kind != SiteKind::Checksum
            && let Some(failure) = self.plan.call(kind, location)
        {
            return Err(failure.into());
        }
        match (kind, &self.recorder) {
            (SiteKind::Flush, Some(recorder)) => Ok(recorder.fence(SiteKind::Flush, location)),
            (SiteKind::Flush | SiteKind::Write | SiteKind::Checksum, _) => {
                Ok(self.plan.point(kind, location))
            }
            _ => Ok(true),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.medium.segment_sizes().sum())
    }

    fn sector(&self) -> u64 {
        SECTOR
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.medium.read(place(offset), out).map_err(io::Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(offset, data.len() as u64, |addr| self.medium.write(addr, data).map(drop))
    }

    /// It was recorded when it was announced, with its caller.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if offset + len > self.size()? { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// What is read there afterwards is nothing that anybody wrote.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(offset, len, |addr| self.medium.write(addr, &vec![0xdd; len as usize]).map(drop))
    }
}
