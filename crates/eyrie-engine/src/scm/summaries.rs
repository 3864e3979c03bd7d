//! Summaries of large directories. The Ops that change these directories keep the summaries up to date.
//!
//! The entry count, link count and times of a directory follow from its pages. The first reader that needs
//! these numbers adds up all pages and keeps the sums in this table. Every later Op that changes an entry
//! changes a sum along with the pages, or drops the summary. Summaries are only in memory. After an open of
//! the volume, or an eviction, the next reader adds up the pages again.
//! `docs/design/0015-directory-summaries.md` has the reasons.
//!
//! A summary has a [`PartialSum`] for each shard of the directory. The sum covers the pages of the shard.
//! Only the holder of a shard changes the partial sum of the shard, and each partial sum has cache lines of
//! its own. Therefore Ops on different shards do not wait for each other, and write no common line. Only
//! directories with at least as many buckets as shards have a summary. So no growth gives an entry of such a
//! directory another shard.
//!
//! Each stripe of [`super::locks`] has a set of [`WAYS`] slots, for the directories whose first shard has
//! that stripe. All these directories have the same stripes, so the holder of all shards of one of them
//! excludes every other writer of the set. A slot belongs to one directory at a time, and a directory has at
//! most one slot. If a stripe has more large directories than slots, they evict each other in turn. The
//! holder of one shard may drop the summary: it empties the slot, without a change of the partial sums.
//!
//! Readers take no lock and never wait. A partial sum has two copies, and its state word has a number that
//! tells which of them is current. An Op first writes the future sum into the other copy and *prepares* this
//! copy with a *witness*. The witness is a word of the volume that the commit of the Op changes, and the new
//! value of that word. From then on, a reader looks at the witness to decide which copy matches the pages at
//! that moment. At its end, the Op *adopts* the new copy: it makes this copy the current one. An Op that
//! changes entries of several shards gives all their partial sums the same witness, so one commit changes all
//! of them.
//!
//! A reader *collects* in two passes. In the first pass, it reads the number of each partial sum, and the
//! copy with this number. A number never decreases, and each commit that changes the sum increases it. In the
//! second pass, the reader reads all numbers again. If all are unchanged, each copy matched the pages of its
//! shard at the moment between the two passes. Therefore the result is the sum of all pages at that moment.
//!
//! Invariants:
//! - A complete sum equals the result of [`collection::summary`](crate::object::collection::summary) at the
//!   same moment. Each partial sum equals the sum of the pages of its shard.
//! - An incomplete sum covers exactly the entries whose positions in listings come before the slot's cursor.
//! - A copy does not change while its number is the current one.
//! - The partial sums of a slot belong to the directory of the slot while the state word of the slot is
//!   unchanged and complete.
//! - A directory has no slot once its header is freed, because [`Summaries::forget`] empties the slot first,
//!   under the locks of all shards of the directory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use eyrie_medium::Addr;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::interleave;

pub use partial::{PartialSum, ShardSum};

use super::locks::{STRIPES, stripe_of};
use crate::object::collection::{CollectionSummary, SHARDS};
use crate::{ObjectId, Result};

mod partial;

/// Maximum number of attempts to collect sums that Ops keep changing. After the last attempt, a reader tries
/// to get the locks.
const ATTEMPTS: usize = 100;
/// Number of slots of a stripe. A volume with fewer large directories than stripes rarely has more than four
/// in one stripe.
const WAYS: usize = 4;

/// The part of a directory that its partial sums cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SumCoverage {
    /// The sums cover every page.
    Complete,
    /// The sums cover the entries whose positions in listings come before this position.
    Before(u64),
}

/// The state word of a slot. Bit 0 is set if the sums are complete. The other bits are a version, which every
/// change of the slot increases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlotState(u64);

impl SlotState {
    const COMPLETE: u64 = 1;

    fn is_complete(self) -> bool {
        self.0 & SlotState::COMPLETE != 0
    }

    /// Returns the state after this one.
    fn next(self, complete: bool) -> SlotState {
        SlotState(((self.0 >> 1) + 1) << 1 | u64::from(complete))
    }
}

/// A slot. It has a cache line of its own, which all Ops on the directory read. Only builders, and Ops that
/// drop the summary, change this line.
#[derive(Default)]
#[repr(align(64))]
struct SummarySlot {
    state: AtomicU64,
    /// The raw id of the directory to which the slot belongs, or 0 if the slot is empty.
    dir: AtomicU64,
    /// The first position that incomplete sums do not cover. Only writers use this field.
    cursor: AtomicU64,
    /// Allocated with the first summary in this slot.
    sums: OnceLock<Box<[PartialSum; SHARDS]>>,
}

const _: () = assert!(size_of::<SummarySlot>() == 64);

/// The slots of one stripe.
#[derive(Default)]
struct SlotSet {
    slots: [SummarySlot; WAYS],
    /// Number of the slot that is evicted next, modulo [`WAYS`]. Only builders use this field.
    victim: AtomicUsize,
}

/// The partial sum of a shard, for an Op that holds the shard.
pub struct HeldSum<'a> {
    /// The partial sum in the slot of the directory.
    pub partial: &'a PartialSum,
    /// The current sum.
    pub sum: ShardSum,
    /// The part of the directory that the sum covers.
    pub coverage: SumCoverage,
}

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

impl SummarySlot {
    fn state(&self) -> SlotState {
        interleave();
        SlotState(self.state.load(Ordering::Acquire))
    }

    /// Returns the raw id of the directory to which the slot belongs, or 0 if the slot is empty. For a caller
    /// that holds no shard of the directory, the result may be out of date.
    fn owner(&self) -> u64 {
        interleave();
        self.dir.load(Ordering::Acquire)
    }

    /// Returns the coverage of the sums. The caller holds a shard.
    fn coverage(&self) -> SumCoverage {
        if self.state().is_complete() {
            SumCoverage::Complete
        } else {
            SumCoverage::Before(self.cursor.load(Ordering::Acquire))
        }
    }

    /// Returns the complete sum of a directory, or `None` if the slot has none or keeps changing.
    fn read(
        &self,
        dir: ObjectId,
        times_version: u32,
        is_committed: impl Fn(Addr, u64) -> Result<bool>,
    ) -> Result<Option<CollectionSummary>> {
        let state = self.state();
        let Some(sums) = self.sums.get().filter(|_| state.is_complete() && self.owner() == dir.raw()) else {
            return Ok(None);
        };
        for _ in 0..ATTEMPTS {
            if let Some(sum) = collect(sums, times_version, &is_committed)? {
                // An unchanged state word proves that the sums are those of the directory, and that no Op has
                // dropped them.
                return Ok((self.state() == state).then_some(sum));
            }
        }
        Ok(None)
    }

    /// Changes the state word, so that readers discard the sums.
    fn invalidate(&self) -> SlotState {
        let state = self.state().next(false);
        self.store_state(state);
        state
    }

    fn store_state(&self, state: SlotState) {
        interleave();
        self.state.store(state.0, Ordering::Release);
    }

    /// Gives the slot to a directory. The caller holds all shards of the directory.
    fn put(&self, dir: ObjectId, sums: &[ShardSum; SHARDS], coverage: SumCoverage) {
        // A reader that sees one of the following stores also sees this state.
        let state = self.invalidate();
        self.dir.store(dir.raw(), Ordering::Release);
        for (place, sum) in self.sums.get_or_init(Box::default).iter().zip(sums) {
            place.put(sum);
        }
        if let SumCoverage::Before(cursor) = coverage {
            self.cursor.store(cursor, Ordering::Release);
        }
        self.store_state(state.next(coverage == SumCoverage::Complete));
    }

    /// Empties the slot. Meanwhile other Ops may change its partial sums. These sums then belong to no
    /// directory.
    fn clear(&self) {
        self.invalidate();
        self.dir.store(0, Ordering::Release);
    }
}

/// Adds up the partial sums. Returns `None` if an Op has committed meanwhile. `times_version` is the version
/// of the directory's times.
#[inline]
fn collect(
    sums: &[PartialSum; SHARDS],
    times_version: u32,
    is_committed: &impl Fn(Addr, u64) -> Result<bool>,
) -> Result<Option<CollectionSummary>> {
    let (mut total, mut numbers) = (CollectionSummary::default(), [0; SHARDS]);
    for (partial, number) in sums.iter().zip(&mut numbers) {
        let Some(current) = partial.number(is_committed)? else { return Ok(None) };
        let ShardSum { times_version: of, mut summary } = partial.copy(current);
        summary.modified = summary.modified.filter(|_| of == times_version);
        total.add(&summary);
        *number = current;
    }
    // The copies may come from different moments. If no number has changed, each sum was also the current one
    // between the two passes.
    for (partial, number) in sums.iter().zip(numbers) {
        if !broken(SafetyRule::SumsAreCollectedTwice) && partial.number(is_committed)? != Some(number) {
            return Ok(None);
        }
    }
    Ok(Some(total))
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

    /// Returns the complete sum of a directory, or `None` if no slot has it, or if the slot keeps changing.
    /// `times_version` is the version of the directory's times. `is_committed` returns true if a word of the
    /// volume has a given value. The caller makes this call inside `Board::stable`, which repeats it if a
    /// redo record was applied meanwhile. The call needs no lock.
    ///
    /// # Errors
    /// The errors of `is_committed`.
    pub fn read(
        &self,
        dir: ObjectId,
        times_version: u32,
        is_committed: impl Fn(Addr, u64) -> Result<bool>,
    ) -> Result<Option<CollectionSummary>> {
        self.slot(dir).map_or(Ok(None), |slot| slot.read(dir, times_version, is_committed))
    }

    /// Returns the partial sum of a shard. The caller holds the shard. Returns `None` if the directory has no
    /// slot, or if an Op that panicked has left a prepared sum.
    pub fn held(&self, dir: ObjectId, shard: usize) -> Option<HeldSum<'_>> {
        let slot = self.slot(dir)?;
        let partial = &slot.sums.get()?[shard];
        Some(HeldSum { partial, sum: partial.known()?, coverage: slot.coverage() })
    }

    /// Returns all partial sums of a directory, and their coverage. The caller holds all shards of the
    /// directory. Returns `None` if the directory has no slot, or if an Op that panicked has left a prepared
    /// sum.
    pub fn known(&self, dir: ObjectId) -> Option<([ShardSum; SHARDS], SumCoverage)> {
        let slot = self.slot(dir)?;
        let mut sums = [ShardSum::default(); SHARDS];
        for (sum, partial) in sums.iter_mut().zip(slot.sums.get()?.iter()) {
            *sum = partial.known()?;
        }
        Some((sums, slot.coverage()))
    }

    /// Keeps the sums of pages. Evicts another directory if the stripe has no free slot. The caller holds all
    /// shards of the directory, and has read the pages under their locks.
    pub fn keep(&self, dir: ObjectId, sums: &[ShardSum; SHARDS], coverage: SumCoverage) {
        let sets = self.sets.get_or_init(|| (0..STRIPES).map(|_| OnceLock::new()).collect());
        let index = stripe_of(dir);
        sets[index].get_or_init(Box::default).slot_for(dir).put(dir, sums, coverage);
        self.used.0[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
    }

    /// Empties the slot of a directory, if the directory has one. The caller holds a shard of the directory.
    /// All readers see the empty slot before they see a later commit of the caller.
    pub fn forget(&self, dir: ObjectId) {
        let Some(set) = self.set(dir) else { return };
        let Some(slot) = set.of(dir) else { return };
        slot.clear();
        // While the caller holds a shard, no builder takes a slot of the set. So an empty set stays empty.
        if set.is_empty() {
            let index = stripe_of(dir);
            self.used.0[index / 64].fetch_and(!(1 << (index % 64)), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Time};

    const DIR: ObjectId = ObjectId::new(1 << 20, Kind::Directory);
    const PLACE: Addr = Addr::from_raw(4096);
    const VERSION: u32 = 3;

    /// Returns sums with this number of entries in all.
    fn sums(entries: u64) -> [ShardSum; SHARDS] {
        let mut sums = [ShardSum { times_version: VERSION, ..ShardSum::default() }; SHARDS];
        sums[5].summary.entries = 4;
        sums[7].summary.entries = entries - 4;
        sums
    }

    fn read_of(summaries: &Summaries, dir: ObjectId, word: u64) -> Option<u64> {
        let read = summaries.read(dir, VERSION, |place, value| Ok(place == PLACE && value == word));
        read.expect("no error").map(|sum| sum.entries)
    }

    fn held(summaries: &Summaries, dir: ObjectId, shard: usize) -> HeldSum<'_> {
        summaries.held(dir, shard).expect("known")
    }

    /// Prepares one more entry in a shard.
    fn prepare(summaries: &Summaries, dir: ObjectId, shard: usize) {
        let HeldSum { partial, mut sum, .. } = held(summaries, dir, shard);
        sum.summary.entries += 1;
        partial.prepare(&sum, (PLACE, 5));
    }

    #[test]
    fn one_commit_changes_the_sums_of_several_shards() {
        let summaries = Summaries::default();
        let read = |word| read_of(&summaries, DIR, word);
        assert_eq!(read(0), None);
        summaries.keep(DIR, &sums(10), SumCoverage::Complete);
        assert_eq!(read(0), Some(10));
        let partials = [1, 5].map(|shard| held(&summaries, DIR, shard).partial);
        [1, 5].iter().for_each(|&shard| prepare(&summaries, DIR, shard));
        assert_eq!((read(4), read(5)), (Some(10), Some(12)));
        partials[0].adopt();
        assert_eq!(read(5), Some(12));
        partials[1].adopt();
        assert_eq!(read(4), Some(12));
    }

    #[test]
    fn only_times_of_the_present_version_count() {
        let summaries = Summaries::default();
        let mut sums = sums(10);
        let times = [1, 2, 3].map(|seconds| Some(Time::new(seconds, 0)));
        for (shard, time) in times.into_iter().enumerate() {
            (sums[shard].summary.changed, sums[shard].summary.modified) = (time, time);
        }
        sums[2].times_version = VERSION - 1;
        summaries.keep(DIR, &sums, SumCoverage::Complete);
        let sum = summaries.read(DIR, VERSION, |_, _| Ok(false)).expect("no error").expect("complete");
        assert_eq!((sum.changed, sum.modified), (times[2], times[1]));
    }

    #[test]
    fn collected_sums_are_of_one_moment() {
        let summaries = Summaries::default();
        summaries.keep(DIR, &sums(10), SumCoverage::Complete);
        prepare(&summaries, DIR, 1);
        let slot = summaries.slot(DIR).expect("known");
        let (partials, calls) = (slot.sums.get().expect("known"), AtomicU64::new(0));
        // The commit comes after the first look at the witness.
        let read = collect(partials, VERSION, &|_, _| Ok(calls.fetch_add(1, Ordering::Relaxed) > 0));
        assert_eq!(read.expect("no error"), None);
        let read = collect(partials, VERSION, &|_, _| Ok(true));
        assert_eq!(read.expect("no error").map(|sum| sum.entries), Some(11));
    }

    #[test]
    fn incomplete_sum_is_not_read() {
        let summaries = Summaries::default();
        summaries.keep(DIR, &sums(10), SumCoverage::Before(77));
        assert_eq!(read_of(&summaries, DIR, 0), None);
        assert_eq!(summaries.known(DIR), Some((sums(10), SumCoverage::Before(77))));
        assert_eq!(held(&summaries, DIR, 0).coverage, SumCoverage::Before(77));
        let partial = held(&summaries, DIR, 7).partial;
        prepare(&summaries, DIR, 7);
        assert_eq!((read_of(&summaries, DIR, 5), summaries.known(DIR)), (None, None));
        partial.adopt();
        assert_eq!(summaries.known(DIR), Some((sums(11), SumCoverage::Before(77))));
    }

    #[test]
    fn dropped_sum_is_not_read() {
        let summaries = Summaries::default();
        summaries.keep(DIR, &sums(10), SumCoverage::Complete);
        let partial = held(&summaries, DIR, 1).partial;
        prepare(&summaries, DIR, 1);
        summaries.forget(DIR);
        partial.adopt();
        assert_eq!((read_of(&summaries, DIR, 5), summaries.known(DIR)), (None, None));
        prepare_in_dropped_slot(partial);
        summaries.keep(DIR, &sums(20), SumCoverage::Complete);
        assert_eq!((read_of(&summaries, DIR, 5), summaries.may_know(DIR)), (Some(20), true));
    }

    /// Leaves a prepared sum behind, as an Op that panicked does.
    fn prepare_in_dropped_slot(partial: &PartialSum) {
        partial.prepare(&ShardSum::default(), (PLACE, 5));
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
            summaries.keep(dir, &sums(entries), SumCoverage::Complete);
        }
        let read = |word| dirs.iter().map(|&dir| read_of(&summaries, dir, word)).collect::<Vec<_>>();
        let partial = held(&summaries, dirs[1], 3).partial;
        prepare(&summaries, dirs[1], 3);
        assert_eq!(read(4), [10, 11, 12, 13].map(Some));
        assert_eq!(read(5), [10, 12, 12, 13].map(Some));
        partial.adopt();
        assert_eq!(read(4), [10, 12, 12, 13].map(Some));
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
                summaries.keep(dir, &sums(entries), SumCoverage::Complete);
                assert_eq!(summaries.known(dir), Some((sums(entries), SumCoverage::Complete)));
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
