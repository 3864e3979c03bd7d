//! Pages that small extents share.
//!
//! Only pages with free slots have state; a page whose slots are all in use is known by its extents alone, and gets its
//! state back when the first of them is freed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use eyrie_medium::rules::{SafetyRule, broken};

use crate::object::pointer::Class;

/// Entries of a list that do not count and are not worth a clean-up.
const SLACK: usize = 64;
/// Numbers of small classes, and 0.
const CLASSES: usize = Class::SMALL_COUNT as usize + 1;

/// A map by number of a page or chunk.
pub(super) type NumberMap<V> = HashMap<u32, V, BuildHasherDefault<NumberHasher>>;

/// Spreads the bits of one small number.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A page of a small class: one bit a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlabPage {
    pub(super) class: Class,
    pub(super) bits: u64,
}

/// The bits of all slots of a page of `class`.
#[inline]
pub(super) fn all_slots(class: Class) -> u64 {
    u64::MAX >> (64 - 4096 / class.bytes())
}

/// What became of a slot that was freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Freed {
    /// It was free already, or its page is of another class: nothing changed.
    Refused,
    /// It is free.
    Slot,
    /// So is all of its page, which has no state any more.
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

/// The free slots of pages that have some.
#[derive(Default, Debug)]
pub(super) struct Slabs {
    pages: NumberMap<SlabPage>,
    /// By class: pages with free slots, the newest on top; those that have none any more do not count.
    lists: [Vec<u32>; CLASSES],
    counts: [usize; CLASSES],
}

impl Slabs {
    /// The state that these pages, each with a free slot and one in use, make up.
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

    /// Takes a slot of `class`, as page and slot.
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

    /// Makes `page`, which is free, a page of `class`.
    pub(super) fn add(&mut self, page: u32, class: Class) {
        self.pages.insert(page, SlabPage { class, bits: all_slots(class) });
        self.list(page, class);
    }

    /// Gives back a slot.
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
