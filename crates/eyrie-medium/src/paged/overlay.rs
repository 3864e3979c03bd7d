//! Blocks that keep all writes in memory, over other blocks that stay unchanged. A check opens a volume on
//! such an overlay. So the check sees the writes that the open makes, but the disk itself stays unchanged.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard};

use super::blocks::{Blocks, SECTOR};
use crate::site::{Caller, SiteKind};
use crate::sync::unpoisoned;

type Sector = [u8; SECTOR as usize];

/// Blocks over `below`. Writes stay in memory, in sectors of 512 bytes. Sectors that were never written here
/// are read from `below`.
pub struct Overlay<B> {
    below: B,
    written: Mutex<BTreeMap<u64, Sector>>,
}

impl<B: Blocks> Overlay<B> {
    /// Makes an overlay over `below`, without writes.
    pub fn new(below: B) -> Overlay<B> {
        Overlay { below, written: Mutex::default() }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<u64, Sector>> {
        // Each sector is inserted whole, so a panic leaves no sector half changed.
        unpoisoned(self.written.lock())
    }
}

impl<B: Blocks> Blocks for Overlay<B> {
    fn size(&self) -> io::Result<u64> {
        self.below.size()
    }

    fn sector(&self) -> u64 {
        self.below.sector()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let below = self.below.read(offset, out);
        let (first, end) = (offset / SECTOR, (offset + out.len() as u64).div_ceil(SECTOR));
        let written = self.written();
        // If all of the bytes were written here, an error of the disk does not matter.
        if written.range(first..end).count() as u64 != end - first {
            below?;
        }
        for (&number, sector) in written.range(first..end) {
            let at = (number * SECTOR - offset) as usize;
            let len = sector.len().min(out.len() - at);
            out[at..at + len].copy_from_slice(&sector[..len]);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(SECTOR));
        if offset + data.len() as u64 > self.size()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (sectors, rest) = data.as_chunks();
        debug_assert!(rest.is_empty());
        self.written().extend((offset / SECTOR..).zip(sectors.iter().copied()));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Announces to `below` only reads and calls to the host, because changes happen in memory.
    fn announce(&self, kind: SiteKind, caller: Caller) -> io::Result<bool> {
        let is_below = matches!(kind, SiteKind::Read | SiteKind::Host);
        if is_below { self.below.announce(kind, caller) } else { Ok(true) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;
    use crate::paged::blocks::FileBlocks;

    #[test]
    fn overlay_reads_its_writes_and_leaves_the_disk_unchanged() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[1; 8192]).expect("room");
        let overlay = Overlay::new(FileBlocks::new(File::open(file.path()).expect("there")));
        overlay.write(1024, &[2; 1024]).expect("memory");
        overlay.write(1536, &[3; 512]).expect("memory");
        let mut out = [0; 4096];
        overlay.read(0, &mut out).expect("there");
        assert!(out[..1024] == [1; 1024] && out[1024..1536] == [2; 512] && out[1536..2048] == [3; 512]);
        assert!(out[2048..].iter().all(|&byte| byte == 1));
        overlay.read(4096, &mut out).expect("there");
        assert!(out == [1; 4096]);
        overlay.write(8192, &[4; 512]).expect_err("past the end");
        assert_eq!(std::fs::read(file.path()).expect("there"), [1; 8192]);
    }

    #[test]
    fn written_bytes_are_read_although_the_disk_fails() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[1; 4096]).expect("room");
        let disk = FileBlocks::new(File::open(file.path()).expect("there")).up_to(8192);
        let overlay = Overlay::new(disk);
        overlay.write(4096, &[2; 2048]).expect("memory");
        let mut out = [0; 4096];
        overlay.read(4096, &mut out).expect_err("the file ends before");
        overlay.write(6144, &[3; 2048]).expect("memory");
        overlay.read(4096, &mut out).expect("all of it was written");
        assert!(out[..2048] == [2; 2048] && out[2048..] == [3; 2048]);
    }
}
