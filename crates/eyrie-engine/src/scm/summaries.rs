//! Summaries of large directories, kept up to date by the Ops that change them.
//!
//! A directory's entry count, link count and times follow from its pages. The first reader who asks for them adds up all pages
//! and leaves the sum here; every later Op on the directory changes the sum along with the pages. Nothing here is stored:
//! after a crash, or an eviction, the next reader adds up the pages again. `docs/design/0015-directory-summaries.md` has
//! the reasons.
//!
//! There is one slot for each stripe of [`super::locks`]. Only a holder of the stripe's lock writes its slot, and every Op
//! that changes a directory holds its lock, so writers need no further order among themselves. A slot belongs to one directory at
//! a time; another large directory of the same stripe takes it over.
//!
//! Readers take no lock and never wait. A slot has two copies of the sum, and its state word says which one is current. An
//! Op first writes the sum as it will be into the other copy and *prepares* it, with a *witness*: a word of the volume that its
//! commit changes, and the new value. From then on a reader looks at the witness to know which copy is the sum of
//! the pages as they are at that moment. So a reader who has seen the effect of an Op in the pages never gets the sum from
//! before it, nor the other way round. When the Op is over it *adopts* the new copy.
//!
//! Invariants:
//! - A complete sum is what [`collection::summary`](crate::object::collection::summary) gives at the same moment.
//! - An incomplete sum covers the entries whose places come before the slot's cursor, and only those.
//! - A copy is not changed while the state word says that it is current, so a reader who finds the same state word before
//!   and after has read one sum.
//! - A directory has no slot once its header is given back: [`Summaries::forget`] comes first, under the same lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_medium::Addr;
use eyrie_medium::sync::interleave;

use super::locks::{STRIPES, stripe_of};
use crate::object::collection::Summary;
use crate::{ObjectId, Result, Time};

/// Reads of a slot that Ops keep changing before a reader adds up the pages instead.
const ATTEMPTS: usize = 100;

/// The sum of a directory's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum {
    /// The directory.
    pub dir: ObjectId,
    /// The epoch of its times that `summary.modified` belongs to.
    pub epoch: u32,
    /// What its pages add up to.
    pub summary: Summary,
}

/// How far a sum goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// It covers every page.
    Complete,
    /// It covers the entries whose places come before this one.
    Before(u64),
}

/// The state word of a slot: bit 0 the current copy, 1 whether an Op is prepared, 2 whether the sum is complete, 3..64 a
/// version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State(u64);

impl State {
    const PREPARED: u64 = 1 << 1;
    const COMPLETE: u64 = 1 << 2;
    const VERSION: u64 = 1 << 3;

    fn current(self) -> usize {
        (self.0 & 1) as usize
    }

    fn is_prepared(self) -> bool {
        self.0 & State::PREPARED != 0
    }

    fn is_complete(self) -> bool {
        self.0 & State::COMPLETE != 0
    }

    /// The state after this one.
    fn next(self, current: usize, prepared: bool, complete: bool) -> State {
        let version = (self.0 & !(State::VERSION - 1)).wrapping_add(State::VERSION);
        let flags = (u64::from(prepared) * State::PREPARED) | (u64::from(complete) * State::COMPLETE);
        State(version | flags | current as u64)
    }
}

/// Words of a copy.
const WORDS: usize = 6;

#[derive(Default)]
#[repr(align(128))]
struct Slot {
    state: AtomicU64,
    /// A word that the prepared Op changes, and its new value.
    witness: [AtomicU64; 2],
    /// The first place that an incomplete sum does not cover. Only for holders of the lock.
    cursor: AtomicU64,
    copies: [[AtomicU64; WORDS]; 2],
}

const _: () = assert!(size_of::<Slot>() == 128);

impl Sum {
    /// Goes on with the directory's times in this epoch, to which no page belongs before its next change.
    pub fn begin_epoch(&mut self, epoch: u32) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.summary.modified = None;
        }
    }

    fn to_words(self) -> [u64; WORDS] {
        let Summary { entries, subdirectories, changed, modified } = self.summary;
        let seconds = |time: Option<Time>| time.map_or(i64::MIN, |time| time.seconds) as u64;
        let nanoseconds = |time: Option<Time>| u64::from(time.map_or(0, |time| time.nanoseconds));
        [
            self.dir.raw(),
            entries,
            subdirectories << 32 | u64::from(self.epoch),
            seconds(changed),
            seconds(modified),
            nanoseconds(changed) << 32 | nanoseconds(modified),
        ]
    }

    /// The sum in these words, if they hold one.
    fn from_words(words: [u64; WORDS]) -> Option<Sum> {
        let [dir, entries, counts, changed, modified, nanoseconds] = words;
        let time = |seconds: u64, nanoseconds: u32| {
            let seconds = seconds as i64;
            (seconds != i64::MIN).then_some(Time::new(seconds, nanoseconds))
        };
        let summary = Summary {
            entries,
            subdirectories: counts >> 32,
            changed: time(changed, (nanoseconds >> 32) as u32),
            modified: time(modified, nanoseconds as u32),
        };
        Some(Sum { dir: ObjectId::from_raw(dir)?, epoch: counts as u32, summary })
    }
}

impl Slot {
    fn state(&self) -> State {
        interleave();
        State(self.state.load(Ordering::Acquire))
    }

    /// The sum in one of the copies.
    fn copy(&self, index: usize) -> Option<Sum> {
        interleave();
        Sum::from_words(std::array::from_fn(|word| self.copies[index][word].load(Ordering::Acquire)))
    }

    /// Writes the copy that is not current. Release order: a reader who sees a word of it also sees that it is not.
    fn write_other(&self, state: State, words: [u64; WORDS]) -> usize {
        let other = 1 - state.current();
        for (place, word) in self.copies[other].iter().zip(words) {
            interleave();
            place.store(word, Ordering::Release);
        }
        other
    }

    fn turn(&self, state: State) {
        interleave();
        self.state.store(state.0, Ordering::Release);
    }

    /// Makes `sum` the sum of the slot at once.
    fn put(&self, sum: Option<&Sum>, extent: Coverage) {
        let state = self.state();
        let other = self.write_other(state, sum.map_or([0; WORDS], |sum| sum.to_words()));
        let complete = match extent {
            Coverage::Complete => true,
            Coverage::Before(cursor) => {
                self.cursor.store(cursor, Ordering::Release);
                false
            }
        };
        self.turn(state.next(other, false, complete));
    }
}

/// A bit for each slot that is in use, apart from everything that changes often.
#[derive(Debug)]
#[repr(align(128))]
struct Used([AtomicU64; STRIPES / 64]);

/// The table.
pub struct Summaries {
    used: Used,
    /// Made when the first directory needs a slot.
    slots: OnceLock<Box<[Slot]>>,
}

impl Default for Summaries {
    fn default() -> Summaries {
        Summaries { used: Used([const { AtomicU64::new(0) }; STRIPES / 64]), slots: OnceLock::new() }
    }
}

impl Summaries {
    /// True if the directory may have a slot. A holder of its lock gets no wrong `false`.
    #[inline(always)]
    pub fn may_know(&self, dir: ObjectId) -> bool {
        let index = stripe_of(dir);
        self.used.0[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 != 0
    }

    fn slot(&self, dir: ObjectId) -> Option<&Slot> {
        if self.may_know(dir) { Some(&self.slots.get()?[stripe_of(dir)]) } else { None }
    }

    /// The complete sum of a directory. `is_committed` says whether a word of the volume has a value; the caller runs this
    /// while no redo record is being applied. For everybody.
    ///
    /// # Errors
    /// Those of `is_committed`.
    pub fn read(
        &self,
        dir: ObjectId,
        is_committed: impl Fn(Addr, u64) -> Result<bool>,
    ) -> Result<Option<Sum>> {
        let Some(slot) = self.slot(dir) else { return Ok(None) };
        for _ in 0..ATTEMPTS {
            let state = slot.state();
            let mut index = state.current();
            let mut committed = Ok(false);
            if state.is_prepared() {
                let [place, value] = &slot.witness;
                let place = Addr::from_raw(place.load(Ordering::Acquire));
                committed = is_committed(place, value.load(Ordering::Acquire));
                index ^= usize::from(matches!(committed, Ok(true)));
            }
            let sum = slot.copy(index);
            if slot.state() == state {
                committed?;
                return Ok(sum.filter(|sum| state.is_complete() && sum.dir == dir));
            }
        }
        Ok(None)
    }

    /// The sum of a directory as far as it goes. For holders of its lock.
    pub fn known(&self, dir: ObjectId) -> Option<(Sum, Coverage)> {
        let slot = self.slot(dir)?;
        let state = slot.state();
        // A sum that nobody adopted is that of an Op that panicked: the next Op forgets it.
        let sum = slot.copy(state.current()).filter(|sum| sum.dir == dir && !state.is_prepared())?;
        let cursor = slot.cursor.load(Ordering::Acquire);
        Some((sum, if state.is_complete() { Coverage::Complete } else { Coverage::Before(cursor) }))
    }

    /// Keeps a sum of pages that were read under the lock, in place of whatever the slot held. For holders of the lock.
    pub fn keep(&self, sum: &Sum, extent: Coverage) {
        let slots = self.slots.get_or_init(|| (0..STRIPES).map(|_| Slot::default()).collect());
        let index = stripe_of(sum.dir);
        slots[index].put(Some(sum), extent);
        self.used.0[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
    }

    /// Prepares for the moment from which a directory will have this sum once `place` holds `value`. For holders of its lock, while the slot is
    /// the directory's.
    pub fn prepare(&self, sum: &Sum, (place, value): (Addr, u64)) {
        let Some(slot) = self.slot(sum.dir) else { return };
        let state = slot.state();
        slot.write_other(state, sum.to_words());
        slot.witness[0].store(place.raw(), Ordering::Release);
        slot.witness[1].store(value, Ordering::Release);
        slot.turn(state.next(state.current(), true, state.is_complete()));
    }

    /// Makes the prepared sum of a directory the current one. For holders of its lock.
    pub fn adopt(&self, dir: ObjectId) {
        let Some(slot) = self.slot(dir) else { return };
        let state = slot.state();
        slot.turn(state.next(1 - state.current(), false, state.is_complete()));
    }

    /// Takes the slot from a directory, if it has one. For holders of its lock.
    pub fn forget(&self, dir: ObjectId) {
        let Some(slot) = self.slot(dir) else { return };
        if slot.copy(slot.state().current()).is_some_and(|sum| sum.dir == dir) {
            slot.put(None, Coverage::Before(0));
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

    fn sum(dir: ObjectId, entries: u64) -> Sum {
        let summary = Summary {
            entries,
            subdirectories: 3,
            changed: Some(Time::new(-7, 999_999_999)),
            modified: Some(Time::new(0, 1)),
        };
        Sum { dir, epoch: u32::MAX, summary }
    }

    fn read(summaries: &Summaries, word: u64) -> Option<u64> {
        let read = summaries.read(DIR, |place, value| Ok(place == PLACE && value == word));
        read.expect("no error").map(|sum| sum.summary.entries)
    }

    #[test]
    fn a_sum_survives_its_words() {
        let none = Summary { changed: None, modified: None, ..sum(DIR, 0).summary };
        for sum in [sum(DIR, u64::MAX), Sum { epoch: 0, summary: none, ..sum(DIR, 0) }] {
            assert_eq!(Sum::from_words(sum.to_words()), Some(sum));
        }
        assert_eq!(Sum::from_words([0; WORDS]), None);
    }

    #[test]
    fn a_prepared_sum_counts_from_its_commit_on() {
        let summaries = Summaries::default();
        assert_eq!(read(&summaries, 0), None);
        summaries.keep(&sum(DIR, 10), Coverage::Complete);
        assert_eq!(read(&summaries, 0), Some(10));
        summaries.prepare(&sum(DIR, 11), (PLACE, 5));
        assert_eq!((read(&summaries, 4), read(&summaries, 5)), (Some(10), Some(11)));
        summaries.adopt(DIR);
        assert_eq!(read(&summaries, 4), Some(11));
        assert_eq!(summaries.known(DIR), Some((sum(DIR, 11), Coverage::Complete)));
    }

    #[test]
    fn nobody_is_shown_an_incomplete_sum() {
        let summaries = Summaries::default();
        summaries.keep(&sum(DIR, 10), Coverage::Before(77));
        assert_eq!(read(&summaries, 0), None);
        assert_eq!(summaries.known(DIR), Some((sum(DIR, 10), Coverage::Before(77))));
        summaries.prepare(&sum(DIR, 11), (PLACE, 5));
        assert_eq!((read(&summaries, 5), summaries.known(DIR)), (None, None));
        summaries.adopt(DIR);
        assert_eq!(summaries.known(DIR), Some((sum(DIR, 11), Coverage::Before(77))));
    }

    #[test]
    fn directories_of_one_stripe_take_turns() {
        let summaries = Summaries::default();
        let same = |id: &ObjectId| stripe_of(*id) == stripe_of(DIR) && *id != DIR;
        let other = (1..).map(|n| ObjectId::new(n << 6, Kind::Directory)).find(same).expect("some");
        summaries.keep(&sum(DIR, 10), Coverage::Complete);
        summaries.forget(other);
        assert_eq!(read(&summaries, 0), Some(10));
        summaries.keep(&sum(other, 20), Coverage::Complete);
        assert_eq!((read(&summaries, 0), summaries.known(DIR)), (None, None));
        summaries.forget(DIR);
        assert!(summaries.known(other).is_some());
        summaries.forget(other);
        assert!(!summaries.may_know(other));
    }
}
