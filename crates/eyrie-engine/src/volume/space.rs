//! Allocation, as the rest of the engine uses it.
//!
//! Invariants: memory is given out once; what was reachable is given out again only after its unlinking has settled and
//! every reader that could see it is gone. Nothing here is on media but the header chunks and the number of groups in
//! use: after a crash, what no object reaches is free.

use std::sync::atomic::{AtomicBool, Ordering};

use eyrie_medium::epoch;
use eyrie_medium::sync::{Mutex, MutexGuard, lock, spin};
use eyrie_medium::{Addr, MediumKind, SegmentId, Settled};

use super::central::{Central, Shared};
use super::free_map::FreeMap;
use super::geometry::page_addr;
use super::layout::HEADER_BYTES;
use super::magazine::{Magazine, Shape};
use super::spares::Spares;
use crate::object::pointer::{Class, Extent};
use crate::{Error, Result, SpaceUsage};

/// Magazines; a power of two.
const MAGAZINES: usize = 64;
/// Retired entries between two tries to move the clock on: few, so that warm memory comes back soon.
const ADVANCE_EVERY: u32 = 16;
/// Tries to move the clock on before giving up on other threads' pins: some 50 ms, for a thread with a pin may have been
/// descheduled.
const PATIENCE: u32 = 1000;
/// Pieces that a drain gives back to who asked for it, at most.
const RETURNED: usize = 256;
/// How many of them are without sleep.
const SPINS: u32 = 100;

/// Waits for other threads' pins.
fn wait(attempt: u32) {
    spin();
    if attempt >= SPINS && cfg!(not(feature = "shuttle")) {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

/// Keeps a value in lines of its own, the one that is fetched along with a neighbour included.
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

fn new_magazines() -> Box<[Padded<Mutex<Magazine>>]> {
    (0..MAGAZINES).map(|_| Padded(Mutex::new(Magazine::default()))).collect()
}

/// The space of a volume.
pub struct Space {
    shared: Shared,
    central: Mutex<Central>,
    magazines: Box<[Padded<Mutex<Magazine>>]>,
    spares: Spares,
    /// Whether something is free that nobody knows of: what could not be read could not be given back.
    has_lost: AtomicBool,
    /// Live bytes and objects when the volume was opened.
    opened: (u64, u64),
}

impl Space {
    /// The space in which `map` is free and the first `groups` groups are in use.
    pub(super) fn new(shared: Shared, groups: u64, map: FreeMap) -> Space {
        let opened = (map.live_bytes, map.objects);
        let central = Mutex::new(Central::new(&shared, groups, map));
        Space {
            shared,
            central,
            magazines: new_magazines(),
            spares: Spares::new(),
            has_lost: AtomicBool::new(false),
            opened,
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Starts over with what `map` says is free.
    pub(super) fn adopt(&mut self, map: FreeMap) {
        let groups = self.central().recalled_groups(&self.shared);
        self.opened = (map.live_bytes, map.objects);
        self.central = Mutex::new(Central::new(&self.shared, groups, map));
        self.magazines = new_magazines();
        self.spares = Spares::new();
    }

    pub(super) fn central(&self) -> MutexGuard<'_, Central> {
        lock(&self.central)
    }

    #[inline]
    fn magazine(&self) -> MutexGuard<'_, Magazine> {
        lock(&self.magazines[epoch::thread_index() % MAGAZINES].0)
    }

    /// An extent of the smallest class that holds `bytes`, with unspecified content.
    ///
    /// # Errors
    /// [`Error::TooLarge`] above 64 MiB; [`Error::NoSpace`] when no free range is large enough (a smaller one may be:
    /// no extent is larger than [`Space::largest_extent`]); [`Error::Fault`] when the host is full or the medium failed.
    ///
    /// What was retired in a grace period that the caller's own pin holds does not count as free: drop the pin,
    /// call [`Space::reclaim`], and try again.
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> Result<Extent> {
        let class = Class::fitting(bytes).ok_or(Error::TooLarge)?;
        let addr = self.take(Shape::Extent(class))?;
        Ok(Extent { addr, class })
    }

    /// A header slot, with the bytes of its last use or zeros.
    ///
    /// # Errors
    /// As [`Space::allocate`]: a slot may need 64 KiB of free space.
    #[inline]
    #[track_caller]
    pub fn allocate_header(&self) -> Result<Addr> {
        match self.spares.take() {
            Some(addr) => Ok(addr),
            None => self.take(Shape::Header),
        }
    }

    #[inline]
    #[track_caller]
    fn take(&self, shape: Shape) -> Result<Addr> {
        let mut magazine = self.magazine();
        magazine.collect(epoch::now(), |magazine, shape, addr| self.free(magazine, shape, addr));
        let addr = match magazine.pop(shape) {
            Some(addr) => {
                magazine.count_live(shape);
                // What the medium refuses goes back there.
                drop(magazine);
                addr
            }
            None => self.take_shared(magazine, shape)?,
        };
        match shape.taken(&self.shared, addr) {
            Ok(()) => Ok(addr),
            Err(error) => {
                self.put(shape, addr);
                Err(error)
            }
        }
    }

    /// Makes one that no reader sees any more free, at once or when the medium is durable enough.
    #[inline]
    fn free(&self, magazine: &mut Magazine, shape: Shape, addr: Addr) {
        match shape.freed(&self.shared, addr) {
            None if magazine.is_full(shape) => self.spill(magazine, shape, addr),
            None => magazine.push(shape, addr),
            Some(cut) => self.central().keep(cut, addr, shape.bytes()),
        }
    }

    #[cold]
    #[inline(never)]
    fn spill(&self, magazine: &mut Magazine, shape: Shape, addr: Addr) {
        magazine.spill(shape, addr, &self.shared, &mut self.central());
    }

    #[cold]
    #[inline(never)]
    fn take_shared<'a>(&'a self, mut magazine: MutexGuard<'a, Magazine>, shape: Shape) -> Result<Addr> {
        self.shared.medium.check()?;
        let mut taken = {
            let mut central = self.central();
            central.free_kept(&self.shared);
            magazine.refill(shape, &mut central, &self.shared)
        };
        if taken.is_err() {
            drop(magazine);
            taken = self.take_last(shape);
            magazine = self.magazine();
        }
        let addr = taken?;
        magazine.count_live(shape);
        Ok(addr)
    }

    /// Takes one from what other threads hold or retired.
    fn take_last(&self, shape: Shape) -> Result<Addr> {
        let mut taken = Err(Error::NoSpace);
        for _ in 0..3 {
            self.gather();
            taken = shape.take(&mut self.central(), &self.shared, true);
            match taken {
                Ok(_) => break,
                Err(_) => epoch::advance(),
            };
        }
        taken
    }

    /// Brings everything that no reader sees to the shared state.
    fn gather(&self) {
        self.spares.drain().for_each(|addr| self.put(Shape::Header, addr));
        for magazine in &self.magazines {
            let mut magazine = lock(&magazine.0);
            magazine.empty(epoch::now(), &self.shared, &mut self.central());
        }
        self.central().free_kept(&self.shared);
    }

    /// Makes everything retired so far free, and says whether it could: it waits for other threads' pins, but not for
    /// long, and for a drain of the medium. To be called without a pin and outside a gate, when an allocation found no space; if that then finds none either, there is none.
    pub fn reclaim(&self) -> bool {
        let retired = epoch::now();
        let over = (0..PATIENCE).any(|attempt| {
            let over = retired.is_over(epoch::advance());
            if !over {
                wait(attempt);
            }
            over
        });
        self.gather();
        let drained = self.central().keeps() && self.shared.medium.drain().is_ok();
        if drained {
            self.gather();
        }
        over || drained
    }

    /// Makes everything durable that was done before the call. Not to be called inside a gate.
    ///
    /// What this thread freed before is at the top of its stack when it returns: what is overwritten again and again then
    /// takes the same few places of the disk in turn.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn drain(&self) -> Result<()> {
        let medium = &self.shared.medium;
        if medium.kind() != MediumKind::Paged {
            return Ok(medium.drain()?);
        }
        epoch::advance();
        let now = epoch::advance();
        self.magazine().collect(now, |magazine, shape, addr| self.free(magazine, shape, addr));
        medium.drain()?;
        let (mut magazine, mut central) = (self.magazine(), self.central());
        let page = Shape::Extent(Class::PAGE);
        // The rest waits for who needs it: others need the locks.
        for _ in 0..RETURNED {
            let Some((first, end)) = central.next_kept(&self.shared) else { break };
            if end - first == 1 && !magazine.is_full(page) {
                magazine.push(page, page_addr(first));
            } else {
                central.free_run(first, end);
            }
        }
        Ok(())
    }

    /// Gives the memory of groups that are free as a whole back to the host, where it can take it; `all`: also of those
    /// that were free when the volume was opened, or never in use. How many bytes they have. Not to be called inside a gate
    /// or under a pin.
    ///
    /// Safe when power fails: a group goes out of what is given out first. What is in it then is free since a durable cut,
    /// and once everything that the medium has logged is at its place, nothing but an allocation writes there.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn trim(&self, all: bool) -> Result<u64> {
        // A forked child must not give away what its parent uses.
        self.shared.medium.check()?;
        self.reclaim();
        let mut groups = self.central().set_aside(&self.shared, all);
        if !groups.is_empty() {
            self.shared.medium.drain_home()?;
        }
        // While the lock is held nobody takes one of them into use again.
        let central = self.central();
        groups.retain(|&group| central.is_aside(group));
        let end = self.shared.geometry.volume_bytes();
        groups.extend(Some((self.shared.end(), end)).filter(|&(start, end)| all && start < end));
        for &(start, end) in &groups {
            self.shared.medium.unback(Addr::new(SegmentId(0), start), end - start)?;
        }
        Ok(groups.iter().map(|(start, end)| end - start).sum())
    }

    /// Gives back an extent that was never published: it may be reused at once.
    pub fn release(&self, extent: Extent) {
        if self.shared.contains(extent) {
            self.put(Shape::Extent(extent.class), extent.addr);
        }
    }

    /// Gives back a header slot that was never published: it may be reused at once.
    #[inline]
    pub fn release_header(&self, addr: Addr) {
        if self.shared.is_header(addr)
            && let Some(addr) = self.spares.replace(addr)
        {
            self.put(Shape::Header, addr);
        }
    }

    #[inline]
    fn put(&self, shape: Shape, addr: Addr) {
        let mut magazine = self.magazine();
        magazine.count_free(shape);
        self.free(&mut magazine, shape, addr);
    }

    /// Frees an extent, or an aligned piece of one (its class is then the piece's size), that a settled publish made
    /// unreachable: it is reused when no reader sees it any more. What cannot be an extent of this volume is left alone.
    ///
    /// A publish that has not settled frees nothing:
    ///
    /// ```
    /// # use eyrie_engine::{object::pointer::Extent, volume::Space};
    /// fn free(space: &Space, extent: Extent, done: &eyrie_medium::Settled) {
    ///     space.retire(extent, done);
    /// }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use eyrie_engine::{object::pointer::Extent, volume::Space};
    /// fn free(space: &Space, extent: Extent, done: &eyrie_medium::Published) {
    ///     space.retire(extent, done);
    /// }
    /// ```
    #[inline]
    pub fn retire(&self, extent: Extent, settled: &Settled) {
        self.retire_all(&[extent], &[], settled);
    }

    /// Frees a header slot that a settled publish made unreachable: it is reused when no reader sees it any more.
    #[inline]
    pub fn retire_header(&self, addr: Addr, settled: &Settled) {
        self.retire_all(&[], &[addr], settled);
    }

    /// [`Space::retire`]s extents and [`Space::retire_header`]s headers, for the price of one where there are several.
    #[inline]
    pub fn retire_all(&self, extents: &[Extent], headers: &[Addr], _settled: &Settled) {
        let mut magazine = self.magazine();
        // The clock must be read after the unlinking is visible to other processors. Taking the lock is a full fence on
        // x86; elsewhere it is not.
        #[cfg(not(target_arch = "x86_64"))]
        std::sync::atomic::fence(Ordering::SeqCst);
        let mut now = epoch::now();
        for extent in extents.iter().filter(|extent| self.shared.contains(**extent)) {
            magazine.retire(now, Shape::Extent(extent.class), extent.addr);
        }
        for &addr in headers.iter().filter(|addr| self.shared.is_header(**addr)) {
            magazine.retire(now, Shape::Header, addr);
        }
        if magazine.since_advance >= ADVANCE_EVERY {
            magazine.since_advance = 0;
            now = epoch::advance();
        }
        magazine.collect(now, |magazine, shape, addr| self.free(magazine, shape, addr));
    }

    /// Tells that storage was lost which only a recovery finds. So the volume is left to one when it is closed.
    pub(crate) fn lose(&self) {
        self.has_lost.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed)
    }

    /// More extents than any object of this volume can have: none of those that come in numbers is below 2 KiB.
    pub fn most_extents(&self) -> usize {
        (self.shared.geometry.volume_bytes() / 2048) as usize
    }

    /// Whether an extent could be live: well formed, in the groups in use and in no header chunk.
    #[inline]
    pub fn contains(&self, extent: Extent) -> bool {
        self.shared.contains(extent)
    }

    /// Whether `addr` is that of a header slot, free or not.
    #[inline]
    pub fn is_header(&self, addr: Addr) -> bool {
        self.shared.is_header(addr)
    }

    /// Size of the largest extent that an empty volume of this geometry holds, in bytes.
    pub fn largest_extent(&self) -> u64 {
        self.shared.geometry.group_bytes()
    }

    /// Live bytes and objects.
    fn live(&self) -> (u64, u64) {
        let (bytes, objects) = self.magazines.iter().fold(self.opened, |(bytes, objects), magazine| {
            let magazine = lock(&magazine.0);
            (bytes.wrapping_add(magazine.live_bytes), objects.wrapping_add(magazine.objects))
        });
        // No magazine has counted them as freed.
        let spares = self.spares.iter().count() as u64;
        (bytes.wrapping_sub(spares * HEADER_BYTES), objects.wrapping_sub(spares))
    }

    /// Space of the volume. Exact while no thread allocates; what is kept at hand or retired counts as free.
    pub fn usage(&self) -> SpaceUsage {
        let total = self.shared.geometry.volume_bytes() - self.shared.geometry.data_start();
        let (live, objects) = self.live();
        SpaceUsage { total, free: total.saturating_sub(live), objects }
    }

    /// Number of live objects.
    pub fn object_count(&self) -> u64 {
        self.live().1
    }

    /// Number of frees that were refused because they contradict what is free: not 0 only in a corrupt volume.
    pub fn refused_frees(&self) -> u64 {
        self.central().refused()
    }

    /// What is free, counting what was retired. Exact while no thread allocates.
    pub(super) fn free_map(&self) -> FreeMap {
        let mut map = self.central().free_map(&self.shared);
        for magazine in &self.magazines {
            lock(&magazine.0).mark_free(&mut map);
        }
        self.spares.iter().for_each(|addr| Shape::Header.mark_free(&mut map, addr));
        (map.live_bytes, map.objects) = self.live();
        map
    }
}
