//! The engine contract: look-ups, reads and Ops.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use eyrie_medium::epoch::Guard;

mod forward;
mod guards;
mod reserved;

pub use guards::StoredProtection;
pub use reserved::with_reserved;

use crate::advisory::{HeldLock, LockOwner, LockRequest, LockWaiter};
use crate::quota::{QuotaId, QuotaReport};
use crate::{Applied, Error, InodeFlags, Kind, Notice, ObjectId, Op, Owner, Result, Time, Version, Watcher};

/// Returns the number of a new engine: see [`Engine::instance`].
pub fn next_instance() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Largest cookie of a listing. Offsets in directories are signed 64-bit numbers in Linux. So two larger
/// numbers are left for the entries `.` and `..`, which an engine does not list.
pub const COOKIE_MAX: u64 = i64::MAX as u64 - 2;

/// The attributes that `stat` reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Kind of the object.
    pub kind: Kind,
    /// Permission bits, up to 0o7777.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Number of names. For a directory: 2 plus the number of its subdirectories, or 0 once it is removed.
    pub links: u32,
    /// Length of a file or of a symbolic link's target, in bytes. For a directory: its number of entries.
    pub size: u64,
    /// Bytes of storage that the object and its extended attributes occupy, without the header of the object.
    /// The number leaves out the nodes of a file's tree, and the pages of a directory. Shared extents count
    /// in full for each file. The number is an estimate if a file has many holes.
    pub allocated: u64,
    /// Time of the last access that `MarkAccess` noted, a time that a call set, or the creation time. A read
    /// alone does not change this time.
    pub accessed: Time,
    /// Last change of the bytes or entries.
    pub modified: Time,
    /// Last change of any attribute, of the bytes or of the entries.
    pub changed: Time,
    /// Device number of a device.
    pub device: u64,
    /// The directory that contains this directory. The root contains itself. `None` for a removed directory,
    /// and for an object that is no directory.
    pub parent: Option<ObjectId>,
}

/// Attributes that never change during the life of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth {
    /// Time of the creation.
    pub created: Time,
    /// A number that distinguishes this use of an id from later uses of the same id.
    pub generation: u64,
}

/// One entry of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedEntry<'a> {
    /// Name of the entry, 1 to 255 bytes of any kind.
    pub name: &'a [u8],
    /// The object that the entry names.
    pub id: ObjectId,
    /// Cookie at which a listing continues after this entry. At most [`COOKIE_MAX`].
    pub next: u64,
}

/// Bytes of a file in place, as [`Engine::view`] lends them. They do not change while the guard lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileView<'a> {
    /// The stored bytes from the start of the range on. They end at the end of the range or of the file, or
    /// earlier if the file is in several pieces. The slice is empty in a hole, and at and past the end of the
    /// file.
    pub bytes: &'a [u8],
    /// Size of the file, in bytes.
    pub size: u64,
}

impl<'a> FileView<'a> {
    /// Returns the bytes of a view that begins at offset 0, if they are all bytes of the file.
    pub fn whole(self) -> Option<&'a [u8]> {
        (self.bytes.len() as u64 == self.size).then_some(self.bytes)
    }
}

/// Space of a volume. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceUsage {
    /// Bytes of storage for objects, in use or free.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Number of live objects.
    pub objects: u64,
}

/// An engine: it holds a volume, answers look-ups and reads, and applies Ops.
///
/// An id stays valid while the caller holds a pin ([`eyrie_medium::epoch::pin`]) that it took before the
/// look-up, or while the object is [`open`](Engine::open). Without a pin or an open, calls with the id may
/// return [`Error::Stale`].
///
/// Calls take `&self` and may come from any thread. Look-ups and reads of [`Scm`](crate::scm::Scm) wait for
/// no lock, with two exceptions:
///
/// - [`Engine::version`] of some files;
/// - [`Engine::attributes`] of a directory that other threads change during each of many attempts.
pub trait Engine: Send + Sync {
    /// Returns the root directory.
    fn root(&self) -> ObjectId;

    /// Returns a number that distinguishes this engine from all other engines of the process, including those
    /// that no longer exist. The number repeats only after 2^32 engines. Open files carry the number, because
    /// their ids mean nothing to another engine. All engines that return 0 count as one engine.
    #[inline]
    fn instance(&self) -> u32 {
        0
    }

    /// True if the volume was opened read-only. Every Op then fails with [`Error::OpenedReadOnly`].
    #[inline]
    fn is_read_only(&self) -> bool {
        false
    }

    /// Returns the object that `name` names in `dir`.
    ///
    /// # Errors
    /// `NotDirectory`, `NameTooLong`, `Invalid` for an empty name, `Stale`, `Corrupt`, `Fault`. A missing
    /// name is `Ok(None)`.
    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>>;

    /// Returns the attributes of an object.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Fault`.
    fn attributes(&self, id: ObjectId) -> Result<Attributes>;

    /// Returns the creation time of an object, and its generation.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn birth(&self, id: ObjectId) -> Result<Birth>;

    /// Returns the generation of an object, as [`Engine::birth`] does.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn generation(&self, id: ObjectId) -> Result<u64> {
        Ok(self.birth(id)?.generation)
    }

    /// Returns the owner and permissions of an object. In [`Scm`](crate::scm::Scm), this call costs less than
    /// [`Engine::attributes`], because it never walks a directory.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn owner(&self, id: ObjectId) -> Result<Owner> {
        let Attributes { mode, uid, gid, .. } = self.attributes(id)?;
        Ok(Owner { mode, uid, gid })
    }

    /// Returns the attributes of an object that decide about permissions. In [`Scm`](crate::scm::Scm), all of
    /// them belong to one moment, and this call never walks a directory, like [`Engine::owner`].
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn guards(&self, id: ObjectId) -> Result<StoredProtection> {
        StoredProtection::read(self, id)
    }

    /// Returns the inode flags of an object.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn inode_flags(&self, id: ObjectId) -> Result<InodeFlags>;

    /// Returns the project id of the tree to which an object belongs, or 0.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn project(&self, id: ObjectId) -> Result<u32> {
        let _ = id;
        Ok(0)
    }

    /// True if an object of the volume may have inode flags. If so, a caller reads the flags of an object
    /// even if it needs no other attribute of the object. In [`Scm`](crate::scm::Scm) the call costs one
    /// load.
    #[inline]
    fn may_have_flags(&self) -> bool {
        true
    }

    /// Returns the largest number of bytes that one Op can write.
    #[inline]
    fn write_max(&self) -> usize {
        usize::MAX
    }

    /// True if several files may share an extent.
    fn may_share_extents(&self) -> bool {
        true
    }

    /// Returns the directory that contains directory `dir`; `None` once `dir` is removed. The root contains
    /// itself. In [`Scm`](crate::scm::Scm), this call costs less than [`Engine::attributes`], because it
    /// never walks a directory.
    ///
    /// # Errors
    /// `NotDirectory` if `dir` is no directory, and the errors of [`Engine::attributes`].
    fn parent_of(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        if dir.is_directory() { Ok(self.attributes(dir)?.parent) } else { Err(Error::NotDirectory) }
    }

    /// True once an object has lost its last name. In [`Scm`](crate::scm::Scm), this call costs less than
    /// [`Engine::attributes`], because it never walks a directory.
    ///
    /// # Errors
    /// As [`Engine::attributes`].
    fn is_removed(&self, id: ObjectId) -> Result<bool> {
        Ok(self.attributes(id)?.links == 0)
    }

    /// Reads bytes into `out` from `offset` on, and returns their number. The number is below `out.len()`
    /// only at the end of the file.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` for an object without bytes, `Stale`, `Corrupt`, `Fault`.
    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize>;

    /// Returns bytes of a file in place. The two offsets of `range` are those of its first byte and of the
    /// byte after its last. `None` if the engine lends no bytes, or if it lends only bytes of sealed files
    /// and this file is not sealed. The caller then uses [`Engine::seal`] or [`Engine::read`].
    ///
    /// # Errors
    /// As [`Engine::read`].
    fn view<'a>(&'a self, id: ObjectId, range: (u64, u64), guard: &'a Guard) -> Result<Option<FileView<'a>>> {
        let _ = (id, range, guard);
        Ok(None)
    }

    /// Seals a file, so that [`Engine::view`] can lend its bytes. Later writes then change no byte in place,
    /// not even within one word. Nothing else about the file changes. A file stays sealed; the values of keys
    /// are sealed from the start. An engine that lends no bytes does nothing.
    ///
    /// # Errors
    /// As [`Engine::read`], and `Invalid` for a symbolic link.
    fn seal(&self, id: ObjectId) -> Result<()> {
        let _ = id;
        Ok(())
    }

    /// Returns the version of the bytes of a file. If the version is the same before and after a read, then
    /// the bytes that were read are those of this version.
    ///
    /// In [`Scm`](crate::scm::Scm) this call waits for the Op that is changing the file, unless the file is
    /// [sealed](Engine::seal) and a single extent, as the value of a key is.
    ///
    /// # Errors
    /// As [`Engine::read`].
    fn version(&self, id: ObjectId) -> Result<Version>;

    /// Returns the next offset from `offset` on that holds data (`hole` is false) or is in a hole (`hole` is
    /// true). The end of the file counts as a hole. The result is `None` if `offset` is at or past the end of
    /// the file, or if `hole` is false and no data follows.
    ///
    /// # Errors
    /// As [`Engine::read`].
    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>>;

    /// Returns true if a file has storage for at least one of its pages. Storage that was allocated and never
    /// written counts, although [`Engine::seek`] reports it as a hole.
    ///
    /// # Errors
    /// As [`Engine::read`].
    fn has_storage(&self, id: ObjectId) -> Result<bool>;

    /// Returns the size in bytes of the value of an extended attribute; `None` if the object has none of that
    /// name. If `out` is large enough, the call copies the value to the start of `out`.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Fault`.
    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>>;

    /// Calls `visit` with the names of all extended attributes, in byte order.
    ///
    /// # Errors
    /// As [`Engine::xattr`].
    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Calls `visit` with the entries from `cookie` on (0 is the start) until `visit` returns false. An entry
    /// that exists during the whole listing is shown exactly once. One exception: entries with equal or
    /// nearly equal hashes, which only chosen names have, may be left out or shown twice if the directory
    /// changes. No two entries have the same `next`. The order is unspecified. `.` and `..` are not entries.
    ///
    /// # Errors
    /// `NotDirectory`, `Stale`, `Corrupt`, `Fault`.
    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()>;

    /// Prefetches the part of an object that its reads need first. The call only saves time, and may do
    /// nothing.
    fn prefetch_object(&self, _id: ObjectId) {}

    /// Prefetches the first bytes of a file. The caller has called
    /// [`prefetch_object`](Engine::prefetch_object) some time before. The call only saves time, and may do
    /// nothing.
    fn prefetch_bytes(&self, _id: ObjectId) {}

    /// Keeps an object alive, even without a name, until each `open` has had its [`close`](Engine::close).
    ///
    /// # Errors
    /// `Stale` if the object no longer exists.
    fn open(&self, id: ObjectId) -> Result<()>;

    /// Ends one [`open`](Engine::open).
    fn close(&self, id: ObjectId);

    /// Keeps an object alive, as an [`open`](Engine::open) does, until it is [released](Engine::release). A
    /// front-end that keeps many objects alive for a long time uses holds. The last release of an object
    /// without a name frees the object. The last close may free it later, because an engine may count the
    /// opens of several objects together.
    ///
    /// # Errors
    /// As [`Engine::open`].
    fn hold(&self, id: ObjectId) -> Result<()> {
        self.open(id)
    }

    /// Ends `count` [holds](Engine::hold) of an object.
    fn release(&self, id: ObjectId, count: u64) {
        (0..count).for_each(|_| self.close(id));
    }

    /// True if an object of the volume may have an [advisory lock](crate::advisory) of this process. A
    /// front-end that closes a file then calls [`end_locks`](Engine::end_locks). In
    /// [`Scm`](crate::scm::Scm) the call costs one load.
    #[inline(always)]
    fn may_have_locks(&self) -> bool {
        false
    }

    /// Locks or unlocks an open object, or refuses at once. Callers set the session of the owner to 0,
    /// because the engine itself knows the session. If a lock of another owner is in the way, the caller
    /// tries again later. An engine that [wakes waiters](Engine::wakes_waiters) wakes `waiter` when that lock
    /// ends, until [`end_wait`](Engine::end_wait).
    ///
    /// # Errors
    /// `LockConflict`, `Deadlock`, `TooManyLocks`, `LocksLost`, `Unsupported`, and the errors of
    /// [`Engine::attributes`].
    fn try_lock(&self, id: ObjectId, request: &LockRequest, waiter: Option<&LockWaiter>) -> Result<()> {
        let _ = (id, request, waiter);
        Err(Error::Unsupported("locking"))
    }

    /// Ends the wait of a caller that gives up. A request that was granted needs no such call.
    fn end_wait(&self, _waiter: &LockWaiter) {}

    /// True if the engine wakes waiters. If it does not, they must try again from time to time.
    fn wakes_waiters(&self) -> bool {
        true
    }

    /// Returns the first range lock that conflicts with a request.
    ///
    /// # Errors
    /// As [`Engine::try_lock`].
    fn find_lock(&self, id: ObjectId, request: &LockRequest) -> Result<Option<HeldLock>> {
        let _ = (id, request);
        Err(Error::Unsupported("locking"))
    }

    /// Ends all locks of these owners on an object that is still open. An engine with
    /// [sessions](Engine::session) compares the generation of the object, because in a later session the id
    /// may name another object.
    fn end_locks(&self, _id: ObjectId, _generation: u64, _owners: &[LockOwner]) {}

    /// Returns the number of the session in which the ids that this engine returned are valid: 0 in the
    /// process that owns the volume. In a later session, an id may name another object. A caller that keeps
    /// an id longer compares the [`birth`](Engine::birth) of its object with the one that it has kept. A call
    /// during which the session changes fails with [`Error::Stale`].
    #[inline(always)]
    fn session(&self) -> u64 {
        0
    }

    /// Reserves an id for a new object of this kind.
    ///
    /// # Errors
    /// `NoSpace`, `Fault`.
    fn reserve(&self, kind: Kind) -> Result<ObjectId>;

    /// Gives back an id that [`Engine::reserve`] reserved and that no Op used. The engine itself gives back
    /// the unused ids of a batch that succeeded.
    fn unreserve(&self, id: ObjectId);

    /// Applies all of an Op, or returns an error and changes nothing, with two exceptions: a `Fault` may come
    /// after the change, and after `ServiceEnded` the change may have been made. When the call succeeds, the
    /// Op is as durable as the medium makes it without a [`sync`](Engine::sync).
    ///
    /// Engines check the rules that keep the volume sound (such as those on names, kinds, sizes and cycles)
    /// and the limits of quotas, but no permissions.
    ///
    /// # Errors
    /// The POSIX error of the corresponding call; `NoSpace`, `Stale`, `Corrupt`, `Fault`.
    fn apply(&self, op: &Op<'_>) -> Result<Applied>;

    /// Applies an Op as [`Engine::apply`] does, but no limit of a quota stops it. Callers have the capability
    /// [`SYS_RESOURCE`](crate::access::Capabilities::SYS_RESOURCE). The engine of a client does not know
    /// limits: its service decides.
    ///
    /// # Errors
    /// As [`Engine::apply`].
    fn apply_above_limits(&self, op: &Op<'_>) -> Result<Applied> {
        self.apply(op)
    }

    /// Returns the usage and the limits of each account that has any; `None` if the volume has no quotas.
    ///
    /// # Errors
    /// `Fault`.
    fn quotas(&self) -> Result<Option<Vec<QuotaReport>>> {
        Ok(None)
    }

    /// Returns the usage and the limits of one account. `None` if the volume has no quotas; an engine may
    /// also return it for an account without usage and limits. [`Scm`](crate::scm::Scm) looks at no other
    /// account.
    ///
    /// # Errors
    /// `Fault`.
    fn quota(&self, id: QuotaId) -> Result<Option<QuotaReport>> {
        let reports = self.quotas()?.unwrap_or_default();
        Ok(reports.into_iter().find(|report| report.id == id))
    }

    /// Makes recently freed storage available, except storage that a reader may still see. Returns true if a
    /// call that found no space may succeed now. Callers hold no pin, because a pin delays every reclaim.
    fn reclaim(&self) -> bool {
        false
    }

    /// Returns a number that changes with every move, removal and change of rights of a directory. A
    /// remembered path that consists only of directories is valid while this number stays the same.
    fn directory_changes(&self) -> u64;

    /// Begins to watch all changes of the volume. The watcher has room for `capacity` notices. `None` if the
    /// engine gives no notices.
    fn watch(&self, _capacity: usize) -> Option<Watcher> {
        None
    }

    /// Waits for a notice of a watcher that [`Engine::watch`] returned, up to `timeout`. Returns `None` if
    /// none came, or after [`Engine::stop_watch`].
    fn next_notice(&self, watcher: &Watcher, timeout: Duration) -> Option<Notice> {
        watcher.next(timeout)
    }

    /// Ends the notices of a watcher: a thread that waits in [`Engine::next_notice`] returns.
    fn stop_watch(&self, watcher: &Watcher) {
        watcher.stop();
    }

    /// Waits for the Op that is changing an object, if its change may be visible before it is durable. After
    /// the call, each state of the object that the caller saw before is as durable as an Op that has
    /// returned.
    ///
    /// # Errors
    /// `Fault` when the medium failed.
    fn wait_for(&self, id: ObjectId) -> Result<()>;

    /// Makes every applied Op as durable as the medium allows.
    ///
    /// # Errors
    /// `Fault` when the medium failed.
    fn sync(&self) -> Result<()>;

    /// Returns the total and free space of the volume.
    fn space(&self) -> SpaceUsage;
}
