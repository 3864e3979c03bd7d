//! The words that a commit sets.

use eyrie_medium::Addr;
use smallvec::SmallVec;

/// Maximum length of a list without an index. A search in such a list compares one word after another.
const SEARCHED: usize = 16;

/// A list of words, each with its address and the value that the commit gives it. A list of more than
/// `SEARCHED` words has an index, because a batch changes hundreds of words and searches for each of them.
#[derive(Default)]
pub(super) struct PendingWords {
    list: SmallVec<[(Addr, u64); 4]>,
    /// A hash table with linear probing. A slot is 0, or the position of a word plus 1. Empty if the list
    /// is short.
    index: Vec<u32>,
}

impl PendingWords {
    /// Adds a word, or replaces the value of a word that the list has.
    #[inline]
    pub fn set(&mut self, addr: Addr, value: u64) {
        match self.position(addr) {
            Some(position) => self.list[position].1 = value,
            None => {
                self.list.push((addr, value));
                if self.list.len() > SEARCHED {
                    self.add_to_index();
                }
            }
        }
    }

    /// Returns the value of a word that the list has.
    #[inline]
    pub fn get(&self, addr: Addr) -> Option<u64> {
        self.position(addr).map(|position| self.list[position].1)
    }

    #[inline]
    pub fn first(&self) -> Option<(Addr, u64)> {
        self.list.first().copied()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes and returns all words.
    pub fn take(&mut self) -> SmallVec<[(Addr, u64); 4]> {
        std::mem::take(self).list
    }

    #[inline]
    fn position(&self, addr: Addr) -> Option<usize> {
        if self.index.is_empty() {
            return self.list.iter().position(|(at, _)| *at == addr);
        }
        let slot = self.index[self.slot_of(addr)];
        (slot != 0).then(|| slot as usize - 1)
    }

    /// Returns the slot of a word in the index, or the free slot where it belongs.
    fn slot_of(&self, addr: Addr) -> usize {
        let mask = self.index.len() - 1;
        let mut slot = (addr.raw().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let position = self.index[slot] as usize;
            if position == 0 || self.list[position - 1].0 == addr {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Adds the last word to the index. Rebuilds the index if it would become more than half full.
    #[cold]
    fn add_to_index(&mut self) {
        let first_missing = if self.list.len() * 2 > self.index.len() {
            self.index = vec![0; (self.list.len() * 4).next_power_of_two()];
            0
        } else {
            self.list.len() - 1
        };
        for position in first_missing..self.list.len() {
            let slot = self.slot_of(self.list[position].0);
            self.index[slot] = position as u32 + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_list_finds_each_word() {
        let mut words = PendingWords::default();
        let addr = |number: u64| Addr::from_raw(number * 1024);
        for round in 0..2 {
            for number in 0..1000 {
                let before = (round == 1).then_some(number);
                assert_eq!(words.get(addr(number)), before);
                words.set(addr(number), number + round);
                assert_eq!(words.get(addr(number)), Some(number + round));
            }
        }
        assert_eq!((words.len(), words.first()), (1000, Some((addr(0), 1))));
        let list = words.take();
        assert!(words.is_empty() && words.get(addr(3)).is_none());
        assert!((0..1000).map(|number| (addr(number), number + 1)).eq(list));
    }
}
