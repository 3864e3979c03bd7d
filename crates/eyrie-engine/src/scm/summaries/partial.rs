//! The partial sum of one shard of a directory.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::Addr;
use eyrie_medium::sync::interleave;

use crate::object::collection::CollectionSummary;
use crate::{Result, Time};

/// The sum of the pages of one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardSum {
    /// The version of the directory's times for which `summary.modified` is valid.
    pub times_version: u32,
    /// The sum over the shard's pages.
    pub summary: CollectionSummary,
}

/// Number of words of a [`ShardSum`].
const WORDS: usize = 5;

impl ShardSum {
    /// Begins another version of the directory's times. Modification times of earlier versions no longer
    /// count.
    pub fn begin_times_version(&mut self, times_version: u32) {
        if self.times_version != times_version {
            self.times_version = times_version;
            self.summary.modified = None;
        }
    }

    fn to_words(self) -> [u64; WORDS] {
        let CollectionSummary { entries, subdirectories, changed, modified } = self.summary;
        let seconds = |time: Option<Time>| time.map_or(i64::MIN, |time| time.seconds) as u64;
        let nanoseconds = |time: Option<Time>| u64::from(time.map_or(0, |time| time.nanoseconds));
        [
            entries,
            subdirectories << 32 | u64::from(self.times_version),
            seconds(changed),
            seconds(modified),
            nanoseconds(changed) << 32 | nanoseconds(modified),
        ]
    }

    #[inline]
    fn from_words(words: [u64; WORDS]) -> ShardSum {
        let [entries, counts, changed, modified, nanoseconds] = words;
        let time = |seconds: u64, nanoseconds: u32| {
            let seconds = seconds as i64;
            (seconds != i64::MIN).then_some(Time::new(seconds, nanoseconds))
        };
        let summary = CollectionSummary {
            entries,
            subdirectories: counts >> 32,
            changed: time(changed, (nanoseconds >> 32) as u32),
            modified: time(modified, nanoseconds as u32),
        };
        ShardSum { times_version: counts as u32, summary }
    }
}

/// The state word of a partial sum. Bit 0 is set while an Op has prepared the next sum. The other bits are
/// the number of sums that Ops and builders have made current, so this number never decreases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SumState(u64);

impl SumState {
    const PREPARED: u64 = 1;

    #[inline]
    const fn current(number: u64) -> SumState {
        SumState(number << 1)
    }

    #[inline]
    const fn number(self) -> u64 {
        self.0 >> 1
    }

    #[inline]
    const fn is_prepared(self) -> bool {
        self.0 & SumState::PREPARED != 0
    }

    const fn prepared(self) -> SumState {
        SumState(self.0 | SumState::PREPARED)
    }
}

/// The sum of the pages of one shard, in two copies. Only the holder of the shard changes this value. The
/// value has 128 bytes, so that no two partial sums share a pair of cache lines.
#[derive(Default)]
#[repr(align(128))]
pub struct PartialSum {
    state: AtomicU64,
    /// A word of the volume that the Op of the prepared sum changes, and the new value of the word.
    witness: [AtomicU64; 2],
    /// The two copies. Sum number `n` is in copy `n % 2`.
    copies: [[AtomicU64; WORDS]; 2],
}

const _: () = assert!(size_of::<PartialSum>() == 128);

impl PartialSum {
    #[inline]
    fn state(&self) -> SumState {
        interleave();
        SumState(self.state.load(Ordering::Acquire))
    }

    /// With release ordering, a reader that sees this state also sees the copies and the witness that were
    /// stored before it.
    fn store_state(&self, state: SumState) {
        interleave();
        self.state.store(state.0, Ordering::Release);
    }

    /// Writes the sum with this number into the copy that is not current. The stores have release ordering.
    /// Therefore a reader that sees one of these words also sees that the earlier sum of this copy is no
    /// longer current.
    fn write(&self, number: u64, sum: &ShardSum) {
        for (place, word) in self.copies[number as usize % 2].iter().zip(sum.to_words()) {
            interleave();
            place.store(word, Ordering::Release);
        }
    }

    /// Returns the number of the sum that matches the pages at this moment. Returns `None` if an Op changed
    /// the state meanwhile. `is_committed` returns true if a word of the volume has a given value.
    ///
    /// # Errors
    /// The errors of `is_committed`.
    #[inline]
    pub fn number(&self, is_committed: impl Fn(Addr, u64) -> Result<bool>) -> Result<Option<u64>> {
        let state = self.state();
        if !state.is_prepared() {
            return Ok(Some(state.number()));
        }
        let [place, value] = &self.witness;
        let place = Addr::from_raw(place.load(Ordering::Acquire));
        let committed = is_committed(place, value.load(Ordering::Acquire));
        // Only an unchanged state proves that the two words of the witness belong together.
        if self.state() != state {
            return Ok(None);
        }
        Ok(Some(state.number() + u64::from(committed?)))
    }

    /// Returns the sum with this number. If [`PartialSum::number`] returns the same number before and after
    /// this call, no Op has changed the copy during the call.
    #[inline]
    pub fn copy(&self, number: u64) -> ShardSum {
        interleave();
        let copy = &self.copies[number as usize % 2];
        ShardSum::from_words(std::array::from_fn(|word| copy[word].load(Ordering::Acquire)))
    }

    /// Returns the current sum. Returns `None` if an Op that panicked has left a prepared sum. The caller
    /// holds the shard.
    pub fn known(&self) -> Option<ShardSum> {
        let state = self.state();
        (!state.is_prepared()).then(|| self.copy(state.number()))
    }

    /// Makes `sum` the current sum. The caller holds all shards, and no slot leads readers to the sum.
    pub fn put(&self, sum: &ShardSum) {
        let next = self.state().number() + 1;
        self.write(next, sum);
        self.store_state(SumState::current(next));
    }

    /// Prepares the sum that the shard will have when `place` has `value`. The caller holds the shard.
    pub fn prepare(&self, sum: &ShardSum, (place, value): (Addr, u64)) {
        let state = self.state();
        self.write(state.number() + 1, sum);
        self.witness[0].store(place.raw(), Ordering::Release);
        self.witness[1].store(value, Ordering::Release);
        self.store_state(state.prepared());
    }

    /// Makes the prepared sum the current one. The caller has held the shard since [`PartialSum::prepare`].
    pub fn adopt(&self) {
        self.store_state(SumState::current(self.state().number() + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Addr = Addr::from_raw(4096);

    fn sum(entries: u64) -> ShardSum {
        let summary = CollectionSummary {
            entries,
            subdirectories: 3,
            changed: Some(Time::new(-7, 999_999_999)),
            modified: Some(Time::new(0, 1)),
        };
        ShardSum { times_version: u32::MAX, summary }
    }

    #[test]
    fn sum_survives_conversion_to_words() {
        let none = CollectionSummary { changed: None, modified: None, ..sum(0).summary };
        for sum in [sum(u64::MAX), ShardSum { times_version: 0, summary: none }] {
            assert_eq!(ShardSum::from_words(sum.to_words()), sum);
        }
    }

    #[test]
    fn a_prepared_sum_counts_from_its_commit_on() {
        let partial = PartialSum::default();
        let read = |word| {
            let number = partial.number(|place, value| Ok(place == PLACE && value == word));
            partial.copy(number.expect("no error").expect("no Op runs")).summary.entries
        };
        partial.put(&sum(10));
        assert_eq!(read(0), 10);
        partial.prepare(&sum(11), (PLACE, 5));
        assert_eq!((read(4), read(5), partial.known()), (10, 11, None));
        partial.adopt();
        assert_eq!((read(4), partial.known()), (11, Some(sum(11))));
    }

    #[test]
    fn number_counts_commits() {
        let partial = PartialSum::default();
        let number = |committed| partial.number(|_, _| Ok(committed)).expect("no error");
        for before in 0..3 {
            assert_eq!([false, true].map(number), [Some(before); 2]);
            partial.prepare(&sum(before), (PLACE, 5));
            assert_eq!([false, true].map(number), [Some(before), Some(before + 1)]);
            partial.adopt();
        }
    }
}
