//! Random Ops over a few names and objects.
//!
//! An [`OpStep`] names an object by the step that created it ([`ObjectHandle`]), not by id. The same steps
//! therefore run on any engine, also when some steps are left out. A step whose objects are then missing is
//! skipped. [`OpGenerator`] makes steps from a seed. [`Ids`] turns a step into an Op, with ids that the
//! engine under test reserved.

mod concrete;
mod generate;
mod mix;
#[cfg(test)]
mod tests;

use std::fmt;

use eyrie_engine::access::AclKind;
use eyrie_engine::op::CAPABILITY_XATTR;
use eyrie_engine::quota::QuotaTable;
use eyrie_engine::{AttributeChange, FallocateMode, Kind, Owner, RenameMode, Time, XattrMode};

pub(crate) use concrete::xattr_value;
pub use concrete::{Concrete, Ids, OpRecord};
pub use generate::OpGenerator;
pub use mix::OpMix;

/// Names an object of a run by the step that created the object, and by the part of that step's batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectHandle {
    /// Number of the step, or 0 for the root.
    pub step: u32,
    /// Index of the part in the batch, or 0 if the step is not a batch.
    pub part: u32,
}

impl ObjectHandle {
    /// The root directory.
    pub const ROOT: ObjectHandle = ObjectHandle { step: 0, part: 0 };
}

impl fmt::Debug for ObjectHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ObjectHandle::ROOT => write!(f, "root"),
            ObjectHandle { step, part: 0 } => write!(f, "@{step}"),
            ObjectHandle { step, part } => write!(f, "@{step}.{part}"),
        }
    }
}

/// One of a few names, by its index in [`OpName::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpName(u8);

impl OpName {
    /// All names. Engines refuse the last [`OpName::BAD`] names: one is too long, and one is empty.
    pub const ALL: [&[u8]; 12] = [
        b"a",
        b"b",
        b"c",
        b"d",
        b"readme.txt",
        &[b'n'; 255],
        &[b'e'; 254],
        b"\xff\xfe\xc3",
        b"sl/ash\0nul",
        b".",
        &[b'x'; 256],
        b"",
    ];
    /// Number of names that engines refuse.
    pub const BAD: usize = 2;

    /// Returns the name with this index.
    ///
    /// # Panics
    /// Panics if no name has this index.
    pub fn new(index: usize) -> OpName {
        assert!(index < OpName::ALL.len(), "there are {} names", OpName::ALL.len());
        OpName(index as u8)
    }

    /// Returns the names that engines accept.
    pub fn good() -> impl Iterator<Item = OpName> {
        (0..OpName::ALL.len() - OpName::BAD).map(OpName::new)
    }

    /// Returns the bytes of the name.
    pub fn bytes(self) -> &'static [u8] {
        OpName::ALL[usize::from(self.0)]
    }

    /// Returns the bytes of the name of an extended attribute. One name is that of capabilities.
    pub fn xattr(self) -> &'static [u8] {
        match self.bytes() {
            b"readme.txt" => CAPABILITY_XATTR,
            name => name,
        }
    }
}

impl fmt::Debug for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            long if long.len() > 20 => write!(f, "{} × {:?}", long.len(), char::from(long[0])),
            short => write!(f, "\"{}\"", short.escape_ascii()),
        }
    }
}

/// Bytes to write, as a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// Length in bytes.
    pub length: usize,
    /// Number that selects the pattern. Pattern 0 is all zeros.
    pub pattern: u32,
}

impl Bytes {
    /// Makes the bytes. Except in pattern 0, each byte depends on its offset, so that a comparison notices
    /// misplaced bytes.
    pub fn make(self) -> Vec<u8> {
        if self.pattern == 0 {
            return vec![0; self.length];
        }
        let words = (0..self.length.div_ceil(8) as u64)
            .map(|index| (index + 1 + (u64::from(self.pattern) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes: Vec<u8> = words.flat_map(|word| (word ^ word >> 29).to_be_bytes()).collect();
        bytes.truncate(self.length);
        bytes
    }
}

/// Initial content of a new object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitialContent {
    /// [`Content::Empty`](eyrie_engine::Content::Empty).
    Empty,
    /// [`Content::Bytes`](eyrie_engine::Content::Bytes).
    Bytes(Bytes),
    /// [`Content::Device`](eyrie_engine::Content::Device).
    Device(u64),
}

/// A part of a batch.
#[expect(missing_docs, reason = "as in Op")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchPart {
    /// A `Put`.
    Put { name: OpName, bytes: Bytes, owner: Owner },
    /// An `Erase`.
    Erase { name: OpName },
    /// An `Expect` that the key is present, or absent.
    Expect { name: OpName, present: bool },
}

/// The action of a step: an Op, an open or a close.
#[expect(missing_docs, reason = "as in Op")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Creates the object whose handle has the number of the step.
    Create { dir: ObjectHandle, name: OpName, kind: Kind, start: InitialContent, owner: Owner },
    /// Creates a file without a name, whose handle has the number of the step, and opens it. The run closes
    /// it later.
    CreateUnnamed { dir: ObjectHandle, owner: Owner, linkable: bool },
    /// Adds a name.
    Link { dir: ObjectHandle, name: OpName, object: ObjectHandle },
    /// Removes a name.
    Unlink { dir: ObjectHandle, name: OpName },
    /// Removes a directory.
    RemoveDirectory { dir: ObjectHandle, name: OpName },
    /// Renames.
    Rename { from: (ObjectHandle, OpName), to: (ObjectHandle, OpName), mode: RenameMode },
    /// Writes.
    Write { object: ObjectHandle, offset: u64, bytes: Bytes },
    /// Appends.
    Append { object: ObjectHandle, bytes: Bytes },
    /// Sets the size, in bytes.
    SetSize { object: ObjectHandle, size: u64 },
    /// Changes the storage of a range. Offset and length are in bytes.
    Fallocate { object: ObjectHandle, mode: FallocateMode, offset: u64, length: u64 },
    /// Clones a range. Offsets and length are in bytes.
    CloneRange { source: (ObjectHandle, u64), target: (ObjectHandle, u64), length: u64 },
    /// Sets attributes.
    SetAttributes { object: ObjectHandle, change: AttributeChange },
    /// Sets the access time, as after a read.
    MarkAccess { object: ObjectHandle },
    /// Sets an extended attribute.
    SetXattr { object: ObjectHandle, name: OpName, bytes: Bytes, mode: XattrMode },
    /// Removes an extended attribute.
    RemoveXattr { object: ObjectHandle, name: OpName },
    /// Sets or removes an ACL. [`acl`](crate::acls::acl) makes its bytes from `index` and `rights`.
    SetAcl { object: ObjectHandle, kind: AclKind, index: usize, rights: u32 },
    /// Puts a value.
    Put { dir: ObjectHandle, name: OpName, bytes: Bytes, owner: Owner },
    /// Erases a key.
    Erase { dir: ObjectHandle, name: OpName },
    /// Makes several puts and erases in one commit, if all conditions of the batch hold.
    Batch { dir: ObjectHandle, parts: Vec<BatchPart> },
    /// Sets the limits of quotas, or removes them.
    SetLimits { limits: Option<QuotaTable> },
    /// Opens an object. The run closes it later.
    Open { object: ObjectHandle },
    /// Closes an object once. Has no effect if the run does not have this object open.
    Close { object: ObjectHandle },
}

/// One step of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpStep {
    /// Number of the step. The first step has number 1.
    pub number: u32,
    /// Time of the step.
    pub time: Time,
    /// The action.
    pub action: Action,
}

impl OpStep {
    /// Returns the objects that the step needs. The object that the step creates is not among them.
    pub fn handles(&self) -> Vec<ObjectHandle> {
        match self.action {
            Action::Create { dir, .. }
            | Action::CreateUnnamed { dir, .. }
            | Action::Unlink { dir, .. }
            | Action::RemoveDirectory { dir, .. }
            | Action::Put { dir, .. }
            | Action::Erase { dir, .. }
            | Action::Batch { dir, .. } => vec![dir],
            Action::Link { dir, object, .. } => vec![dir, object],
            Action::Rename { from, to, .. } => vec![from.0, to.0],
            Action::CloneRange { source, target, .. } => vec![source.0, target.0],
            Action::Write { object, .. }
            | Action::Append { object, .. }
            | Action::SetSize { object, .. }
            | Action::Fallocate { object, .. }
            | Action::SetAttributes { object, .. }
            | Action::MarkAccess { object }
            | Action::SetXattr { object, .. }
            | Action::RemoveXattr { object, .. }
            | Action::SetAcl { object, .. }
            | Action::Open { object }
            | Action::Close { object } => vec![object],
            Action::SetLimits { .. } => vec![ObjectHandle::ROOT],
        }
    }
}

impl fmt::Display for OpStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{} at {}: {:?}", self.number, self.time.seconds, self.action)
    }
}
