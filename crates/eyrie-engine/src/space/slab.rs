//! Slab pages: pages that small extents of one class share.
//!
//! Only slab pages with free slots have state here. A slab page without free slots gets its state back when
//! one of its extents is freed. The freed extent names the class of the page.

use eyrie_medium::PAGE_SIZE;
use eyrie_medium::rules::{SafetyRule, broken};

use super::number_map::NumberMap;
use crate::extent::Class;

/// The list of a class with n pages that have free slots is cleaned up when its length reaches 2n + `SLACK`.
/// Because of this constant, a short list is not cleaned up often.
const SLACK: usize = 64;
/// Length of an array that is indexed by the number of a small class. Index 0 is unused.
const CLASSES: usize = Class::SMALL_COUNT as usize + 1;

/// The free slots of a page of a small class, one bit for each slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlabPage {
    pub(crate) class: Class,
    pub(crate) bits: u64,
}

/// Returns the bits of all slots of a page of `class`.
#[inline]
pub(super) fn all_slots(class: Class) -> u64 {
    u64::MAX >> (64 - PAGE_SIZE / class.bytes())
}

/// The result of freeing a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Freed {
    /// Nothing changed: the slot was free already, or its page has another class.
    Refused,
    /// The slot is free.
    Slot,
    /// All slots of the page are free. The state of the page is dropped.
    Page,
}

/// Adds a free slot to the state of its page in `pages`.
pub(super) fn free_slot(pages: &mut NumberMap<SlabPage>, page: u32, class: Class, slot: u32) -> Freed {
    let state = pages.entry(page).or_insert(SlabPage { class, bits: 0 });
    if state.class != class || state.bits >> slot & 1 != 0 {
        return Freed::Refused;
    }
    state.bits |= 1 << slot;
    let used = (all_slots(class) & !state.bits).count_ones();
    if used <= u32::from(broken(SafetyRule::SlabPageIsFreeWhenEmpty)) {
        pages.remove(&page);
        return Freed::Page;
    }
    Freed::Slot
}

/// The slab pages with free slots.
#[derive(Default, Debug)]
pub(super) struct Slabs {
    pages: NumberMap<SlabPage>,
    /// For each class: pages with free slots. New entries go to the end, and slots are allocated from the
    /// page at the end. An entry is stale if its page has no free slot, is free as a whole, or has another
    /// class.
    lists: [Vec<u32>; CLASSES],
    /// For each class: number of pages with free slots.
    counts: [usize; CLASSES],
}

impl Slabs {
    /// Returns the state of these pages. Each of them has at least one free slot and one slot in use.
    pub(super) fn with_pages(pages: NumberMap<SlabPage>) -> Slabs {
        let mut slabs = Slabs { pages, ..Slabs::default() };
        let mut numbers: Vec<u32> = slabs.pages.keys().copied().collect();
        numbers.sort_unstable();
        for page in numbers.into_iter().rev() {
            if let Some(state) = slabs.pages.get(&page) {
                let class = state.class.raw() as usize;
                slabs.counts[class] += 1;
                slabs.lists[class].push(page);
            }
        }
        slabs
    }

    pub(super) fn pages(&self) -> &NumberMap<SlabPage> {
        &self.pages
    }

    /// Allocates a slot of `class`. Returns the page, and the number of the slot in it.
    pub(super) fn allocate(&mut self, class: Class) -> Option<(u32, u32)> {
        let list = &mut self.lists[class.raw() as usize];
        while let Some(&page) = list.last() {
            match self.pages.get_mut(&page) {
                Some(state) if state.class == class => {
                    let slot = state.bits.trailing_zeros();
                    state.bits &= state.bits - 1;
                    if state.bits == 0 {
                        self.pages.remove(&page);
                        self.counts[class.raw() as usize] -= 1;
                        list.pop();
                    }
                    return Some((page, slot));
                }
                _ => list.pop(),
            };
        }
        None
    }

    /// Makes `page` a slab page of `class` with all slots free. Callers have allocated the page.
    pub(super) fn add(&mut self, page: u32, class: Class) {
        self.pages.insert(page, SlabPage { class, bits: all_slots(class) });
        self.list(page, class);
    }

    /// Frees a slot.
    pub(super) fn free(&mut self, page: u32, class: Class, slot: u32) -> Freed {
        let known = self.pages.contains_key(&page);
        let freed = free_slot(&mut self.pages, page, class, slot);
        match freed {
            Freed::Slot if !known => self.list(page, class),
            Freed::Page if known => self.counts[class.raw() as usize] -= 1,
            _ => {}
        }
        freed
    }

    /// Adds a page to the list of its class. If the list has become too long (see [`SLACK`]), first removes
    /// its stale and repeated entries.
    fn list(&mut self, page: u32, class: Class) {
        let (list, count) = (&mut self.lists[class.raw() as usize], &mut self.counts[class.raw() as usize]);
        *count += 1;
        if list.len() >= 2 * *count + SLACK {
            let pages = &self.pages;
            list.retain(|page| pages.get(page).is_some_and(|state| state.class == class));
            list.sort_unstable();
            list.dedup();
        }
        list.push(page);
    }
}
