//! Scans: the keys of a directory, in parts.

use std::fmt;

use eyrie_medium::sync::prefetch;

use super::{KeyRange, Order};
use crate::Result;
use crate::fetch::FetchSize;

/// Bytes of memory for the keys that a pass of an ordered scan returns. If the pass finds more keys, it drops
/// the higher half of them, and copies the rest. So for a moment it uses about one and a half times this
/// memory, or more if the lower keys are longer than the higher ones.
const PASS_BYTES: usize = 64 << 20;
/// Number of keys by which the prefetch of a key's bytes is ahead of the scan.
const AHEAD: usize = 16;

/// A function that gets a key, its object, and the position after the entry of the key. It returns false to
/// end a listing.
pub(crate) type VisitKey<'v, O> = dyn FnMut(&[u8], O, u64) -> bool + 'v;

/// A directory whose entries are keys.
pub(crate) trait ListKeys {
    /// The object that a key names.
    type Object: Copy;

    /// Calls `visit` with the keys from the position `from` on (0 is the start), until `visit` returns false.
    fn list(&self, from: u64, visit: &mut VisitKey<'_, Self::Object>) -> Result<()>;
}

/// An iterator over the keys of a directory, and their objects.
pub(crate) struct KeyScan<S: ListKeys> {
    source: S,
    /// The keys that the next fetch may return. If a pass of an ordered scan has no memory for all keys of
    /// the range, it removes the keys that it has fetched, and all lower keys, from the range.
    range: KeyRange,
    order: Order,
    fetched: FoundKeys<S::Object>,
    /// The position where the next fetch begins. `None` at the end.
    next: Option<u64>,
    fetch: FetchSize,
    pass_bytes: usize,
}

impl<S: ListKeys> KeyScan<S> {
    pub(crate) fn new(source: S, range: KeyRange, order: Order) -> KeyScan<S> {
        KeyScan {
            source,
            range,
            order,
            fetched: FoundKeys::default(),
            next: Some(0),
            fetch: FetchSize::first(),
            pass_bytes: PASS_BYTES,
        }
    }

    pub(crate) fn source(&self) -> &S {
        &self.source
    }

    /// Returns the object of the key that comes `distance` keys later, if that key is fetched already.
    pub(crate) fn ahead(&self, distance: usize) -> Option<S::Object> {
        self.fetched.keys.get(self.fetched.returned + distance).map(|key| key.object)
    }

    /// Fetches keys in the order of the directory from `from` on.
    fn fetch_part(&mut self, from: u64) -> Result<()> {
        let at_most = self.fetch.next();
        let mut more = None;
        self.fetched.clear();
        let (range, fetched) = (&self.range, &mut self.fetched);
        self.source.list(from, &mut |key, object, next| {
            if range.contains(key) {
                fetched.push(key, object);
            }
            let full = fetched.keys.len() >= at_most;
            more = full.then_some(next);
            !full
        })?;
        self.next = more;
        Ok(())
    }

    /// Fetches the lowest keys of the range, in order, with a pass over the whole directory.
    fn fetch_lowest(&mut self) -> Result<()> {
        // The keys from this bound on are not among the lowest keys, which this pass returns.
        let mut bound: Option<Vec<u8>> = None;
        self.fetched.clear();
        let (range, fetched, at_most) = (&self.range, &mut self.fetched, self.pass_bytes);
        self.source.list(0, &mut |key, object, _| {
            if range.contains(key) && bound.as_ref().is_none_or(|bound| key < &bound[..]) {
                fetched.push(key, object);
                if fetched.bytes() > at_most {
                    bound = fetched.drop_higher_half().or(bound.take());
                }
            }
            true
        })?;
        fetched.sort();
        if let (Some(_), Some(last)) = (bound, fetched.keys.last()) {
            self.range.remove_through(last.bytes(&fetched.names));
            self.next = Some(0);
        }
        Ok(())
    }
}

/// A key that a fetch has found.
#[derive(Clone, Copy)]
struct FoundKey<O> {
    /// After a sort: the first eight bytes in which the keys may differ, as a number. These numbers sort as
    /// the bytes do.
    prefix: u64,
    /// Place of the key in the buffer.
    first: u32,
    len: u16,
    object: O,
}

impl<O> FoundKey<O> {
    fn bytes<'n>(&self, names: &'n [u8]) -> &'n [u8] {
        &names[self.first as usize..][..usize::from(self.len)]
    }
}

/// The keys that a fetch has found, and their objects. The bytes of all keys are in one buffer.
struct FoundKeys<O> {
    names: Vec<u8>,
    keys: Vec<FoundKey<O>>,
    /// Number of keys that the scan has returned already.
    returned: usize,
}

impl<O> Default for FoundKeys<O> {
    fn default() -> FoundKeys<O> {
        FoundKeys { names: Vec::new(), keys: Vec::new(), returned: 0 }
    }
}

impl<O: Copy> FoundKeys<O> {
    fn clear(&mut self) {
        self.names.clear();
        self.keys.clear();
        self.returned = 0;
    }

    fn push(&mut self, key: &[u8], object: O) {
        let (first, len) = (self.names.len() as u32, key.len() as u16);
        self.names.extend_from_slice(key);
        self.keys.push(FoundKey { prefix: 0, first, len, object });
    }

    /// Returns the number of bytes of memory that the keys take.
    fn bytes(&self) -> usize {
        self.names.len() + self.keys.len() * size_of::<FoundKey<O>>()
    }

    /// Drops the higher half of the keys, and returns the lowest dropped key. If there is only one key, keeps
    /// it and returns `None`.
    fn drop_higher_half(&mut self) -> Option<Vec<u8>> {
        let half = self.keys.len() / 2;
        if half == 0 {
            return None;
        }
        let names = &self.names;
        let in_order = |a: &FoundKey<O>, b: &FoundKey<O>| a.bytes(names).cmp(b.bytes(names));
        let (_, lowest, _) = self.keys.select_nth_unstable_by(half, in_order);
        let lowest = lowest.bytes(names).to_vec();
        self.keys.truncate(half);
        let mut kept = Vec::new();
        for key in &mut self.keys {
            let first = kept.len() as u32;
            kept.extend_from_slice(key.bytes(names));
            key.first = first;
        }
        self.names = kept;
        Some(lowest)
    }

    /// Sorts the keys, and removes repeated keys.
    fn sort(&mut self) {
        let names = &self.names;
        let Some(one) = self.keys.first().map(|key| key.bytes(names)) else { return };
        // Keys often begin with the same bytes. The bytes after these differ, and decide most comparisons
        // without a look into the buffer.
        let shared = self.keys.iter().fold(one.len(), |shared, key| {
            one[..shared].iter().zip(key.bytes(names)).take_while(|(a, b)| a == b).count()
        });
        for key in &mut self.keys {
            let mut prefix = [0; 8];
            prefix.iter_mut().zip(&key.bytes(names)[shared..]).for_each(|(to, byte)| *to = *byte);
            key.prefix = u64::from_be_bytes(prefix);
        }
        self.keys.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| a.bytes(names).cmp(b.bytes(names)))
        });
        // A directory may list an entry twice if an entry with the same hash is made meanwhile.
        self.keys
            .dedup_by(|key, before| key.prefix == before.prefix && key.bytes(names) == before.bytes(names));
    }

    /// Returns the next key.
    fn next(&mut self) -> Option<(Vec<u8>, O)> {
        let key = self.keys.get(self.returned)?;
        if let Some(later) = self.keys.get(self.returned + AHEAD) {
            prefetch(&self.names[later.first as usize]);
        }
        self.returned += 1;
        Some((key.bytes(&self.names).to_vec(), key.object))
    }
}

impl<S: ListKeys> Iterator for KeyScan<S> {
    type Item = Result<(Vec<u8>, S::Object)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(key) = self.fetched.next() {
            return Some(Ok(key));
        }
        let from = self.next.take()?;
        let fetched = match self.order {
            Order::Unordered => self.fetch_part(from),
            Order::ByKey => self.fetch_lowest(),
        };
        if let Err(error) = fetched {
            // The keys that were fetched before the error may be incomplete.
            self.fetched.clear();
            return Some(Err(error));
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
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// Keys in the order of a listing. The list may have a key twice, as a directory may list an entry twice.
    struct Listed(Vec<Vec<u8>>);

    impl ListKeys for Listed {
        type Object = ();

        fn list(&self, from: u64, visit: &mut VisitKey<'_, ()>) -> Result<()> {
            let mut entries = self.0.iter().zip(from + 1..).skip(from as usize);
            entries.all(|(key, next)| visit(key, (), next));
            Ok(())
        }
    }

    /// Bytes of memory of the longest key that [`keys`] gives.
    const ONE_KEY: usize = 3 + size_of::<FoundKey<()>>();

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(b'a'), Just(0), Just(0xff)], 1..4)
    }

    /// Counts the passes over its keys.
    struct CountedPasses(Listed, Cell<usize>);

    impl ListKeys for CountedPasses {
        type Object = ();

        fn list(&self, from: u64, visit: &mut VisitKey<'_, ()>) -> Result<()> {
            self.1.set(self.1.get() + 1);
            self.0.list(from, visit)
        }
    }

    #[test]
    fn each_pass_of_a_scan_returns_at_least_half_of_what_fits() {
        const KEYS: usize = 1000;
        const FITTING: usize = 100;
        // The odd factor makes the order of the listing differ from the order of the keys.
        let key = |number: u32| number.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec();
        let source = CountedPasses(Listed((0..KEYS as u32).map(key).collect()), Cell::new(0));
        let pass_bytes = FITTING * (4 + size_of::<FoundKey<()>>());
        let scan = KeyScan::new(source, KeyRange::all(), Order::ByKey);
        let mut scan = KeyScan { pass_bytes, ..scan };
        assert_eq!(scan.by_ref().collect::<Result<Vec<_>>>().expect("no error").len(), KEYS);
        let passes = scan.source().1.get();
        assert!((KEYS / FITTING..=2 * KEYS / FITTING + 1).contains(&passes), "{passes} passes");
    }

    proptest! {
        #[test]
        fn scan_gives_the_keys_of_its_range(
            listed in prop::collection::vec(keys(), 0..60),
            prefix in prop::collection::vec(prop_oneof![Just(b'a'), Just(0xff)], 0..3),
            bounds in (keys(), keys()),
            pass_bytes in 1..300_usize,
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
                    let (mut scan, mut kept) = (KeyScan { pass_bytes, ..scan }, 0);
                    let mut keys = Vec::new();
                    while let Some(key) = scan.next() {
                        keys.push(key.expect("no error").0);
                        kept = kept.max(scan.fetched.bytes());
                    }
                    (keys, kept)
                };
                let (in_order, kept) = taken(Order::ByKey);
                prop_assert_eq!(in_order, &expected[..]);
                // A pass keeps at least one key.
                prop_assert!(kept <= pass_bytes.max(ONE_KEY), "{} bytes", kept);
                let mut unordered = taken(Order::Unordered).0;
                unordered.sort();
                unordered.dedup();
                prop_assert_eq!(unordered, &expected[..]);
            }
        }
    }
}
