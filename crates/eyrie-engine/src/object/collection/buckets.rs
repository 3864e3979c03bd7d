//! Bytes of a collection's table, the mapping of hashes to buckets, and the locations of buckets.
//!
//! `docs/format.md` describes these bytes. This module is the same description as code, and a test compares
//! the two.

use std::mem::offset_of;

use eyrie_medium::Addr;
use eyrie_medium::rules::{SafetyRule, broken};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::PAGE_BYTES;
use crate::extent::Class;
use crate::object::pointer::Pointer;

/// Bytes of a table before the pointers to its segments.
pub(crate) const TABLE_HEAD: u64 = size_of::<TableHead>() as u64;
/// Bytes of a new collection's table. The table has room for eight segments, which have one bucket each.
pub(crate) const FIRST_TABLE_BYTES: u64 = 128;
/// Binary logarithm of the number of buckets in the largest segment. This segment fills the largest extent,
/// 64 MiB, so segments stop doubling at this size.
const MAX_SEGMENT_LOG2: u32 = (Class::MAX_BYTES / PAGE_BYTES).ilog2();
/// From this bucket on, all segments have the largest size, so [`BucketPlace::of`] computes the segment of a
/// bucket with one shift.
const FLAT_BUCKET: u64 = 1 << (MAX_SEGMENT_LOG2 + 3);
/// The segment of bucket [`FLAT_BUCKET`].
const FLAT_SEGMENT: u64 = 4 * (MAX_SEGMENT_LOG2 as u64 + 2);
/// Maximum number of buckets. No sound table reaches this limit: the largest table has 64 MiB, so it has
/// fewer than 2^23 pointers to segments, and a segment has 2^15 buckets or fewer.
const MAX_BUCKETS: u64 = 1 << 40;

/// Number of shards of a collection. An Op on one entry locks only the shard of the entry's bucket. With
/// eight shards, two threads that change random entries of a large collection rarely wait for each other, and
/// an Op that locks all shards still locks only eight mutexes.
pub(crate) const SHARDS: usize = 8;

/// The start of a table. The pointers to the segments follow it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct TableHead {
    /// The number of buckets, as in [`Buckets`].
    pub buckets: u64,
    /// Zero.
    pub reserved: [u8; 56],
}

const _: () = assert!(size_of::<TableHead>() == 64 && offset_of!(TableHead, buckets) == 0);

/// The number of buckets of a collection, at least 1. With linear hashing, this number decides the bucket of
/// each hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buckets(u64);

impl Buckets {
    /// Returns `count` as a number of buckets, or `None` if `count` is 0 or more than the maximum.
    pub const fn new(count: u64) -> Option<Buckets> {
        if count >= 1 && count <= MAX_BUCKETS { Some(Buckets(count)) } else { None }
    }

    /// Returns the number.
    pub const fn count(self) -> u64 {
        self.0
    }

    /// Returns the bucket of a hash.
    #[inline]
    pub const fn of(self, hash: u64) -> u64 {
        let low = 1_u64 << self.0.ilog2();
        let bucket = hash & (low * 2 - 1);
        if bucket < self.0 { bucket } else { bucket & (low - 1) }
    }

    /// Returns the level of a bucket: the number of low bits that all hashes of the bucket share.
    #[inline]
    pub const fn level(self, bucket: u64) -> u32 {
        let low = 1_u64 << self.0.ilog2();
        if bucket >= low || bucket < self.0 - low { self.0.ilog2() + 1 } else { self.0.ilog2() }
    }

    /// Returns the shard of a hash, a number below [`SHARDS`]. All hashes of a bucket are in one shard. A
    /// collection with fewer buckets than shards uses only some of the shards.
    #[inline]
    pub(crate) fn shard(self, hash: u64) -> usize {
        let low = if broken(SafetyRule::BucketIsInOneShard) { u64::MAX } else { 1 << self.0.ilog2() };
        // The hashes of a bucket share at least as many low bits as this mask has.
        let mask = low.min(SHARDS as u64) - 1;
        (hash & mask) as usize
    }

    /// Returns the bucket that is split next. The new bucket gets the number [`Buckets::count`].
    pub(crate) const fn next_split(self) -> u64 {
        self.0 - (1 << self.0.ilog2())
    }
}

/// The location of a bucket's first page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketPlace {
    /// Index of the segment in the table.
    pub segment: u64,
    /// Index of the bucket in the segment.
    pub index: u64,
    /// Number of buckets in the segment.
    pub buckets_in_segment: u64,
}

impl BucketPlace {
    /// Returns the location of a bucket. Four segments belong to each doubling of the collection, until
    /// segments have 64 MiB. Therefore a new segment adds at most a quarter to a collection of four or more
    /// buckets.
    #[inline]
    pub const fn of(bucket: u64) -> BucketPlace {
        if bucket < 4 {
            return BucketPlace { segment: bucket, index: 0, buckets_in_segment: 1 };
        }
        if bucket >= FLAT_BUCKET {
            let buckets_in_segment = 1 << MAX_SEGMENT_LOG2;
            let segment = FLAT_SEGMENT + ((bucket - FLAT_BUCKET) >> MAX_SEGMENT_LOG2);
            return BucketPlace { segment, index: bucket & (buckets_in_segment - 1), buckets_in_segment };
        }
        let exponent = bucket.ilog2();
        let shift = exponent - 2;
        let segment = 4 * (exponent as u64 - 1) + (bucket >> shift & 3);
        BucketPlace { segment, index: bucket & ((1 << shift) - 1), buckets_in_segment: 1 << shift }
    }

    /// Returns the number of buckets in a segment.
    pub(crate) const fn buckets_of(segment: u64) -> u64 {
        match segment {
            0..4 => 1,
            4..FLAT_SEGMENT => 1 << (segment / 4 - 1),
            _ => 1 << MAX_SEGMENT_LOG2,
        }
    }
}

/// Returns the number of segment pointers that fit into a table of `bytes` bytes.
pub const fn table_slots(bytes: u64) -> u64 {
    (bytes - TABLE_HEAD) / 8
}

/// Returns the address of the pointer to a segment in the table at `table`.
pub const fn segment_slot(table: Addr, segment: u64) -> Addr {
    table.add(TABLE_HEAD + segment * 8)
}

/// True if a pointer has no bits set except its class and address. Pointers to tables, segments and bucket
/// pages have this form.
pub const fn is_plain(pointer: Pointer) -> bool {
    pointer.raw() & 63 == 0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::format_doc::{assert_described, fields};

    #[test]
    fn format_page_matches_tables_of_collections() {
        let table = fields!(TableHead { buckets, reserved });
        assert_described("Collection table", size_of::<TableHead>(), &table);
    }

    #[test]
    fn segments_hold_consecutive_buckets() {
        let mut expected = BucketPlace { segment: 0, index: 0, buckets_in_segment: 1 };
        for bucket in 0..(1 << 19) {
            let place = BucketPlace::of(bucket);
            if place.segment == expected.segment {
                assert_eq!(
                    (place.index, place.buckets_in_segment),
                    (expected.index, expected.buckets_in_segment),
                    "bucket {bucket}"
                );
            } else {
                assert_eq!(
                    expected.index, expected.buckets_in_segment,
                    "segment before bucket {bucket} is full"
                );
                assert_eq!((place.segment, place.index), (expected.segment + 1, 0), "bucket {bucket}");
                assert!(
                    place.buckets_in_segment == expected.buckets_in_segment
                        || place.buckets_in_segment == expected.buckets_in_segment * 2
                );
                assert!(place.buckets_in_segment * PAGE_BYTES <= Class::MAX_BYTES);
            }
            assert_eq!(BucketPlace::buckets_of(place.segment), place.buckets_in_segment);
            expected = BucketPlace { index: place.index + 1, ..place };
        }
    }

    #[test]
    fn bucket_holds_hashes_with_its_low_bits() {
        for count in 1..70 {
            let buckets = Buckets::new(count).expect("few");
            let mut shards = BTreeSet::new();
            for hash in 0..512_u64 {
                let bucket = buckets.of(hash);
                assert!(bucket < count);
                let mask = (1 << buckets.level(bucket)) - 1;
                assert_eq!(hash & mask, bucket, "{hash} of {count}");
                let shard = buckets.shard(hash);
                assert!(shard < SHARDS && shard == buckets.shard(bucket), "{hash} of {count}");
                shards.insert(shard);
                let after = Buckets::new(count + 1).expect("few").of(hash);
                assert!(after == bucket || bucket == buckets.next_split() && after == count);
            }
            assert_eq!(shards.len(), SHARDS.min(1 << count.ilog2()), "{count}");
        }
    }
}
