//! Changes of directories: making, removing and renaming entries. The checks come in the order of Linux, so
//! that a call with several errors returns the error that Linux returns.

use eyrie_engine::access::{self, Protection, Rights};
use eyrie_engine::{
    Content, Engine, Error as EngineError, Kind, ObjectId, Op, RenameMode, Whiteout, with_reserved,
};

use super::cache::{self, Directory};
use super::path::{Last, Parent, PathWalk};
use super::{AsUser, CallError, CallResult, Handle};
use crate::Errno;
use crate::posix::PathAt;

impl<E: Engine> AsUser<'_, E> {
    /// Makes an object, and returns its id and its generation. (Only engines with sessions define the
    /// generation.) The caller has checked that the credentials may add an entry to `dir`.
    pub(super) fn create(
        &self,
        dir: &Directory,
        name: &[u8],
        kind: Kind,
        mode: u16,
        content: Content<'_>,
    ) -> CallResult<(ObjectId, u64)> {
        let owner = access::owner_of_new(self.credentials(), &dir.protection, kind, mode);
        let made = with_reserved(self.engine(), kind, |id| {
            let time = self.now([dir.id]);
            let applied = self.apply(&Op::Create { dir: dir.id, name, id, owner, content, time })?;
            Ok((id, applied.generation))
        })?;
        Ok(made)
    }

    /// Makes an object at a path that does not exist yet. An open with `CREATE` does not use this function.
    pub(super) fn make(
        &self,
        mut walk: PathWalk<'_, '_, E>,
        kind: Kind,
        mode: u16,
        content: Content<'_>,
    ) -> CallResult<ObjectId> {
        let parent = walk.parent()?;
        let name = self.free_name(&walk, &parent, kind == Kind::Directory)?;
        self.check_new_entry(&parent.dir)?;
        if let Content::Device(device) = content {
            self.unless_removed(&parent.dir, access::check_device(self.credentials(), kind, device))?;
        }
        Ok(self.create(&parent.dir, name, kind, mode, content)?.0)
    }

    /// Returns true if an exclusive create may leave out its own look-up of the name, because the Op looks
    /// the name up, too. [`create_unseen`](AsUser::create_unseen) looks the name up only after an error. A
    /// client always looks the name up first, because a look-up makes no request to the service, and so an
    /// existing entry costs no request. Calls such as `mkdir` look the name up first, too, because their
    /// entry often exists.
    #[inline]
    pub(super) fn may_create_unseen(&self, parent: &Parent) -> bool {
        parent.last == Last::Name
            && !parent.has_trailing_slash
            && self.engine().session() == 0
            && access::check_add(self.credentials(), &parent.dir.protection).is_ok()
    }

    /// Makes a file without a look-up of its name before the Op.
    pub(super) fn create_unseen(
        &self,
        walk: &PathWalk<'_, '_, E>,
        parent: &Parent,
        mode: u16,
    ) -> CallResult<ObjectId> {
        let name = walk.new_name(parent)?;
        match self.create(&parent.dir, name, Kind::File, mode, Content::Empty) {
            Ok((id, _)) => Ok(id),
            // A fault may come after the change, and the look-up would then find the new file. So after a
            // failure of the disk, an existing name has this error, too, instead of `EEXIST`.
            Err(CallError::Engine(error @ EngineError::Fault(_))) if !error.is_full() => Err(error.into()),
            // On Linux this error comes before all others.
            Err(_) if walk.lookup(parent)?.is_some() => Err(Errno::EXIST.into()),
            Err(error) => Err(error),
        }
    }

    /// Gives an object another name.
    pub(super) fn make_link(&self, id: ObjectId, mut walk: PathWalk<'_, '_, E>) -> CallResult<()> {
        let parent = walk.parent()?;
        let name = self.free_name(&walk, &parent, false)?;
        let object = self.protection(id)?;
        let checked =
            access::check_new_name(self.rules(), self.credentials(), &object, &parent.dir.protection)
                .and_then(|()| if id.is_directory() { Err(EngineError::NotPermitted) } else { Ok(()) });
        self.unless_removed(&parent.dir, checked)?;
        self.apply(&Op::Link { dir: parent.dir.id, name, id, time: self.now([parent.dir.id, id]) })?;
        Ok(())
    }

    /// Returns the key of the last component, and fails if its entry exists. Only the name of a new directory
    /// may end with slashes.
    fn free_name<'w>(
        &self,
        walk: &'w PathWalk<'_, '_, E>,
        parent: &Parent,
        directory: bool,
    ) -> CallResult<&'w [u8]> {
        if parent.last != Last::Name || walk.lookup(parent)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        if parent.has_trailing_slash && !directory {
            return Err(Errno::NOENT.into());
        }
        walk.new_name(parent)
    }

    #[inline]
    pub(super) fn unlink_path(&self, path: PathAt<'_, Handle>) -> CallResult<()> {
        // If the credentials may change every entry of the directory, the engine's own look-up is enough.
        // This call then does not know the object, so it takes a stamp that is newer than the stamps that
        // `stat` has returned for any object.
        if let Some((dir, name)) = self.entry_quickly(path)
            && self.may_change_any(&dir.protection)
        {
            self.apply(&Op::Unlink { dir: dir.id, name, time: self.clock().stamp_of_any() })?;
            return Ok(());
        }
        self.unlink_walked(PathWalk::new(*self, path)?)
    }

    /// Removes a name by a walk that looks at the object.
    pub(super) fn unlink_walked(&self, mut walk: PathWalk<'_, '_, E>) -> CallResult<()> {
        let parent = walk.parent()?;
        if parent.last != Last::Name {
            return Err(Errno::ISDIR.into());
        }
        let dir = &parent.dir;
        let id = walk.lookup(&parent)?.ok_or(Errno::NOENT)?;
        if parent.has_trailing_slash {
            return Err(if id.is_directory() { Errno::ISDIR } else { Errno::NOTDIR }.into());
        }
        self.check_remove(&dir.protection, id)?;
        let name = walk.name(&parent)?.ok_or(Errno::NOENT)?;
        self.apply(&Op::Unlink { dir: dir.id, name, time: self.now([dir.id, id]) })?;
        Ok(())
    }

    pub(super) fn remove_directory(&self, mut walk: PathWalk<'_, '_, E>) -> CallResult<()> {
        let scope = self.scope();
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
        self.apply(&Op::RemoveDirectory { dir: parent.dir.id, name, time: self.now([parent.dir.id, id]) })?;
        cache::note_removal(&scope, self.engine().directory_changes(), id);
        Ok(())
    }

    pub(super) fn rename_path(
        &self,
        from: PathAt<'_, Handle>,
        to: PathAt<'_, Handle>,
        mode: RenameMode,
    ) -> CallResult<()> {
        // Within one directory, if the credentials may change all its entries, the engine makes all remaining
        // checks.
        if let (Some((from_dir, from_name)), Some((to_dir, to_name))) =
            (self.entry_quickly(from), self.entry_quickly(to))
            && from_dir.id == to_dir.id
            && self.may_change_any(&to_dir.protection)
            && !mode.leaves_whiteout()
        {
            let (from_dir, to_dir, time) = (from_dir.id, to_dir.id, self.clock().stamp_of_any());
            self.apply(&Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout: None, time })?;
            return Ok(());
        }
        // As on Linux, an error of the first path comes before any error of the second one.
        let mut from = PathWalk::new(*self, from)?;
        let from_parent = from.parent()?;
        let mut to = PathWalk::new(*self, to)?;
        let to_parent = to.parent()?;
        self.rename_walked((&from, from_parent), (&to, to_parent), mode)
    }

    /// Moves an entry, after walks to both directories.
    pub(super) fn rename_walked(
        &self,
        (from, from_parent): (&PathWalk<'_, '_, E>, Parent),
        (to, to_parent): (&PathWalk<'_, '_, E>, Parent),
        mode: RenameMode,
    ) -> CallResult<()> {
        if from_parent.last != Last::Name {
            return Err(Errno::BUSY.into());
        }
        if to_parent.last != Last::Name {
            return Err(if mode.needs_free_name() { Errno::EXIST } else { Errno::BUSY }.into());
        }
        let old = from.lookup(&from_parent)?.ok_or(Errno::NOENT)?;
        let new = to.lookup(&to_parent)?;
        match (mode, new) {
            (mode, Some(_)) if mode.needs_free_name() => return Err(Errno::EXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT.into()),
            _ => {}
        }
        let moved = RenameRequest { from: &from_parent, to: &to_parent, old, new, mode };
        self.check_shape(&moved)?;
        if new == Some(old) {
            // Both paths name one object, so POSIX keeps both names. The call that made the second name may
            // not be durable yet.
            return Ok(self.engine().wait_for(old)?);
        }
        self.check_move(&moved)?;
        let from_name = from.name(&from_parent)?.ok_or(Errno::NOENT)?;
        let to_name = to.new_name(&to_parent)?;
        let (from_dir, to_dir) = (from_parent.dir.id, to_parent.dir.id);
        let rename = |whiteout| {
            let time = self.now([from_dir, to_dir, old, new.unwrap_or(old)]);
            self.apply(&Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time })
        };
        if !mode.leaves_whiteout() {
            rename(None)?;
            return Ok(());
        }
        let (dir, kind) = (&from_parent.dir.protection, Kind::CharDevice);
        let owner = access::owner_of_new(self.credentials(), dir, kind, 0);
        let make = |id| Ok((id, rename(Some(Whiteout { id, owner }))?.created));
        let (id, is_made) = with_reserved(self.engine(), kind, make)?;
        if !is_made {
            self.engine().unreserve(id);
        }
        Ok(())
    }

    /// Returns true if the credentials may add entries to a directory and remove every entry of it. If false,
    /// the credentials may still be allowed to change some of the entries.
    #[inline]
    fn may_change_any(&self, dir: &Protection) -> bool {
        !access::is_sticky(self.credentials(), dir)
            && access::check_add(self.credentials(), dir).is_ok()
            && !self.engine().may_have_flags()
    }

    /// Makes the checks that hold for all credentials: slashes follow only the name of a directory, no
    /// directory moves into itself, and the target is not a directory that contains the source.
    fn check_shape(&self, moved: &RenameRequest<'_>) -> CallResult<()> {
        let RenameRequest { from, to, old, new, mode } = *moved;
        let exchange = mode == RenameMode::Exchange;
        if exchange && to.has_trailing_slash && !new.is_some_and(ObjectId::is_directory) {
            return Err(Errno::NOTDIR.into());
        }
        if !old.is_directory() && (from.has_trailing_slash || to.has_trailing_slash && !exchange) {
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

    /// Checks that the credentials may make this rename. Also checks that a directory replaces only a
    /// directory, and another object only an object that is no directory.
    fn check_move(&self, moved: &RenameRequest<'_>) -> CallResult<()> {
        let RenameRequest { from, to, old, new, mode } = *moved;
        self.check_remove(&from.dir.protection, old)?;
        match new {
            None => self.check_new_entry(&to.dir)?,
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
        if from.dir.id != to.dir.id && !access::passes_everywhere(self.credentials()) {
            // A directory that gets another parent is itself changed, because its `..` changes.
            let swapped = new.filter(|_| mode == RenameMode::Exchange);
            for id in [Some(old), swapped].into_iter().flatten().filter(|id| id.is_directory()) {
                access::check(self.credentials(), &self.protection(id)?, Rights::WRITE)?;
            }
        }
        Ok(())
    }

    /// Returns true if `dir` is `ancestor` or below it. In a damaged volume the parents may form a cycle, and
    /// the result is then `EIO`.
    fn is_within(&self, mut dir: ObjectId, ancestor: ObjectId) -> CallResult<bool> {
        // Brent's algorithm finds a cycle. `mark` moves to the current directory after 2, 4, 8 and so on
        // steps in all. So a walk in a cycle meets the directory of `mark` again.
        let (mut mark, mut steps, mut limit) = (dir, 0_u64, 2);
        loop {
            if dir == ancestor {
                return Ok(true);
            }
            dir = match self.engine().parent_of(dir)? {
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
struct RenameRequest<'a> {
    from: &'a Parent,
    to: &'a Parent,
    old: ObjectId,
    new: Option<ObjectId>,
    mode: RenameMode,
}
