//! Keys and values: put, and batches of puts and erases.

use smallvec::SmallVec;

use super::counts::EntryChange;
use super::write::require_file;
use super::{Scm, check_entry};
use crate::object::header::HotChange;
use crate::object::pointer::Class;
use crate::object::{collection, mfile};
use crate::transaction::Transaction;
use crate::{Applied, Content, Error, Kind, ObjectId, Op, Owner, Result, Time};

/// A value to set.
#[derive(Clone, Copy)]
struct Value<'a> {
    id: ObjectId,
    owner: Owner,
    data: &'a [u8],
    time: Time,
}

impl Value<'_> {
    fn check(&self) -> Result<()> {
        if self.id.kind() != Kind::File {
            return Err(Error::Invalid("a value is a file"));
        }
        if self.data.len() as u64 > Class::MAX_BYTES {
            return Err(Error::TooLarge);
        }
        Ok(())
    }
}

impl Scm {
    pub(super) fn put(
        &self,
        dir: ObjectId,
        name: &[u8],
        id: ObjectId,
        owner: Owner,
        data: &[u8],
        time: Time,
    ) -> Result<Applied> {
        let value = Value { id, owner, data, time };
        loop {
            check_entry(dir, name)?;
            let peeked = self.peek(dir, name)?;
            value.check()?;
            let existing = peeked.id();
            let _held = self.locks.hold(&[dir, existing.unwrap_or(id)]);
            let mut parent = self.parent(dir)?;
            if self.confirm(&parent, name, &peeked)?.is_none() {
                continue;
            }
            let mut transaction = Transaction::begin(&self.volume);
            if existing.is_none() {
                self.insert_entry(&mut transaction, &mut parent, name, id, time)?;
            }
            self.set_value(&mut transaction, dir, existing, value)?;
            match existing {
                Some(_) => transaction.commit()?,
                None => {
                    self.commit_entries(&mut transaction, time, &[EntryChange::added(&parent, name, id)])?
                }
            };
            return Ok(Applied { created: existing.is_none(), offset: 0 });
        }
    }

    /// Prepares the value of one put, apart from a new key's entry; all locks are held.
    fn set_value(
        &self,
        transaction: &mut Transaction<'_>,
        dir: ObjectId,
        existing: Option<ObjectId>,
        value: Value<'_>,
    ) -> Result<()> {
        let Value { id, owner, data, time } = value;
        let Some(existing) = existing else {
            return self.add_object(transaction, dir, id, owner, Content::Bytes(data), true, time);
        };
        require_file(existing)?;
        let header = self.header(existing)?;
        let hot = header.hot(self.medium())?;
        let root = mfile::fresh(transaction, data)?;
        mfile::retire_all(transaction, hot.root, hot.size)?;
        header.change(transaction, &hot, &HotChange::data(root, data.len() as u64, time));
        Ok(())
    }

    pub(super) fn batch(&self, dir: ObjectId, ops: &[Op<'_>], time: Time) -> Result<Applied> {
        self.directory(dir)?;
        check_batch(dir, ops)?;
        if ops.is_empty() {
            return Ok(Applied::default());
        }
        loop {
            let existing = self.batch_targets(dir, ops)?;
            let mut ids: SmallVec<[ObjectId; 16]> = existing.iter().copied().flatten().collect();
            ids.sort_unstable();
            let has_twins = ids.windows(2).any(|pair| pair[0] == pair[1]);
            for (op, existing) in ops.iter().zip(&existing) {
                if let (Op::Put { id, .. }, None) = (*op, existing) {
                    ids.push(id);
                }
            }
            ids.push(dir);
            let _held = self.locks.hold(&ids);
            if self.batch_targets(dir, ops)? != existing {
                continue;
            }
            // Only now: before the locks were held, a rename from one key to another could show its object under both.
            if has_twins {
                return Err(Error::Invalid("two keys of the batch name one object"));
            }
            for (op, &existing) in ops.iter().zip(&existing) {
                if let Op::Put { id, owner, data, .. } = *op {
                    Value { id, owner, data, time }.check()?;
                }
                existing.map_or(Ok(()), require_file)?;
            }
            let mut parent = self.parent(dir)?;
            for (op, existing) in ops.iter().zip(&existing) {
                if let (Op::Put { name, .. }, None) = (op, existing) {
                    self.make_room(&mut parent, name)?;
                }
            }
            let mut transaction = Transaction::begin(&self.volume);
            let mut gone: SmallVec<[ObjectId; 16]> = SmallVec::new();
            let mut changes: SmallVec<[EntryChange<'_>; 16]> = SmallVec::new();
            for (op, &existing) in ops.iter().zip(&existing) {
                match (*op, existing) {
                    (Op::Put { name, id, owner, data, .. }, existing) => {
                        let (root, epoch) = (parent.hot.root, parent.time_epoch);
                        if existing.is_none() {
                            collection::insert(&mut transaction, root, name, id, time, epoch)?;
                            changes.push(EntryChange::added(&parent, name, id));
                        }
                        let value = Value { id, owner, data, time };
                        self.set_value(&mut transaction, dir, existing, value)?;
                    }
                    (Op::Erase { name, .. }, Some(id)) => {
                        let found = self.find(&parent.hot, name)?.ok_or(Error::NotFound)?;
                        collection::remove(&mut transaction, &found, time, parent.time_epoch)?;
                        changes.push(EntryChange::removed(&parent, name, id));
                        if self.drop_name(&mut transaction, id, time)? {
                            gone.push(id);
                        }
                    }
                    _ => {}
                }
            }
            let settled = self.commit_entries(&mut transaction, time, &changes)?;
            gone.into_iter().for_each(|id| self.give_back(id, time, &settled));
            return Ok(Applied::default());
        }
    }

    /// What the keys of a batch name now.
    fn batch_targets(&self, dir: ObjectId, ops: &[Op<'_>]) -> Result<SmallVec<[Option<ObjectId>; 16]>> {
        let target = |op: &Op<'_>| match *op {
            Op::Put { name, .. } | Op::Erase { name, .. } => self.read_lookup(dir, name),
            _ => Err(Error::Invalid("a batch holds puts and erases")),
        };
        ops.iter().map(target).collect()
    }
}

/// Refuses what is no batch: other Ops, other directories, a key twice.
fn check_batch(dir: ObjectId, ops: &[Op<'_>]) -> Result<()> {
    let mut names: Vec<&[u8]> = Vec::with_capacity(ops.len());
    for op in ops {
        let (of, name) = match *op {
            Op::Put { dir, name, .. } | Op::Erase { dir, name, .. } => (dir, name),
            _ => return Err(Error::Invalid("a batch holds puts and erases")),
        };
        if of != dir {
            return Err(Error::Invalid("a batch is for one directory"));
        }
        names.push(name);
    }
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::Invalid("a batch has each key at most once"));
    }
    Ok(())
}
