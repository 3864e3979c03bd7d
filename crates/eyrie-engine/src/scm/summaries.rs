//! Summaries of large directories. The Ops that change these directories keep the summaries up to date.
//!
//! The entry count, link count and times of a directory follow from its pages. The first reader that needs
//! these numbers adds up all pages and keeps the sum in this table. Every later Op that changes an entry
//! changes the sum along with the pages, or drops the sum. Summaries are only in memory. After an open of the
//! volume, or an eviction, the next reader adds up the pages again. `docs/design/0015-directory-summaries.md`
//! has the reasons.
//!
//! Each stripe of [`super::locks`] has a set of [`WAYS`] slots, for the directories whose first shard has
//! that stripe. All these directories have the same stripes, so the holder of all shards of one of them
//! excludes every other writer of the set. An Op holds only one shard. Therefore each set also has a mutex,
//! which an Op holds while it prepares a sum, commits, and adopts the sum. So the commits of a directory with
//! a summary come one after another, but the rest of its Ops do not. A slot belongs to one directory at a
//! time, and a directory has at most one slot. If a stripe has more large directories than slots, they evict
//! each other in turn.
//!
//! Readers take no lock and never wait. A slot has two copies of the sum, and its state word names the
//! current one. An Op first writes the future sum into the other copy and *prepares* this copy with a
//! *witness*. The witness is a word of the volume that the commit of the Op changes, and the new value of
//! that word. From then on, a reader looks at the witness to decide which copy matches the pages at that
//! moment. Therefore a reader that has seen the effect of an Op in the pages never gets the sum from before
//! the Op. A reader that has seen the new sum never sees the pages from before the Op. At its end, the Op
//! *adopts* the new copy: it makes this copy the current one.
//!
//! Invariants:
//! - A complete sum equals the result of [`collection::summary`](crate::object::collection::summary) at the
//!   same moment.
//! - An incomplete sum covers exactly the entries whose positions in listings come before the slot's cursor.
//! - A copy does not change while the state word names it as current. Therefore a reader that finds the same
//!   state word before and after its reads has read one sum.
//! - A directory has no slot once its header is freed, because [`Summaries::forget`] empties the slot first,
//!   under all shards of the directory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use eyrie_medium::Addr;
use eyrie_medium::sync::{Mutex, MutexGuard, interleave, lock};
use smallvec::SmallVec;

use super::locks::{STRIPES, stripe_of};
use crate::object::collection::CollectionSummary;
use crate::{ObjectId, Result, Time};

/// Maximum number of attempts to read a slot that Ops keep changing. After the last attempt, a reader adds up
/// the pages instead.
const ATTEMPTS: usize = 100;
/// Number of slots of a stripe. A volume with fewer large directories than stripes rarely has more than four
/// in one stripe.
const WAYS: usize = 4;

/// The sum of a directory's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectorySum {
    /// The directory.
    pub dir: ObjectId,
    /// The version of the directory's times for which `summary.modified` is valid.
    pub times_version: u32,
    /// The sum over the directory's pages.
    pub summary: CollectionSummary,
}

/// The part of a directory that a sum covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SumCoverage {
    /// The sum covers every page.
    Complete,
    /// The sum covers the entries whose positions in listings come before this position.
    Before(u64),
}

/// The state word of a slot. Bit 0 is the number of the current copy. Bit 1 is set if an Op has prepared the
/// other copy. Bit 2 is set if the sum is complete. Bits 3 to 63 are a version, so that no two successive
/// states are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlotState(u64);

impl SlotState {
    const PREPARED: u64 = 1 << 1;
    const COMPLETE: u64 = 1 << 2;
    const VERSION: u64 = 1 << 3;

    fn current(self) -> usize {
        (self.0 & 1) as usize
    }

    fn is_prepared(self) -> bool {
        self.0 & SlotState::PREPARED != 0
    }

    fn is_complete(self) -> bool {
        self.0 & SlotState::COMPLETE != 0
    }

    /// Returns the state after this one.
    fn next(self, current: usize, prepared: bool, complete: bool) -> SlotState {
        let version = (self.0 & !(SlotState::VERSION - 1)).wrapping_add(SlotState::VERSION);
        let flags = (u64::from(prepared) * SlotState::PREPARED) | (u64::from(complete) * SlotState::COMPLETE);
        SlotState(version | flags | current as u64)
    }
}

/// Number of words in a copy.
const WORDS: usize = 6;

/// A slot. It has 128 bytes, so that no two slots share a pair of cache lines.
#[derive(Default)]
#[repr(align(128))]
struct SummarySlot {
    state: AtomicU64,
    /// A word of the volume that the prepared Op changes, and the new value of the word.
    witness: [AtomicU64; 2],
    /// The first position that an incomplete sum does not cover. Only writers use this field.
    cursor: AtomicU64,
    copies: [[AtomicU64; WORDS]; 2],
}

const _: () = assert!(size_of::<SummarySlot>() == 128);

/// The slots of one stripe.
#[derive(Default)]
struct SlotSet {
    slots: [SummarySlot; WAYS],
    /// Number of the slot that is evicted next, modulo [`WAYS`]. Only writers use this field.
    victim: AtomicUsize,
    mutex: Mutex<()>,
}

/// The mutexes of the sets that an Op changes.
pub(super) type HeldSets<'a> = SmallVec<[MutexGuard<'a, ()>; 2]>;

impl SlotSet {
    /// Returns the slot of a directory.
    fn of(&self, dir: ObjectId) -> Option<&SummarySlot> {
        self.slots.iter().find(|slot| slot.owner() == dir.raw())
    }

    fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.owner() == 0)
    }

    /// Returns the slot of a directory, or else an empty slot, or else the slot of another directory. The
    /// caller holds all shards of the directory.
    fn slot_for(&self, dir: ObjectId) -> &SummarySlot {
        let empty = || self.slots.iter().find(|slot| slot.owner() == 0);
        self.of(dir).or_else(empty).unwrap_or_else(|| {
            let victim = self.victim.load(Ordering::Relaxed);
            self.victim.store(victim.wrapping_add(1), Ordering::Relaxed);
            &self.slots[victim % WAYS]
        })
    }
}

impl DirectorySum {
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
            self.dir.raw(),
            entries,
            subdirectories << 32 | u64::from(self.times_version),
            seconds(changed),
            seconds(modified),
            nanoseconds(changed) << 32 | nanoseconds(modified),
        ]
    }

    /// Returns the sum in these words, or `None` if the words hold no sum.
    fn from_words(words: [u64; WORDS]) -> Option<DirectorySum> {
        let [dir, entries, counts, changed, modified, nanoseconds] = words;
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
        Some(DirectorySum { dir: ObjectId::from_raw(dir)?, times_version: counts as u32, summary })
    }
}

impl SummarySlot {
    fn state(&self) -> SlotState {
        interleave();
        SlotState(self.state.load(Ordering::Acquire))
    }

    /// Returns the raw id of the directory to which the slot belongs, or 0 if the slot is empty. Without the
    /// lock, the result may be out of date.
    fn owner(&self) -> u64 {
        let current = self.state().current();
        interleave();
        self.copies[current][0].load(Ordering::Acquire)
    }

    /// Returns the complete sum of a directory, or `None` if the slot has none or keeps changing.
    fn read(
        &self,
        dir: ObjectId,
        is_committed: impl Fn(Addr, u64) -> Result<bool>,
    ) -> Result<Option<DirectorySum>> {
        for _ in 0..ATTEMPTS {
            let state = self.state();
            let mut index = state.current();
            let mut committed = Ok(false);
            if state.is_prepared() {
                let [place, value] = &self.witness;
                let place = Addr::from_raw(place.load(Ordering::Acquire));
                committed = is_committed(place, value.load(Ordering::Acquire));
                index ^= usize::from(matches!(committed, Ok(true)));
            }
            let sum = self.copy(index);
            // Only an unchanged state word proves that the copy and the witness belong together.
            if self.state() == state {
                committed?;
                return Ok(sum.filter(|sum| state.is_complete() && sum.dir == dir));
            }
        }
        Ok(None)
    }

    /// Returns the sum in one of the copies.
    fn copy(&self, index: usize) -> Option<DirectorySum> {
        interleave();
        DirectorySum::from_words(std::array::from_fn(|word| self.copies[index][word].load(Ordering::Acquire)))
    }

    /// Writes the copy that is not current, and returns its number. The stores have release ordering.
    /// Therefore a reader that sees one of these words also sees a state word that is newer than the last
    /// state word that named this copy.
    fn write_other(&self, state: SlotState, words: [u64; WORDS]) -> usize {
        let other = 1 - state.current();
        for (place, word) in self.copies[other].iter().zip(words) {
            interleave();
            place.store(word, Ordering::Release);
        }
        other
    }

    fn publish_state(&self, state: SlotState) {
        interleave();
        self.state.store(state.0, Ordering::Release);
    }

    /// Makes `sum` the current sum of the slot. Empties the slot if `sum` is `None`.
    fn put(&self, sum: Option<&DirectorySum>, coverage: SumCoverage) {
        let state = self.state();
        let other = self.write_other(state, sum.map_or([0; WORDS], |sum| sum.to_words()));
        let complete = match coverage {
            SumCoverage::Complete => true,
            SumCoverage::Before(cursor) => {
                self.cursor.store(cursor, Ordering::Release);
                false
            }
        };
        self.publish_state(state.next(other, false, complete));
    }
}

/// One bit for each stripe, set if a slot of the stripe is in use. The words have cache lines of their own,
/// apart from data that changes often, because every Op on a directory reads them.
#[derive(Debug)]
#[repr(align(128))]
struct Used([AtomicU64; STRIPES / 64]);

/// The table of all slots.
pub struct Summaries {
    used: Used,
    /// The slots of each stripe. They are allocated when the first directory of the stripe needs one.
    sets: OnceLock<Box<[OnceLock<Box<SlotSet>>]>>,
}

impl Default for Summaries {
    fn default() -> Summaries {
        Summaries { used: Used([const { AtomicU64::new(0) }; STRIPES / 64]), sets: OnceLock::new() }
    }
}

impl Summaries {
    /// True if the directory may have a slot. The holder of any shard never gets a wrong `false`, because a
    /// builder holds all shards. Relaxed ordering is enough. The lock orders the bit for its holder, and a
    /// reader that misses a new bit only adds up the pages.
    #[inline(always)]
    pub fn may_know(&self, dir: ObjectId) -> bool {
        let index = stripe_of(dir);
        self.used.0[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 != 0
    }

    /// Returns the slots of the directory's stripe, if one of them may be in use.
    fn set(&self, dir: ObjectId) -> Option<&SlotSet> {
        if self.may_know(dir) { self.sets.get()?[stripe_of(dir)].get().map(Box::as_ref) } else { None }
    }

    /// Returns the slot of a directory.
    fn slot(&self, dir: ObjectId) -> Option<&SummarySlot> {
        self.set(dir)?.of(dir)
    }

    /// Returns the complete sum of a directory, or `None` if the slot has none or keeps changing.
    /// `is_committed` returns true if a word of the volume has a given value. The caller makes this call
    /// inside `Board::stable`, which repeats it if a redo record was applied meanwhile. The call needs no
    /// lock.
    ///
    /// # Errors
    /// The errors of `is_committed`.
    pub fn read(
        &self,
        dir: ObjectId,
        is_committed: impl Fn(Addr, u64) -> Result<bool>,
    ) -> Result<Option<DirectorySum>> {
        self.slot(dir).map_or(Ok(None), |slot| slot.read(dir, is_committed))
    }

    /// Takes the mutexes of the sets of these directories, in the order of the sets. The caller holds the
    /// locks of its Op, and takes no further lock of an object afterwards.
    pub fn hold(&self, dirs: impl Iterator<Item = ObjectId>) -> HeldSets<'_> {
        let Some(sets) = self.sets.get() else { return HeldSets::new() };
        let mut indices: SmallVec<[usize; 2]> = dirs.map(stripe_of).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().filter_map(|index| sets[index].get()).map(|set| lock(&set.mutex)).collect()
    }

    /// Returns the sum of a directory and the coverage of the sum. The caller holds all shards of the
    /// directory, or one shard and the mutex of the set.
    pub fn known(&self, dir: ObjectId) -> Option<(DirectorySum, SumCoverage)> {
        let slot = self.slot(dir)?;
        let state = slot.state();
        // A sum that is still prepared belongs to an Op that panicked. The next Op removes it.
        let sum = slot.copy(state.current()).filter(|sum| sum.dir == dir && !state.is_prepared())?;
        let cursor = slot.cursor.load(Ordering::Acquire);
        Some((sum, if state.is_complete() { SumCoverage::Complete } else { SumCoverage::Before(cursor) }))
    }

    /// Keeps a sum of pages. Evicts another directory if the stripe has no free slot. The caller holds all
    /// shards of the directory, and has read the pages under them.
    pub fn keep(&self, sum: &DirectorySum, coverage: SumCoverage) {
        let sets = self.sets.get_or_init(|| (0..STRIPES).map(|_| OnceLock::new()).collect());
        let index = stripe_of(sum.dir);
        sets[index].get_or_init(Box::default).slot_for(sum.dir).put(Some(sum), coverage);
        self.used.0[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
    }

    /// Prepares the sum that a directory will have when `place` has `value`. The caller holds the mutex of
    /// the set, and the slot belongs to the directory.
    pub fn prepare(&self, sum: &DirectorySum, (place, value): (Addr, u64)) {
        let Some(slot) = self.slot(sum.dir) else { return };
        let state = slot.state();
        slot.write_other(state, sum.to_words());
        slot.witness[0].store(place.raw(), Ordering::Release);
        slot.witness[1].store(value, Ordering::Release);
        // With release ordering, a reader that sees the prepared state also sees the new copy and its
        // witness.
        slot.publish_state(state.next(state.current(), true, state.is_complete()));
    }

    /// Makes the prepared sum of a directory the current one. The caller has held the mutex of the set since
    /// [`Summaries::prepare`].
    pub fn adopt(&self, dir: ObjectId) {
        let Some(slot) = self.slot(dir) else { return };
        let state = slot.state();
        slot.publish_state(state.next(1 - state.current(), false, state.is_complete()));
    }

    /// Empties the slot of a directory, if the directory has one. The caller holds all shards of the
    /// directory, or one shard and the mutex of the set.
    pub fn forget(&self, dir: ObjectId) {
        let Some(set) = self.set(dir) else { return };
        let Some(slot) = set.of(dir) else { return };
        slot.put(None, SumCoverage::Before(0));
        if set.is_empty() {
            let index = stripe_of(dir);
            self.used.0[index / 64].fetch_and(!(1 << (index % 64)), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    const DIR: ObjectId = ObjectId::new(1 << 20, Kind::Directory);
    const PLACE: Addr = Addr::from_raw(4096);

    fn sum(dir: ObjectId, entries: u64) -> DirectorySum {
        let summary = CollectionSummary {
            entries,
            subdirectories: 3,
            changed: Some(Time::new(-7, 999_999_999)),
            modified: Some(Time::new(0, 1)),
        };
        DirectorySum { dir, times_version: u32::MAX, summary }
    }

    fn read(summaries: &Summaries, word: u64) -> Option<u64> {
        let read = summaries.read(DIR, |place, value| Ok(place == PLACE && value == word));
        read.expect("no error").map(|sum| sum.summary.entries)
    }

    #[test]
    fn sum_survives_conversion_to_words() {
        let none = CollectionSummary { changed: None, modified: None, ..sum(DIR, 0).summary };
        for sum in [sum(DIR, u64::MAX), DirectorySum { times_version: 0, summary: none, ..sum(DIR, 0) }] {
            assert_eq!(DirectorySum::from_words(sum.to_words()), Some(sum));
        }
        assert_eq!(DirectorySum::from_words([0; WORDS]), None);
    }

    #[test]
    fn a_prepared_sum_counts_from_its_commit_on() {
        let summaries = Summaries::default();
        assert_eq!(read(&summaries, 0), None);
        summaries.keep(&sum(DIR, 10), SumCoverage::Complete);
        assert_eq!(read(&summaries, 0), Some(10));
        summaries.prepare(&sum(DIR, 11), (PLACE, 5));
        assert_eq!((read(&summaries, 4), read(&summaries, 5)), (Some(10), Some(11)));
        summaries.adopt(DIR);
        assert_eq!(read(&summaries, 4), Some(11));
        assert_eq!(summaries.known(DIR), Some((sum(DIR, 11), SumCoverage::Complete)));
    }

    #[test]
    fn incomplete_sum_is_not_read() {
        let summaries = Summaries::default();
        summaries.keep(&sum(DIR, 10), SumCoverage::Before(77));
        assert_eq!(read(&summaries, 0), None);
        assert_eq!(summaries.known(DIR), Some((sum(DIR, 10), SumCoverage::Before(77))));
        summaries.prepare(&sum(DIR, 11), (PLACE, 5));
        assert_eq!((read(&summaries, 5), summaries.known(DIR)), (None, None));
        summaries.adopt(DIR);
        assert_eq!(summaries.known(DIR), Some((sum(DIR, 11), SumCoverage::Before(77))));
    }

    /// Returns directories of the stripe of [`DIR`], the first of which is [`DIR`].
    fn of_one_stripe() -> impl Iterator<Item = ObjectId> {
        let all = (0..).map(|n| ObjectId::new((1 << 20) + (n << 6), Kind::Directory));
        all.filter(|id| stripe_of(*id) == stripe_of(DIR))
    }

    #[test]
    fn directories_of_one_stripe_have_a_slot_each() {
        let summaries = Summaries::default();
        let dirs: Vec<ObjectId> = of_one_stripe().take(WAYS).collect();
        for (entries, &dir) in (10..).zip(&dirs) {
            summaries.keep(&sum(dir, entries), SumCoverage::Complete);
        }
        summaries.prepare(&sum(dirs[1], 99), (PLACE, 5));
        let read = |dir, word| {
            let read = summaries.read(dir, |place, value| Ok(place == PLACE && value == word));
            read.expect("no error").map(|sum| sum.summary.entries)
        };
        assert_eq!(dirs.iter().map(|&dir| read(dir, 4)).collect::<Vec<_>>(), [10, 11, 12, 13].map(Some));
        assert_eq!(dirs.iter().map(|&dir| read(dir, 5)).collect::<Vec<_>>(), [10, 99, 12, 13].map(Some));
        summaries.adopt(dirs[1]);
        assert_eq!(dirs.iter().map(|&dir| read(dir, 4)).collect::<Vec<_>>(), [10, 99, 12, 13].map(Some));
    }

    #[test]
    fn directories_evict_each_other_only_from_a_full_stripe() {
        let summaries = Summaries::default();
        let dirs: Vec<ObjectId> = of_one_stripe().take(WAYS + 1).collect();
        let known = || dirs.iter().filter(|&&dir| summaries.known(dir).is_some()).count();
        for (index, &dir) in dirs.iter().enumerate() {
            summaries.forget(dir);
            assert_eq!(known(), index);
            for entries in [20, 21] {
                summaries.keep(&sum(dir, entries), SumCoverage::Complete);
                assert_eq!(summaries.known(dir), Some((sum(dir, entries), SumCoverage::Complete)));
            }
        }
        assert_eq!((known(), summaries.known(dirs[0])), (WAYS, None));
        for (left, &dir) in (0..WAYS).rev().zip(&dirs[1..]) {
            assert!(summaries.may_know(dir));
            summaries.forget(dir);
            assert_eq!(known(), left);
        }
        assert!(!summaries.may_know(DIR));
    }
}
