//! The range locks of one owner on one object.

use std::collections::BTreeMap;

use eyrie_medium::rules::{SafetyRule, broken};
use smallvec::SmallVec;

use super::lock::{LockKind, LockRange};

/// A locked range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockedRange {
    pub range: LockRange,
    pub kind: LockKind,
}

/// Disjoint ranges. Neighbours of the same kind are joined. An owner may have a million locks, so no call
/// moves all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnerRanges {
    /// The ranges, by the offsets of their first bytes.
    ranges: BTreeMap<u64, LockedRange>,
    /// Number of exclusive ranges.
    exclusive: usize,
}

impl OwnerRanges {
    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the number of exclusive ranges.
    pub fn exclusive(&self) -> usize {
        self.exclusive
    }

    /// Returns the last range that begins before `offset`.
    fn before(&self, offset: u64) -> Option<LockedRange> {
        self.ranges.range(..offset).next_back().map(|(_, held)| *held)
    }

    /// Returns the ranges that have bytes of `range`, in ascending order.
    fn overlapping(&self, range: LockRange) -> impl Iterator<Item = LockedRange> {
        let first = self.before(range.start()).filter(|held| held.range.last() >= range.start());
        let others = self.ranges.range(range.start()..=range.last()).map(|(_, held)| *held);
        first.into_iter().chain(others)
    }

    /// Returns the first lock that conflicts with the request of another owner for a lock of this kind on
    /// `range`.
    pub fn conflict(&self, range: LockRange, kind: LockKind) -> Option<LockedRange> {
        if kind == LockKind::Shared && self.exclusive == 0 {
            return None;
        }
        self.overlapping(range).find(|held| held.kind.conflicts(kind))
    }

    /// True if an unlock of `range` would leave more ranges than there are now.
    pub fn splits(&self, range: LockRange) -> bool {
        self.before(range.start()).is_some_and(|held| range.last() < held.range.last())
    }

    /// Gives all bytes of `range` a lock of this kind, or none.
    pub fn set(&mut self, range: LockRange, kind: Option<LockKind>) {
        let covered: SmallVec<[LockedRange; 4]> = self.overlapping(range).collect();
        covered.iter().for_each(|held| self.remove(held.range.start()));
        let mut pieces: SmallVec<[LockedRange; 3]> = SmallVec::new();
        let mut add = |start: u64, last: u64, kind: LockKind| {
            pieces.extend(LockRange::new(start, last).map(|range| LockedRange { range, kind }));
        };
        if let Some(first) = covered.first().filter(|held| held.range.start() < range.start()) {
            add(first.range.start(), range.start() - 1, first.kind);
        }
        if let Some(kind) = kind {
            add(range.start(), range.last(), kind);
        }
        let is_short = kind.is_none() && broken(SafetyRule::UnlockFreesEveryByte);
        let end = if is_short { range.last() } else { range.last() + 1 };
        if let Some(last) = covered.last().filter(|held| held.range.last() >= end) {
            add(end, last.range.last(), last.kind);
        }
        for piece in &pieces {
            self.insert(*piece);
        }
        // The range after the last piece may continue this piece.
        let after = self.ranges.range(range.last() + 1..).next().map(|(_, held)| *held);
        if let Some(after) = after.filter(|after| after.range.start() == range.last() + 1) {
            self.remove(after.range.start());
            self.insert(after);
        }
    }

    fn remove(&mut self, start: u64) {
        if let Some(held) = self.ranges.remove(&start) {
            self.exclusive -= usize::from(held.kind == LockKind::Exclusive);
        }
    }

    /// Adds a range, whose bytes have no lock. If the range before it has the same kind and ends where this
    /// range begins, joins the two.
    fn insert(&mut self, new: LockedRange) {
        let joined = self
            .before(new.range.start())
            .filter(|before| before.kind == new.kind && before.range.last() + 1 == new.range.start());
        let start = joined.map_or(new.range.start(), |before| before.range.start());
        let Some(range) = LockRange::new(start, new.range.last()) else { return };
        self.remove(start);
        self.ranges.insert(start, LockedRange { range, kind: new.kind });
        self.exclusive += usize::from(new.kind == LockKind::Exclusive);
    }

    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<LockedRange> {
        self.ranges.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::lock::LOCK_OFFSET_MAX;
    use super::*;

    /// Number of bytes of the naive model. Its last byte stands for all bytes from there up to the largest
    /// offset.
    const BYTES: u64 = 40;

    /// The lock of each byte, if it has one.
    type Naive = [Option<LockKind>; BYTES as usize];

    fn kind() -> impl Strategy<Value = Option<LockKind>> {
        prop_oneof![Just(None), Just(Some(LockKind::Shared)), Just(Some(LockKind::Exclusive))]
    }

    fn range(start: u64, last: u64) -> LockRange {
        let last = if last == BYTES - 1 { LOCK_OFFSET_MAX } else { last };
        LockRange::new(start, last).expect("a range")
    }

    /// Returns the ranges that have these locks.
    fn ranges_of(naive: &Naive) -> Vec<LockedRange> {
        let mut found: Vec<(u64, u64, LockKind)> = Vec::new();
        for (at, kind) in (0..).zip(naive).filter_map(|(at, kind)| Some((at, (*kind)?))) {
            match found.last_mut() {
                Some((_, last, before)) if *last + 1 == at && *before == kind => *last = at,
                _ => found.push((at, at, kind)),
            }
        }
        found.into_iter().map(|(start, last, kind)| LockedRange { range: range(start, last), kind }).collect()
    }

    proptest! {
        #[test]
        fn ranges_are_those_of_a_lock_for_each_byte(
            steps in prop::collection::vec((0..BYTES, 0..BYTES, kind()), 1..60),
        ) {
            let (mut ranges, mut naive): (OwnerRanges, Naive) = (OwnerRanges::default(), [None; 40]);
            for (one, other, kind) in steps {
                let (start, last) = (one.min(other), one.max(other));
                let wanted = range(start, last);
                let covered = &naive[start as usize..=last as usize];
                let conflicts = covered.iter().flatten().any(|held| held.conflicts(LockKind::Shared));
                prop_assert_eq!(ranges.conflict(wanted, LockKind::Shared).is_some(), conflicts);
                let (before, splits) = (ranges.len(), ranges.splits(wanted));
                naive[start as usize..=last as usize].fill(kind);
                ranges.set(wanted, kind);
                prop_assert_eq!(ranges.to_vec(), ranges_of(&naive));
                let is_exclusive = |held: &&LockedRange| held.kind == LockKind::Exclusive;
                let exclusive = ranges_of(&naive).iter().filter(is_exclusive).count();
                prop_assert_eq!(ranges.exclusive(), exclusive);
                if kind.is_none() {
                    prop_assert_eq!(ranges.len() > before, splits);
                } else {
                    prop_assert!(ranges.len() <= before + 2);
                }
            }
        }
    }
}
