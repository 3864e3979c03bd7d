//! Removing names, and giving back what has none left.

use super::{Scm, check_entry};
use crate::object::collection::{self, Collection};
use crate::object::mfile;
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
            let _held = self.locks.hold(&[dir, id]);
            let parent = self.parent(dir)?;
            let Some(Some(found)) = self.confirm(&parent, name, &peeked)? else { continue };
            let mut transaction = Transaction::begin(&self.volume);
            collection::remove(&mut transaction, &found, time, parent.time_epoch)?;
            let last = self.drop_name(&mut transaction, id, time)?;
            transaction.commit()?;
            if last {
                self.give_back(id, time);
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
            self.changes.during(|| transaction.commit())?;
            self.give_back(id, time);
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
    pub(super) fn give_back(&self, id: ObjectId, time: Time) {
        let marked = self.header(id).and_then(|header| header.mark_unlinked(self.medium()));
        if marked.is_err() {
            return;
        }
        if self.opens.is_closed(id) {
            self.retire(id);
        } else {
            // Whoever has it open sees when it lost its name. Where there is no room to say so, it stays unsaid.
            let _ = self.set_attributes_held(id, &AttributeChange::default(), time);
            self.opens.add_orphan(id);
            // The last close may have come before the orphan was known.
            self.give_back_orphans();
        }
    }

    pub(super) fn give_back_orphans(&self) {
        for id in self.opens.take_closed() {
            self.retire(id);
        }
    }

    /// Retires the storage of an object that nothing names and nobody has open. Storage that a corrupt object does not
    /// lead to any more is lost until the next check.
    fn retire(&self, id: ObjectId) {
        let mut transaction = Transaction::begin(&self.volume);
        let Ok(header) = self.header(id) else { return };
        let Ok(hot) = header.hot(self.medium()) else { return };
        let storage = match id.kind() {
            Kind::Directory => Collection::new(&self.volume, hot.root).visit_storage(&mut |extent| {
                transaction.retire(extent);
                Ok(())
            }),
            _ => mfile::retire_all(&mut transaction, hot.root, hot.size),
        };
        if storage.is_ok() && header.forget(self.medium()).is_ok() {
            transaction.retire_header(header.addr());
            // Nothing is published here, so nothing can fail but the medium itself.
            let _ = transaction.commit();
        }
    }
}
