//! Removing names. The module `opens` frees an object that loses its last name.

use super::Scm;
use super::arguments::check_entry;
use super::counts::EntryChange;
use std::cell::Cell;

use crate::object::collection::{self, Collection};
use crate::transaction::Transaction;
use crate::{Applied, Error, Kind, ObjectId, Result, Time};

/// The kind of name that an Op removes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovedAs {
    /// A name of any object but a directory.
    Name,
    /// A key, which is a name of a file.
    Key,
}

impl Scm {
    /// Removes a name. Sets `sparse` if the page of its entry is left with few entries.
    pub(super) fn unlink(
        &self,
        dir: ObjectId,
        name: &[u8],
        time: Time,
        what: RemovedAs,
        sparse: &Cell<bool>,
    ) -> Result<Applied> {
        check_entry(dir, name)?;
        loop {
            let peeked = self.peek(dir, name)?;
            let id = peeked.id().ok_or(Error::NotFound)?;
            match (id.kind(), what) {
                (Kind::Directory, _) => return Err(Error::IsDirectory),
                (Kind::File, _) | (_, RemovedAs::Name) => {}
                (_, RemovedAs::Key) => {
                    return Err(Error::Invalid("the key names something other than a regular file"));
                }
            }
            self.opens.prefetch(id);
            let lock = peeked.lock();
            let mut held = self.locks.hold_entry(lock, id);
            let parent = self.parent(dir, lock)?;
            // If the entry changed between the look-up and the locks, look it up again.
            let Some(Some(found)) = self.confirm(&parent, name, &peeked)? else { continue };
            let mut transaction = Transaction::begin(&self.volume);
            sparse.set(collection::remove(&mut transaction, &found, time, parent.times_version)?);
            let last = self.drop_name(&mut transaction, id, time)?;
            let removed = EntryChange::removed(&parent, name, id);
            let settled = self.commit_entries(&mut transaction, time, &[removed])?;
            if last {
                held.release(&self.locks, lock, id);
                self.free_unnamed(id, time, &settled);
            }
            return Ok(Applied::default());
        }
    }

    /// Removes one name from the link count of an object. The caller holds the object's lock. If the name is
    /// the last one, leaves the count as it is and returns true. The name of a directory is always the last
    /// one. The caller then frees the object after its commit.
    pub(super) fn drop_name(
        &self,
        transaction: &mut Transaction<'_>,
        id: ObjectId,
        time: Time,
    ) -> Result<bool> {
        let header = self.header(id)?;
        if !id.is_directory() && header.hot_and_cold(self.medium())?.1.links > 1 {
            self.change_links(transaction, id, -1, time)?;
            return Ok(false);
        }
        header.reserve_unlinked_store(self.medium())?;
        Ok(true)
    }

    /// Removes a directory. Sets `sparse` as [`Scm::unlink`] does.
    pub(super) fn remove_directory(
        &self,
        dir: ObjectId,
        name: &[u8],
        time: Time,
        sparse: &Cell<bool>,
    ) -> Result<Applied> {
        check_entry(dir, name)?;
        loop {
            let peeked = self.peek(dir, name)?;
            let id = peeked.id().ok_or(Error::NotFound)?;
            if !id.is_directory() {
                return Err(Error::NotDirectory);
            }
            let lock = peeked.lock();
            let mut held = self.locks.hold_entry(lock, id);
            let parent = self.parent(dir, lock)?;
            let Some(Some(found)) = self.confirm(&parent, name, &peeked)? else { continue };
            self.require_empty(id)?;
            let mut transaction = Transaction::begin(&self.volume);
            sparse.set(collection::remove(&mut transaction, &found, time, parent.times_version)?);
            self.drop_name(&mut transaction, id, time)?;
            let removed = EntryChange::removed(&parent, name, id);
            let settled = self
                .volume
                .board()
                .changing_directories(|| self.commit_entries(&mut transaction, time, &[removed]))?;
            held.release(&self.locks, lock, id);
            self.free_unnamed(id, time, &settled);
            return Ok(Applied::default());
        }
    }

    /// Refuses a directory that has entries. The caller holds its lock.
    pub(super) fn require_empty(&self, id: ObjectId) -> Result<()> {
        let (_, hot) = self.directory(id)?;
        if Collection::new(&self.volume, hot.root).is_empty()? { Ok(()) } else { Err(Error::NotEmpty) }
    }
}
