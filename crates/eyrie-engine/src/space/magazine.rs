//! Magazines. A magazine holds the memory that a thread keeps at hand: stacks of free headers, small extents
//! and single pages, and a queue of retired memory.
//!
//! Memory that a reader may still see waits in the queue, in the order of its retirement. After its grace
//! period, the memory moves to its stack or to the shared state. Pages of a disk may first wait in the shared
//! state until a cut is durable. An allocation takes the newest entry of a stack, because its memory is the
//! most likely to be in the processor's cache.

use std::collections::VecDeque;

use eyrie_medium::Addr;
use eyrie_medium::epoch::Epoch;

use super::central::Central;
use super::context::{SpaceContext, allocation_error};
use super::free_map::FreeMap;
use crate::Result;
use crate::extent::{Class, Extent};
use crate::tables::layout::HEADER_BYTES;

/// Maximum number of entries of a stack. It is small enough that the idle magazines of all threads together
/// hold little of a volume.
const CAPACITY: usize = 64;
/// Maximum number of entries that one refill or spill moves between a stack and the shared state. This is
/// half a stack, so that alternating allocations and frees do not take the shared lock each time.
const BATCH: usize = 32;
/// Number of stacks. The stack of headers has index 0. The stacks of small extents and single pages have the
/// numbers of their classes.
const STACKS: usize = Class::PAGE.raw() as usize + 1;
/// Maximum number of retired entries that one call of [`Magazine::collect`] frees. The bound keeps the
/// latency of a call short.
pub(super) const COLLECT: usize = 32;

/// The unit of allocation: a header slot or an extent of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Header,
    Extent(Class),
}

impl Shape {
    #[inline]
    fn index(self) -> usize {
        match self {
            Shape::Header => 0,
            Shape::Extent(class) => class.raw() as usize,
        }
    }

    #[inline]
    fn from_index(index: usize) -> Shape {
        Class::from_raw(index as u8).map_or(Shape::Header, Shape::Extent)
    }

    /// Returns the size in bytes.
    #[inline]
    pub(super) fn bytes(self) -> u64 {
        match self {
            Shape::Header => HEADER_BYTES,
            Shape::Extent(class) => class.bytes(),
        }
    }

    /// Allocates a header or extent of this shape from the shared state.
    pub(super) fn allocate(self, central: &mut Central, context: &SpaceContext, grow: bool) -> Result<Addr> {
        match self {
            Shape::Header => central.allocate_header(context, grow),
            Shape::Extent(class) => central.allocate(context, class, grow),
        }
    }

    /// True for an extent of whole pages, which other extents do not share.
    #[inline]
    fn is_pages(self) -> bool {
        matches!(self, Shape::Extent(class) if !class.is_small())
    }

    /// Tells the medium that memory of this shape at `addr` is allocated.
    #[inline]
    #[track_caller]
    pub(super) fn note_allocated(self, context: &SpaceContext, addr: Addr) -> Result<()> {
        context.medium.mark_allocated(addr, self.bytes()).map_err(allocation_error)
    }

    /// Tells the medium that memory of this shape at `addr` is free. Returns the cut that must be durable
    /// before the memory is reused, or `None` if the memory can be reused immediately. The medium tracks only
    /// whole pages.
    #[inline]
    pub(super) fn note_freed(self, context: &SpaceContext, addr: Addr) -> Option<u64> {
        if self.is_pages() { context.medium.mark_freed(addr, self.bytes()) } else { None }
    }

    fn free(self, context: &SpaceContext, central: &mut Central, addr: Addr) {
        match self {
            Shape::Header => central.free_header(addr),
            Shape::Extent(class) => central.free(context, Extent { addr, class }),
        }
    }

    pub(super) fn mark_free(self, map: &mut FreeMap, addr: Addr) {
        match self {
            Shape::Header => map.free_header(addr),
            Shape::Extent(class) => map.free_extent(Extent { addr, class }),
        };
    }
}

/// A retired header or extent, with the epoch of its retirement.
struct RetiredEntry {
    epoch: Epoch,
    shape: u8,
    addr: Addr,
}

/// The free memory that a thread keeps. Threads with the same index modulo the number of magazines share one
/// magazine.
#[derive(Default)]
pub(super) struct Magazine {
    stacks: [Vec<Addr>; STACKS],
    retired: VecDeque<RetiredEntry>,
    /// Number of retired entries since this magazine last tried to advance the epoch.
    pub(super) since_advance: u32,
    /// Bytes that this magazine's threads allocated, less the bytes that they freed. The number wraps below
    /// zero, because a thread may free memory that another thread allocated. Only the sum over all magazines
    /// is meaningful.
    pub(super) live_bytes: u64,
    /// Objects that this magazine's threads allocated, less the objects that they freed. This number wraps
    /// too.
    pub(super) objects: u64,
}

impl Magazine {
    /// Counts a header or extent as allocated.
    #[inline]
    pub(super) fn count_live(&mut self, shape: Shape) {
        self.live_bytes = self.live_bytes.wrapping_add(shape.bytes());
        self.objects = self.objects.wrapping_add(u64::from(shape == Shape::Header));
    }

    /// Counts a header or extent as freed.
    #[inline]
    pub(super) fn count_free(&mut self, shape: Shape) {
        self.live_bytes = self.live_bytes.wrapping_sub(shape.bytes());
        self.objects = self.objects.wrapping_sub(u64::from(shape == Shape::Header));
    }

    /// Takes the newest entry of a stack.
    #[inline]
    pub(super) fn pop(&mut self, shape: Shape) -> Option<Addr> {
        self.stacks.get_mut(shape.index())?.pop()
    }

    /// Takes a batch of headers or extents from the shared state: the first for the caller, and the others
    /// for the stack.
    pub(super) fn refill(
        &mut self,
        shape: Shape,
        central: &mut Central,
        context: &SpaceContext,
    ) -> Result<Addr> {
        let first = shape.allocate(central, context, true)?;
        if let Some(stack) = self.stacks.get_mut(shape.index()) {
            stack.reserve(CAPACITY);
            let batch = std::iter::from_fn(|| shape.allocate(central, context, false).ok());
            stack.extend(batch.take(BATCH - 1));
            // The stack then returns the entries in the order in which the shared state allocated them.
            stack.reverse();
        }
        Ok(first)
    }

    /// True if [`Magazine::push`] has no room.
    #[inline]
    pub(super) fn is_full(&self, shape: Shape) -> bool {
        self.stacks.get(shape.index()).is_none_or(|stack| stack.len() >= CAPACITY)
    }

    /// Pushes a header or extent on its stack. Callers have checked that no reader can see it, and that
    /// [`Magazine::is_full`] is false.
    #[inline]
    pub(super) fn push(&mut self, shape: Shape, addr: Addr) {
        self.stacks[shape.index()].push(addr);
    }

    /// Moves the oldest half of a full stack to the shared state, and then pushes `addr`. Extents without a
    /// stack go directly to the shared state.
    pub(super) fn spill(&mut self, shape: Shape, addr: Addr, context: &SpaceContext, central: &mut Central) {
        match self.stacks.get_mut(shape.index()) {
            None => shape.free(context, central, addr),
            Some(stack) => {
                // The memory at the bottom of the stack is the least likely to be in the processor's cache.
                stack.drain(..BATCH.min(stack.len())).for_each(|addr| shape.free(context, central, addr));
                stack.push(addr);
            }
        }
    }

    /// Adds to the queue a header or extent that readers may still see, and counts it as freed.
    #[inline]
    pub(super) fn retire(&mut self, epoch: Epoch, shape: Shape, addr: Addr) {
        self.count_free(shape);
        self.since_advance += 1;
        self.retired.push_back(RetiredEntry { epoch, shape: shape.index() as u8, addr });
    }

    /// Takes the oldest retired entry, if its grace period has ended.
    #[inline]
    pub(super) fn next_over(&mut self, now: Epoch) -> Option<(Shape, Addr)> {
        let oldest = self.retired.front()?;
        // Entries are in the order of their epochs, so the oldest one decides.
        if !oldest.epoch.is_over(now) {
            return None;
        }
        let RetiredEntry { shape, addr, .. } = self.retired.pop_front()?;
        Some((Shape::from_index(shape as usize), addr))
    }

    /// Passes retired entries to `free` after their grace period, up to a limit for each call.
    #[inline]
    pub(super) fn collect(&mut self, now: Epoch, free: impl Fn(&mut Magazine, Shape, Addr)) {
        for _ in 0..COLLECT {
            let Some((shape, addr)) = self.next_over(now) else { return };
            free(self, shape, addr);
        }
    }

    /// Moves to the shared state all memory that no reader can see in epoch `now`.
    pub(super) fn empty(&mut self, now: Epoch, context: &SpaceContext, central: &mut Central) {
        for (index, stack) in self.stacks.iter_mut().enumerate() {
            stack.drain(..).for_each(|addr| Shape::from_index(index).free(context, central, addr));
        }
        while let Some((shape, addr)) = self.next_over(now) {
            match shape.note_freed(context, addr) {
                None => shape.free(context, central, addr),
                Some(cut) => central.free_after(cut, addr, shape.bytes()),
            }
        }
    }

    /// Adds all memory of this magazine, retired or not, to the free memory in `map`.
    pub(super) fn mark_free(&self, map: &mut FreeMap) {
        for (index, stack) in self.stacks.iter().enumerate() {
            stack.iter().for_each(|&addr| Shape::from_index(index).mark_free(map, addr));
        }
        for entry in &self.retired {
            Shape::from_index(entry.shape as usize).mark_free(map, entry.addr);
        }
    }
}
