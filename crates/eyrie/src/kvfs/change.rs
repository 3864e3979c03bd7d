//! Changes: puts, erases, conditional changes and batches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use eyrie_engine::op::VALUE_MAX;
use eyrie_engine::{Applied, Condition, Engine, Kind, ObjectId, Op, access, with_reserved};

use super::{Kvfs, OpenStore};
use crate::key_value::{Batch, KeyChange};
use crate::names::check_key;
use crate::{Errno, Error, Result};

/// The outcome of a conditional change: see [`Kvfs::put_if`].
///
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// # let store = volume.store("/", eyrie::Credentials::root())?;
/// use eyrie::{Condition, Outcome};
///
/// match store.put_if("leader", "ada", Condition::Absent)? {
///     Outcome::Done => println!("ada leads"),
///     Outcome::ConditionFailed => println!("somebody else leads"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "the change is not done if its condition does not hold"]
pub enum Outcome {
    /// The condition held, and the change is done.
    Done,
    /// The condition did not hold, and nothing is changed.
    ConditionFailed,
}

/// Checks a key and a value. The error names the key.
#[inline]
fn check_pair(key: &[u8], value: &[u8], operation: &'static str) -> Result<()> {
    let checked = check_key(key, operation).and_then(|()| check_value(value, operation));
    checked.map_err(|error| error.at(OsStr::from_bytes(key)))
}

fn check_value(value: &[u8], operation: &'static str) -> Result<()> {
    if value.len() > VALUE_MAX {
        return Err(Error::with_reason(Errno::FBIG, operation, "a value must have at most 64 MiB"));
    }
    Ok(())
}

impl<E: Engine> Kvfs<E> {
    /// Sets the value of `key`. Returns true if the key is new.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// assert!(store.put("colour", "blue")?);
    /// assert!(!store.put("colour", "green")?, "the key is not new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`, `EISDIR` and `EIO` as [`Kvfs::get`]. `EFBIG` for a value of more than 64
    /// MiB. `ENOSPC` if the volume is full. `EDQUOT` if the change would pass a limit of a quota. `EROFS` if
    /// the disk of the volume has failed, or if the volume was opened read-only. `ENOENT` if the directory of
    /// the store was removed. `EPERM` if inode flags of the file or of the directory forbid the change.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let (name, data) = (key.as_ref(), value.as_ref());
        check_pair(name, data, "put")?;
        let &OpenStore { ref engine, owner, clock, .. } = &*self.store;
        self.call_on(name, "put", |_| {
            let dir = self.store.dir()?;
            with_reserved(&**engine, Kind::File, |id| {
                let time = clock.stamp_of_any();
                let applied = self.apply_op(&Op::Put { dir, name, id, owner, data, time })?;
                if !applied.created {
                    engine.unreserve(id);
                }
                Ok(applied.created)
            })
        })
    }

    /// Sets the value of `key` if `condition` holds for the key. The check and the change are one step. So if
    /// several threads try to change the same version of a value, exactly one of them succeeds.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// use eyrie::{Condition, Outcome};
    ///
    /// assert_eq!(store.put_if("leader", "ada", Condition::Absent)?, Outcome::Done);
    /// assert_eq!(store.put_if("leader", "bob", Condition::Absent)?, Outcome::ConditionFailed);
    /// assert_eq!(store.get("leader")?.as_deref(), Some(&b"ada"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Kvfs::put`]. A condition that does not hold is no error.
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition,
    ) -> Result<Outcome> {
        let (name, data) = (key.as_ref(), value.as_ref());
        check_pair(name, data, "put")?;
        let &OpenStore { ref engine, owner, clock, .. } = &*self.store;
        self.call_on(name, "put", |_| {
            let dir = self.store.dir()?;
            with_reserved(&**engine, Kind::File, |id| {
                let time = clock.stamp_of_any();
                let outcome = self.change_if(condition, &Op::Put { dir, name, id, owner, data, time })?;
                // The change is a batch. If the batch is done and the key existed, the engine itself gives
                // the unused id back.
                if outcome == Outcome::ConditionFailed {
                    engine.unreserve(id);
                }
                Ok(outcome)
            })
        })
    }

    /// Removes `key`. Returns false if the key did not exist.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// assert!(store.erase("colour")?);
    /// assert!(!store.erase("colour")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`, `EISDIR` and `EIO` as [`Kvfs::get`]. `EROFS` if the disk of the volume has
    /// failed, or if the volume was opened read-only. `EPERM` if inode flags forbid the change.
    pub fn erase(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let name = key.as_ref();
        check_pair(name, &[], "erase")?;
        let &OpenStore { ref engine, clock, .. } = &*self.store;
        self.call_on(name, "erase", |_| {
            let dir = self.store.dir()?;
            match self.apply_op(&Op::Erase { dir, name, time: clock.stamp_of_any() }) {
                Ok(_) => Ok(true),
                // A call of another thread may have removed the key, and may not have returned yet. This call
                // reports that the key is missing, so it waits until the removal is as durable as that of a
                // call that has returned.
                Err(eyrie_engine::Error::NotFound) => engine.wait_for(dir).map(|()| false),
                Err(error) => Err(error),
            }
        })
    }

    /// Removes `key` if `condition` holds for it. The check and the removal are one step.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// use eyrie::{Condition, Outcome};
    ///
    /// store.put("lease", "ada")?;
    /// let seen = Condition::Version(store.version("lease")?.expect("it was put"));
    /// store.put("lease", "bob")?; // by another thread
    /// assert_eq!(store.erase_if("lease", seen)?, Outcome::ConditionFailed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Kvfs::erase`]. `ENOENT` if the directory of the store was removed.
    pub fn erase_if(&self, key: impl AsRef<[u8]>, condition: Condition) -> Result<Outcome> {
        let name = key.as_ref();
        check_pair(name, &[], "erase")?;
        let clock = self.store.clock;
        self.call_on(name, "erase", |_| {
            let (dir, time) = (self.store.dir()?, clock.stamp_of_any());
            self.change_if(condition, &Op::Erase { dir, name, time })
        })
    }

    /// Applies a change of keys if inode flags do not forbid it.
    #[inline(always)]
    fn apply_op(&self, op: &Op<'_>) -> eyrie_engine::Result<Applied> {
        let engine = &*self.store.engine;
        if engine.may_have_flags() {
            access::check_key_flags(engine, op)?;
        }
        if self.store.may_exceed_limits { engine.apply_above_limits(op) } else { engine.apply(op) }
    }

    /// Applies `change`, a put or an erase of a key, if `condition` holds for the key.
    fn change_if(&self, condition: Condition, change: &Op<'_>) -> eyrie_engine::Result<Outcome> {
        let (Op::Put { dir, name, time, .. } | Op::Erase { dir, name, time }) = *change else {
            unreachable!("callers pass puts and erases")
        };
        let ops = [Op::Expect { dir, name, condition }, *change];
        match self.apply_op(&Op::Batch { dir, ops: &ops, time }) {
            Ok(_) => Ok(Outcome::Done),
            Err(eyrie_engine::Error::ConditionFailed) => Ok(Outcome::ConditionFailed),
            Err(error) => Err(error),
        }
    }

    /// Makes all changes of a batch in one step, or none if the call returns an error. The batch can be
    /// committed again, for example after an error.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// use eyrie::Batch;
    ///
    /// let mut batch = Batch::new();
    /// batch.put("name", "ada").put("city", "london").erase("draft");
    /// store.commit(&batch)?;
    /// assert_eq!(store.len()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Kvfs::put`]. `ECANCELED` if a condition of the batch does not hold. `EINVAL` if two changed keys
    /// of the batch name one file, as hard links do. `EFBIG` if the batch is too large for the service of the
    /// volume.
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        for (key, change) in batch.changes() {
            check_key(key, "commit")?;
            if let KeyChange::Put(value) = change {
                check_value(value, "commit")?;
            }
        }
        batch.conditions().try_for_each(|(key, _)| check_key(key, "commit"))?;
        self.call("commit", |_| self.attempt(batch))
    }

    fn attempt(&self, batch: &Batch) -> eyrie_engine::Result<()> {
        loop {
            let mut reserved = Vec::new();
            let result = self.reserve(batch, &mut reserved).and_then(|()| self.apply(batch, &reserved));
            match result {
                // The ids were lost with the service that had reserved them.
                Err(eyrie_engine::Error::NotReserved) => continue,
                Err(_) => reserved.into_iter().for_each(|id| self.store.engine.unreserve(id)),
                Ok(()) => {}
            }
            return result;
        }
    }

    /// Reserves an id for each key that gets a value, in the order of the keys. The engine gives back the ids
    /// of keys that exist.
    fn reserve(&self, batch: &Batch, reserved: &mut Vec<ObjectId>) -> eyrie_engine::Result<()> {
        for (_, change) in batch.changes() {
            if let KeyChange::Put(_) = change {
                reserved.push(self.store.engine.reserve(Kind::File)?);
            }
        }
        Ok(())
    }

    fn apply(&self, batch: &Batch, reserved: &[ObjectId]) -> eyrie_engine::Result<()> {
        let &OpenStore { owner, clock, .. } = &*self.store;
        let dir = self.store.dir()?;
        let time = clock.stamp_of_any();
        let mut reserved = reserved.iter().copied();
        let conditions = batch.conditions().map(|(name, condition)| Op::Expect { dir, name, condition });
        let changes = batch.changes().filter_map(|(name, change)| {
            Some(match change {
                KeyChange::Put(data) => Op::Put { dir, name, id: reserved.next()?, owner, data, time },
                KeyChange::Erase => Op::Erase { dir, name, time },
            })
        });
        let ops: Vec<Op<'_>> = conditions.chain(changes).collect();
        self.apply_op(&Op::Batch { dir, ops: &ops, time }).map(drop)
    }
}
