//! Generations: numbers that distinguish one use of a header slot from the next.
//!
//! The medium holds a limit. This limit is raised before the numbers below it are used, so a crash skips
//! numbers and repeats none. Each thread takes numbers in blocks of its own, so that threads that create
//! files do not contend for one lock.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, lock};
use eyrie_medium::{Medium, Ordered, epoch};

use crate::space::CachePadded;
use crate::tables::layout::GENERATION_LIMIT;
use crate::{Error, Result};

/// Number of generations that one publish of the limit allows. It is large, so that publishes are rare. It is
/// small compared with 2^64, so that crashes cannot use up all generations.
const LEASE: u64 = 1 << 20;
/// As [`LEASE`], for a volume on a disk that is served. A client keeps the generation of a file beyond a kill
/// of its service. In the next session it compares this generation with that of the object that then has the
/// id. So the next service must assign no generation that the killed service has assigned. After the kill,
/// the disk has only the limit of the last drain. Therefore the limit is raised as soon as fewer than half of
/// these generations are left below it. This half lasts far longer than the time between two drains.
const LEASE_FOR_CLIENTS: u64 = 1 << 32;
/// Number of generations that a thread takes at a time, so that it takes the shared lock once for this number
/// of objects.
const BLOCK: u64 = 256;
/// Number of shards. The index of a thread selects its shard. If there are more threads than shards, some
/// threads share a shard.
const SHARDS: usize = 64;

#[derive(Clone, Copy)]
pub(super) struct GenerationRange {
    pub(super) next: u64,
    pub(super) end: u64,
}

/// Assigns generations.
pub(super) struct Generations {
    /// The numbers below the limit that no shard has taken. The end of this range is the limit that the
    /// medium holds.
    leased: Mutex<GenerationRange>,
    /// The limit is raised by this number.
    lease: u64,
    /// The limit is raised when fewer numbers than this are left below it.
    least: u64,
    shards: Box<[CachePadded<Mutex<GenerationRange>>]>,
}

impl Generations {
    /// Returns an assigner that continues from the limit that the medium holds. No object has the generation
    /// 0, so a new volume, whose limit is 0, begins with 1.
    pub(super) fn new(limit: u64) -> Generations {
        let nothing = || CachePadded(Mutex::new(GenerationRange { next: 0, end: 0 }));
        Generations {
            leased: Mutex::new(GenerationRange { next: limit.max(1), end: limit }),
            lease: LEASE,
            least: BLOCK,
            shards: (0..SHARDS).map(|_| nothing()).collect(),
        }
    }

    /// Raises the limit far ahead, for a volume on a disk whose clients keep generations. The caller is
    /// inside the gate of the medium. The caller drains before the first client comes.
    pub(super) fn lease_for_clients(&mut self, medium: &Medium) -> Result<()> {
        if broken(SafetyRule::GenerationsOutliveTheKill) {
            return Ok(());
        }
        (self.lease, self.least) = (LEASE_FOR_CLIENTS, LEASE_FOR_CLIENTS / 2);
        self.raise(&mut lock(&self.leased), medium)
    }

    /// Returns a number, at least 1, that was never assigned before.
    pub(super) fn next(&self, medium: &Medium) -> Result<u64> {
        let mut shard = lock(&self.shards[epoch::thread_index() % SHARDS].0);
        if shard.next == shard.end {
            *shard = self.block(medium)?;
        }
        shard.next += 1;
        Ok(shard.next - 1)
    }

    /// Takes a block of numbers for a thread.
    #[cold]
    fn block(&self, medium: &Medium) -> Result<GenerationRange> {
        self.take(BLOCK, medium)
    }

    /// Takes `count` numbers in a row, at most [`LEASE`]. First raises the limit on the medium if fewer than
    /// `least` numbers, or fewer than `count`, are left below it.
    pub(super) fn take(&self, count: u64, medium: &Medium) -> Result<GenerationRange> {
        let mut leased = lock(&self.leased);
        // From the limit 0 on, a first raise leaves one number less than [`LEASE`].
        while leased.end.saturating_sub(leased.next) < self.least.max(count) {
            self.raise(&mut leased, medium)?;
        }
        let next = leased.next;
        leased.next += count;
        Ok(GenerationRange { next, end: leased.next })
    }

    /// Raises the limit on the medium.
    fn raise(&self, leased: &mut GenerationRange, medium: &Medium) -> Result<()> {
        let limit = leased.end.checked_add(self.lease);
        let limit = limit.ok_or_else(|| Error::corrupt(GENERATION_LIMIT, "generations are used up"))?;
        let stored = if broken(SafetyRule::GenerationsAreLeasedFirst) { leased.end } else { limit };
        // The numbers from the old limit on are assigned only after the new limit has settled.
        let published = medium.publish_apart(GENERATION_LIMIT, stored, Ordered::nothing())?;
        medium.settle(published);
        leased.end = limit;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_skips_generations_and_repeats_none() {
        let medium = Medium::memory(1 << 16).expect("memory");
        let mut last = 0;
        for _ in 0..3 {
            let generations = Generations::new(medium.load(GENERATION_LIMIT).expect("in bounds"));
            for _ in 0..1000 {
                let next = generations.next(&medium).expect("in bounds");
                assert!(next > last);
                last = next;
            }
        }
        assert!(Generations::new(u64::MAX - 5).next(&medium).is_err());
    }

    #[test]
    fn new_volume_gives_as_many_numbers_as_wanted() {
        let medium = Medium::memory(1 << 16).expect("memory");
        let generations = Generations::new(0);
        let GenerationRange { next, end } = generations.take(LEASE, &medium).expect("in bounds");
        assert_eq!((next, end), (1, 1 + LEASE));
        assert!(medium.load(GENERATION_LIMIT).expect("in bounds") >= end);
    }
}
