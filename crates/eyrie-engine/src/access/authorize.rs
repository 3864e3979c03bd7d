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
    /// set-id bits that a change by this user clears. Root may choose an earlier time and the set-id bits.
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
                Op::SetAttributes { id, change: self.check_attributes(id, change)?, time: at(time) }
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

    fn check_attributes(&self, id: ObjectId, change: AttributeChange) -> Result<AttributeChange> {
        let object = self.protection(id)?;
        let mut change = change;
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
                if self.who.owns(&file) {
                    return Ok(());
                }
                // A put keeps the mode of the file, so it must not replace a program that has set-id bits.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AclKind;
    use crate::model::Model;
    use crate::{Condition, FallocateMode, InodeFlags, Kind, XattrMode};

    const ROOT: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
    const NOW: Time = Time::new(1000, 0);

    /// A volume with the directories `/shared`, which all may change, and `/sticky`, where only owners remove
    /// entries. Each has a file `egg` of user 1.
    struct Nest {
        model: Model,
        shared: ObjectId,
        sticky: ObjectId,
        egg: ObjectId,
    }

    impl Nest {
        fn new() -> Nest {
            let model = Model::new(ObjectId::new(64, Kind::Directory), ROOT, NOW);
            let make = |dir, name: &[u8], kind, owner| {
                let id = model.reserve(kind).expect("room");
                let op = Op::Create { dir, name, id, owner, content: Content::Empty, time: NOW };
                model.apply(&op).expect("it is new");
                id
            };
            let root = model.root();
            let shared = make(root, b"shared", Kind::Directory, Owner { mode: 0o777, ..ROOT });
            let sticky = make(root, b"sticky", Kind::Directory, Owner { mode: 0o1777, ..ROOT });
            let of_one = Owner { mode: 0o6755, uid: 1, gid: 1 };
            make(sticky, b"egg", Kind::File, of_one);
            let egg = make(shared, b"egg", Kind::File, of_one);
            Nest { model, shared, sticky, egg }
        }

        fn ask<'o>(&self, uid: u32, op: &Op<'o>) -> Result<Op<'o>> {
            let who = Credentials::new(uid, uid, &[]);
            let rules = AccessRules::default();
            Requester { engine: &self.model, who: &who, rules, now: NOW }.authorize(op)
        }

        fn is_refused(&self, uid: u32, op: &Op<'_>) -> bool {
            matches!(self.ask(uid, op), Err(Error::AccessDenied | Error::NotPermitted))
        }
    }

    #[test]
    fn clone_needs_rights_on_both_files() {
        let nest = Nest::new();
        let make = |name: &[u8], mode, uid| {
            let id = nest.model.reserve(Kind::File).expect("room");
            let owner = Owner { mode, uid, gid: uid };
            let op =
                Op::Create { dir: nest.shared, name, id, owner, content: Content::Bytes(b"x"), time: NOW };
            nest.model.apply(&op).expect("it is new");
            id
        };
        let (secret, open, mine) = (make(b"s", 0o200, 1), make(b"o", 0o644, 1), make(b"m", 0o400, 2));
        let clone = |source, id| Op::CloneRange {
            source,
            source_offset: 0,
            id,
            offset: 0,
            length: 0,
            set_ids: SetIds::Keep,
            time: NOW,
        };
        assert!(nest.is_refused(2, &clone(secret, mine)), "the user may not read the source");
        assert!(nest.is_refused(2, &clone(mine, open)), "the user may not write to the target");
        assert!(nest.ask(2, &clone(open, mine)).is_ok(), "an owner may have a handle for writing");
        assert!(nest.ask(1, &clone(secret, open)).is_ok(), "an owner may have a handle for reading");
        let drops = nest.ask(0, &clone(secret, mine)).expect("root");
        assert_eq!(drops, clone(secret, mine));
    }

    #[test]
    fn user_changes_only_what_its_rights_allow() {
        let nest = Nest::new();
        let (root, id, time, set_ids) = (nest.model.root(), nest.egg, NOW, SetIds::Keep);
        let new = nest.model.reserve(Kind::File).expect("room");
        let mine = Owner { mode: 0o644, uid: 2, gid: 2 };
        let create =
            |dir, owner| Op::Create { dir, name: b"a", id: new, owner, content: Content::Empty, time };
        let put = |dir, name| Op::Put { dir, name, id: new, owner: mine, data: b"x", time };
        let set = |change| Op::SetAttributes { id, change, time };
        let refused = [
            create(root, mine),
            create(nest.shared, Owner { uid: 1, ..mine }),
            create(nest.shared, Owner { gid: 1, ..mine }),
            Op::CreateUnnamed { dir: root, id: new, owner: mine, linkable: true, time },
            Op::CreateUnnamed {
                dir: nest.shared,
                id: new,
                owner: Owner { uid: 1, ..mine },
                linkable: true,
                time,
            },
            Op::Link { dir: nest.shared, name: b"a", id, time },
            Op::Unlink { dir: nest.sticky, name: b"egg", time },
            Op::RemoveDirectory { dir: root, name: b"shared", time },
            Op::Write { id, offset: 0, data: b"x", set_ids, time },
            Op::Append { id, data: b"x", set_ids, time },
            Op::SetSize { id, size: 0, set_ids, time },
            set(AttributeChange { mode: Some(0o777), ..AttributeChange::default() }),
            set(AttributeChange { uid: Some(2), ..AttributeChange::default() }),
            set(AttributeChange { size: Some(0), ..AttributeChange::default() }),
            set(AttributeChange { modified: Some(NOW), ..AttributeChange::default() }),
            set(AttributeChange { set_ids: SetIds::DropAsStranger, ..AttributeChange::default() }),
            Op::SetXattr { id, name: b"user.a", value: b"x", mode: XattrMode::Set, time },
            Op::RemoveXattr { id, name: b"user.a", time },
            Op::SetAcl { id, kind: AclKind::Access, acl: &[], drops_set_gid: false, time },
            put(root, b"a"),
            put(nest.shared, b"egg"),
            put(nest.sticky, b"egg"),
            Op::Batch { dir: root, ops: &[put(root, b"a")], time },
            Op::Batch { dir: nest.shared, ops: &[put(nest.shared, b"a"), put(nest.shared, b"egg")], time },
            Op::Rename {
                from_dir: nest.sticky,
                from_name: b"egg",
                to_dir: nest.shared,
                to_name: b"a",
                mode: RenameMode::Replace,
                whiteout: None,
                time,
            },
            Op::Rename {
                from_dir: root,
                from_name: b"shared",
                to_dir: nest.sticky,
                to_name: b"a",
                mode: RenameMode::Replace,
                whiteout: None,
                time,
            },
        ];
        let whiteout = |owner| {
            let id = nest.model.reserve(Kind::CharDevice).expect("room");
            Op::Rename {
                from_dir: nest.shared,
                from_name: b"egg",
                to_dir: nest.shared,
                to_name: b"a",
                mode: RenameMode::Whiteout,
                whiteout: Some(Whiteout { id, owner }),
                time,
            }
        };
        assert!(nest.is_refused(2, &whiteout(Owner { uid: 1, ..mine })), "a whiteout of another user");
        assert!(nest.ask(2, &whiteout(mine)).is_ok());
        for op in refused {
            assert!(nest.is_refused(2, &op), "{op:?}");
            assert!(nest.ask(0, &op).is_ok(), "root: {op:?}");
        }
        let unnamed = Op::CreateUnnamed { dir: nest.shared, id: new, owner: mine, linkable: false, time };
        for op in [unnamed, create(nest.shared, mine), put(nest.shared, b"a"), put(nest.sticky, b"a")] {
            assert_eq!(nest.ask(2, &op).expect("the directory is shared"), op);
        }
    }

    #[test]
    fn readers_and_owners_move_access_times_to_the_present() {
        let nest = Nest::new();
        let mark = |time| Op::MarkAccess { id: nest.egg, time };
        for (uid, time) in [(0, 2000), (1, 1), (1, 2000), (2, 1), (2, 2000)] {
            let given = nest.ask(uid, &mark(Time::new(time, 0))).expect("all may read");
            assert_eq!(given, mark(NOW), "user {uid}");
        }
        let early = mark(Time::new(1, 0));
        assert_eq!(nest.ask(0, &early).expect("root restores times"), early);
        let set = |change| {
            let op = Op::SetAttributes { id: nest.egg, change, time: NOW };
            nest.model.apply(&op).expect("a file");
        };
        set(AttributeChange { mode: Some(0o220), ..AttributeChange::default() });
        assert!(nest.is_refused(2, &mark(NOW)), "this user cannot have read the file");
        assert!(nest.ask(1, &mark(NOW)).is_ok(), "the owner may have opened the file before");
        set(AttributeChange { flags: Some(InodeFlags::IMMUTABLE), ..AttributeChange::default() });
        assert!(nest.ask(1, &mark(NOW)).is_ok(), "a read of an immutable file counts on Linux, too");
    }

    #[test]
    fn flags_bind_all_clients() {
        let nest = Nest::new();
        let (root, id, dir, time, set_ids) = (nest.model.root(), nest.egg, nest.shared, NOW, SetIds::Keep);
        let set = |id, flags| {
            let change = AttributeChange { flags: Some(flags), ..AttributeChange::default() };
            Op::SetAttributes { id, change, time }
        };
        let (none, immutable, grows) = (InodeFlags::empty(), InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY);
        assert!(nest.is_refused(1, &set(id, immutable)), "the owner lacks the capability");
        assert!(nest.is_refused(2, &set(id, none)) && nest.ask(1, &set(id, none)).is_ok());
        nest.model.apply(&nest.ask(0, &set(id, grows)).expect("root")).expect("a file");
        let new = nest.model.reserve(Kind::File).expect("room");
        let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
        let change = |change| Op::SetAttributes { id, change, time };
        let write = Op::Write { id, offset: 0, data: b"x", set_ids, time };
        let append = Op::Append { id, data: b"x", set_ids, time };
        let fallocate = |mode| Op::Fallocate { id, mode, offset: 0, length: 4096, set_ids, time };
        let times = AttributeChange { modified: Some(NOW), ..AttributeChange::default() };
        let refused = [
            write,
            Op::SetSize { id, size: 0, set_ids, time },
            fallocate(FallocateMode::PunchHole),
            change(AttributeChange { size: Some(0), ..AttributeChange::default() }),
            change(AttributeChange { mode: Some(0o600), ..AttributeChange::default() }),
            change(AttributeChange { uid: Some(2), ..AttributeChange::default() }),
            change(times),
            Op::SetXattr { id, name: b"user.a", value: b"x", mode: XattrMode::Set, time },
            Op::RemoveXattr { id, name: b"user.a", time },
            Op::SetAcl { id, kind: AclKind::Access, acl: &[], drops_set_gid: false, time },
            Op::Link { dir, name: b"a", id, time },
            Op::Unlink { dir, name: b"egg", time },
            Op::Put { dir, name: b"egg", id: new, owner, data: b"x", time },
            Op::Erase { dir, name: b"egg", time },
        ];
        let present = change(AttributeChange { accessed: Some(NOW), ..times });
        for op in [append, fallocate(FallocateMode::Allocate), present] {
            assert!(nest.ask(0, &op).is_ok(), "{op:?}");
        }
        assert!(refused.iter().all(|op| nest.is_refused(0, op)));
        nest.model.apply(&set(id, immutable)).expect("a file");
        for op in refused.iter().chain(&[append, fallocate(FallocateMode::Allocate), present]) {
            assert!(nest.is_refused(0, op), "{op:?}");
        }

        let create = Op::Create { dir, name: b"a", id: new, owner, content: Content::Empty, time };
        let put = Op::Put { dir, name: b"a", id: new, owner, data: b"x", time };
        let removals = [
            Op::RemoveDirectory { dir: root, name: b"shared", time },
            Op::Rename {
                from_dir: dir,
                from_name: b"egg",
                to_dir: root,
                to_name: b"egg",
                mode: RenameMode::Replace,
                whiteout: None,
                time,
            },
        ];
        nest.model.apply(&set(id, none)).expect("a file");
        nest.model.apply(&set(dir, grows)).expect("a directory");
        assert!(nest.ask(0, &create).is_ok() && nest.ask(0, &put).is_ok());
        assert!(removals.iter().all(|op| nest.is_refused(0, op)));
        nest.model.apply(&set(dir, immutable)).expect("a directory");
        for op in [create, put].iter().chain(&removals) {
            assert!(nest.is_refused(0, op), "{op:?}");
        }
    }

    #[test]
    fn immutable_directory_keeps_its_keys() {
        let nest = Nest::new();
        let (dir, time) = (nest.shared, NOW);
        let change = AttributeChange { flags: Some(InodeFlags::IMMUTABLE), ..AttributeChange::default() };
        nest.model.apply(&Op::SetAttributes { id: dir, change, time }).expect("a directory");
        let new = nest.model.reserve(Kind::File).expect("room");
        let owner = Owner { mode: 0o644, uid: 1, gid: 1 };
        let put = |name| Op::Put { dir, name, id: new, owner, data: b"x", time };
        let erase = |name| Op::Erase { dir, name, time };
        let expect = Op::Expect { dir, name: b"egg", condition: Condition::Present };
        let unchanged = [put(b"egg"), erase(b"none"), expect];
        for op in unchanged.iter().chain(&[Op::Batch { dir, ops: &unchanged, time }]) {
            assert!(nest.ask(1, op).is_ok() && nest.ask(0, op).is_ok(), "{op:?}");
        }
        for op in [put(b"a"), erase(b"egg")] {
            let batch = Op::Batch { dir, ops: &[op], time };
            for op in [op, batch] {
                assert!(nest.is_refused(1, &op) && nest.is_refused(0, &op), "{op:?}");
            }
        }
    }

    #[test]
    fn rights_are_those_of_the_acl() {
        let nest = Nest::new();
        let id = nest.egg;
        let entry = |tag: u8, rights: u8, id: u32| [&[tag, 0, rights, 0][..], &id.to_le_bytes()].concat();
        let named = [entry(2, 6, 2), entry(2, 4, 3)].concat();
        let others = [entry(4, 5, u32::MAX), entry(0x10, 6, u32::MAX), entry(0x20, 6, u32::MAX)].concat();
        let acl = [vec![2, 0, 0, 0], entry(1, 7, u32::MAX), named, others].concat();
        let set = Op::SetAcl { id, kind: AclKind::Access, acl: &acl, drops_set_gid: false, time: NOW };
        assert!(nest.is_refused(2, &set));
        // The owner is in the group of the file, so the file keeps its set-group-id bit.
        assert_eq!(nest.ask(1, &set).expect("the owner"), set);
        nest.model.apply(&set).expect("an ACL");
        let write = Op::Write { id, offset: 0, data: b"x", set_ids: SetIds::Keep, time: NOW };
        assert!(nest.ask(2, &write).is_ok() && nest.ask(4, &write).is_ok());
        assert!(nest.is_refused(3, &write), "the entry of the user decides, and not that of the others");

        let default = Op::SetAcl {
            id: nest.shared,
            kind: AclKind::Default,
            acl: &acl,
            drops_set_gid: false,
            time: NOW,
        };
        nest.model.apply(&default).expect("an ACL");
        let new = nest.model.reserve(Kind::File).expect("room");
        let owner = Owner { mode: 0o666 | Owner::INHERITS, uid: 2, gid: 2 };
        let create =
            Op::Create { dir: nest.shared, name: b"b", id: new, owner, content: Content::Empty, time: NOW };
        assert_eq!(nest.ask(2, &create).expect("the directory is shared"), create);
        nest.model.apply(&create).expect("a new name");
        assert_eq!(nest.model.owner(new).expect("made").mode, 0o666);
        assert!(nest.model.xattr(new, AclKind::Access.name(), &mut []).expect("made").is_some());
        let stale = Op::Create {
            dir: nest.model.root(),
            name: b"c",
            id: new,
            owner,
            content: Content::Empty,
            time: NOW,
        };
        assert!(matches!(nest.model.apply(&stale), Err(Error::Stale)));
    }

    #[test]
    fn changes_have_the_present_time_and_writes_drop_set_ids() {
        let nest = Nest::new();
        let late = Time::new(2000, 0);
        let write = Op::Write { id: nest.egg, offset: 0, data: b"x", set_ids: SetIds::Keep, time: late };
        let Op::Write { set_ids, time, .. } = nest.ask(1, &write).expect("its owner writes") else {
            panic!("another Op");
        };
        assert_eq!((set_ids, time), (SetIds::DropAsMember, NOW));
        // Root writes for another user, and names the set-id bits that this write clears.
        let named =
            Op::Write { id: nest.egg, offset: 0, data: b"x", set_ids: SetIds::DropAsStranger, time: NOW };
        assert_eq!(nest.ask(0, &named).expect("root writes"), named);
        let unlink = |time| Op::Unlink { dir: nest.shared, name: b"egg", time };
        let early = unlink(Time::new(1, 0));
        assert_eq!(nest.ask(1, &early).expect("all may remove"), unlink(NOW));
        assert_eq!(nest.ask(0, &early).expect("root restores times"), early);
        let set = |change| Op::SetAttributes { id: nest.egg, change, time: NOW };
        assert!(nest.is_refused(2, &set(AttributeChange::default())));
        let drop = set(AttributeChange { drops_capability: true, ..AttributeChange::default() });
        assert!(nest.is_refused(2, &drop));
        let writable = set(AttributeChange { mode: Some(0o666), ..AttributeChange::default() });
        nest.model.apply(&writable).expect("a file");
        assert_eq!(nest.ask(2, &drop).expect("all may write"), drop);
    }
}
