//! Making, removing and moving entries, with the order of checks that Linux has.

use std::sync::Arc;

use eyrie_engine::access::{self, Protection, Rights};
use eyrie_engine::{Content, Engine, Kind, ObjectId, Op, RenameMode};
use rustix::io::Errno;

use super::cache::Directory;
use super::walk::{Last, Parent, Walk};
use super::{Pxfs, Step};

impl<E: Engine> Pxfs<E> {
    /// A new object; the permission to add it is the caller's to check.
    pub(super) fn create(
        &self,
        dir: &Directory,
        name: &[u8],
        kind: Kind,
        mode: u16,
        content: Content<'_>,
    ) -> Step<ObjectId> {
        let owner = access::owner_of_new(&self.credentials, &dir.protection, kind, mode);
        let id = self.engine.reserve(kind)?;
        match self.engine.apply(&Op::Create {
            dir: dir.id,
            name,
            id,
            owner,
            content,
            time: self.now([dir.id]),
        }) {
            Ok(_) => Ok(id),
            Err(error) => {
                self.engine.unreserve(id);
                Err(error.into())
            }
        }
    }

    /// Makes an object that must not exist yet, other than by opening.
    pub(super) fn make(&self, path: &[u8], kind: Kind, mode: u16, content: Content<'_>) -> Step<()> {
        let mut walk = Walk::new(self, path)?;
        let parent = walk.parent()?;
        let name = self.free_name(&walk, &parent, kind == Kind::Directory)?;
        access::check_add(&self.credentials, &parent.dir.protection)?;
        if let Content::Device(device) = content {
            access::check_device(&self.credentials, kind, device)?;
        }
        self.create(&parent.dir, name, kind, mode, content)?;
        Ok(())
    }

    pub(super) fn make_symlink(&self, target: &[u8], path: &[u8]) -> Step<()> {
        super::walk::check_path(target)?;
        self.make(path, Kind::Symlink, 0o777, Content::Bytes(target))
    }

    /// Gives the object that `existing` names in `self` the name `path` in `to`, which is the same file system.
    pub(super) fn make_link(&self, existing: &[u8], to: &Self, path: &[u8]) -> Step<()> {
        if !Arc::ptr_eq(&self.engine, &to.engine) {
            return Err(Errno::XDEV.into());
        }
        let id = Walk::new(self, existing)?.resolve(false)?;
        let mut walk = Walk::new(to, path)?;
        let parent = walk.parent()?;
        let name = self.free_name(&walk, &parent, false)?;
        access::check_link(self.rules, &self.credentials, &self.protection(id)?)?;
        access::check_add(&self.credentials, &parent.dir.protection)?;
        if id.is_directory() {
            return Err(Errno::PERM.into());
        }
        self.engine.apply(&Op::Link { dir: parent.dir.id, name, id, time: self.now([parent.dir.id, id]) })?;
        Ok(())
    }

    /// The key of a name that must be free. Only directories are made with slashes after the name.
    fn free_name<'w>(&self, walk: &'w Walk<'_, '_, E>, parent: &Parent, directory: bool) -> Step<&'w [u8]> {
        if parent.last != Last::Name || walk.lookup(parent)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        if parent.slash && !directory {
            return Err(Errno::NOENT.into());
        }
        walk.new_name(parent)
    }

    #[inline]
    pub(super) fn unlink_path(&self, path: &[u8]) -> Step<()> {
        // Where nothing can be in the way the engine's own look-up is enough.
        if let Some((dir, name)) = self.entry_quickly(path)
            && self.may_change_any(&dir.protection)
        {
            self.engine.apply(&Op::Unlink { dir: dir.id, name, time: self.clock.stamp_of_any() })?;
            return Ok(());
        }
        let mut walk = Walk::new(self, path)?;
        let parent = walk.parent()?;
        if parent.last != Last::Name {
            return Err(Errno::ISDIR.into());
        }
        let dir = &parent.dir;
        let id = walk.lookup(&parent)?.ok_or(Errno::NOENT)?;
        if parent.slash {
            return Err(if id.is_directory() { Errno::ISDIR } else { Errno::NOTDIR }.into());
        }
        self.check_remove(&dir.protection, id)?;
        let name = walk.name(&parent)?.ok_or(Errno::NOENT)?;
        self.engine.apply(&Op::Unlink { dir: dir.id, name, time: self.now([dir.id, id]) })?;
        Ok(())
    }

    pub(super) fn remove_directory(&self, path: &[u8]) -> Step<()> {
        let mut walk = Walk::new(self, path)?;
        let parent = walk.parent()?;
        match parent.last {
            Last::Name => {}
            Last::Dot => return Err(Errno::INVAL.into()),
            Last::DotDot => return Err(Errno::NOTEMPTY.into()),
            Last::Root => return Err(Errno::BUSY.into()),
        }
        let id = walk.lookup(&parent)?.ok_or(Errno::NOENT)?;
        self.check_remove(&parent.dir.protection, id)?;
        if !id.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        let name = walk.name(&parent)?.ok_or(Errno::NOENT)?;
        self.engine.apply(&Op::RemoveDirectory {
            dir: parent.dir.id,
            name,
            time: self.now([parent.dir.id, id]),
        })?;
        Ok(())
    }

    pub(super) fn rename_path(&self, from: &[u8], to: &[u8], mode: RenameMode) -> Step<()> {
        // Within one directory whose entries are all theirs to change, the engine checks all there is to check.
        if let (Some((from_dir, from_name)), Some((to_dir, to_name))) =
            (self.entry_quickly(from), self.entry_quickly(to))
            && from_dir.id == to_dir.id
            && self.may_change_any(&to_dir.protection)
        {
            let (from_dir, to_dir, time) = (from_dir.id, to_dir.id, self.clock.stamp_of_any());
            self.engine.apply(&Op::Rename { from_dir, from_name, to_dir, to_name, mode, time })?;
            return Ok(());
        }
        let mut from = Walk::new(self, from)?;
        let from_parent = from.parent()?;
        let mut to = Walk::new(self, to)?;
        let to_parent = to.parent()?;
        if from_parent.last != Last::Name {
            return Err(Errno::BUSY.into());
        }
        if to_parent.last != Last::Name {
            return Err(if mode == RenameMode::NoReplace { Errno::EXIST } else { Errno::BUSY }.into());
        }
        let old = from.lookup(&from_parent)?.ok_or(Errno::NOENT)?;
        let new = to.lookup(&to_parent)?;
        match (mode, new) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT.into()),
            _ => {}
        }
        let moved = Move { from: &from_parent, to: &to_parent, old, new, mode };
        self.check_shape(&moved)?;
        if new == Some(old) {
            // Both names are there to stay.
            return Ok(self.engine.wait_for(old)?);
        }
        self.check_move(&moved)?;
        let from_name = from.name(&from_parent)?.ok_or(Errno::NOENT)?;
        let to_name = to.new_name(&to_parent)?;
        let (from_dir, to_dir) = (from_parent.dir.id, to_parent.dir.id);
        let time = self.now([from_dir, to_dir, old, new.unwrap_or(old)]);
        self.engine.apply(&Op::Rename { from_dir, from_name, to_dir, to_name, mode, time })?;
        Ok(())
    }

    /// Whether the credentials may remove and add any entry of a directory, whatever it names. If not, some entries may
    /// still be theirs to change.
    #[inline]
    fn may_change_any(&self, dir: &Protection) -> bool {
        !access::is_sticky(&self.credentials, dir) && access::check_add(&self.credentials, dir).is_ok()
    }

    /// What is wrong with a move whoever makes it: slashes after what is no directory, and cycles.
    fn check_shape(&self, moved: &Move<'_>) -> Step<()> {
        let Move { from, to, old, new, mode } = *moved;
        let exchange = mode == RenameMode::Exchange;
        if exchange && to.slash && !new.is_some_and(ObjectId::is_directory) {
            return Err(Errno::NOTDIR.into());
        }
        if !old.is_directory() && (from.slash || to.slash && !exchange) {
            return Err(Errno::NOTDIR.into());
        }
        if from.dir.id == to.dir.id {
            return Ok(());
        }
        if old.is_directory() && self.is_within(to.dir.id, old)? {
            return Err(Errno::INVAL.into());
        }
        match new {
            Some(new) if new.is_directory() && self.is_within(from.dir.id, new)? => {
                Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether the credentials may make a move, and whether what it replaces is of the right kind.
    fn check_move(&self, moved: &Move<'_>) -> Step<()> {
        let Move { from, to, old, new, mode } = *moved;
        self.check_remove(&from.dir.protection, old)?;
        match new {
            None => access::check_add(&self.credentials, &to.dir.protection)?,
            Some(new) => {
                self.check_remove(&to.dir.protection, new)?;
                match (old.is_directory(), new.is_directory()) {
                    _ if mode == RenameMode::Exchange => {}
                    (true, false) => return Err(Errno::NOTDIR.into()),
                    (false, true) => return Err(Errno::ISDIR.into()),
                    _ => {}
                }
            }
        }
        if from.dir.id != to.dir.id && !access::passes_everywhere(&self.credentials) {
            // The `..` of a directory changes when its parent does.
            let swapped = new.filter(|_| mode == RenameMode::Exchange);
            for id in [Some(old), swapped].into_iter().flatten().filter(|id| id.is_directory()) {
                access::check(&self.credentials, &self.protection(id)?, Rights::WRITE)?;
            }
        }
        Ok(())
    }

    /// True if `dir` is `ancestor` or under it. In a damaged volume the directories around may lead in a circle.
    fn is_within(&self, mut dir: ObjectId, ancestor: ObjectId) -> Step<bool> {
        // Brent's algorithm: a mark that is set ever more rarely is met again by whatever goes in a circle.
        let (mut mark, mut steps, mut limit) = (dir, 0_u64, 2);
        loop {
            if dir == ancestor {
                return Ok(true);
            }
            dir = match self.engine.parent_of(dir)? {
                Some(parent) if parent != dir => parent,
                _ => return Ok(false),
            };
            if dir == mark {
                return Err(Errno::IO.into());
            }
            steps += 1;
            if steps == limit {
                (mark, limit) = (dir, limit * 2);
            }
        }
    }
}

/// A rename whose paths have been walked and whose names have been looked up.
#[derive(Clone, Copy)]
struct Move<'a> {
    from: &'a Parent,
    to: &'a Parent,
    old: ObjectId,
    new: Option<ObjectId>,
    mode: RenameMode,
}
