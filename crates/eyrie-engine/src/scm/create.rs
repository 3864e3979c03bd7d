//! Creating objects, and giving names to existing objects.

use eyrie_medium::rules::{SafetyRule, broken};

use super::Scm;
use super::arguments::{check_entry, check_mode};
use super::counts::EntryChange;
use super::locks::{EntryLock, HeldLocks, LockedParent};
use crate::object::collection::{self, GrowthLock, RoomNeeds};
use crate::object::header::{Header, Hot, HotChange, NewObject};
use crate::object::mfile;
use crate::object::pointer::Pointer;
use crate::op::{DEVICE_MAX, is_target};
use crate::transaction::Transaction;
use crate::{Applied, Content, Error, Kind, ObjectId, Owner, Result, Time};

/// A new object, without its content.
#[derive(Clone, Copy)]
pub(super) struct Creation {
    /// The reserved id.
    pub(super) id: ObjectId,
    pub(super) owner: Owner,
    /// `None` for the next generation of the volume.
    pub(super) generation: Option<u64>,
    pub(super) time: Time,
}

/// The result of an insert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inserted {
    /// The transaction has the entry.
    Yes {
        /// True if other entries may have moved.
        moved: bool,
    },
    /// The directory must grow first, but the Op does not hold the locks of all its shards. The transaction
    /// is unchanged.
    NeedsDirectory,
}

/// The answer of [`Scm::lock_for_growth`].
#[cfg_attr(
    feature = "shuttle",
    expect(
        clippy::large_enum_variant,
        reason = "the mutexes of shuttle are larger than those of the product"
    )
)]
enum Growth<'a> {
    /// The directory can grow while the Op holds this further lock, if there is one, and its other locks.
    Possible(Option<HeldLocks<'a>>),
    /// The first page of the entry's bucket has room, and the directory need not grow for this insert.
    Unnecessary,
    /// The Op must hold the locks of all shards first.
    NeedsDirectory,
}

impl Scm {
    /// Makes room for an entry in a directory. The caller holds the locks that growth needs. Returns true if
    /// entries may have moved. The split of a bucket commits by itself, but no call can observe it.
    pub(super) fn make_room(&self, parent: &mut LockedParent, name: &[u8]) -> Result<bool> {
        let header = self.header(parent.id)?;
        let hot = parent.hot;
        let grown = collection::make_room(&self.volume, hot.root, name, |transaction, root| {
            header.change(transaction, &hot, &HotChange::root(&hot, root));
            Ok(())
        })?;
        if grown.is_some() {
            parent.hot = header.hot(self.medium())?;
        }
        Ok(grown.is_some())
    }

    /// Makes room in a directory for `entries` new entries, which one transaction will add. The caller holds
    /// the locks of all shards. The call commits by itself, as [`Scm::make_room`] does.
    pub(super) fn make_room_for_many(&self, parent: &mut LockedParent, entries: u64) -> Result<()> {
        let header = self.header(parent.id)?;
        loop {
            let hot = parent.hot;
            let publish = |transaction: &mut Transaction<'_>, root| {
                header.change(transaction, &hot, &HotChange::root(&hot, root));
                Ok(())
            };
            let grown = collection::make_room_for_many(&self.volume, hot.root, entries, publish)?;
            // The root may be new even if the volume had no space for a further bucket.
            parent.hot = header.hot(self.medium())?;
            if !grown {
                return Ok(());
            }
        }
    }

    /// Adds a new entry to a transaction, which has no words yet. The caller has checked that no entry has
    /// this name, and holds the lock of `parent`.
    pub(super) fn insert_entry<'a>(
        &'a self,
        transaction: &mut Transaction<'a>,
        parent: &mut LockedParent,
        name: &[u8],
        id: ObjectId,
        time: Time,
    ) -> Result<Inserted> {
        let LockedParent { hot, times_version, .. } = *parent;
        // In the common case the page has room, and the insert needs no other transaction.
        if collection::insert_without_growth(transaction, hot.root, name, id, time, times_version)? {
            return Ok(Inserted::Yes { moved: false });
        }
        let _split = match self.lock_for_growth(parent, name)? {
            Growth::Possible(lock) => lock,
            Growth::Unnecessary => {
                collection::insert(transaction, hot.root, name, id, time, times_version)?;
                return Ok(Inserted::Yes { moved: false });
            }
            Growth::NeedsDirectory => return Ok(Inserted::NeedsDirectory),
        };
        // Growth commits transactions of its own. This transaction has no words yet, so it does not depend on
        // the pages that growth changes. A thread must not publish while it has unordered stores. Therefore
        // the stores of this transaction are ordered before growth.
        debug_assert!(!transaction.has_words(), "other transactions commit now");
        transaction.order();
        let moved = self.make_room(parent, name)?;
        collection::insert(transaction, parent.hot.root, name, id, time, times_version)?;
        Ok(Inserted::Yes { moved })
    }

    /// Takes the lock that growth of a directory needs in addition to the lock of the new entry. If another
    /// Op holds this further lock, and the first page of the entry's bucket has room, the insert goes on
    /// without growth. A later insert then makes the directory grow.
    fn lock_for_growth(&self, parent: &LockedParent, name: &[u8]) -> Result<Growth<'_>> {
        let needs = || collection::needs_room(&self.volume, parent.hot.root, name);
        let Some(RoomNeeds { lock, is_optional }) = needs()? else { return Ok(Growth::Unnecessary) };
        let shard = match (parent.lock, lock) {
            (EntryLock::Directory(_), _) => return Ok(Growth::Possible(None)),
            (EntryLock::Shard(_), GrowthLock::Directory) => return Ok(Growth::NeedsDirectory),
            (EntryLock::Shard(_), GrowthLock::Shard(_)) if broken(SafetyRule::SplitLocksItsShard) => {
                return Ok(Growth::Possible(None));
            }
            (EntryLock::Shard(held), GrowthLock::Shard(shard)) => {
                self.locks.try_hold_shard(parent.id, shard, held)
            }
        };
        // Another Op may have split a bucket before this Op got the lock. The next split may then need
        // another lock.
        if shard.is_some() && needs()?.is_some_and(|now| now.lock == lock) {
            return Ok(Growth::Possible(shard));
        }
        Ok(if is_optional { Growth::Unnecessary } else { Growth::NeedsDirectory })
    }

    /// Writes a new object, without its entry. Returns the root of its bytes or entries. The caller has
    /// reserved the object, so no other Op can reach it, and the caller needs no lock.
    pub(super) fn add_object(
        &self,
        transaction: &mut Transaction<'_>,
        parent: ObjectId,
        new: Creation,
        content: Content<'_>,
        sealed: bool,
    ) -> Result<Pointer> {
        let Creation { id, owner, generation, time } = new;
        let (root, size, parent_or_device) = match (id.kind(), content) {
            (Kind::Directory, Content::Empty) => (collection::create(transaction)?, 0, parent.raw()),
            (Kind::File, Content::Bytes(bytes)) => (mfile::fresh(transaction, bytes)?, bytes.len() as u64, 0),
            (Kind::Symlink, Content::Bytes(target)) if is_target(target) => {
                (mfile::fresh(transaction, target)?, target.len() as u64, 0)
            }
            (Kind::CharDevice | Kind::BlockDevice, Content::Device(number)) if number <= DEVICE_MAX => {
                (Pointer::NULL, 0, number)
            }
            (Kind::File | Kind::Fifo | Kind::Socket, Content::Empty) => (Pointer::NULL, 0, 0),
            _ => return Err(Error::Invalid("an object of this kind cannot start with this content")),
        };
        // The object inherits its ACLs later, under the lock of its entry.
        let owner = Owner { mode: owner.mode & !Owner::INHERITS, ..owner };
        check_mode(owner.mode)?;
        let generation = generation.map_or_else(|| self.volume.next_generation(), Ok)?;
        let new =
            NewObject { kind: id.kind(), sealed, generation, owner, root, size, parent_or_device, time };
        Header::of(id).write_new(transaction, &new)?;
        Ok(root)
    }

    pub(super) fn create_object(
        &self,
        dir: ObjectId,
        name: &[u8],
        new: Creation,
        content: Content<'_>,
    ) -> Result<Applied> {
        let Creation { id, owner, time, .. } = new;
        check_entry(dir, name)?;
        self.header(id)?;
        let mut peeked = self.peek(dir, name)?;
        if peeked.id().is_some() {
            return Err(Error::Exists);
        }
        // The object is written before the Op takes its locks. So other Ops on the directory wait only while
        // the entry of the object is added. If that write fails and the directory has been removed, the error
        // of the removed directory comes first, as in the model.
        let mut transaction = Transaction::begin(&self.volume);
        self.add_object(&mut transaction, dir, new, content, false)
            .or_else(|error| self.parent(dir, peeked.lock()).and(Err(error)))?;
        let mut lock = peeked.lock();
        loop {
            // The new object is locked too. Therefore the next Op on the object waits until its creation has
            // settled.
            let _held = self.locks.hold_entry(lock, id);
            let mut parent = self.parent(dir, lock)?;
            match self.confirm(&parent, name, &peeked)? {
                Some(None) => {}
                Some(Some(_)) => return Err(Error::Exists),
                None => {
                    peeked = self.peek(dir, name)?;
                    if peeked.id().is_some() {
                        return Err(Error::Exists);
                    }
                    lock = peeked.lock();
                    continue;
                }
            }
            let inserted = self.insert_entry(&mut transaction, &mut parent, name, id, time)?;
            if inserted == Inserted::NeedsDirectory {
                lock = EntryLock::Directory(dir);
                continue;
            }
            self.inherit(&mut transaction, &parent, id, owner)?;
            let added = [EntryChange::added(&parent, name, id)];
            self.charging_for_new(id, time, || self.commit_entries(&mut transaction, time, &added))?;
            return Ok(Applied { created: true, ..Applied::default() });
        }
    }

    pub(super) fn link(&self, dir: ObjectId, name: &[u8], id: ObjectId, time: Time) -> Result<Applied> {
        check_entry(dir, name)?;
        // Hard links are rare, so this Op locks the whole directory and needs no second attempt.
        let lock = EntryLock::Directory(dir);
        let _held = self.locks.hold_entry(lock, id);
        let mut parent = self.parent(dir, lock)?;
        let taken = self.find(&parent.hot, name)?.is_some();
        // If the object is stale and the name exists, the error is `Stale`, as in the model.
        let selector = self.header(id)?.selector(self.medium())?;
        if taken {
            return Err(Error::Exists);
        }
        if id.is_directory() {
            return Err(Error::NotPermitted);
        }
        self.check_tree(&parent, id)?;
        if selector.unlinked() {
            return self.link_unnamed(parent, name, id, time);
        }
        let mut transaction = Transaction::begin(&self.volume);
        self.insert_entry(&mut transaction, &mut parent, name, id, time)?;
        self.change_links(&mut transaction, id, 1, time)?;
        self.commit_entries(&mut transaction, time, &[EntryChange::added(&parent, name, id)])?;
        Ok(Applied::default())
    }

    /// Creates a file without a name: an orphan from the start. Recovery frees it after a crash, because no
    /// entry leads to it.
    #[cold]
    pub(super) fn create_unnamed(
        &self,
        dir: ObjectId,
        id: ObjectId,
        owner: Owner,
        linkable: bool,
        time: Time,
    ) -> Result<Applied> {
        self.directory(dir)?;
        if id.kind() != Kind::File {
            return Err(Error::Invalid("only a file can be made without a name"));
        }
        let header = self.header(id)?;
        let mut transaction = Transaction::begin(&self.volume);
        let new = Creation { id, owner, generation: None, time };
        self.add_object(&mut transaction, dir, new, Content::Empty, false)?;
        let lock = EntryLock::Directory(dir);
        let _held = self.locks.hold_entry(lock, id);
        // As on tmpfs, the directory may be a removed one.
        let parent = self.parent_even_if_removed(dir, lock)?;
        self.inherit(&mut transaction, &parent, id, owner)?;
        header.remove_first_name(&mut transaction, linkable)?;
        self.charging_for_new(id, time, || transaction.commit())?;
        self.opens.add_orphan(id, self.volume.board());
        Ok(Applied { created: true, ..Applied::default() })
    }

    /// Gives an object that is marked unlinked its first name, if it may get one. The caller holds the locks
    /// of the directory and of the object.
    #[cold]
    fn link_unnamed(
        &self,
        mut parent: LockedParent,
        name: &[u8],
        id: ObjectId,
        time: Time,
    ) -> Result<Applied> {
        let header = self.header(id)?;
        let (hot, mut cold) = header.hot_and_cold(self.medium())?;
        // The count is 0 only if the object is linkable (see `Header::remove_first_name`).
        if cold.links != 0 {
            return Err(Error::NotFound);
        }
        let mut transaction = Transaction::begin(&self.volume);
        self.insert_entry(&mut transaction, &mut parent, name, id, time)?;
        cold.links = 1;
        cold.set_changed(time);
        // The same commit clears the unlinked bit, because no entry may lead to an object with this bit.
        let marked_late = broken(SafetyRule::FirstNameEndsTheMark);
        let named = if marked_late { hot } else { Hot { selector: hot.selector.as_named(), ..hot } };
        header.change_cold(&mut transaction, &named, &cold, HotChange::cold(&hot))?;
        self.commit_entries(&mut transaction, time, &[EntryChange::added(&parent, name, id)])?;
        if marked_late {
            header.end_mark_late(self.medium())?;
        }
        self.opens.remove_orphan(id, self.volume.board());
        Ok(Applied::default())
    }

    /// Changes the link count of an object. The caller holds the object's lock.
    pub(super) fn change_links(
        &self,
        transaction: &mut Transaction<'_>,
        id: ObjectId,
        by: i32,
        time: Time,
    ) -> Result<()> {
        let header = self.header(id)?;
        let (hot, mut cold) = header.hot_and_cold(self.medium())?;
        cold.links = cold.links.checked_add_signed(by).ok_or(Error::TooManyLinks)?;
        cold.set_changed(time);
        header.change_cold(transaction, &hot, &cold, HotChange::cold(&hot))
    }
}
