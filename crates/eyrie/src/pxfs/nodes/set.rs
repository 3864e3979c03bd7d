//! Setting the attributes of a node by one Op, and its access time after a read.

use eyrie_engine::access::Credentials;
use eyrie_engine::{AttributeChange, Engine, InodeFlags, Kind, ObjectId, Op, SetIds, access};

use super::super::change::chosen_owner;
use super::super::{AccessTimes, AsUser, CallResult, Handle};
use super::{Node, Nodes, SetAttributes};
use crate::posix::OpenFlags;
#[cfg(doc)]
use crate::posix::Posix;
use crate::{Errno, Result};

impl<E: Engine> AsUser<'_, E> {
    pub(super) fn node(&self, id: ObjectId) -> CallResult<Node> {
        let birth = self.engine().birth(id)?;
        let stat = self.stat_of(id)?;
        Ok(Node { id, generation: birth.generation, created: birth.created, stat })
    }

    /// Sets attributes by at most one Op. The checks come in the order of Linux: size, owner, mode, times.
    pub(super) fn set_all(
        &self,
        id: ObjectId,
        handle: Option<&Handle>,
        set: &SetAttributes,
    ) -> CallResult<()> {
        if set.is_empty() {
            return Ok(());
        }
        let mut change = AttributeChange { size: set.size, ..AttributeChange::default() };
        let now = self.now_beside(id, (set.accessed, set.modified));
        if let Some(size) = set.size {
            // A change of the size through a writable handle needs only the rights of the handle.
            let is_open = handle.is_some_and(|handle| self.writable(handle).is_ok_and(|opened| opened == id));
            let unchanged = if is_open {
                self.check_size_of_open(id, size)?;
                None
            } else {
                self.check_new_size(id, size)?
            };
            change.set_ids = self.dropped_set_ids(id)?;
            if let Some(changed) = unchanged {
                change.size = None;
                change.drops_capability = true;
                let is_only_size = *set == SetAttributes { size: set.size, ..SetAttributes::default() };
                if is_only_size {
                    return self.drop_rights(id, changed);
                }
            }
        }
        let protection = self.protection(id)?;
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = chosen_owner(set.uid, set.gid);
            let set_ids = access::chown(self.credentials(), &protection, uid, gid)?;
            (change.uid, change.gid) = (uid, gid);
            change.drops_capability = !id.is_directory();
            change.set_ids = if set_ids == SetIds::Keep { change.set_ids } else { set_ids };
        }
        if let Some(mode) = set.mode {
            if id.kind() == Kind::Symlink {
                return Err(Errno::OPNOTSUPP.into());
            }
            change.mode = Some(access::chmod(self.credentials(), &protection, mode)?);
            // The new mode decides about the set-id bits, as if the call set the mode last.
            change.set_ids = SetIds::Keep;
        }
        if set.sets_times() {
            let times = (set.accessed, set.modified);
            (change.accessed, change.modified) = self.times(&protection, times, now)?;
        }
        self.apply(&Op::SetAttributes { id, change, time: now })?;
        Ok(())
    }
}

impl<E: Engine> Nodes<E> {
    /// Returns the inode flags of an object.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, who: &Credentials, egg: ObjectId) -> Result<()> {
    /// nodes.set_inode_flags(who, egg, nodes.inode_flags(egg)? | InodeFlags::IMMUTABLE)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Only the errors that every call has: see [`Nodes`].
    pub fn inode_flags(&self, id: ObjectId) -> Result<InodeFlags> {
        self.call(self.files.credentials(), "getflags", [id], |user| Ok(user.engine().inode_flags(id)?))
    }

    /// Sets the inode flags of a file or a directory. [`Nodes::inode_flags`] has an example.
    ///
    /// # Errors
    /// As [`Posix::set_inode_flags`]. `EINVAL` for another kind of object.
    pub fn set_inode_flags(&self, who: &Credentials, id: ObjectId, flags: InodeFlags) -> Result<()> {
        self.call(who, "setflags", [id], |user| user.set_flags(id, flags))
    }

    /// Sets the access time of an object that was read, if the chosen [`AccessTimes`] say so. If the update
    /// fails, nothing happens.
    ///
    /// Reads, listings and [`readlink`](Nodes::readlink) through nodes set no access times, because only the
    /// front-end knows if its user has opened the object with `O_NOATIME`. So the front-end makes this call
    /// after each read that may set the access time.
    ///
    /// ```
    /// # use eyrie::*; fn f(nodes: &VolumeNodes, egg: ObjectId) -> Result<()> {
    /// let count = nodes.read(egg, 0, &mut [0; 16])?;
    /// nodes.mark_access(egg);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn mark_access(&self, id: ObjectId) {
        if self.files.access_times() != AccessTimes::Never {
            let read = |user: AsUser<'_, E>| {
                user.note_read(id, OpenFlags::READ);
                Ok(())
            };
            let _ = self.call(self.files.credentials(), "read", [id], read);
        }
    }
}
