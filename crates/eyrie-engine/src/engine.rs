//! The engine contract: look-ups and reads without locks, and Ops.

use eyrie_medium::epoch::Guard;

use crate::{Applied, Error, Kind, ObjectId, Op, Owner, Result, Time};

/// What `stat` tells of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, at most 0o7777.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Number of names; for a directory 2 and its subdirectories.
    pub links: u32,
    /// Bytes of a file or of a symbolic link's target; the number of entries of a directory.
    pub size: u64,
    /// Bytes of storage that it and its extended attributes occupy, headers apart.
    pub allocated: u64,
    /// Last access, as far as it was ever set.
    pub accessed: Time,
    /// Last change of the bytes or entries.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// Device number of a device.
    pub device: u64,
    /// The directory that a directory is in; the root is in itself.
    pub parent: Option<ObjectId>,
}

/// What never changes about an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth {
    /// When it was created.
    pub created: Time,
    /// Tells one use of an id from the next.
    pub generation: u64,
}

/// One entry of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Its name, 1 to 255 bytes of any kind.
    pub name: &'a [u8],
    /// The object it names.
    pub id: ObjectId,
    /// Where a listing goes on after this entry.
    pub next: u64,
}

/// Space of a volume, in bytes unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceUsage {
    /// Everything that objects can use and do use.
    pub total: u64,
    /// What is free.
    pub free: u64,
    /// Live objects (a count).
    pub objects: u64,
}

/// What holds a volume.
///
/// Ids stay valid while the caller holds a pin ([`eyrie_medium::epoch::pin`]) taken before the look-up that gave them,
/// or has them [`open`](Engine::open); after that, calls may answer [`Error::Stale`].
/// Calls take `&self` and may come from any thread; look-ups and reads wait for no lock.
pub trait Engine: Send + Sync {
    /// The root directory.
    fn root(&self) -> ObjectId;

    /// The object that `name` names in `dir`.
    ///
    /// # Errors
    /// `NotDirectory`, `NameTooLong`, `Stale`, `Corrupt`, `Fault`. A missing name is `Ok(None)`.
    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>>;

    /// The attributes of an object.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Fault`.
    fn attributes(&self, id: ObjectId) -> Result<Attributes>;

    /// When an object was created, and its generation.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn birth(&self, id: ObjectId) -> Result<Birth>;

    /// Owner and permissions of an object: a part of its attributes that never costs a pass over a directory.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn owner(&self, id: ObjectId) -> Result<Owner> {
        let Attributes { mode, uid, gid, .. } = self.attributes(id)?;
        Ok(Owner { mode, uid, gid })
    }

    /// The directory that a directory is in; `None` once it is removed. The root is in itself. A part of its attributes that
    /// never costs a pass over it.
    ///
    /// # Errors
    /// `NotDirectory`; as [`Engine::attributes`].
    fn parent_of(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        if dir.is_directory() { Ok(self.attributes(dir)?.parent) } else { Err(Error::NotDirectory) }
    }

    /// True once an object has lost its last name. A part of its attributes that never costs a pass over a directory.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn is_removed(&self, id: ObjectId) -> Result<bool> {
        Ok(self.attributes(id)?.links == 0)
    }

    /// Reads from `offset` on; the number of bytes read, less than asked only at the end of the file.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` for what has no bytes, `Stale`, `Corrupt`, `Fault`.
    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize>;

    /// All bytes of a file in place, where the engine can show them so; otherwise `None`, and they can be read.
    ///
    /// # Errors
    /// As [`Engine::read`].
    fn view<'a>(&'a self, id: ObjectId, guard: &'a Guard) -> Result<Option<&'a [u8]>> {
        let _ = (id, guard);
        Ok(None)
    }

    /// The next offset from `offset` on that holds data (`hole` false) or begins a hole (`hole` true; the end of the
    /// file counts as one). `None` past the end, and where no data follows.
    ///
    /// # Errors
    /// As [`Engine::read`].
    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>>;

    /// The size of the value of an extended attribute, in bytes; `None` if there is none of that name. The value is then at
    /// the start of `out`, unless it is too large for that.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Fault`.
    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>>;

    /// Shows the names of all extended attributes, in byte order.
    ///
    /// # Errors
    /// As [`Engine::xattr`].
    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Shows the entries from `cookie` on (0 is the start) until `visit` says false. Entries that exist throughout are
    /// shown exactly once, in whatever order; `.` and `..` are not entries.
    ///
    /// # Errors
    /// `NotDirectory`, `Stale`, `Corrupt`, `Fault`.
    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<()>;

    /// Keeps an object though it may lose its last name, until as many [`close`](Engine::close)s.
    ///
    /// # Errors
    /// `Stale` when it is gone already.
    fn open(&self, id: ObjectId) -> Result<()>;

    /// Ends one [`open`](Engine::open).
    fn close(&self, id: ObjectId);

    /// An id for a new object of this kind.
    ///
    /// # Errors
    /// `NoSpace`, `Fault`.
    fn reserve(&self, kind: Kind) -> Result<ObjectId>;

    /// Gives back a reservation that no Op used.
    fn unreserve(&self, id: ObjectId);

    /// Applies an Op: all of it, or an error and none of it. It is as durable as the medium makes it on return.
    ///
    /// Engines check what keeps the volume sound (names, kinds, emptiness, cycles), not permissions.
    ///
    /// # Errors
    /// The POSIX error of the corresponding call; `NoSpace`, `Stale`, `Corrupt`, `Fault`.
    fn apply(&self, op: &Op<'_>) -> Result<Applied>;

    /// Makes what was freed lately free for use, as far as readers allow; whether to try again what found no space.
    /// The caller holds no pin.
    fn reclaim(&self) -> bool {
        false
    }

    /// Counts changes of directories (moves, removals, changes of rights) that may make a remembered path wrong.
    fn directory_changes(&self) -> u64;

    /// Waits for the Op that changes an object, if there is one: what was seen of it before the call is then as durable as that of
    /// an Op that has returned.
    ///
    /// # Errors
    /// `Fault` when the medium failed.
    fn wait_for(&self, id: ObjectId) -> Result<()>;

    /// Whether all Ops that were applied are as durable as the medium makes them.
    ///
    /// # Errors
    /// `Fault` when the medium failed.
    fn sync(&self) -> Result<()>;

    /// Space of the volume.
    fn space(&self) -> SpaceUsage;
}
