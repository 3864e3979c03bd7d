//! The buddy allocator of pages: blocks of 1 to 16,384 pages (64 MiB), aligned to their size.
//!
//! Free blocks are always merged as far as possible, so the set of free pages determines all blocks. The
//! allocator also keeps the set of free pages, and so detects a page that is freed twice. A clean close saves
//! the set and no blocks. The free blocks of each size form a stack, with the newest on top. A block that
//! merges leaves a stale entry in the stack, because a removal would need a search. An entry is valid while
//! the bit of its block is set.
//!
//! A block never crosses the border of a group, because it is aligned to its size and no larger than a group.

use super::bits::Bits;

/// Number of orders. A block of order n has 2^n pages, from 2^0 to 2^14.
const ORDERS: usize = 15;
/// The stack of an order with n free blocks is cleaned up when its length reaches 2n + `SLACK`. Because of
/// this constant, a short stack is not cleaned up often.
const SLACK: usize = 64;

/// The free blocks of one order.
#[derive(Default, Debug)]
struct FreeBlocks {
    /// The free blocks, by number: the first page divided by the pages of a block.
    free: Bits,
    count: usize,
    stack: Vec<u32>,
}

/// The set of free pages, and its blocks. Pages are numbered from the start of the volume.
#[derive(Default, Debug)]
pub(super) struct Buddy {
    max_order: u32,
    pages: Bits,
    orders: [FreeBlocks; ORDERS],
}

impl Buddy {
    /// Returns an allocator without free pages. Its largest blocks will have 2^`max_order` pages.
    pub(super) fn new(max_order: u32) -> Buddy {
        debug_assert!((max_order as usize) < ORDERS);
        Buddy { max_order, ..Buddy::default() }
    }

    /// Returns an allocator in which exactly the pages in `free` are free.
    pub(super) fn with_pages(max_order: u32, free: &Bits) -> Buddy {
        let mut buddy = Buddy::new(max_order);
        for (start, end) in free.runs() {
            buddy.grow(end);
            buddy.put_run(start, end);
        }
        buddy.grow(free.words().len() as u32 * 64);
        // The reversal puts low pages on top. They are allocated first, so that a small volume stays in its
        // first groups.
        buddy.orders.iter_mut().for_each(|order| order.stack.reverse());
        buddy
    }

    /// Extends the bitmaps to pages below `end`. The new pages are not free.
    pub(super) fn grow(&mut self, end: u32) {
        self.pages.grow(end);
        for (order, state) in self.orders.iter_mut().enumerate() {
            state.free.grow(end.div_ceil(1 << order));
        }
    }

    /// Returns the free pages.
    pub(super) fn pages(&self) -> &Bits {
        &self.pages
    }

    /// Allocates `count` pages, aligned to `count` rounded up to a power of two. Returns `None` when no block
    /// is large enough.
    pub(super) fn allocate(&mut self, count: u32) -> Option<u32> {
        let wanted = count.next_power_of_two().ilog2();
        let found = (wanted..=self.max_order).find(|&order| self.orders[order as usize].count > 0)?;
        let page = self.pop(found)?;
        for order in (wanted..found).rev() {
            self.push(page + (1 << order), order);
        }
        self.pages.remove_run(page, page + count);
        let tail = (page + count, page + (1 << wanted));
        if tail.0 < tail.1 {
            // The pages of the tail are free already. Only its blocks are new.
            self.put_blocks(tail.0, tail.1);
        }
        Some(page)
    }

    /// Returns the largest order, at most `most`, for which [`Buddy::allocate`] finds a block.
    pub(super) fn largest(&self, most: u32) -> Option<u32> {
        let order = self.orders.iter().rposition(|order| order.count > 0)?;
        Some(most.min(order as u32))
    }

    /// Returns the number of free pages.
    pub(super) fn free_pages(&self) -> u64 {
        self.orders.iter().zip(0..).map(|(order, shift)| (order.count as u64) << shift).sum()
    }

    /// Frees pages `start..end`. Returns `false`, without a change, if the range is empty, or if one of the
    /// pages is free already or outside the bitmaps.
    pub(super) fn free(&mut self, start: u32, end: u32) -> bool {
        let known = end as usize <= self.pages.words().len() * 64;
        if start >= end || !known || self.pages.any(start, end) {
            return false;
        }
        self.put_run(start, end);
        true
    }

    /// Takes pages `start..end` of one group out of the free pages. Callers pass a maximal run of free pages
    /// in the group, so no block crosses the ends of the range.
    pub(super) fn take_run(&mut self, start: u32, end: u32) {
        self.pages.remove_run(start, end);
        for (page, order) in self.blocks(start, end) {
            let state = &mut self.orders[order as usize];
            debug_assert!(state.free.contains(page >> order), "free blocks are merged");
            state.free.remove(page >> order);
            state.count -= 1;
        }
    }

    fn put_run(&mut self, start: u32, end: u32) {
        self.pages.insert_run(start, end);
        self.put_blocks(start, end);
    }

    fn put_blocks(&mut self, start: u32, end: u32) {
        self.blocks(start, end).for_each(|(page, order)| self.merge(page, order));
    }

    /// Returns the largest blocks that make up `start..end`: their first pages and orders.
    fn blocks(&self, mut start: u32, end: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let max_order = self.max_order;
        std::iter::from_fn(move || {
            let page = start;
            let order = page.trailing_zeros().min((end - page).checked_ilog2()?).min(max_order);
            start += 1 << order;
            Some((page, order))
        })
    }

    /// Adds a free block, merged with its buddies as far as possible.
    fn merge(&mut self, mut page: u32, mut order: u32) {
        while order < self.max_order {
            let state = &mut self.orders[order as usize];
            let buddy = page >> order ^ 1;
            if !state.free.contains(buddy) {
                break;
            }
            state.free.remove(buddy);
            state.count -= 1;
            page &= !(1 << order);
            order += 1;
        }
        self.push(page, order);
    }

    /// Adds a free block that needs no merge.
    fn push(&mut self, page: u32, order: u32) {
        let state = &mut self.orders[order as usize];
        let block = page >> order;
        state.free.insert(block);
        state.count += 1;
        if state.stack.len() >= 2 * state.count + SLACK {
            state.compact();
        }
        state.stack.push(block);
    }

    /// Takes the newest free block of an order.
    fn pop(&mut self, order: u32) -> Option<u32> {
        let state = &mut self.orders[order as usize];
        while let Some(block) = state.stack.pop() {
            if state.free.contains(block) {
                state.free.remove(block);
                state.count -= 1;
                return Some(block << order);
            }
        }
        debug_assert!(state.count == 0, "a free block is on its stack");
        None
    }
}

impl FreeBlocks {
    /// Drops stale entries, and for each valid block all entries but the newest.
    fn compact(&mut self) {
        let mut first = self.stack.len();
        for index in (0..self.stack.len()).rev() {
            let block = self.stack[index];
            if self.free.contains(block) {
                // The bit is cleared, so that older entries of the same block look stale. The last line of
                // this function sets the bit again.
                self.free.remove(block);
                first -= 1;
                self.stack[first] = block;
            }
        }
        self.stack.drain(..first);
        self.stack.iter().for_each(|&block| self.free.insert(block));
    }
}
