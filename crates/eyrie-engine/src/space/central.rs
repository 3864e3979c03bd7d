//! The state of the allocator that all threads share, under one lock.
//!
//! Groups are taken into use in order. First the number of groups in use is published and settled. The host
//! then provides the memory of the group step by step ([`MemorySteps`]), on demand or ahead of need. The
//! allocator uses a step only after the host has provided its memory. So every reachable byte lies in a group
//! in use and has memory, and a full host gives an error before any data is stored.
//!
//! A group that is free as a whole can be set aside: its pages leave the buddy allocator, so that no
//! allocation uses them while their memory is discarded.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{AHEAD_BYTES, Addr, Ordered, PAGE_SIZE};

use super::buddy::Buddy;
use super::context::{SpaceContext, allocation_error, bytes_of, pages_of};
use super::free_map::FreeMap;
use super::headers::{CHUNK_PAGES, Headers};
use super::slab::{Freed, Slabs};
use super::steps::{MemorySteps, Reserve, StepRun};
use crate::extent::{Class, Extent};
use crate::tables::geometry::{page_addr, page_of};
use crate::tables::layout::GROUPS_IN_USE;
use crate::{Error, Result};

/// Number of steps that calls provision before a thread provisions memory ahead of need. Therefore a volume
/// that grows by fewer steps gets no memory that it might never use.
const GROWN_BEFORE: u32 = 16;
/// Maximum number of ranges that are being provisioned ahead of need, or are provisioned and not yet in
/// `buddy`. Each range has [`AHEAD_BYTES`], so a volume takes at most 8 MiB that it might never use.
const AHEAD: u32 = 4;

/// Least order of a run of pages. The single pages of a magazine are cheaper than a shorter run.
const LEAST_RUN_ORDER: u32 = 2;

/// The shared state.
pub(crate) struct Central {
    pub(super) buddy: Buddy,
    slabs: Slabs,
    headers: Headers,
    groups: u64,
    /// Steps that are free as a whole and whose pages are not in `buddy`. The host may not have provided
    /// their memory yet, or may have discarded it.
    pub(super) steps: MemorySteps,
    /// Number of steps that calls provisioned since `set_aside` ran last.
    grown: u32,
    /// Number of ranges that a thread is provisioning ahead of need, plus the provisioned ranges that are not
    /// in `buddy` yet.
    ahead: u32,
    /// Blocks for large extents that were announced. No two have the same size.
    pub(super) reserves: Vec<Reserve>,
    /// Pages that become free when a cut of the medium is durable: the number of the cut, the first page and
    /// the page after the last. The numbers of the cuts never decrease from front to back.
    pending_frees: VecDeque<(u64, u32, u32)>,
    /// True from the open of a crashed volume until recovery has found the free space. Stays true in a
    /// damaged volume that is opened for a salvage. While this field is true, no group is taken into use.
    pub(crate) free_is_unknown: bool,
    /// Number of frees that were refused, because the memory was free already, was never provided, or has
    /// another size class.
    refused: u64,
}

impl Central {
    /// Returns the state in which `map` is free and the first `groups` groups are in use.
    pub(super) fn new(context: &SpaceContext, groups: u64, mut map: FreeMap) -> Central {
        let steps = MemorySteps::new(context, &map.pages);
        steps.runs(context).for_each(|(start, end)| map.pages.remove_run(start, end));
        Central {
            buddy: Buddy::with_pages(context.geometry.max_order(), &map.pages),
            slabs: Slabs::with_pages(map.slabs),
            headers: Headers::with_slots(map.chunks),
            groups,
            steps,
            grown: 0,
            ahead: 0,
            reserves: Vec::new(),
            pending_frees: VecDeque::new(),
            free_is_unknown: false,
            refused: 0,
        }
    }

    /// Returns the number of groups in use.
    pub(crate) fn groups(&self) -> u64 {
        self.groups
    }

    /// Ends provisioning ahead of need, because the caller replaces this state. Returns the number of groups
    /// in use.
    pub(super) fn recalled_groups(&mut self, context: &SpaceContext) -> u64 {
        self.withdraw(context);
        self.groups
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the free memory of the shared state, without the magazines, the shared pages, and the counts
    /// of live bytes and objects.
    pub(super) fn free_map(&self, context: &SpaceContext) -> FreeMap {
        let mut pages = self.buddy.pages().clone();
        pages.grow(page_of(context.end_of_used_groups()));
        for &(_, first, end) in &self.pending_frees {
            pages.insert_run(first, end);
        }
        self.steps.runs(context).for_each(|(start, end)| pages.insert_run(start, end));
        FreeMap {
            pages,
            slabs: self.slabs.pages().clone(),
            chunks: self.headers.free_slots().clone(),
            shared: Vec::new(),
            live_bytes: 0,
            objects: 0,
        }
    }

    /// Allocates an extent of `class`. Without `grow` the call provisions no step and takes no group into
    /// use.
    pub(super) fn allocate(&mut self, context: &SpaceContext, class: Class, grow: bool) -> Result<Addr> {
        if !class.is_small() {
            let count = (class.bytes() / PAGE_SIZE) as u32;
            return self.pages(context, count, grow).map(page_addr);
        }
        let (page, slot) = match self.slabs.allocate(class) {
            Some(slot) => slot,
            None => {
                let page = self.pages(context, 1, grow)?;
                self.note_allocated(context, page, 1)?;
                self.slabs.add(page, class);
                self.slabs.allocate(class).ok_or(Error::NoSpace)?
            }
        };
        Ok(page_addr(page).add(u64::from(slot) * class.bytes()))
    }

    /// Allocates 2^`order` pages in a row, or the largest free block if all blocks are smaller. Returns
    /// `None` if the caller should allocate a single page instead. Takes more memory only if there are fewer
    /// free pages than the caller wants. If large writes always took more memory, they would double the
    /// storage of a file with scattered pages.
    pub(super) fn allocate_run(&mut self, context: &SpaceContext, order: u32) -> Option<(Addr, Class)> {
        if order < LEAST_RUN_ORDER {
            return None;
        }
        let found = match self.buddy.largest(order) {
            Some(found) if found >= LEAST_RUN_ORDER => found,
            _ if self.buddy.free_pages() < 1 << order => order,
            _ => return None,
        };
        let page = self.pages(context, 1 << found, true).ok()?;
        let class = Class::fitting(PAGE_SIZE << found)?;
        Some((page_addr(page), class))
    }

    /// Allocates a header slot. Without `grow` the call takes no group and no header chunk into use.
    pub(super) fn allocate_header(&mut self, context: &SpaceContext, grow: bool) -> Result<Addr> {
        if let Some(addr) = self.headers.allocate() {
            return Ok(addr);
        }
        if !grow {
            return Err(Error::NoSpace);
        }
        let page = self.pages(context, CHUNK_PAGES, true)?;
        self.note_allocated(context, page, CHUNK_PAGES)?;
        if let Err(error) = self.headers.add(&context.medium, &context.chunks, page / CHUNK_PAGES) {
            let bytes = u64::from(CHUNK_PAGES) * PAGE_SIZE;
            match context.medium.mark_freed(page_addr(page), bytes) {
                None => drop(self.buddy.free(page, page + CHUNK_PAGES)),
                Some(cut) => self.free_after(cut, page_addr(page), bytes),
            }
            return Err(error);
        }
        self.headers.allocate().ok_or(Error::NoSpace)
    }

    /// Frees an extent for which [`SpaceContext::contains`] is true. If its memory is free already, was never
    /// provisioned, or has another size class, the call changes nothing and counts as a refused free.
    pub(crate) fn free(&mut self, context: &SpaceContext, extent: Extent) {
        let Extent { addr, class } = extent;
        let page = page_of(addr.offset());
        // No object can own memory that was never provisioned, so the free is refused.
        let freed = if !self.has_memory(page) {
            false
        } else if class.is_small() {
            let slot = (addr.offset() % PAGE_SIZE / class.bytes()) as u32;
            let whole = self.buddy.pages().contains(page);
            match if whole { Freed::Refused } else { self.slabs.free(page, class, slot) } {
                Freed::Refused => false,
                Freed::Slot => true,
                Freed::Page => match context.medium.mark_freed(page_addr(page), PAGE_SIZE) {
                    None => self.buddy.free(page, page + 1),
                    Some(cut) => {
                        self.free_after(cut, page_addr(page), PAGE_SIZE);
                        true
                    }
                },
            }
        } else {
            self.free_pages(page, page + (class.bytes() / PAGE_SIZE) as u32)
        };
        self.refused += u64::from(!freed);
    }

    /// Frees pages `first..end`. Returns false, without a change, if one of the pages is free already or was
    /// never provisioned. In a damaged volume, an extent may contain a step that counts as free as a whole.
    /// If its pages were freed with the extent, they would be free twice once the step is provisioned.
    fn free_pages(&mut self, first: u32, end: u32) -> bool {
        self.steps.have_memory(first, end) && self.buddy.free(first, end)
    }

    /// Notes pages that become free when a cut of the medium is durable. Before that, a crash could restore
    /// the old owner of the pages.
    pub(super) fn free_after(&mut self, cut: u64, addr: Addr, bytes: u64) {
        let page = page_of(addr.offset());
        // Two threads may arrive here in another order than the order of their cuts. The later cut is safe
        // for both.
        let cut = self.pending_frees.back().map_or(cut, |&(last, ..)| cut.max(last));
        self.pending_frees.push_back((cut, page, page + (bytes / PAGE_SIZE) as u32));
    }

    /// Frees the pages whose cut is durable.
    pub(super) fn free_durable(&mut self, context: &SpaceContext) {
        while let Some((first, end)) = self.pop_durable(context) {
            self.free_run(first, end);
        }
    }

    /// Takes the oldest pages whose cut is durable: the first page, and the page after the last. The caller
    /// frees or allocates them.
    pub(super) fn pop_durable(&mut self, context: &SpaceContext) -> Option<(u32, u32)> {
        let &(cut, first, end) = self.pending_frees.front()?;
        if cut > context.medium.durable_cut() {
            return None;
        }
        self.pending_frees.pop_front();
        Some((first, end))
    }

    pub(super) fn free_run(&mut self, first: u32, end: u32) {
        self.refused += u64::from(!self.free_pages(first, end));
    }

    /// True if freed pages wait until a cut of the medium is durable.
    pub(super) fn has_pending_frees(&self) -> bool {
        !self.pending_frees.is_empty()
    }

    /// Tells the medium that pages were taken from the buddy allocator. If the medium refuses, the pages
    /// return to the allocator.
    #[track_caller]
    fn note_allocated(&mut self, context: &SpaceContext, page: u32, count: u32) -> Result<()> {
        let done = context.medium.mark_allocated(page_addr(page), u64::from(count) * PAGE_SIZE);
        if done.is_err() {
            self.buddy.free(page, page + count);
        }
        done.map_err(allocation_error)
    }

    /// Allocates this header slot. Returns false if it is not free.
    pub(super) fn take_header(&mut self, addr: Addr) -> bool {
        self.headers.take(addr)
    }

    /// Frees a slot for which [`SpaceContext::is_header`] is true.
    pub(super) fn free_header(&mut self, addr: Addr) {
        self.refused += u64::from(!self.headers.free(addr));
    }

    /// Allocates `count` pages, aligned to `count` rounded up to a power of two.
    fn pages(&mut self, context: &SpaceContext, count: u32, grow: bool) -> Result<u32> {
        let geometry = &context.geometry;
        if u64::from(count) * PAGE_SIZE > geometry.group_bytes() {
            return Err(Error::NoSpace);
        }
        if grow {
            // If the host is full, the loop below finds memory elsewhere, or gives the error.
            let _ = self.take_reserve(context, count);
        }
        loop {
            if let Some(page) = self.buddy.allocate(count) {
                return Ok(page);
            }
            if !grow || !self.grow(context, count)? {
                return Err(Error::NoSpace);
            }
        }
    }

    /// True if the host has certainly provided the memory of a page.
    pub(crate) fn has_memory(&self, page: u32) -> bool {
        self.steps.has_memory(page)
    }

    /// True if the steps between these two offsets are set aside, and none of them is being provisioned or
    /// belongs to a reserve. Callers pass whole steps.
    pub(super) fn is_aside(&self, (start, end): (u64, u64)) -> bool {
        self.steps.are_idle(page_of(start), page_of(end))
    }

    /// Sets aside all groups that are free as a whole. They stay set aside until the volume needs their
    /// memory again. Returns these groups as ranges of offsets, and also the memory that was provided ahead
    /// of need or for a reserve. Without `all`, the result leaves out a group if every step of it may have no
    /// memory, for example because the group was set aside before.
    pub(super) fn set_aside(&mut self, context: &SpaceContext, all: bool) -> Vec<(u64, u64)> {
        let unused = self.withdraw(context);
        // A close sets groups aside and then allocates a little. The zero keeps that allocation from starting
        // to provision ahead of need.
        self.grown = 0;
        let mut free = self.buddy.pages().clone();
        self.steps.runs(context).for_each(|(start, end)| free.insert_run(start, end));
        let mut ranges = Vec::new();
        for group in context.geometry.first_group()..self.groups {
            let (start, end) = pages_of(context, group);
            if start >= end || !free.all(start, end) {
                continue;
            }
            if all || !self.steps.are_without(start, end) {
                ranges.push(bytes_of(context, group));
            }
            for (start, end) in self.steps.runs_with_memory(context, start, end) {
                self.buddy.take_run(start, end);
            }
            self.steps.add(start, end);
        }
        let groups = ranges.len();
        for (first, last) in unused {
            let (start, _) = self.steps.pages_of(context, first);
            let (_, end) = self.steps.pages_of(context, last - 1);
            let (start, end) = (page_addr(start).offset(), page_addr(end).offset());
            if !ranges[..groups].iter().any(|group| group.0 <= start && end <= group.1) {
                ranges.push((start, end));
            }
        }
        ranges
    }

    /// Takes the next range that was provisioned ahead of need. Skips ranges that the host did not provide,
    /// and makes their steps available again.
    fn take_provided_ahead(&mut self, context: &SpaceContext) -> Option<StepRun> {
        while let Some((offset, is_there)) = context.medium.provided_ahead() {
            let steps = self.steps.of_range(offset);
            self.steps.set_held_back(steps, false);
            self.ahead -= 1;
            if is_there {
                return Some(steps);
            }
        }
        None
    }

    /// Adds to the free memory the next range that was provisioned ahead of need. Returns false if no such
    /// range is ready.
    fn add_provided_ahead(&mut self, context: &SpaceContext) -> bool {
        let steps = self.take_provided_ahead(context);
        steps.into_iter().for_each(|steps| self.add_steps(context, steps));
        steps.is_some()
    }

    /// Starts provisioning ahead of need, once the volume has grown by [`GROWN_BEFORE`] steps.
    fn ask_ahead(&mut self, context: &SpaceContext) {
        while self.grown >= GROWN_BEFORE && self.ahead < AHEAD {
            let pages = (AHEAD_BYTES / PAGE_SIZE) as u32;
            let Some(steps) = self.steps.next_block(context, pages) else { return };
            if !context.medium.provide_ahead(page_addr(self.steps.pages_of(context, steps.0).0)) {
                return;
            }
            self.steps.set_held_back(steps, true);
            self.ahead += 1;
        }
    }

    /// Ends provisioning ahead of need, and gives up all reserves. Of the steps of these ranges and reserves,
    /// returns those that have memory. The call does not add these steps to the free memory.
    fn withdraw(&mut self, context: &SpaceContext) -> Vec<StepRun> {
        context.medium.recall_ahead();
        let mut unused: Vec<_> = std::iter::from_fn(|| self.take_provided_ahead(context)).collect();
        for reserve in std::mem::take(&mut self.reserves) {
            self.give_up_reserve(&reserve);
            unused.push(reserve.provided());
        }
        unused.retain(|(first, last)| first < last);
        unused
    }

    /// Does the same as [`Central::withdraw`], and adds the steps that have memory to the free memory.
    /// Returns false if no step has memory.
    fn recall(&mut self, context: &SpaceContext) -> bool {
        let unused = self.withdraw(context);
        unused.iter().for_each(|&steps| self.add_steps(context, steps));
        !unused.is_empty()
    }

    /// Provisions more memory. Chooses steps with `count` pages in a row, unless a range that was provisioned
    /// ahead of need is ready. Returns `false` when no memory of the volume is left to provision.
    pub(crate) fn grow(&mut self, context: &SpaceContext, count: u32) -> Result<bool> {
        let mut grown = Ok(self.add_provided_ahead(context));
        if !matches!(grown, Ok(true)) {
            grown = self.grow_now(context, count);
        }
        if !matches!(grown, Ok(true)) && (self.ahead > 0 || !self.reserves.is_empty()) {
            // The only memory left in the volume, or on its host, may be the range that another thread is
            // provisioning, or a reserve.
            grown = if self.recall(context) { Ok(true) } else { self.grow_now(context, count) };
        } else if grown.is_ok() {
            self.ask_ahead(context);
        }
        grown
    }

    /// Provisions the next steps in which `count` pages in a row fit. If no such steps are left, takes a
    /// group into use and tries again. Returns `false` when no group is left.
    fn grow_now(&mut self, context: &SpaceContext, count: u32) -> Result<bool> {
        loop {
            if let Some((first, last)) = self.steps.next_for(context, count, self.buddy.pages()) {
                (first..last).try_for_each(|step| self.provide(context, step))?;
                return Ok(true);
            }
            if !self.take_group(context)? {
                return Ok(false);
            }
        }
    }

    /// If a step may have no memory, provisions its memory and adds the step to the free memory.
    fn provide(&mut self, context: &SpaceContext, step: u32) -> Result<()> {
        if self.steps.is_without(step) {
            self.provision(context, step)?;
            self.add_step(context, step);
        }
        Ok(())
    }

    /// Provisions the memory of a step.
    pub(super) fn provision(&mut self, context: &SpaceContext, step: u32) -> Result<()> {
        let (start, end) = self.steps.pages_of(context, step);
        context.medium.provision(page_addr(start), u64::from(end - start) * PAGE_SIZE)?;
        self.grown += 1;
        Ok(())
    }

    /// Adds steps to the free memory. Callers have made the host provide the memory of these steps.
    pub(super) fn add_steps(&mut self, context: &SpaceContext, (first, last): StepRun) {
        (first..last).for_each(|step| self.add_step(context, step));
    }

    /// Adds a step to the free memory. Callers have made the host provide the memory of the step.
    fn add_step(&mut self, context: &SpaceContext, step: u32) {
        let (start, end) = self.steps.pages_of(context, step);
        self.steps.note_provided(step);
        self.buddy.free(start, end);
    }

    /// Takes the next group into use. The steps of the new group have no memory yet. Returns `false` when no
    /// group is left, or while the free space is unknown.
    pub(super) fn take_group(&mut self, context: &SpaceContext) -> Result<bool> {
        let geometry = &context.geometry;
        let group = self.groups.max(geometry.first_group());
        if self.free_is_unknown || group >= geometry.groups() {
            return Ok(false);
        }
        let in_use = group + u64::from(!broken(SafetyRule::GroupIsInUseBeforeItIsUsed));
        // No earlier write has to be durable before the count, so the publish is ordered after nothing. All
        // writes to the group come after the count has settled.
        let published = context.medium.publish_apart(GROUPS_IN_USE, in_use, Ordered::nothing())?;
        context.medium.settle(published);
        self.groups = group + 1;
        context.end_of_used_groups.store(geometry.end_of_groups(group + 1), Ordering::Release);
        let (start, end) = pages_of(context, group);
        self.buddy.grow(end);
        self.steps.add(start, end);
        Ok(true)
    }
}
