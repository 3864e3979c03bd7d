//! The stores that are compared, behind one trait.

mod eyrie;
mod lmdb;
mod redb;
mod sqlite;

use std::path::Path;

use crate::Result;

/// The moment at which a change survives a failure of power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Some time after the call, or never.
    None,
    /// Before the call returns.
    EachCall,
}

/// A store of keys and values. Each call is one transaction.
pub trait Peer {
    /// Replaces the contents of `out` by the value of `key`. Returns false if the key does not exist.
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool>;

    /// Sets the value of `key`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key`. Returns false if the key does not exist.
    fn erase(&mut self, key: &[u8]) -> Result<bool>;

    /// Sets the values of all keys in one transaction, which is whole or not at all after a crash.
    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()>;

    /// Calls `visit` for every key and its value, in the order of the keys.
    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// As [`Peer::scan`], but in the order that costs the store least.
    fn scan_unordered(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.scan(visit)
    }
}

/// Makes an empty store in the empty directory `dir`, for values of `value_bytes`.
pub type Open = fn(dir: &Path, durability: Durability, value_bytes: usize) -> Result<Box<dyn Peer>>;

/// The names of the stores, and their functions. The first one is Eyrie, to which the ratios refer.
pub const STORES: [(&str, Open); 4] =
    [("Eyrie", eyrie::open), ("LMDB", lmdb::open), ("redb", redb::open), ("SQLite", sqlite::open)];
