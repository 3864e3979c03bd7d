//! The structures of a journal on the disk (its anchor and its records), and the buffers for reads and
//! writes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::{LINE_SIZE, PAGE_SIZE};

pub(super) const PAGE: usize = PAGE_SIZE as usize;
pub(super) const LINE: usize = LINE_SIZE as usize;
pub(super) const WORD: usize = 8;
/// Maximum number of bytes that a changed line takes in a record: a byte of flags and the line.
pub(in crate::paged) const PACKED_LINE: usize = LINE + 1;

/// First bytes of an anchor.
pub(super) const ANCHOR_MAGIC: [u8; 8] = *b"EyrJrnl\0";
/// First bytes of a record.
pub(super) const RECORD_MAGIC: [u8; 8] = *b"EyrCut\0\0";
/// Version of the journal of a volume without checksums of its pages.
pub(super) const VERSION: u32 = 2;
/// Version of an older journal, which has no records that overflow.
pub(super) const VERSION_WITHOUT_OVERFLOW: u32 = 1;
/// Version of the journal of a volume with checksums of its pages: as [`VERSION`], but the body of a record
/// ends with the checksums of the changed pages.
pub(super) const VERSION_WITH_CHECKSUMS: u32 = 3;
/// Number of bytes of a journal that one call reads or zeroes. For a longer record, one call reads more.
pub(super) const TRANSFER_BYTES: u64 = 1 << 20;
/// Maximum size of a journal, in bytes. It limits the time of a replay and the memory for one record.
pub(crate) const MAX_JOURNAL_BYTES: u64 = 64 << 20;
/// Maximum size of the overflow of a record, in bytes. It limits the memory that a replay takes for one
/// hostile record.
pub(in crate::paged) const MAX_OVERFLOW_BYTES: u64 = 1 << 30;

/// The start of the last page of a volume on a disk. It describes the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Anchor {
    /// `EyrJrnl` and a zero byte.
    pub magic: [u8; 8],
    /// Random bytes that name the journal.
    pub id: [u8; 16],
    /// Size of the volume without its journal and its checksum pages, in bytes. The journal begins at this
    /// offset plus the size of the checksum pages, if the volume has checksum pages.
    pub volume_bytes: u64,
    /// Size of the journal, in bytes, without this page.
    pub journal_bytes: u64,
    /// Version of the journal: 2, or 3 if the volume has checksums of its pages. Version 1 has no records
    /// that overflow.
    pub version: u32,
    /// CRC-32C of the fields before this one.
    pub checksum: u32,
    /// Reserved, and zero.
    pub reserved: [u8; 16],
}

/// The start of a record. The body follows: the entries of the fresh pages, and then those of the changed
/// pages. On a volume with checksums, the body ends with 4 bytes for each changed page: the CRC-32C of the
/// whole page after the change. Zeros fill the rest of the last sector.
///
/// A record may overflow to free pages of the volume. A [`FreshPage`] for each overflow page then comes
/// between this head and the body, and the body continues in the overflow pages.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordHead {
    /// `EyrCut` and two zero bytes.
    pub magic: [u8; 8],
    /// The journal's name.
    pub id: [u8; 16],
    /// Sequence number of the record.
    pub sequence: u64,
    /// Size of the part of the record in the journal, in bytes, with this head and the zeros at the end.
    pub bytes: u64,
    /// Number of fresh pages.
    pub fresh: u32,
    /// Number of changed pages.
    pub changed: u32,
    /// CRC-32C of the part of the record in the journal, computed while this field is zero.
    pub checksum: u32,
    /// Number of overflow pages.
    pub overflow: u32,
    /// Reserved, and zero.
    pub reserved: [u8; 8],
}

/// The entry of a fresh page of the cut, or of an overflow page. The bytes of the page are in its place on
/// the disk, not in the record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FreshPage {
    /// Number of the page.
    pub page: u64,
    /// CRC-32C of the page's bytes.
    pub checksum: u32,
    /// Reserved, and zero.
    pub reserved: u32,
}

/// The start of the entry of a changed page. The changed lines of the page follow in ascending order. Each
/// line is one byte, and then those words of the line that are not zero. Bit *n* of the byte is set if word
/// *n* of the line is not zero.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ChangedPage {
    /// Number of the page.
    pub page: u64,
    /// A bit for each line of the page, set if the line changed.
    pub lines: u64,
}

const _: () = {
    assert!(size_of::<Anchor>() == 64 && size_of::<RecordHead>() == 64);
    assert!(size_of::<FreshPage>() == 16 && size_of::<ChangedPage>() == 16);
};
