//! Steps of the groups in use. A step is a part of a group, so small that an allocation can wait while the
//! host provides the memory of the step. On a disk a step is a whole group, because a disk only reserves
//! blocks. [`MemorySteps`] records the steps that may have no memory.
//!
//! Invariant: no memory of a step is allocated before the host has provided all of the step. Therefore an
//! open assumes that a step with some memory in use has all its memory. A step that is free as a whole is
//! provisioned again before its first use, because no record on media says which free steps have memory.

use eyrie_medium::{AHEAD_BYTES, PAGE_SIZE};

use super::bits::Bits;
use super::context::SpaceContext;
use crate::tables::geometry::page_of;

/// Steps in a row: the first, and the one after the last.
pub(super) type StepRun = (u32, u32);

/// A block of steps that only an allocation of its size takes. [`MemorySteps`] holds the block back, so that
/// no other allocation takes it. In `MemorySteps`, all steps of the block count as steps that may have no
/// memory, even those that have memory already.
pub(super) struct Reserve {
    /// Size of the block, in pages: a power of two.
    pub(super) pages: u32,
    pub(super) steps: StepRun,
    /// The first step that may have no memory. All steps before it have memory.
    pub(super) next: u32,
}

impl Reserve {
    /// Returns the steps that have memory.
    pub(super) fn provided(&self) -> StepRun {
        (self.steps.0, self.next)
    }
}

/// Records the steps that may have no memory, among the steps of the groups in use.
pub(super) struct MemorySteps {
    /// Number of pages of a step: a power of two.
    pages: u32,
    /// Numbers of the steps that may have no memory.
    without: Bits,
    /// All steps before this one certainly have memory. A volume mostly grows from its start to its end, so
    /// without this number each search would look at all steps that have memory.
    searched: u32,
    /// Steps that are held back: those of `without` that a thread is provisioning ahead of need, and those of
    /// reserves. No allocation may take them.
    held_back: Bits,
}

impl MemorySteps {
    /// Returns the steps of a volume in which the pages in `free` are free. Steps that are free as a whole
    /// count as steps without memory.
    pub(super) fn new(context: &SpaceContext, free: &Bits) -> MemorySteps {
        let bytes = context.medium.step_bytes().min(context.geometry.group_bytes());
        let mut steps = MemorySteps {
            pages: (bytes / PAGE_SIZE) as u32,
            without: Bits::default(),
            searched: 0,
            held_back: Bits::default(),
        };
        let (start, end) = (page_of(context.geometry.data_start()), page_of(context.end_of_used_groups()));
        steps.without.grow(end.div_ceil(steps.pages));
        steps.held_back.grow(end.div_ceil(steps.pages));
        for step in start / steps.pages..end.div_ceil(steps.pages) {
            let (start, end) = steps.pages_of(context, step);
            if start < end && free.all(start, end) {
                steps.without.insert(step);
            }
        }
        steps
    }

    /// Returns the allocatable pages of a step. The first step and the last step may have fewer such pages
    /// than other steps.
    pub(super) fn pages_of(&self, context: &SpaceContext, step: u32) -> (u32, u32) {
        let end = ((step + 1) * self.pages).min(page_of(context.end_of_used_groups()));
        ((step * self.pages).max(page_of(context.geometry.data_start())), end)
    }

    /// True if a block of `pages`, a power of two, is more than one step.
    pub(super) fn is_more_than_a_step(&self, pages: u32) -> bool {
        pages > self.pages
    }

    /// Returns the steps that have pages among `start..end`.
    fn of(&self, start: u32, end: u32) -> (u32, u32) {
        (start / self.pages, end.div_ceil(self.pages))
    }

    /// True if the host has certainly provided the memory of this page.
    pub(super) fn has_memory(&self, page: u32) -> bool {
        !self.without.contains(page / self.pages)
    }

    /// True if the host has certainly provided the memory of all pages of `start..end`.
    pub(super) fn have_memory(&self, start: u32, end: u32) -> bool {
        let (first, last) = self.of(start, end);
        !self.without.any(first, last)
    }

    /// True if every step of the group `start..end` may have no memory.
    pub(super) fn are_without(&self, start: u32, end: u32) -> bool {
        let (first, last) = self.of(start, end);
        self.without.all(first, last)
    }

    /// True if all steps with pages in `start..end` may have no memory, and none of them is held back. Then
    /// no thread is providing memory for them now. Callers pass whole steps.
    pub(super) fn are_idle(&self, start: u32, end: u32) -> bool {
        let (first, last) = self.of(start, end);
        self.without.all(first, last) && !self.held_back.any(first, last)
    }

    /// Adds the steps of `start..end` as steps that may have no memory, and returns them. Callers pass whole
    /// steps.
    pub(super) fn add(&mut self, start: u32, end: u32) -> StepRun {
        let (first, last) = self.of(start, end);
        self.without.grow(last);
        self.held_back.grow(last);
        self.without.insert_run(first, last);
        self.searched = self.searched.min(first);
        (first, last)
    }

    /// Returns the first step that may have no memory, or the number of all steps.
    fn first_without(&mut self) -> u32 {
        let end = self.without.words().len() as u32 * 64;
        self.searched = self.without.next(self.searched, true).unwrap_or(end);
        self.searched
    }

    /// Records that the host has provided the memory of this step.
    pub(super) fn note_provided(&mut self, step: u32) {
        self.without.remove(step);
    }

    /// True if this step may have no memory.
    pub(super) fn is_without(&self, step: u32) -> bool {
        self.without.contains(step)
    }

    /// Returns the pages of all steps that may have no memory, as runs.
    pub(super) fn runs<'a>(&'a self, context: &'a SpaceContext) -> impl Iterator<Item = (u32, u32)> + 'a {
        self.without
            .runs()
            .map(move |(first, last)| (self.pages_of(context, first).0, self.pages_of(context, last - 1).1))
    }

    /// Returns the maximal runs of pages in the group `start..end` that certainly have memory.
    pub(super) fn runs_with_memory(&self, context: &SpaceContext, start: u32, end: u32) -> Vec<(u32, u32)> {
        let (first, last) = self.of(start, end);
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for step in (first..last).filter(|&step| !self.is_without(step)) {
            let (start, end) = self.pages_of(context, step);
            match runs.last_mut() {
                Some(run) if run.1 == start => run.1 = end,
                _ => runs.push((start, end)),
            }
        }
        runs
    }

    /// Returns steps to provision for `count` pages in a row. No returned step is held back. If the pages fit
    /// in one step, returns the first step that may have no memory, even a short one. Otherwise returns the
    /// first aligned block of full steps in which the pages fit. The caller provisions the returned steps
    /// that may have no memory. All pages of the other returned steps are in `free`.
    pub(super) fn next_for(&mut self, context: &SpaceContext, count: u32, free: &Bits) -> Option<StepRun> {
        let from = self.first_without();
        // A request of at most one step fits in any step of full size. If the step that was found is short,
        // the caller may need another one.
        if count <= self.pages {
            let mut steps = self.without.runs_from(from).flat_map(|(first, last)| first..last);
            return steps.find(|&step| !self.held_back.contains(step)).map(|step| (step, step + 1));
        }
        let steps = count.next_power_of_two() / self.pages;
        let is_free = |step: u32| {
            let (start, end) = self.pages_of(context, step);
            let is_whole = start < end && end - start == self.pages;
            is_whole && !self.held_back.contains(step) && (self.is_without(step) || free.all(start, end))
        };
        let mut next = 0;
        for (first, last) in self.without.runs_from(from) {
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

    /// Returns the steps of the first aligned block of `pages` (a power of two) in which every step may have
    /// no memory and is not held back. Returns `None` if there is no such block, or if a block is smaller
    /// than a step.
    pub(super) fn next_block(&self, context: &SpaceContext, pages: u32) -> Option<StepRun> {
        let steps = pages / self.pages;
        if steps == 0 {
            return None;
        }
        let runs = self.without.runs_from(self.searched);
        let blocks = runs.flat_map(|(first, last)| first.div_ceil(steps)..last / steps);
        blocks.map(|block| (block * steps, (block + 1) * steps)).find(|&(first, last)| {
            let (start, end) = (self.pages_of(context, first).0, self.pages_of(context, last - 1).1);
            end - start == pages && !self.held_back.any(first, last)
        })
    }

    /// Returns the steps of a range of [`AHEAD_BYTES`] that begins at `offset`.
    pub(super) fn of_range(&self, offset: u64) -> (u32, u32) {
        self.of(page_of(offset), page_of(offset + AHEAD_BYTES))
    }

    /// If `is_held`, holds steps back, so that no allocation takes them. Otherwise makes the steps available
    /// again.
    pub(super) fn set_held_back(&mut self, (first, last): StepRun, is_held: bool) {
        if is_held { self.held_back.insert_run(first, last) } else { self.held_back.remove_run(first, last) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bits::WORDS;
    use super::*;

    #[test]
    fn growth_looks_at_each_step_few_times() {
        const STEPS: u32 = 64 * 1000;
        let (without, held_back) = (Bits::default(), Bits::default());
        let mut steps = MemorySteps { pages: 64, without, searched: 0, held_back };
        steps.add(0, STEPS * steps.pages);
        WORDS.set(0);
        for step in 0..STEPS {
            assert_eq!(steps.first_without(), step);
            steps.note_provided(step);
        }
        assert!(WORDS.get() <= 2 * STEPS as usize, "{} words", WORDS.get());
        assert_eq!(steps.first_without(), STEPS);
        steps.add(64 * 5, 64 * 6);
        assert_eq!(steps.first_without(), 5, "discarded again");
    }
}
