//! Nodes: calls for front-ends that know objects and not paths, such as a mount.

use std::ops::Range;
use std::time::Duration;

use eyrie_engine::access::{self, Credentials, Rights};
use eyrie_engine::holds::HoldTable;
use eyrie_engine::{
    AttributeChange, Content, Engine, FallocateMode, Kind, ObjectId, Op, RenameMode, SetIds, Time, XattrMode,
};
use eyrie_medium::epoch;

use super::path::{PathWalk, check_path};
use super::xattr::{check_name, check_value};
use super::{AsUser, CallResult, Handle, Pxfs};
use crate::posix::{OpenFlags, Posix, SetTime, Stat, StatVfs, Whence};
use crate::{Errno, Notice, Result, Watcher, names};

/// Bytes that [`Nodes::copy`] copies at a time.
const COPIED_AT_ONCE: usize = 1 << 20;

/// An object of a volume: its identity and its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Node {
    /// The id of the object. No other object has it as long as the node is held.
    pub id: ObjectId,
    /// A number that distinguishes this use of the id from later uses of the same id.
    pub generation: u64,
    /// Time of the creation.
    pub created: Time,
    /// The attributes.
    pub stat: Stat,
}

/// One entry of a listing of nodes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeEntry<'a> {
    /// Name of the entry, as in listings of files.
    pub name: &'a [u8],
    /// The object that the entry names.
    pub id: ObjectId,
    /// The object and its attributes, if the caller asked for them. `None` also if another thread has removed
    /// the object meanwhile.
    pub node: Option<Node>,
    /// Cookie at which a listing continues after this entry. At most 2^63 - 3.
    pub next: u64,
}

/// Attributes to set: see [`Nodes::set`]. The default sets none.
///
/// ```
/// use eyrie::{SetAttributes, SetTime};
///
/// let mut change = SetAttributes::default();
/// assert!(change.is_empty());
/// change.mode = Some(0o600);
/// change.modified = SetTime::Now;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SetAttributes {
    /// Permission bits, up to 0o7777.
    pub mode: Option<u16>,
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Size of a file, in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub accessed: SetTime,
    /// Modification time.
    pub modified: SetTime,
}

impl Default for SetAttributes {
    fn default() -> SetAttributes {
        let (accessed, modified) = (SetTime::Omit, SetTime::Omit);
        SetAttributes { mode: None, uid: None, gid: None, size: None, accessed, modified }
    }
}

impl SetAttributes {
    /// True if nothing is to be set.
    pub fn is_empty(&self) -> bool {
        *self == SetAttributes::default()
    }

    fn sets_times(&self) -> bool {
        (self.accessed, self.modified) != (SetTime::Omit, SetTime::Omit)
    }
}

/// The objects of a volume, for front-ends that know objects and not paths: a mount, a server of NFS, or a
/// binding of another language. [`Pxfs::nodes`] makes it.
///
/// A call that looks an object up or makes one returns a [`Node`] and *holds* it: the object lives, and its
/// id names it, until as many [`forget`](Nodes::forget)s as look-ups. A look-up, a creation and its hold are
/// one step, so no other thread can come between them. A million held nodes take some 80 MB. The drop of this
/// value forgets all nodes.
///
/// Each call takes the credentials of its caller. Names are those of one entry: a name with a slash is
/// `EINVAL`. `.` and `..` can be looked up.
///
/// The calls return the errors of [`Posix`]. `ESTALE` for an id that names no object, or an object that is
/// not held and was removed.
///
/// # Examples
/// ```
/// # use eyrie::{Credentials, Kind, Volume};
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = Volume::create(place.path().join("nest"), 2 << 20)?;
/// let (nodes, root) = (volume.nodes(), Credentials::root());
/// let nest = nodes.make(&root, nodes.root(), b"nest", Kind::Directory, 0o755, 0)?;
/// let egg = nodes.make(&root, nest.id, b"egg", Kind::File, 0o644, 0)?;
/// nodes.write(&root, egg.id, 0, b"blue")?;
/// assert_eq!(nodes.lookup(&root, nest.id, b"egg")?.stat.size, 4);
/// nodes.forget(egg.id, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Nodes<E: Engine> {
    files: Pxfs<E>,
    held: HoldTable,
    watcher: Option<Watcher>,
}

impl<E: Engine> Pxfs<E> {
    /// Returns the objects of the volume, for front-ends that know objects and not paths. They have the
    /// [rules](Pxfs::rules) of this file system, but not its credentials.
    pub fn nodes(&self) -> Nodes<E> {
        Nodes { files: self.clone(), held: HoldTable::default(), watcher: None }
    }
}

impl<E: Engine> Nodes<E> {
    /// Begins to watch the changes that other users of the volume make: see [`Nodes::next_notice`]. The
    /// watcher has room for `capacity` notices.
    #[must_use]
    pub fn watching(mut self, capacity: usize) -> Nodes<E> {
        self.watcher = self.engine().watch(capacity);
        self
    }

    /// Waits for a notice of a change that did not come from these nodes, up to `timeout`. A front-end that
    /// caches attributes or entries then forgets them. `None` without a notice, without
    /// [`Nodes::watching`], and after [`Nodes::stop_notices`].
    pub fn next_notice(&self, timeout: Duration) -> Option<Notice> {
        self.watcher.as_ref()?.next(timeout)
    }

    /// Ends the notices: a thread that waits in [`Nodes::next_notice`] returns.
    pub fn stop_notices(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.stop();
        }
    }

    /// True after [`Nodes::stop_notices`], and without [`Nodes::watching`].
    pub fn has_stopped_notices(&self) -> bool {
        self.watcher.as_ref().is_none_or(Watcher::is_stopped)
    }

    /// Returns the objects that are held.
    pub fn held(&self) -> Vec<ObjectId> {
        self.held.objects()
    }

    /// Returns the root directory, which needs no hold.
    pub fn root(&self) -> ObjectId {
        self.engine().root()
    }

    /// True if the volume was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.engine().is_read_only()
    }

    fn engine(&self) -> &E {
        &self.files.shared.engine
    }

    /// Makes a call of a user. The watcher of these nodes gets no notice of its changes.
    fn call<T>(
        &self,
        who: &Credentials,
        operation: &'static str,
        attempt: impl FnMut(AsUser<'_, E>) -> CallResult<T>,
    ) -> Result<T> {
        let user = AsUser { shared: &self.files.shared, credentials: who };
        match &self.watcher {
            Some(watcher) => watcher.quietly(|| user.call(operation, attempt)),
            None => user.call(operation, attempt),
        }
    }

    /// Holds an object and returns it.
    fn hold(&self, user: AsUser<'_, E>, id: ObjectId) -> CallResult<Node> {
        user.engine().hold(id)?;
        self.held.add(id);
        user.node(id).inspect_err(|_| self.forget(id, 1))
    }

    /// Looks a name up in a directory, and holds the object.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES` without permission to search the directory, `ENAMETOOLONG`, `EIO`.
    pub fn lookup(&self, who: &Credentials, dir: ObjectId, name: &[u8]) -> Result<Node> {
        self.call(who, "lookup", |user| {
            let mut walk = PathWalk::of_name(user, dir, name)?;
            let parent = walk.parent()?;
            self.hold(user, walk.target(&parent)?)
        })
    }

    /// Finds an object by its inode number, and holds it. With a generation, finds only the object that had
    /// the number then.
    ///
    /// # Errors
    /// `ESTALE` if no object has this number and generation.
    pub fn find(&self, inode: u64, generation: Option<u64>) -> Result<Node> {
        self.call(self.files.credentials(), "find", |user| {
            let id = ObjectId::from_raw(inode).ok_or(Errno::STALE)?;
            let node = self.hold(user, id)?;
            if generation.is_none_or(|wanted| wanted == node.generation) {
                return Ok(node);
            }
            self.forget(id, 1);
            Err(Errno::STALE.into())
        })
    }

    /// Ends holds of an object: those of `lookups` look-ups or creations. More than there are end all.
    pub fn forget(&self, id: ObjectId, lookups: u64) {
        let ended = self.held.remove(id, lookups);
        if ended != 0 {
            let _pin = epoch::pin();
            self.engine().release(id, ended);
        }
    }

    /// Returns the attributes of an object, without a hold of it.
    ///
    /// # Errors
    /// `ESTALE`, `EIO`.
    pub fn node(&self, id: ObjectId) -> Result<Node> {
        self.call(self.files.credentials(), "stat", |user| user.node(id))
    }

    /// Checks that the caller has rights on an object.
    ///
    /// # Errors
    /// `EACCES`; `EROFS` for writing in a read-only volume.
    pub fn access(&self, who: &Credentials, id: ObjectId, rights: Rights) -> Result<()> {
        self.call(who, "access", |user| {
            user.check_writable(id, rights)?;
            Ok(access::check(user.credentials(), &user.protection(id)?, rights)?)
        })
    }

    /// Makes a file and opens it, or opens an existing file. Holds the file. `flags` has at least one of
    /// `READ` and `WRITE`. A symbolic link is not followed (`ELOOP`).
    ///
    /// # Errors
    /// As [`Posix::open`] with `CREATE`.
    pub fn create(
        &self,
        who: &Credentials,
        dir: ObjectId,
        name: &[u8],
        flags: OpenFlags,
        mode: u16,
    ) -> Result<(Node, Handle)> {
        self.call(who, "create", |user| {
            let flags = flags | OpenFlags::CREATE | OpenFlags::NOFOLLOW;
            let handle = user.open_or_create(PathWalk::of_name(user, dir, name)?, flags, mode)?;
            match self.hold(user, handle.id()) {
                Ok(node) => Ok((node, handle)),
                Err(error) => {
                    user.close_handle(&handle)?;
                    Err(error)
                }
            }
        })
    }

    /// Opens a file or a directory. The calls on nodes need no handle. A handle keeps the rights of its open,
    /// so that a front-end can check them.
    ///
    /// # Errors
    /// As [`Posix::open`].
    pub fn open(&self, who: &Credentials, id: ObjectId, flags: OpenFlags) -> Result<Handle> {
        self.call(who, "open", |user| user.open_object(id, flags))
    }

    /// Closes a handle.
    ///
    /// # Errors
    /// `EBADF` for a handle of another volume.
    pub fn close(&self, handle: Handle) -> Result<()> {
        self.files.close(handle)
    }

    /// Makes an object of any kind but a symbolic link, and holds it. `device` is the number of a device.
    ///
    /// # Errors
    /// As [`Posix::mkdir`] and [`Posix::mknod`].
    pub fn make(
        &self,
        who: &Credentials,
        dir: ObjectId,
        name: &[u8],
        kind: Kind,
        mode: u16,
        device: u64,
    ) -> Result<Node> {
        self.call(who, "mknod", |user| {
            if kind == Kind::Symlink || device > u32::MAX.into() {
                return Err(Errno::INVAL.into());
            }
            let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
            let content = if is_device { Content::Device(device) } else { Content::Empty };
            self.hold(user, user.make(PathWalk::of_name(user, dir, name)?, kind, mode, content)?)
        })
    }

    /// Makes a symbolic link, and holds it.
    ///
    /// # Errors
    /// As [`Posix::symlink`].
    pub fn symlink(&self, who: &Credentials, dir: ObjectId, name: &[u8], target: &[u8]) -> Result<Node> {
        self.call(who, "symlink", |user| {
            check_path(target)?;
            let walk = PathWalk::of_name(user, dir, name)?;
            self.hold(user, user.make(walk, Kind::Symlink, 0o777, Content::Bytes(target))?)
        })
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for another kind of object.
    pub fn readlink(&self, id: ObjectId) -> Result<Vec<u8>> {
        self.call(self.files.credentials(), "readlink", |user| match id.kind() {
            Kind::Symlink => user.read_link(id),
            _ => Err(Errno::INVAL.into()),
        })
    }

    /// Gives an object another name, and holds it.
    ///
    /// # Errors
    /// As [`Posix::link`].
    pub fn link(&self, who: &Credentials, id: ObjectId, dir: ObjectId, name: &[u8]) -> Result<Node> {
        self.call(who, "link", |user| {
            user.make_link(id, PathWalk::of_name(user, dir, name)?)?;
            self.hold(user, id)
        })
    }

    /// Removes a name of an object that is not a directory.
    ///
    /// # Errors
    /// As [`Posix::unlink`].
    pub fn unlink(&self, who: &Credentials, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.call(who, "unlink", |user| user.unlink_walked(PathWalk::of_name(user, dir, name)?))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Posix::rmdir`].
    pub fn rmdir(&self, who: &Credentials, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.call(who, "rmdir", |user| user.remove_directory(PathWalk::of_name(user, dir, name)?))
    }

    /// Moves an entry from one directory and name to another.
    ///
    /// # Errors
    /// As [`Posix::rename_with`].
    pub fn rename(
        &self,
        who: &Credentials,
        (from_dir, from): (ObjectId, &[u8]),
        (to_dir, to): (ObjectId, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        self.call(who, "rename", |user| {
            let from = PathWalk::of_name(user, from_dir, from)?;
            user.rename_walked(from, PathWalk::of_name(user, to_dir, to)?, mode)
        })
    }

    /// Sets attributes of an object by one Op, and returns all attributes. With nothing to set, changes
    /// nothing. A new size needs permission to write, unless `handle` is open for writing. A file loses its
    /// set-id bits as with chown(2), truncate(2) and ftruncate(2).
    ///
    /// # Errors
    /// As [`Posix::chmod`], [`Posix::chown`], [`Posix::truncate`] and [`Posix::utimens`]. After an error
    /// nothing is set.
    pub fn set(
        &self,
        who: &Credentials,
        id: ObjectId,
        handle: Option<&Handle>,
        change: &SetAttributes,
    ) -> Result<Node> {
        self.call(who, "setattr", |user| {
            user.set_all(id, handle, change)?;
            user.node(id)
        })
    }

    /// Reads bytes of a file, and returns their number. The caller has checked the rights.
    ///
    /// # Errors
    /// As [`Posix::read_at`], but no `EBADF`.
    pub fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.call(self.files.credentials(), "read", |user| Ok(user.engine().read(id, offset, out)?))
    }

    /// Writes bytes to a file. The caller has checked the rights. `who` decides about the set-id bits that
    /// the file loses.
    ///
    /// # Errors
    /// As [`Posix::write_at`], but no `EBADF`.
    pub fn write(&self, who: &Credentials, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.call(who, "write", |user| user.write_object(id, data, offset))
    }

    /// Appends bytes to a file, and returns the range that has them. Otherwise as [`Nodes::write`].
    ///
    /// # Errors
    /// As [`Nodes::write`].
    pub fn append(&self, who: &Credentials, id: ObjectId, data: &[u8]) -> Result<Range<u64>> {
        self.call(who, "write", |user| user.append_object(id, data))
    }

    /// Changes the storage of a range of a file. The caller has checked the rights.
    ///
    /// # Errors
    /// As [`Posix::fallocate`], but no `EBADF`.
    pub fn fallocate(
        &self,
        who: &Credentials,
        id: ObjectId,
        mode: FallocateMode,
        range: Range<u64>,
    ) -> Result<()> {
        self.call(who, "fallocate", |user| {
            let length = range.end.saturating_sub(range.start);
            user.fallocate_object(id, mode, range.start, length)
        })
    }

    /// Copies bytes from one file to another, or within one file if the ranges do not overlap. Returns the
    /// number of bytes, which is smaller than `length` at the end of the first file. Each 1 MiB is one Op.
    ///
    /// # Errors
    /// As [`Nodes::read`] and [`Nodes::write`]. After an error a part may have been copied.
    pub fn copy(
        &self,
        who: &Credentials,
        (from, from_offset): (ObjectId, u64),
        (to, to_offset): (ObjectId, u64),
        length: u64,
    ) -> Result<u64> {
        let mut buffer = vec![0; COPIED_AT_ONCE.min(length as usize)];
        let mut copied = 0;
        while copied < length {
            let wanted = buffer.len().min((length - copied) as usize);
            let read = self.read(from, from_offset + copied, &mut buffer[..wanted])?;
            self.write(who, to, to_offset + copied, &buffer[..read])?;
            copied += read as u64;
            if read < wanted {
                break;
            }
        }
        Ok(copied)
    }

    /// Returns the next offset of data or of a hole, from `offset` on.
    ///
    /// # Errors
    /// As [`Posix::seek`], but no `EBADF`.
    pub fn seek(&self, id: ObjectId, offset: u64, whence: Whence) -> Result<u64> {
        self.call(self.files.credentials(), "lseek", |user| user.seek_object(id, offset, whence))
    }

    /// Calls `visit` with the entries of a directory from `cookie` on (0 is the start) until `visit` returns
    /// false. With `hold`, looks each entry up: an entry for which `visit` returns true is then held, if it
    /// has a node.
    ///
    /// # Errors
    /// As [`Posix::list`], but no `EBADF`.
    pub fn list(
        &self,
        dir: ObjectId,
        cookie: u64,
        hold: bool,
        visit: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<()> {
        let user = AsUser { shared: &self.files.shared, credentials: self.files.credentials() };
        // This call does not use `call`, because a listing that has visited entries cannot begin again.
        let _pin = epoch::pin();
        let mut listed = |entry: eyrie_engine::ListedEntry<'_>| {
            let node = hold.then(|| self.hold(user, entry.id).ok()).flatten();
            let name = names::encode(entry.name);
            let goes_on = visit(NodeEntry { name: &name, id: entry.id, node, next: entry.next });
            if !goes_on && node.is_some() {
                self.forget(entry.id, 1);
            }
            goes_on
        };
        user.list_object(dir, cookie, &mut listed).map_err(|error| error.into_error("getdents"))
    }

    /// Returns the directory that contains a directory, or the root for the root.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`, `EIO`.
    pub fn parent(&self, dir: ObjectId) -> Result<ObjectId> {
        self.call(self.files.credentials(), "parent", |user| user.parent_of(dir))
    }

    /// Returns the size of the value of an extended attribute, and copies the value to `out` unless `out` is
    /// empty.
    ///
    /// # Errors
    /// As [`Posix::getxattr`].
    pub fn getxattr(&self, who: &Credentials, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.call(who, "getxattr", |user| {
            check_name(name)?;
            user.get_xattr(id, name, out)
        })
    }

    /// Returns the size of the list of extended attributes, and copies the list to `out` unless `out` is
    /// empty.
    ///
    /// # Errors
    /// As [`Posix::listxattr`].
    pub fn listxattr(&self, who: &Credentials, id: ObjectId, out: &mut [u8]) -> Result<usize> {
        self.call(who, "listxattr", |user| user.list_xattrs(id, out))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As [`Posix::setxattr`].
    pub fn setxattr(
        &self,
        who: &Credentials,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.call(who, "setxattr", |user| {
            check_name(name)?;
            check_value(value)?;
            user.set_xattr(id, name, value, mode)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As [`Posix::removexattr`].
    pub fn removexattr(&self, who: &Credentials, id: ObjectId, name: &[u8]) -> Result<()> {
        self.call(who, "removexattr", |user| {
            check_name(name)?;
            user.remove_xattr(id, name)
        })
    }

    /// Makes all changes of an object durable, and with them all changes before this call.
    ///
    /// # Errors
    /// `EIO` if the medium fails.
    pub fn fsync(&self, id: ObjectId) -> Result<()> {
        self.call(self.files.credentials(), "fsync", |user| {
            user.engine().wait_for(id)?;
            Ok(user.engine().sync()?)
        })
    }

    /// Returns the space of the volume.
    ///
    /// # Errors
    /// None today.
    pub fn statvfs(&self) -> Result<StatVfs> {
        self.files.statvfs()
    }
}

impl<E: Engine> Drop for Nodes<E> {
    fn drop(&mut self) {
        for (id, count) in self.held.remove_all() {
            self.engine().release(id, count);
        }
    }
}

impl<E: Engine> std::fmt::Debug for Nodes<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

impl<E: Engine> AsUser<'_, E> {
    fn node(&self, id: ObjectId) -> CallResult<Node> {
        let birth = self.engine().birth(id)?;
        let stat = self.stat_of(id)?;
        Ok(Node { id, generation: birth.generation, created: birth.created, stat })
    }

    /// Sets attributes by at most one Op. The checks come in the order of Linux: size, owner, mode, times.
    fn set_all(&self, id: ObjectId, handle: Option<&Handle>, set: &SetAttributes) -> CallResult<()> {
        if set.is_empty() {
            return Ok(());
        }
        let mut change = AttributeChange { size: set.size, ..AttributeChange::default() };
        let now = self.now([id]);
        if let Some(size) = set.size {
            // A write through an open handle needs no other rights than those of the open.
            let is_open = handle.is_some_and(|handle| self.writable(handle).is_ok_and(|opened| opened == id));
            let unchanged = if is_open { None } else { self.check_new_size(id, size)? };
            change.set_ids = self.dropped_set_ids(id)?;
            if let Some(changed) = unchanged {
                change.size = None;
                let is_only_size = *set == SetAttributes { size: set.size, ..SetAttributes::default() };
                if is_only_size {
                    return self.drop_set_ids(id, changed);
                }
            }
        }
        let protection = self.protection(id)?;
        if set.uid.is_some() || set.gid.is_some() {
            let set_ids = access::chown(self.credentials(), &protection, set.uid, set.gid)?;
            (change.uid, change.gid) = (set.uid, set.gid);
            change.set_ids = if set_ids == SetIds::Keep { change.set_ids } else { set_ids };
        }
        if let Some(mode) = set.mode {
            if id.kind() == Kind::Symlink {
                return Err(Errno::OPNOTSUPP.into());
            }
            change.mode = Some(access::chmod(self.credentials(), &protection, mode)?);
            // The new mode decides about the set-id bits, as if it was set last.
            change.set_ids = SetIds::Keep;
        }
        if set.sets_times() {
            let times = (set.accessed, set.modified);
            (change.accessed, change.modified) = self.times(&protection, times, now)?;
        }
        self.engine().apply(&Op::SetAttributes { id, change, time: now })?;
        Ok(())
    }
}
