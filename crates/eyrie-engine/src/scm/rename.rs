//! The Op `Rename`, in all its cases.

use std::cell::Cell;

use eyrie_medium::Addr;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::lock;
use smallvec::SmallVec;

use super::Scm;
use super::arguments::check_entry;
use super::counts::EntryChange;
use super::create::{Creation, Inserted};
use super::locks::{EntryLock, HeldLocks, LockedParent, PeekedEntry};
use crate::object::collection::{self, Collection, FoundEntry};
use crate::object::header::{Header, HotChange};
use crate::op::Whiteout;
use crate::transaction::Transaction;
use crate::{Applied, Content, Error, Kind, ObjectId, RenameMode, Result, Time};

/// The arguments of a rename.
#[derive(Clone, Copy)]
pub(super) struct MoveRequest<'a> {
    pub(super) from_dir: ObjectId,
    pub(super) from_name: &'a [u8],
    pub(super) to_dir: ObjectId,
    pub(super) to_name: &'a [u8],
    pub(super) mode: RenameMode,
    pub(super) whiteout: Option<Whiteout>,
    pub(super) time: Time,
    /// Set to true if the removal of the old entry leaves few entries in its page.
    pub(super) sparse: &'a Cell<bool>,
}

/// The directories and entries of a move. The caller holds all locks.
#[derive(Clone, Copy)]
struct LockedMove {
    from: LockedParent,
    to: LockedParent,
    moved: FoundEntry,
    target: Option<FoundEntry>,
}

impl Scm {
    pub(super) fn rename(&self, request: MoveRequest<'_>) -> Result<Applied> {
        if request.whiteout.is_some() || request.mode.leaves_whiteout() {
            self.check_whiteout(&request)?;
        }
        check_entry(request.from_dir, request.from_name)?;
        check_entry(request.to_dir, request.to_name)?;
        // Prefetch the lines for the second look-up, so that the cache misses of these lines overlap with the
        // first look-up.
        let (_, hot) = self.directory(request.to_dir)?;
        Collection::new(&self.volume, hot.root).prefetch(request.to_name);
        // True if the directory of the new name must grow.
        let mut grows = false;
        loop {
            let from = self.peek(request.from_dir, request.from_name)?;
            let to = self.peek(request.to_dir, request.to_name)?;
            let (moved, target) = (from.id().ok_or(Error::NotFound)?, to.id());
            // Only the hot line says which cold copy is current. This code prefetches copy 1 before it reads
            // the hot line. A right guess saves a cache miss.
            self.medium().prefetch(Header::of(moved).cold_line(1));
            let moves_directory = moved.is_directory() || target.is_some_and(ObjectId::is_directory);
            // While a rename holds this lock, no other rename changes the parent of a directory, so the check
            // for a cycle stays true. The rename takes this lock before the locks of objects. Therefore two
            // renames cannot deadlock.
            let _moves = (moves_directory && request.from_dir != request.to_dir).then(|| lock(&self.moves));
            let to_lock = if grows { EntryLock::Directory(request.to_dir) } else { to.lock() };
            let held_lock = if broken(SafetyRule::MoveLocksBothDirectories) { from.lock() } else { to_lock };
            let entries = [from.lock(), held_lock];
            let objects = [moved, target.unwrap_or(moved)];
            let _held = match request.whiteout {
                None => self.locks.hold_all(&entries, &objects),
                Some(new) => self.hold_with_whiteout(&entries, objects, new.id),
            };
            let Some(mut ready) = self.confirm_both(&request, &from, (&to, to_lock))? else { continue };
            self.check_move(&request, moved, target)?;
            if target == Some(moved) {
                return Ok(Applied::default());
            }
            self.check_trees(&request, &ready)?;
            let inserted = if moves_directory {
                self.volume.board().changing_directories(|| self.commit_move(&request, &mut ready))?
            } else {
                self.commit_move(&request, &mut ready)?
            };
            if inserted == Inserted::NeedsDirectory {
                grows = true;
                continue;
            }
            return Ok(Applied { created: request.whiteout.is_some(), ..Applied::default() });
        }
    }

    /// Checks that a rename has a whiteout if its mode leaves one, and has none otherwise.
    #[cold]
    fn check_whiteout(&self, request: &MoveRequest<'_>) -> Result<()> {
        match request.whiteout {
            Some(Whiteout { id, .. }) if id.kind() == Kind::CharDevice && request.mode.leaves_whiteout() => {
                self.header(id).map(drop)
            }
            _ => Err(Error::Invalid("the mode of a rename needs a whiteout device, or allows no whiteout")),
        }
    }

    /// Writes the whiteout of a rename, without its entry. The caller holds the lock of `dir`.
    #[cold]
    fn add_whiteout(
        &self,
        transaction: &mut Transaction<'_>,
        dir: &LockedParent,
        Whiteout { id, owner }: Whiteout,
        time: Time,
    ) -> Result<()> {
        let new = Creation { id, owner, generation: None, time };
        self.add_object(transaction, dir.id, new, Content::Device(0), false)?;
        self.inherit(transaction, dir, id, owner)
    }

    /// Makes the old entry of a moved object lead to the whiteout.
    #[cold]
    fn replace_by_whiteout(
        &self,
        transaction: &mut Transaction<'_>,
        old: &FoundEntry,
        whiteout: Whiteout,
        time: Time,
        dir: &LockedParent,
    ) -> Result<()> {
        if broken(SafetyRule::RenameLeavesItsWhiteout) {
            return collection::remove(transaction, old, time, dir.times_version).map(drop);
        }
        collection::replace(transaction, old, whiteout.id, time, dir.times_version)
    }

    /// Locks the entries and objects of a rename, and its whiteout. The next Op on the whiteout then waits
    /// until its creation has settled.
    #[cold]
    fn hold_with_whiteout(
        &self,
        entries: &[EntryLock],
        [moved, target]: [ObjectId; 2],
        new: ObjectId,
    ) -> HeldLocks<'_> {
        self.locks.hold_all(entries, &[moved, target, new])
    }

    /// Returns both entries as they are under the locks. Returns `None` if one of them changed since its
    /// look-up.
    fn confirm_both(
        &self,
        request: &MoveRequest<'_>,
        moved: &PeekedEntry,
        (target, to_lock): (&PeekedEntry, EntryLock),
    ) -> Result<Option<LockedMove>> {
        let from = self.parent(request.from_dir, moved.lock())?;
        let to = match request.to_dir == from.id {
            true => LockedParent { lock: to_lock, ..from },
            false => self.parent(request.to_dir, to_lock)?,
        };
        let Some(Some(moved)) = self.confirm(&from, request.from_name, moved)? else { return Ok(None) };
        let Some(target) = self.confirm(&to, request.to_name, target)? else { return Ok(None) };
        Ok(Some(LockedMove { from, to, moved, target }))
    }

    /// Checks a rename, in the same order as Linux.
    fn check_move(&self, request: &MoveRequest<'_>, moved: ObjectId, target: Option<ObjectId>) -> Result<()> {
        let exchange = request.mode == RenameMode::Exchange;
        match target {
            Some(_) if request.mode.needs_free_name() => return Err(Error::Exists),
            None if exchange => return Err(Error::NotFound),
            _ => {}
        }
        self.refuse_cycle(moved, request.to_dir)?;
        let Some(target) = target.filter(|&target| target != moved) else { return Ok(()) };
        if exchange {
            return self.refuse_cycle(target, request.from_dir);
        }
        match (moved.is_directory(), target.is_directory()) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) => self.require_empty(target),
            (false, false) => Ok(()),
        }
    }

    /// Refuses to move an object into a directory of another tree (a directory with another project id).
    #[inline]
    fn check_trees(&self, request: &MoveRequest<'_>, ready: &LockedMove) -> Result<()> {
        self.check_tree(&ready.to, ready.moved.id)?;
        match &ready.target {
            Some(target) if request.mode == RenameMode::Exchange => self.check_tree(&ready.from, target.id),
            _ => Ok(()),
        }
    }

    /// Refuses to move a directory into itself or below itself. The caller holds the lock `moves` if the two
    /// directories of the rename differ.
    fn refuse_cycle(&self, moved: ObjectId, into: ObjectId) -> Result<()> {
        if !moved.is_directory() {
            return Ok(());
        }
        let mut at = into;
        // Corrupt parents may form a cycle. No path is longer than the number of objects in the volume.
        // Therefore this number, with a margin, bounds the walk.
        for _ in 0..self.volume.space().usage().objects.saturating_add(2) {
            if at == moved {
                return Err(Error::Invalid("a directory cannot be moved into itself"));
            }
            if at == self.root {
                return Ok(());
            }
            let (_, cold) = self.header(at)?.hot_and_cold(self.medium())?;
            at = ObjectId::from_raw(cold.parent_or_device)
                .filter(|parent| parent.is_directory())
                .ok_or_else(|| Error::corrupt(Addr::from_raw(at.place()), "directory without a parent"))?;
        }
        Err(Error::corrupt(Addr::from_raw(into.place()), "directory that is its own ancestor"))
    }

    /// Makes and commits a move, unless the directory of the new name must grow first.
    fn commit_move(&self, request: &MoveRequest<'_>, ready: &mut LockedMove) -> Result<Inserted> {
        let LockedMove { from, to, moved, target } = ready;
        let MoveRequest { from_name, to_name, time, sparse, .. } = *request;
        let mut unnamed: SmallVec<[ObjectId; 1]> = SmallVec::new();
        let mut inserted = Inserted::Yes { moved: false };
        let mut transaction = Transaction::begin(&self.volume);
        if let Some(new) = request.whiteout {
            self.add_whiteout(&mut transaction, from, new, time)?;
        }
        match target {
            None => {
                let mut old = *moved;
                inserted = self.insert_entry(&mut transaction, to, to_name, moved.id, time)?;
                if inserted == Inserted::NeedsDirectory {
                    return Ok(inserted);
                }
                if inserted == (Inserted::Yes { moved: true }) {
                    // Making room may have moved the old entry too. Look it up again.
                    let from = self.parent(from.id, from.lock)?;
                    old = self.find(&from.hot, from_name)?.ok_or(Error::NotFound)?;
                }
                match request.whiteout {
                    None => sparse.set(collection::remove(&mut transaction, &old, time, from.times_version)?),
                    Some(new) => self.replace_by_whiteout(&mut transaction, &old, new, time, from)?,
                }
            }
            Some(target) if request.mode == RenameMode::Exchange => {
                collection::replace(&mut transaction, target, moved.id, time, to.times_version)?;
                collection::replace(&mut transaction, moved, target.id, time, from.times_version)?;
                self.changed_place(&mut transaction, target.id, request.from_dir, time)?;
            }
            Some(target) => {
                collection::replace(&mut transaction, target, moved.id, time, to.times_version)?;
                match request.whiteout {
                    None => {
                        sparse.set(collection::remove(&mut transaction, moved, time, from.times_version)?);
                    }
                    Some(new) => self.replace_by_whiteout(&mut transaction, moved, new, time, from)?,
                }
                if self.drop_name(&mut transaction, target.id, time)? {
                    unnamed.push(target.id);
                }
            }
        }
        self.changed_place(&mut transaction, moved.id, request.to_dir, time)?;
        // Making room may have replaced the directory's table. If both names are in one directory, `to` has
        // the newer state.
        let (to, lock) = (&*to, from.lock);
        let from = if from.id == to.id { &LockedParent { lock, ..*to } } else { &*from };
        let left_behind = target.filter(|_| request.mode == RenameMode::Exchange).map(|target| target.id);
        let left_behind = left_behind.or(request.whiteout.map(|new| new.id));
        let changes = [
            EntryChange { parent: from, name: from_name, before: Some(moved.id), after: left_behind },
            EntryChange {
                parent: to,
                name: to_name,
                before: target.map(|target| target.id),
                after: Some(moved.id),
            },
        ];
        let mut commit = || self.commit_entries(&mut transaction, time, &changes);
        let settled = match request.whiteout {
            Some(new) => self.charging_for_new(new.id, time, commit)?,
            None => commit()?,
        };
        unnamed.into_iter().for_each(|id| self.free_unnamed(id, time, &settled));
        Ok(inserted)
    }

    /// Sets the change time of a moved object, and the parent of a moved directory.
    fn changed_place(
        &self,
        transaction: &mut Transaction<'_>,
        id: ObjectId,
        dir: ObjectId,
        time: Time,
    ) -> Result<()> {
        let header = self.header(id)?;
        let (hot, mut cold) = header.hot_and_cold(self.medium())?;
        cold.set_changed(time);
        if id.is_directory() {
            cold.parent_or_device = dir.raw();
        }
        header.change_cold(transaction, &hot, &cold, HotChange::cold(&hot))
    }
}
