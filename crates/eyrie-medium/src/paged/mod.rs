//! The page cache of a volume on an ordinary disk: the exported page cache (`page-cache-export.txt`, sections II-E and
//! III) on an unmodified kernel.
//!
//! The mapping is private memory. Every access of the medium is announced, so a page that is not in memory is read
//! first, and what was changed is known by the line. Nothing reaches the disk but by a *drain* (`drain`), which makes one
//! cut between Ops durable, whole or not at all, by way of the `journal`. Clean pages leave memory when it gets
//! short (`evict`), after a grace period, because accessors hold plain pointers while they are pinned.
//!
//! Invariants:
//! - A page that is not in memory is, on the disk, as the last drain left it.
//! - A page that belongs to a cut is copied before it changes again, until the drain has taken it.
//! - A page that was in use at the last durable cut is written to its place only by way of the journal. What the
//!   allocator takes must therefore be free since a durable cut: [`Pager::freed`] says from when on.
//!
//! Safe when power fails: what counts is the journal and the places of pages, see there.

mod ahead;
pub(crate) mod blocks;
mod calls;
mod drain;
mod evict;
mod gate;
pub(crate) mod journal;
mod keeper;
pub(crate) mod memory;
pub(crate) mod overlay;
mod page;
mod ring;
mod shadow;
#[cfg(feature = "testing")]
pub(crate) mod simulated;
#[cfg(test)]
mod tests;
mod usable;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::addr::PAGE_SIZE;
use crate::epoch;
use crate::fault::Fault;
use crate::mapping::Mapping;
use crate::rules::{SafetyRule, broken};
use ahead::Ahead;
use blocks::Blocks;
use drain::Drain;
pub use gate::Gate;
use gate::Turnstile;
use journal::{Anchor, MOST_JOURNAL_BYTES, PACKED_LINE};
pub(crate) use keeper::Keeper;
use keeper::{Bell, WORTH_ASKING};
use page::{AHEAD, BUSY, DIRTY, FRESH, LEAVING, LOGGED, ODD, Pages, RESIDENT, WARM, WRITTEN, lines_of};
use shadow::Shadows;

/// How a paged medium uses memory and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagedOptions {
    /// Memory for pages, in bytes. It is kept to but for what Ops in flight and pins hold on to.
    pub memory_bytes: u64,
    /// Time between background drains.
    pub drain_interval: Duration,
}

impl PagedOptions {
    /// Least memory for pages, in bytes; less is taken for this.
    pub const LEAST_MEMORY_BYTES: u64 = LEAST_MEMORY as u64 * PAGE_SIZE;

    /// Half of the memory that this process may use, but for 16 MiB, and five seconds.
    pub fn for_host() -> PagedOptions {
        let memory_bytes = usable::usable_memory().saturating_sub(OTHER_MEMORY) / 2;
        PagedOptions { memory_bytes, drain_interval: Duration::from_secs(5) }
    }
}

/// Shards of the list of dirty pages.
const SHARDS: usize = 16;
/// Pages that come into memory between two calls for the keeper while there are too many.
const RING_EVERY: usize = 16;
/// What a page that is too many costs who brings it; more, the more there are.
const PAUSE: Duration = Duration::from_micros(20);
/// Looks at a page that is locked before sleeping.
const YIELDS: u32 = 20;
/// What it costs at a time, so that nobody's pin keeps all the others' pages for long.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// Memory that the process has for other things than pages, and for the pages of Ops in flight, before any is shared
/// out, in bytes: where there is little, these are not.
const OTHER_MEMORY: u64 = 16 << 20;
/// Least memory for pages, in pages.
const LEAST_MEMORY: usize = 256;

/// Size of the journal of a volume of `volume_bytes`: a sixteenth, within reason.
pub(crate) fn journal_bytes(volume_bytes: u64) -> u64 {
    (volume_bytes / 16).next_multiple_of(PAGE_SIZE).clamp(1 << 20, MOST_JOURNAL_BYTES)
}

/// The page cache.
pub(crate) struct Pager {
    blocks: Arc<dyn Blocks>,
    memory: Arc<Mapping>,
    pages: Pages,
    options: PagedOptions,
    /// Number of the cut that changes now belong to.
    cut: AtomicU64,
    /// The last cut that is durable.
    durable: AtomicU64,
    turnstile: Turnstile,
    dirty: [Mutex<Vec<usize>>; SHARDS],
    shadows: Shadows,
    /// What one drain at a time works with.
    drain: Mutex<drain::State>,
    resident: AtomicUsize,
    dirty_pages: AtomicUsize,
    /// Bytes that the changed lines since the last cut take in a record, at most.
    changed_bytes: AtomicU64,
    /// One more than the highest page that was ever in memory.
    top: AtomicUsize,
    hand: Mutex<usize>,
    ahead: Ahead,
    journal_bytes: u64,
    failed: AtomicBool,
    process: u32,
    bell: Bell,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is guarded here is left half changed by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pager {
    /// The cache of the volume that `anchor` describes, everything replayed.
    pub(crate) fn open(
        blocks: Arc<dyn Blocks>,
        mut anchor: Anchor,
        options: PagedOptions,
        memory: Arc<Mapping>,
    ) -> Result<Pager, Fault> {
        journal::replay(&*blocks, &anchor)?;
        anchor
            .rename(&*blocks)
            .map_err(|source| Fault::Io { what: "renaming the journal".to_string(), source })?;
        let count = (anchor.volume_bytes / PAGE_SIZE) as usize;
        Ok(Pager {
            pages: Pages::new(count),
            blocks,
            memory,
            options,
            cut: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            turnstile: Turnstile::default(),
            dirty: Default::default(),
            shadows: Shadows::new(count)?,
            drain: Mutex::new(drain::State::new(anchor)),
            resident: AtomicUsize::new(0),
            dirty_pages: AtomicUsize::new(0),
            changed_bytes: AtomicU64::new(0),
            top: AtomicUsize::new(0),
            hand: Mutex::new(0),
            ahead: Ahead::default(),
            journal_bytes: anchor.journal_bytes,
            failed: AtomicBool::new(false),
            process: std::process::id(),
            bell: Bell::new().map_err(|source| Fault::Io { what: "making an event".to_string(), source })?,
        })
    }

    /// Makes the disk provide the blocks of a range.
    pub(crate) fn back(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let done = self.blocks.here().allocate(offset, len);
        done.map_err(|source| Fault::of_room("allocating host blocks for the volume", source))
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal_bytes
    }

    /// Lets others have the disk's blocks of a range in which nothing is left.
    pub(crate) fn unback(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let what = || "giving blocks of the volume's disk back".to_string();
        self.blocks.here().discard(offset, len).map_err(|source| Fault::Io { what: what(), source })?;
        let first = (offset / PAGE_SIZE) as usize;
        for page in first..first + (len / PAGE_SIZE) as usize {
            self.pages.flags(page).fetch_and(!WRITTEN, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Memory for pages, in pages.
    fn limit(&self) -> usize {
        ((self.options.memory_bytes / PAGE_SIZE) as usize).max(LEAST_MEMORY)
    }

    fn place(&self, page: usize) -> *mut u8 {
        debug_assert!(page < self.pages.count());
        // SAFETY: the page is within the mapping, which has as many.
        unsafe { self.memory.base().add(page * PAGE_SIZE as usize) }
    }

    /// [`ODD`] or nothing: the parity of the cut that changes belong to now.
    #[inline]
    fn parity(&self) -> u64 {
        if self.cut.load(Ordering::Acquire) & 1 == 1 { ODD } else { 0 }
    }

    /// Makes the pages of a range fit to be read.
    #[inline]
    pub(crate) fn reading(&self, offset: u64, len: u64) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        debug_assert!(epoch::is_pinned(), "a paged medium is read under a pin");
        let last = ((offset + len - 1) / PAGE_SIZE) as usize;
        for page in (offset / PAGE_SIZE) as usize..=last {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & (RESIDENT | WARM | LEAVING) != RESIDENT | WARM {
                self.fetch(page, last)?;
            }
        }
        Ok(())
    }

    /// Makes the pages of a range fit to be changed, and notes that they are. An Op that was let in goes on to its end also when
    /// the disk fails meanwhile: half of it would be worse than all, and what is dirty stays in memory.
    pub(crate) fn storing(&self, offset: u64, len: u64) -> Result<(), Fault> {
        debug_assert!(self.turnstile.is_mine(), "a paged medium is changed inside a gate");
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let (page, within) = ((at / PAGE_SIZE) as usize, at % PAGE_SIZE);
            let part = (PAGE_SIZE - within).min(end - at);
            self.change(page, lines_of(within, part))?;
            at += part;
        }
        Ok(())
    }

    /// Notes the change of `lines` of a page.
    ///
    /// The page is read first even if all of it is to change: others may read it before it has, and the change of a
    /// range may yet fail at a later page.
    #[inline]
    fn change(&self, page: usize, lines: u64) -> Result<(), Fault> {
        let mut attempts = 0;
        let fresh = loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            let parity = self.parity();
            if flags & (BUSY | RESIDENT | DIRTY | ODD) == RESIDENT | DIRTY | parity {
                break flags & FRESH != 0;
            }
            if flags & BUSY != 0 {
                self.wait(&mut attempts)?;
            } else if flags & RESIDENT == 0 {
                self.bring(page, page)?;
            } else if flags & DIRTY != 0 && !broken(SafetyRule::ChangedPageIsPreserved) {
                self.preserve(page, flags);
            } else {
                let new = (flags & !(LEAVING | ODD)) | DIRTY | WARM | parity;
                if self.pages.turn(page, flags, new) {
                    self.list(page);
                }
            }
        };
        let seen = self.pages.lines(page).load(Ordering::Relaxed);
        if seen & lines != lines {
            let before = self.pages.lines(page).fetch_or(lines, Ordering::AcqRel);
            // Fresh pages go to their places, not into the journal.
            let new = if fresh { 0 } else { u64::from((lines & !before).count_ones()) * PACKED_LINE as u64 };
            self.changed_bytes.fetch_add(new, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes a page that became dirty.
    fn list(&self, page: usize) {
        locked(&self.dirty[epoch::thread_index() % SHARDS]).push(page);
        let dirty = self.dirty_pages.fetch_add(1, Ordering::Relaxed);
        if dirty == self.limit() / 4 {
            self.bell.ring();
        }
    }

    /// Keeps what the drain that is under way has not taken of a page yet.
    #[cold]
    fn preserve(&self, page: usize, flags: u64) {
        if !self.pages.turn(page, flags, flags | BUSY) {
            return;
        }
        let lines = self.pages.lines(page).swap(0, Ordering::AcqRel);
        // SAFETY: a whole page of the mapping, which is locked.
        unsafe { self.shadows.keep(page, lines, flags & FRESH != 0, self.place(page)) };
        self.dirty_pages.fetch_sub(1, Ordering::Relaxed);
        self.pages.unlock(page, 0, DIRTY | FRESH | ODD);
    }

    /// Tells that the allocator gave out a page-aligned range, which is free since a durable cut: what was on it is
    /// not read, and it is written to its place at once.
    pub(crate) fn taken(&self, offset: u64, len: u64) -> Result<(), Fault> {
        let first = (offset / PAGE_SIZE) as usize;
        for page in first..first + (len / PAGE_SIZE) as usize {
            self.take(page)?;
        }
        Ok(())
    }

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
                let new = (flags & !(LEAVING | ODD | LOGGED)) | RESIDENT | DIRTY | FRESH | WARM | parity;
                if !self.pages.turn(page, flags, new) {
                    continue;
                }
                if flags & DIRTY == 0 {
                    self.list(page);
                }
                if flags & RESIDENT == 0 {
                    self.arrived(page, 1);
                    self.slow_down(1);
                }
                return Ok(());
            }
        }
    }

    /// Tells that a page-aligned range, which nothing reaches any more, is free. It may be given out again once the
    /// returned cut is durable; at once, if there is none.
    pub(crate) fn freed(&self, offset: u64, len: u64) -> Option<u64> {
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

    /// Drops the changes of a free page; whether nothing durable is on it.
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
            // Under the page's lock, so that no drain sees lines without the flag, nor the flag without lines.
            if self.pages.turn(page, flags, flags | BUSY) {
                self.pages.lines(page).store(0, Ordering::Release);
                self.dirty_pages.fetch_sub(1, Ordering::Relaxed);
                self.pages.unlock(page, 0, DIRTY | FRESH | ODD);
                return flags & FRESH != 0 || broken(SafetyRule::ChangedPageIsNotFresh);
            }
        }
    }

    /// The last cut that is durable.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Makes a page fit to be read, and those after it that the caller wants up to `last`.
    #[cold]
    fn fetch(&self, page: usize, last: usize) -> Result<(), Fault> {
        let mut attempts = 0;
        loop {
            let flags = self.pages.flags(page).load(Ordering::Acquire);
            if flags & RESIDENT != 0 {
                let new = (flags | WARM) & !(LEAVING | AHEAD);
                if flags == new || self.pages.turn(page, flags, new) {
                    if flags & AHEAD != 0 {
                        self.go_ahead(page);
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

    /// Brings pages into memory: the one that is needed, and what is wanted or expected after it.
    fn bring(&self, page: usize, last: usize) -> Result<(), Fault> {
        self.refuse_if_forked()?;
        let end = self.missed(page, last);
        let mut locked_end = page;
        while locked_end < end {
            let flags = self.pages.flags(locked_end).load(Ordering::Acquire);
            if flags & (RESIDENT | BUSY) != 0 || !self.pages.turn(locked_end, flags, flags | BUSY) {
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
            // Perhaps it is a page further on, which nobody has to have.
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

    /// Counts pages that came into memory.
    fn arrived(&self, page: usize, count: usize) {
        self.top.fetch_max(page + count, Ordering::Relaxed);
        let before = self.resident.fetch_add(count, Ordering::Relaxed);
        if before <= WORTH_ASKING && before + count > WORTH_ASKING {
            self.bell.ring();
        }
        // Again and again, because the keeper may have found pages that it could not drop.
        if before + count > self.high_mark() && before / RING_EVERY != (before + count) / RING_EVERY {
            self.bell.ring();
        }
    }

    /// Makes who brought pages wait while there are too many, so that the keeper can follow. It does not wait for the
    /// keeper: that may have to wait for the caller's own pin.
    fn slow_down(&self, count: usize) {
        let (excess, limit) = (self.resident().saturating_sub(self.limit()), self.limit());
        if excess > 0 {
            let pause = PAUSE * count as u32 * (1 + 16 * excess / limit) as u32;
            std::thread::sleep(pause.min(LONGEST_PAUSE));
        }
    }

    /// Pages in memory.
    pub(crate) fn resident(&self) -> usize {
        self.resident.load(Ordering::Relaxed)
    }

    /// Waits for the lock of a page, whose holder may be reading it from the disk.
    fn wait(&self, attempts: &mut u32) -> Result<(), Fault> {
        self.refuse_if_forked()?;
        crate::turns::wait();
        *attempts += 1;
        if *attempts < YIELDS {
            std::thread::yield_now()
        } else {
            std::thread::sleep(PAUSE)
        }
        Ok(())
    }

    /// In a forked child the holder of a lock may be a thread that is not there.
    fn refuse_if_forked(&self) -> Result<(), Fault> {
        if std::process::id() == self.process { Ok(()) } else { Err(Fault::Forked) }
    }

    fn refuse_if_failed(&self) -> Result<(), Fault> {
        if self.failed.load(Ordering::Acquire) { Err(Fault::ReadOnly) } else { Ok(()) }
    }
}
