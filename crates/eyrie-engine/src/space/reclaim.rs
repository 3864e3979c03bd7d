//! Retiring storage that readers may still see, and discarding memory that the host can have back.
//!
//! A settled publish makes storage unreachable, and the caller then retires it. It is reused when its grace
//! period is over. On a disk it also waits for the drain that makes its unlinking durable, because until
//! then a crash would bring its owner back.

#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::Ordering;

use eyrie_medium::epoch;
use eyrie_medium::sync::{lock, spin};
use eyrie_medium::{Addr, MediumKind, SegmentId, Settled};

use super::allocator::Space;
use super::magazine::Shape;
use crate::Result;
use crate::extent::{Class, Extent};
use crate::tables::geometry::page_addr;

/// Retired entries between two tries to advance the epoch. Few, so that warm memory comes back soon; more
/// than one, because an advance looks at the pins of all threads.
const ADVANCE_EVERY: u32 = 16;
/// Tries to advance the epoch before `reclaim` gives up on other threads' pins. Together some 50 ms,
/// because a thread with a pin may be descheduled.
const PATIENCE: u32 = 1000;
/// Most pages that a drain returns to the magazine of the draining thread.
const RETURNED: usize = 256;
/// Attempts that spin before the first sleep.
const SPINS: u32 = 100;

/// Waits a moment for other threads' pins. Under `shuttle` it never sleeps, because the scheduler there
/// decides who runs.
fn wait(attempt: u32) {
    spin();
    if attempt >= SPINS && cfg!(not(feature = "shuttle")) {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

impl Space {
    /// Retires an extent, or an aligned piece of one (its class is then the size of the piece), that a
    /// settled publish made unreachable. It is reused when no reader sees it any more. An address that
    /// cannot be an extent of this volume is ignored.
    ///
    /// The type requires a publish that has settled:
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

    /// Retires a header slot that a settled publish made unreachable. It is reused when no reader sees it
    /// any more.
    #[inline]
    pub fn retire_header(&self, addr: Addr, settled: &Settled) {
        self.retire_all(&[], &[addr], settled);
    }

    /// [`Space::retire`]s extents and [`Space::retire_header`]s headers, all under one lock.
    #[inline]
    pub fn retire_all(&self, extents: &[Extent], headers: &[Addr], _settled: &Settled) {
        let mut magazine = self.magazine();
        // The epoch must be read after the unlinking is visible to other processors. Taking the lock is a
        // full fence on x86; elsewhere it is not.
        #[cfg(not(target_arch = "x86_64"))]
        std::sync::atomic::fence(Ordering::SeqCst);
        let mut now = epoch::now();
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

    /// Moves all memory that no reader sees to the shared state.
    pub(super) fn gather_free(&self) {
        self.spares.drain().for_each(|addr| self.free_at_once(Shape::Header, addr));
        for magazine in &self.magazines {
            let mut magazine = lock(&magazine.0);
            magazine.empty(epoch::now(), &self.context, &mut self.central());
        }
        self.central().free_durable(&self.context);
    }

    /// Makes all memory free that was retired before the call. Waits for other threads' pins, but not for
    /// long, and for a drain of the medium. Returns false if neither the pins nor the drain let memory go.
    ///
    /// Call it without a pin and outside a gate when an allocation found no space, then allocate again. If
    /// that fails too, the volume is full.
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

    /// Makes all changes before the call durable. Not to be called inside a gate.
    ///
    /// On return, pages that this thread freed before are on top of its stack. So a program that overwrites
    /// and syncs again and again reuses the same few places of the disk.
    ///
    /// # Errors
    /// [`Error::Fault`](crate::Error::Fault).
    pub fn drain(&self) -> Result<()> {
        let medium = &self.context.medium;
        if medium.kind() != MediumKind::Paged {
            return Ok(medium.drain()?);
        }
        epoch::advance();
        let now = epoch::advance();
        self.magazine().collect(now, |magazine, shape, addr| self.free_unseen(magazine, shape, addr));
        medium.drain()?;
        let (mut magazine, mut central) = (self.magazine(), self.central());
        let page = Shape::Extent(Class::PAGE);
        // The rest waits for the next allocation that needs it, because other threads wait for these locks.
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

    /// Gives the memory of groups that are free as a whole back to the host, where the host can take it.
    /// Returns the number of their bytes. With `all`, also groups that were free when the volume was
    /// opened, or never in use. Memory that was provided ahead of need goes back, too. Not to be called
    /// inside a gate or under a pin.
    ///
    /// Safe when power fails: a group is set aside first, so nothing allocates from it. Its pages are free
    /// since a durable cut, and after the checkpoint no record of the medium's log writes there again.
    ///
    /// # Errors
    /// [`Error::Fault`](crate::Error::Fault).
    pub fn trim(&self, all: bool) -> Result<u64> {
        // A forked child must not give away what its parent uses.
        self.context.medium.check()?;
        self.reclaim();
        let mut groups = self.central().set_aside(&self.context, all);
        if !groups.is_empty() {
            self.context.medium.checkpoint()?;
        }
        // No thread can take one of these groups into use while this lock is held.
        let central = self.central();
        groups.retain(|&group| central.is_aside(group));
        let end = self.context.geometry.volume_bytes();
        groups.extend(Some((self.context.end(), end)).filter(|&(start, end)| all && start < end));
        for &(start, end) in &groups {
            self.context.medium.discard(Addr::new(SegmentId(0), start), end - start)?;
        }
        Ok(groups.iter().map(|(start, end)| end - start).sum())
    }
}
