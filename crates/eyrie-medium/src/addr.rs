//! Addresses: position-independent names of bytes in a volume.

use std::fmt;

/// Size of a cache line, in bytes. Lines persist independently of each other. Of the stores to one line, a
/// crash may keep only the first few.
pub const LINE_SIZE: u64 = 64;
/// Size of a page, the unit in which hosts provide memory, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// Number of bits of an offset, so the maximum size of a segment is 1 TiB. An offset and the number of its
/// segment take 56 bits together, because stored words keep other data in their upper 8 bits.
const OFFSET_BITS: u32 = 40;

/// Number of a segment (one file or block device of the host) in its volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub u16);

/// An address of 56 bits, the same in every process. The upper 16 bits are the number of a segment, and the
/// lower 40 are an offset in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr(u64);

#[doc(hidden)]
impl Addr {
    /// The null address. The superblock is at address 0, so no object has this address.
    pub const NULL: Addr = Addr(0);
    /// One more than the largest offset in a segment, in bytes.
    pub const MAX_OFFSET: u64 = 1 << OFFSET_BITS;
    /// Mask of the bits that an address may use.
    pub const MASK: u64 = (1 << (OFFSET_BITS + 16)) - 1;

    /// Returns the address `offset` bytes into `segment`. The offset must be below [`Addr::MAX_OFFSET`].
    pub const fn new(segment: SegmentId, offset: u64) -> Addr {
        debug_assert!(offset < Addr::MAX_OFFSET);
        Addr((segment.0 as u64) << OFFSET_BITS | offset)
    }

    /// Returns the address with this raw form. Bits outside [`Addr::MASK`] are kept, and they make every
    /// access fail.
    pub const fn from_raw(raw: u64) -> Addr {
        Addr(raw)
    }

    /// Returns the 64-bit form that is stored on media.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the segment's index. If bits outside [`Addr::MASK`] are set, the index is beyond the end of
    /// every table of segments.
    #[inline]
    pub const fn segment_index(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    /// Returns the offset in the segment, in bytes.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & (Addr::MAX_OFFSET - 1)
    }

    /// Returns the address `bytes` further on. If that address is outside the segment, every access to the
    /// result fails. A sum past the largest offset would carry into the number of the segment, so the result
    /// is then an address in no segment.
    #[inline]
    #[must_use]
    pub const fn add(self, bytes: u64) -> Addr {
        match self.offset().checked_add(bytes) {
            Some(end) if end < Addr::MAX_OFFSET => Addr(self.0 + bytes),
            _ => Addr(u64::MAX),
        }
    }

    /// Returns this address rounded down to a multiple of `align` bytes. `align` is a power of two.
    #[must_use]
    pub const fn align_down(self, align: u64) -> Addr {
        Addr(self.0 & !(align - 1))
    }

    /// Returns true if the address is null.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns true if the address is a multiple of `align` bytes. `align` is a power of two.
    #[inline]
    pub const fn is_aligned(self, align: u64) -> bool {
        self.0 & (align - 1) == 0
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.segment_index(), self.offset())
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_keeps_segment_and_offset() {
        let a = Addr::new(SegmentId(3), 0x1234);
        assert_eq!((a.segment_index(), a.offset()), (3, 0x1234));
        assert_eq!(Addr::from_raw(a.raw()), a);
        assert_eq!(a.add(6).offset(), 0x123a);
    }

    #[test]
    fn leaving_the_segment_gives_no_address() {
        let last = Addr::new(SegmentId(0), Addr::MAX_OFFSET - 1);
        assert!(last.add(1).segment_index() > usize::from(u16::MAX));
        assert!(last.add(u64::MAX).segment_index() > usize::from(u16::MAX));
    }
}
