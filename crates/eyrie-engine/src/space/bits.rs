//! Plain bitmaps in vectors of words.

#[cfg(test)]
thread_local! {
    /// Number of words at which searches of this thread have looked.
    pub(super) static WORDS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A growing set of small numbers, one bit each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Returns the empty set, for numbers below `len`.
    pub(super) fn new(len: u32) -> Bits {
        Bits { words: vec![0; len.div_ceil(64) as usize] }
    }

    pub(crate) fn from_words(words: Vec<u64>) -> Bits {
        Bits { words }
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(super) fn grow(&mut self, len: u32) {
        let words = len.div_ceil(64) as usize;
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
    }

    #[inline]
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    #[inline]
    pub(super) fn insert(&mut self, number: u32) {
        self.words[number as usize / 64] |= 1 << (number % 64);
    }

    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        self.words[number as usize / 64] &= !(1 << (number % 64));
    }

    /// Returns one past the last number below `end` that is not in the set, or 0 if every such number is in
    /// the set.
    pub(crate) fn end_of_last_absent(&self, end: u32) -> u32 {
        let (first, _) = self.runs().filter(|&(start, _)| start < end).last().unwrap_or((end, end));
        if self.contains(end.saturating_sub(1)) { first } else { end }
    }

    /// Returns the number of members.
    pub(super) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the index of each word that `start..end` touches, with the mask of the range's bits in that
    /// word.
    pub(super) fn masks(start: u32, end: u32) -> impl Iterator<Item = (usize, u64)> {
        let last = end.div_ceil(64);
        (start / 64..last).map(move |word| {
            let low = start.saturating_sub(word * 64);
            let high = (end - word * 64).min(64);
            (word as usize, u64::MAX >> (64 - (high - low)) << low)
        })
    }

    /// True if any number of `start..end` is in the set. `start` must be below `end`.
    pub(crate) fn any(&self, start: u32, end: u32) -> bool {
        Bits::masks(start, end).any(|(word, mask)| self.words.get(word).is_some_and(|bits| bits & mask != 0))
    }

    /// True if all numbers of `start..end` are in the set. `start` must be below `end`.
    pub(super) fn all(&self, start: u32, end: u32) -> bool {
        Bits::masks(start, end)
            .all(|(word, mask)| self.words.get(word).is_some_and(|bits| bits & mask == mask))
    }

    pub(super) fn insert_run(&mut self, start: u32, end: u32) {
        Bits::masks(start, end).for_each(|(word, mask)| self.words[word] |= mask);
    }

    pub(super) fn remove_run(&mut self, start: u32, end: u32) {
        Bits::masks(start, end).for_each(|(word, mask)| self.words[word] &= !mask);
    }

    /// Returns the first number from `from` on that is in the set if `present` is true, or not in the set if
    /// it is false. Returns `None` if no word has such a number.
    pub(super) fn next(&self, from: u32, present: bool) -> Option<u32> {
        let mut index = from as usize / 64;
        let mut keep = u64::MAX << (from % 64);
        while let Some(&word) = self.words.get(index) {
            #[cfg(test)]
            WORDS.set(WORDS.get() + 1);
            let bits = if present { word } else { !word } & keep;
            if bits != 0 {
                return Some(index as u32 * 64 + bits.trailing_zeros());
            }
            (index, keep) = (index + 1, u64::MAX);
        }
        None
    }

    /// Returns the maximal runs of numbers in the set, as (first, one past the last).
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.runs_from(0)
    }

    /// Returns the maximal runs of numbers in the set from `at` on, as [`Bits::runs`] does.
    pub(super) fn runs_from(&self, mut at: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        std::iter::from_fn(move || {
            let start = self.next(at, true)?;
            let end = self.next(start, false).unwrap_or(self.words.len() as u32 * 64);
            at = end;
            Some((start, end))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_match_inserted_ranges() {
        let mut bits = Bits::new(300);
        for (start, end) in [(0, 1), (3, 64), (65, 200), (250, 300)] {
            assert!(!bits.any(start, end));
            bits.insert_run(start, end);
            assert!(bits.any(start, start + 1) && bits.any(end - 1, end));
        }
        assert_eq!(bits.runs().collect::<Vec<_>>(), [(0, 1), (3, 64), (65, 200), (250, 300)]);
        bits.remove_run(100, 130);
        assert_eq!(bits.runs().collect::<Vec<_>>(), [(0, 1), (3, 64), (65, 100), (130, 200), (250, 300)]);
        let mut full = Bits::new(128);
        full.insert_run(0, 128);
        assert_eq!(full.runs().collect::<Vec<_>>(), [(0, 128)]);
    }
}
