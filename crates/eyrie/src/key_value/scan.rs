//! Scans: the keys of a directory, in parts.

use std::fmt;

use super::{KeyRange, Order};
use crate::Result;
use crate::fetch::FetchSize;

/// Number of keys that a pass of an ordered scan returns. During the pass, memory holds at most twice this
/// number of keys: 42 MB if all keys have the maximum of 255 bytes.
const PASS_KEYS: usize = 1 << 16;

/// A function that gets a key, its object, and the position after it. Returns false to end a listing.
pub(crate) type VisitKey<'v, O> = dyn FnMut(&[u8], O, u64) -> bool + 'v;

/// A directory whose entries are keys.
pub(crate) trait ListKeys {
    /// The object that a key names.
    type Object;

    /// Calls `visit` with the keys from the position `from` on (0 is the start), until it returns false.
    fn list(&self, from: u64, visit: &mut VisitKey<'_, Self::Object>) -> Result<()>;
}

/// An iterator over the keys of a directory, and their objects.
pub(crate) struct KeyScan<S: ListKeys> {
    source: S,
    /// The keys that the next fetch may give. An ordered scan removes each key that it has given.
    range: KeyRange,
    order: Order,
    fetched: std::vec::IntoIter<(Vec<u8>, S::Object)>,
    /// The position where the next fetch begins. `None` at the end.
    next: Option<u64>,
    fetch: FetchSize,
    pass_keys: usize,
}

impl<S: ListKeys> KeyScan<S> {
    pub(crate) fn new(source: S, range: KeyRange, order: Order) -> KeyScan<S> {
        KeyScan {
            source,
            range,
            order,
            fetched: Vec::new().into_iter(),
            next: Some(0),
            fetch: FetchSize::first(),
            pass_keys: PASS_KEYS,
        }
    }

    pub(crate) fn source(&self) -> &S {
        &self.source
    }

    /// Fetches keys in the order of the directory from `from` on.
    fn fetch_part(&mut self, from: u64) -> Result<Vec<(Vec<u8>, S::Object)>> {
        let at_most = self.fetch.next();
        let (mut keys, mut more) = (Vec::new(), None);
        self.source.list(from, &mut |key, object, next| {
            if self.range.contains(key) {
                keys.push((key.to_vec(), object));
            }
            let full = keys.len() >= at_most;
            more = full.then_some(next);
            !full
        })?;
        self.next = more;
        Ok(keys)
    }

    /// Fetches the lowest keys of the range, in order, with a pass over the whole directory.
    fn fetch_lowest(&mut self) -> Result<Vec<(Vec<u8>, S::Object)>> {
        let at_most = self.pass_keys;
        let mut keys: Vec<(Vec<u8>, S::Object)> = Vec::new();
        // The keys from this one on are not among the lowest.
        let mut bound: Option<Vec<u8>> = None;
        self.source.list(0, &mut |key, object, _| {
            if self.range.contains(key) && bound.as_ref().is_none_or(|bound| key < &bound[..]) {
                keys.push((key.to_vec(), object));
                if keys.len() > 2 * at_most {
                    let (_, first_left_out, _) = keys.select_nth_unstable_by(at_most, by_key);
                    bound = Some(first_left_out.0.clone());
                    keys.truncate(at_most);
                }
            }
            true
        })?;
        keys.sort_unstable_by(by_key);
        // A directory may list an entry twice if another has the same hash.
        keys.dedup_by(|key, before| key.0 == before.0);
        let has_more = bound.is_some() || keys.len() > at_most;
        keys.truncate(at_most);
        if let Some((last, _)) = keys.last().filter(|_| has_more) {
            self.range.remove_through(last);
            self.next = Some(0);
        }
        Ok(keys)
    }
}

fn by_key<T>(a: &(Vec<u8>, T), b: &(Vec<u8>, T)) -> std::cmp::Ordering {
    a.0.cmp(&b.0)
}

impl<S: ListKeys> Iterator for KeyScan<S> {
    type Item = Result<(Vec<u8>, S::Object)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(key) = self.fetched.next() {
            return Some(Ok(key));
        }
        let from = self.next.take()?;
        let keys = match self.order {
            Order::Unordered => self.fetch_part(from),
            Order::ByKey => self.fetch_lowest(),
        };
        match keys {
            Ok(keys) => self.fetched = keys.into_iter(),
            Err(error) => return Some(Err(error)),
        }
        self.fetched.next().map(Ok)
    }
}

impl<S: ListKeys> fmt::Debug for KeyScan<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyScan { range, order, .. } = self;
        f.debug_struct("KeyScan").field("range", range).field("order", order).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys in the order of a listing. An entry that has the same hash as its neighbour is listed twice.
    struct Listed(Vec<Vec<u8>>);

    impl ListKeys for Listed {
        type Object = ();

        fn list(&self, from: u64, visit: &mut VisitKey<'_, ()>) -> Result<()> {
            let mut entries = self.0.iter().zip(from + 1..).skip(from as usize);
            entries.all(|(key, next)| visit(key, (), next));
            Ok(())
        }
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(b'a'), Just(0), Just(0xff)], 1..4)
    }

    proptest! {
        #[test]
        fn scan_gives_the_keys_of_its_range(
            listed in prop::collection::vec(keys(), 0..60),
            prefix in prop::collection::vec(prop_oneof![Just(b'a'), Just(0xff)], 0..3),
            bounds in (keys(), keys()),
            pass_keys in 1..10_usize,
        ) {
            let sorted: std::collections::BTreeSet<_> = listed.iter().cloned().collect();
            let (low, high) = (&bounds.0[..], &bounds.1[..]);
            type IsExpected<'a> = Box<dyn Fn(&[u8]) -> bool + 'a>;
            let prefixed: IsExpected<'_> = Box::new(|key| key.starts_with(&prefix));
            let between: IsExpected<'_> = Box::new(|key| low <= key && key <= high);
            let below: IsExpected<'_> = Box::new(|key| key < high);
            for (range, is_expected) in [
                (KeyRange::prefix(&prefix), prefixed),
                (KeyRange::new(low..=high), between),
                (KeyRange::new(..high), below),
            ] {
                let expected: Vec<_> = sorted.iter().filter(|key| is_expected(key)).cloned().collect();
                let taken = |order| {
                    let scan = KeyScan::new(Listed(listed.clone()), range.clone(), order);
                    let scan = KeyScan { pass_keys, ..scan };
                    scan.map(|key| key.expect("no error").0).collect::<Vec<_>>()
                };
                prop_assert_eq!(taken(Order::ByKey), &expected[..]);
                let mut unordered = taken(Order::Unordered);
                unordered.sort();
                unordered.dedup();
                prop_assert_eq!(unordered, &expected[..]);
            }
        }
    }
}
