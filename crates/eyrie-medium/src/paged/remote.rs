//! The page cache of another process, which this process only reads: the cache of the service that owns the
//! volume.
//!
//! This process maps the pages and their flags. Before each access it looks at the flags, as the owner does.
//! If a page is not in memory, or is about to leave it, this process asks the owner to bring the page. The
//! grace period of an eviction waits for the pins of this process, because the owner watches them
//! ([`epoch::watch_pins`]). If a page was in memory without [`LEAVING`](super::page::LEAVING) at one moment
//! since the pin began, it stays in memory until the pin ends.
//!
//! The cache of an owner that has died does not change any more. So a reader must check that the owner lives
//! before it uses the bytes that it has read ([`RemotePages::check_owner`]).

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use super::page::{Pages, are_readable};
use crate::addr::{Addr, PAGE_SIZE, SegmentId};
use crate::epoch;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};

/// Calls to the process that owns a page cache.
pub struct PageOwner {
    /// Asks the owner to bring the first pages of a range into memory (see
    /// [`Medium::bring`](crate::Medium::bring)).
    pub bring: Box<dyn Fn(Addr, u64) -> Result<(), Fault> + Send + Sync>,
    /// Returns false if the owner has ended.
    pub is_alive: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The flags of the pages of another process.
pub(crate) struct RemotePages {
    pages: Pages,
    owner: PageOwner,
}

impl RemotePages {
    /// Maps the flags of the pages of a volume of `bytes` bytes.
    pub(crate) fn new(flags: File, bytes: u64, owner: PageOwner) -> Result<RemotePages, Fault> {
        Ok(RemotePages { pages: Pages::of_owner(flags, (bytes / PAGE_SIZE) as usize)?, owner })
    }

    /// Maps the flags of the next owner in place of these.
    pub(crate) fn replace(&self, flags: File) -> Result<(), Fault> {
        self.pages.replace(flags)
    }

    /// Ensures that the pages of a range are in memory, and that the calling thread may read them while its
    /// pin lasts.
    pub(crate) fn before_read(&self, offset: u64, len: u64) -> Result<(), Fault> {
        debug_assert!(epoch::is_pinned(), "a paged medium is read under a pin");
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let page = (at / PAGE_SIZE) as usize;
            if !are_readable(self.pages.flags(page).load(Ordering::Acquire))
                && !broken(SafetyRule::ClientWaitsForPages)
            {
                // After this call the page was in memory at some time since the pin began.
                (self.owner.bring)(Addr::new(SegmentId(0), at), end - at)?;
            }
            at = (page as u64 + 1) * PAGE_SIZE;
        }
        Ok(())
    }

    /// Returns an error if the owner has ended.
    pub(crate) fn check_owner(&self) -> Result<(), Fault> {
        if (self.owner.is_alive)() { Ok(()) } else { Err(owner_ended()) }
    }
}

fn owner_ended() -> Fault {
    let what = "the owner of a shared volume has ended".to_string();
    Fault::Io { what, source: io::ErrorKind::ConnectionReset.into() }
}
