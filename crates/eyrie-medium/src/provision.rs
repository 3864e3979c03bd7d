//! Memory of the host: provisioning it, discarding it, and making durable the bytes that a mapping shows.

use std::panic::Location;

use crate::addr::Addr;
use crate::backing::Backing;
use crate::fault::Fault;
use crate::host;
use crate::mapping::HUGE_PAGE;
use crate::medium::Medium;
use crate::provider::Provider;
use crate::site::SiteKind;

/// Bytes that a call provisions at a time: small enough that the caller can wait for zeroed pages, large
/// enough that system calls stay rare.
const STEP_BYTES: u64 = 256 << 10;
/// Bytes that are provisioned ahead of need at a time: a huge page.
pub const AHEAD_BYTES: u64 = HUGE_PAGE as u64;

impl Medium {
    /// Bytes to provision at a time with [`Medium::provision`] so that a call can wait for them. A power of
    /// two.
    pub fn step_bytes(&self) -> u64 {
        match self.backing {
            // A disk only reserves blocks and writes none of them, so one request may cover any range.
            Backing::Paged(_) => 1 << 63,
            _ => STEP_BYTES,
        }
    }

    /// Requests the [`AHEAD_BYTES`] at `addr`, a multiple of that size, in the background. Returns false if
    /// nobody would provide them. The range must not be accessed before [`Medium::provided_ahead`] returns
    /// it.
    pub fn provide_ahead(&self, addr: Addr) -> bool {
        let is_within = self.resolve(addr, AHEAD_BYTES).is_ok() && addr.is_aligned(AHEAD_BYTES);
        match (&self.provider, self.segments.get(addr.segment_index())) {
            (Some(provider), Some(segment)) => is_within && provider.ask(segment, addr.offset()),
            _ => false,
        }
    }

    /// Takes the oldest finished request of [`Medium::provide_ahead`]: the offset of the range, and true if
    /// its memory is there.
    pub fn provided_ahead(&self) -> Option<(u64, bool)> {
        self.provider.as_ref().and_then(Provider::take)
    }

    /// Withdraws the open requests of [`Medium::provide_ahead`], and waits for the one in progress.
    pub fn recall_ahead(&self) {
        if let Some(provider) = &self.provider {
            provider.recall();
        }
    }

    /// Makes the host provide the memory of a page-aligned range.
    ///
    /// # Errors
    /// [`Fault::HostFull`] when the host has no room; [`Fault::OutOfBounds`].
    #[track_caller]
    pub fn provision(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        self.resolve(addr, len)?;
        self.backing.before_call(SiteKind::Provision, Location::caller())?;
        if let Backing::Paged(keeper) = &self.backing {
            return keeper.pager().provision(addr.offset(), len);
        }
        host::announce(SiteKind::Provision, Location::caller())
            .map_err(|errno| Fault::of_room("providing memory of the host", errno.into()))?;
        self.segments[addr.segment_index()].provision(addr.offset(), len)
    }

    /// Gives the memory of a page-aligned range back to the host, if the host supports that. Its bytes are
    /// lost, and the range must not be accessed before the next [`Medium::provision`].
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Io`].
    #[track_caller]
    pub fn discard(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        self.resolve(addr, len)?;
        self.backing.before_call(SiteKind::Discard, Location::caller())?;
        if let Backing::Paged(keeper) = &self.backing {
            return keeper.pager().discard(addr.offset(), len);
        }
        host::announce(SiteKind::Discard, Location::caller())
            .map_err(|errno| Fault::of_room("giving memory back to the host", errno.into()))?;
        self.segments[addr.segment_index()].discard(addr.offset(), len)
    }

    /// Makes every byte durable that the mapping shows. A process that is killed between a store and its
    /// write-back leaves bytes that later processes read but that a power failure may undo. Recovery must not
    /// act on such bytes, so it calls this first.
    ///
    /// Does nothing on `dram`, where no byte survives a power failure, and on `paged`, which flushes its disk
    /// before it replays the journal.
    ///
    /// # Errors
    /// [`Fault::Io`]; [`Fault::HostFull`].
    #[track_caller]
    pub fn flush_found(&self) -> Result<(), Fault> {
        match &self.backing {
            Backing::Dram | Backing::Paged(_) => {}
            Backing::Pmem(_) => self.segments.iter().try_for_each(|segment| segment.sync())?,
            Backing::Observed(observer) => observer.flush(Location::caller()),
        }
        Ok(())
    }
}
