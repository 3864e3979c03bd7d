//! Generations: numbers that tell one use of a header slot from the next.
//!
//! A limit on media is raised ahead of use, so that a crash skips numbers and repeats none. Threads take them in blocks of
//! their own, so that two that create files do not meet.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{Mutex, lock};
use eyrie_medium::{Medium, Ordered, epoch};

use super::layout::GENERATION_LIMIT;
use super::space::Padded;
use crate::{Error, Result};

/// Numbers that one publish allows.
const LEASE: u64 = 1 << 20;
/// Numbers that a thread takes at a time.
const BLOCK: u64 = 256;
const SHARDS: usize = 64;

#[derive(Clone, Copy)]
struct Range {
    next: u64,
    end: u64,
}

/// Gives out generations.
pub(super) struct Generations {
    /// What no shard has; its end is the limit on media.
    leased: Mutex<Range>,
    shards: Box<[Padded<Mutex<Range>>]>,
}

impl Generations {
    /// Goes on from the limit on media.
    pub(super) fn new(limit: u64) -> Generations {
        let nothing = || Padded(Mutex::new(Range { next: 0, end: 0 }));
        Generations {
            leased: Mutex::new(Range { next: limit, end: limit }),
            shards: (0..SHARDS).map(|_| nothing()).collect(),
        }
    }

    /// A number that was never given out before, at least 1.
    pub(super) fn next(&self, medium: &Medium) -> Result<u64> {
        let mut shard = lock(&self.shards[epoch::thread_index() % SHARDS].0);
        if shard.next == shard.end {
            *shard = self.block(medium)?;
        }
        shard.next += 1;
        Ok(shard.next - 1)
    }

    #[cold]
    fn block(&self, medium: &Medium) -> Result<Range> {
        let mut leased = lock(&self.leased);
        if leased.end - leased.next < BLOCK {
            let limit = leased.end.checked_add(LEASE);
            let limit = limit.ok_or_else(|| Error::corrupt(GENERATION_LIMIT, "generations are used up"))?;
            let stored = if broken(SafetyRule::GenerationsAreLeasedFirst) { leased.end } else { limit };
            let published = medium.publish_apart(GENERATION_LIMIT, stored, Ordered::nothing())?;
            medium.settle(published);
            leased.end = limit;
        }
        let next = leased.next;
        leased.next += BLOCK;
        Ok(Range { next: next.max(1), end: leased.next })
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
}
