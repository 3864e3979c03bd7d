//! Ops: everything that changes a volume.
//!
//! An [`Op`] is a plain borrowed value: ids of new objects reserved by the caller, its time stamp inside. The same Op is
//! executed by an engine, by the model, and (encoded by [`encode`], the one encoding) recorded, shipped and replayed.

pub mod encode;

use crate::{ObjectId, Time};

/// Longest name of an extended attribute, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Largest value of an extended attribute, and all values of an object together, in bytes.
pub const XATTR_SIZE_MAX: usize = 64 << 10;
/// All names of an object's extended attributes together, with one more each as in a list, in bytes.
pub const XATTR_LIST_MAX: usize = 64 << 10;

/// Longest target of a symbolic link, in bytes.
pub const TARGET_MAX: usize = 4095;
/// Largest number of a device, as `makedev` makes it: `mknod` takes no larger one.
pub const DEVICE_MAX: u64 = u32::MAX as u64;

/// True for the name of an extended attribute that every caller can be given: without a zero byte.
pub(crate) fn is_xattr_name(name: &[u8]) -> bool {
    (1..=XATTR_NAME_MAX).contains(&name.len()) && !name.contains(&0)
}

/// True for the target of a symbolic link that every caller can be given.
pub(crate) fn is_target(target: &[u8]) -> bool {
    (1..=TARGET_MAX).contains(&target.len()) && !target.contains(&0)
}

/// Owner and permissions of a new object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Permission bits, set-id and sticky bits included: at most 0o7777.
    pub mode: u16,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// What a new object starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// Nothing: an empty file or directory, a pipe, a socket.
    Empty,
    /// The bytes of a file, or the target of a symbolic link: 1 to [`TARGET_MAX`] bytes, none of them zero.
    Bytes(&'a [u8]),
    /// Number of a device, at most [`DEVICE_MAX`].
    Device(u64),
}

/// What a rename does about an entry that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replaces it, as POSIX says.
    Replace,
    /// Fails with `EEXIST` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps both (`RENAME_EXCHANGE`).
    Exchange,
}

/// What `fallocate` does to a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FallocateMode {
    /// Gives it storage, and makes the file at least as large as that.
    Allocate,
    /// Gives it storage (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Makes it a hole; the size stays (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole,
    /// Makes it zeros that have storage, and the file at least as large as that (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange,
    /// The same, and the size stays.
    ZeroRangeKeepSize,
    /// Takes it out of the file: what follows moves there (`FALLOC_FL_COLLAPSE_RANGE`).
    CollapseRange,
    /// Puts a hole there: what was there moves behind it (`FALLOC_FL_INSERT_RANGE`).
    InsertRange,
}

impl FallocateMode {
    /// All of them.
    pub const ALL: [FallocateMode; 7] = [
        FallocateMode::Allocate,
        FallocateMode::KeepSize,
        FallocateMode::PunchHole,
        FallocateMode::ZeroRange,
        FallocateMode::ZeroRangeKeepSize,
        FallocateMode::CollapseRange,
        FallocateMode::InsertRange,
    ];

    /// Whether a range that ends past the end of the file makes it larger.
    pub fn extends(self) -> bool {
        matches!(self, FallocateMode::Allocate | FallocateMode::ZeroRange)
    }

    /// Whether what follows the range moves.
    pub fn shifts(self) -> bool {
        matches!(self, FallocateMode::CollapseRange | FallocateMode::InsertRange)
    }
}

/// What setting an extended attribute asks of the one that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Nothing: it is made or replaced.
    Set,
    /// That there is none, else `EEXIST` (`XATTR_CREATE`).
    Create,
    /// That there is one, else `ENODATA` (`XATTR_REPLACE`).
    Replace,
}

/// Set-id bits that a change of a file takes away, decided by [`access`](crate::access) for the user who changes it.
///
/// The engine clears them in the commit of the change, by the mode that the file has then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SetIds {
    /// None.
    #[default]
    Keep,
    /// Those that a user takes who is in the group of the file.
    DropAsMember,
    /// Those that any other user takes.
    DropAsStranger,
}

impl SetIds {
    /// All of them.
    pub const ALL: [SetIds; 3] = [SetIds::Keep, SetIds::DropAsMember, SetIds::DropAsStranger];
}

/// Attributes to set; `None` leaves one as it is.
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
/// Offsets, sizes and lengths are in bytes. Names are 1 to 255 bytes of any kind. `time` is when it happened: the
/// modification and change time of what it changed. `set_ids` tells which set-id bits a file loses with the change.
#[expect(missing_docs, reason = "the fields are explained with the variants")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    /// A new object `id` (reserved; its kind says what) and its first name. The name must be free.
    Create { dir: ObjectId, name: &'a [u8], id: ObjectId, owner: Owner, content: Content<'a>, time: Time },
    /// Another name for an object that is no directory. The name must be free.
    Link { dir: ObjectId, name: &'a [u8], id: ObjectId, time: Time },
    /// Removes a name of an object that is no directory; the object goes with its last name and last open.
    Unlink { dir: ObjectId, name: &'a [u8], time: Time },
    /// Removes an empty directory.
    RemoveDirectory { dir: ObjectId, name: &'a [u8], time: Time },
    /// Moves an entry, with POSIX's rules for what it may replace.
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
    /// Cuts a file or extends it with zeros.
    SetSize { id: ObjectId, size: u64, set_ids: SetIds, time: Time },
    /// Changes which storage `length` bytes from `offset` on have, by `mode`. To collapse and to insert, both must be
    /// multiples of 4096; the range must begin before the end of the file, and a collapsed one end before it.
    Fallocate { id: ObjectId, mode: FallocateMode, offset: u64, length: u64, set_ids: SetIds, time: Time },
    /// Sets attributes; `time` becomes the change time.
    SetAttributes { id: ObjectId, change: AttributeChange, time: Time },
    /// Sets an extended attribute; `time` becomes the change time. Names have 1 to [`XATTR_NAME_MAX`] bytes,
    /// none of them zero.
    SetXattr { id: ObjectId, name: &'a [u8], value: &'a [u8], mode: XattrMode, time: Time },
    /// Removes an extended attribute; `time` becomes the change time.
    RemoveXattr { id: ObjectId, name: &'a [u8], time: Time },
    /// Sets the value of a key: a new file `id` (reserved) if there is none, else all bytes of the one there is.
    Put { dir: ObjectId, name: &'a [u8], id: ObjectId, owner: Owner, data: &'a [u8], time: Time },
    /// Removes a key and its value. Only files are values.
    Erase { dir: ObjectId, name: &'a [u8], time: Time },
    /// `Put`s and `Erase`s of one directory, each key at most once, all or none. Erasing a key that is not there does nothing here.
    Batch { dir: ObjectId, ops: &'a [Op<'a>], time: Time },
}

/// What an Op did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Where an `Append` began, in bytes.
    pub offset: u64,
    /// Whether a `Put` used its reserved id (the key was new). When it did not, the caller still owns the reservation.
    pub created: bool,
}
