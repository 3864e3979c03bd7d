//! Removing names, and giving back what has none left.

use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::{Addr, Settled};
use smallvec::SmallVec;

use super::counts::EntryChange;
use super::{Scm, check_entry};
use crate::object::collection::{self, Collection};
use crate::object::pointer::Extent;
use crate::object::{mfile, xattr};
use crate::transaction::Transaction;
use crate::{Applied, AttributeChange, Error, Kind, ObjectId, Result, Time};

/// What an unlink removes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A name of whatever is no directory.
    Name,
    /// A key: a name of a file.
    Key,
}

impl Scm {
    pub(super) fn unlink(&self, dir: ObjectId, name: &[u8], time: Time, what: What) -> Result<Applied> {
        check_entry(dir, name)?;
        loop {
            let peeked = self.peek(dir, name)?;
            let id = peeked.id().ok_or(Error::NotFound)?;
            match (id.kind(), what) {
                (Kind::Directory, _) => return Err(Error::IsDirectory),
                (Kind::File, _) | (_, What::Name) => {}
                (_, What::Key) => return Err(Error::Invalid("the key names no file")),
            }
            self.opens.prefetch(id);
            let _held = self.locks.hold(&[dir, id]);
            let parent = self.parent(dir)?;
            let Some(Some(found)) = self.confirm(&parent, name, &peeked)? else { continue };
            let mut transaction = Transaction::begin(&self.volume);
            collection::remove(&mut transaction, &found, time, parent.time_epoch)?;
            let last = self.drop_name(&mut transaction, id, time)?;
            let removed = EntryChange::removed(&parent, name, id);
            let settled = self.commit_entries(&mut transaction, time, &[removed])?;
            if last {
                self.give_back(id, time, &settled);
            }
            return Ok(Applied::default());
        }
    }

    /// Takes one name from an object that is no directory and whose lock is held; whether that was the last.
    pub(super) fn drop_name(
        &self,
        transaction: &mut Transaction<'_>,
        id: ObjectId,
        time: Time,
    ) -> Result<bool> {
        let (_, cold) = self.header(id)?.hot_and_cold(self.medium())?;
        if cold.links > 1 {
            self.change_links(transaction, id, -1, time)?;
            return Ok(false);
        }
        Ok(true)
    }

    pub(super) fn remove_directory(&self, dir: ObjectId, name: &[u8], time: Time) -> Result<Applied> {
        check_entry(dir, name)?;
        loop {
            let peeked = self.peek(dir, name)?;
            let id = peeked.id().ok_or(Error::NotFound)?;
            if !id.is_directory() {
                return Err(Error::NotDirectory);
            }
            let _held = self.locks.hold(&[dir, id]);
            let parent = self.parent(dir)?;
            let Some(Some(found)) = self.confirm(&parent, name, &peeked)? else { continue };
            self.require_empty(id)?;
            let mut transaction = Transaction::begin(&self.volume);
            collection::remove(&mut transaction, &found, time, parent.time_epoch)?;
            let removed = EntryChange::removed(&parent, name, id);
            let settled = self.changes.during(|| self.commit_entries(&mut transaction, time, &[removed]))?;
            self.give_back(id, time, &settled);
            return Ok(Applied::default());
        }
    }

    /// Refuses a directory (whose lock is held) with entries.
    pub(super) fn require_empty(&self, id: ObjectId) -> Result<()> {
        let (_, hot) = self.directory(id)?;
        if Collection::new(&self.volume, hot.root).is_empty()? { Ok(()) } else { Err(Error::NotEmpty) }
    }

    /// Gives back an object that has just lost its last name, now or at its last close.
    ///
    /// The mark is volatile: after a crash nothing reaches the object, so nobody asks.
    pub(super) fn give_back(&self, id: ObjectId, time: Time, settled: &Settled) {
        let marked = self.header(id).and_then(|header| header.mark_unlinked(self.medium()));
        if marked.is_err() {
            return self.volume.space().lose();
        }
        if self.opens.is_closed(id) || broken(SafetyRule::OpenFileOutlivesItsNames) {
            self.retire(id, settled);
        } else {
            // Whoever has it open sees when it lost its name. Where there is no room to say so, it stays unsaid.
            let _ = self.set_attributes_held(id, &AttributeChange::default(), time);
            self.opens.add_orphan(id);
            // The last close may have come before the orphan was known.
            if self.opens.take_if_closed(id) {
                self.retire(id, settled);
            }
        }
    }

    /// Gives back the orphans that nobody has open any more. The caller holds no lock.
    pub(super) fn give_back_orphans(&self) {
        let closed = self.opens.take_closed();
        if closed.is_empty() {
            return;
        }
        // Their names were gone durably before they became orphans, so a commit of nothing settles enough. It fails
        // only with the medium.
        if let Ok(settled) = Transaction::begin(&self.volume).commit() {
            for id in closed {
                // Somebody may still be writing to it by a path that was walked before.
                let _held = self.locks.hold(&[id]);
                self.retire(id, &settled);
            }
        }
    }

    /// Retires the storage of an object that nothing names and nobody has open, and whose lock is held. Storage that a
    /// corrupt object does not lead to any more, or that cannot be read, is lost until the next recovery.
    fn retire(&self, id: ObjectId, settled: &Settled) {
        self.summaries.forget(id);
        match self.storage(id) {
            Ok(storage) => {
                let header = Addr::from_raw(id.place());
                self.volume.space().retire_all(&storage, &[header], settled);
            }
            Err(_) => self.volume.space().lose(),
        }
    }

    /// Ends the life of an object, and gives its storage.
    fn storage(&self, id: ObjectId) -> Result<SmallVec<[Extent; 16]>> {
        let header = self.header(id)?;
        let (hot, cold) = header.hot_and_cold(self.medium())?;
        let mut storage: SmallVec<[Extent; 16]> = SmallVec::new();
        let most = self.volume.space().most_extents();
        let mut add = |extent: Extent| {
            storage.push(extent);
            if storage.len() <= most {
                Ok(())
            } else {
                Err(Error::corrupt(extent.addr, "endless storage of an object"))
            }
        };
        match id.kind() {
            Kind::Directory => Collection::new(&self.volume, hot.root).visit_storage(&mut add),
            _ => mfile::visit_storage(self.medium(), hot.root, hot.size, &mut add),
        }?;
        storage.extend(xattr::extent(cold.xattrs())?);
        header.forget(self.medium())?;
        Ok(storage)
    }
}
