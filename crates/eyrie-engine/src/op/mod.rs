//! Ops: the only way to change a volume.
//!
//! An [`Op`] is a plain borrowed value. It contains the ids of new objects, which the caller reserved, and
//! its time stamp. The same Op is executed by an engine and by the model. The one encoding ([`encode`])
//! serves to record, ship and replay it.

pub mod encode;

use crate::{ObjectId, Time};

/// Longest name of an entry or key, in bytes.
pub const NAME_MAX: usize = 255;
/// Largest size of a file, in bytes.
pub const FILE_MAX: u64 = i64::MAX as u64;
/// Largest value of a key, in bytes: 64 MiB.
pub const VALUE_MAX: usize = 64 << 20;
/// Longest name of an extended attribute, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Largest value of an extended attribute, and largest total of all values of an object, in bytes.
pub const XATTR_SIZE_MAX: usize = 64 << 10;
/// Largest total of the names of an object's extended attributes, plus one for each as in a list, in bytes.
pub const XATTR_LIST_MAX: usize = 64 << 10;

/// Longest target of a symbolic link, in bytes.
pub const TARGET_MAX: usize = 4095;
/// Largest number of a device that `mknod` takes, in the encoding of `makedev`.
pub const DEVICE_MAX: u64 = u32::MAX as u64;

/// True for a name of an extended attribute that every caller can receive: it has no zero byte.
pub(crate) fn is_xattr_name(name: &[u8]) -> bool {
    (1..=XATTR_NAME_MAX).contains(&name.len()) && !name.contains(&0)
}

/// True for a target of a symbolic link that every caller can receive.
pub(crate) fn is_target(target: &[u8]) -> bool {
    (1..=TARGET_MAX).contains(&target.len()) && !target.contains(&0)
}

/// Owner and permissions of a new object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Permission bits, including set-id and sticky bits: at most 0o7777.
    pub mode: u16,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Initial content of a new object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// Nothing: an empty file or directory, a pipe, a socket.
    Empty,
    /// The bytes of a file, or the target of a symbolic link: 1 to [`TARGET_MAX`] bytes, none of them zero.
    Bytes(&'a [u8]),
    /// Number of a device, at most [`DEVICE_MAX`].
    Device(u64),
}

/// Treatment of an existing entry at the new name of a rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replace it, by the rules of POSIX.
    Replace,
    /// Fail with `EEXIST` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swap both entries (`RENAME_EXCHANGE`).
    Exchange,
}

/// Effect of `fallocate` on a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FallocateMode {
    /// Give it storage, and extend the file to its end.
    Allocate,
    /// Give it storage, and keep the size (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Make it a hole, and keep the size (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole,
    /// Fill it with zeros that have storage, and extend the file to its end (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange,
    /// Fill it with zeros that have storage, and keep the size.
    ZeroRangeKeepSize,
    /// Remove it from the file. The bytes after it move to its start (`FALLOC_FL_COLLAPSE_RANGE`).
    CollapseRange,
    /// Insert a hole there. The bytes from its start on move behind it (`FALLOC_FL_INSERT_RANGE`).
    InsertRange,
}

impl FallocateMode {
    /// All modes.
    pub const ALL: [FallocateMode; 7] = [
        FallocateMode::Allocate,
        FallocateMode::KeepSize,
        FallocateMode::PunchHole,
        FallocateMode::ZeroRange,
        FallocateMode::ZeroRangeKeepSize,
        FallocateMode::CollapseRange,
        FallocateMode::InsertRange,
    ];

    /// True if a range that ends past the end of the file extends it.
    pub fn extends(self) -> bool {
        matches!(self, FallocateMode::Allocate | FallocateMode::ZeroRange)
    }

    /// True if the bytes after the range move.
    pub fn shifts(self) -> bool {
        matches!(self, FallocateMode::CollapseRange | FallocateMode::InsertRange)
    }
}

/// Condition of a change of an extended attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// No condition: it is created or replaced.
    Set,
    /// It must not exist, else `EEXIST` (`XATTR_CREATE`).
    Create,
    /// It must exist, else `ENODATA` (`XATTR_REPLACE`).
    Replace,
}

/// Set-id bits that a change of a file clears. [`access`](crate::access) decides for the user who makes the
/// change.
///
/// The engine clears the bits in the commit of the change, from the mode that the file has at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SetIds {
    /// Clear none.
    #[default]
    Keep,
    /// Clear those that a write by a member of the file's group clears.
    DropAsMember,
    /// Clear those that a write by any other user clears.
    DropAsStranger,
}

impl SetIds {
    /// All values.
    pub const ALL: [SetIds; 3] = [SetIds::Keep, SetIds::DropAsMember, SetIds::DropAsStranger];
}

/// Attributes to set. `None` leaves an attribute as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributeChange {
    /// Permission bits, at most 0o7777.
    pub mode: Option<u16>,
    /// Set-id bits that the mode loses.
    pub set_ids: SetIds,
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Access time.
    pub accessed: Option<Time>,
    /// Modification time.
    pub modified: Option<Time>,
}

/// One change of a volume, whole or not at all.
///
/// Offsets, sizes and lengths are in bytes. Names are 1 to 255 bytes of any kind. `time` is the time of the
/// change; it becomes the modification and change time of all changed objects. `set_ids` selects the set-id
/// bits that a file loses with the change.
#[expect(missing_docs, reason = "the fields are explained with the variants")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    /// Creates the object `id` (reserved; it contains the kind) with its first name. The name must be free.
    Create { dir: ObjectId, name: &'a [u8], id: ObjectId, owner: Owner, content: Content<'a>, time: Time },
    /// Gives another name to an object that is no directory. The name must be free.
    Link { dir: ObjectId, name: &'a [u8], id: ObjectId, time: Time },
    /// Removes a name of an object that is no directory. The object is freed after its last name and last
    /// open handle.
    Unlink { dir: ObjectId, name: &'a [u8], time: Time },
    /// Removes an empty directory.
    RemoveDirectory { dir: ObjectId, name: &'a [u8], time: Time },
    /// Moves an entry. POSIX's rules decide which entry it may replace.
    Rename {
        from_dir: ObjectId,
        from_name: &'a [u8],
        to_dir: ObjectId,
        to_name: &'a [u8],
        mode: RenameMode,
        time: Time,
    },
    /// Stores bytes in a file, which grows as needed.
    Write { id: ObjectId, offset: u64, data: &'a [u8], set_ids: SetIds, time: Time },
    /// Stores bytes at the end of a file.
    Append { id: ObjectId, data: &'a [u8], set_ids: SetIds, time: Time },
    /// Truncates a file, or extends it with zeros.
    SetSize { id: ObjectId, size: u64, set_ids: SetIds, time: Time },
    /// Changes the storage of `length` bytes from `offset` on, by `mode`. For a collapse or an insert, both
    /// must be multiples of 4096. The range must then begin before the end of the file, and a collapsed
    /// range must end before it.
    Fallocate { id: ObjectId, mode: FallocateMode, offset: u64, length: u64, set_ids: SetIds, time: Time },
    /// Sets attributes; `time` becomes the change time.
    SetAttributes { id: ObjectId, change: AttributeChange, time: Time },
    /// Sets an extended attribute; `time` becomes the change time. Names have 1 to [`XATTR_NAME_MAX`] bytes,
    /// none of them zero.
    SetXattr { id: ObjectId, name: &'a [u8], value: &'a [u8], mode: XattrMode, time: Time },
    /// Removes an extended attribute; `time` becomes the change time.
    RemoveXattr { id: ObjectId, name: &'a [u8], time: Time },
    /// Sets the value of a key. If the key exists, replaces all bytes of its file; otherwise creates the
    /// file `id` (reserved).
    Put { dir: ObjectId, name: &'a [u8], id: ObjectId, owner: Owner, data: &'a [u8], time: Time },
    /// Removes a key and its value. Only files are values.
    Erase { dir: ObjectId, name: &'a [u8], time: Time },
    /// `Put`s and `Erase`s in one directory, each key at most once; all are applied, or none. Erasing a
    /// missing key has no effect here.
    Batch { dir: ObjectId, ops: &'a [Op<'a>], time: Time },
}

/// The result of an Op.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Offset at which an `Append` began, in bytes.
    pub offset: u64,
    /// True if a `Put` used its reserved id, because the key was new. If false, the caller still owns the
    /// reservation.
    pub created: bool,
}
