//! Stores of keys and values: one trait, [`KeyValueStore`], and the types of its calls.
//!
//! [`Kvfs`](crate::Kvfs) keeps its keys in a directory of a volume, and [`HostStore`](crate::HostStore) in a
//! directory of the host. Code over `&dyn KeyValueStore` works with both.

mod batch;
mod range;
pub(crate) mod scan;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use range::KeyRange;

pub(crate) use batch::KeyChange;

use crate::Result;

/// The order in which a scan gives keys.
///
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// # let store = volume.store("/", eyrie::Credentials::root())?;
/// # use eyrie::{KeyRange, Order};
/// store.put("b", "2")?;
/// store.put("a", "1")?;
/// let keys = store.scan(KeyRange::all(), Order::ByKey).collect::<eyrie::Result<Vec<_>>>()?;
/// assert_eq!(keys, [b"a", b"b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// No particular order. A scan reads the directory once, in parts, and keeps at most 1024 keys in memory.
    #[default]
    Unordered,
    /// Byte order. The directory is not kept in this order, so a scan reads *all* entries at its start, and
    /// keeps the lowest keys in memory: up to 64 MiB, and for a moment about 96 MiB. Each key takes its
    /// length and 24 bytes, so 64 MiB have room for 1.8 million keys of 12 bytes. If more keys are in the
    /// range, the scan keeps at least about 32 MiB of them, and reads all entries again after it has returned
    /// the kept keys. Each reading of all entries is a pass, and the cost of a scan grows with the number of
    /// entries multiplied by the number of passes. The first key comes after the first pass. In one
    /// measurement, the store had 1,024,000 keys with values of 100 bytes. A scan with views of the values
    /// took 0.26 to 0.40 µs for each key. An unordered scan took 0.21 to 0.33 µs for each key and value.
    ByKey,
}

/// The keys of a scan: see [`KeyValueStore::scan`].
///
/// ```
/// use eyrie::key_value::{BoxedEntries, BoxedKeys};
/// use eyrie::{KeyRange, KeyValueStore, Order};
///
/// fn birds(store: &dyn KeyValueStore) -> eyrie::Result<(BoxedKeys<'_>, BoxedEntries<'_>)> {
///     let range = || KeyRange::prefix("bird:");
///     Ok((store.scan(range(), Order::ByKey)?, store.scan_values(range(), Order::Unordered)?))
/// }
/// ```
pub type BoxedKeys<'a> = Box<dyn Iterator<Item = Result<Vec<u8>>> + Send + 'a>;
/// The keys and values of a scan: see [`KeyValueStore::scan_values`].
pub type BoxedEntries<'a> = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> + Send + 'a>;

/// A store of keys and values.
///
/// The trait has the calls that a directory of a volume and a directory of the host have in common.
/// [`Kvfs`](crate::Kvfs) has more: values in place, conditions and counts. A key is 1 to 255 bytes of any
/// kind. Calls may come from any thread.
///
/// The promises depend on the store:
///
/// | promise | `Kvfs` | `HostStore` |
/// | --- | --- | --- |
/// | a reader sees the old value or the new one, never a part | yes | yes |
/// | a crash leaves the old value or the new one | yes | no: nothing is synced, so the value may be empty |
/// | a batch is whole or not done, for readers and after a crash | yes | no: one change after another |
/// | a batch may have conditions | yes | no: `EOPNOTSUPP` |
///
/// ```
/// use eyrie::{Batch, HostStore, KeyRange, KeyValueStore, Order};
///
/// fn rename(store: &dyn KeyValueStore, from: &[u8], to: &[u8]) -> eyrie::Result<bool> {
///     let Some(value) = store.get(from)? else { return Ok(false) };
///     let mut batch = Batch::new();
///     batch.put(to, value).erase(from);
///     store.commit(&batch)?;
///     Ok(true)
/// }
///
/// # let dir = std::env::temp_dir().join(format!("doc-key-value-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// let store = HostStore::open(&dir)?;
/// store.put("kite", "forked tail")?;
/// assert!(rename(&store, b"kite", b"red kite")?);
/// let store: &dyn KeyValueStore = &store;
/// let keys: Vec<_> = store.scan(KeyRange::all(), Order::ByKey)?.collect::<Result<_, _>>()?;
/// assert_eq!(keys, [b"red kite"]);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyValueStore: Send + Sync {
    /// Replaces the contents of `out` with the value of `key`, and reuses the memory of `out`. If the key
    /// does not exist, leaves `out` empty and returns false. After an error the contents of `out` are
    /// unspecified.
    ///
    /// ```
    /// # use eyrie::*; fn f(store: &dyn KeyValueStore) -> Result<()> {
    /// let mut value = Vec::new();
    /// let exists = store.get_into(b"egg", &mut value)?;
    /// assert_eq!(store.contains_key(b"egg")?, exists);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for an empty key. `ENAMETOOLONG` for a key of more than 255 bytes. `EISDIR` if the key names
    /// a directory. `EIO` if the storage fails or is damaged. The stores document further errors.
    fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool>;

    /// Returns a copy of the value of `key`, or `None` if the key does not exist.
    ///
    /// # Errors
    /// As [`KeyValueStore::get_into`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Returns true if `key` has a value.
    ///
    /// # Errors
    /// As [`KeyValueStore::get_into`].
    fn contains_key(&self, key: &[u8]) -> Result<bool>;

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// As [`KeyValueStore::get_into`]. `ENOSPC` if the storage is full. `EROFS` if it cannot be changed.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key`. Returns false if the key did not exist.
    ///
    /// # Errors
    /// As [`KeyValueStore::get_into`]. `EROFS` if the storage cannot be changed.
    fn erase(&self, key: &[u8]) -> Result<bool>;

    /// Makes all changes of a batch. In a [`Kvfs`](crate::Kvfs) they are one step, whole or not done. In a
    /// [`HostStore`](crate::HostStore) they are made one after another, so readers see some of them before
    /// the others, and an error or a crash may leave some of them.
    ///
    /// # Errors
    /// As [`KeyValueStore::put`]. `ECANCELED` if a condition of the batch does not hold. `EOPNOTSUPP` for a
    /// batch with conditions, if the store cannot check conditions; nothing is then changed.
    fn commit(&self, batch: &Batch) -> Result<()>;

    /// Returns the keys in `range`. A key that is put or erased during the scan may or may not appear.
    ///
    /// # Errors
    /// `EIO`, and on the host the errors of `open(2)`. The items of the iterator have the errors of later
    /// reads.
    fn scan(&self, range: KeyRange, order: Order) -> Result<BoxedKeys<'_>>;

    /// Returns the keys in `range` with copies of their values. Each value is read when its item is taken, so
    /// the scan needs memory for only one value at a time. A key that is erased before its item is taken is
    /// left out.
    ///
    /// # Errors
    /// As [`KeyValueStore::scan`]. The items also have the errors of [`KeyValueStore::get`].
    fn scan_values(&self, range: KeyRange, order: Order) -> Result<BoxedEntries<'_>> {
        let keys = self.scan(range, order)?;
        Ok(Box::new(
            keys.filter_map(|key| key.and_then(|key| with_value(key, |key| self.get(key))).transpose()),
        ))
    }
}

/// Returns a key with its value, or `None` if the key has been erased.
pub(crate) fn with_value(
    key: Vec<u8>,
    get: impl FnOnce(&[u8]) -> Result<Option<Vec<u8>>>,
) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    Ok(get(&key)?.map(|value| (key, value)))
}
