//! The range locks of one owner on one object.

use eyrie_medium::rules::{SafetyRule, broken};
use smallvec::SmallVec;

use super::lock::{LockKind, LockRange};

/// A locked range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockedRange {
    pub range: LockRange,
    pub kind: LockKind,
}

/// Ranges in order of their offsets. They are disjoint, and neighbours of the same kind are joined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnerRanges(Vec<LockedRange>);

impl OwnerRanges {
    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the indices of the ranges that have bytes of `range`.
    fn overlapping(&self, range: LockRange) -> std::ops::Range<usize> {
        let first = self.0.partition_point(|held| held.range.last() < range.start());
        let end = self.0.partition_point(|held| held.range.start() <= range.last());
        first..end.max(first)
    }

    /// Returns the first lock that conflicts with the request of another owner for a lock of this kind on
    /// `range`.
    pub fn conflict(&self, range: LockRange, kind: LockKind) -> Option<LockedRange> {
        self.0[self.overlapping(range)].iter().copied().find(|held| held.kind.conflicts(kind))
    }

    /// True if an unlock of `range` would leave more ranges than there are now.
    pub fn splits(&self, range: LockRange) -> bool {
        self.0[self.overlapping(range)]
            .iter()
            .any(|held| held.range.start() < range.start() && range.last() < held.range.last())
    }

    /// Gives all bytes of `range` a lock of this kind, or none.
    pub fn set(&mut self, range: LockRange, kind: Option<LockKind>) {
        let replaced = self.overlapping(range);
        let covered = &self.0[replaced.clone()];
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
        let start = replaced.start;
        let end = start + pieces.len();
        self.0.splice(replaced, pieces);
        self.join(start.saturating_sub(1)..(end + 1).min(self.0.len()));
    }

    /// Joins neighbours of the same kind among the ranges with these indices.
    fn join(&mut self, indices: std::ops::Range<usize>) {
        for index in indices.rev() {
            let Some(&[left, right]) = self.0.get(index..).and_then(|ranges| ranges.first_chunk()) else {
                continue;
            };
            if left.kind == right.kind
                && left.range.last() + 1 == right.range.start()
                && let Some(range) = LockRange::new(left.range.start(), right.range.last())
            {
                self.0[index].range = range;
                self.0.remove(index + 1);
            }
        }
    }

    #[cfg(test)]
    pub fn as_slice(&self) -> &[LockedRange] {
        &self.0
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
                prop_assert_eq!(ranges.as_slice(), &ranges_of(&naive)[..]);
                if kind.is_none() {
                    prop_assert_eq!(ranges.len() > before, splits);
                } else {
                    prop_assert!(ranges.len() <= before + 2);
                }
            }
        }
    }
}
