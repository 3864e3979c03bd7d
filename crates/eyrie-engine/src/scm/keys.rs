//! Keys and values: puts, and batches of puts, erases and conditions.

use std::cell::Cell;

use eyrie_medium::Settled;
use smallvec::SmallVec;

use super::Scm;
use super::arguments::{check_entry, require_file};
use super::counts::EntryChange;
use super::create::{Creation, Inserted};
use super::locks::{EntryLock, LockedParent};
use super::quotas::QuotaChange;
use crate::extent::Class;
use crate::notices::{Notice, may_have_changed};
use crate::object::collection::{self, Collection};
use crate::object::header::{Header, HotChange};
use crate::object::mfile::{self, FileTree};
use crate::object::pointer::Pointer;
use crate::transaction::Transaction;
use crate::{Applied, Content, Engine, Error, Kind, ObjectId, Op, Result, SetIds, Time};

/// The value that a put sets, and the new file for it. The file is not made if the key exists.
#[derive(Clone, Copy)]
struct NewValue<'a> {
    new: Creation,
    data: &'a [u8],
}

impl NewValue<'_> {
    fn check(&self) -> Result<()> {
        if self.new.id.kind() != Kind::File {
            return Err(Error::Invalid("the value of a key must be a file"));
        }
        if self.data.len() as u64 > Class::MAX_BYTES {
            return Err(Error::TooLarge);
        }
        Ok(())
    }
}

/// The reason why an Op cannot be a part of a batch.
const PARTS: &str = "a batch can have only puts, erases and conditions";

/// Number of keys by which the prefetch of bucket pages is ahead of the look-ups of a batch, so that the
/// cache misses of several keys overlap.
const KEYS_AHEAD: usize = 8;

/// The object that each key of a batch names, if the key exists.
type BatchTargets = SmallVec<[Option<ObjectId>; 16]>;

/// The objects that the keys of a batch name, and the objects that the batch locks.
struct BatchPlan {
    targets: BatchTargets,
    locks: SmallVec<[ObjectId; 16]>,
    /// True if two changed keys name one object.
    has_twins: bool,
}

impl BatchPlan {
    fn new(dir: ObjectId, ops: &[Op<'_>], targets: BatchTargets) -> BatchPlan {
        let parts = || ops.iter().zip(&targets);
        let changed = parts().filter(|(op, _)| !matches!(op, Op::Expect { .. }));
        let mut locks: SmallVec<[ObjectId; 16]> = changed.filter_map(|(_, existing)| *existing).collect();
        locks.sort_unstable();
        let has_twins = locks.windows(2).any(|pair| pair[0] == pair[1]);
        locks.extend(parts().filter_map(|(op, existing)| match (*op, *existing) {
            (Op::Put { id, .. }, None) => Some(id),
            // The object of a condition is locked too. Otherwise another Op could change its version before
            // the commit of the batch.
            (Op::Expect { .. }, existing) => existing,
            _ => None,
        }));
        locks.push(dir);
        BatchPlan { targets, locks, has_twins }
    }

    /// Refuses a batch that cannot be applied. The caller holds the locks of the batch. Without these locks,
    /// a rename between the look-ups of two keys could make one object appear under both of them, and this
    /// function would refuse a correct batch.
    fn check(&self, engine: &Scm, ops: &[Op<'_>], time: Time) -> Result<()> {
        if self.has_twins {
            return Err(Error::Invalid("two keys of the batch name one object"));
        }
        for (op, &existing) in ops.iter().zip(&self.targets) {
            if let Op::Expect { condition, .. } = *op {
                engine.check_condition(condition, existing)?;
            }
        }
        for (op, &existing) in ops.iter().zip(&self.targets) {
            if let Op::Put { id, owner, data, .. } = *op {
                NewValue { new: Creation { id, owner, generation: None, time }, data }.check()?;
            }
            existing.map_or(Ok(()), require_file)?;
        }
        Ok(())
    }
}

impl Scm {
    pub(super) fn put(&self, dir: ObjectId, name: &[u8], new: Creation, data: &[u8]) -> Result<Applied> {
        let (value, Creation { id, owner, time, .. }) = (NewValue { new, data }, new);
        check_entry(dir, name)?;
        'look_up: loop {
            let peeked = self.peek(dir, name)?;
            // This check follows the look-up, so that errors come in the order of the model.
            value.check()?;
            let existing = peeked.id();
            // The bytes are stored before the Op takes its locks. So other Ops on the directory do not wait
            // while the bytes are copied. If this store fails and the directory has been removed, the error
            // of the removed directory comes first, as in the model.
            let mut transaction = Transaction::begin(&self.volume);
            let root = self.prepare_value(&mut transaction, dir, existing, value);
            let mut lock = peeked.lock();
            let root = root.or_else(|error| self.parent(dir, lock).and(Err(error)))?;
            loop {
                let _held = self.locks.hold_entry(lock, existing.unwrap_or(id));
                let mut parent = self.parent(dir, lock)?;
                if self.confirm(&parent, name, &peeked)?.is_none() {
                    continue 'look_up;
                }
                if let Some(existing) = existing {
                    let header = self.header(existing)?;
                    self.replace_value(&mut transaction, header, root, value)?;
                    let committed = self.commit_charged(&mut transaction, header, &[], time);
                    self.notify_of_values(&committed, [existing]);
                    return committed.map(|_| Applied::default());
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
    }

    /// Stores the bytes of one put, and the object of a new key. Returns the root of the bytes. The caller
    /// needs no lock, because no other Op can reach this storage.
    fn prepare_value(
        &self,
        transaction: &mut Transaction<'_>,
        dir: ObjectId,
        existing: Option<ObjectId>,
        value: NewValue<'_>,
    ) -> Result<Pointer> {
        let NewValue { new, data } = value;
        match existing {
            Some(existing) => {
                require_file(existing)?;
                mfile::fresh(transaction, data)
            }
            None => self.add_object(transaction, dir, new, Content::Bytes(data), true),
        }
    }

    /// Makes the bytes at `root` the value of an existing object. The caller holds all locks.
    fn replace_value(
        &self,
        transaction: &mut Transaction<'_>,
        header: Header,
        root: Pointer,
        value: NewValue<'_>,
    ) -> Result<()> {
        let NewValue { new: Creation { time, .. }, data } = value;
        let hot = header.hot(self.medium())?;
        // The old value is only retired. A reader with a pin can still read the old value after the commit.
        mfile::retire_all(transaction, FileTree::of(header, &hot))?;
        let change = HotChange::data(root, data.len() as u64, time);
        self.change_data(transaction, header, &hot, change, SetIds::Keep, false)
    }

    /// Plans a batch, takes its locks, and applies it. If a key changed before the locks were taken, plans
    /// again. Sets `sparse` if an erase leaves few entries in a page.
    pub(super) fn batch(
        &self,
        dir: ObjectId,
        ops: &[Op<'_>],
        time: Time,
        sparse: &Cell<bool>,
    ) -> Result<Applied> {
        self.directory(dir)?;
        check_batch(dir, ops)?;
        if ops.is_empty() {
            return Ok(Applied::default());
        }
        loop {
            let ended = self.locks.ended(dir);
            let plan = BatchPlan::new(dir, ops, self.batch_targets(dir, ops)?);
            let _held = self.locks.hold(&plan.locks);
            // If no Op on the directory has ended since the look-ups, the keys are unchanged, as in
            // `confirm`. Otherwise look the keys up again. If they name other objects now, plan again.
            if self.locks.ended(dir) != ended && self.batch_targets(dir, ops)? != plan.targets {
                continue;
            }
            let parent = self.parent(dir, EntryLock::Directory(dir))?;
            plan.check(self, ops, time)?;
            return self.apply_batch(parent, ops, &plan.targets, time, sparse);
        }
    }

    /// Applies a batch whose keys name `targets`, and gives back the ids that it does not use. The caller
    /// holds all locks.
    fn apply_batch(
        &self,
        mut parent: LockedParent,
        ops: &[Op<'_>],
        targets: &[Option<ObjectId>],
        time: Time,
        sparse: &Cell<bool>,
    ) -> Result<Applied> {
        // Growth commits transactions of its own. Therefore growth runs before the transaction of the batch
        // begins.
        let is_new = |(op, existing): &(&Op<'_>, &Option<ObjectId>)| {
            existing.is_none() && matches!(op, Op::Put { .. })
        };
        self.make_room_for_many(&mut parent, ops.iter().zip(targets).filter(is_new).count() as u64)?;
        for (op, existing) in ops.iter().zip(targets) {
            if let (Op::Put { name, .. }, None) = (op, existing) {
                self.make_room(&mut parent, name)?;
            }
        }
        let mut transaction = Transaction::begin(&self.volume);
        let mut unnamed: SmallVec<[ObjectId; 16]> = SmallVec::new();
        let mut changes: SmallVec<[EntryChange<'_>; 16]> = SmallVec::new();
        let mut quota = self.has_quotas().then(QuotaChange::default);
        for (op, &existing) in ops.iter().zip(targets) {
            match (*op, existing) {
                (Op::Put { name, id, owner, data, .. }, existing) => {
                    let (root, version) = (parent.hot.root, parent.times_version);
                    if existing.is_none() {
                        collection::insert(&mut transaction, root, name, id, time, version)?;
                        changes.push(EntryChange::added(&parent, name, id));
                    }
                    let value = NewValue { new: Creation { id, owner, generation: None, time }, data };
                    let before = transaction.storage_mark();
                    let root = self.prepare_value(&mut transaction, parent.id, existing, value)?;
                    if let Some(existing) = existing {
                        self.replace_value(&mut transaction, self.header(existing)?, root, value)?;
                    } else {
                        self.inherit(&mut transaction, &parent, id, owner)?;
                    }
                    if let Some(quota) = &mut quota {
                        match existing {
                            Some(existing) => {
                                let bytes = transaction.storage_change_since(before);
                                self.add_storage_change(quota, bytes, self.header(existing)?)?;
                            }
                            None => self.add_new_object(quota, id)?,
                        }
                    }
                }
                (Op::Erase { name, .. }, Some(id)) => {
                    let found = self.find(&parent.hot, name)?.ok_or(Error::NotFound)?;
                    let is_sparse = collection::remove(&mut transaction, &found, time, parent.times_version)?;
                    sparse.set(sparse.get() || is_sparse);
                    changes.push(EntryChange::removed(&parent, name, id));
                    if self.drop_name(&mut transaction, id, time)? {
                        unnamed.push(id);
                    }
                }
                _ => {}
            }
        }
        let mut commit = || self.commit_entries(&mut transaction, time, &changes);
        let committed = match quota {
            Some(quota) => self.charging(quota, time, commit),
            None => commit(),
        };
        let replaced = ops.iter().zip(targets).filter_map(|(op, &existing)| match *op {
            Op::Put { id, .. } => Some((id, existing?)),
            _ => None,
        });
        self.notify_of_values(&committed, replaced.clone().map(|(_, existing)| existing));
        let settled = committed?;
        unnamed.into_iter().for_each(|id| self.free_unnamed(id, time, &settled));
        replaced.for_each(|(id, _)| self.unreserve(id));
        Ok(Applied::default())
    }

    /// Tells the watchers that a commit with this result may have replaced these values.
    fn notify_of_values(&self, committed: &Result<Settled>, values: impl IntoIterator<Item = ObjectId>) {
        if self.notices.is_watched() && may_have_changed(committed) {
            values.into_iter().for_each(|id| self.notices.add(&Notice::Object(id)));
        }
    }

    /// Returns the objects that the keys of a batch name now.
    fn batch_targets(&self, dir: ObjectId, ops: &[Op<'_>]) -> Result<BatchTargets> {
        let (_, hot) = self.directory(dir)?;
        let collection = Collection::new(&self.volume, hot.root);
        let prefetch = |op: &Op<'_>| {
            if let Op::Put { name, .. } | Op::Erase { name, .. } | Op::Expect { name, .. } = *op {
                collection.prefetch(name);
            }
        };
        ops.iter().take(KEYS_AHEAD).for_each(prefetch);
        let target = |(index, op): (usize, &Op<'_>)| match *op {
            Op::Put { name, .. } | Op::Erase { name, .. } | Op::Expect { name, .. } => {
                if let Some(later) = ops.get(index + KEYS_AHEAD) {
                    prefetch(later);
                }
                self.volume.read_lookup(dir, name)
            }
            _ => Err(Error::Invalid(PARTS)),
        };
        ops.iter().enumerate().map(target).collect()
    }
}

/// Refuses Ops that a batch cannot have, Ops on other directories, and a key with two changes or with two
/// conditions.
fn check_batch(dir: ObjectId, ops: &[Op<'_>]) -> Result<()> {
    let mut names: SmallVec<[(&[u8], bool); 8]> = SmallVec::with_capacity(ops.len());
    for op in ops {
        let (of, name) = match *op {
            Op::Put { dir, name, .. } | Op::Erase { dir, name, .. } | Op::Expect { dir, name, .. } => {
                (dir, name)
            }
            _ => return Err(Error::Invalid(PARTS)),
        };
        if of != dir {
            return Err(Error::Invalid("all parts of a batch must be in its directory"));
        }
        names.push((name, matches!(op, Op::Expect { .. })));
    }
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::Invalid("a batch has two changes or two conditions of one key"));
    }
    Ok(())
}
