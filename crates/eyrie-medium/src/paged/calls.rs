//! What a medium offers so that it can be on a disk. Other media take no part: each call is then one test of a tag.

use std::io;
use std::panic::Location;
use std::sync::Arc;

use super::blocks::Blocks;
use super::journal::Anchor;
use super::{Drain, Gate, Keeper, PagedOptions, Pager, journal_bytes};
use crate::addr::{Addr, PAGE_SIZE};
use crate::backing::Backing;
use crate::fault::Fault;
use crate::mapping::{Mapping, Sentinel};
use crate::medium::Medium;
use crate::plan::SiteKind;

/// Where the last whole page of a disk is.
#[track_caller]
fn last_page(blocks: &dyn Blocks) -> Result<u64, Fault> {
    let size = blocks.here().size();
    let size = size.map_err(|source| Fault::Io { what: "measuring the disk".to_string(), source })?;
    Ok((size / PAGE_SIZE).saturating_sub(1) * PAGE_SIZE)
}

impl Medium {
    /// The volume on a disk that [`Medium::format_paged`] made, as its last drain left it.
    ///
    /// # Errors
    /// [`Fault::NotPaged`] when there is none; [`Fault::Io`] when the disk fails.
    pub fn paged(blocks: Arc<dyn Blocks>, options: PagedOptions) -> Result<Medium, Fault> {
        let anchor = Anchor::read(&*blocks)?.ok_or(Fault::NotPaged)?;
        let memory = Arc::new(Mapping::of_pages(anchor.volume_bytes)?);
        let pager = Pager::open(blocks, anchor, options, Arc::clone(&memory))?;
        let keeper = Keeper::start(Arc::new(pager))?;
        Ok(Medium::over(Box::new([memory]), Sentinel::new()?, Backing::Paged(keeper)))
    }

    /// Bytes that a disk needs for a volume of `volume_bytes`, with its journal.
    pub fn paged_bytes(volume_bytes: u64) -> u64 {
        volume_bytes + journal_bytes(volume_bytes) + PAGE_SIZE
    }

    /// Makes room on a disk for a volume of `volume_bytes` (whole pages) and its journal.
    ///
    /// # Errors
    /// [`Fault::HostFull`], [`Fault::Io`].
    pub fn format_paged(blocks: &dyn Blocks, volume_bytes: u64) -> Result<(), Fault> {
        Medium::make_journal(volume_bytes, journal_bytes(volume_bytes), |anchor| anchor.write(blocks))
    }

    /// Size of the volume that fills a disk of `disk_bytes` together with its journal; 0, if there is no room for both.
    pub fn volume_bytes_on(disk_bytes: u64) -> u64 {
        let bytes = (disk_bytes - disk_bytes % PAGE_SIZE).saturating_sub(PAGE_SIZE);
        bytes.saturating_sub(journal_bytes((bytes / 17 * 16).next_multiple_of(PAGE_SIZE)))
    }

    /// As [`Medium::format_paged`], for a disk that stays as large as it is: the journal takes all that comes behind the
    /// volume.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn fill_paged(blocks: &dyn Blocks, volume_bytes: u64) -> Result<(), Fault> {
        let journal_bytes = last_page(blocks)?.saturating_sub(volume_bytes);
        Medium::make_journal(volume_bytes, journal_bytes, |anchor| anchor.write(blocks))
    }

    /// As [`Medium::format_paged`], for a disk that grows with what is written behind its end. It grows at once or not
    /// at all.
    ///
    /// # Errors
    /// [`Fault::HostFull`], [`Fault::Io`].
    pub fn extend_paged(blocks: &dyn Blocks, volume_bytes: u64) -> Result<(), Fault> {
        Medium::make_journal(volume_bytes, journal_bytes(volume_bytes), |anchor| anchor.extend(blocks))
    }

    /// As [`Medium::format_paged`], for a volume that keeps its disk and changes its size there: both must be in their places,
    /// and nothing in the journal so far. It is left as it is; the bytes that the volume takes together with the new one.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn move_paged(blocks: &dyn Blocks, volume_bytes: u64) -> Result<u64, Fault> {
        let room = last_page(blocks)?.saturating_sub(volume_bytes);
        let journal_bytes = journal_bytes(volume_bytes).min(room);
        Medium::make_journal(volume_bytes, journal_bytes, |anchor| anchor.extend(blocks))?;
        Ok(volume_bytes + journal_bytes + PAGE_SIZE)
    }

    fn make_journal(
        volume_bytes: u64,
        journal_bytes: u64,
        write: impl FnOnce(&Anchor) -> io::Result<()>,
    ) -> Result<(), Fault> {
        let anchor = Anchor::create(volume_bytes, journal_bytes);
        let written = anchor.and_then(|anchor| write(&anchor));
        written.map_err(|source| Fault::of_room("making the journal", source))
    }

    /// Lets an Op in: on a paged medium no cut is made while the gate lives, and there is room for what it changes. Every
    /// change of a medium is made inside a gate. Gates do not nest.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`] when the disk has failed; [`Fault::Forked`] in a forked child.
    #[inline]
    pub fn enter(&self) -> Result<Gate<'_>, Fault> {
        match &self.backing {
            Backing::Paged(keeper) => {
                self.check()?;
                keeper.pager().enter().map(Gate::new)
            }
            _ => Ok(Gate::free()),
        }
    }

    /// Makes everything durable that was done before the call, as far as the medium can. Not to be called inside a gate.
    ///
    /// # Errors
    /// [`Fault::Io`] when the disk fails; [`Fault::ReadOnly`] after it did; [`Fault::Forked`] in a forked child.
    pub fn drain(&self) -> Result<(), Fault> {
        self.drained(Drain::Cut)
    }

    /// [`Medium::drain`], after which the disk has everything in its place: for the end.
    ///
    /// # Errors
    /// As [`Medium::drain`].
    pub fn drain_home(&self) -> Result<(), Fault> {
        self.drained(Drain::Home)
    }

    fn drained(&self, drain: Drain) -> Result<(), Fault> {
        match &self.backing {
            Backing::Paged(keeper) => {
                self.check()?;
                keeper.pager().drain(drain)
            }
            _ => Ok(()),
        }
    }

    /// Tells that an allocator gives out a range. What is on pages of it need not be read, and nothing durable is on
    /// those: see [`Medium::freed`].
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::ReadOnly`].
    #[inline]
    #[track_caller]
    pub fn taken(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        if self.reads_plainly() { Ok(()) } else { self.taking(addr, len, Location::caller()) }
    }

    #[inline(never)]
    fn taking(&self, addr: Addr, len: u64, location: &'static Location<'static>) -> Result<(), Fault> {
        self.planned(SiteKind::Allocate, location)?;
        match &self.backing {
            // What is smaller shares its page with others.
            Backing::Paged(keeper) if len.is_multiple_of(PAGE_SIZE) => {
                self.resolve(addr, len)?;
                keeper.pager().taken(addr.offset(), len)
            }
            _ => Ok(()),
        }
    }

    /// Tells that a page-aligned range, which nobody reads any more, is free. If that gives a number, the range may be
    /// given out again only when [`Medium::durable`] has reached it.
    #[inline]
    pub fn freed(&self, addr: Addr, len: u64) -> Option<u64> {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().freed(addr.offset(), len),
            _ => None,
        }
    }

    /// Size of the journal behind the volume, in bytes; `None` where there is none.
    pub fn journal_bytes(&self) -> Option<u64> {
        match &self.backing {
            Backing::Paged(keeper) => Some(keeper.pager().journal_bytes()),
            _ => None,
        }
    }

    /// How far the medium is durable, for comparison with what [`Medium::freed`] gave.
    #[inline]
    pub fn durable(&self) -> u64 {
        match &self.backing {
            Backing::Paged(keeper) => keeper.pager().durable(),
            _ => u64::MAX,
        }
    }
}
