//! Fetching: reads the pages that an access needs, and the pages ahead of a reader.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::page::{AHEAD, BUSY, LEAVING, RESIDENT, WARM};
use super::pager::Pager;
use super::read_ahead::{PIECE, Piece};
use crate::addr::PAGE_SIZE;
use crate::epoch;
use crate::fault::Fault;

/// Pages that come into memory between two wake-ups of the keeper while memory is above its mark.
const RING_EVERY: usize = 16;
/// Base delay for each page of a fetch while memory is above its limit. The delay grows with the excess.
const PAGE_DELAY: Duration = Duration::from_micros(20);
/// Longest delay of one fetch. The waiting thread may hold an epoch pin, which keeps other threads' pages in
/// memory.
const LONGEST_DELAY: Duration = Duration::from_millis(10);

/// Pages in memory above which the keeper asks the kernel for memory pressure. Fewer pages would relieve no
/// pressure, and ending the subscription costs the kernel milliseconds.
pub(super) const WORTH_ASKING: usize = 4096;

impl Pager {
    /// Makes sure that the pages of a range are in memory, so that a pinned thread may read them.
    #[inline]
    pub(crate) fn before_read(&self, offset: u64, len: u64) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        debug_assert!(epoch::is_pinned(), "a paged medium is read under a pin");
        let last = ((offset + len - 1) / PAGE_SIZE) as usize;
        for page in (offset / PAGE_SIZE) as usize..=last {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            // A resident page without `LEAVING` stays while this thread is pinned: a later mark waits for a
            // grace period. `fetch` clears an earlier mark.
            if flags & (RESIDENT | WARM | LEAVING) != RESIDENT | WARM {
                self.fetch(page, last)?;
            }
        }
        Ok(())
    }

    /// Brings a page into memory, with the pages after it that the caller wants up to `last`.
    #[cold]
    fn fetch(&self, page: usize, last: usize) -> Result<(), Fault> {
        let mut attempts = 0;
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & RESIDENT != 0 {
                let new = (flags | WARM) & !(LEAVING | AHEAD);
                if flags == new || self.pages.compare_exchange(page, flags, new) {
                    if flags & AHEAD != 0 {
                        self.ahead.go_on(page);
                    }
                    return Ok(());
                }
            } else if flags & BUSY != 0 {
                self.wait(&mut attempts)?;
            } else {
                self.bring(page, last)?;
            }
        }
    }

    /// Reads pages from the disk: the needed one, and the wanted or expected pages after it.
    pub(super) fn bring(&self, page: usize, last: usize) -> Result<(), Fault> {
        self.refuse_if_forked()?;
        let end = self.ahead.missed(page, last);
        let mut locked_end = page;
        while locked_end < end {
            let flags = self.pages.flags(locked_end).load(Ordering::Acquire);
            if flags & (RESIDENT | BUSY) != 0 || !self.pages.compare_exchange(locked_end, flags, flags | BUSY)
            {
                break;
            }
            locked_end += 1;
        }
        let mut count = locked_end - page;
        if count == 0 {
            return Ok(());
        }
        let mut done = self.read_in(page, count);
        while done.is_err() && count > 1 {
            // Perhaps only a page that is read ahead is bad, and the caller does not need it yet. Halving
            // costs few reads.
            let fewer = count / 2;
            (page + fewer..page + count).for_each(|page| self.pages.unlock(page, 0, 0));
            (count, locked_end) = (fewer, page + fewer);
            done = self.read_in(page, count);
        }
        if let Err(source) = done {
            self.pages.unlock(page, 0, 0);
            return Err(Fault::Io { what: "reading the volume's disk".to_string(), source });
        }
        self.arrived(page, count);
        for at in page..locked_end {
            self.pages.unlock(at, if at <= last { RESIDENT | WARM } else { RESIDENT }, LEAVING | AHEAD);
        }
        self.slow_down(count);
        Ok(())
    }

    fn read_in(&self, page: usize, count: usize) -> io::Result<()> {
        // SAFETY: within the mapping; the pages are not in memory and locked, so nobody else accesses them.
        let out = unsafe { std::slice::from_raw_parts_mut(self.place(page), count * PAGE_SIZE as usize) };
        self.blocks.here().read(page as u64 * PAGE_SIZE, out)
    }

    /// Counts pages that came into memory, and wakes the keeper if there are too many.
    pub(super) fn arrived(&self, page: usize, count: usize) {
        self.top.fetch_max(page + count, Ordering::Relaxed);
        let before = self.resident.fetch_add(count, Ordering::Relaxed);
        if before <= WORTH_ASKING && before + count > WORTH_ASKING {
            self.waker.wake();
        }
        // Repeatedly, because the keeper may have found pages that it could not drop.
        if before + count > self.high_mark() && before / RING_EVERY != (before + count) / RING_EVERY {
            self.waker.wake();
        }
    }

    /// Delays a thread that fetched pages above the limit, so that the keeper can keep up. The thread does
    /// not wait for the keeper itself, which may be waiting for the thread's own pin.
    pub(super) fn slow_down(&self, count: usize) {
        let (excess, limit) = (self.resident().saturating_sub(self.limit()), self.limit());
        if excess > 0 {
            let pause = PAGE_DELAY * count as u32 * (1 + 16 * excess / limit) as u32;
            std::thread::sleep(pause.min(LONGEST_DELAY));
        }
    }

    /// Reads pieces ahead until the medium is dropped.
    pub(super) fn keep_ahead(&self) {
        while let Some(piece) = self.ahead.wait() {
            if self.resident() + piece.pages.len() < self.limit() {
                self.bring_piece(&piece);
            }
        }
    }

    /// Reads those pages of a piece that are not in memory.
    fn bring_piece(&self, piece: &Piece) {
        let mut pages = piece.pages.clone();
        while let Some(first) = pages.find(|&page| self.lock_absent(page)) {
            let mut end = first + 1;
            while end < pages.end && self.lock_absent(end) {
                end += 1;
            }
            if end - first == PIECE && first.is_multiple_of(PIECE) {
                self.memory.bring_huge_page((first * PAGE_SIZE as usize) as u64);
            }
            // A page that cannot be read stays absent; the read that needs it tries again and gets the error.
            let is_read = self.read_in(first, end - first).is_ok();
            if is_read {
                self.arrived(first, end - first);
            } else {
                self.let_go(first, end - first);
            }
            for page in first..end {
                let mark = if page == piece.marked { AHEAD } else { 0 };
                self.pages.unlock(page, if is_read { RESIDENT | mark } else { 0 }, LEAVING);
            }
            pages = end..pages.end;
        }
    }

    /// Locks a page that is not in memory. Returns false if it is in memory, or locked.
    fn lock_absent(&self, page: usize) -> bool {
        let flags = self.pages.flags(page).load(Ordering::Acquire);
        flags & (RESIDENT | BUSY) == 0 && self.pages.compare_exchange(page, flags, flags | BUSY)
    }
}
