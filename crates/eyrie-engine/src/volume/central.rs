//! The state of the allocator that all threads share, under one lock; and what is read without it.
//!
//! Groups are taken into use in order. The count on media rises first. Then the host provides the memory of the group in
//! [`Steps`], each when it is needed, and only then is anything in the step given out. So whatever an object reaches is in a
//! group in use and has memory, and a full host is an error before anything depends on its memory. A group that is free as a
//! whole goes out of what is given out when its memory is given back to the host.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Medium, Ordered, PAGE_SIZE};

use super::buddy::Buddy;
use super::free_map::FreeMap;
use super::geometry::{Geometry, page_addr, page_of};
use super::headers::{CHUNK_PAGES, ChunkMap, Headers};
use super::layout::{CHUNK_BYTES, GROUPS_IN_USE, HEADER_BYTES};
use super::magazine::refused;
use super::slab::{Freed, Slabs};
use super::steps::Steps;
use crate::object::pointer::{Class, Extent};
use crate::{Error, Result};

/// What is read without a lock.
pub(super) struct Shared {
    pub(super) medium: Arc<Medium>,
    pub(super) geometry: Geometry,
    pub(super) chunks: ChunkMap,
    /// Offset of the end of the groups in use.
    end: AtomicU64,
}

impl Shared {
    /// The shared part for a volume whose first `groups` groups are in use.
    pub(super) fn new(medium: Arc<Medium>, geometry: Geometry, groups: u64) -> Result<Shared> {
        let end = geometry.end_of_groups(groups);
        let chunks = ChunkMap::read(&medium, &geometry, end)?;
        Ok(Shared { medium, geometry, chunks, end: AtomicU64::new(end) })
    }

    /// The shared part for a volume whose tables may be damaged: as if all groups were in use.
    pub(super) fn of_damaged(medium: Arc<Medium>, geometry: Geometry) -> Result<Shared> {
        let end = geometry.end_of_groups(geometry.groups());
        let chunks = ChunkMap::read_possible(&medium, &geometry, end)?;
        Ok(Shared { medium, geometry, chunks, end: AtomicU64::new(end) })
    }

    /// Offset of the end of the groups in use.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether an extent could be live: well formed, in the groups in use and in no header chunk.
    #[inline]
    pub(super) fn contains(&self, extent: Extent) -> bool {
        self.geometry.holds(extent, self.end())
            && !self.chunks.overlaps(extent.addr.offset(), extent.class.bytes())
    }

    /// Whether a header slot begins at `addr`.
    #[inline]
    pub(super) fn is_header(&self, addr: Addr) -> bool {
        addr.is_aligned(HEADER_BYTES)
            && addr.segment_index() == 0
            && self.chunks.contains((addr.offset() / CHUNK_BYTES) as u32)
    }
}

/// The offsets at which the data of a group in use begins and ends.
fn bytes_of(shared: &Shared, group: u64) -> (u64, u64) {
    let geometry = &shared.geometry;
    let end = geometry.end_of_groups(group + 1).min(shared.end());
    (geometry.end_of_groups(group).max(geometry.data_start()), end)
}

/// The same in pages.
fn pages_of(shared: &Shared, group: u64) -> (u32, u32) {
    let (start, end) = bytes_of(shared, group);
    (page_of(start), page_of(end))
}

/// Steps that calls provide before memory is provided ahead of need: a volume that grows by little needs none.
const GROWN_BEFORE: u32 = 16;
/// Ranges that are provided ahead of need at a time.
const AHEAD: u32 = 4;

/// The shared state.
pub(super) struct Central {
    buddy: Buddy,
    slabs: Slabs,
    headers: Headers,
    groups: u64,
    /// Steps that are free as a whole and not in `buddy`: the host may not have provided their memory, or taken it back.
    steps: Steps,
    /// Steps that calls provided since the last time that groups were set aside.
    grown: u32,
    /// Ranges of memory that are being provided ahead of need, or were and are not given out.
    ahead: u32,
    /// Pages that are free once a cut of the medium is durable: the cut, the first page and the last one's successor. The
    /// cuts do not fall.
    kept: VecDeque<(u64, u32, u32)>,
    /// No more groups may be taken: what is free is not known yet.
    pub(super) sealed: bool,
    /// Number of frees that were refused because they contradict what is free.
    refused: u64,
}

impl Central {
    /// The state in which `map` is free and the first `groups` groups are in use.
    pub(super) fn new(shared: &Shared, groups: u64, mut map: FreeMap) -> Central {
        let steps = Steps::new(shared, &map.pages);
        steps.runs(shared).for_each(|(start, end)| map.pages.remove_run(start, end));
        Central {
            buddy: Buddy::with_pages(shared.geometry.max_order(), &map.pages),
            slabs: Slabs::with_pages(map.slabs),
            headers: Headers::with_slots(map.chunks),
            groups,
            steps,
            grown: 0,
            ahead: 0,
            kept: VecDeque::new(),
            sealed: false,
            refused: 0,
        }
    }

    /// Number of groups in use.
    pub(super) fn groups(&self) -> u64 {
        self.groups
    }

    /// The same, once nothing more is provided ahead of need: the end of this state.
    pub(super) fn recalled_groups(&mut self, shared: &Shared) -> u64 {
        self.recall(shared);
        self.groups
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// What is free here; magazines apart, and without the live counts.
    pub(super) fn free_map(&self, shared: &Shared) -> FreeMap {
        let mut pages = self.buddy.pages().clone();
        pages.grow(page_of(shared.end()));
        for &(_, first, end) in &self.kept {
            pages.insert_run(first, end);
        }
        self.steps.runs(shared).for_each(|(start, end)| pages.insert_run(start, end));
        FreeMap {
            pages,
            slabs: self.slabs.pages().clone(),
            chunks: self.headers.free_slots().clone(),
            live_bytes: 0,
            objects: 0,
        }
    }

    /// Takes an extent of `class`; another group is taken into use only if `grow`.
    pub(super) fn allocate(&mut self, shared: &Shared, class: Class, grow: bool) -> Result<Addr> {
        if !class.is_small() {
            let count = (class.bytes() / PAGE_SIZE) as u32;
            return self.pages(shared, count, grow).map(page_addr);
        }
        let (page, slot) = match self.slabs.allocate(class) {
            Some(slot) => slot,
            None => {
                let page = self.pages(shared, 1, grow)?;
                self.taken(shared, page, 1)?;
                self.slabs.add(page, class);
                self.slabs.allocate(class).ok_or(Error::NoSpace)?
            }
        };
        Ok(page_addr(page).add(u64::from(slot) * class.bytes()))
    }

    /// Takes a header slot; another group or chunk is taken into use only if `grow`.
    pub(super) fn allocate_header(&mut self, shared: &Shared, grow: bool) -> Result<Addr> {
        if let Some(addr) = self.headers.allocate() {
            return Ok(addr);
        }
        if !grow {
            return Err(Error::NoSpace);
        }
        let page = self.pages(shared, CHUNK_PAGES, true)?;
        self.taken(shared, page, CHUNK_PAGES)?;
        if let Err(error) = self.headers.add(&shared.medium, &shared.chunks, page / CHUNK_PAGES) {
            let bytes = u64::from(CHUNK_PAGES) * PAGE_SIZE;
            match shared.medium.freed(page_addr(page), bytes) {
                None => drop(self.buddy.free(page, page + CHUNK_PAGES)),
                Some(cut) => self.keep(cut, page_addr(page), bytes),
            }
            return Err(error);
        }
        self.headers.allocate().ok_or(Error::NoSpace)
    }

    /// Gives back an extent that [`Shared::contains`]. What is free already stays as it is.
    pub(super) fn free(&mut self, shared: &Shared, extent: Extent) {
        let Extent { addr, class } = extent;
        let page = page_of(addr.offset());
        let freed = if !self.has_memory(page) {
            false
        } else if class.is_small() {
            let slot = (addr.offset() % PAGE_SIZE / class.bytes()) as u32;
            let whole = self.buddy.pages().contains(page);
            match if whole { Freed::Refused } else { self.slabs.free(page, class, slot) } {
                Freed::Refused => false,
                Freed::Slot => true,
                Freed::Page => match shared.medium.freed(page_addr(page), PAGE_SIZE) {
                    None => self.buddy.free(page, page + 1),
                    Some(cut) => {
                        self.keep(cut, page_addr(page), PAGE_SIZE);
                        true
                    }
                },
            }
        } else {
            self.buddy.free(page, page + (class.bytes() / PAGE_SIZE) as u32)
        };
        self.refused += u64::from(!freed);
    }

    /// Keeps pages until a cut of the medium is durable.
    pub(super) fn keep(&mut self, cut: u64, addr: Addr, bytes: u64) {
        let page = page_of(addr.offset());
        // Two threads may come in another order than they asked the medium.
        let cut = self.kept.back().map_or(cut, |&(last, ..)| cut.max(last));
        self.kept.push_back((cut, page, page + (bytes / PAGE_SIZE) as u32));
    }

    /// Frees what was kept for a cut that is durable now.
    pub(super) fn free_kept(&mut self, shared: &Shared) {
        while let Some((first, end)) = self.next_kept(shared) {
            self.free_run(first, end);
        }
    }

    /// The oldest pages (the first, and the last one's successor) that were kept for a cut that is durable now: the
    /// caller's, to give out or to free.
    pub(super) fn next_kept(&mut self, shared: &Shared) -> Option<(u32, u32)> {
        let &(cut, first, end) = self.kept.front()?;
        if cut > shared.medium.durable() {
            return None;
        }
        self.kept.pop_front();
        Some((first, end))
    }

    pub(super) fn free_run(&mut self, first: u32, end: u32) {
        self.refused += u64::from(!self.buddy.free(first, end));
    }

    /// Whether something is kept that a drain of the medium would free.
    pub(super) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Tells the medium of pages that were taken from the buddy allocator; they go back there if it refuses.
    #[track_caller]
    fn taken(&mut self, shared: &Shared, page: u32, count: u32) -> Result<()> {
        let done = shared.medium.taken(page_addr(page), u64::from(count) * PAGE_SIZE);
        if done.is_err() {
            self.buddy.free(page, page + count);
        }
        done.map_err(refused)
    }

    /// Gives back a slot that [`Shared::is_header`].
    pub(super) fn free_header(&mut self, addr: Addr) {
        self.refused += u64::from(!self.headers.free(addr));
    }

    /// Takes `count` pages, aligned to the next power of two.
    fn pages(&mut self, shared: &Shared, count: u32, grow: bool) -> Result<u32> {
        let geometry = &shared.geometry;
        if u64::from(count) * PAGE_SIZE > geometry.group_bytes() {
            return Err(Error::NoSpace);
        }
        loop {
            if let Some(page) = self.buddy.allocate(count) {
                return Ok(page);
            }
            if !grow || !self.grow(shared, count)? {
                return Err(Error::NoSpace);
            }
        }
    }

    /// True if the host has the memory of a page for sure.
    pub(super) fn has_memory(&self, page: u32) -> bool {
        self.steps.has_memory(page)
    }

    /// True if the range of offsets, a group, is out of what is given out.
    pub(super) fn is_aside(&self, (start, end): (u64, u64)) -> bool {
        self.steps.are_without(page_of(start), page_of(end))
    }

    /// Takes groups that are free as a whole out of what is given out, until they are needed; `all`: tells those again
    /// that were before. As ranges of offsets.
    pub(super) fn set_aside(&mut self, shared: &Shared, all: bool) -> Vec<(u64, u64)> {
        self.recall(shared);
        // A close takes a little afterwards, and must not have more provided for it.
        self.grown = 0;
        let mut free = self.buddy.pages().clone();
        self.steps.runs(shared).for_each(|(start, end)| free.insert_run(start, end));
        let mut told = Vec::new();
        for group in shared.geometry.first_group()..self.groups {
            let (start, end) = pages_of(shared, group);
            if start >= end || !free.all(start, end) {
                continue;
            }
            if all || !self.steps.are_without(start, end) {
                told.push(bytes_of(shared, group));
            }
            for (start, end) in self.steps.runs_with_memory(shared, start, end) {
                self.buddy.take_run(start, end);
            }
            self.steps.add(start, end);
        }
        told
    }

    /// Gives out the next range that was provided ahead of need; false if there is none.
    fn take_ahead(&mut self, shared: &Shared) -> bool {
        while let Some((offset, is_there)) = shared.medium.provided_ahead() {
            let (first, last) = self.steps.of_range(offset);
            self.steps.set_asked((first, last), false);
            self.ahead -= 1;
            if is_there {
                (first..last).for_each(|step| self.add_step(shared, step));
                return true;
            }
        }
        false
    }

    /// Asks for memory ahead of need, once a volume has grown by some.
    fn ask_ahead(&mut self, shared: &Shared) {
        while self.grown >= GROWN_BEFORE && self.ahead < AHEAD {
            let Some(steps) = self.steps.next_ahead() else { return };
            if !shared.medium.provide_ahead(page_addr(self.steps.pages_of(shared, steps.0).0)) {
                return;
            }
            self.steps.set_asked(steps, true);
            self.ahead += 1;
        }
    }

    /// Asks nobody for memory any more, and gives out all that was provided; false if that was none.
    fn recall(&mut self, shared: &Shared) -> bool {
        shared.medium.recall_ahead();
        let is_any = self.take_ahead(shared);
        while self.take_ahead(shared) {}
        is_any
    }

    /// Has the host provide more memory, for `count` pages in a row where they can be had; `false` when there is none left.
    pub(super) fn grow(&mut self, shared: &Shared, count: u32) -> Result<bool> {
        let mut grown = Ok(self.take_ahead(shared));
        if !matches!(grown, Ok(true)) {
            grown = self.grow_now(shared, count);
        }
        if !matches!(grown, Ok(true)) && self.ahead > 0 {
            // The last of a volume, or of its host, may be what was asked for.
            grown = if self.recall(shared) { Ok(true) } else { self.grow_now(shared, count) };
        } else if grown.is_ok() {
            self.ask_ahead(shared);
        }
        grown
    }

    /// Has the host provide the next steps in which `count` pages in a row have room, and takes a group into use where there are
    /// none; `false` when there is none of those either.
    fn grow_now(&mut self, shared: &Shared, count: u32) -> Result<bool> {
        loop {
            if let Some((first, last)) = self.steps.next_for(shared, count, self.buddy.pages()) {
                (first..last).try_for_each(|step| self.provide(shared, step))?;
                return Ok(true);
            }
            if !self.take_group(shared)? {
                return Ok(false);
            }
        }
    }

    /// Has the host provide the memory of a step, unless it did, and gives it out from now on.
    fn provide(&mut self, shared: &Shared, step: u32) -> Result<()> {
        if self.steps.is_without(step) {
            let (start, end) = self.steps.pages_of(shared, step);
            shared.medium.back(page_addr(start), u64::from(end - start) * PAGE_SIZE)?;
            self.grown += 1;
            self.add_step(shared, step);
        }
        Ok(())
    }

    /// Gives out a step, whose memory is there.
    fn add_step(&mut self, shared: &Shared, step: u32) {
        let (start, end) = self.steps.pages_of(shared, step);
        self.steps.provided(step);
        self.buddy.free(start, end);
    }

    /// Takes the next group into use, without memory; `false` when there is none.
    fn take_group(&mut self, shared: &Shared) -> Result<bool> {
        let geometry = &shared.geometry;
        let group = self.groups.max(geometry.first_group());
        if self.sealed || group >= geometry.groups() {
            return Ok(false);
        }
        let in_use = group + u64::from(!broken(SafetyRule::GroupIsInUseBeforeItIsUsed));
        // The count says nothing about earlier writes, and everything in the group is written after it has settled.
        let published = shared.medium.publish_apart(GROUPS_IN_USE, in_use, Ordered::nothing())?;
        shared.medium.settle(published);
        self.groups = group + 1;
        shared.end.store(geometry.end_of_groups(group + 1), Ordering::Release);
        let (start, end) = pages_of(shared, group);
        self.buddy.grow(end);
        self.steps.add(start, end);
        Ok(true)
    }
}
