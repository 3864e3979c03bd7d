//! Allocates and frees storage for the rest of the engine.
//!
//! Invariants: no memory has two owners at a time. Memory that an object reached is allocated again only
//! after two events: the commit that made the memory unreachable has settled, and every reader that could see
//! the memory has dropped its pin.
//!
//! While a volume is open, only two parts of this state are on media: the bitmap of header chunks and the
//! number of groups in use. After a crash, all storage that no object reaches is free.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use eyrie_medium::epoch;
use eyrie_medium::sync::{Mutex, MutexGuard, lock};
use eyrie_medium::{Addr, Fault, PAGE_SIZE};

use super::central::Central;
use super::context::SpaceContext;
use super::free_map::FreeMap;
use super::headers::{HeaderSlots, slot_addr};
use super::magazine::{COLLECT, Magazine, Shape};
use super::padded::CachePadded;
use super::shared::PointerCounts;
use super::spares::Spares;
use crate::extent::{Class, Extent};
use crate::tables::geometry::page_of;
use crate::tables::layout::HEADER_BYTES;
use crate::{Error, Result, SpaceUsage};

/// Number of magazines. A power of two, so that a mask turns the index of a thread into its magazine. If more
/// threads run, some of them share a magazine.
const MAGAZINES: usize = 64;
// Threads without a slot, with the number `SLOTS`, use the first magazine.
const _: () = assert!(epoch::SLOTS.is_multiple_of(MAGAZINES));
fn new_magazines() -> Box<[CachePadded<Mutex<Magazine>>]> {
    (0..MAGAZINES).map(|_| CachePadded(Mutex::new(Magazine::default()))).collect()
}

fn pages_of_volume(context: &SpaceContext) -> u32 {
    page_of(context.geometry.volume_bytes())
}

/// The space of a volume.
pub struct Space {
    pub(super) context: SpaceContext,
    central: Mutex<Central>,
    pub(super) magazines: Box<[CachePadded<Mutex<Magazine>>]>,
    pub(super) spares: Spares,
    pub(super) shared: PointerCounts,
    /// True if storage may be leaked: no object uses it, and the allocator does not have it. For example, an
    /// object was so corrupt that its storage could not be freed.
    has_leaks: AtomicBool,
    /// True after a panic in a change. Then no later transaction commits.
    is_stopped: AtomicBool,
    /// Bytes that changes in the logs of clients may still need.
    promised: AtomicU64,
    /// Live bytes and objects when the volume was opened or recovered.
    opened: (u64, u64),
}

impl Space {
    /// Returns the space in which `map` is free and the first `groups` groups are in use.
    pub(crate) fn new(context: SpaceContext, groups: u64, map: FreeMap) -> Space {
        let opened = (map.live_bytes, map.objects);
        let shared = PointerCounts::new(pages_of_volume(&context), &map.shared);
        let central = Mutex::new(Central::new(&context, groups, map));
        Space {
            context,
            central,
            shared,
            magazines: new_magazines(),
            spares: Spares::new(),
            has_leaks: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            promised: AtomicU64::new(0),
            opened,
        }
    }

    pub(crate) fn context(&self) -> &SpaceContext {
        &self.context
    }

    /// Makes exactly the memory in `map` free. Replaces the shared state, and empties the magazines and the
    /// spares.
    pub(crate) fn adopt(&mut self, map: FreeMap) {
        let groups = self.central().recalled_groups(&self.context);
        self.opened = (map.live_bytes, map.objects);
        self.shared = PointerCounts::new(pages_of_volume(&self.context), &map.shared);
        self.central = Mutex::new(Central::new(&self.context, groups, map));
        self.magazines = new_magazines();
        self.spares = Spares::new();
    }

    pub(crate) fn central(&self) -> MutexGuard<'_, Central> {
        lock(&self.central)
    }

    #[inline]
    pub(super) fn magazine(&self) -> MutexGuard<'_, Magazine> {
        lock(&self.magazines[epoch::thread_index() % MAGAZINES].0)
    }

    /// Allocates an extent of the smallest class that holds `bytes`. Its content is unspecified.
    ///
    /// # Errors
    /// [`Error::TooLarge`] above 64 MiB. [`Error::NoSpace`] when no free range is large enough. A smaller
    /// extent may still be available. [`Error::Fault`] when the host is full or the medium failed.
    ///
    /// Retired storage is not available while the caller's own pin delays its grace period. After
    /// [`Error::NoSpace`], the caller drops its pin, calls [`Space::reclaim`], and tries again.
    #[inline]
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> Result<Extent> {
        let class = Class::fitting(bytes).ok_or(Error::TooLarge)?;
        let addr = self.allocate_shape(Shape::Extent(class))?;
        Ok(Extent { addr, class })
    }

    /// Allocates pages in a row. Their number is a power of two: as many as are free in a row, up to `most`
    /// bytes, but at least one page. Free pages that are not in a row are used before the volume takes more
    /// memory.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    #[track_caller]
    pub(crate) fn allocate_run(&self, most: u64) -> Result<Extent> {
        let order = (most / PAGE_SIZE).max(1).ilog2();
        self.context.medium.check()?;
        let mut magazine = self.magazine();
        // A large extent may replace single pages, which the Op then retires. This call frees up to about
        // twice as many retired entries as it allocates pages, so that retired pages do not accumulate.
        let now = epoch::advance();
        for _ in 0..(2_usize << order).div_ceil(COLLECT) {
            magazine.collect(now, |magazine, shape, addr| self.free_unseen(magazine, shape, addr));
        }
        let found = {
            let mut central = self.central();
            central.free_durable(&self.context);
            central.allocate_run(&self.context, order)
        };
        let Some((addr, class)) = found else {
            drop(magazine);
            return self.allocate(PAGE_SIZE);
        };
        let shape = Shape::Extent(class);
        magazine.count_live(shape);
        drop(magazine);
        self.announce_allocated(shape, addr)?;
        Ok(Extent { addr, class })
    }

    /// Allocates a header slot. The slot holds the bytes of its last use, or zeros.
    ///
    /// # Errors
    /// As [`Space::allocate`]: a slot may need 64 KiB of free space.
    #[inline]
    #[track_caller]
    pub fn allocate_header(&self) -> Result<Addr> {
        match self.spares.take() {
            Some(addr) => Ok(addr),
            None => self.allocate_shape(Shape::Header),
        }
    }

    /// Allocates this header slot. Returns false if the slot is not free in the shared state. The call does
    /// not find free slots in magazines and spares. Callers make sure that no other thread uses the volume
    /// yet.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub(crate) fn allocate_header_at(&self, addr: Addr) -> Result<bool> {
        if !self.context.is_header(addr) || !self.central().take_header(addr) {
            return Ok(false);
        }
        self.magazine().count_live(Shape::Header);
        self.announce_allocated(Shape::Header, addr)?;
        Ok(true)
    }

    /// Sets the number of bytes that changes in the logs of clients may still need.
    pub(crate) fn promise(&self, bytes: u64) {
        self.promised.store(bytes, Ordering::Relaxed);
    }

    /// True if the promised storage is still free after an allocation of this size. Callers ask before an
    /// optional allocation, such as the growth of a directory.
    pub(crate) fn leaves_promised(&self, bytes: u64) -> bool {
        let promised = self.promised.load(Ordering::Relaxed);
        promised == 0 || self.usage().free >= promised.saturating_add(bytes)
    }

    #[inline(always)]
    #[track_caller]
    fn allocate_shape(&self, shape: Shape) -> Result<Addr> {
        let mut magazine = self.magazine();
        magazine.collect(epoch::now(), |magazine, shape, addr| self.free_unseen(magazine, shape, addr));
        let addr = match magazine.pop(shape) {
            Some(addr) => {
                magazine.count_live(shape);
                // The lock is dropped here, because `free_at_once` below takes it again if the medium
                // refuses.
                drop(magazine);
                addr
            }
            None => self.allocate_shared(magazine, shape)?,
        };
        self.announce_allocated(shape, addr)?;
        Ok(addr)
    }

    /// Tells the medium that memory is allocated. Frees the memory if the medium refuses.
    #[inline]
    #[track_caller]
    fn announce_allocated(&self, shape: Shape, addr: Addr) -> Result<()> {
        shape.note_allocated(&self.context, addr).inspect_err(|error| self.give_back(shape, addr, error))
    }

    /// Frees memory whose allocation the medium refused.
    #[cold]
    fn give_back(&self, shape: Shape, addr: Addr, error: &Error) {
        if !matches!(error, Error::Fault(Fault::OpTooLarge { .. })) {
            return self.free_at_once(shape, addr);
        }
        // The medium does not know of the allocation. If the memory were announced as freed, it would have to
        // wait for a drain.
        let mut magazine = self.magazine();
        magazine.count_free(shape);
        if magazine.is_full(shape) {
            self.spill(&mut magazine, shape, addr);
        } else {
            magazine.push(shape, addr);
        }
    }

    /// Frees a header or extent that no reader can see. The memory becomes free immediately, with one
    /// exception. On a disk, whole pages with durable bytes become free when the cut that makes them
    /// unreachable is durable.
    #[inline]
    pub(super) fn free_unseen(&self, magazine: &mut Magazine, shape: Shape, addr: Addr) {
        match shape.note_freed(&self.context, addr) {
            None if magazine.is_full(shape) => self.spill(magazine, shape, addr),
            None => magazine.push(shape, addr),
            Some(cut) => self.central().free_after(cut, addr, shape.bytes()),
        }
    }

    #[cold]
    #[inline(never)]
    fn spill(&self, magazine: &mut Magazine, shape: Shape, addr: Addr) {
        magazine.spill(shape, addr, &self.context, &mut self.central());
    }

    #[cold]
    #[inline(never)]
    fn allocate_shared<'a>(&'a self, mut magazine: MutexGuard<'a, Magazine>, shape: Shape) -> Result<Addr> {
        self.context.medium.check()?;
        let mut taken = {
            let mut central = self.central();
            central.free_durable(&self.context);
            magazine.refill(shape, &mut central, &self.context)
        };
        if taken.is_err() {
            drop(magazine);
            taken = self.allocate_last(shape);
            magazine = self.magazine();
        }
        let addr = taken?;
        magazine.count_live(shape);
        Ok(addr)
    }

    /// Allocates from storage that other threads keep or have retired: the last resort before
    /// [`Error::NoSpace`].
    pub(super) fn allocate_last(&self, shape: Shape) -> Result<Addr> {
        let mut taken = Err(Error::NoSpace);
        // Retired storage is reusable two epochs later. Therefore three calls of `gather_free`, with an
        // advance of the epoch after each failed attempt, find all storage that neither a pin nor a drain
        // delays.
        for _ in 0..3 {
            self.gather_free();
            taken = shape.allocate(&mut self.central(), &self.context, true);
            match taken {
                Ok(_) => break,
                Err(_) => epoch::advance(),
            };
        }
        taken
    }

    /// Frees an extent that was never published. It may be reused immediately, because no reader can see it.
    pub fn release(&self, extent: Extent) {
        if self.context.contains(extent) {
            self.free_at_once(Shape::Extent(extent.class), extent.addr);
        }
    }

    /// Frees a header slot that was never published. It may be reused immediately.
    #[inline]
    pub(crate) fn release_header(&self, addr: Addr) {
        if self.context.is_header(addr)
            && let Some(addr) = self.spares.replace(addr)
        {
            self.free_at_once(Shape::Header, addr);
        }
    }

    #[inline]
    pub(super) fn free_at_once(&self, shape: Shape, addr: Addr) {
        let mut magazine = self.magazine();
        magazine.count_free(shape);
        self.free_unseen(&mut magazine, shape, addr);
    }

    /// Records that storage leaked. Only a recovery makes leaked storage free again. Therefore a close leaves
    /// the volume unclean, so that the next open recovers the volume.
    pub(crate) fn mark_leaked(&self) {
        self.has_leaks.store(true, Ordering::Relaxed);
    }

    /// Returns the result of `change`. If `change` panics, the allocator or a commit may be half done. Then
    /// no later transaction commits, and a close leaves the volume to recovery.
    #[inline(always)]
    pub(crate) fn stop_on_panic<T>(&self, change: impl FnOnce() -> T) -> T {
        struct StopOnDrop<'a>(&'a Space);
        impl Drop for StopOnDrop<'_> {
            fn drop(&mut self) {
                self.0.is_stopped.store(true, Ordering::Release);
            }
        }
        let guard = StopOnDrop(self);
        let done = change();
        std::mem::forget(guard);
        done
    }

    /// Returns an error if a call has panicked inside [`Space::stop_on_panic`].
    #[inline(always)]
    pub(crate) fn refuse_if_stopped(&self) -> Result<()> {
        if self.is_stopped.load(Ordering::Acquire) { Err(Fault::ReadOnly.into()) } else { Ok(()) }
    }

    /// True if the allocator may be wrong about some storage: storage has leaked, or a change has panicked. A
    /// close then leaves the volume to recovery.
    pub(crate) fn must_recover(&self) -> bool {
        self.has_leaks.load(Ordering::Relaxed) || self.is_stopped.load(Ordering::Acquire)
    }

    /// Returns an upper bound on the number of extents of any object of this volume, without the shared ones.
    /// The bound is the size of the volume divided by 2 KiB, because only extents of 2 KiB or more occur in
    /// large numbers in one object.
    pub(crate) fn most_extents(&self) -> usize {
        (self.context.geometry.volume_bytes() / 2048) as usize
    }

    /// True if an extent could be live: it is well formed, lies in the groups in use, and lies in no header
    /// chunk.
    #[inline]
    pub fn contains(&self, extent: Extent) -> bool {
        self.context.contains(extent)
    }

    /// Returns the number of live bytes and the number of live objects.
    fn live(&self) -> (u64, u64) {
        let used = &self.magazines[..epoch::used_slots().clamp(1, MAGAZINES)];
        let (bytes, objects) = used.iter().fold(self.opened, |(bytes, objects), magazine| {
            let magazine = lock(&magazine.0);
            (bytes.wrapping_add(magazine.live_bytes), objects.wrapping_add(magazine.objects))
        });
        // No magazine counted the spares as freed.
        let spares = self.spares.iter().count() as u64;
        (bytes.wrapping_sub(spares * HEADER_BYTES), objects.wrapping_sub(spares))
    }

    /// Returns the total and free space of the volume. The numbers are exact while no thread allocates or
    /// frees. Memory in magazines and retired memory count as free.
    pub fn usage(&self) -> SpaceUsage {
        let total = self.context.geometry.volume_bytes() - self.context.geometry.data_start();
        let (live, objects) = self.live();
        SpaceUsage { total, free: total.saturating_sub(live), objects }
    }

    /// Returns the number of frees that were refused, because the memory was free already, was never
    /// provided, or has another size class. The number is above 0 only in a corrupt volume.
    pub fn refused_frees(&self) -> u64 {
        self.central().refused()
    }

    /// Returns the addresses of all free header slots. Callers make sure that no other thread uses the volume
    /// yet.
    pub(crate) fn free_headers(&self) -> Vec<Addr> {
        let in_chunk = |(&chunk, slots): (&u32, &HeaderSlots)| {
            let slots = *slots;
            (0..256)
                .filter(move |slot| slots[slot / 64] >> (slot % 64) & 1 != 0)
                .map(move |slot| slot_addr(chunk, slot as u32))
        };
        self.free_map().chunks.iter().flat_map(in_chunk).collect()
    }

    /// Returns all free memory, including retired memory. The map is exact while no thread allocates or
    /// frees.
    pub(crate) fn free_map(&self) -> FreeMap {
        let mut map = self.central().free_map(&self.context);
        for magazine in &self.magazines {
            lock(&magazine.0).mark_free(&mut map);
        }
        self.spares.iter().for_each(|addr| Shape::Header.mark_free(&mut map, addr));
        (map.live_bytes, map.objects) = self.live();
        map.shared = self.shared.runs();
        map
    }
}
