//! The bytes of a record, which is one encoded Op: fixed little-endian structures without padding or
//! alignment.

use std::mem::{offset_of, size_of};

pub(super) use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the encoding.
pub(crate) const VERSION: u16 = 5;

/// The start of every record.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct OpRecordHeader {
    /// Length of the whole record including this header, in bytes.
    pub(super) length: U64,
    /// CRC-32C of the whole record without this field.
    pub(super) checksum: U32,
    pub(super) version: U16,
    /// An [`OpKind`].
    pub(super) kind: U16,
}

pub(super) const HEADER_SIZE: usize = 16;
/// Offset of the checksum in a record.
pub(super) const CHECKSUM_AT: usize = offset_of!(OpRecordHeader, checksum);
const _: () = {
    assert!(size_of::<OpRecordHeader>() == HEADER_SIZE);
    assert!(offset_of!(OpRecordHeader, length) == 0);
    assert!(offset_of!(OpRecordHeader, checksum) == 8);
    assert!(offset_of!(OpRecordHeader, version) == 12);
    assert!(offset_of!(OpRecordHeader, kind) == 14);
};

/// Returns the checksum of a record. The record has at least a header.
pub(super) fn checksum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..CHECKSUM_AT]), &record[CHECKSUM_AT + size_of::<U32>()..])
}

/// The kind of Op in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(super) enum OpKind {
    Create = 1,
    Link = 2,
    Unlink = 3,
    RemoveDirectory = 4,
    Rename = 5,
    Write = 6,
    Append = 7,
    SetSize = 8,
    SetAttributes = 9,
    Put = 10,
    Erase = 11,
    Batch = 12,
    SetXattr = 13,
    RemoveXattr = 14,
    Fallocate = 15,
    Expect = 16,
    SetAcl = 17,
    CreateUnnamed = 18,
    MarkAccess = 19,
    CloneRange = 20,
}

impl OpKind {
    pub(super) fn from_raw(raw: u16) -> Option<OpKind> {
        const ALL: [OpKind; 20] = [
            OpKind::Create,
            OpKind::Link,
            OpKind::Unlink,
            OpKind::RemoveDirectory,
            OpKind::Rename,
            OpKind::Write,
            OpKind::Append,
            OpKind::SetSize,
            OpKind::SetAttributes,
            OpKind::Put,
            OpKind::Erase,
            OpKind::Batch,
            OpKind::SetXattr,
            OpKind::RemoveXattr,
            OpKind::Fallocate,
            OpKind::Expect,
            OpKind::SetAcl,
            OpKind::CreateUnnamed,
            OpKind::MarkAccess,
            OpKind::CloneRange,
        ];
        ALL.into_iter().find(|&kind| kind as u16 == raw)
    }
}

/// A [`Time`](crate::Time).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct TimeFields {
    pub(super) seconds: I64,
    /// Less than 1,000,000,000.
    pub(super) nanoseconds: U32,
}
const _: () = assert!(size_of::<TimeFields>() == 12);

/// An [`Owner`](crate::Owner).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct OwnerFields {
    pub(super) uid: U32,
    pub(super) gid: U32,
    /// Less than 2^16.
    pub(super) mode: U32,
}
const _: () = assert!(size_of::<OwnerFields>() == 12);

pub(super) const CONTENT_EMPTY: u32 = 0;
pub(super) const CONTENT_BYTES: u32 = 1;
pub(super) const CONTENT_DEVICE: u32 = 2;

pub(super) const SET_IDS_KEEP: u32 = 0;
pub(super) const SET_IDS_DROP_AS_MEMBER: u32 = 1;
pub(super) const SET_IDS_DROP_AS_STRANGER: u32 = 2;

/// Fields of `Create`. The name follows, then the bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct CreateFields {
    pub(super) dir: U64,
    pub(super) id: U64,
    /// Number of bytes, or the device number. 0 if the object has neither.
    pub(super) size_or_device: U64,
    pub(super) owner: OwnerFields,
    pub(super) content: U32,
    pub(super) name_size: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<CreateFields>() == 56);
    assert!(offset_of!(CreateFields, owner) == 24);
    assert!(offset_of!(CreateFields, content) == 36);
    assert!(offset_of!(CreateFields, name_size) == 40);
    assert!(offset_of!(CreateFields, stamp) == 44);
};

/// Fields of `CreateUnnamed`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct CreateUnnamedFields {
    pub(super) dir: U64,
    pub(super) id: U64,
    pub(super) owner: OwnerFields,
    /// 1 if the file can get a name, otherwise 0.
    pub(super) linkable: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<CreateUnnamedFields>() == 44);
    assert!(offset_of!(CreateUnnamedFields, owner) == 16);
    assert!(offset_of!(CreateUnnamedFields, linkable) == 28);
    assert!(offset_of!(CreateUnnamedFields, stamp) == 32);
};

/// Fields of `Link`. The name follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct LinkFields {
    pub(super) dir: U64,
    pub(super) id: U64,
    pub(super) name_size: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<LinkFields>() == 32);
    assert!(offset_of!(LinkFields, name_size) == 16);
    assert!(offset_of!(LinkFields, stamp) == 20);
};

/// Fields of `Unlink`, `RemoveDirectory` and `Erase`. The name follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct NameFields {
    pub(super) dir: U64,
    pub(super) name_size: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<NameFields>() == 24);
    assert!(offset_of!(NameFields, name_size) == 8);
    assert!(offset_of!(NameFields, stamp) == 12);
};

pub(super) const RENAME_REPLACE: u32 = 0;
pub(super) const RENAME_NO_REPLACE: u32 = 1;
pub(super) const RENAME_EXCHANGE: u32 = 2;
pub(super) const RENAME_WHITEOUT: u32 = 3;
pub(super) const RENAME_NO_REPLACE_WHITEOUT: u32 = 4;
/// Bit in the field of the mode. It is set if the record has [`WhiteoutFields`].
pub(super) const RENAME_HAS_WHITEOUT: u32 = 1 << 8;

/// The whiteout of a `Rename`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct WhiteoutFields {
    pub(super) id: U64,
    pub(super) owner: OwnerFields,
}
const _: () = assert!(size_of::<WhiteoutFields>() == 20);

/// Fields of `Rename`. The whiteout follows if there is one, then the old name, and then the new name.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RenameFields {
    pub(super) from_dir: U64,
    pub(super) to_dir: U64,
    pub(super) from_size: U32,
    pub(super) to_size: U32,
    pub(super) mode: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<RenameFields>() == 40);
    assert!(offset_of!(RenameFields, from_size) == 16);
    assert!(offset_of!(RenameFields, mode) == 24);
    assert!(offset_of!(RenameFields, stamp) == 28);
};

/// Fields of `Write` and `Append`. `Append` has offset 0. The data follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct DataFields {
    pub(super) id: U64,
    pub(super) offset: U64,
    pub(super) data_size: U64,
    pub(super) set_ids: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<DataFields>() == 40);
    assert!(offset_of!(DataFields, offset) == 8);
    assert!(offset_of!(DataFields, data_size) == 16);
    assert!(offset_of!(DataFields, set_ids) == 24);
    assert!(offset_of!(DataFields, stamp) == 28);
};

/// Fields of `MarkAccess`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct MarkAccessFields {
    pub(super) id: U64,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<MarkAccessFields>() == 20);
    assert!(offset_of!(MarkAccessFields, stamp) == 8);
};

/// Fields of `SetSize`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct SetSizeFields {
    pub(super) id: U64,
    pub(super) size: U64,
    pub(super) set_ids: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<SetSizeFields>() == 32);
    assert!(offset_of!(SetSizeFields, size) == 8);
    assert!(offset_of!(SetSizeFields, set_ids) == 16);
    assert!(offset_of!(SetSizeFields, stamp) == 20);
};

pub(super) const FALLOCATE_ALLOCATE: u32 = 0;
pub(super) const FALLOCATE_KEEP_SIZE: u32 = 1;
pub(super) const FALLOCATE_PUNCH_HOLE: u32 = 2;
pub(super) const FALLOCATE_ZERO_RANGE: u32 = 3;
pub(super) const FALLOCATE_ZERO_RANGE_KEEP_SIZE: u32 = 4;
pub(super) const FALLOCATE_COLLAPSE_RANGE: u32 = 5;
pub(super) const FALLOCATE_INSERT_RANGE: u32 = 6;
pub(super) const FALLOCATE_UNSHARE_RANGE: u32 = 7;
pub(super) const FALLOCATE_UNSHARE_RANGE_KEEP_SIZE: u32 = 8;

/// Fields of `Fallocate`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct FallocateFields {
    pub(super) id: U64,
    pub(super) offset: U64,
    pub(super) length: U64,
    pub(super) mode: U32,
    pub(super) set_ids: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<FallocateFields>() == 44);
    assert!(offset_of!(FallocateFields, offset) == 8);
    assert!(offset_of!(FallocateFields, length) == 16);
    assert!(offset_of!(FallocateFields, mode) == 24);
    assert!(offset_of!(FallocateFields, set_ids) == 28);
    assert!(offset_of!(FallocateFields, stamp) == 32);
};

/// Fields of `CloneRange`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct CloneRangeFields {
    pub(super) source: U64,
    pub(super) source_offset: U64,
    pub(super) id: U64,
    pub(super) offset: U64,
    pub(super) length: U64,
    pub(super) set_ids: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<CloneRangeFields>() == 56);
    assert!(offset_of!(CloneRangeFields, source_offset) == 8);
    assert!(offset_of!(CloneRangeFields, id) == 16);
    assert!(offset_of!(CloneRangeFields, offset) == 24);
    assert!(offset_of!(CloneRangeFields, length) == 32);
    assert!(offset_of!(CloneRangeFields, set_ids) == 40);
    assert!(offset_of!(CloneRangeFields, stamp) == 44);
};

/// Bits of [`SetAttributesFields::present`].
pub(super) mod present {
    pub(in super::super) const MODE: u32 = 1;
    pub(in super::super) const UID: u32 = 1 << 1;
    pub(in super::super) const GID: u32 = 1 << 2;
    pub(in super::super) const ACCESSED: u32 = 1 << 3;
    pub(in super::super) const MODIFIED: u32 = 1 << 4;
    pub(in super::super) const SIZE: u32 = 1 << 5;
    pub(in super::super) const FLAGS: u32 = 1 << 6;
    /// The inode flags: this bit and the next one. They may be set only if `FLAGS` is set.
    pub(in super::super) const IMMUTABLE: u32 = 1 << 7;
    pub(in super::super) const APPEND_ONLY: u32 = 1 << 8;
    pub(in super::super) const DROPS_CAPABILITY: u32 = 1 << 9;
    pub(in super::super) const PROJECT: u32 = 1 << 10;
    pub(in super::super) const ALL: u32 = (1 << 11) - 1;
}

/// Fields of `SetAttributes`. A field that has a bit in `present` is 0 if this bit is not set.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct SetAttributesFields {
    pub(super) id: U64,
    pub(super) present: U32,
    pub(super) set_ids: U32,
    pub(super) owner: OwnerFields,
    pub(super) accessed: TimeFields,
    pub(super) modified: TimeFields,
    pub(super) stamp: TimeFields,
    pub(super) size: U64,
    pub(super) project: U32,
}
const _: () = {
    assert!(size_of::<SetAttributesFields>() == 76);
    assert!(offset_of!(SetAttributesFields, present) == 8);
    assert!(offset_of!(SetAttributesFields, set_ids) == 12);
    assert!(offset_of!(SetAttributesFields, owner) == 16);
    assert!(offset_of!(SetAttributesFields, accessed) == 28);
    assert!(offset_of!(SetAttributesFields, stamp) == 52);
    assert!(offset_of!(SetAttributesFields, size) == 64);
};

/// Fields of `Put`. The name follows, then the data.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct PutFields {
    pub(super) dir: U64,
    pub(super) id: U64,
    pub(super) data_size: U64,
    pub(super) owner: OwnerFields,
    pub(super) name_size: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<PutFields>() == 52);
    assert!(offset_of!(PutFields, data_size) == 16);
    assert!(offset_of!(PutFields, owner) == 24);
    assert!(offset_of!(PutFields, name_size) == 36);
    assert!(offset_of!(PutFields, stamp) == 40);
};

pub(super) const EXPECT_ABSENT: u32 = 0;
pub(super) const EXPECT_PRESENT: u32 = 1;
pub(super) const EXPECT_VERSION: u32 = 2;

/// Fields of `Expect`. The name follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct ExpectFields {
    pub(super) dir: U64,
    pub(super) condition: U32,
    pub(super) name_size: U32,
    /// The parts of a version, which are 0 unless `condition` is `EXPECT_VERSION`.
    pub(super) version: [U64; 3],
}
const _: () = {
    assert!(size_of::<ExpectFields>() == 40);
    assert!(offset_of!(ExpectFields, condition) == 8);
    assert!(offset_of!(ExpectFields, name_size) == 12);
    assert!(offset_of!(ExpectFields, version) == 16);
};

/// Fields of `Batch`. `count` records follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct BatchFields {
    pub(super) dir: U64,
    pub(super) count: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<BatchFields>() == 24);
    assert!(offset_of!(BatchFields, count) == 8);
    assert!(offset_of!(BatchFields, stamp) == 12);
};

pub(super) const XATTR_SET: u32 = 0;
pub(super) const XATTR_CREATE: u32 = 1;
pub(super) const XATTR_REPLACE: u32 = 2;

/// The mode of a `SetAcl` is a sum of these bits.
pub(super) const ACL_OF_DEFAULT: u32 = 1;
pub(super) const ACL_DROPS_SET_GID: u32 = 2;

/// Fields of `SetXattr`, `RemoveXattr` and `SetAcl`. `RemoveXattr` has mode 0 and an empty value, and
/// `SetAcl` has an empty name. The name follows, and then the value.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct XattrFields {
    pub(super) id: U64,
    pub(super) value_size: U64,
    pub(super) name_size: U32,
    pub(super) mode: U32,
    pub(super) stamp: TimeFields,
}
const _: () = {
    assert!(size_of::<XattrFields>() == 36);
    assert!(offset_of!(XattrFields, value_size) == 8);
    assert!(offset_of!(XattrFields, name_size) == 16);
    assert!(offset_of!(XattrFields, mode) == 20);
    assert!(offset_of!(XattrFields, stamp) == 24);
};
