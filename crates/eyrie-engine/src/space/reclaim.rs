//! Retires storage that readers may still see, and discards memory of free groups.
//!
//! A settled publish makes storage unreachable, and the engine then retires the storage. The storage is
//! reused after its grace period. On a disk, whole pages with durable bytes also wait for the drain that
//! makes this publish durable. Before that drain, a crash would restore the old owner of the pages.

#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::Ordering;

use eyrie_medium::epoch::{self, Epoch};
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{interleave, lock, spin};
use eyrie_medium::{Addr, Fault, Medium, MediumKind, SegmentId, Settled};

use super::allocator::Space;
use super::magazine::Shape;
use crate::Result;
use crate::extent::{Class, Extent};
use crate::tables::geometry::page_addr;

/// Number of retired entries between two attempts to advance the epoch. The number is small, so that memory
/// is reused while it is in the processor's cache. It is above one, because each attempt reads the pins of
/// all threads.
const ADVANCE_EVERY: u32 = 16;
/// Number of attempts to advance the epoch before `reclaim` stops waiting for other threads' pins. Together
/// these attempts take about 0.1 s, because Linux ends a sleep of 50 µs after about 100 µs. A thread with a
/// pin may be descheduled for that long.
const PATIENCE: u32 = 1000;
/// Maximum number of runs of pages that one [`Space::drain`] or [`Space::sync`] makes free. Runs of one page
/// move to the magazine of the calling thread, while that magazine has room.
const RETURNED: usize = 256;
/// Number of attempts that spin before the first sleep.
const SPINS: u32 = 100;

/// Waits a moment for other threads' pins. With the feature `shuttle` the function never sleeps, because the
/// scheduler of `shuttle` decides which thread runs.
fn wait(attempt: u32) {
    spin();
    if attempt >= SPINS && cfg!(not(feature = "shuttle")) {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

impl Space {
    /// Retires an extent that a settled publish made unreachable. The storage is reused when no reader can
    /// see it. A page to which other pointers lead stays in use, and only its count falls. `extent` may also
    /// be an aligned piece of an extent, with the class of the piece's size. An extent that cannot belong to
    /// this volume is ignored.
    ///
    /// The type of `settled` requires a publish that has settled:
    ///
    /// ```
    /// # use eyrie_engine::{extent::Extent, volume::Space};
    /// fn free(space: &Space, extent: Extent, done: &eyrie_medium::Settled) {
    ///     space.retire(extent, done);
    /// }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use eyrie_engine::{extent::Extent, volume::Space};
    /// fn free(space: &Space, extent: Extent, done: &eyrie_medium::Published) {
    ///     space.retire(extent, done);
    /// }
    /// ```
    #[inline]
    pub fn retire(&self, extent: Extent, settled: &Settled) {
        self.retire_all(&[extent], &[], settled);
    }

    /// Retires extents and headers as [`Space::retire`] does, under one lock.
    #[inline(always)]
    pub fn retire_all(&self, extents: &[Extent], headers: &[Addr], _settled: &Settled) {
        if self.shared.is_used() {
            return self.retire_counted(extents, headers);
        }
        self.retire_unreferenced(extents, headers, epoch::now);
    }

    /// Retires extents and headers whose last pointer is gone, in the epoch that `retired` returns.
    #[inline(always)]
    fn retire_unreferenced(&self, extents: &[Extent], headers: &[Addr], retired: impl FnOnce() -> Epoch) {
        let mut magazine = self.magazine();
        // The epoch must be read after the publish that made the storage unreachable is visible to other
        // processors. On x86-64, taking the lock is a full fence. Other processors need the explicit fence.
        #[cfg(not(target_arch = "x86_64"))]
        std::sync::atomic::fence(Ordering::SeqCst);
        let mut now = retired();
        for extent in extents.iter().filter(|extent| self.context.contains(**extent)) {
            magazine.retire(now, Shape::Extent(extent.class), extent.addr);
        }
        for &addr in headers.iter().filter(|addr| self.context.is_header(**addr)) {
            magazine.retire(now, Shape::Header, addr);
        }
        if magazine.since_advance >= ADVANCE_EVERY {
            magazine.since_advance = 0;
            now = epoch::advance();
        }
        magazine.collect(now, |magazine, shape, addr| self.free_unseen(magazine, shape, addr));
    }

    /// Retires headers and extents, except the pages to which other pointers lead.
    ///
    /// The counts fall before the epoch of the retirement is read. Another thread may drop its own pointer to
    /// a page while this call runs, and this call may then find that no pointer is left. Until that thread
    /// published its change, readers could find the page through its pointer, including readers that pinned
    /// an epoch after the start of this call. A retirement with an epoch that was read before the counts fell
    /// would not wait for these readers.
    #[cold]
    #[inline(never)]
    fn retire_counted(&self, extents: &[Extent], headers: &[Addr]) {
        let early = broken(SafetyRule::CountsFallBeforeTheEpoch).then(epoch::now);
        let mut unshared = Vec::with_capacity(extents.len());
        for &extent in extents.iter().filter(|extent| self.context.contains(**extent)) {
            let page = |number| Extent { addr: page_addr(number), class: Class::PAGE };
            interleave();
            if self.shared.remove(extent, |number| unshared.push(page(number))) {
                unshared.push(extent);
            }
        }
        self.retire_unreferenced(&unshared, headers, || early.unwrap_or_else(epoch::now));
    }

    /// Counts one more pointer to each page of these extents, before the commit of a clone. The caller holds
    /// the locks of both files. It has checked the extents with `VolumeView::require_possible_extent`.
    pub(crate) fn share(&self, extents: &[Extent]) {
        extents.iter().for_each(|&extent| self.shared.add(extent));
    }

    /// Takes back a call of [`Space::share`] whose commit failed. The pointers of the source still lead to
    /// the pages, so no page becomes free.
    #[cold]
    pub(crate) fn unshare(&self, extents: &[Extent]) {
        for &extent in extents {
            self.shared.remove(extent, |_| ());
        }
    }

    /// True if several pointers may lead to a page of the volume.
    #[inline]
    pub(crate) fn has_shared_pages(&self) -> bool {
        self.shared.is_used()
    }

    /// Moves to the shared state all memory that no reader can see: from the magazines, and from the spares
    /// (headers that were reserved and returned unused).
    pub(super) fn gather_free(&self) {
        self.spares.take_all().for_each(|addr| self.free_at_once(Shape::Header, addr));
        for magazine in &self.magazines {
            let mut magazine = lock(&magazine.0);
            magazine.empty(epoch::now(), &self.context, &mut self.central());
        }
        self.central().free_durable(&self.context);
    }

    /// Frees memory that was retired before the call: all of it, unless a pin lasts too long or a drain
    /// fails. Waits up to about 0.1 s for other threads' pins, and then for a drain of the medium if pages
    /// wait for one. Returns true if all earlier pins ended in this time, or if the drain succeeded.
    ///
    /// Callers are outside the gate and hold no pin. A caller whose allocation found no space calls this
    /// function and allocates again. If the second allocation also fails, the volume is full.
    pub fn reclaim(&self) -> bool {
        let retired = epoch::now();
        let over = (0..PATIENCE).any(|attempt| {
            let over = retired.is_over(epoch::advance());
            if !over {
                wait(attempt);
            }
            over
        });
        self.gather_free();
        let drained = self.central().has_pending_frees() && self.context.medium.drain().is_ok();
        if drained {
            self.gather_free();
        }
        over || drained
    }

    /// On a disk, makes all changes before the call durable. Does nothing on other media. Callers are outside
    /// the gate, because a drain waits for the Ops inside.
    ///
    /// If the cut of a single page has become durable, the call moves the page to the top of this thread's
    /// stack of free pages, while the stack has room. A program that overwrites and syncs repeatedly
    /// therefore reuses the same few pages of the disk.
    ///
    /// # Errors
    /// [`Error::Fault`](crate::Error::Fault).
    pub fn drain(&self) -> Result<()> {
        self.drained(Medium::drain)
    }

    /// Works as [`Space::drain`], for a caller that waits for the disk: see [`Medium::sync`].
    ///
    /// # Errors
    /// [`Error::Fault`](crate::Error::Fault).
    pub fn sync(&self) -> Result<()> {
        self.drained(Medium::sync)
    }

    fn drained(&self, drain: fn(&Medium) -> std::result::Result<(), Fault>) -> Result<()> {
        let medium = &self.context.medium;
        if medium.kind() != MediumKind::Paged {
            return Ok(drain(medium)?);
        }
        // Storage is free two epochs after its retirement. So these two advances let this drain free
        // pages that this thread has just retired, if no pin delays them.
        epoch::advance();
        let now = epoch::advance();
        self.magazine().collect(now, |magazine, shape, addr| self.free_unseen(magazine, shape, addr));
        drain(medium)?;
        let (mut magazine, mut central) = (self.magazine(), self.central());
        let page = Shape::Extent(Class::PAGE);
        // The loop has a bound, because other threads wait for these locks. The remaining pages are freed by
        // the next allocation that needs the shared state.
        for _ in 0..RETURNED {
            let Some((first, end)) = central.pop_durable(&self.context) else { break };
            if end - first == 1 && !magazine.is_full(page) {
                magazine.push(page, page_addr(first));
            } else {
                central.free_run(first, end);
            }
        }
        Ok(())
    }

    /// Discards the memory of groups that are free as a whole, where the host supports it. With `all`, groups
    /// that were set aside earlier and groups that were never in use are discarded too. Memory that was
    /// provided ahead of need or for a reserve is discarded in both cases. Returns the number of discarded
    /// bytes. Callers are outside the gate and hold no pin.
    ///
    /// Safe when power fails: a group is first set aside, which means that no allocation uses it. Its pages
    /// have been free since a durable cut. After the checkpoint, the journal has no record that would write
    /// to these pages in a replay.
    ///
    /// # Errors
    /// [`Error::Fault`](crate::Error::Fault).
    pub fn trim(&self, all: bool) -> Result<u64> {
        // This check refuses a forked child, which must not discard memory that its parent uses.
        self.context.medium.check()?;
        self.reclaim();
        let mut groups = self.central().set_aside(&self.context, all);
        if !groups.is_empty() {
            self.context.medium.checkpoint()?;
        }
        // While this lock is held, no thread can allocate memory of these ranges.
        let central = self.central();
        groups.retain(|&group| central.is_aside(group));
        let end = self.context.geometry.volume_bytes();
        groups.extend(
            Some((self.context.end_of_used_groups(), end)).filter(|&(start, end)| all && start < end),
        );
        for &(start, end) in &groups {
            self.context.medium.discard(Addr::new(SegmentId(0), start), end - start)?;
        }
        Ok(groups.iter().map(|(start, end)| end - start).sum())
    }
}
