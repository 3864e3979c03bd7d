//! Compares free memory with the memory in use, to check a volume.

use std::collections::HashSet;
use std::fmt;

use eyrie_medium::{Addr, PAGE_SIZE};

use super::allocator::Space;
use super::bits::Bits;
use super::headers::slot_addr;
use super::marks::Marks;
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

impl Space {
    /// Compares the free memory with the memory that no object uses, range by range. The result is exact if
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
        let known: HashSet<_> = ours.shared.iter().collect();
        let found: HashSet<_> = theirs.shared.iter().collect();
        for run in known.symmetric_difference(&found) {
            let (addr, bytes) = (page_addr(run.page), u64::from(run.pages) * PAGE_SIZE);
            mismatches.push(SpaceMismatch { addr, bytes, kind: MismatchKind::WrongCount });
        }
        mismatches.sort_unstable();
        mismatches
    }
}
