//! Memory of the host: asking for it, giving it back, and making durable what it shows.

use std::panic::Location;

use crate::addr::Addr;
use crate::ahead::Ahead;
use crate::backing::Backing;
use crate::fault::Fault;
use crate::mapping::HUGE_PAGE;
use crate::medium::Medium;
use crate::plan::{self, SiteKind};

/// Bytes for which a call asks the host at a time.
const STEP_BYTES: u64 = 256 << 10;
/// Bytes for which the host is asked ahead of need at a time.
pub const AHEAD_BYTES: u64 = HUGE_PAGE as u64;

impl Medium {
    /// Bytes for which the host is to be asked at a time with [`Medium::back`], so that a call can wait for it: a power of two.
    pub fn step_bytes(&self) -> u64 {
        match self.backing {
            // A disk notes what it lends, and brings none of it.
            Backing::Paged(_) => 1 << 63,
            _ => STEP_BYTES,
        }
    }

    /// Asks the host for the [`AHEAD_BYTES`] at `addr`, a multiple of those, in the background; false if nobody would provide them.
    /// Nobody may access them before they are in [`Medium::provided_ahead`].
    pub fn provide_ahead(&self, addr: Addr) -> bool {
        let is_within = self.resolve(addr, AHEAD_BYTES).is_ok() && addr.is_aligned(AHEAD_BYTES);
        match (&self.ahead, self.segments.get(addr.segment_index())) {
            (Some(ahead), Some(segment)) => is_within && ahead.ask(segment, addr.offset()),
            _ => false,
        }
    }

    /// Takes the oldest of the ranges for which [`Medium::provide_ahead`] was asked and that are finished: its offset, and true if its
    /// memory is there.
    pub fn provided_ahead(&self) -> Option<(u64, bool)> {
        self.ahead.as_ref().and_then(Ahead::take)
    }

    /// Withdraws what [`Medium::provide_ahead`] was asked for, and waits for what is being provided.
    pub fn recall_ahead(&self) {
        if let Some(ahead) = &self.ahead {
            ahead.recall();
        }
    }

    /// Makes the host provide the memory of a page-aligned range.
    ///
    /// # Errors
    /// [`Fault::HostFull`] when it has none; [`Fault::OutOfBounds`].
    #[track_caller]
    pub fn back(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        self.resolve(addr, len)?;
        self.planned(SiteKind::Back, Location::caller())?;
        if let Backing::Paged(keeper) = &self.backing {
            return keeper.pager().back(addr.offset(), len);
        }
        plan::ask(SiteKind::Back, Location::caller())?;
        self.segments[addr.segment_index()].back(addr.offset(), len)
    }

    /// Gives the memory of a page-aligned range back to the host, if that can take it. What is in it is lost, and it is
    /// not to be accessed before [`Medium::back`].
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::Io`].
    #[track_caller]
    pub fn unback(&self, addr: Addr, len: u64) -> Result<(), Fault> {
        self.resolve(addr, len)?;
        self.planned(SiteKind::Unback, Location::caller())?;
        if let Backing::Paged(keeper) = &self.backing {
            return keeper.pager().unback(addr.offset(), len);
        }
        plan::ask(SiteKind::Unback, Location::caller())?;
        self.segments[addr.segment_index()].unback(addr.offset(), len)
    }

    /// Makes everything durable that the mapping shows. A process that is killed between a store and its write-back leaves bytes that
    /// every later process reads and a power failure may undo, so recovery calls this before it acts on what it reads.
    ///
    /// On `dram` nothing survives a power failure, and `paged` flushes its disk before it replays the journal: both do nothing here.
    ///
    /// # Errors
    /// [`Fault::Io`]; [`Fault::HostFull`].
    #[track_caller]
    pub fn flush_found(&self) -> Result<(), Fault> {
        let location = Location::caller();
        match &self.backing {
            Backing::Dram | Backing::Paged(_) => {}
            Backing::Pmem(_) => self.segments.iter().try_for_each(|segment| segment.sync())?,
            Backing::Record(recorder) => drop(recorder.fence(SiteKind::Flush, location)),
            Backing::Image(image) => drop(image.plan().point(SiteKind::Flush, location)),
        }
        Ok(())
    }
}
