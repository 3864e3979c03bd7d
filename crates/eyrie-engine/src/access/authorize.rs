//! Decides if a user may make an Op. A service calls [`Requester::authorize`] before it applies an Op of a
//! client that it does not trust.
//!
//! The client has walked the path and made its own checks. The service sees only ids, so it checks the
//! objects that the Op changes, and not the directories on the path. The order of the checks differs from
//! that in the calls of POSIX. So if several errors apply to an Op, the service may return another of these
//! errors than the call would.

use super::flags::only_allocates;
use super::{
    AccessRules, Credentials, Protection, Rights, acl_drops_set_gid, check, check_add, check_device,
    check_new_name, check_remove, check_set_acl, check_set_flags, check_set_project, check_set_times,
    check_set_xattr, check_store, check_unflagged, check_write, chmod, chown, is_sticky, keeps_set_ids,
    owner_of_new, protection, set_ids_after_write,
};
use crate::op::{AclKind, AttributeChange, Content, Op, Owner, RenameMode, SetIds, Whiteout};
use crate::{Engine, Error, Kind, ObjectId, Result, Time};

/// A user who makes Ops through a service.
pub struct Requester<'a, E: Engine> {
    /// The engine of the volume.
    pub engine: &'a E,
    /// The credentials, for which the kernel vouches.
    pub who: &'a Credentials,
    /// The enabled protections. A service checks only the rule of hard links, because the client walks the
    /// paths.
    pub rules: AccessRules,
    /// The present time, which becomes the time of each change. Only root may name another time, which must
    /// be more than a minute ago.
    pub now: Time,
}

impl<E: Engine> Requester<'_, E> {
    /// Returns the Op that the user may make in place of `op`. Its time is the present, and it clears the
    /// set-id bits that a change by this user clears. Root may choose an earlier time and the set-id bits. If
    /// the Op sets a time of the object to the time of the Op, it sets this time to the present, too.
    ///
    /// # Errors
    /// `AccessDenied`, `NotPermitted`, and the errors of reading the objects. For extended attributes and
    /// ACLs also `Unsupported` and `Invalid`.
    pub fn authorize<'o>(&self, op: &Op<'o>) -> Result<Op<'o>> {
        // A user who could choose the time could hide a change. Root restores times, for example of a copy.
        let restored = Time::new(self.now.seconds - 60, self.now.nanoseconds);
        let at = |time: Time| if self.who.is_root() && time < restored { time } else { self.now };
        Ok(match *op {
            Op::Create { dir, name, id, owner, content, time } => {
                self.check_create(dir, id, owner, content)?;
                Op::Create { dir, name, id, owner, content, time: at(time) }
            }
            Op::CreateUnnamed { dir, id, owner, linkable, time } => {
                self.check_create(dir, id, owner, Content::Empty)?;
                Op::CreateUnnamed { dir, id, owner, linkable, time: at(time) }
            }
            Op::Link { dir, name, id, time } => {
                self.check_link(dir, id)?;
                Op::Link { dir, name, id, time: at(time) }
            }
            Op::Unlink { dir, name, time } => {
                self.check_remove(dir, name)?;
                Op::Unlink { dir, name, time: at(time) }
            }
            Op::Erase { dir, name, time } => {
                self.check_erase(dir, name)?;
                Op::Erase { dir, name, time: at(time) }
            }
            Op::RemoveDirectory { dir, name, time } => {
                self.check_remove(dir, name)?;
                Op::RemoveDirectory { dir, name, time: at(time) }
            }
            Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time } => {
                self.check_rename((from_dir, from_name), (to_dir, to_name), mode)?;
                if let Some(Whiteout { id, owner }) = whiteout {
                    self.check_owner(&self.protection(from_dir)?, id, owner)?;
                }
                Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time: at(time) }
            }
            Op::Write { id, offset, data, set_ids, time } => {
                let set_ids = self.check_write(id, set_ids, false)?;
                Op::Write { id, offset, data, set_ids, time: at(time) }
            }
            Op::Append { id, data, set_ids, time } => {
                Op::Append { id, data, set_ids: self.check_write(id, set_ids, true)?, time: at(time) }
            }
            Op::SetSize { id, size, set_ids, time } => {
                let set_ids = self.check_write(id, set_ids, false)?;
                Op::SetSize { id, size, set_ids, time: at(time) }
            }
            Op::Fallocate { id, mode, offset, length, set_ids, time } => {
                let set_ids = self.check_write(id, set_ids, only_allocates(mode))?;
                Op::Fallocate { id, mode, offset, length, set_ids, time: at(time) }
            }
            Op::CloneRange { source, source_offset, id, offset, length, set_ids, time } => {
                let (source, set_ids) = (self.check_may_read(source)?, self.check_write(id, set_ids, false)?);
                Op::CloneRange { source, source_offset, id, offset, length, set_ids, time: at(time) }
            }
            Op::SetAttributes { id, change, time } => {
                Op::SetAttributes { id, change: self.check_set(id, change, time, at(time))?, time: at(time) }
            }
            Op::MarkAccess { id, time } => Op::MarkAccess { id: self.check_may_read(id)?, time: at(time) },
            Op::SetXattr { id, name, value, mode, time } => {
                Op::SetXattr { id: self.check_xattr(id, name)?, name, value, mode, time: at(time) }
            }
            Op::RemoveXattr { id, name, time } => {
                Op::RemoveXattr { id: self.check_xattr(id, name)?, name, time: at(time) }
            }
            Op::SetAcl { id, kind, acl, drops_set_gid, time } => {
                let drops_set_gid = self.check_acl(id, kind, acl)? || drops_set_gid;
                Op::SetAcl { id, kind, acl, drops_set_gid, time: at(time) }
            }
            Op::Put { dir, name, id, owner, data, time } => {
                self.check_put(dir, name, id, owner)?;
                Op::Put { dir, name, id, owner, data, time: at(time) }
            }
            Op::Expect { dir, name, condition } => {
                check_store(self.who, &self.protection(dir)?)?;
                Op::Expect { dir, name, condition }
            }
            Op::Batch { dir, ops, time } => {
                ops.iter().try_for_each(|op| self.check_part(dir, op))?;
                Op::Batch { dir, ops, time: at(time) }
            }
        })
    }

    /// Checks that the user may read an object.
    ///
    /// # Errors
    /// `AccessDenied`, and the errors of reading the object.
    pub fn check_read(&self, id: ObjectId) -> Result<()> {
        check(self.who, &self.protection(id)?, Rights::READ)
    }

    /// Checks that the user may lock an object. A lock needs a handle. A user who owns the object, or may
    /// read it or write to it, can have a handle of it.
    ///
    /// # Errors
    /// As [`Requester::check_read`].
    pub fn check_lock(&self, id: ObjectId) -> Result<()> {
        let object = self.protection(id)?;
        if self.who.owns(&object) || check(self.who, &object, Rights::READ).is_ok() {
            return Ok(());
        }
        check(self.who, &object, Rights::WRITE)
    }

    /// Checks that the user may set or remove an extended attribute, and returns the object.
    fn check_xattr(&self, id: ObjectId, name: &[u8]) -> Result<ObjectId> {
        check_set_xattr(self.who, &self.protection(id)?, name)?;
        Ok(id)
    }

    /// Checks that the user may set an ACL. Returns true if the object then loses its set-group-id bit.
    fn check_acl(&self, id: ObjectId, kind: AclKind, acl: &[u8]) -> Result<bool> {
        let object = self.protection(id)?;
        check_set_acl(self.who, &object, kind, acl)?;
        Ok(acl_drops_set_gid(self.who, &object))
    }

    fn protection(&self, id: ObjectId) -> Result<Protection> {
        protection(self.engine, id, self.who)
    }

    /// Checks a new object. Its owner and mode must be those that a call of this user would give to it.
    fn check_create(&self, dir: ObjectId, id: ObjectId, owner: Owner, content: Content<'_>) -> Result<()> {
        let parent = self.protection(dir)?;
        check_add(self.who, &parent)?;
        if let Content::Device(device) = content {
            check_device(self.who, id.kind(), device)?;
        }
        self.check_owner(&parent, id, owner)
    }

    fn check_link(&self, dir: ObjectId, id: ObjectId) -> Result<()> {
        check_new_name(self.rules, self.who, &self.protection(id)?, &self.protection(dir)?)
    }

    fn check_owner(&self, parent: &Protection, id: ObjectId, owner: Owner) -> Result<()> {
        // The client has applied its umask, so the service assumes an empty one. The engine decides which
        // ACLs the object inherits.
        let owner = Owner { mode: owner.mode & !Owner::INHERITS, ..owner };
        let mut expected = owner_of_new(&self.who.clone().with_umask(0), parent, id.kind(), owner.mode);
        expected.mode &= !Owner::INHERITS;
        // Root may name any owner, because a front-end of root makes objects for other users.
        if owner == expected || self.who.is_root() { Ok(()) } else { Err(Error::NotPermitted) }
    }

    fn check_remove(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let parent = self.protection(dir)?;
        match self.engine.lookup(dir, name)? {
            Some(victim) => check_remove(self.who, &parent, &self.protection(victim)?),
            None => check_add(self.who, &parent),
        }
    }

    fn check_rename(
        &self,
        (from_dir, from_name): (ObjectId, &[u8]),
        (to_dir, to_name): (ObjectId, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        self.check_remove(from_dir, from_name)?;
        self.check_remove(to_dir, to_name)?;
        if from_dir == to_dir {
            return Ok(());
        }
        // A directory that gets another parent is itself changed, because its `..` changes.
        let old = self.engine.lookup(from_dir, from_name)?;
        let swapped = if mode == RenameMode::Exchange { self.engine.lookup(to_dir, to_name)? } else { None };
        for id in [old, swapped].into_iter().flatten().filter(|id| id.is_directory()) {
            check(self.who, &self.protection(id)?, Rights::WRITE)?;
        }
        Ok(())
    }

    /// Checks a change of the bytes of a file, and returns the set-id bits that the file loses. The owner may
    /// write even if the mode forbids it, because a handle that was opened before the mode changed can still
    /// write. NFS servers have the same rule. A user whose writes keep set-id bits may name the bits to
    /// clear, because a front-end of root writes for other users.
    ///
    /// `keeps_bytes` is true for a change that is allowed in an append-only file. The flags also forbid a
    /// write by a handle that was opened before the file got its flags, because the service does not know the
    /// handle.
    fn check_write(&self, id: ObjectId, wanted: SetIds, keeps_bytes: bool) -> Result<SetIds> {
        let file = self.protection(id)?;
        check_write(file.flags, keeps_bytes)?;
        if !self.who.owns(&file) {
            check(self.who, &file, Rights::WRITE)?;
        }
        Ok(if keeps_set_ids(self.who) { wanted } else { set_ids_after_write(self.who, &file) })
    }

    /// Checks a change of attributes, and returns the change to make. The client has asked for the change at
    /// the time `asked`, and the change gets the time `time`.
    fn check_set(
        &self,
        id: ObjectId,
        change: AttributeChange,
        asked: Time,
        time: Time,
    ) -> Result<AttributeChange> {
        let object = self.protection(id)?;
        let mut change = moved(change, asked, time);
        let at_most_drops_capability = change
            == AttributeChange { drops_capability: change.drops_capability, ..AttributeChange::default() };
        if at_most_drops_capability && !self.who.owns(&object) {
            // A write drops the capability of a file, and so does a truncation to the current size. So every
            // user who may write to the file may drop it.
            if !change.drops_capability {
                return Err(Error::NotPermitted);
            }
            check(self.who, &object, Rights::WRITE)?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let lost = chown(self.who, &object, change.uid, change.gid)?;
            // Root restores an owner and then a capability, for example of a copy.
            if !self.who.is_root() {
                (change.set_ids, change.drops_capability) = (lost, object.kind != Kind::Directory);
            }
            if change.size.is_some() {
                self.check_write(id, change.set_ids, false)?;
            }
        } else if change.size.is_some() || change.set_ids != SetIds::Keep {
            change.set_ids = self.check_write(id, change.set_ids, false)?;
        }
        if change.project.is_some() {
            check_set_project(self.who)?;
        }
        if let Some(flags) = change.flags {
            check_set_flags(self.who, &object, flags)?;
        }
        if let Some(mode) = change.mode {
            change.mode = Some(chmod(self.who, &object, mode)?);
        }
        let sets_times = change.accessed.is_some() || change.modified.is_some();
        if sets_times {
            self.check_flags_of_times(&object, change)?;
        }
        if sets_times && !self.who.owns(&object) {
            // If the user may write to the object but does not own it, the present replaces each time that
            // the change sets.
            check(self.who, &object, Rights::WRITE)?;
            change.accessed = change.accessed.map(|_| self.now);
            change.modified = change.modified.map(|_| self.now);
        }
        Ok(change)
    }

    /// Checks that the user may have read an object, and returns its id. The owner may read even if the mode
    /// forbids it, because a handle that was opened before the mode changed can still read. As on Linux, the
    /// inode flags do not matter.
    fn check_may_read(&self, id: ObjectId) -> Result<ObjectId> {
        let object = self.protection(id)?;
        if !self.who.owns(&object) {
            check(self.who, &object, Rights::READ)?;
        }
        Ok(id)
    }

    /// Checks that the inode flags of an object let its times be set. The service does not know if the caller
    /// wants the present, so two equal times count as the present.
    fn check_flags_of_times(&self, object: &Protection, change: AttributeChange) -> Result<()> {
        if object.flags.is_empty() {
            return Ok(());
        }
        let is_present = change.accessed.is_some() && change.accessed == change.modified;
        check_set_times(self.who, object, is_present)
    }

    /// Checks a put. A value that another user owns is replaced only by a user who may write to its file,
    /// because the file may have other names. In a sticky directory of another user, a user may replace only
    /// values that the user owns.
    fn check_put(&self, dir: ObjectId, name: &[u8], id: ObjectId, owner: Owner) -> Result<()> {
        let parent = self.protection(dir)?;
        check_store(self.who, &parent)?;
        match self.engine.lookup(dir, name)? {
            Some(existing) => {
                let file = self.protection(existing)?;
                check_unflagged(&file)?;
                if is_sticky(self.who, &parent) && !self.who.owns(&file) {
                    return Err(Error::NotPermitted);
                }
                // A put keeps the mode of the file. So only a user who could set the set-id bits of a program
                // may replace the program.
                if self.who.owns(&file) {
                    let keeps_mode = chmod(self.who, &file, file.mode)? == file.mode;
                    return if keeps_mode { Ok(()) } else { Err(Error::NotPermitted) };
                }
                if set_ids_after_write(self.who, &file) != SetIds::Keep {
                    return Err(Error::NotPermitted);
                }
                check(self.who, &file, Rights::WRITE)
            }
            None => {
                check_add(self.who, &parent)?;
                self.check_owner(&parent, id, owner)
            }
        }
    }

    /// Checks the removal of a key. If the key is missing, nothing is removed, so the user needs only the
    /// rights for the store.
    fn check_erase(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let parent = self.protection(dir)?;
        match self.engine.lookup(dir, name)? {
            Some(victim) => check_remove(self.who, &parent, &self.protection(victim)?),
            None => check_store(self.who, &parent),
        }
    }

    /// Checks one Op of a batch in `dir`: a put, an erase or a condition. The engine refuses Ops of other
    /// kinds, and Ops on other directories.
    fn check_part(&self, dir: ObjectId, op: &Op<'_>) -> Result<()> {
        match *op {
            Op::Put { name, id, owner, .. } => self.check_put(dir, name, id, owner),
            Op::Erase { name, .. } => self.check_erase(dir, name),
            _ => check_store(self.who, &self.protection(dir)?),
        }
    }
}

/// Returns a change with the time `to` in place of `from`. To set a time to the present, a client sets it to
/// the time of its Op.
fn moved(change: AttributeChange, from: Time, to: Time) -> AttributeChange {
    let moved = |set: Option<Time>| set.map(|time| if time == from { to } else { time });
    AttributeChange { accessed: moved(change.accessed), modified: moved(change.modified), ..change }
}

#[cfg(test)]
mod tests;
