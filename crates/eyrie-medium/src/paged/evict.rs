//! Eviction: clean pages leave memory when it is short, those not used lately first (the clock algorithm).
//!
//! An eviction first marks a page as leaving. It then waits for a grace period, in which every thread that
//! may hold a pointer to the page unpins. It drops the page only if no thread has used it meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::page::{BUSY, LEAVING, PINNED, RESIDENT, WARM};
use super::pager::Pager;
use crate::epoch;
use crate::sync::unpoisoned;

/// Pages that are dropped per grace period, at most.
const BATCH: usize = 4096;
/// Attempts to advance the clock of grace periods before giving up on a long pin: some 20 ms.
const PATIENCE: u32 = 200;

impl Pager {
    /// Drops clean pages until at most `most` are in memory, or none can be dropped now. Returns false if a
    /// drain would make more of them clean.
    pub(super) fn shrink(&self, most: usize) -> bool {
        let mut hand = unpoisoned(self.hand.lock());
        // Two rounds of the clock, because the first may find every page warm.
        let mut steps = 2 * self.top.load(Ordering::Relaxed) + BATCH;
        while self.resident.load(Ordering::Relaxed) > most && steps > 0 {
            let excess = self.resident.load(Ordering::Relaxed).saturating_sub(most);
            let leaving = self.choose_leaving(&mut hand, excess.min(BATCH), &mut steps);
            // After a failure of the disk, memory may hold the only copy of a change. The flag is read after
            // the choice: a page that is clean only because its change was refused was chosen after the
            // failure.
            if !leaving.is_empty() && !grace_period() || self.failed.load(Ordering::Acquire) {
                return true;
            }
            self.drop_pages(&leaving);
        }
        self.resident.load(Ordering::Relaxed) <= most
    }

    /// Advances the hand, and marks up to `count` pages that were not used since the hand last passed.
    fn choose_leaving(&self, hand: &mut usize, count: usize, steps: &mut usize) -> Vec<usize> {
        let mut leaving = Vec::new();
        let top = self.top.load(Ordering::Relaxed);
        while leaving.len() < count && *steps > 0 {
            *steps -= 1;
            *hand = if *hand + 1 >= top { 0 } else { *hand + 1 };
            let flags = self.pages.flags(*hand).load(Ordering::Relaxed);
            if flags & RESIDENT == 0 || flags & PINNED != 0 {
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

    fn drop_pages(&self, leaving: &[usize]) {
        let mut run: Option<(usize, usize)> = None;
        for &page in leaving {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            // A thread that used the page meanwhile has cleared `LEAVING`. The exchange fails if one does so
            // now.
            let unused = flags & LEAVING != 0 && flags & PINNED == 0;
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

    fn drop_run(&self, first: usize, count: usize) {
        self.let_go(first, count);
        self.resident.fetch_sub(count, Ordering::Relaxed);
        (first..first + count).for_each(|page| self.pages.unlock(page, 0, 0));
    }
}

/// Waits until no pin from before the call is left. Returns false if one stays for long.
fn grace_period() -> bool {
    let before = epoch::now();
    (0..PATIENCE).any(|attempt| {
        if attempt > 10 {
            std::thread::sleep(Duration::from_micros(100));
        }
        before.is_over(epoch::advance())
    })
}
