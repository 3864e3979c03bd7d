//! Comparing what is free with what is in use: to check a volume.

use std::fmt;

use eyrie_medium::Addr;

use super::bits::Bits;
use super::geometry::page_addr;
use super::headers::slot_addr;
use super::layout::HEADER_BYTES;
use super::marks::Marks;
use super::space::Space;

/// How space and objects disagree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FindingKind {
    /// Not free, but no object reaches it: lost until the volume is rebuilt.
    Leaked,
    /// Free, but an object reaches it: it would be given out twice.
    FreeInUse,
}

/// A range whose state contradicts what the objects reach.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Its start.
    pub addr: Addr,
    /// Its length, in bytes.
    pub bytes: u64,
    /// What is wrong.
    pub kind: FindingKind,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            FindingKind::Leaked => "bytes are in use, but no object reaches them",
            FindingKind::FreeInUse => "bytes are free, but an object reaches them",
        };
        write!(f, "{}: {} {what}", self.addr, self.bytes)
    }
}

/// The bits of `a` that are not in `b`.
fn difference(a: &Bits, b: &Bits) -> Bits {
    let other = b.words().iter().copied().chain(std::iter::repeat(0));
    Bits::from_words(a.words().iter().zip(other).map(|(&a, b)| a & !b).collect())
}

impl Space {
    /// Compares what is free with what the objects do not use, range by range. Exact while nothing else runs.
    pub fn compare(&self, marks: &Marks) -> Vec<Finding> {
        let (ours, theirs) = (self.free_map(), marks.free_map());
        let mut findings = Vec::new();
        for (kind, a, b) in [(FindingKind::Leaked, &theirs, &ours), (FindingKind::FreeInUse, &ours, &theirs)]
        {
            for (start, end) in difference(&a.pages, &b.pages).runs() {
                let bytes = u64::from(end - start) * 4096;
                findings.push(Finding { addr: page_addr(start), bytes, kind });
            }
            for (&page, slab) in &a.slabs {
                let same = b.slabs.get(&page).filter(|other| other.class == slab.class);
                let extra = slab.bits & !same.map_or(0, |other| other.bits);
                let whole = b.pages.contains(page);
                for slot in (0..64).filter(|slot| !whole && extra >> slot & 1 != 0) {
                    let bytes = slab.class.bytes();
                    findings.push(Finding { addr: page_addr(page).add(slot * bytes), bytes, kind });
                }
            }
            for (&chunk, slots) in &a.chunks {
                let other = b.chunks.get(&chunk).copied().unwrap_or_default();
                for slot in (0..256).filter(|&s| (slots[s / 64] & !other[s / 64]) >> (s % 64) & 1 != 0) {
                    let addr = slot_addr(chunk, slot as u32);
                    findings.push(Finding { addr, bytes: HEADER_BYTES, kind });
                }
            }
        }
        findings.sort_unstable();
        findings
    }
}
