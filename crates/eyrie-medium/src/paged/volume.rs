//! Volumes on disks, as a medium: making them, opening them, and making them durable.

use std::sync::Arc;

use super::blocks::Blocks;
use super::journal::Anchor;
use super::{Drain, Keeper, PagedOptions, Pager, journal_bytes};
use crate::addr::PAGE_SIZE;
use crate::backing::Backing;
use crate::fault::Fault;
use crate::mapping::{Mapping, Sentinel};
use crate::medium::Medium;

impl Medium {
    /// The volume on a disk that [`Medium::format_paged`] made, as its last drain left it.
    ///
    /// # Errors
    /// [`Fault::NotPaged`] when there is none; [`Fault::Io`] when the disk fails.
    pub fn paged(blocks: Arc<dyn Blocks>, options: PagedOptions) -> Result<Medium, Fault> {
        let anchor = Anchor::read(&*blocks)?.ok_or(Fault::NotPaged)?;
        let memory = Arc::new(Mapping::anonymous(anchor.volume_bytes, false)?);
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
        Medium::make_journal(volume_bytes, |anchor| anchor.write(blocks))
    }

    /// As [`Medium::format_paged`], for a disk that grows with what is written behind its end. It grows at once or not
    /// at all.
    ///
    /// # Errors
    /// [`Fault::HostFull`], [`Fault::Io`].
    pub fn extend_paged(blocks: &dyn Blocks, volume_bytes: u64) -> Result<(), Fault> {
        Medium::make_journal(volume_bytes, |anchor| anchor.extend(blocks))
    }

    fn make_journal(
        volume_bytes: u64,
        write: impl FnOnce(&Anchor) -> std::io::Result<()>,
    ) -> Result<(), Fault> {
        let anchor = Anchor::create(volume_bytes, journal_bytes(volume_bytes));
        anchor.and_then(|anchor| write(&anchor)).map_err(|source| match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Fault::HostFull,
            _ => Fault::Io { what: "making the journal".to_string(), source },
        })
    }

    /// Makes everything durable that was done before the call, as far as the medium can. Not to be called inside a gate.
    ///
    /// # Errors
    /// [`Fault::Io`] when the disk fails; [`Fault::ReadOnly`] after it did.
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
            Backing::Paged(keeper) => keeper.pager().drain(drain),
            _ => Ok(()),
        }
    }
}
