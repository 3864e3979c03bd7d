//! The structures of a volume on media, as `docs/format.md` describes them.
//!
//! All structures are plain old data: fixed-width little-endian integers, without padding, with zeros as
//! reserved bytes. The types of this module accept any value. The modules `tables::superblock` and
//! `space::saved` and the type [`Geometry`](super::Geometry) check the values.

use std::mem::{align_of, offset_of, size_of};

use eyrie_medium::{Addr, LINE_SIZE, PAGE_SIZE, SegmentId};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"EYRIEVOL";
/// First bytes of every segment but the first.
pub const SEGMENT_MAGIC: [u8; 8] = *b"EYRIESEG";
/// First bytes of a saved allocator.
pub(crate) const SAVED_MAGIC: [u8; 8] = *b"EYRIEFRE";
/// Version of the format that this crate reads and writes.
pub const FORMAT_VERSION: u32 = 1;
/// Compatible features that this crate knows. A volume may also have unknown compatible features.
pub(crate) const COMPAT: u64 = 0;
/// The features of [`Superblock::ro_compat`] that this crate knows. A program that writes to a volume must
/// know all of the volume's features of this kind.
pub(crate) const RO_COMPAT: u64 = 0;
/// The features of [`Superblock::incompat`] that this crate knows. A program that reads a volume must know
/// all of the volume's features of this kind.
pub(crate) const INCOMPAT: u64 =
    CHECKSUMS | ACLS | INODE_FLAGS | PREALLOCATION | CAPABILITIES | SHARED_EXTENTS | QUOTAS;
/// The incompatible feature of a volume on a disk, if the pages of the volume have checksums.
pub(crate) const CHECKSUMS: u64 = 1;
/// Objects may have ACLs. The bit is set before the first ACL is stored, and stays set.
pub(crate) const ACLS: u64 = 2;
/// Objects may have inode flags. The bit is set before the first flag is stored, and stays set.
pub(crate) const INODE_FLAGS: u64 = 4;
/// Files may have storage past their end. The bit is set before the first such storage, and stays set.
pub(crate) const PREALLOCATION: u64 = 8;
/// Objects may have `security.capability`. The bit is set before the first such attribute is stored, and
/// stays set.
pub(crate) const CAPABILITIES: u64 = 16;
/// Several pointers may lead to an extent. The bit is set before the first clone, and stays set.
pub(crate) const SHARED_EXTENTS: u64 = 32;
/// The volume may have quotas, and objects may have project ids. The bit is set before the first limits are
/// stored, and stays set.
pub(crate) const QUOTAS: u64 = 64;

/// The volume is in shared memory of the host.
pub(crate) const MEDIUM_DRAM: u8 = 1;
/// The volume is on persistent memory.
pub(crate) const MEDIUM_PMEM: u8 = 2;
/// The volume is on a disk.
pub(crate) const MEDIUM_PAGED: u8 = 3;

/// Number of entries in the table of segments.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// Size of a header chunk, in bytes. Storage becomes header slots in units of this size.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Size of an object's header, in bytes.
pub const HEADER_BYTES: u64 = 256;
/// Number of headers in a chunk.
pub(crate) const HEADERS_PER_CHUNK: u64 = CHUNK_BYTES / HEADER_BYTES;
/// Number of redo slots. A thread takes one slot for each commit of several words. Sixteen slots are enough,
/// so threads seldom wait for one.
pub const REDO_SLOTS: usize = 16;
/// Size of a redo slot, in bytes.
pub const REDO_SLOT_BYTES: u64 = PAGE_SIZE;
/// Largest size of a group, in bytes. The largest extent has this size.
pub(crate) const MAX_GROUP_BYTES: u64 = 64 << 20;
/// Smallest size of a group, in bytes. A header chunk has this size, and no allocation is larger than a
/// group.
pub(crate) const MIN_GROUP_BYTES: u64 = CHUNK_BYTES;

/// The two copies of the superblock.
pub const SUPERBLOCKS: [Addr; 2] = [page(0), page(1)];
/// The volume page.
pub const VOLUME_PAGE: Addr = page(2);
/// Number of the page of the first redo slot.
const REDO: u64 = 3;
/// The header-chunk bitmap.
pub const CHUNK_MAP: Addr = page(REDO + REDO_SLOTS as u64);

const fn page(number: u64) -> Addr {
    Addr::new(SegmentId(0), number * PAGE_SIZE)
}

/// Returns the address of redo slot `index` (below [`REDO_SLOTS`]).
pub const fn redo_slot(index: usize) -> Addr {
    debug_assert!(index < REDO_SLOTS);
    page(REDO).add(index as u64 * REDO_SLOT_BYTES)
}

/// The identity and the sizes of a volume. A volume stores its superblock twice. Readers use the valid copy
/// with the higher sequence number.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
    pub version: U32,
    /// crc32c of the page without these four bytes.
    pub checksum: U32,
    /// Number of writes of the superblock.
    pub sequence: U64,
    /// Random bytes that name the volume.
    pub volume_id: [u8; 16],
    /// Features that an older program may ignore.
    pub compat: U64,
    /// Features that an older program may ignore while it only reads.
    pub ro_compat: U64,
    /// Features that an older program may not ignore.
    pub incompat: U64,
    /// Size of a block: 4096 bytes.
    pub block_bytes: U32,
    /// Number of realms: 1.
    pub realms: U32,
    /// Size of a group, in bytes.
    pub group_bytes: U64,
    /// Size of the volume, in bytes.
    pub volume_bytes: U64,
    /// Key of the hash of names.
    pub hash_seed: U64,
    /// Object id of the root directory, or 0 until the root directory exists.
    pub root: U64,
    /// Time of creation, in seconds since 1970.
    pub created_seconds: I64,
    /// Nanoseconds after `created_seconds`.
    pub created_nanoseconds: U32,
    /// Number of segments: 1.
    pub segments: U32,
    /// The medium: `MEDIUM_DRAM`, `MEDIUM_PMEM` or `MEDIUM_PAGED`.
    pub medium: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// Largest size that the volume can have without moving its data. The header-chunk bitmap covers this
    /// number of bytes.
    pub most_bytes: U64,
    /// Number of bytes of a block device that the volume takes, with its journal and its checksums. 0 for a
    /// volume in a file.
    pub disk_bytes: U64,
    /// Zero.
    pub reserved_1: [u8; 112],
    /// Size of each segment, in bytes. Entries past the last segment are zero.
    pub segment_bytes: [U64; MAX_SEGMENTS],
    /// Zero.
    pub reserved_end: [u8; 3328],
}

/// First bytes of every segment but the first. The superblock also has the id of the volume and the sizes of
/// the segments.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SegmentHeader {
    /// [`SEGMENT_MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
    pub version: U32,
    /// crc32c of the header without these four bytes.
    pub checksum: U32,
    /// Id of the volume.
    pub volume_id: [u8; 16],
    /// Number of the segment in the volume.
    pub segment: U16,
    /// Zero.
    pub reserved: [u8; 6],
    /// Size of the segment, in bytes.
    pub bytes: U64,
    /// Zero.
    pub reserved_end: [u8; 16],
}

/// Words that are published one at a time, a description of the saved allocator, and the records of requests.
/// The description is valid only while the clean mark is set. The fields of the description share a line with
/// the mark.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct VolumePage {
    /// Generations from this number on were never assigned.
    pub generation_limit: U64,
    /// Zero.
    pub reserved_0: [u8; 56],
    /// Number of groups in use, counted from the first group. Only a resize to a smaller size lowers this
    /// number.
    pub groups_in_use: U64,
    /// Zero.
    pub reserved_1: [u8; 56],
    /// [`CLEAN`] when the saved allocator describes the free space, otherwise 0.
    pub clean: U64,
    /// Address of the saved allocator, in free space.
    pub saved_addr: U64,
    /// Length of the saved allocator, in bytes.
    pub saved_bytes: U64,
    /// crc32c of the saved allocator.
    pub saved_checksum: U32,
    /// Zero.
    pub reserved_2: [u8; 36],
    /// Number of times that the volume has been opened for changes. Each such open increments the number
    /// before it changes anything else, and counts as an owner of its own, even if one process opens the
    /// volume several times.
    pub owners: U64,
    /// Zero.
    pub reserved_3: [u8; 56],
    /// The request that the service of the volume is applying.
    pub request: RequestRecord,
    /// Results of the latest requests during which a service ended. The number of the owner that found a
    /// result, modulo 32, selects the place of the result.
    pub outcomes: [OutcomeRecord; OUTCOMES],
    /// Zero.
    pub reserved_4: [u8; 2496],
}

/// Number of results of requests that a volume keeps. Each owner keeps at most one. So the volume has the
/// results that the present owner and the 31 owners before it have found.
pub(crate) const OUTCOMES: usize = 32;

/// A request that a service is applying. From this record, the next owner finds out if the change was made.
/// The change was made if the object `new`, or else the object that the request changes, exists and has the
/// change time of this record. The records of a write and of a new access time name no object. These changes
/// count as not made, because a client can repeat them without harm.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RequestRecord {
    /// Key of the session that made the request. The record counts only if the key is not 0.
    pub key: U64,
    /// Number of the request in its session.
    pub number: U64,
    /// The object that the request changes, or a directory (see `name_bytes`). 0 if there is none.
    pub object: U64,
    /// The object that the change makes, or 0.
    pub new: U64,
    /// Change time that the change gives to the object, in seconds since 1970.
    pub seconds: I64,
    /// Nanoseconds after `seconds`. 2^32 - 1 if an earlier change may have the same time.
    pub nanoseconds: U32,
    /// Length of `name`. If it is not 0, the request changes the object that has this name in the directory
    /// `object`.
    pub name_bytes: U32,
    /// Number of bytes that the change appends.
    pub appended: U64,
    /// A name.
    pub name: [u8; 256],
    /// Zero.
    pub reserved: [u8; 8],
}

/// The result of a request during which a service ended.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OutcomeRecord {
    /// Key of the session that made the request. 0 if this place has no result.
    pub key: U64,
    /// Number of the request in its session.
    pub number: U64,
    /// Offset of the bytes that the change appended, or generation of the object that it created.
    pub result: U64,
    /// 0 if the change was not made, 1 if it was made, 2 if it was made and created an object, 3 if the
    /// result is unknown.
    pub made: U64,
}

/// The value of the clean mark: "CLOSED" and a version.
pub const CLEAN: u64 = u64::from_le_bytes(*b"CLOSED\x01\0");

/// The head of a saved allocator. Bits of free pages, [`SavedSlab`]s, [`SavedChunk`]s and [`SavedRun`]s
/// follow.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct SavedHeader {
    /// [`SAVED_MAGIC`].
    pub magic: [u8; 8],
    /// Version of the saved form: 1.
    pub version: U32,
    /// Zero.
    pub reserved: U32,
    /// Id of the volume.
    pub volume_id: [u8; 16],
    /// Number of 64-bit words of the bitmap of free pages. The bitmap starts with the first page of the
    /// volume, and a set bit is a free page.
    pub words: U64,
    /// Number of [`SavedSlab`]s.
    pub slabs: U64,
    /// Number of [`SavedChunk`]s.
    pub chunks: U64,
    /// Bytes of live extents and headers.
    pub live_bytes: U64,
    /// Number of live objects.
    pub objects: U64,
    /// Number of [`SavedRun`]s.
    pub shared: U64,
    /// Zero.
    pub reserved_end: [u8; 48],
}

/// A slab page with free slots, in a saved allocator.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct SavedSlab {
    /// Number of the page in the volume.
    pub page: U32,
    /// Number of the size class.
    pub class: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// One bit for each slot, set if the slot is free.
    pub free: U64,
}

/// A header chunk with free slots, in a saved allocator.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct SavedChunk {
    /// Number of the chunk in the volume.
    pub chunk: U32,
    /// Zero.
    pub reserved: U32,
    /// One bit for each slot, set if the slot is free.
    pub free: [U64; 4],
}

/// Consecutive pages with the same number of pointers, in a saved allocator.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct SavedRun {
    /// Number of the first page in the volume.
    pub page: U32,
    /// Number of pages.
    pub pages: U32,
    /// Number of pointers to each page, at least 2.
    pub pointers: U32,
    /// Zero.
    pub reserved: U32,
}

/// Address of the limit of assigned generations.
pub(crate) const GENERATION_LIMIT: Addr = VOLUME_PAGE.add(offset_of!(VolumePage, generation_limit) as u64);
/// Address of the number of groups in use.
pub(crate) const GROUPS_IN_USE: Addr = VOLUME_PAGE.add(offset_of!(VolumePage, groups_in_use) as u64);
/// Address of the id of the root directory in the first copy of the superblock.
pub(crate) const ROOT_ID: Addr = SUPERBLOCKS[0].add(offset_of!(Superblock, root) as u64);
/// Address of the clean mark. The fields of the saved allocator follow in the same line, and are valid only
/// with the mark.
pub const CLEAN_MARK: Addr = VOLUME_PAGE.add(offset_of!(VolumePage, clean) as u64);

/// Address of the number of opens of the volume for changes.
pub(crate) const OWNERS: Addr = VOLUME_PAGE.add(offset_of!(VolumePage, owners) as u64);
/// Address of the record of the request that a service is applying.
pub(crate) const REQUEST: Addr = VOLUME_PAGE.add(offset_of!(VolumePage, request) as u64);

/// Returns the address of the result that owner number `owner` has found.
pub(crate) fn outcome_of(owner: u64) -> Addr {
    let at = offset_of!(VolumePage, outcomes) as u64;
    VOLUME_PAGE.add(at + owner % OUTCOMES as u64 * size_of::<OutcomeRecord>() as u64)
}

const _: () = {
    assert!(size_of::<Superblock>() == PAGE_SIZE as usize && align_of::<Superblock>() == 1);
    assert!(offset_of!(Superblock, checksum) == 12);
    assert!(offset_of!(Superblock, compat) == 40);
    assert!(offset_of!(Superblock, group_bytes) == 72);
    assert!(offset_of!(Superblock, segment_bytes) == 256);
    assert!(size_of::<SegmentHeader>() == 64 && align_of::<SegmentHeader>() == 1);
    assert!(size_of::<VolumePage>() == PAGE_SIZE as usize && align_of::<VolumePage>() == 1);
    assert!(GENERATION_LIMIT.is_aligned(LINE_SIZE));
    assert!(GROUPS_IN_USE.is_aligned(LINE_SIZE));
    assert!(CLEAN_MARK.is_aligned(LINE_SIZE));
    assert!(OWNERS.is_aligned(LINE_SIZE) && REQUEST.is_aligned(LINE_SIZE));
    assert!(size_of::<RequestRecord>() == 320 && size_of::<OutcomeRecord>() == 32);
    assert!(size_of::<SavedHeader>() == 128);
    assert!(size_of::<SavedSlab>() == 16);
    assert!(size_of::<SavedChunk>() == 40);
    assert!(size_of::<SavedRun>() == 16);
    assert!(REDO_SLOT_BYTES.is_multiple_of(PAGE_SIZE));
    assert!(HEADERS_PER_CHUNK == 256);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_doc::{assert_described, fields};

    #[test]
    fn format_page_matches_layout() {
        assert_described(
            "Superblock",
            size_of::<Superblock>(),
            &fields!(Superblock {
                magic,
                version,
                checksum,
                sequence,
                volume_id,
                compat,
                ro_compat,
                incompat,
                block_bytes,
                realms,
                group_bytes,
                volume_bytes,
                hash_seed,
                root,
                created_seconds,
                created_nanoseconds,
                segments,
                medium,
                reserved,
                most_bytes,
                disk_bytes,
                reserved_1,
                segment_bytes,
                reserved_end
            }),
        );
        assert_described(
            "Segment header",
            size_of::<SegmentHeader>(),
            &fields!(SegmentHeader {
                magic,
                version,
                checksum,
                volume_id,
                segment,
                reserved,
                bytes,
                reserved_end
            }),
        );
        assert_described(
            "Volume page",
            size_of::<VolumePage>(),
            &fields!(VolumePage {
                generation_limit,
                reserved_0,
                groups_in_use,
                reserved_1,
                clean,
                saved_addr,
                saved_bytes,
                saved_checksum,
                reserved_2,
                owners,
                reserved_3,
                request,
                outcomes,
                reserved_4
            }),
        );
    }

    #[test]
    fn format_page_matches_records_of_requests() {
        assert_described(
            "Request record",
            size_of::<RequestRecord>(),
            &fields!(RequestRecord {
                key,
                number,
                object,
                new,
                seconds,
                nanoseconds,
                name_bytes,
                appended,
                name,
                reserved
            }),
        );
        assert_described(
            "Outcome record",
            size_of::<OutcomeRecord>(),
            &fields!(OutcomeRecord { key, number, result, made }),
        );
    }

    #[test]
    fn format_page_matches_saved_allocator() {
        assert_described(
            "Saved allocator",
            size_of::<SavedHeader>(),
            &fields!(SavedHeader {
                magic,
                version,
                reserved,
                volume_id,
                words,
                slabs,
                chunks,
                live_bytes,
                objects,
                shared,
                reserved_end
            }),
        );
        assert_described(
            "Saved slab page",
            size_of::<SavedSlab>(),
            &fields!(SavedSlab { page, class, reserved, free }),
        );
        assert_described(
            "Saved header chunk",
            size_of::<SavedChunk>(),
            &fields!(SavedChunk { chunk, reserved, free }),
        );
        assert_described(
            "Saved run of shared pages",
            size_of::<SavedRun>(),
            &fields!(SavedRun { page, pages, pointers, reserved }),
        );
    }
}
