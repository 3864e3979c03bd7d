//! The calls of a medium that provision and discard memory of the host, and the call that makes the stores of
//! an earlier process durable.

use std::panic::Location;

use crate::addr::Addr;
use crate::backing::Backing;
use crate::fault::Fault;
use crate::host;
use crate::mapping::HUGE_PAGE;
use crate::medium::Medium;
use crate::provider::Provider;
use crate::site::SiteKind;

/// Bytes that a call provisions at a time. The number is small, because the caller waits while the host
/// zeroes these bytes. It is large enough that the system calls of provisioning are rare.
const STEP_BYTES: u64 = 256 << 10;
/// Bytes that one request of [`Medium::provide_ahead`] provides: a huge page.
pub const AHEAD_BYTES: u64 = HUGE_PAGE as u64;

impl Medium {
    /// Returns the number of bytes that one call of [`Medium::provision`] should cover, so that its caller
    /// does not wait long. The number is a power of two.
    pub fn step_bytes(&self) -> u64 {
        match self.backing {
            // A disk only reserves blocks and writes none of them, so one request may cover any range.
            Backing::Paged(_) => 1 << 63,
            _ => STEP_BYTES,
        }
    }

    /// Requests that the background thread provides the [`AHEAD_BYTES`] at `addr`, which is a multiple of
    /// that size. Returns false if the range is outside the volume, or if no thread can provide it. If the
    /// result is true, the caller must not access the range before [`Medium::provided_ahead`] returns the
    /// range.
    pub fn provide_ahead(&self, addr: Addr) -> bool {
        let is_within = self.resolve(addr, AHEAD_BYTES).is_ok() && addr.is_aligned(AHEAD_BYTES);
        match (&self.provider, self.segments.get(addr.segment_index())) {
            (Some(provider), Some(segment)) => is_within && provider.ask(segment, addr.offset()),
            _ => false,
        }
    }

    /// Takes the oldest finished or withdrawn request of [`Medium::provide_ahead`]: the offset of the range,
    /// and true if the host has provided its memory.
    pub fn provided_ahead(&self) -> Option<(u64, bool)> {
        self.provider.as_ref().and_then(Provider::take)
    }

    /// Withdraws the requests of [`Medium::provide_ahead`] that the thread has not begun, and waits for the
    /// request in progress.
    pub fn recall_ahead(&self) {
        if let Some(provider) = &self.provider {
            provider.recall();
        }
    }

    /// Makes the host provide the memory of a page-aligned range.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. [`Fault::HostFull`] when the host has no room. [`Fault::Io`] when the host
    /// refuses for another reason.
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

    /// Gives the memory of a page-aligned range back to the host, if the host supports that. The bytes of the
    /// range are lost, and the caller must not access it before the next [`Medium::provision`].
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

    /// Makes every byte of the mapping durable, also bytes that an earlier process stored. A process may be
    /// killed between a store and the write-back of its line. Later processes then read the stored bytes, but
    /// a power failure may undo them. Recovery must not act on such bytes, so the opening of a volume calls
    /// this function before recovery.
    ///
    /// Does nothing on `dram`, where no byte survives a power failure, and on `paged`, which flushes its disk
    /// before it replays the journal.
    ///
    /// # Errors
    /// [`Fault::Io`]; [`Fault::HostFull`].
    #[track_caller]
    pub fn flush_found(&self) -> Result<(), Fault> {
        match &self.backing {
            Backing::Dram | Backing::Paged(_) | Backing::Remote(_) => {}
            Backing::Pmem(_) => self.segments.iter().try_for_each(|segment| segment.sync())?,
            Backing::Observed(observer) => observer.flush(Location::caller()),
        }
        Ok(())
    }
}
