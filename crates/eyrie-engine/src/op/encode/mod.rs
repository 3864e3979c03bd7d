//! The only encoding of Ops.
//!
//! A record consists of a header (length, checksum, version, kind), the fixed fields of its kind, and then
//! its names and data. The record of a batch ends with the records of its parts. Integers are little-endian
//! and unaligned. The module `layout` has the structures.
//!
//! Bytes to decode are untrusted. For any bytes, decoding returns an Op or a [`DecodeError`], and takes time
//! linear in the length of the record. Decoding allocates memory only for the list of a batch's parts. The
//! list never has more parts than were decoded. Decoding refuses a batch within a batch. It also refuses a
//! field with an impossible value, such as an unknown number of a mode. It does not check that the Op is
//! valid, for example that its names are short enough. The engine that applies the Op checks this.

mod decode;
mod layout;
#[cfg(test)]
mod tests;

pub use self::decode::{DecodeError, Decoded, decode, decode_unsummed};

pub(crate) use self::layout::VERSION;
use self::layout::{
    BatchFields, CHECKSUM_AT, CloneRangeFields, CreateFields, CreateUnnamedFields, DataFields, ExpectFields,
    FallocateFields, HEADER_SIZE, LinkFields, MarkAccessFields, NameFields, OpKind, OpRecordHeader,
    PutFields, RenameFields, SetAttributesFields, SetSizeFields, TimeFields, WhiteoutFields, XattrFields,
    present,
};
use crate::op::{AclKind, Whiteout};
use crate::{
    AttributeChange, Condition, Content, FallocateMode, InodeFlags, ObjectId, Op, Owner, RenameMode, SetIds,
    Time, XattrMode,
};
use zerocopy::IntoBytes;

/// Appends the record of `op` to `out`.
///
/// # Panics
/// If a name has 4 GiB or more, or a batch has 2^32 parts or more.
pub fn encode(op: &Op<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    encode_unsummed(op, out);
    let record = &mut out[start..];
    let checksum = layout::U32::new(layout::checksum(record));
    record[CHECKSUM_AT..][..size_of::<layout::U32>()].copy_from_slice(checksum.as_bytes());
}

/// Appends the record of `op` to `out`, with 0 in place of its checksum. Memory that only the encoder writes
/// needs no checksum, and the checksum of a page takes as long as a small change. The parts of a batch have
/// their checksums.
///
/// # Panics
/// As [`encode`].
pub fn encode_unsummed(op: &Op<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_SIZE]);
    let op_kind = encode_body(op, out);
    let record = &mut out[start..];
    let header = OpRecordHeader {
        length: (record.len() as u64).into(),
        checksum: 0.into(),
        version: VERSION.into(),
        kind: (op_kind as u16).into(),
    };
    record[..HEADER_SIZE].copy_from_slice(header.as_bytes());
}

fn encode_body(op: &Op<'_>, out: &mut Vec<u8>) -> OpKind {
    match *op {
        Op::Create { dir, name, id, owner, content, time } => {
            encode_create(out, dir, name, id, owner, content, time)
        }
        Op::CreateUnnamed { dir, id, owner, linkable, time } => {
            let (dir, id, owner) = (raw(dir), raw(id), owner_fields(owner));
            let linkable = u32::from(linkable).into();
            put(out, &CreateUnnamedFields { dir, id, owner, linkable, stamp: stamp(time) }, &[]);
            OpKind::CreateUnnamed
        }
        Op::Link { dir, name, id, time } => {
            let name_size = length(name.len());
            put(out, &LinkFields { dir: raw(dir), id: raw(id), name_size, stamp: stamp(time) }, &[name]);
            OpKind::Link
        }
        Op::Unlink { dir, name, time } => encode_name(out, OpKind::Unlink, dir, name, time),
        Op::RemoveDirectory { dir, name, time } => encode_name(out, OpKind::RemoveDirectory, dir, name, time),
        Op::Erase { dir, name, time } => encode_name(out, OpKind::Erase, dir, name, time),
        Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time } => {
            encode_rename(out, (from_dir, from_name), (to_dir, to_name), mode, whiteout, time)
        }
        Op::Write { id, offset, data, set_ids, time } => {
            encode_data(out, OpKind::Write, id, offset, data, set_ids, time)
        }
        Op::Append { id, data, set_ids, time } => {
            encode_data(out, OpKind::Append, id, 0, data, set_ids, time)
        }
        Op::SetSize { id, size, set_ids, time } => {
            let set_ids = set_ids_number(set_ids).into();
            put(out, &SetSizeFields { id: raw(id), size: size.into(), set_ids, stamp: stamp(time) }, &[]);
            OpKind::SetSize
        }
        Op::Fallocate { id, mode, offset, length, set_ids, time } => {
            encode_fallocate(out, id, mode, (offset, length), set_ids, time)
        }
        Op::CloneRange { source, source_offset, id, offset, length, set_ids, time } => {
            let fields = CloneRangeFields {
                source: raw(source),
                source_offset: source_offset.into(),
                id: raw(id),
                offset: offset.into(),
                length: length.into(),
                set_ids: set_ids_number(set_ids).into(),
                stamp: stamp(time),
            };
            put(out, &fields, &[]);
            OpKind::CloneRange
        }
        Op::SetAttributes { id, change, time } => encode_attributes(out, id, change, time),
        Op::MarkAccess { id, time } => {
            put(out, &MarkAccessFields { id: raw(id), stamp: stamp(time) }, &[]);
            OpKind::MarkAccess
        }
        Op::SetXattr { id, name, value, mode, time } => {
            encode_xattr(out, OpKind::SetXattr, id, name, value, xattr_mode(mode), time)
        }
        Op::RemoveXattr { id, name, time } => encode_xattr(out, OpKind::RemoveXattr, id, name, &[], 0, time),
        Op::SetAcl { id, kind, acl, drops_set_gid, time } => {
            encode_xattr(out, OpKind::SetAcl, id, &[], acl, acl_mode(kind, drops_set_gid), time)
        }
        Op::Put { dir, name, id, owner, data, time } => {
            let fields = PutFields {
                dir: raw(dir),
                id: raw(id),
                data_size: (data.len() as u64).into(),
                owner: owner_fields(owner),
                name_size: length(name.len()),
                stamp: stamp(time),
            };
            put(out, &fields, &[name, data]);
            OpKind::Put
        }
        Op::Expect { dir, name, condition } => encode_expect(out, dir, name, condition),
        Op::Batch { dir, ops, time } => {
            put(out, &BatchFields { dir: raw(dir), count: length(ops.len()), stamp: stamp(time) }, &[]);
            ops.iter().for_each(|op| encode(op, out));
            OpKind::Batch
        }
    }
}

fn encode_create(
    out: &mut Vec<u8>,
    dir: ObjectId,
    name: &[u8],
    id: ObjectId,
    owner: Owner,
    content: Content<'_>,
    time: Time,
) -> OpKind {
    let (content, size_or_device, bytes) = match content {
        Content::Empty => (layout::CONTENT_EMPTY, 0, &[][..]),
        Content::Bytes(bytes) => (layout::CONTENT_BYTES, bytes.len() as u64, bytes),
        Content::Device(device) => (layout::CONTENT_DEVICE, device, &[][..]),
    };
    let fields = CreateFields {
        dir: raw(dir),
        id: raw(id),
        size_or_device: size_or_device.into(),
        owner: owner_fields(owner),
        content: content.into(),
        name_size: length(name.len()),
        stamp: stamp(time),
    };
    put(out, &fields, &[name, bytes]);
    OpKind::Create
}

fn encode_name(out: &mut Vec<u8>, op_kind: OpKind, dir: ObjectId, name: &[u8], time: Time) -> OpKind {
    put(out, &NameFields { dir: raw(dir), name_size: length(name.len()), stamp: stamp(time) }, &[name]);
    op_kind
}

fn encode_rename(
    out: &mut Vec<u8>,
    (from_dir, from_name): (ObjectId, &[u8]),
    (to_dir, to_name): (ObjectId, &[u8]),
    mode: RenameMode,
    whiteout: Option<Whiteout>,
    time: Time,
) -> OpKind {
    let has_whiteout = if whiteout.is_some() { layout::RENAME_HAS_WHITEOUT } else { 0 };
    let fields = RenameFields {
        from_dir: raw(from_dir),
        to_dir: raw(to_dir),
        from_size: length(from_name.len()),
        to_size: length(to_name.len()),
        mode: (rename_mode(mode) | has_whiteout).into(),
        stamp: stamp(time),
    };
    put(out, &fields, &[]);
    if let Some(Whiteout { id, owner }) = whiteout {
        put(out, &WhiteoutFields { id: raw(id), owner: owner_fields(owner) }, &[]);
    }
    out.extend_from_slice(from_name);
    out.extend_from_slice(to_name);
    OpKind::Rename
}

fn encode_data(
    out: &mut Vec<u8>,
    op_kind: OpKind,
    id: ObjectId,
    offset: u64,
    data: &[u8],
    set_ids: SetIds,
    time: Time,
) -> OpKind {
    let fields = DataFields {
        id: raw(id),
        offset: offset.into(),
        data_size: (data.len() as u64).into(),
        set_ids: set_ids_number(set_ids).into(),
        stamp: stamp(time),
    };
    put(out, &fields, &[data]);
    op_kind
}

fn encode_fallocate(
    out: &mut Vec<u8>,
    id: ObjectId,
    mode: FallocateMode,
    (offset, length): (u64, u64),
    set_ids: SetIds,
    time: Time,
) -> OpKind {
    let fields = FallocateFields {
        id: raw(id),
        offset: offset.into(),
        length: length.into(),
        mode: fallocate_mode(mode).into(),
        set_ids: set_ids_number(set_ids).into(),
        stamp: stamp(time),
    };
    put(out, &fields, &[]);
    OpKind::Fallocate
}

fn encode_attributes(out: &mut Vec<u8>, id: ObjectId, change: AttributeChange, time: Time) -> OpKind {
    let AttributeChange {
        mode,
        size,
        set_ids,
        drops_capability,
        uid,
        gid,
        accessed,
        modified,
        flags,
        project,
    } = change;
    let mut bits = 0;
    for (is_set, bit) in [
        (mode.is_some(), present::MODE),
        (uid.is_some(), present::UID),
        (gid.is_some(), present::GID),
        (accessed.is_some(), present::ACCESSED),
        (modified.is_some(), present::MODIFIED),
        (size.is_some(), present::SIZE),
        (flags.is_some(), present::FLAGS),
        (drops_capability, present::DROPS_CAPABILITY),
        (project.is_some(), present::PROJECT),
        (flags.is_some_and(|flags| flags.contains(InodeFlags::IMMUTABLE)), present::IMMUTABLE),
        (flags.is_some_and(|flags| flags.contains(InodeFlags::APPEND_ONLY)), present::APPEND_ONLY),
    ] {
        bits |= if is_set { bit } else { 0 };
    }
    let fields = SetAttributesFields {
        id: raw(id),
        present: bits.into(),
        set_ids: set_ids_number(set_ids).into(),
        owner: owner_fields(Owner { mode: mode.unwrap_or(0), uid: uid.unwrap_or(0), gid: gid.unwrap_or(0) }),
        accessed: stamp(accessed.unwrap_or_default()),
        modified: stamp(modified.unwrap_or_default()),
        stamp: stamp(time),
        size: size.unwrap_or(0).into(),
        project: project.unwrap_or(0).into(),
    };
    put(out, &fields, &[]);
    OpKind::SetAttributes
}

fn encode_xattr(
    out: &mut Vec<u8>,
    op_kind: OpKind,
    id: ObjectId,
    name: &[u8],
    value: &[u8],
    mode: u32,
    time: Time,
) -> OpKind {
    let fields = XattrFields {
        id: raw(id),
        value_size: (value.len() as u64).into(),
        name_size: length(name.len()),
        mode: mode.into(),
        stamp: stamp(time),
    };
    put(out, &fields, &[name, value]);
    op_kind
}

fn acl_mode(kind: AclKind, drops_set_gid: bool) -> u32 {
    let default = if kind == AclKind::Default { layout::ACL_OF_DEFAULT } else { 0 };
    default | if drops_set_gid { layout::ACL_DROPS_SET_GID } else { 0 }
}

fn encode_expect(out: &mut Vec<u8>, dir: ObjectId, name: &[u8], condition: Condition) -> OpKind {
    let (condition, version) = match condition {
        Condition::Absent => (layout::EXPECT_ABSENT, [0; 3]),
        Condition::Present => (layout::EXPECT_PRESENT, [0; 3]),
        Condition::Version(version) => (layout::EXPECT_VERSION, version.raw()),
    };
    let fields = ExpectFields {
        dir: raw(dir),
        condition: condition.into(),
        name_size: length(name.len()),
        version: version.map(Into::into),
    };
    put(out, &fields, &[name]);
    OpKind::Expect
}

fn put<T: IntoBytes + zerocopy::Immutable>(out: &mut Vec<u8>, fields: &T, parts: &[&[u8]]) {
    out.extend_from_slice(fields.as_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn raw(id: ObjectId) -> layout::U64 {
    id.raw().into()
}

fn length(count: usize) -> layout::U32 {
    u32::try_from(count).expect("a name has less than 4 GiB, and a batch fewer than 2^32 parts").into()
}

fn stamp(time: Time) -> TimeFields {
    TimeFields { seconds: time.seconds.into(), nanoseconds: time.nanoseconds.into() }
}

fn owner_fields(owner: Owner) -> layout::OwnerFields {
    layout::OwnerFields { uid: owner.uid.into(), gid: owner.gid.into(), mode: u32::from(owner.mode).into() }
}

fn set_ids_number(set_ids: SetIds) -> u32 {
    match set_ids {
        SetIds::Keep => layout::SET_IDS_KEEP,
        SetIds::DropAsMember => layout::SET_IDS_DROP_AS_MEMBER,
        SetIds::DropAsStranger => layout::SET_IDS_DROP_AS_STRANGER,
    }
}

fn rename_mode(mode: RenameMode) -> u32 {
    match mode {
        RenameMode::Replace => layout::RENAME_REPLACE,
        RenameMode::NoReplace => layout::RENAME_NO_REPLACE,
        RenameMode::Exchange => layout::RENAME_EXCHANGE,
        RenameMode::Whiteout => layout::RENAME_WHITEOUT,
        RenameMode::NoReplaceWhiteout => layout::RENAME_NO_REPLACE_WHITEOUT,
    }
}

fn fallocate_mode(mode: FallocateMode) -> u32 {
    match mode {
        FallocateMode::Allocate => layout::FALLOCATE_ALLOCATE,
        FallocateMode::KeepSize => layout::FALLOCATE_KEEP_SIZE,
        FallocateMode::PunchHole => layout::FALLOCATE_PUNCH_HOLE,
        FallocateMode::ZeroRange => layout::FALLOCATE_ZERO_RANGE,
        FallocateMode::ZeroRangeKeepSize => layout::FALLOCATE_ZERO_RANGE_KEEP_SIZE,
        FallocateMode::CollapseRange => layout::FALLOCATE_COLLAPSE_RANGE,
        FallocateMode::InsertRange => layout::FALLOCATE_INSERT_RANGE,
        FallocateMode::UnshareRange => layout::FALLOCATE_UNSHARE_RANGE,
        FallocateMode::UnshareRangeKeepSize => layout::FALLOCATE_UNSHARE_RANGE_KEEP_SIZE,
    }
}

fn xattr_mode(mode: XattrMode) -> u32 {
    match mode {
        XattrMode::Set => layout::XATTR_SET,
        XattrMode::Create => layout::XATTR_CREATE,
        XattrMode::Replace => layout::XATTR_REPLACE,
    }
}
