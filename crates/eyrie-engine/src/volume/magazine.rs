//! What a thread keeps at hand: stacks of free headers, small extents and pages, and what it retired.
//!
//! Memory that a reader may still see waits in the order it was retired; once its grace period is over it goes on top
//! of its stack, so that the warmest memory is used next.

use std::collections::VecDeque;

use eyrie_medium::epoch::Epoch;
use eyrie_medium::{Addr, Fault};

use super::central::{Central, Shared};
use super::free_map::FreeMap;
use crate::object::pointer::{Class, Extent};
use crate::{Error, Result};

/// Most entries of a stack.
const CAPACITY: usize = 64;
/// Entries that move between a stack and the shared state at a time.
const BATCH: usize = 32;
/// Stacks: headers, then the small classes and pages by number of the class.
const STACKS: usize = Class::PAGE.raw() as usize + 1;
/// Retired entries whose grace period is over that one call looks at, at most.
const COLLECT: usize = 32;

/// What is allocated: a header slot or an extent of a class.
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

    /// What it occupies, in bytes.
    #[inline]
    pub(super) fn bytes(self) -> u64 {
        match self {
            Shape::Header => super::layout::HEADER_BYTES,
            Shape::Extent(class) => class.bytes(),
        }
    }

    /// Takes one from the shared state.
    pub(super) fn take(self, central: &mut Central, shared: &Shared, grow: bool) -> Result<Addr> {
        match self {
            Shape::Header => central.allocate_header(shared, grow),
            Shape::Extent(class) => central.allocate(shared, class, grow),
        }
    }

    /// Whether it is of whole pages that it does not share.
    #[inline]
    fn is_pages(self) -> bool {
        matches!(self, Shape::Extent(class) if !class.is_small())
    }

    /// Tells the medium that this is given out.
    #[inline]
    #[track_caller]
    pub(super) fn taken(self, shared: &Shared, addr: Addr) -> Result<()> {
        shared.medium.taken(addr, self.bytes()).map_err(refused)
    }

    /// Tells the medium that this is free; the cut that it has to wait for, if any.
    #[inline]
    pub(super) fn freed(self, shared: &Shared, addr: Addr) -> Option<u64> {
        if self.is_pages() { shared.medium.freed(addr, self.bytes()) } else { None }
    }

    fn give(self, shared: &Shared, central: &mut Central, addr: Addr) {
        match self {
            Shape::Header => central.free_header(addr),
            Shape::Extent(class) => central.free(shared, Extent { addr, class }),
        }
    }

    pub(super) fn mark_free(self, map: &mut FreeMap, addr: Addr) {
        match self {
            Shape::Header => map.free_header(addr),
            Shape::Extent(class) => map.free_extent(Extent { addr, class }),
        };
    }
}

/// A medium that has no room for what an allocator gives out is a full volume.
#[cold]
pub(super) fn refused(fault: Fault) -> Error {
    match fault {
        Fault::HostFull => Error::NoSpace,
        fault => fault.into(),
    }
}

struct Retired {
    epoch: Epoch,
    shape: u8,
    addr: Addr,
}

/// One thread's share (threads whose numbers collide share one).
#[derive(Default)]
pub(super) struct Magazine {
    stacks: [Vec<Addr>; STACKS],
    retired: VecDeque<Retired>,
    /// Retired entries since the clock was last asked to move.
    pub(super) since_advance: u32,
    /// What this magazine's threads allocated less what they freed, in bytes and objects; wraps.
    pub(super) live_bytes: u64,
    pub(super) objects: u64,
}

impl Magazine {
    /// Counts one allocated.
    #[inline]
    pub(super) fn count_live(&mut self, shape: Shape) {
        self.live_bytes = self.live_bytes.wrapping_add(shape.bytes());
        self.objects = self.objects.wrapping_add(u64::from(shape == Shape::Header));
    }

    /// Counts one freed.
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

    /// Takes one from the shared state, and a batch to go with it.
    pub(super) fn refill(&mut self, shape: Shape, central: &mut Central, shared: &Shared) -> Result<Addr> {
        let first = shape.take(central, shared, true)?;
        if let Some(stack) = self.stacks.get_mut(shape.index()) {
            stack.reserve(CAPACITY);
            let batch = std::iter::from_fn(|| shape.take(central, shared, false).ok());
            stack.extend(batch.take(BATCH - 1));
            stack.reverse();
        }
        Ok(first)
    }

    /// Whether [`Magazine::push`] has no room.
    #[inline]
    pub(super) fn is_full(&self, shape: Shape) -> bool {
        self.stacks.get(shape.index()).is_none_or(|stack| stack.len() >= CAPACITY)
    }

    /// Puts one that no reader sees on its stack.
    #[inline]
    pub(super) fn push(&mut self, shape: Shape, addr: Addr) {
        self.stacks[shape.index()].push(addr);
    }

    /// Gives one that no reader sees, and the oldest of a full stack, to the shared state.
    pub(super) fn spill(&mut self, shape: Shape, addr: Addr, shared: &Shared, central: &mut Central) {
        match self.stacks.get_mut(shape.index()) {
            None => shape.give(shared, central, addr),
            Some(stack) => {
                stack.drain(..BATCH.min(stack.len())).for_each(|addr| shape.give(shared, central, addr));
                stack.push(addr);
            }
        }
    }

    /// Adds one that readers may still see, and counts it as freed.
    #[inline]
    pub(super) fn retire(&mut self, epoch: Epoch, shape: Shape, addr: Addr) {
        self.count_free(shape);
        self.since_advance += 1;
        self.retired.push_back(Retired { epoch, shape: shape.index() as u8, addr });
    }

    /// The oldest retired entry, if its grace period is over.
    #[inline]
    pub(super) fn next_over(&mut self, now: Epoch) -> Option<(Shape, Addr)> {
        let oldest = self.retired.front()?;
        if !oldest.epoch.is_over(now) {
            return None;
        }
        let Retired { shape, addr, .. } = self.retired.pop_front()?;
        Some((Shape::from_index(shape as usize), addr))
    }

    /// Takes retired entries whose grace period is over, a bounded number, and passes them on.
    #[inline]
    pub(super) fn collect(&mut self, now: Epoch, free: impl Fn(&mut Magazine, Shape, Addr)) {
        for _ in 0..COLLECT {
            let Some((shape, addr)) = self.next_over(now) else { return };
            free(self, shape, addr);
        }
    }

    /// Gives everything that no reader sees at time `now` to the shared state.
    pub(super) fn empty(&mut self, now: Epoch, shared: &Shared, central: &mut Central) {
        for (index, stack) in self.stacks.iter_mut().enumerate() {
            stack.drain(..).for_each(|addr| Shape::from_index(index).give(shared, central, addr));
        }
        while let Some((shape, addr)) = self.next_over(now) {
            match shape.freed(shared, addr) {
                None => shape.give(shared, central, addr),
                Some(cut) => central.keep(cut, addr, shape.bytes()),
            }
        }
    }

    /// Adds everything here, retired or not, to what is free in `map`.
    pub(super) fn mark_free(&self, map: &mut FreeMap) {
        for (index, stack) in self.stacks.iter().enumerate() {
            stack.iter().for_each(|&addr| Shape::from_index(index).mark_free(map, addr));
        }
        for entry in &self.retired {
            Shape::from_index(entry.shape as usize).mark_free(map, entry.addr);
        }
    }
}
