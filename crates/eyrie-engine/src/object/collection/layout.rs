//! Bytes of a collection: the table, bucket pages, their commit words and records.
//!
//! `docs/format.md` is the description; this module is its executable form.

use std::mem::offset_of;

use eyrie_medium::Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::object::pointer::{Class, Extent, Pointer};
use crate::{ObjectId, Time};

/// Longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// Bytes of a bucket page.
pub const PAGE_BYTES: u64 = 2048;
/// Entries that a page can hold.
pub const SLOTS: u32 = 32;
/// Unit of record offsets and lengths, in bytes.
pub const UNIT: u64 = 8;
/// Units of a page.
pub const PAGE_UNITS: u32 = (PAGE_BYTES / UNIT) as u32;
/// First unit of the record heap.
pub const HEAP_UNIT: u32 = (size_of::<PageHead>() as u64 / UNIT) as u32;
/// Bytes of the longest record.
pub const MAX_RECORD: usize = record_bytes(MAX_NAME);
/// Pages of one bucket; a longer chain is taken for a cycle.
pub const MAX_CHAIN: usize = 4096;

/// Bytes before the segment pointers of a table.
pub const TABLE_HEAD: u64 = size_of::<TableHead>() as u64;
/// Bytes of a new collection's table.
pub const FIRST_TABLE_BYTES: u64 = 128;
/// Segments stop doubling here: log2 of the buckets of the largest.
const MAX_STEP_LOG2: u32 = (Class::MAX_BYTES / PAGE_BYTES).ilog2();
/// First bucket of the flat segments, and its segment.
const FLAT_BUCKET: u64 = 1 << (MAX_STEP_LOG2 + 3);
const FLAT_SEGMENT: u64 = 4 * (MAX_STEP_LOG2 as u64 + 2);
/// More buckets than any table holds: a table of 64 MiB has 8 Mi pointers to 32 Ki buckets each.
const MAX_BUCKETS: u64 = 1 << 40;

/// The start of a table; segment pointers follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct TableHead {
    /// Number of [`Buckets`].
    pub buckets: u64,
    /// Zero.
    pub reserved: [u8; 56],
}

/// The time that a page was changed, and the epoch of the directory's times that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Stamp {
    /// Whole seconds since 1970; [`Stamp::NONE`] says that there was no change.
    pub seconds: i64,
    /// Nanoseconds after them.
    pub nanoseconds: u32,
    /// Epoch of the directory's times.
    pub epoch: u32,
}

impl Stamp {
    /// No change yet: before every time.
    pub const NONE: Stamp = Stamp { seconds: i64::MIN, nanoseconds: 0, epoch: 0 };

    /// The stamp for a change at `time`.
    pub fn new(time: Time, epoch: u32) -> Stamp {
        Stamp { seconds: time.seconds, nanoseconds: time.nanoseconds, epoch }
    }

    /// The time, if there was a change.
    pub fn time(self) -> Option<Time> {
        (self.seconds != i64::MIN).then_some(Time::new(self.seconds, self.nanoseconds))
    }
}

/// All of a bucket page but its records.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct PageHead {
    /// The [`Commit`] word.
    pub commit: u64,
    /// Pointer to a further page of the same bucket, or 0.
    pub link: u64,
    /// A byte of each entry's hash.
    pub tags: [u8; 32],
    /// A bit for each slot: the entry is a directory.
    pub directories: u64,
    /// Zero.
    pub reserved: u64,
    /// Where each record begins, in units from the start of the page.
    pub offsets: [u8; 32],
    /// Length of each record, in units.
    pub lengths: [u8; 32],
    /// Two stamps, of which the commit word says which counts.
    pub stamps: [Stamp; 2],
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RecordHead {
    /// Keyed hash of the name.
    pub hash: u64,
    /// Raw id of the object.
    pub id: u64,
    /// Bytes of the name, 1 to 255.
    pub name_len: u16,
    /// The name's first bytes; the others follow.
    pub name: [u8; 6],
}

/// Offset of [`PageHead::link`], in bytes.
pub const LINK: u64 = offset_of!(PageHead, link) as u64;
/// Offset of [`PageHead::tags`], in bytes.
pub const TAGS: u64 = offset_of!(PageHead, tags) as u64;
/// Offset of [`PageHead::directories`], in bytes.
pub const DIRECTORIES: u64 = offset_of!(PageHead, directories) as u64;
/// Offset of [`PageHead::offsets`], in bytes.
pub const OFFSETS: u64 = offset_of!(PageHead, offsets) as u64;
/// Offset of [`PageHead::lengths`], in bytes.
pub const LENGTHS: u64 = offset_of!(PageHead, lengths) as u64;
/// Offset of [`PageHead::stamps`], in bytes.
pub const STAMPS: u64 = offset_of!(PageHead, stamps) as u64;
/// Offset of the name in a record, in bytes.
pub const RECORD_NAME: usize = offset_of!(RecordHead, name);

const _: () = {
    assert!(cfg!(target_endian = "little"), "words are stored as the processor has them");
    assert!(size_of::<TableHead>() == 64 && offset_of!(TableHead, buckets) == 0);
    assert!(size_of::<Stamp>() == 16 && size_of::<PageHead>() == 160 && size_of::<RecordHead>() == 24);
    assert!(LINK == 8 && TAGS == 16 && DIRECTORIES == 48 && OFFSETS == 64 && LENGTHS == 96 && STAMPS == 128);
    assert!(Class::HALF_PAGE.bytes() == PAGE_BYTES);
    assert!(HEAP_UNIT == 20 && PAGE_UNITS == 256 && RECORD_NAME == 18 && MAX_RECORD == 280);
};

/// The memory of the bucket page at `addr`, in a segment of its own or not.
pub const fn page_extent(addr: Addr) -> Extent {
    Extent { addr, class: Class::HALF_PAGE }
}

/// Bytes of the record of a name of `name_len` bytes.
pub const fn record_bytes(name_len: usize) -> usize {
    (RECORD_NAME + name_len).next_multiple_of(UNIT as usize)
}

/// A record as it is stored, in a buffer for the longest one.
#[derive(Clone, Copy)]
pub struct Record {
    bytes: [u8; MAX_RECORD],
    len: usize,
}

impl Record {
    /// The record of an entry; names are 1 to 255 bytes.
    #[inline(always)]
    pub fn new(hash: u64, id: ObjectId, name: &[u8]) -> Record {
        debug_assert!((1..=MAX_NAME).contains(&name.len()));
        let mut bytes = [0; MAX_RECORD];
        bytes[..8].copy_from_slice(&hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&id.raw().to_le_bytes());
        bytes[16..18].copy_from_slice(&(name.len() as u16).to_le_bytes());
        bytes[RECORD_NAME..RECORD_NAME + name.len()].copy_from_slice(name);
        Record { bytes, len: record_bytes(name.len()) }
    }

    /// The bytes to store.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Its length in units.
    pub fn units(&self) -> u32 {
        (self.len as u64 / UNIT) as u32
    }
}

/// A page's commit word: bits 0..32 which slots are live, 32..57 version, 57..63 level, 63 which stamp counts.
///
/// The level is the number of hash bits that all live entries were last known to share: while it is what the bucket
/// count asks for, every live entry counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit(u64);

impl Commit {
    const VERSION_SHIFT: u32 = 32;
    const VERSION_MASK: u64 = (1 << 25) - 1;
    const LEVEL_SHIFT: u32 = 57;
    const LEVEL_MASK: u64 = 63;
    const SELECTOR_SHIFT: u32 = 63;

    /// The commit word of a new page.
    pub const fn new(live: u32, level: u32) -> Commit {
        Commit(1 << Commit::VERSION_SHIFT).with_live(live).with_level(level)
    }

    /// The commit word with this stored form.
    pub const fn from_raw(raw: u64) -> Commit {
        Commit(raw)
    }

    /// The form that is stored.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// A bit for each slot that holds an entry.
    pub const fn live(self) -> u32 {
        self.0 as u32
    }

    /// Hash bits that the live entries share.
    pub const fn level(self) -> u32 {
        (self.0 >> Commit::LEVEL_SHIFT & Commit::LEVEL_MASK) as u32
    }

    /// Which stamp counts.
    pub const fn selector(self) -> usize {
        (self.0 >> Commit::SELECTOR_SHIFT) as usize
    }

    /// The same with other live slots.
    #[must_use]
    pub const fn with_live(self, live: u32) -> Commit {
        Commit(self.0 & !(u32::MAX as u64) | live as u64)
    }

    /// The same with another level.
    #[must_use]
    pub const fn with_level(self, level: u32) -> Commit {
        let others = self.0 & !(Commit::LEVEL_MASK << Commit::LEVEL_SHIFT);
        Commit(others | (level as u64 & Commit::LEVEL_MASK) << Commit::LEVEL_SHIFT)
    }

    /// The next version.
    #[must_use]
    pub const fn next(self) -> Commit {
        let version = (self.0 >> Commit::VERSION_SHIFT).wrapping_add(1) & Commit::VERSION_MASK;
        Commit(self.0 & !(Commit::VERSION_MASK << Commit::VERSION_SHIFT) | version << Commit::VERSION_SHIFT)
    }

    /// The next version, whose stamp is in the other place.
    #[must_use]
    pub const fn next_stamped(self) -> Commit {
        Commit(self.next().0 ^ 1 << Commit::SELECTOR_SHIFT)
    }
}

/// The number of buckets, at least 1: how hashes find their bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buckets(u64);

impl Buckets {
    /// `count` buckets, if a collection can have so many.
    pub const fn new(count: u64) -> Option<Buckets> {
        if count >= 1 && count <= MAX_BUCKETS { Some(Buckets(count)) } else { None }
    }

    /// How many.
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

    /// How many low bits the hashes of a bucket share.
    #[inline]
    pub const fn level(self, bucket: u64) -> u32 {
        let low = 1_u64 << self.0.ilog2();
        if bucket >= low || bucket < self.0 - low { self.0.ilog2() + 1 } else { self.0.ilog2() }
    }

    /// The bucket that is split next. The new bucket is number [`Buckets::count`].
    pub const fn next_split(self) -> u64 {
        self.0 - (1 << self.0.ilog2())
    }
}

/// Where a bucket's first page is: its segment, its number in it, and how many buckets the segment has.
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
    /// The place of a bucket: four segments a doubling, then segments of 64 MiB.
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

    /// Buckets of a segment.
    pub const fn buckets_of(segment: u64) -> u64 {
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

/// Where the pointer to a segment is in the table at `table`.
pub const fn segment_slot(table: Addr, segment: u64) -> Addr {
    table.add(TABLE_HEAD + segment * 8)
}

/// The tag of a hash: its high byte, which addresses no bucket.
pub const fn tag(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// Whether a pointer to a table, a segment or a page has the bits that it should.
pub const fn is_plain(pointer: Pointer) -> bool {
    pointer.raw() & 63 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::{assert_described, fields};

    #[test]
    fn the_description_agrees() {
        assert_described(
            "Collection table",
            size_of::<TableHead>(),
            &fields!(TableHead { buckets, reserved }),
        );
        let page = fields!(PageHead { commit, link, tags, directories, reserved, offsets, lengths, stamps });
        assert_described("Bucket page", size_of::<PageHead>(), &page);
        let stamp = fields!(Stamp { seconds, nanoseconds, epoch });
        assert_described("Stamp of a bucket page", size_of::<Stamp>(), &stamp);
        let record = fields!(RecordHead { hash, id, name_len, name });
        assert_described("Record", size_of::<RecordHead>(), &record);
    }

    #[test]
    fn segments_hold_their_buckets_one_after_another() {
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
    fn a_bucket_holds_the_hashes_that_share_its_low_bits() {
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

    #[test]
    fn a_commit_word_keeps_its_parts_apart() {
        let mut commit = Commit::new(0b101, 9);
        for _ in 0..40 {
            commit = commit.next_stamped();
        }
        assert_eq!((commit.live(), commit.level(), commit.selector()), (0b101, 9, 0));
        let last = Commit::from_raw(commit.raw() | Commit::VERSION_MASK << Commit::VERSION_SHIFT);
        assert_eq!(last.next().with_level(63).with_live(7).level(), 63);
        assert_eq!((last.next().live(), last.next().level(), last.next().selector()), (0b101, 9, 0));
    }
}
