//! Lists of keys.

use eyrie_engine::{Engine, Kind};
use eyrie_medium::epoch;

use super::Kvfs;
use crate::fetch::FetchSize;
use crate::{Error, Result};

/// An iterator over the keys of a store: see [`Kvfs::scan`].
#[derive(Debug)]
pub struct Scan<'a, E: Engine> {
    store: &'a Kvfs<E>,
    prefix: Vec<u8>,
    fetched: std::vec::IntoIter<Vec<u8>>,
    /// The position in the directory where the next fetch begins. `None` at the end.
    cookie: Option<u64>,
    fetch: FetchSize,
}

impl<E: Engine> Kvfs<E> {
    /// Returns the keys that begin with `prefix`. An empty prefix selects all keys. With `sorted` the keys
    /// come in byte order, and all of them are collected first. Otherwise they come in no particular order. A
    /// key that is added or erased during the scan may or may not appear.
    ///
    /// # Errors
    /// `EIO`.
    pub fn scan(&self, prefix: impl AsRef<[u8]>, sorted: bool) -> Result<Scan<'_, E>> {
        Scan::new(self, prefix.as_ref(), sorted)
    }
}

impl<'a, E: Engine> Scan<'a, E> {
    fn new(store: &'a Kvfs<E>, prefix: &[u8], sorted: bool) -> Result<Scan<'a, E>> {
        let fetched = Vec::new().into_iter();
        let mut scan =
            Scan { store, prefix: prefix.to_vec(), fetched, cookie: Some(0), fetch: FetchSize::first() };
        if sorted {
            let mut keys = scan.fetch(usize::MAX)?;
            keys.sort_unstable();
            scan.fetched = keys.into_iter();
        }
        Ok(scan)
    }

    fn fetch(&mut self, at_most: usize) -> Result<Vec<Vec<u8>>> {
        let Some(from) = self.cookie.take() else { return Ok(Vec::new()) };
        let mut keys = Vec::new();
        let mut next = None;
        let _pin = epoch::pin();
        self.store
            .engine
            .list(self.store.dir, from, &mut |entry| {
                if entry.id.kind() == Kind::File && entry.name.starts_with(&self.prefix) {
                    keys.push(entry.name.to_vec());
                }
                let full = keys.len() >= at_most;
                next = full.then_some(entry.next);
                !full
            })
            .map_err(|error| Error::from_engine(error, "scan"))?;
        self.cookie = next;
        Ok(keys)
    }
}

impl<E: Engine> Iterator for Scan<'_, E> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Result<Vec<u8>>> {
        if let Some(key) = self.fetched.next() {
            return Some(Ok(key));
        }
        let at_most = self.fetch.next();
        match self.fetch(at_most) {
            Ok(keys) => self.fetched = keys.into_iter(),
            Err(error) => return Some(Err(error)),
        }
        self.fetched.next().map(Ok)
    }
}
