//! Batches: several changes of a store in one step.

use std::collections::BTreeMap;

use eyrie_engine::Condition;

/// Puts and erases, which [`Kvfs::commit`](crate::Kvfs::commit) makes in one step: a reader sees all of them
/// or none, and a crash leaves all of them or none. Of several changes of one key, only the last takes
/// effect.
///
/// A batch may also require conditions of keys. If a condition does not hold, the commit fails with
/// `ECANCELED` and changes nothing. So a program can read some keys with their versions, decide, and change
/// the store only if no other thread has changed these keys meanwhile:
///
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// # let accounts = volume.store("/", eyrie::Credentials::root())?;
/// # accounts.put("ada", [9])?;
/// # accounts.put("bob", [0])?;
/// use eyrie::{Batch, Condition, Errno};
///
/// loop {
///     let (ada, seen) = accounts.get_with_version("ada")?.expect("she has an account");
///     let (bob, other) = accounts.get_with_version("bob")?.expect("he has one, too");
///     let mut batch = Batch::new();
///     batch.require("ada", Condition::Version(seen)).put("ada", [ada[0] - 5]);
///     batch.require("bob", Condition::Version(other)).put("bob", [bob[0] + 5]);
///     match accounts.commit(&batch) {
///         Err(error) if error.errno() == Errno::CANCELED => continue,
///         done => break done?,
///     }
/// }
/// assert_eq!(accounts.get("bob")?.as_deref(), Some(&[5][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "a batch changes nothing before it is committed"]
pub struct Batch {
    changes: BTreeMap<Vec<u8>, KeyChange>,
    conditions: BTreeMap<Vec<u8>, Condition>,
}

/// The change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeyChange {
    /// Sets this value.
    Put(Vec<u8>),
    /// Removes the key.
    Erase,
}

impl Batch {
    /// Makes an empty batch.
    ///
    /// ```
    /// assert!(eyrie::Batch::new().is_empty());
    /// ```
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Sets the value of `key`.
    ///
    /// ```
    /// let mut batch = eyrie::Batch::new();
    /// batch.put("colour", "blue").put("size", "small");
    /// assert_eq!(batch.len(), 2);
    /// ```
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> &mut Batch {
        self.changes.insert(key.into(), KeyChange::Put(value.into()));
        self
    }

    /// Removes `key`, if it exists.
    ///
    /// ```
    /// let mut batch = eyrie::Batch::new();
    /// batch.erase("colour");
    /// assert!(!batch.is_empty());
    /// ```
    pub fn erase(&mut self, key: impl Into<Vec<u8>>) -> &mut Batch {
        self.changes.insert(key.into(), KeyChange::Erase);
        self
    }

    /// Requires that `condition` holds for `key` before the batch changes anything. The batch need not change
    /// the key. Of several conditions of one key, only the last counts.
    ///
    /// ```
    /// use eyrie::{Batch, Condition};
    ///
    /// let mut batch = Batch::new();
    /// batch.require("leader", Condition::Absent).put("leader", "ada");
    /// ```
    pub fn require(&mut self, key: impl Into<Vec<u8>>, condition: Condition) -> &mut Batch {
        self.conditions.insert(key.into(), condition);
        self
    }

    /// Returns the number of keys that the batch changes.
    ///
    /// ```
    /// let mut batch = eyrie::Batch::new();
    /// batch.put("colour", "blue").erase("colour");
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns true if the batch changes nothing.
    ///
    /// ```
    /// let mut batch = eyrie::Batch::new();
    /// assert!(batch.is_empty());
    /// batch.erase("colour");
    /// assert!(!batch.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = (&[u8], &KeyChange)> {
        self.changes.iter().map(|(key, change)| (&key[..], change))
    }

    pub(crate) fn conditions(&self) -> impl Iterator<Item = (&[u8], Condition)> {
        self.conditions.iter().map(|(key, &condition)| (&key[..], condition))
    }
}
