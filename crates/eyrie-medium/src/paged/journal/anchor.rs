//! The anchor of a journal: making, reading and writing it, and the new name when the journal starts over.

use std::io;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::layout::{
    ANCHOR_MAGIC, Anchor, MAX_JOURNAL_BYTES, PAGE, TRANSFER_BYTES, VERSION, VERSION_WITH_CHECKSUMS,
    VERSION_WITHOUT_OVERFLOW,
};
use crate::addr::{Addr, PAGE_SIZE};
use crate::fault::Fault;
use crate::host;
use crate::paged::blocks::Blocks;
use crate::paged::buffer::page_buffer;
use crate::paged::places::{PLAIN_PAGES, Places};
use crate::rules::{SafetyRule, broken};

pub(super) fn io_fault(what: &str) -> impl FnOnce(io::Error) -> Fault {
    move |source| Fault::Io { what: what.to_string(), source }
}

/// Returns a random name for a journal.
#[track_caller]
fn random_id() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    host::call(|| rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty()))?;
    Ok(id)
}

impl Anchor {
    /// Makes an anchor for a new journal, with a random name.
    ///
    /// # Errors
    /// The host's error if the host has no random bytes.
    pub fn create(volume_bytes: u64, journal_bytes: u64, checksums: bool) -> io::Result<Anchor> {
        Ok(Anchor::new(random_id()?, volume_bytes, journal_bytes, checksums))
    }

    /// Makes the anchor of a volume of `volume_bytes`, with the name `id`.
    pub(super) fn new(id: [u8; 16], volume_bytes: u64, journal_bytes: u64, checksums: bool) -> Anchor {
        let mut anchor = Anchor {
            magic: ANCHOR_MAGIC,
            id,
            volume_bytes,
            journal_bytes,
            version: if checksums { VERSION_WITH_CHECKSUMS } else { VERSION },
            ..Anchor::new_zeroed()
        };
        anchor.checksum = anchor.sum();
        anchor
    }

    /// Returns the places of the pages of the volume.
    pub(crate) fn places(&self) -> Places {
        Places::new(self.volume_bytes, self.version == VERSION_WITH_CHECKSUMS)
    }

    /// Returns the offset of the journal.
    pub(super) fn journal_start(&self) -> u64 {
        self.places().end()
    }

    /// Returns the checksum of the fields before the checksum.
    fn sum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..std::mem::offset_of!(Anchor, checksum)])
    }

    /// Reads the anchor in the last page of `blocks`. Returns `None` unless the anchor is sound and its sizes
    /// fit the size of `blocks`.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub(crate) fn read(blocks: &dyn Blocks) -> Result<Option<Anchor>, Fault> {
        let size = blocks.here().size().map_err(io_fault("reading the size of the volume's host"))?;
        let Some(last) = (size / PAGE_SIZE).checked_sub(1) else { return Ok(None) };
        let mut page = page_buffer(PAGE);
        blocks
            .here()
            .read(last * PAGE_SIZE, page.as_mut_bytes())
            .map_err(io_fault("reading the volume's host"))?;
        let Ok((anchor, _)) = Anchor::read_from_prefix(page.as_bytes()) else { return Ok(None) };
        let versions = [VERSION_WITHOUT_OVERFLOW, VERSION, VERSION_WITH_CHECKSUMS];
        let known = anchor.magic == ANCHOR_MAGIC && versions.contains(&anchor.version);
        let whole = known && blocks.here().verify(anchor.checksum == anchor.sum());
        let aligned = (anchor.volume_bytes | anchor.journal_bytes).is_multiple_of(PAGE_SIZE);
        // The comparison with `MAX_OFFSET` comes first, because larger sizes would overflow the calculation
        // of the places.
        let fits = anchor.volume_bytes <= size.min(Addr::MAX_OFFSET)
            && anchor.journal_start().checked_add(anchor.journal_bytes) == Some(last * PAGE_SIZE)
            && anchor.volume_bytes > 0
            && (!anchor.places().has_checksums() || anchor.volume_bytes > PLAIN_PAGES as u64 * PAGE_SIZE);
        // Replay reads a record as a whole, so this limit bounds the memory that replay allocates for a
        // hostile anchor.
        let fits = fits && anchor.journal_bytes <= MAX_JOURNAL_BYTES;
        Ok(Some(anchor).filter(|_| whole && aligned && fits))
    }

    /// Gives the journal a new name, durably. The caller has made all pages and checksums of the records
    /// durable in their places.
    ///
    /// The flush must come before the write of the next record. That record overwrites old records from the
    /// start of the journal on. Without the flush, a power failure could keep only later sectors of that
    /// record, and also bring the old name back. Replay would then apply the old records before these
    /// sectors, but none of the later old records. The lines of the applied records may be older than the
    /// bytes in the places of their pages, so this replay would undo durable changes.
    ///
    /// # Errors
    /// The host's error.
    pub(crate) fn rename(&mut self, blocks: &dyn Blocks) -> io::Result<()> {
        let checksums = self.places().has_checksums();
        *self = Anchor::new(random_id()?, self.volume_bytes, self.journal_bytes, checksums);
        self.write_page(blocks)?;
        if broken(SafetyRule::NewJournalNameIsFlushed) { Ok(()) } else { blocks.here().flush() }
    }

    /// Writes the anchor to the page after the journal.
    #[track_caller]
    pub(super) fn write_page(&self, blocks: &dyn Blocks) -> io::Result<()> {
        let mut page = page_buffer(PAGE);
        page.as_mut_bytes()[..size_of::<Anchor>()].copy_from_slice(self.as_bytes());
        blocks.here().write(self.journal_start() + self.journal_bytes, page.as_bytes())
    }

    /// Writes the anchor durably, and extends a file that ends before the anchor. The blocks of the journal
    /// are allocated first, and no byte is written to them.
    ///
    /// # Errors
    /// The host's error.
    pub(crate) fn extend(&self, blocks: &dyn Blocks) -> io::Result<()> {
        blocks.here().allocate(self.journal_start(), self.journal_bytes + PAGE_SIZE)?;
        self.write_page(blocks)?;
        blocks.here().flush()
    }

    /// Allocates the blocks of the journal, writes zeros over them, and then writes the anchor. This call
    /// does not flush: a new volume has nothing to lose before its open, which flushes, and a resize flushes
    /// the file itself.
    ///
    /// # Errors
    /// The host's error.
    pub(crate) fn write(&self, blocks: &dyn Blocks) -> io::Result<()> {
        blocks.here().allocate(self.journal_start(), self.journal_bytes + PAGE_SIZE)?;
        let zeros = page_buffer(TRANSFER_BYTES as usize);
        let mut at = 0;
        while at < self.journal_bytes {
            let len = TRANSFER_BYTES.min(self.journal_bytes - at);
            blocks.here().write(self.journal_start() + at, &zeros.as_bytes()[..len as usize])?;
            at += len;
        }
        self.write_page(blocks)
    }
}
