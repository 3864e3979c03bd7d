//! Allocation and freeing of pages, which the allocator announces.

use std::sync::atomic::Ordering;

use super::gate::{give, spend};
use super::journal::MAX_OVERFLOW_BYTES;
use super::page::{BUSY, DIRTY, FRESH, LEAVING, LOGGED, ODD, RESIDENT, WARM};
use super::pager::Pager;
use super::read_ahead::PIECE;
use super::room::PAGE_ENTRY;
use crate::addr::PAGE_SIZE;
use crate::fault::Fault;
use crate::rules::{SafetyRule, broken};
use crate::sync::unpoisoned;

impl Pager {
    /// Announces that the allocator gave out a page-aligned range. The range was free at the last durable
    /// cut, so no reader needs its old bytes, and a drain may write its pages straight to their places.
    pub(crate) fn mark_allocated(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let first = (offset / PAGE_SIZE) as usize;
        spend(len / PAGE_SIZE * PAGE_ENTRY)?;
        for page in first..first + (len / PAGE_SIZE) as usize {
            self.take(page)?;
        }
        Ok(())
    }

    /// Makes one page fresh.
    fn take(&self, page: usize) -> Result<(), Fault> {
        let mut attempts = 0;
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            let parity = self.parity();
            if flags & BUSY != 0 {
                self.wait(&mut attempts)?;
            } else if flags & DIRTY != 0 && flags & ODD != parity {
                self.preserve(page, flags);
            } else {
                // The page becomes resident without a read of the disk, because no reader needs its old
                // bytes. Its lines in the journal are of an earlier use and no longer keep the page in
                // memory.
                let new = (flags & !(LEAVING | ODD | LOGGED)) | RESIDENT | DIRTY | FRESH | WARM | parity;
                if !self.pages.compare_exchange(page, flags, new) {
                    continue;
                }
                if flags & DIRTY == 0 {
                    self.list(page);
                }
                if flags & (DIRTY | FRESH) != DIRTY | FRESH && self.pace.one_more() {
                    self.waker.wake();
                }
                if flags & RESIDENT == 0 {
                    self.populate(page);
                    self.arrived(page, 1);
                    self.slow_down(1);
                }
                return Ok(());
            }
        }
    }

    /// Provides the memory of a fresh page that was not in memory. If all pages of its huge page are new to
    /// memory, one page fault provides the whole huge page. A large write, or many small writes, then use the
    /// rest of the huge page. If each page were provided alone, the 512 page faults would take several times
    /// as long as the write.
    ///
    /// The unused pages of huge pages take memory, too. So this function provides a huge page only if
    /// afterwards there are at most as many unused pages as pages in use, and both together take at most half
    /// of the limit.
    fn populate(&self, page: usize) {
        if self.is_shared() {
            return; // the memory file of a service has no huge pages
        }
        let before =
            self.unused_huge.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        let unused = before.map_or(0, |n| n - 1) + PIECE;
        let resident = self.resident();
        let first = page - page % PIECE;
        if unused > resident || resident + unused > self.limit() / 2 || first + PIECE > self.pages.count() {
            return;
        }
        // The pages before and after this one are checked first, because one of them is usually in memory.
        let is_new = |other: &usize| {
            *other == page || self.pages.flags(*other).load(Ordering::Relaxed) & (RESIDENT | BUSY) == 0
        };
        let neighbours = [page.max(first + 1) - 1, (page + 1).min(first + PIECE - 1)];
        if neighbours.iter().all(is_new) && (first..first + PIECE).all(|other| is_new(&other)) {
            self.unused_huge.fetch_add(PIECE - 1, Ordering::Relaxed);
            self.memory.populate_huge_page(first as u64 * PAGE_SIZE);
        }
    }

    /// Announces that a page-aligned range is free: no pointer leads to it any more. If the result is the
    /// number of a cut, the allocator may give the range out again when that cut is durable. If the result is
    /// `None`, the allocator may do so immediately.
    pub(crate) fn mark_freed(&self, offset: u64, len: u64) -> Option<u64> {
        let first = (offset / PAGE_SIZE) as usize;
        let mut until = None;
        for page in first..(first + (len / PAGE_SIZE) as usize).min(self.pages.count()) {
            if !self.forget(page) {
                let early = u64::from(broken(SafetyRule::FreedPageWaitsForItsCut));
                until = Some(self.cut.load(Ordering::Acquire) - early);
            }
        }
        until
    }

    /// Lends a page-aligned range to the next cut, and gives the Op of this thread more room in the journal.
    /// If the record of the cut is larger than the journal, the drain writes the rest of the record to this
    /// range. The range is free, and the last durable cut does not use it. Returns the number of a cut. The
    /// allocator may give the range out again when this cut is durable.
    ///
    /// # Errors
    /// [`Fault::OpTooLarge`] if a record cannot overflow to so many pages.
    pub(crate) fn lend(&self, offset: u64, len: u64) -> Result<u64, Fault> {
        let first = (offset / PAGE_SIZE) as usize;
        let range = first..(first + (len / PAGE_SIZE) as usize).min(self.pages.count());
        // A checkpoint must not write a page of the range to its place, because a part of the record may go
        // there.
        range.clone().for_each(|page| self.end_logging(page));
        let mut lent = unpoisoned(self.lent.lock());
        let pages = lent.iter().map(ExactSizeIterator::len).sum::<usize>() + range.len();
        // The entries of these pages must fit in half of the journal.
        let most = (self.journal_bytes / 2 / PAGE_ENTRY).min(MAX_OVERFLOW_BYTES / PAGE_SIZE);
        if pages as u64 > most {
            return Err(Fault::OpTooLarge { needed: pages as u64 * PAGE_SIZE });
        }
        self.top.fetch_max(range.end, Ordering::Relaxed);
        lent.push(range);
        // The record has an entry of 16 bytes for each overflow page of 4096 bytes. The rest of the bytes is
        // room for the Op.
        give(len - len / 256);
        Ok(self.cut.load(Ordering::Acquire))
    }

    /// Drops the changes of a free page, and clears [`LOGGED`], because the journal's lines of the page are
    /// of an earlier use. If the page still belongs to the cut of the drain in progress, this function leaves
    /// the flags as they are. Only a checkpoint adds a free page to its cut (see [`Pager::add_to_next_cut`]),
    /// and the checkpoint clears the flags itself.
    fn end_logging(&self, page: usize) {
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & DIRTY != 0 && self.forget(page) || flags & LOGGED == 0 {
                return;
            }
            if flags & BUSY != 0 {
                std::thread::yield_now();
            } else if flags & DIRTY != 0 && flags & ODD != self.parity()
                || self.pages.compare_exchange(page, flags, flags & !LOGGED)
            {
                return;
            }
        }
    }

    /// Drops the changes of a free page, if they belong to the next cut. Returns true if the page was also
    /// fresh in that cut, so that no durable pointer leads to it.
    fn forget(&self, page: usize) -> bool {
        let mut attempts = 0;
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & BUSY != 0 {
                if self.wait(&mut attempts).is_err() {
                    return false;
                }
                continue;
            }
            let mine = flags & DIRTY != 0 && flags & ODD == self.parity();
            if !mine {
                return false;
            }
            // The lock is needed because a drain must see both the lines and the flag `DIRTY`, or neither.
            if self.pages.compare_exchange(page, flags, flags | BUSY) {
                self.pages.lines(page).store(0, Ordering::Release);
                self.dirty_pages.fetch_sub(1, Ordering::Relaxed);
                if flags & FRESH != 0 {
                    self.pace.one_less();
                }
                self.pages.unlock(page, 0, DIRTY | FRESH | ODD);
                return flags & FRESH != 0 || broken(SafetyRule::ChangedPageIsNotFresh);
            }
        }
    }
}
