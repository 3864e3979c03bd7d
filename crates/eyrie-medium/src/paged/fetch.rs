//! Fetching: reads of the pages that an access needs, and of pages ahead of a sequential reader.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::page::{AHEAD, BUSY, LEAVING, RESIDENT, WARM, are_readable};
use super::pager::Pager;
use super::read_ahead::{PIECE, Piece};
use crate::addr::{Addr, PAGE_SIZE, SegmentId};
use crate::epoch;
use crate::fault::Fault;

/// Number of pages that come into memory between two wake-ups of the keeper (the thread that evicts pages),
/// while more pages than [`Pager::high_mark`] are in memory.
const WAKE_EVERY: usize = 16;
/// Base delay for each page that a fetch or an allocation adds to memory while memory is above its limit. The
/// delay grows with the number of pages above the limit.
const PAGE_DELAY: Duration = Duration::from_micros(20);
/// Longest delay of one fetch, or of one allocated page. The delayed thread may hold an epoch pin, and no
/// page can be evicted while the pin lasts.
const LONGEST_DELAY: Duration = Duration::from_millis(10);

/// Number of pages in memory above which the keeper subscribes to the kernel's reports of memory pressure.
/// Eviction of fewer pages would relieve no pressure, and the kernel needs milliseconds to end a
/// subscription.
pub(super) const WORTH_ASKING: usize = 4096;

/// Returns the error of a read from the disk.
pub(super) fn failed(source: io::Error) -> Fault {
    Fault::Io { what: "reading the volume's disk".to_string(), source }
}

impl Pager {
    /// Ensures that the pages of a range are in memory, and that the calling thread may read them while its
    /// pin lasts.
    #[inline]
    pub(crate) fn before_read(&self, offset: u64, len: u64) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        debug_assert!(epoch::is_pinned(), "a paged medium is read under a pin");
        let last = ((offset + len - 1) / PAGE_SIZE) as usize;
        for page in (offset / PAGE_SIZE) as usize..=last {
            if !are_readable(self.pages.flags(page).load(Ordering::Acquire)) {
                self.fetch(page, last)?;
            }
        }
        Ok(())
    }

    /// Ensures that a page is in memory, and marks the page as used. If the page must be read from the disk,
    /// the same read may include the pages after it up to `last`, which the caller needs, too.
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

    /// Reads pages from the disk: the page `page`, the pages after it up to `last`, and pages that a
    /// sequential reader is expected to need. The read ends before a page that is in memory or locked.
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
        // Another thread has read or locked the page meanwhile. The caller loads the flags of the page again.
        if count == 0 {
            return Ok(());
        }
        let mut done = self.read_in(page, count);
        while done.is_err() && count > 1 {
            // Perhaps only a page that is read ahead is bad, and the caller does not need that page yet. So
            // the read is tried again with half of the pages.
            self.let_go_and_unlock(page + count / 2, count - count / 2);
            count /= 2;
            done = self.read_in(page, count);
        }
        let done = done.and_then(|()| self.compare(page));
        if let Err(fault) = done {
            self.let_go_and_unlock(page, count);
            return Err(fault);
        }
        // The pages before the first one that does not match its checksum become resident.
        let right = 1 + (page + 1..page + count).take_while(|&page| self.compare(page).is_ok()).count();
        if right < count {
            self.let_go_and_unlock(page + right, count - right);
        }
        self.arrived(page, right);
        for at in page..page + right {
            self.pages.unlock(at, if at <= last { RESIDENT | WARM } else { RESIDENT }, LEAVING | AHEAD);
        }
        self.slow_down(right);
        Ok(())
    }

    /// Unlocks locked pages that do not become resident, and gives their memory back to the kernel.
    pub(super) fn let_go_and_unlock(&self, first: usize, count: usize) {
        self.let_go(first, count);
        (first..first + count).for_each(|page| self.pages.unlock(page, 0, 0));
    }

    /// Reads pages from the disk into the mapping, but does not compare them with their checksums. The caller
    /// holds the locks of the pages, none of which is resident.
    fn read_in(&self, page: usize, count: usize) -> Result<(), Fault> {
        // SAFETY: the range is within the mapping. The pages are locked and not in memory, so no other thread
        // accesses them.
        let out = unsafe { std::slice::from_raw_parts_mut(self.address(page), count * PAGE_SIZE as usize) };
        let mut rest = &mut *out;
        for run in self.places.runs(page..page + count) {
            let (part, after) = rest.split_at_mut(run.len() * PAGE_SIZE as usize);
            self.blocks.here().read(self.places.offset(run.start), part).map_err(failed)?;
            rest = after;
        }
        self.counts.read(out.len());
        Ok(())
    }

    /// Compares the bytes of a page, which were read into the mapping, with the checksum of the page. The
    /// caller still holds the lock of the page. Always succeeds if the volume has no checksums.
    fn compare(&self, page: usize) -> Result<(), Fault> {
        if !self.places.has_checksums() {
            return Ok(());
        }
        self.checksums.load(&*self.blocks, page);
        // SAFETY: the page is within the mapping. The page is locked and not in memory, so no other thread
        // changes it.
        let bytes = unsafe { std::slice::from_raw_parts(self.address(page), PAGE_SIZE as usize) };
        if self.blocks.here().verify(self.checksums.is_right(page, bytes)) {
            Ok(())
        } else {
            Err(Fault::Checksum { addr: Addr::new(SegmentId(0), page as u64 * PAGE_SIZE) })
        }
    }

    /// Counts pages that came into memory. Wakes the keeper when the number of all pages in memory passes
    /// [`WORTH_ASKING`], and repeatedly while that number is above [`Pager::high_mark`].
    pub(super) fn arrived(&self, page: usize, count: usize) {
        self.top.fetch_max(page + count, Ordering::Relaxed);
        self.each_region(page, count, |region, pages| _ = region.fetch_add(pages, Ordering::Relaxed));
        let before = self.resident.fetch_add(count, Ordering::Relaxed);
        if before <= WORTH_ASKING && before + count > WORTH_ASKING {
            self.waker.wake();
        }
        // The keeper is woken again and again, because it may have found only pages that it could not drop.
        if before + count > self.high_mark() && before / WAKE_EVERY != (before + count) / WAKE_EVERY {
            self.waker.wake();
        }
    }

    /// Delays a thread that added pages to memory, if memory is above its limit, so that the keeper can evict
    /// pages in time. The thread does not wait for the keeper to finish, because the keeper may be waiting
    /// for the end of this thread's pin. A service is not delayed while a long pin keeps the keeper from
    /// evicting pages, because all of its clients would wait for nothing.
    pub(super) fn slow_down(&self, count: usize) {
        if self.is_shared() && self.is_held_back.load(Ordering::Relaxed) {
            return;
        }
        let (excess, limit) = (self.resident().saturating_sub(self.limit()), self.limit());
        if excess > 0 {
            let pause = PAGE_DELAY * count as u32 * (1 + 16 * excess / limit) as u32;
            std::thread::sleep(pause.min(LONGEST_DELAY));
        }
    }

    /// Runs a read-ahead thread: reads pieces ahead until the medium is dropped. Skips a piece with which
    /// memory would reach its limit.
    pub(super) fn keep_ahead(&self) {
        while let Some(piece) = self.ahead.wait() {
            if self.resident() + piece.pages.len() < self.limit() {
                self.bring_piece(&piece);
            }
        }
    }

    /// Reads those pages of a piece that are not in memory. Pages that another thread has locked are skipped.
    pub(super) fn bring_piece(&self, piece: &Piece) {
        let mut pages = piece.pages.clone();
        while let Some(first) = pages.find(|&page| self.lock_absent(page)) {
            let mut end = first + 1;
            while end < pages.end && self.lock_absent(end) {
                end += 1;
            }
            if end - first == PIECE && first.is_multiple_of(PIECE) {
                self.memory.populate_huge_page((first * PAGE_SIZE as usize) as u64);
            }
            self.bring_locked(first, end - first, piece.marked);
            pages = end..pages.end;
        }
    }

    /// Reads locked pages ahead, and unlocks them. A page that cannot be read, or does not match its
    /// checksum, stays absent, and the other pages arrive. An access that needs an absent page reads the page
    /// again, and gets the error. The first use of the page `marked` requests the next chunk.
    fn bring_locked(&self, first: usize, count: usize, marked: usize) {
        if self.read_in(first, count).is_err() {
            self.let_go(first, count);
            if count == 1 {
                return self.pages.unlock(first, 0, 0);
            }
            self.bring_locked(first, count / 2, marked);
            return self.bring_locked(first + count / 2, count - count / 2, marked);
        }
        for page in first..first + count {
            if self.compare(page).is_ok() {
                self.arrived(page, 1);
                self.pages.unlock(page, if page == marked { RESIDENT | AHEAD } else { RESIDENT }, LEAVING);
            } else {
                self.let_go_and_unlock(page, 1);
            }
        }
    }

    /// Locks a page that is not in memory. Returns false if the page is in memory or locked.
    pub(super) fn lock_absent(&self, page: usize) -> bool {
        let flags = self.pages.flags(page).load(Ordering::Acquire);
        flags & (RESIDENT | BUSY) == 0 && self.pages.compare_exchange(page, flags, flags | BUSY)
    }
}
