//! The calls on nodes, except those that look objects up and those that forget them.

use std::ops::Range;

use eyrie_engine::access::{self, Credentials};
use eyrie_engine::{Content, Engine, FallocateMode, Kind, ObjectId, RenameMode, XattrMode};

use super::super::open::MadeFile;
use super::super::path::{PathWalk, check_path};
use super::super::xattr::{check_name, check_value};
use super::super::{AsUser, Handle};
use super::{Node, NodeEntry, Nodes, SetAttributes};
use crate::posix::{Access, OpenFlags, Posix, StatVfs, Whence};
use crate::{Errno, Result, names};

impl<E: Engine> Nodes<E> {
    /// Checks that the caller has rights on an object, as [`Access::EFFECTIVE`] does.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// nodes.access(who, egg, Access::READ | Access::WRITE)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EACCES` if a right is missing. `EROFS` for the right to write in a read-only volume.
    pub fn access(&self, who: &Credentials, id: ObjectId, access: Access) -> Result<()> {
        let rights = access.rights();
        self.call(who, "access", [id], |user| {
            user.check_writable(id, rights)?;
            Ok(access::check(user.credentials(), &user.protection(id)?, rights)?)
        })
    }

    /// Makes a file and opens it, or opens an existing file. Holds the file. `flags` must have at least one
    /// of `READ` and `WRITE`. A symbolic link is not followed (`ELOOP`).
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, nest: ObjectId) -> Result<()> {
    /// let (egg, handle) = nodes.create(who, nest, b"egg", OpenFlags::WRITE, 0o644)?;
    /// nodes.close(handle)
    /// # }
    /// ```
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
        let mut made = MadeFile::default();
        self.call(who, "create", [dir], |user| {
            let flags = flags | OpenFlags::CREATE | OpenFlags::NOFOLLOW;
            let handle = user.open_or_create(PathWalk::of_name(user, dir, name)?, flags, mode, &mut made)?;
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
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// let handle = nodes.open(who, egg, OpenFlags::READ)?;
    /// nodes.close(handle)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::open`].
    pub fn open(&self, who: &Credentials, id: ObjectId, flags: OpenFlags) -> Result<Handle> {
        self.call(who, "open", [id], |user| user.open_object(id, flags))
    }

    /// Closes a handle. [`Nodes`] has an example.
    ///
    /// # Errors
    /// `EBADF` for a handle of another volume.
    pub fn close(&self, handle: Handle) -> Result<()> {
        self.files.close(handle)
    }

    /// Makes an object of any kind but a symbolic link, and holds it. `device` is the number of a device.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials) -> Result<()> {
    /// let nest = nodes.make(who, nodes.root(), b"nest", Kind::Directory, 0o755, 0)?;
    /// # Ok(()) }
    /// ```
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
        let mut made = false;
        self.call(who, "mknod", [dir], |user| {
            if kind == Kind::Symlink || device > u32::MAX.into() {
                return Err(Errno::INVAL.into());
            }
            let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
            let content = if is_device { Content::Device(device) } else { Content::Empty };
            self.make_held(user, (dir, name), (kind, mode, content), &mut made)
        })
    }

    /// Makes a symbolic link, and holds it.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, nest: ObjectId) -> Result<()> {
    /// let link = nodes.symlink(who, nest, b"latest", b"2026/egg")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::symlink`].
    pub fn symlink(&self, who: &Credentials, dir: ObjectId, name: &[u8], target: &[u8]) -> Result<Node> {
        let mut made = false;
        self.call(who, "symlink", [dir], |user| {
            check_path(target)?;
            self.make_held(user, (dir, name), (Kind::Symlink, 0o777, Content::Bytes(target)), &mut made)
        })
    }

    /// Returns the target of a symbolic link. [`Nodes`] has an example.
    ///
    /// # Errors
    /// `EINVAL` for another kind of object.
    pub fn readlink(&self, id: ObjectId) -> Result<Vec<u8>> {
        self.call(self.files.credentials(), "readlink", [id], |user| match id.kind() {
            Kind::Symlink => user.link_target(id),
            _ => Err(Errno::INVAL.into()),
        })
    }

    /// Gives an object another name, and holds the object.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// let egg = nodes.link(who, egg, nodes.root(), b"second name")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::link`].
    pub fn link(&self, who: &Credentials, id: ObjectId, dir: ObjectId, name: &[u8]) -> Result<Node> {
        let mut made = false;
        self.call(who, "link", [id, dir], |user| self.link_held(user, id, (dir, name), &mut made))
    }

    /// Removes a name of an object that is not a directory.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, nest: ObjectId) -> Result<()> {
    /// nodes.unlink(who, nest, b"egg")
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::unlink`].
    pub fn unlink(&self, who: &Credentials, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.call(who, "unlink", [dir], |user| user.unlink_walked(PathWalk::of_name(user, dir, name)?))
    }

    /// Removes an empty directory. [`Nodes`] has an example.
    ///
    /// # Errors
    /// As [`Posix::rmdir`].
    pub fn rmdir(&self, who: &Credentials, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.call(who, "rmdir", [dir], |user| user.remove_directory(PathWalk::of_name(user, dir, name)?))
    }

    /// Moves an entry from one directory and name to another.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, nest: ObjectId) -> Result<()> {
    /// nodes.rename(who, (nest, b"egg"), (nodes.root(), b"chick"), RenameMode::NoReplace)
    /// # }
    /// ```
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
        self.call(who, "rename", [from_dir, to_dir], |user| {
            let mut from = PathWalk::of_name(user, from_dir, from)?;
            let from_parent = from.parent()?;
            let mut to = PathWalk::of_name(user, to_dir, to)?;
            let to_parent = to.parent()?;
            user.rename_walked((&from, from_parent), (&to, to_parent), mode)
        })
    }

    /// Sets attributes of an object in one atomic step, and returns all attributes. If `change` sets nothing,
    /// the call changes nothing. A new size needs permission to write, unless `handle` is open for writing. A
    /// file loses its set-id bits as with chown(2), truncate(2) and ftruncate(2).
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// let mut change = SetAttributes::default();
    /// change.mode = Some(0o600);
    /// let egg = nodes.set(who, egg, None, &change)?;
    /// # Ok(()) }
    /// ```
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
        let mut is_set = false;
        self.call(who, "setattr", [id], |user| {
            // The call runs again if the session ends before the read below. Another program may have changed
            // the object since, so the change is made only once.
            if !is_set {
                user.set_all(id, handle, change)?;
            }
            is_set = true;
            user.node(id)
        })
    }

    /// Reads bytes of a file, and returns their number. The caller must have checked the rights.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId) -> Result<()> {
    /// let mut head = [0; 16];
    /// let count = nodes.read(egg, 0, &mut head)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `EISDIR` for a directory, `EINVAL` for a pipe, socket or device, `ESTALE`, `EIO`. An offset past the
    /// end of the file is no error, whatever its value is: the result is then 0.
    pub fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.call(self.files.credentials(), "read", [id], |user| Ok(user.engine().read(id, offset, out)?))
    }

    /// Changes the storage of a range of a file. The caller must have checked the rights.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// nodes.fallocate(who, egg, FallocateMode::PunchHole, 4096..8192)
    /// # }
    /// ```
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
        self.call(who, "fallocate", [id], |user| {
            let length = range.end.saturating_sub(range.start);
            user.fallocate_object(id, mode, range.start, length)
        })
    }

    /// Returns the next offset of data or of a hole, from `offset` on.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId) -> Result<()> {
    /// let first_hole = nodes.seek(egg, 0, Whence::Hole)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::seek`], but no `EBADF`.
    pub fn seek(&self, id: ObjectId, offset: u64, whence: Whence) -> Result<u64> {
        self.call(self.files.credentials(), "lseek", [id], |user| user.seek_object(id, offset, whence))
    }

    /// Calls `visit` with the entries of a directory from `cookie` on (0 is the start) until `visit` returns
    /// false. With `hold`, the call reads the attributes of each entry and holds its object: an object stays
    /// held if `visit` has got its node and has returned true.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, nest: ObjectId) -> Result<()> {
    /// nodes.list(nest, 0, false, &mut |entry| {
    ///     println!("{}", entry.name.escape_ascii());
    ///     true
    /// })
    /// # }
    /// ```
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
        let (mut from, mut is_cut) = (cookie, true);
        while std::mem::take(&mut is_cut) {
            let (start, session) = (from, self.engine().session());
            let mut listed = |entry: eyrie_engine::ListedEntry<'_>| {
                let node = hold.then(|| self.hold(user, entry.id).ok()).flatten();
                // In the next session the object may still be there, so the listing goes on at this entry.
                is_cut = hold && node.is_none() && self.has_ended(session);
                if is_cut {
                    return false;
                }
                from = entry.next;
                let name = names::encode(entry.name);
                let goes_on = visit(NodeEntry { name: &name, id: entry.id, node, next: entry.next });
                if !goes_on && node.is_some() {
                    self.forget(entry.id, 1);
                }
                goes_on
            };
            let known = || self.generations.confirm(user.engine(), &[dir]).map(|()| dir);
            let done = user.list_object(known, start, &mut listed);
            done.map_err(|error| error.into_error("getdents"))?;
        }
        Ok(())
    }

    /// Returns the directory that contains a directory. For the root, returns the root.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, nest: ObjectId) -> Result<()> {
    /// let parent = nodes.parent(nest)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`, `EIO`.
    pub fn parent(&self, dir: ObjectId) -> Result<ObjectId> {
        self.call(self.files.credentials(), "parent", [dir], |user| user.parent_of(dir))
    }

    /// Returns the size of the value of an extended attribute, and copies the value to `out` unless `out` is
    /// empty.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// let size = nodes.getxattr(who, egg, b"user.colour", &mut [])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::getxattr`].
    pub fn getxattr(&self, who: &Credentials, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.call(who, "getxattr", [id], |user| {
            check_name(name)?;
            user.get_xattr(id, name, out)
        })
    }

    /// Returns the size of the list of extended attributes, and copies the list to `out` unless `out` is
    /// empty. [`Nodes`] has an example.
    ///
    /// # Errors
    /// As [`Posix::listxattr`].
    pub fn listxattr(&self, who: &Credentials, id: ObjectId, out: &mut [u8]) -> Result<usize> {
        self.call(who, "listxattr", [id], |user| user.list_xattrs(id, out))
    }

    /// Sets an extended attribute.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// nodes.setxattr(who, egg, b"user.colour", b"blue", XattrMode::Set)
    /// # }
    /// ```
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
        self.call(who, "setxattr", [id], |user| {
            check_name(name)?;
            check_value(value)?;
            user.set_xattr(id, name, value, mode)
        })
    }

    /// Removes an extended attribute. [`Nodes`] has an example.
    ///
    /// # Errors
    /// As [`Posix::removexattr`].
    pub fn removexattr(&self, who: &Credentials, id: ObjectId, name: &[u8]) -> Result<()> {
        self.call(who, "removexattr", [id], |user| {
            check_name(name)?;
            user.remove_xattr(id, name)
        })
    }

    /// Makes all changes of an object as durable as the medium can make them, and with them all changes
    /// before this call.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId) -> Result<()> {
    /// nodes.fsync(egg)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Posix::fsync`].
    pub fn fsync(&self, id: ObjectId) -> Result<()> {
        self.call(self.files.credentials(), "fsync", [id], |user| {
            user.engine().wait_for(id)?;
            Ok(user.engine().sync()?)
        })
    }

    /// Returns the space of the volume at an object, as [`Posix::statvfs`](crate::Posix::statvfs) does.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes) -> Result<()> {
    /// println!("{} blocks are free", nodes.statvfs(nodes.root())?.blocks_free);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn statvfs(&self, id: ObjectId) -> Result<StatVfs> {
        self.call(self.files.credentials(), "statvfs", [id], |user| user.space_at(id))
    }
}
