//! Changes of pages. An Op enters the gate, and each of its stores records the lines that it changes. A page
//! that the drain in progress still needs is copied before the store.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use super::drain::Drain;
use super::gate::{Passage, Reservation, holds_gate, spend};
use super::journal::PACKED_LINE;
use super::page::{BUSY, DIRTY, FRESH, LEAVING, ODD, RESIDENT, WARM, lines_of};
use super::pager::{Pager, SHARDS};
use super::room::{PAGE_ENTRY, most_room};
use crate::addr::PAGE_SIZE;
use crate::epoch;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};
use crate::sync::unpoisoned;

/// Room in the journal for an Op that stores little outside of fresh pages, in bytes.
const ORDINARY_ROOM: u64 = 16 << 10;
/// Maximum number of cuts for which an Op waits because too many pages are fresh.
const CUTS_OF_PATIENCE: u64 = 2;

impl Pager {
    /// Lets an Op enter the gate when memory and the journal have room for its changes, and when the next
    /// sync has few pages to write (`pace`). Otherwise this call waits or drains. Both happen before the Op
    /// enters the gate, because an Op inside must not wait for a drain: the cut of that drain would wait for
    /// the Op.
    ///
    /// The Op gets `extra` bytes of room more than an ordinary Op, but at most half of the journal in all.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`] after a drain has failed. [`Fault::Forked`] in a forked child that would have to
    /// wait.
    pub(crate) fn enter(&self, extra: u64) -> Result<Passage<'_>, Fault> {
        let room = ORDINARY_ROOM.saturating_add(extra).min(self.most_room_of_an_op());
        let is_swamped =
            || self.is_swamped() || self.recorded_bytes().saturating_add(room) > self.room_of_a_cut();
        // `extra` has room for an entry of each page that the data of the Op may take. So this number is an
        // upper bound of these pages.
        let pages = (extra / PAGE_ENTRY) as usize;
        // Other threads may make pages fresh as fast as drains write them. So an Op counts as ahead of its
        // pace for at most this many cuts.
        let last_cut = self.cut.load(Ordering::Acquire) + CUTS_OF_PATIENCE;
        let is_ahead = || self.pace.is_ahead(pages) && self.cut.load(Ordering::Acquire) < last_cut;
        let mut attempts = 0;
        loop {
            self.refuse_if_failed()?;
            let (reservation, reserved) = Reservation::new(&self.reserved, room);
            let swamped = is_swamped();
            let ahead = !swamped && is_ahead();
            if !swamped && !ahead && self.recorded_bytes().saturating_add(reserved) <= self.room_of_a_cut() {
                return Ok(self.turnstile.enter(reservation));
            }
            drop(reservation);
            self.refuse_if_forked()?;
            if swamped || ahead && !self.expects_drain() {
                // A drain of another thread may make room while this thread waits for the lock. A drain that
                // fails makes the volume read-only, and the next turn of the loop reports this.
                let _ = self.drain_unless(Drain::Cut, || !is_swamped() && !is_ahead());
            } else {
                // A drain is in progress or expected, or the Ops inside have reserved the rest of the room.
                self.wait(&mut attempts)?;
            }
        }
    }

    /// Returns true if an Op that is ahead of its pace should wait for a drain of another thread.
    fn expects_drain(&self) -> bool {
        self.pace.has_just_drained() || matches!(self.drain.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Returns true if so many changes await a drain that further Ops have to wait.
    fn is_swamped(&self) -> bool {
        self.dirty_pages.load(Ordering::Relaxed) > self.limit() / 2
            || self.recorded_bytes() > self.journal_bytes / 2
    }

    /// Prepares the pages of a range for a store, and records the change. An Op that has entered the gate
    /// runs to its end even if a drain fails meanwhile, because half an Op would leave memory inconsistent.
    /// The pages that the Op changed then stay in memory.
    pub(crate) fn before_store(&self, offset: u64, len: u64) -> Result<(), Fault> {
        debug_assert!(holds_gate(), "a paged medium is changed inside a gate");
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let (page, within) = ((at / PAGE_SIZE) as usize, at % PAGE_SIZE);
            let part = (PAGE_SIZE - within).min(end - at);
            self.change(page, lines_of(within, part)).map_err(|fault| match fault {
                // The rest of the store needs room, too.
                Fault::OpTooLarge { needed } => Fault::OpTooLarge { needed: needed + most_room(end - at) },
                fault => fault,
            })?;
            at += part;
        }
        Ok(())
    }

    /// Records the change of `lines` of a page.
    ///
    /// If the page is not in memory, the call reads it from the disk, even if the store covers all of the
    /// page. The reason is that other threads may read the page before the store, and that a store to several
    /// pages may still fail at a later page.
    #[inline]
    fn change(&self, page: usize, lines: u64) -> Result<(), Fault> {
        let mut attempts = 0;
        let mut has_entry = false;
        let mut spend_entry = || -> Result<(), Fault> {
            if !std::mem::replace(&mut has_entry, true) { spend(PAGE_ENTRY) } else { Ok(()) }
        };
        let fresh = loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            let parity = self.parity();
            // The common case: the page is in memory and already dirty in this cut. The parity cannot change
            // here, because the next cut waits for this Op.
            if flags & (BUSY | RESIDENT | DIRTY | ODD) == RESIDENT | DIRTY | parity {
                break flags & FRESH != 0;
            }
            if flags & BUSY != 0 {
                self.wait(&mut attempts)?;
            } else if flags & RESIDENT == 0 {
                self.bring(page, page)?;
            } else if flags & DIRTY != 0 && !broken(SafetyRule::ChangedPageIsPreserved) {
                // The page belongs to the cut of the drain in progress. The Op must not fail between this
                // copy and the change: the page would be clean, and could leave memory before the drain has
                // written its bytes.
                spend_entry()?;
                self.preserve(page, flags);
            } else {
                spend_entry()?;
                let new = (flags & !(LEAVING | ODD)) | DIRTY | WARM | parity;
                if self.pages.compare_exchange(page, flags, new) {
                    self.list(page);
                }
            }
        };
        // A plain load comes first. Most stores hit lines that are marked already, and then need no locked
        // instruction.
        let seen = self.pages.lines(page).load(Ordering::Relaxed);
        if seen & lines != lines {
            // The lines of a fresh page take no room in the journal, except in a small cut. A drain treats a
            // cut as small only if the journal has room for these lines (`CutContents::is_small`).
            let room =
                |lines: u64| if fresh { 0 } else { u64::from(lines.count_ones()) * PACKED_LINE as u64 };
            spend(room(lines & !seen))?;
            let before = self.pages.lines(page).fetch_or(lines, Ordering::AcqRel);
            self.changed_bytes.fetch_add(room(lines & !before), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds a page that became dirty to the list of pages of the next cut.
    pub(super) fn list(&self, page: usize) {
        unpoisoned(self.dirty[epoch::thread_index() % SHARDS].lock()).push(page);
        let dirty = self.dirty_pages.fetch_add(1, Ordering::Relaxed);
        // The keeper (the background thread of the page cache) is woken once, when the count reaches this
        // threshold, and not again for each further page. The keeper also wakes at intervals.
        if dirty == self.limit() / 4 {
            self.waker.wake();
        }
    }

    /// Copies a page for the drain in progress, which has not taken the page yet. Then marks the page clean
    /// for the next cut. Does nothing if the flags of the page are not `flags` any more. The caller then
    /// loads the flags again.
    #[cold]
    pub(super) fn preserve(&self, page: usize, flags: u64) {
        if !self.pages.compare_exchange(page, flags, flags | BUSY) {
            return;
        }
        let lines = self.pages.lines(page).swap(0, Ordering::AcqRel);
        // SAFETY: the address is that of a whole page of the mapping. The page is locked, and each thread
        // makes this copy before it stores to a page of an earlier cut.
        unsafe { self.shadows.keep(page, lines, flags & FRESH != 0, self.address(page)) };
        self.dirty_pages.fetch_sub(1, Ordering::Relaxed);
        self.pages.unlock(page, 0, DIRTY | FRESH | ODD);
    }
}
