//! Decoding bytes into Ops.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::layout::{
    self, BatchFields, CloneRangeFields, CreateFields, CreateUnnamedFields, DataFields, ExpectFields,
    FallocateFields, HEADER_SIZE, LinkFields, MarkAccessFields, NameFields, OpKind, OpRecordHeader,
    PutFields, RenameFields, SetAttributesFields, SetSizeFields, TimeFields, VERSION, WhiteoutFields,
    XattrFields, present,
};
use crate::op::{AclKind, Whiteout};
use crate::{
    AttributeChange, Condition, Content, FallocateMode, InodeFlags, ObjectId, Op, Owner, RenameMode, SetIds,
    Time, Version, XattrMode,
};

type Result<T> = std::result::Result<T, DecodeError>;

/// The reason why bytes cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the end of the record, or the record ends before the end of one of its fields.
    #[error("the record is cut short")]
    Truncated,
    /// The bytes differ from those that the encoder wrote.
    #[error("the checksum does not match")]
    Checksum,
    /// The record has another version of the encoding.
    #[error("version {0} of the encoding is unknown")]
    Version(u16),
    /// The kind of Op is unknown.
    #[error("kind {0} of Op is unknown")]
    Kind(u16),
    /// A field has an impossible value, or the record has an impossible structure.
    #[error("malformed record: {0}")]
    Malformed(&'static str),
}

/// A decoded Op. The value borrows names and data from the encoded bytes, and owns the list of a batch's
/// parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded<'a> {
    form: Form<'a>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Form<'a> {
    Single(Op<'a>),
    Batch { dir: ObjectId, ops: Vec<Op<'a>>, time: Time },
}

impl Decoded<'_> {
    /// Returns the Op.
    pub fn op(&self) -> Op<'_> {
        match &self.form {
            Form::Single(op) => *op,
            Form::Batch { dir, ops, time } => Op::Batch { dir: *dir, ops, time: *time },
        }
    }
}

/// Decodes the record at the start of `bytes`. Returns the Op, and the length of the record in bytes. Refuses
/// a batch within a batch.
///
/// # Errors
/// If `bytes` do not begin with a whole and well-formed record of this version.
pub fn decode(bytes: &[u8]) -> Result<(Decoded<'_>, usize)> {
    decode_record(bytes, true)
}

/// Decodes as [`decode`] does, but ignores the checksum of the record. The checksums of a batch's parts are
/// still checked. The bytes are still untrusted.
///
/// # Errors
/// As [`decode`]. `Checksum` only for a part of a batch.
pub fn decode_unsummed(bytes: &[u8]) -> Result<(Decoded<'_>, usize)> {
    decode_record(bytes, false)
}

fn decode_record(bytes: &[u8], is_summed: bool) -> Result<(Decoded<'_>, usize)> {
    let (op_kind, mut body, length) = open(bytes, is_summed)?;
    let form = if op_kind == OpKind::Batch { body.batch()? } else { Form::Single(body.single(op_kind)?) };
    body.end()?;
    Ok((Decoded { form }, length))
}

/// Checks the record at the start of `bytes`, with its checksum if `is_summed`. Returns its kind, its body
/// and its length.
fn open(bytes: &[u8], is_summed: bool) -> Result<(OpKind, RecordBody<'_>, usize)> {
    let (header, _) = OpRecordHeader::ref_from_prefix(bytes).map_err(|_| DecodeError::Truncated)?;
    let length = usize::try_from(header.length.get()).map_err(|_| DecodeError::Truncated)?;
    let record = bytes.get(..length).ok_or(DecodeError::Truncated)?;
    let body = record.get(HEADER_SIZE..).ok_or(DecodeError::Malformed("length below that of a header"))?;
    // The checksum is checked before version and kind, so that damage is not reported as a newer version.
    if is_summed && layout::checksum(record) != header.checksum.get() {
        return Err(DecodeError::Checksum);
    }
    if header.version.get() != VERSION {
        return Err(DecodeError::Version(header.version.get()));
    }
    let kind = header.kind.get();
    let op_kind = OpKind::from_raw(kind).ok_or(DecodeError::Kind(kind))?;
    Ok((op_kind, RecordBody(body), length))
}

/// The undecoded rest of a record's body.
struct RecordBody<'a>(&'a [u8]);

impl<'a> RecordBody<'a> {
    fn fields<T: FromBytes + Immutable + KnownLayout + Unaligned>(&mut self) -> Result<&'a T> {
        let (fields, rest) = T::ref_from_prefix(self.0).map_err(|_| DecodeError::Truncated)?;
        self.0 = rest;
        Ok(fields)
    }

    fn bytes(&mut self, size: u64) -> Result<&'a [u8]> {
        let size = usize::try_from(size).map_err(|_| DecodeError::Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(size).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn name(&mut self, size: layout::U32) -> Result<&'a [u8]> {
        self.bytes(size.get().into())
    }

    fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Malformed("bytes after the last field")) }
    }

    fn batch(&mut self) -> Result<Form<'a>> {
        let fields: &BatchFields = self.fields()?;
        // The list grows by one part at a time. Therefore a forged count causes no large allocation.
        let mut ops = Vec::new();
        for _ in 0..fields.count.get() {
            let (op_kind, mut body, length) = open(self.0, true)?;
            ops.push(body.single(op_kind)?);
            body.end()?;
            self.0 = &self.0[length..];
        }
        Ok(Form::Batch { dir: id(fields.dir)?, ops, time: time(fields.stamp)? })
    }

    fn single(&mut self, op_kind: OpKind) -> Result<Op<'a>> {
        Ok(match op_kind {
            OpKind::Create => self.create()?,
            OpKind::CreateUnnamed => {
                let fields: &CreateUnnamedFields = self.fields()?;
                Op::CreateUnnamed {
                    dir: id(fields.dir)?,
                    id: id(fields.id)?,
                    owner: owner(fields.owner)?,
                    linkable: boolean(fields.linkable)?,
                    time: time(fields.stamp)?,
                }
            }
            OpKind::Link => {
                let fields: &LinkFields = self.fields()?;
                let name = self.name(fields.name_size)?;
                Op::Link { dir: id(fields.dir)?, name, id: id(fields.id)?, time: time(fields.stamp)? }
            }
            OpKind::Unlink | OpKind::RemoveDirectory | OpKind::Erase => {
                let fields: &NameFields = self.fields()?;
                let name = self.name(fields.name_size)?;
                let (dir, time) = (id(fields.dir)?, time(fields.stamp)?);
                match op_kind {
                    OpKind::Unlink => Op::Unlink { dir, name, time },
                    OpKind::RemoveDirectory => Op::RemoveDirectory { dir, name, time },
                    _ => Op::Erase { dir, name, time },
                }
            }
            OpKind::Rename => self.rename()?,
            OpKind::Write | OpKind::Append => {
                let fields: &DataFields = self.fields()?;
                let data = self.bytes(fields.data_size.get())?;
                let (id, offset, time) = (id(fields.id)?, fields.offset.get(), time(fields.stamp)?);
                let set_ids = set_ids(fields.set_ids)?;
                match op_kind {
                    OpKind::Write => Op::Write { id, offset, data, set_ids, time },
                    _ if offset == 0 => Op::Append { id, data, set_ids, time },
                    _ => return Err(DecodeError::Malformed("an append with an offset")),
                }
            }
            OpKind::SetSize => {
                let fields: &SetSizeFields = self.fields()?;
                let (size, set_ids) = (fields.size.get(), set_ids(fields.set_ids)?);
                Op::SetSize { id: id(fields.id)?, size, set_ids, time: time(fields.stamp)? }
            }
            OpKind::Fallocate => self.fallocate()?,
            OpKind::CloneRange => self.clone_range()?,
            OpKind::SetAttributes => self.set_attributes()?,
            OpKind::MarkAccess => {
                let fields: &MarkAccessFields = self.fields()?;
                Op::MarkAccess { id: id(fields.id)?, time: time(fields.stamp)? }
            }
            OpKind::SetXattr | OpKind::RemoveXattr => self.xattr(op_kind)?,
            OpKind::SetAcl => self.acl()?,
            OpKind::Put => {
                let fields: &PutFields = self.fields()?;
                Op::Put {
                    dir: id(fields.dir)?,
                    name: self.name(fields.name_size)?,
                    id: id(fields.id)?,
                    owner: owner(fields.owner)?,
                    data: self.bytes(fields.data_size.get())?,
                    time: time(fields.stamp)?,
                }
            }
            OpKind::Expect => {
                let fields: &ExpectFields = self.fields()?;
                let condition = condition(fields.condition, fields.version.map(layout::U64::get))?;
                Op::Expect { dir: id(fields.dir)?, name: self.name(fields.name_size)?, condition }
            }
            OpKind::Batch => return Err(DecodeError::Malformed("a batch within a batch")),
        })
    }

    fn clone_range(&mut self) -> Result<Op<'a>> {
        let fields: &CloneRangeFields = self.fields()?;
        Ok(Op::CloneRange {
            source: id(fields.source)?,
            source_offset: fields.source_offset.get(),
            id: id(fields.id)?,
            offset: fields.offset.get(),
            length: fields.length.get(),
            set_ids: set_ids(fields.set_ids)?,
            time: time(fields.stamp)?,
        })
    }

    fn create(&mut self) -> Result<Op<'a>> {
        let fields: &CreateFields = self.fields()?;
        let name = self.name(fields.name_size)?;
        let number = fields.size_or_device.get();
        let content = match fields.content.get() {
            layout::CONTENT_EMPTY if number == 0 => Content::Empty,
            layout::CONTENT_BYTES => Content::Bytes(self.bytes(number)?),
            layout::CONTENT_DEVICE => Content::Device(number),
            _ => return Err(DecodeError::Malformed("impossible content of a new object")),
        };
        Ok(Op::Create {
            dir: id(fields.dir)?,
            name,
            id: id(fields.id)?,
            owner: owner(fields.owner)?,
            content,
            time: time(fields.stamp)?,
        })
    }

    fn rename(&mut self) -> Result<Op<'a>> {
        let fields: &RenameFields = self.fields()?;
        let bits = fields.mode.get();
        let mode = match bits & !layout::RENAME_HAS_WHITEOUT {
            layout::RENAME_REPLACE => RenameMode::Replace,
            layout::RENAME_NO_REPLACE => RenameMode::NoReplace,
            layout::RENAME_EXCHANGE => RenameMode::Exchange,
            layout::RENAME_WHITEOUT => RenameMode::Whiteout,
            layout::RENAME_NO_REPLACE_WHITEOUT => RenameMode::NoReplaceWhiteout,
            _ => return Err(DecodeError::Malformed("unknown mode of a rename")),
        };
        let whiteout = if bits & layout::RENAME_HAS_WHITEOUT == 0 {
            None
        } else {
            let fields: &WhiteoutFields = self.fields()?;
            Some(Whiteout { id: id(fields.id)?, owner: owner(fields.owner)? })
        };
        Ok(Op::Rename {
            from_dir: id(fields.from_dir)?,
            from_name: self.name(fields.from_size)?,
            to_dir: id(fields.to_dir)?,
            to_name: self.name(fields.to_size)?,
            mode,
            whiteout,
            time: time(fields.stamp)?,
        })
    }

    fn fallocate(&mut self) -> Result<Op<'a>> {
        let fields: &FallocateFields = self.fields()?;
        let mode = match fields.mode.get() {
            layout::FALLOCATE_ALLOCATE => FallocateMode::Allocate,
            layout::FALLOCATE_KEEP_SIZE => FallocateMode::KeepSize,
            layout::FALLOCATE_PUNCH_HOLE => FallocateMode::PunchHole,
            layout::FALLOCATE_ZERO_RANGE => FallocateMode::ZeroRange,
            layout::FALLOCATE_ZERO_RANGE_KEEP_SIZE => FallocateMode::ZeroRangeKeepSize,
            layout::FALLOCATE_COLLAPSE_RANGE => FallocateMode::CollapseRange,
            layout::FALLOCATE_INSERT_RANGE => FallocateMode::InsertRange,
            layout::FALLOCATE_UNSHARE_RANGE => FallocateMode::UnshareRange,
            layout::FALLOCATE_UNSHARE_RANGE_KEEP_SIZE => FallocateMode::UnshareRangeKeepSize,
            _ => return Err(DecodeError::Malformed("unknown mode of a fallocate")),
        };
        Ok(Op::Fallocate {
            id: id(fields.id)?,
            mode,
            offset: fields.offset.get(),
            length: fields.length.get(),
            set_ids: set_ids(fields.set_ids)?,
            time: time(fields.stamp)?,
        })
    }

    fn xattr(&mut self, op_kind: OpKind) -> Result<Op<'a>> {
        let fields: &XattrFields = self.fields()?;
        let name = self.name(fields.name_size)?;
        let value = self.bytes(fields.value_size.get())?;
        let (id, time) = (id(fields.id)?, time(fields.stamp)?);
        let mode = match fields.mode.get() {
            0 if op_kind == OpKind::RemoveXattr && value.is_empty() => {
                return Ok(Op::RemoveXattr { id, name, time });
            }
            layout::XATTR_SET if op_kind == OpKind::SetXattr => XattrMode::Set,
            layout::XATTR_CREATE if op_kind == OpKind::SetXattr => XattrMode::Create,
            layout::XATTR_REPLACE if op_kind == OpKind::SetXattr => XattrMode::Replace,
            _ => return Err(DecodeError::Malformed("mode or value of an extended attribute")),
        };
        Ok(Op::SetXattr { id, name, value, mode, time })
    }

    fn acl(&mut self) -> Result<Op<'a>> {
        let fields: &XattrFields = self.fields()?;
        let bits = fields.mode.get();
        if fields.name_size.get() != 0 || bits & !(layout::ACL_OF_DEFAULT | layout::ACL_DROPS_SET_GID) != 0 {
            return Err(DecodeError::Malformed("kind or name of an ACL"));
        }
        let is_default = bits & layout::ACL_OF_DEFAULT != 0;
        Ok(Op::SetAcl {
            id: id(fields.id)?,
            kind: if is_default { AclKind::Default } else { AclKind::Access },
            acl: self.bytes(fields.value_size.get())?,
            drops_set_gid: bits & layout::ACL_DROPS_SET_GID != 0,
            time: time(fields.stamp)?,
        })
    }

    fn set_attributes(&mut self) -> Result<Op<'a>> {
        let fields: &SetAttributesFields = self.fields()?;
        let bits = fields.present.get();
        if bits & !present::ALL != 0 {
            return Err(DecodeError::Malformed("unknown attributes"));
        }
        let owner = owner(fields.owner)?;
        let mut inode_flags = InodeFlags::empty();
        inode_flags.set(InodeFlags::IMMUTABLE, bits & present::IMMUTABLE != 0);
        inode_flags.set(InodeFlags::APPEND_ONLY, bits & present::APPEND_ONLY != 0);
        let change = AttributeChange {
            mode: optional(bits & present::MODE, owner.mode)?,
            set_ids: set_ids(fields.set_ids)?,
            drops_capability: bits & present::DROPS_CAPABILITY != 0,
            uid: optional(bits & present::UID, owner.uid)?,
            gid: optional(bits & present::GID, owner.gid)?,
            accessed: optional(bits & present::ACCESSED, time(fields.accessed)?)?,
            modified: optional(bits & present::MODIFIED, time(fields.modified)?)?,
            size: optional(bits & present::SIZE, fields.size.get())?,
            flags: optional(bits & present::FLAGS, inode_flags)?,
            project: optional(bits & present::PROJECT, fields.project.get())?,
        };
        Ok(Op::SetAttributes { id: id(fields.id)?, change, time: time(fields.stamp)? })
    }
}

fn optional<T: Default + PartialEq>(is_present: u32, value: T) -> Result<Option<T>> {
    match is_present {
        0 if value != T::default() => Err(DecodeError::Malformed("value of an attribute that is not set")),
        0 => Ok(None),
        _ => Ok(Some(value)),
    }
}

fn id(raw: layout::U64) -> Result<ObjectId> {
    ObjectId::from_raw(raw.get()).ok_or(DecodeError::Malformed("unknown kind in an object id"))
}

fn condition(number: layout::U32, version: [u64; 3]) -> Result<Condition> {
    match (number.get(), version) {
        (layout::EXPECT_ABSENT, [0, 0, 0]) => Ok(Condition::Absent),
        (layout::EXPECT_PRESENT, [0, 0, 0]) => Ok(Condition::Present),
        (layout::EXPECT_VERSION, version) => Ok(Condition::Version(Version::from_raw(version))),
        _ => Err(DecodeError::Malformed("unknown condition of a key")),
    }
}

fn set_ids(number: layout::U32) -> Result<SetIds> {
    match number.get() {
        layout::SET_IDS_KEEP => Ok(SetIds::Keep),
        layout::SET_IDS_DROP_AS_MEMBER => Ok(SetIds::DropAsMember),
        layout::SET_IDS_DROP_AS_STRANGER => Ok(SetIds::DropAsStranger),
        _ => Err(DecodeError::Malformed("set-id bits to drop")),
    }
}

fn boolean(number: layout::U32) -> Result<bool> {
    match number.get() {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::Malformed("a boolean that is neither 0 nor 1")),
    }
}

fn time(stamp: TimeFields) -> Result<Time> {
    match stamp.nanoseconds.get() {
        nanoseconds @ 0..1_000_000_000 => Ok(Time::new(stamp.seconds.get(), nanoseconds)),
        _ => Err(DecodeError::Malformed("nanoseconds of a time")),
    }
}

fn owner(fields: layout::OwnerFields) -> Result<Owner> {
    let mode = u16::try_from(fields.mode.get())
        .map_err(|_| DecodeError::Malformed("a mode of more than 16 bits"))?;
    Ok(Owner { mode, uid: fields.uid.get(), gid: fields.gid.get() })
}
