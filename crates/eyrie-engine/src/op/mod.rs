//! Ops: the only way to change the names, bytes and attributes in a volume.
//!
//! An [`Op`] is a plain borrowed value. It contains its time stamp, and the ids of new objects, which the
//! caller has reserved. All engines, including the model, execute the same Ops. The one encoding ([`encode`])
//! serves to record, send and replay Ops.

pub mod encode;
mod fallocate;
mod limits;
mod touched;

use eyrie_medium::Medium;

use crate::{ObjectId, Time, Version};

pub use fallocate::FallocateMode;
pub(crate) use limits::is_xattr_name;
pub use limits::{
    CAPABILITY_XATTR, DEVICE_MAX, FILE_MAX, NAME_MAX, TARGET_MAX, VALUE_MAX, XATTR_LIST_MAX, XATTR_NAME_MAX,
    XATTR_SIZE_MAX, is_target,
};
pub use touched::Touched;

/// Owner and permissions of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Permission bits, including set-id and sticky bits. No bits above 0o7777 are set, except
    /// [`Owner::INHERITS`] in an Op that makes an object.
    pub mode: u16,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Owner {
    /// A bit in the mode of a new object. It means that the caller has applied no umask to the mode, because
    /// the directory has a default ACL. If the directory has no such ACL any more, the Op fails with `Stale`,
    /// and the caller reads the directory again.
    pub const INHERITS: u16 = 1 << 12;
}

/// Initial contents of a new object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// Nothing. For an empty file or directory, a pipe or a socket.
    Empty,
    /// The bytes of a file, or the target of a symbolic link. A target has 1 to [`TARGET_MAX`] bytes, none of
    /// them zero.
    Bytes(&'a [u8]),
    /// Number of a device. Its maximum is [`DEVICE_MAX`].
    Device(u64),
}

/// Treatment of an existing entry at the new name of a rename.
///
/// ```
/// use eyrie_engine::RenameMode;
///
/// let keep_existing = true;
/// let mode = if keep_existing { RenameMode::NoReplace } else { RenameMode::Replace };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replace the entry, by the rules of POSIX.
    Replace,
    /// Fail with `EEXIST` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swap the two entries (`RENAME_EXCHANGE`).
    Exchange,
    /// Replace the entry, and leave a [whiteout](Whiteout) at the old name (`RENAME_WHITEOUT`).
    Whiteout,
    /// Fail with `EEXIST`. If the new name is free, leave a whiteout at the old name
    /// (`RENAME_NOREPLACE | RENAME_WHITEOUT`).
    NoReplaceWhiteout,
}

impl RenameMode {
    /// All modes.
    pub const ALL: [RenameMode; 5] = [
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
        RenameMode::Whiteout,
        RenameMode::NoReplaceWhiteout,
    ];

    /// Returns the flags that renameat2(2) has for this mode.
    ///
    /// ```
    /// # use eyrie_engine::RenameMode;
    /// assert_eq!(RenameMode::Exchange.flags(), 2); // RENAME_EXCHANGE
    /// assert!(RenameMode::ALL.iter().all(|&mode| RenameMode::of_flags(mode.flags()) == Some(mode)));
    /// ```
    pub fn flags(self) -> u32 {
        match self {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1,
            RenameMode::Exchange => 2,
            RenameMode::Whiteout => 4,
            RenameMode::NoReplaceWhiteout => 5,
        }
    }

    /// Returns the mode with these flags of renameat2(2). `None` for unknown flags, and for flags that
    /// exclude each other.
    pub fn of_flags(flags: u32) -> Option<RenameMode> {
        RenameMode::ALL.into_iter().find(|mode| mode.flags() == flags)
    }

    /// True if the rename fails when the new name exists.
    #[doc(hidden)]
    #[inline]
    pub fn needs_free_name(self) -> bool {
        matches!(self, RenameMode::NoReplace | RenameMode::NoReplaceWhiteout)
    }

    /// True if the old name belongs to a whiteout afterwards.
    #[doc(hidden)]
    #[inline]
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, RenameMode::Whiteout | RenameMode::NoReplaceWhiteout)
    }
}

/// The whiteout that a rename makes: a character device with number 0. To an overlay file system, such a
/// device marks a removed name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whiteout {
    /// Id of a character device. The caller has reserved this id.
    pub id: ObjectId,
    /// Owner and permissions.
    pub owner: Owner,
}

/// Condition of a change of an extended attribute.
///
/// ```
/// use eyrie_engine::XattrMode;
///
/// let must_be_new = true;
/// let mode = if must_be_new { XattrMode::Create } else { XattrMode::Set };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// No condition. The attribute is created or replaced.
    Set,
    /// The attribute must not exist, otherwise the Op fails with `EEXIST` (`XATTR_CREATE`).
    Create,
    /// The attribute must exist, otherwise the Op fails with `ENODATA` (`XATTR_REPLACE`).
    Replace,
}

/// Condition on a key. A conditional change is made only if its condition holds.
///
/// ```
/// use eyrie_engine::{Condition, Version};
///
/// /// Returns the condition that a value is still as it was seen.
/// fn unchanged(seen: Option<Version>) -> Condition {
///     seen.map_or(Condition::Absent, Condition::Version)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Condition {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// The key exists, and its value has this version.
    Version(Version),
}

impl Condition {
    /// True if the condition holds for a key with this version. `None` stands for a key that does not exist.
    pub(crate) fn holds(self, version: Option<Version>) -> bool {
        match self {
            Condition::Absent => version.is_none(),
            Condition::Present => version.is_some(),
            Condition::Version(wanted) => version == Some(wanted),
        }
    }
}

/// Set-id bits that a change of a file clears. The module [`access`](crate::access) chooses this value for
/// the user who makes the change.
///
/// The engine clears the bits in the same commit as the change, from the mode that the file has at that
/// moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SetIds {
    /// Clear no bits.
    #[default]
    Keep,
    /// Clear the bits that a write by a member of the file's group clears: the set-user-id bit, and the
    /// set-group-id bit if the group may execute the file.
    DropAsMember,
    /// Clear both set-id bits, as a write by a user outside the group does.
    DropAsStranger,
}

impl SetIds {
    /// All values.
    pub const ALL: [SetIds; 3] = [SetIds::Keep, SetIds::DropAsMember, SetIds::DropAsStranger];
}

/// The two kinds of ACLs.
///
/// ```
/// use eyrie_engine::access::AclKind;
///
/// assert_eq!(AclKind::of_name(b"system.posix_acl_default"), Some(AclKind::Default));
/// assert_eq!(AclKind::ALL.map(AclKind::name)[0], b"system.posix_acl_access");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AclKind {
    /// Decides the rights to an object.
    Access,
    /// Is inherited by the objects that are made in a directory.
    Default,
}

impl AclKind {
    /// Both kinds.
    pub const ALL: [AclKind; 2] = [AclKind::Access, AclKind::Default];

    /// Returns the name of the extended attribute that holds an ACL of this kind.
    pub fn name(self) -> &'static [u8] {
        match self {
            AclKind::Access => b"system.posix_acl_access",
            AclKind::Default => b"system.posix_acl_default",
        }
    }

    /// Returns the kind of the ACL that the extended attribute `name` holds. `None` if this attribute holds
    /// no ACL.
    pub fn of_name(name: &[u8]) -> Option<AclKind> {
        AclKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

bitflags::bitflags! {
    /// The inode flags that a volume has. They are a subset of the flags that chattr(1) sets, and have the
    /// same values as in Linux. Only files and directories have such flags.
    ///
    /// ```
    /// use eyrie_engine::InodeFlags;
    ///
    /// assert!(InodeFlags::default().is_empty());
    /// assert_eq!(InodeFlags::APPEND_ONLY.bits(), 0x20); // FS_APPEND_FL
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct InodeFlags: u8 {
        /// Nobody can change the bytes, the attributes or the names of the object, or the entries of a
        /// directory. Handles that were opened before the flag was set can still write.
        const IMMUTABLE = 0x10;
        /// A file can only be appended to, and a directory can only get new entries. Nobody can change the
        /// attributes or the names of the object, but a call can set its times to the present time.
        const APPEND_ONLY = 0x20;
    }
}

/// Attributes to set. `None` leaves an attribute unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributeChange {
    /// Permission bits. No bits above 0o7777 are set.
    pub mode: Option<u16>,
    /// Size of a file, in bytes. The modification time then becomes the time of the Op, unless `modified`
    /// sets another time.
    pub size: Option<u64>,
    /// Set-id bits that the mode loses.
    pub set_ids: SetIds,
    /// True if the object loses its [`CAPABILITY_XATTR`], as with a new size or a change of owner.
    pub drops_capability: bool,
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Access time.
    pub accessed: Option<Time>,
    /// Modification time.
    pub modified: Option<Time>,
    /// Inode flags of a file or a directory.
    pub flags: Option<InodeFlags>,
    /// Project id of the tree to which the object belongs, or 0. New objects in a directory inherit its
    /// project id while the volume has quotas.
    pub project: Option<u32>,
}

/// One change of a volume, whole or not at all.
///
/// Offsets, sizes and lengths are in bytes. Names are 1 to 255 bytes of any kind. `time` is the time of the
/// change. It becomes the change time of all changed objects (except with `MarkAccess`), and the modification
/// time of files and directories whose bytes or entries change. If `time` is earlier than the latest change
/// of a directory, an engine may keep the later time of the directory. `set_ids` selects the set-id bits that
/// a file loses with the change.
#[expect(missing_docs, reason = "the fields are explained with the variants")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    /// Creates the object `id` with its first name. The caller has reserved `id`, which contains the kind of
    /// the object. The directory must have no entry with this name. If the directory has a default ACL, the
    /// object inherits it, unless the object is a symbolic link.
    Create { dir: ObjectId, name: &'a [u8], id: ObjectId, owner: Owner, content: Content<'a>, time: Time },
    /// Creates an empty file that has no name, as `O_TMPFILE` does. The caller has reserved `id`. The file
    /// inherits the default ACL of `dir`, but no entry leads to the file. The file lives as long as a handle
    /// keeps it open, so the caller [opens](crate::Engine::open) it at once. That open may fail with `Stale`,
    /// because the last close in a stripe of objects frees all orphans of the stripe that nothing keeps open,
    /// and the new file is such an orphan until it is open. `Link` can give the file its first name if
    /// `linkable` is true.
    CreateUnnamed { dir: ObjectId, id: ObjectId, owner: Owner, linkable: bool, time: Time },
    /// Gives another name to an object that is not a directory, or the first name to a linkable file of
    /// `CreateUnnamed`. The directory must have no entry with this name. An object that has lost its last
    /// name gets no further name.
    Link { dir: ObjectId, name: &'a [u8], id: ObjectId, time: Time },
    /// Removes a name of an object that is not a directory. The object is freed when it has neither a name
    /// nor an open handle.
    Unlink { dir: ObjectId, name: &'a [u8], time: Time },
    /// Removes an empty directory.
    RemoveDirectory { dir: ObjectId, name: &'a [u8], time: Time },
    /// Moves an entry. `mode` selects the treatment of an existing entry at the new name. With `Exchange`,
    /// the two entries swap their objects. `whiteout` is `Some` in exactly the two modes that leave a
    /// whiteout. The whiteout inherits ACLs as an object of `Create` does. If both names are names of one
    /// object, nothing changes, and the whiteout is not made.
    Rename {
        from_dir: ObjectId,
        from_name: &'a [u8],
        to_dir: ObjectId,
        to_name: &'a [u8],
        mode: RenameMode,
        whiteout: Option<Whiteout>,
        time: Time,
    },
    /// Stores bytes in a file. The file grows if the bytes end past its end.
    Write { id: ObjectId, offset: u64, data: &'a [u8], set_ids: SetIds, time: Time },
    /// Stores bytes at the end of a file.
    Append { id: ObjectId, data: &'a [u8], set_ids: SetIds, time: Time },
    /// Truncates a file, or extends it with zeros.
    SetSize { id: ObjectId, size: u64, set_ids: SetIds, time: Time },
    /// Changes the storage of `length` bytes (1 or more) from `offset` on, according to `mode`. For a
    /// collapse or an insert, `offset` and `length` must be multiples of 4096. The range must then begin
    /// before the end of the file. A collapsed range must also end before the end of the file.
    Fallocate { id: ObjectId, mode: FallocateMode, offset: u64, length: u64, set_ids: SetIds, time: Time },
    /// Replaces bytes of the file `id`, from `offset` on, with `length` bytes of the file `source`, from
    /// `source_offset` on. Both files then share the extents of these bytes. A length of 0 means all bytes up
    /// to the end of the source, which may be none. Offsets and length must be multiples of 4096. There is
    /// one exception: the length may be another number if the range ends with the source. The bytes must then
    /// end at the end of the file `id` or past it. If both files are the same one, the pages of the two
    /// ranges must not overlap.
    CloneRange {
        source: ObjectId,
        source_offset: u64,
        id: ObjectId,
        offset: u64,
        length: u64,
        set_ids: SetIds,
        time: Time,
    },
    /// Sets attributes. `time` becomes the change time.
    SetAttributes { id: ObjectId, change: AttributeChange, time: Time },
    /// Notes a read of an object. `time` becomes the access time, and the change time stays.
    MarkAccess { id: ObjectId, time: Time },
    /// Sets an extended attribute that is not an ACL. `time` becomes the change time. Names have 1 to
    /// [`XATTR_NAME_MAX`] bytes, none of them zero.
    SetXattr { id: ObjectId, name: &'a [u8], value: &'a [u8], mode: XattrMode, time: Time },
    /// Removes an extended attribute that is not an ACL. `time` becomes the change time.
    RemoveXattr { id: ObjectId, name: &'a [u8], time: Time },
    /// Sets an ACL of an object that is not a symbolic link. `acl` has the format that Linux gives to the
    /// extended attribute [`AclKind::name`]. An `acl` without an entry removes the ACL. An access ACL also
    /// sets the permission bits of the mode. An access ACL that says no more than the mode is not stored.
    /// `drops_set_gid` clears the set-group-id bit, too. Only directories have default ACLs. `time` becomes
    /// the change time.
    SetAcl { id: ObjectId, kind: AclKind, acl: &'a [u8], drops_set_gid: bool, time: Time },
    /// Sets the value of a key. If the key exists, the Op replaces all bytes of its file. Otherwise the Op
    /// creates the file `id`, which the caller has reserved, as `Create` does.
    Put { dir: ObjectId, name: &'a [u8], id: ObjectId, owner: Owner, data: &'a [u8], time: Time },
    /// Removes a key and its value. The key must name a file.
    Erase { dir: ObjectId, name: &'a [u8], time: Time },
    /// Requires that a condition holds for a key. An existing key must name a file. Allowed only in a batch,
    /// because this Op changes nothing.
    Expect { dir: ObjectId, name: &'a [u8], condition: Condition },
    /// Applies `Put`s and `Erase`s in one directory, all of them or none. Each key is changed at most once,
    /// and no two changed keys name one object. All changes get the time of the batch, and the times of its
    /// Ops are ignored. In a batch, an `Erase` of a missing key has no effect. A batch that succeeds also
    /// gives back the reserved ids of `Put`s whose keys existed, because [`Applied`] cannot name them.
    ///
    /// The batch may also have any number of `Expect`s, with at most one for each key. The position of an
    /// `Expect` in the batch makes no difference: an `Expect` always refers to its key as the key is before
    /// the batch. If a condition does not hold, the batch fails with
    /// [`ConditionFailed`](crate::Error::ConditionFailed).
    Batch { dir: ObjectId, ops: &'a [Op<'a>], time: Time },
}

/// Room in the journal of a disk for one change of a batch, in bytes. Most changes need less.
const ROOM_OF_A_KEY: u64 = 512;

/// Maximum number of bytes of a clone for which its first attempt keeps room in the journal of a disk. If a
/// longer clone needs more room, it runs again. The room is for the shared bits in the pointers of the
/// source, with 8 bytes for each page. The pointers of the target are in new pages, which need little room.
const CLONED_WITH_ROOM: u64 = 1 << 30;

impl Op<'_> {
    /// Returns the ids, reserved by the caller, of the objects that the Op may create.
    pub fn new_ids(&self) -> Vec<ObjectId> {
        match *self {
            Op::Create { id, .. } | Op::CreateUnnamed { id, .. } | Op::Put { id, .. } => vec![id],
            Op::Rename { whiteout: Some(Whiteout { id, .. }), .. } => vec![id],
            Op::Batch { ops, .. } => ops.iter().flat_map(Op::new_ids).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the time of the change. A condition changes nothing, so its time is 0.
    pub fn time(&self) -> Time {
        match *self {
            Op::Create { time, .. }
            | Op::CreateUnnamed { time, .. }
            | Op::Link { time, .. }
            | Op::Unlink { time, .. }
            | Op::RemoveDirectory { time, .. }
            | Op::Rename { time, .. }
            | Op::Write { time, .. }
            | Op::Append { time, .. }
            | Op::SetSize { time, .. }
            | Op::Fallocate { time, .. }
            | Op::CloneRange { time, .. }
            | Op::SetAttributes { time, .. }
            | Op::MarkAccess { time, .. }
            | Op::SetXattr { time, .. }
            | Op::RemoveXattr { time, .. }
            | Op::SetAcl { time, .. }
            | Op::Put { time, .. }
            | Op::Erase { time, .. }
            | Op::Batch { time, .. } => time,
            Op::Expect { .. } => Time::default(),
        }
    }

    /// Returns the room in the journal of a disk that this Op is likely to need beyond that of an ordinary
    /// Op, in bytes.
    pub(crate) fn journal_room(&self) -> u64 {
        match *self {
            Op::Batch { ops, .. } => ops.iter().map(|op| ROOM_OF_A_KEY + op.journal_room()).sum(),
            Op::Fallocate { length, .. } => Medium::room_of_new(length.min(VALUE_MAX as u64)),
            Op::CloneRange { length, .. } => Medium::room_of_stores(length.min(CLONED_WITH_ROOM) / 512),
            // A large extent is at most about a quarter larger than the bytes that are stored in it.
            _ => Medium::room_of_new(self.data_len() / 4 * 5),
        }
    }

    /// Returns the number of bytes of files and values that this Op stores.
    pub fn data_len(&self) -> u64 {
        match *self {
            Op::Write { data, .. }
            | Op::Append { data, .. }
            | Op::Put { data, .. }
            | Op::Create { content: Content::Bytes(data), .. } => data.len() as u64,
            Op::Batch { ops, .. } => ops.iter().map(Op::data_len).sum(),
            _ => 0,
        }
    }
}

/// The result of an Op.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Offset at which an `Append` began, in bytes.
    pub offset: u64,
    /// True if a `Put` used its reserved id, because the key was new, or if a `Rename` made its whiteout.
    /// After a `Put` or a `Rename` that returns false, the caller still owns the reservation. False for a
    /// `Batch`. Other Ops do not define this field.
    pub created: bool,
    /// Generation of the object that a `Create` made, if the engine has [sessions](crate::Engine::session).
    /// In the next session a caller compares this generation with that of the object that then has the id.
    /// Other Ops, and engines without sessions, do not define this field.
    pub generation: u64,
}
