//! Which memory the host has provided: the groups in use, cut into steps that a call can wait for.
//!
//! Invariant: nothing in a step is given out before the host has provided all of it. So an open trusts a step in which
//! something is in use, and asks the host again for each step that is free as a whole: nothing on media says which
//! of those it provided, or took back.

use eyrie_medium::{AHEAD_BYTES, PAGE_SIZE};

use super::bits::Bits;
use super::central::Shared;
use super::geometry::page_of;

/// The steps of the groups in use that have no memory for sure.
pub(super) struct Steps {
    /// Pages of a step: a power of two.
    pages: u32,
    /// Numbers of the steps without.
    without: Bits,
    /// Those of them whose memory is provided ahead of need now: nobody else may touch it.
    asked: Bits,
}

impl Steps {
    /// The steps of a volume in which the pages in `free` are free.
    pub(super) fn new(shared: &Shared, free: &Bits) -> Steps {
        let bytes = shared.medium.step_bytes().min(shared.geometry.group_bytes());
        let mut steps =
            Steps { pages: (bytes / PAGE_SIZE) as u32, without: Bits::default(), asked: Bits::default() };
        let (start, end) = (page_of(shared.geometry.data_start()), page_of(shared.end()));
        steps.without.grow(end.div_ceil(steps.pages));
        steps.asked.grow(end.div_ceil(steps.pages));
        for step in start / steps.pages..end.div_ceil(steps.pages) {
            let (start, end) = steps.pages_of(shared, step);
            if start < end && free.all(start, end) {
                steps.without.insert(step);
            }
        }
        steps
    }

    /// The pages of a step that can be given out, which are fewer in the first and in the last.
    pub(super) fn pages_of(&self, shared: &Shared, step: u32) -> (u32, u32) {
        let end = ((step + 1) * self.pages).min(page_of(shared.end()));
        ((step * self.pages).max(page_of(shared.geometry.data_start())), end)
    }

    /// The steps that have pages among `start..end`.
    fn of(&self, start: u32, end: u32) -> (u32, u32) {
        (start / self.pages, end.div_ceil(self.pages))
    }

    /// True if the host has the memory of this page for sure.
    pub(super) fn has_memory(&self, page: u32) -> bool {
        !self.without.contains(page / self.pages)
    }

    /// True if no page of `start..end`, a group, has memory for sure.
    pub(super) fn are_without(&self, start: u32, end: u32) -> bool {
        let (first, last) = self.of(start, end);
        self.without.all(first, last)
    }

    /// Adds the steps of `start..end`, a group.
    pub(super) fn add(&mut self, start: u32, end: u32) {
        let (first, last) = self.of(start, end);
        self.without.grow(last);
        self.asked.grow(last);
        self.without.insert_run(first, last);
    }

    /// The host has provided the memory of this step.
    pub(super) fn provided(&mut self, step: u32) {
        self.without.remove(step);
    }

    /// True if this step has no memory for sure.
    pub(super) fn is_without(&self, step: u32) -> bool {
        self.without.contains(step)
    }

    /// The pages of all steps without memory for sure, as runs.
    pub(super) fn runs<'a>(&'a self, shared: &'a Shared) -> impl Iterator<Item = (u32, u32)> + 'a {
        self.without
            .runs()
            .map(move |(first, last)| (self.pages_of(shared, first).0, self.pages_of(shared, last - 1).1))
    }

    /// The maximal runs of pages in `start..end`, a group, that have memory for sure.
    pub(super) fn runs_with_memory(&self, shared: &Shared, start: u32, end: u32) -> Vec<(u32, u32)> {
        let (first, last) = self.of(start, end);
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for step in (first..last).filter(|&step| !self.is_without(step)) {
            let (start, end) = self.pages_of(shared, step);
            match runs.last_mut() {
                Some(run) if run.1 == start => run.1 = end,
                _ => runs.push((start, end)),
            }
        }
        runs
    }

    /// The first steps that together have room for `count` pages in a row once the host has provided those of them that are
    /// without; all others among them are in `free`.
    pub(super) fn next_for(&self, shared: &Shared, count: u32, free: &Bits) -> Option<(u32, u32)> {
        if count <= self.pages {
            let mut free = self.without.runs().flat_map(|(first, last)| first..last);
            return free.find(|&step| !self.asked.contains(step)).map(|step| (step, step + 1));
        }
        let steps = count.next_power_of_two() / self.pages;
        let is_free = |step: u32| {
            let (start, end) = self.pages_of(shared, step);
            let is_whole = start < end && end - start == self.pages;
            is_whole && !self.asked.contains(step) && (self.is_without(step) || free.all(start, end))
        };
        let mut next = 0;
        for (first, last) in self.without.runs() {
            next = next.max(first / steps);
            while next * steps < last {
                let block = (next * steps, (next + 1) * steps);
                if (block.0..block.1).all(is_free) {
                    return Some(block);
                }
                next += 1;
            }
        }
        None
    }

    /// The first steps that lie in one range of [`AHEAD_BYTES`], fill it, and have not been asked for.
    pub(super) fn next_ahead(&self) -> Option<(u32, u32)> {
        let steps = (AHEAD_BYTES / PAGE_SIZE) as u32 / self.pages;
        if steps == 0 {
            return None;
        }
        let mut blocks = self.without.runs().flat_map(|(first, last)| first.div_ceil(steps)..last / steps);
        blocks
            .find(|block| !self.asked.contains(block * steps))
            .map(|block| (block * steps, (block + 1) * steps))
    }

    /// The steps of a range of [`AHEAD_BYTES`] that begins at `offset`.
    pub(super) fn of_range(&self, offset: u64) -> (u32, u32) {
        self.of(page_of(offset), page_of(offset + AHEAD_BYTES))
    }

    /// Somebody was asked for the memory of these steps, or is no more.
    pub(super) fn set_asked(&mut self, (first, last): (u32, u32), is_asked: bool) {
        if is_asked { self.asked.insert_run(first, last) } else { self.asked.remove_run(first, last) }
    }
}
