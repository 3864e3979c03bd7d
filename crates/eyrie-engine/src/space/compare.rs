//! Compares the free storage with the storage that objects use, to check a volume.

use std::fmt;

use eyrie_medium::{Addr, PAGE_SIZE};

use super::allocator::Space;
use super::bits::Bits;
use super::headers::slot_addr;
use super::marks::Marks;
use super::shared::SharedRun;
use crate::tables::geometry::page_addr;
use crate::tables::layout::HEADER_BYTES;

/// A disagreement between the allocator and the objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum MismatchKind {
    /// The storage is not free, but no object reaches it. It is leaked until a recovery rebuilds the free
    /// space.
    Leaked,
    /// The storage is free, but an object reaches it. The allocator could give it to a second object.
    FreeInUse,
    /// The allocator counts another number of pointers to the storage. It could become free too early, or
    /// never.
    WrongCount,
}

/// A range of storage about which the allocator and the objects disagree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SpaceMismatch {
    /// Start of the range.
    pub(crate) addr: Addr,
    /// Length of the range, in bytes.
    pub(crate) bytes: u64,
    /// The kind of the disagreement.
    pub(crate) kind: MismatchKind,
}

impl fmt::Display for SpaceMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            MismatchKind::Leaked => "bytes are in use, but no object reaches them",
            MismatchKind::FreeInUse => "bytes are free, but an object reaches them",
            MismatchKind::WrongCount => "bytes have another number of pointers than the allocator counts",
        };
        write!(f, "{}: {} {what}", self.addr, self.bytes)
    }
}

/// Returns the bits of `a` that are not in `b`.
fn difference(a: &Bits, b: &Bits) -> Bits {
    let other = b.words().iter().copied().chain(std::iter::repeat(0));
    Bits::from_words(a.words().iter().zip(other).map(|(&a, b)| a & !b).collect())
}

/// Returns the ranges of pages whose numbers of pointers differ in the two lists of runs, in order.
fn other_counts(a: &[SharedRun], b: &[SharedRun]) -> Vec<(u32, u32)> {
    let mut bounds: Vec<u32> = a.iter().chain(b).flat_map(|run| [run.page, run.page + run.pages]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let pointers = |runs: &[SharedRun], page: u32| {
        let before = &runs[..runs.partition_point(|run| run.page <= page)];
        before.last().filter(|run| page < run.page + run.pages).map(|run| run.pointers)
    };
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for pair in bounds.windows(2).filter(|pair| pointers(a, pair[0]) != pointers(b, pair[0])) {
        match ranges.last_mut() {
            Some(range) if range.1 == pair[0] => range.1 = pair[1],
            _ => ranges.push((pair[0], pair[1])),
        }
    }
    ranges
}

impl Space {
    /// Compares the free storage with the storage that no object uses, range by range. The result is exact if
    /// no other thread changes the volume meanwhile.
    pub(crate) fn compare(&self, marks: &Marks) -> Vec<SpaceMismatch> {
        let (ours, theirs) = (self.free_map(), marks.free_map());
        let mut mismatches = Vec::new();
        for (kind, a, b) in
            [(MismatchKind::Leaked, &theirs, &ours), (MismatchKind::FreeInUse, &ours, &theirs)]
        {
            for (start, end) in difference(&a.pages, &b.pages).runs() {
                let bytes = u64::from(end - start) * PAGE_SIZE;
                mismatches.push(SpaceMismatch { addr: page_addr(start), bytes, kind });
            }
            for (&page, slab) in &a.slabs {
                let same = b.slabs.get(&page).filter(|other| other.class == slab.class);
                let extra = slab.bits & !same.map_or(0, |other| other.bits);
                let whole = b.pages.contains(page);
                for slot in (0..64).filter(|slot| !whole && extra >> slot & 1 != 0) {
                    let bytes = slab.class.bytes();
                    mismatches.push(SpaceMismatch { addr: page_addr(page).add(slot * bytes), bytes, kind });
                }
            }
            for (&chunk, slots) in &a.chunks {
                let other = b.chunks.get(&chunk).copied().unwrap_or_default();
                for slot in (0..256).filter(|&s| (slots[s / 64] & !other[s / 64]) >> (s % 64) & 1 != 0) {
                    let addr = slot_addr(chunk, slot as u32);
                    mismatches.push(SpaceMismatch { addr, bytes: HEADER_BYTES, kind });
                }
            }
        }
        for (start, end) in other_counts(&ours.shared, &theirs.shared) {
            let bytes = u64::from(end - start) * PAGE_SIZE;
            let kind = MismatchKind::WrongCount;
            mismatches.push(SpaceMismatch { addr: page_addr(start), bytes, kind });
        }
        mismatches.sort_unstable();
        mismatches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_with_other_counts_are_reported() {
        let run = |page, pages, pointers| SharedRun { page, pages, pointers };
        assert_eq!(other_counts(&[], &[]), []);
        assert_eq!(other_counts(&[run(4, 4, 2)], &[run(4, 4, 2)]), []);
        let split = [run(4, 1, 2), run(5, 1, 3), run(6, 2, 2)];
        assert_eq!(other_counts(&[run(4, 4, 2)], &split), [(5, 6)]);
        assert_eq!(other_counts(&split, &[run(4, 4, 2)]), [(5, 6)]);
        assert_eq!(other_counts(&[run(4, 4, 2)], &[run(6, 4, 2)]), [(4, 6), (8, 10)]);
        assert_eq!(other_counts(&[run(4, 4, 2)], &[run(4, 2, 3), run(6, 2, 4)]), [(4, 8)]);
    }
}
