//! Bytes of a collection's table, the mapping of hashes to buckets, and the places of buckets.
//!
//! `docs/format.md` is the description; this module is its executable form.

use std::mem::offset_of;

use eyrie_medium::Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::PAGE_BYTES;
use crate::extent::Class;
use crate::object::pointer::Pointer;

/// Bytes before the segment pointers of a table.
pub(crate) const TABLE_HEAD: u64 = size_of::<TableHead>() as u64;
/// Bytes of a new collection's table.
pub(crate) const FIRST_TABLE_BYTES: u64 = 128;
/// log2 of the buckets of the largest segment. An extent of 64 MiB holds no more, so segments stop doubling
/// here.
const MAX_STEP_LOG2: u32 = (Class::MAX_BYTES / PAGE_BYTES).ilog2();
/// First bucket of the segments of equal size.
const FLAT_BUCKET: u64 = 1 << (MAX_STEP_LOG2 + 3);
/// The segment of that bucket.
const FLAT_SEGMENT: u64 = 4 * (MAX_STEP_LOG2 as u64 + 2);
/// More buckets than any table holds: a table of 64 MiB has 8 Mi pointers to 32 Ki buckets each.
const MAX_BUCKETS: u64 = 1 << 40;

/// The start of a table. Segment pointers follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct TableHead {
    /// Number of [`Buckets`].
    pub buckets: u64,
    /// Zero.
    pub reserved: [u8; 56],
}

const _: () = assert!(size_of::<TableHead>() == 64 && offset_of!(TableHead, buckets) == 0);

/// The number of buckets, at least 1. It decides the bucket of a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buckets(u64);

impl Buckets {
    /// `count` buckets; `None` if no collection can have so many.
    pub const fn new(count: u64) -> Option<Buckets> {
        if count >= 1 && count <= MAX_BUCKETS { Some(Buckets(count)) } else { None }
    }

    /// The number.
    pub const fn count(self) -> u64 {
        self.0
    }

    /// The bucket of a hash.
    #[inline]
    pub const fn of(self, hash: u64) -> u64 {
        let low = 1_u64 << self.0.ilog2();
        let bucket = hash & (low * 2 - 1);
        if bucket < self.0 { bucket } else { bucket & (low - 1) }
    }

    /// Number of low bits that the hashes of a bucket share.
    #[inline]
    pub const fn level(self, bucket: u64) -> u32 {
        let low = 1_u64 << self.0.ilog2();
        if bucket >= low || bucket < self.0 - low { self.0.ilog2() + 1 } else { self.0.ilog2() }
    }

    /// The bucket that is split next. The new bucket is number [`Buckets::count`].
    pub(crate) const fn next_split(self) -> u64 {
        self.0 - (1 << self.0.ilog2())
    }
}

/// The place of a bucket's first page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketPlace {
    /// Index in the table.
    pub segment: u64,
    /// Bucket in the segment.
    pub index: u64,
    /// Buckets of the segment.
    pub step: u64,
}

impl BucketPlace {
    /// The place of a bucket: four segments for each doubling, then segments of 64 MiB. From four
    /// buckets on, a new segment adds at most a quarter to the room of the collection.
    #[inline]
    pub const fn of(bucket: u64) -> BucketPlace {
        if bucket < 4 {
            return BucketPlace { segment: bucket, index: 0, step: 1 };
        }
        if bucket >= FLAT_BUCKET {
            let step = 1 << MAX_STEP_LOG2;
            let segment = FLAT_SEGMENT + ((bucket - FLAT_BUCKET) >> MAX_STEP_LOG2);
            return BucketPlace { segment, index: bucket & (step - 1), step };
        }
        let exponent = bucket.ilog2();
        let shift = exponent - 2;
        let segment = 4 * (exponent as u64 - 1) + (bucket >> shift & 3);
        BucketPlace { segment, index: bucket & ((1 << shift) - 1), step: 1 << shift }
    }

    /// Number of buckets in a segment.
    pub(crate) const fn buckets_of(segment: u64) -> u64 {
        match segment {
            0..4 => 1,
            4..FLAT_SEGMENT => 1 << (segment / 4 - 1),
            _ => 1 << MAX_STEP_LOG2,
        }
    }
}

/// Segment pointers that fit a table of `bytes`.
pub const fn table_slots(bytes: u64) -> u64 {
    (bytes - TABLE_HEAD) / 8
}

/// Address of the pointer to a segment in the table at `table`.
pub const fn segment_slot(table: Addr, segment: u64) -> Addr {
    table.add(TABLE_HEAD + segment * 8)
}

/// True if a pointer to a table, a segment or a page has no bits set besides class and address.
pub const fn is_plain(pointer: Pointer) -> bool {
    pointer.raw() & 63 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::{assert_described, fields};

    #[test]
    fn the_description_agrees() {
        let table = fields!(TableHead { buckets, reserved });
        assert_described("Collection table", size_of::<TableHead>(), &table);
    }

    #[test]
    fn segments_hold_consecutive_buckets() {
        let mut expected = BucketPlace { segment: 0, index: 0, step: 1 };
        for bucket in 0..(1 << 19) {
            let place = BucketPlace::of(bucket);
            if place.segment == expected.segment {
                assert_eq!((place.index, place.step), (expected.index, expected.step), "bucket {bucket}");
            } else {
                assert_eq!(expected.index, expected.step, "segment before bucket {bucket} is full");
                assert_eq!((place.segment, place.index), (expected.segment + 1, 0), "bucket {bucket}");
                assert!(place.step == expected.step || place.step == expected.step * 2);
                assert!(place.step * PAGE_BYTES <= Class::MAX_BYTES);
            }
            assert_eq!(BucketPlace::buckets_of(place.segment), place.step);
            expected = BucketPlace { index: place.index + 1, ..place };
        }
    }

    #[test]
    fn bucket_holds_hashes_with_its_low_bits() {
        for count in 1..70 {
            let buckets = Buckets::new(count).expect("few");
            for hash in 0..512_u64 {
                let bucket = buckets.of(hash);
                assert!(bucket < count);
                let mask = (1 << buckets.level(bucket)) - 1;
                assert_eq!(hash & mask, bucket, "{hash} of {count}");
                let after = Buckets::new(count + 1).expect("few").of(hash);
                assert!(after == bucket || bucket == buckets.next_split() && after == count);
            }
        }
    }
}
