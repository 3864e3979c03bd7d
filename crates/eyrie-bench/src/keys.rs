//! Stores of keys and values, of every kind, behind one trait.

use std::path::PathBuf;
use std::sync::Arc;

use eyrie::{Batch, Host, HostStore, KeyRange, KeyValueStore, Order, Store, Volume};

use crate::error::Result;

/// The moment at which a change of a key is durable. From this moment on, the change survives every failure
/// that the storage under the store survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Some time after the call, or never.
    Later,
    /// Before the call returns.
    EachCall,
}

/// A store, which several threads use.
pub trait KeyStore: Send + Sync {
    /// Returns the access of one thread.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn session(&self) -> Result<Box<dyn KeySession>>;
}

/// A function that gets a key and its value.
pub type VisitPair<'v> = dyn FnMut(&[u8], &[u8]) + 'v;

/// The access of one thread to a store. Each call is one transaction, with three exceptions: a scan of a
/// volume or of a store of files, [`KeySession::put_all`] on a store of files, and an erase in fjall, which
/// first looks the key up. (A scan of a volume gives every pair that exists throughout the scan.)
///
/// # Errors
/// A method fails if its call of the store fails.
pub trait KeySession: Send {
    /// Replaces the contents of `out` by the value of `key`. Returns false if the key does not exist.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool>;

    /// Calls `visit` with the value of `key`, in place if [`KeySession::has_views`]. Returns false if the key
    /// does not exist.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn view(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Returns true if the store can lend its values in place.
    fn has_views(&self) -> bool {
        true
    }

    /// Returns true if each value is a file that the kernel opens: one in a directory of the host or of a
    /// mount. Each call on such a store makes several system calls, and in most file systems of the host a
    /// million small values take gigabytes.
    fn is_of_files(&self) -> bool {
        false
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key`. Returns false if the key did not exist.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn erase(&mut self, key: &[u8]) -> Result<bool>;

    /// Sets the values of all keys: in one transaction if the store has transactions of several keys, and
    /// otherwise one after another.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()>;

    /// Calls `visit` for every key and its value: in the order of the keys if `sorted`, and otherwise in the
    /// order that costs the store least.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn scan(&mut self, sorted: bool, visit: &mut VisitPair<'_>) -> Result<()>;
}

/// A store in a directory of a volume.
pub(crate) struct VolumeKeys {
    pub store: Store,
    /// The volume, which is synced after each change. `None` if changes need not be durable.
    pub synced: Option<Arc<Volume>>,
}

impl KeyStore for VolumeKeys {
    fn session(&self) -> Result<Box<dyn KeySession>> {
        Ok(Box::new(VolumeKeys { store: self.store.clone(), synced: self.synced.clone() }))
    }
}

impl VolumeKeys {
    fn end_call(&self) -> Result<()> {
        match &self.synced {
            Some(volume) => Ok(volume.sync()?),
            None => Ok(()),
        }
    }
}

impl KeySession for VolumeKeys {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.store.get_into(key, out)?)
    }

    fn view(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let pin = self.store.pin();
        let value = self.store.get_in_place(key, &pin)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)?;
        self.end_call()
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        let existed = self.store.erase(key)?;
        self.end_call()?;
        Ok(existed)
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.store.commit(&batch(pairs))?;
        self.end_call()
    }

    fn scan(&mut self, sorted: bool, visit: &mut VisitPair<'_>) -> Result<()> {
        let pin = self.store.pin();
        for entry in self.store.scan_in_place(KeyRange::all(), order(sorted), &pin) {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }
}

fn batch(pairs: &[(Vec<u8>, Vec<u8>)]) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in pairs {
        batch.put(&key[..], &value[..]);
    }
    batch
}

fn order(sorted: bool) -> Order {
    if sorted { Order::ByKey } else { Order::Unordered }
}

/// A store in a directory of the host, with one file for each key.
pub(crate) struct HostKeys {
    store: Arc<HostStore>,
    /// The file system, which is synced after each change. `None` if changes need not be durable.
    synced: Option<Host>,
}

impl HostKeys {
    /// Opens the store in an existing directory.
    pub fn open(directory: PathBuf, durability: Durability) -> Result<HostKeys> {
        let synced = match durability {
            Durability::Later => None,
            Durability::EachCall => Some(Host::new(&directory)?),
        };
        Ok(HostKeys { store: Arc::new(HostStore::open(directory)?), synced })
    }

    fn end_call(&self) -> Result<()> {
        match &self.synced {
            Some(host) => Ok(host.sync()?),
            None => Ok(()),
        }
    }
}

impl KeyStore for HostKeys {
    fn session(&self) -> Result<Box<dyn KeySession>> {
        Ok(Box::new(HostKeys { store: Arc::clone(&self.store), synced: self.synced.clone() }))
    }
}

impl KeySession for HostKeys {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.store.get_into(key, out)?)
    }

    fn view(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.store.get(key)?.map(|value| visit(&value)).is_some())
    }

    fn has_views(&self) -> bool {
        false
    }

    fn is_of_files(&self) -> bool {
        true
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)?;
        self.end_call()
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        let existed = self.store.erase(key)?;
        self.end_call()?;
        Ok(existed)
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.store.commit(&batch(pairs))?;
        self.end_call()
    }

    fn scan(&mut self, sorted: bool, visit: &mut VisitPair<'_>) -> Result<()> {
        let store: &dyn KeyValueStore = &*self.store;
        for entry in store.scan_values(KeyRange::all(), order(sorted))? {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }
}
