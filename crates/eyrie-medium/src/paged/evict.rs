//! Clean pages leave memory when it gets short, those not used lately first (the clock algorithm).
//!
//! A page is marked as leaving, a grace period passes in which everyone who may hold a pointer to it lets go, and only
//! then, if nobody has used it meanwhile, is it dropped.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::mm::Advice;

use super::page::{BUSY, LEAVING, PINNED, RESIDENT, WARM};
use super::{Pager, locked};
use crate::addr::PAGE_SIZE;
use crate::epoch;

/// Pages that are dropped at a time.
const BATCH: usize = 4096;
/// Tries to move the clock of grace periods on before giving up on somebody's pin: some 20 ms.
const PATIENCE: u32 = 200;

impl Pager {
    /// Pages in memory from which on some are dropped.
    pub(super) fn high_mark(&self) -> usize {
        self.limit() / 10 * 9
    }

    /// Pages in memory down to which they are dropped.
    pub(super) fn low_mark(&self) -> usize {
        self.limit() / 10 * 8
    }

    /// Drops clean pages until at most `most` are in memory, or none can be dropped now; `false` if a drain would let
    /// more of them go.
    pub(super) fn shrink(&self, most: usize) -> bool {
        let mut hand = locked(&self.hand);
        // Two rounds of the clock: the first may find every page warm.
        let mut steps = 2 * self.top.load(Ordering::Relaxed) + BATCH;
        while self.resident.load(Ordering::Relaxed) > most && steps > 0 {
            let excess = self.resident.load(Ordering::Relaxed).saturating_sub(most);
            let leaving = self.choose_leaving(&mut hand, excess.min(BATCH), &mut steps);
            // When the disk has failed, what memory has may be nowhere else. The look comes after the choice: a page
            // that is clean only because its change was refused was chosen after the failure.
            if !leaving.is_empty() && !grace_period() || self.failed.load(Ordering::Acquire) {
                return true;
            }
            self.drop_pages(&leaving);
        }
        self.resident.load(Ordering::Relaxed) <= most
    }

    /// Moves the hand on, and marks up to `count` pages that were not used since it last came by.
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
                self.pages.turn(*hand, flags, flags & !WARM);
            } else if self.pages.turn(*hand, flags, flags | LEAVING) {
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
            let unused = flags & LEAVING != 0 && flags & PINNED == 0;
            if !unused || !self.pages.turn(page, flags, (flags & !(RESIDENT | LEAVING)) | BUSY) {
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

    /// Gives the memory of pages back that are locked and not resident.
    pub(super) fn let_go(&self, first: usize, count: usize) {
        let bytes = count * PAGE_SIZE as usize;
        // SAFETY: whole pages of the mapping that are locked and not resident, so nobody reads them or relies on them.
        let _ = unsafe { rustix::mm::madvise(self.place(first).cast(), bytes, Advice::LinuxDontNeed) };
    }

    fn drop_run(&self, first: usize, count: usize) {
        self.let_go(first, count);
        self.resident.fetch_sub(count, Ordering::Relaxed);
        (first..first + count).for_each(|page| self.pages.unlock(page, 0, 0));
    }
}

/// Waits until nobody holds a pin from before; `false` if somebody keeps one for long.
fn grace_period() -> bool {
    let before = epoch::now();
    (0..PATIENCE).any(|attempt| {
        if attempt > 10 {
            std::thread::sleep(Duration::from_micros(100));
        }
        before.is_over(epoch::advance())
    })
}
