//! Ranges of keys.

use std::ops::{Bound, RangeBounds};

/// A range of keys, in byte order.
///
/// ```
/// use eyrie::KeyRange;
///
/// assert!(KeyRange::prefix("user:").contains(b"user:ada"));
/// assert!(KeyRange::new("a".."c").contains(b"b") && !KeyRange::new("a".."c").contains(b"c"));
/// assert!(KeyRange::new("a"..).contains(b"zebra"));
/// assert!(KeyRange::all().contains(b"\xff"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyRange {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Returns the range of all keys.
    ///
    /// ```
    /// assert!(eyrie::KeyRange::all().contains(b"any key"));
    /// ```
    pub const fn all() -> KeyRange {
        KeyRange { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// Returns the range of the keys between the bounds of `range`, which are slices, such as `&[u8]` and
    /// `&str`, or owned, such as `String`. If the start is after the end, the range has no keys.
    ///
    /// ```
    /// use std::ops::Bound;
    ///
    /// use eyrie::KeyRange;
    ///
    /// let after = KeyRange::new::<&str>((Bound::Excluded("b"), Bound::Unbounded));
    /// assert!(after.contains(b"ba") && !after.contains(b"b"));
    /// assert!(KeyRange::new("a"..="c").contains(b"c"));
    /// ```
    pub fn new<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> KeyRange {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        KeyRange { start: owned(range.start_bound()), end: owned(range.end_bound()) }
    }

    /// Returns the range of the keys that begin with `prefix`. An empty prefix gives all keys.
    ///
    /// ```
    /// let users = eyrie::KeyRange::prefix("user:");
    /// assert!(users.contains(b"user:ada") && !users.contains(b"users"));
    /// ```
    pub fn prefix(prefix: impl AsRef<[u8]>) -> KeyRange {
        let prefix = prefix.as_ref();
        // The range ends before the first key after all keys with the prefix. This key is the prefix without
        // its trailing bytes of 0xFF, and with its last remaining byte increased by 1.
        let end = match prefix.iter().rposition(|&byte| byte < u8::MAX) {
            Some(last) => {
                let mut end = prefix[..=last].to_vec();
                end[last] += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        KeyRange { start: Bound::Included(prefix.to_vec()), end }
    }

    /// Returns true if `key` is in the range.
    ///
    /// ```
    /// assert!(!eyrie::KeyRange::new("a".."c").contains(b"c"));
    /// ```
    pub fn contains(&self, key: &[u8]) -> bool {
        let starts = match &self.start {
            Bound::Included(start) => &start[..] <= key,
            Bound::Excluded(start) => &start[..] < key,
            Bound::Unbounded => true,
        };
        starts
            && match &self.end {
                Bound::Included(end) => key <= &end[..],
                Bound::Excluded(end) => key < &end[..],
                Bound::Unbounded => true,
            }
    }

    /// Removes `key`, which is in the range, and all keys before it.
    pub(super) fn remove_through(&mut self, key: &[u8]) {
        debug_assert!(self.contains(key), "a key before the range would enlarge the range");
        self.start = Bound::Excluded(key.to_vec());
    }
}
