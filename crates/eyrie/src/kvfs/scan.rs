//! Listing keys.

use eyrie_engine::{Engine, Kind};
use eyrie_medium::epoch;

use super::Kvfs;
use crate::{Error, Result};

/// Keys that are fetched first. Each fetch gets twice as many as the one before,
const FIRST_FETCH: usize = 32;
/// but no more than this.
const LARGEST_FETCH: usize = 1024;

/// The keys of a store, one after the other; see [`Kvfs::scan`].
#[derive(Debug)]
pub struct Scan<'a, E: Engine> {
    store: &'a Kvfs<E>,
    prefix: Vec<u8>,
    fetched: std::vec::IntoIter<Vec<u8>>,
    /// Where the next fetch begins; `None` at the end.
    cookie: Option<u64>,
    /// Keys that the next fetch gets (a count).
    fetch: usize,
}

impl<'a, E: Engine> Scan<'a, E> {
    pub(super) fn new(store: &'a Kvfs<E>, prefix: &[u8], sorted: bool) -> Result<Scan<'a, E>> {
        let fetched = Vec::new().into_iter();
        let mut scan = Scan { store, prefix: prefix.to_vec(), fetched, cookie: Some(0), fetch: FIRST_FETCH };
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
        let fetch = self.fetch;
        self.fetch = LARGEST_FETCH.min(fetch * 2);
        match self.fetch(fetch) {
            Ok(keys) => self.fetched = keys.into_iter(),
            Err(error) => return Some(Err(error)),
        }
        self.fetched.next().map(Ok)
    }
}
