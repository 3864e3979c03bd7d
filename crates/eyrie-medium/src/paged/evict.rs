//! Eviction: clean pages leave memory when memory is short. The clock algorithm chooses pages that were not
//! used lately. A *hand* moves over all pages in a circle. It skips pages that must stay in memory, and whole
//! regions without a page in memory, because a volume may have a thousand times as many pages as fit in
//! memory. Of the other pages, it clears the flag `WARM` of those that are warm, and chooses those that are
//! not.
//!
//! An eviction first marks pages as leaving. It then waits for a grace period, in which every thread that may
//! hold a pointer to such a page unpins. The eviction drops a page only if no thread has used the page
//! meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::page::{BUSY, LEAVING, REGION, RESIDENT, UNEVICTABLE, WARM};
use super::pager::Pager;
use crate::epoch;
use crate::sync::unpoisoned;

/// Maximum number of pages that are dropped after one grace period.
const BATCH: usize = 4096;
/// Maximum number of attempts to advance the epoch, before a long pin ends the eviction. All attempts
/// together take some 30 ms, because the kernel makes each sleep of 100 µs longer.
const PATIENCE: u32 = 200;

#[cfg(test)]
thread_local! {
    /// Number of pages and empty regions over which this thread has moved the hand.
    pub(super) static MOVES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Pager {
    /// Drops clean pages until at most `most` pages are in memory, or until no page can be dropped now.
    /// Returns false if more than `most` pages stay, usually because they are not clean. The caller then
    /// makes a checkpoint, which makes them clean. Returns true also if a long pin or a failure of the disk
    /// ended the eviction.
    pub(super) fn shrink(&self, most: usize) -> bool {
        let mut hand = unpoisoned(self.hand.lock());
        // The hand may go round twice, because in the first round every page may be warm.
        let mut moves = 2 * self.top.load(Ordering::Relaxed) + BATCH;
        while self.resident.load(Ordering::Relaxed) > most && moves > 0 {
            let excess = self.resident.load(Ordering::Relaxed).saturating_sub(most);
            let leaving = self.choose_leaving(&mut hand, excess.min(BATCH), &mut moves);
            // After a failure of the disk no page is dropped, because memory may hold the only copy of a
            // change. A failed drain may even leave such a page clean. `failed` is loaded after the choice,
            // so no page that was chosen after the failure is dropped.
            if !leaving.is_empty() && !self.grace_period() || self.failed.load(Ordering::Acquire) {
                return true;
            }
            self.drop_pages(&leaving);
        }
        self.resident.load(Ordering::Relaxed) <= most
    }

    /// Advances the hand at most `moves` times, and marks as leaving up to `count` pages that were not used
    /// since the hand last passed them.
    fn choose_leaving(&self, hand: &mut usize, count: usize, moves: &mut usize) -> Vec<usize> {
        let mut leaving = Vec::new();
        let top = self.top.load(Ordering::Relaxed);
        while leaving.len() < count && *moves > 0 {
            *moves -= 1;
            *hand = if *hand + 1 >= top { 0 } else { *hand + 1 };
            #[cfg(test)]
            MOVES.set(MOVES.get() + 1);
            if self.regions[*hand / REGION].load(Ordering::Relaxed) == 0 {
                let last = (*hand | (REGION - 1)).min(top.max(*hand + 1) - 1);
                *moves = moves.saturating_sub(last - *hand);
                *hand = last;
                continue;
            }
            let flags = self.pages.flags(*hand).load(Ordering::Relaxed);
            if flags & RESIDENT == 0 || flags & UNEVICTABLE != 0 {
                continue;
            }
            if flags & WARM != 0 {
                self.pages.compare_exchange(*hand, flags, flags & !WARM);
            } else if self.pages.compare_exchange(*hand, flags, flags | LEAVING) {
                leaving.push(*hand);
            }
        }
        leaving.sort_unstable();
        leaving
    }

    /// Drops those pages that no thread has used since they were marked, neighbours together.
    fn drop_pages(&self, leaving: &[usize]) {
        let mut run: Option<(usize, usize)> = None;
        for &page in leaving {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            // A thread that used the page meanwhile has cleared `LEAVING`. If a thread clears `LEAVING` just
            // now, the compare-and-exchange fails.
            let unused = flags & LEAVING != 0 && flags & UNEVICTABLE == 0;
            if !unused || !self.pages.compare_exchange(page, flags, (flags & !(RESIDENT | LEAVING)) | BUSY) {
                continue;
            }
            run = match run {
                Some((first, count)) if first + count == page => Some((first, count + 1)),
                Some((first, count)) => {
                    self.drop_run(first, count);
                    Some((page, 1))
                }
                None => Some((page, 1)),
            };
        }
        if let Some((first, count)) = run {
            self.drop_run(first, count);
        }
    }

    /// Waits until every pin from before the call has ended. Returns false if such a pin lasts too long.
    fn grace_period(&self) -> bool {
        let before = epoch::now();
        let is_over = (0..PATIENCE).any(|attempt| {
            if attempt > 10 {
                std::thread::sleep(Duration::from_micros(100));
            }
            before.is_over(epoch::advance())
        });
        self.is_held_back.store(!is_over, Ordering::Relaxed);
        is_over
    }

    /// True if the cache has more than twice as many pages as its limit permits.
    pub(crate) fn is_overfull(&self) -> bool {
        self.resident() > 2 * self.limit()
    }

    /// True if the last eviction ended because pins lasted too long, and the cache is overfull.
    pub(crate) fn is_overfull_by_pins(&self) -> bool {
        self.is_held_back.load(Ordering::Relaxed) && self.is_overfull()
    }

    /// Calls `change` with the count of each region that has pages of a range, and the number of these pages.
    pub(super) fn each_region(&self, first: usize, count: usize, change: impl Fn(&AtomicU32, u32)) {
        let end = first + count;
        let mut start = first;
        while start < end {
            let next = ((start | (REGION - 1)) + 1).min(end);
            change(&self.regions[start / REGION], (next - start) as u32);
            start = next;
        }
    }

    /// Gives the memory of neighbouring locked pages back, and unlocks them.
    fn drop_run(&self, first: usize, count: usize) {
        self.let_go(first, count);
        self.resident.fetch_sub(count, Ordering::Relaxed);
        self.each_region(first, count, |region, pages| _ = region.fetch_sub(pages, Ordering::Relaxed));
        (first..first + count).for_each(|page| self.pages.unlock(page, 0, 0));
    }
}
