//! Scans: keys, and keys with values.

use std::fmt;

use eyrie_engine::{Engine, Kind, ObjectId};
use eyrie_medium::epoch::Guard;

use super::{Kvfs, error_on};
use crate::kept;
use crate::key_value::scan::{KeyScan, ListKeys, VisitKey};
use crate::key_value::{KeyRange, Order, with_value};
use crate::view::View;
use crate::{Error, Result};

impl<E: Engine> Kvfs<E> {
    /// Returns the keys in `range`. A key that is put or erased during the scan may or may not appear. Every
    /// other key appears exactly once, except that an unordered scan may repeat keys whose hashes are equal.
    /// The iterator has the errors of the reads: `EIO`.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// use eyrie::{KeyRange, Order};
    ///
    /// for key in ["city:rome", "city:bonn", "name:ada"] {
    ///     store.put(key, "")?;
    /// }
    /// let cities = store.scan(KeyRange::prefix("city:"), Order::ByKey);
    /// assert_eq!(cities.collect::<Result<Vec<_>, _>>()?, [b"city:bonn", b"city:rome"]);
    /// assert_eq!(store.scan(KeyRange::new("d"..), Order::Unordered).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(&self, range: KeyRange, order: Order) -> Scan<E> {
        Scan { keys: KeyScan::new(self.clone(), range, order) }
    }

    /// Returns the keys in `range` with copies of their values, as [`Kvfs::scan`] does. The value of a key is
    /// read when the iterator comes to it, so the values of several keys may be from different moments. A key
    /// that is erased before the iterator comes to it is left out. The iterator has the errors of
    /// [`Kvfs::get`].
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// use eyrie::{KeyRange, Order};
    ///
    /// store.put("colour", "blue")?;
    /// for entry in store.scan_values(KeyRange::all(), Order::Unordered) {
    ///     let (key, value) = entry?;
    ///     assert_eq!((&key[..], &value[..]), (&b"colour"[..], &b"blue"[..]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan_values(&self, range: KeyRange, order: Order) -> ScanValues<E> {
        ScanValues { keys: self.scan(range, order) }
    }

    /// Returns the keys in `range` with their values, in place where the engine can lend the stored bytes.
    /// This is the fastest scan of values, because it looks a key up only if the id from the listing has
    /// become stale. Each value is a value that its key had at some moment of the scan, unless a call on
    /// files renames the file of the key during the scan. A key that is erased during the scan may or may not
    /// appear. The iterator has the errors of [`Kvfs::get`].
    ///
    /// Storage that is freed while the pin lives is reused only after the pin is dropped. So during a long
    /// scan, the values that other threads replace keep their storage.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// use eyrie::{KeyRange, Order};
    ///
    /// store.put("a", "12")?;
    /// store.put("b", "345")?;
    /// let pin = store.pin();
    /// let mut bytes = 0;
    /// for entry in store.scan_in_place(KeyRange::all(), Order::Unordered, &pin) {
    ///     bytes += entry?.1.len();
    /// }
    /// assert_eq!(bytes, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan_in_place<'a>(&'a self, range: KeyRange, order: Order, pin: &'a Guard) -> ScanInPlace<'a, E> {
        ScanInPlace { keys: KeyScan::new(self.clone(), range, order), store: self, pin }
    }
}

/// Number of keys by which the prefetch of headers is ahead of a scan of values.
const HEADERS_AHEAD: usize = 24;
/// Number of keys by which the prefetch of values is ahead of the scan. The header of a value is in the cache
/// by then.
const VALUES_AHEAD: usize = 12;

impl<E: Engine> KeyScan<Kvfs<E>> {
    /// Returns the next key and its object, and prefetches the values of later keys. So the cache misses of
    /// several values overlap.
    fn next_of_values(&mut self) -> Option<Result<(Vec<u8>, ObjectId)>> {
        let next = self.next()?;
        let engine = &self.source().store.engine;
        if let Some(id) = self.ahead(HEADERS_AHEAD) {
            engine.prefetch_object(id);
        }
        if let Some(id) = self.ahead(VALUES_AHEAD) {
            engine.prefetch_bytes(id);
        }
        Some(next)
    }
}

impl<E: Engine> ListKeys for Kvfs<E> {
    type Object = ObjectId;

    fn list(&self, from: u64, visit: &mut VisitKey<'_, ObjectId>) -> Result<()> {
        let mut visit_files = |entry: eyrie_engine::ListedEntry<'_>| {
            entry.id.kind() != Kind::File || visit(entry.name, entry.id, entry.next)
        };
        let listed = kept::list(&*self.store.engine, || self.store.dir(), from, &mut visit_files);
        listed.map_err(|error| Error::from_engine(error, "scan"))
    }
}

/// An iterator over keys: see [`Kvfs::scan`]. It has its own clone of the store.
///
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// # let store = volume.store("/", eyrie::Credentials::root())?;
/// # use eyrie::{KeyRange, Order};
/// let keys: eyrie::Scan<_> = store.scan(KeyRange::all(), Order::Unordered);
/// assert_eq!(keys.count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scan<E: Engine> {
    keys: KeyScan<Kvfs<E>>,
}

impl<E: Engine> Iterator for Scan<E> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Result<Vec<u8>>> {
        Some(self.keys.next()?.map(|(key, _)| key))
    }
}

impl<E: Engine> fmt::Debug for Scan<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scan").field(&self.keys).finish()
    }
}

/// An iterator over keys and copies of their values: see [`Kvfs::scan_values`]. It has its own clone of the
/// store.
///
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// # let store = volume.store("/", eyrie::Credentials::root())?;
/// # use eyrie::{KeyRange, Order};
/// let entries: eyrie::ScanValues<_> = store.scan_values(KeyRange::all(), Order::Unordered);
/// assert_eq!(entries.count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ScanValues<E: Engine> {
    keys: Scan<E>,
}

impl<E: Engine> Iterator for ScanValues<E> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let key = self.keys.keys.next_of_values()?.map(|(key, _)| key);
            let entry = key.and_then(|key| with_value(key, |key| self.keys.keys.source().get(key)));
            if let Some(entry) = entry.transpose() {
                return Some(entry);
            }
        }
    }
}

impl<E: Engine> fmt::Debug for ScanValues<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScanValues").field(&self.keys.keys).finish()
    }
}

/// An iterator over keys and their values in place: see [`Kvfs::scan_in_place`].
///
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// # let store = volume.store("/", eyrie::Credentials::root())?;
/// # use eyrie::{KeyRange, Order};
/// let pin = store.pin();
/// let entries: eyrie::ScanInPlace<_> = store.scan_in_place(KeyRange::all(), Order::Unordered, &pin);
/// assert_eq!(entries.count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ScanInPlace<'a, E: Engine> {
    keys: KeyScan<Kvfs<E>>,
    store: &'a Kvfs<E>,
    pin: &'a Guard,
}

impl<'a, E: Engine> Iterator for ScanInPlace<'a, E> {
    type Item = Result<(Vec<u8>, View<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (key, id) = match self.keys.next_of_values()? {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            // The pin is older than the listing, so no storage of the object is reused before the scan ends.
            // The engine may return `Stale` for an object that was erased.
            match self.store.value_of(id, self.pin) {
                Ok(value) => return Some(Ok((key, value))),
                // The key was erased, or the session of the id has ended. A look-up of the key decides.
                Err(eyrie_engine::Error::Stale) => match self.store.get_in_place(&key, self.pin) {
                    Ok(None) => {}
                    Ok(Some(value)) => return Some(Ok((key, value))),
                    Err(error) => return Some(Err(error)),
                },
                Err(error) => return Some(Err(error_on(&key, "scan", error))),
            }
        }
    }
}

impl<E: Engine> fmt::Debug for ScanInPlace<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScanInPlace").field(&self.keys).finish()
    }
}
