//! Scans of a store. Each scan checks the number of keys that it finds and, unless several threads share the
//! store, the sum of their values.

use super::LoadedStore;
use crate::error::Result;
use crate::method::Stopwatch;

/// Returns the sum of the words of a value, and of the bytes after the last word.
fn sum_of(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

impl LoadedStore {
    /// Scans all values. Compares the number of keys and the sum of all values: a comparison of each value
    /// would take longer than the scan.
    pub(super) fn scan(&mut self, sorted: bool, watch: &mut Stopwatch) -> Result<()> {
        let (mut count, mut sum) = (0, 0_u64);
        let (keys, all) = (self.keys(), self.all);
        let session = self.session()?;
        watch.time_whole(all, || {
            session.scan(sorted, &mut |_, value| {
                count += 1;
                sum = sum.wrapping_add(sum_of(value));
            })
        })?;
        (0..keys).for_each(|key| watch.touch(key));
        watch.require(count == all, || format!("a scan found {count} keys"))?;
        // A thread knows only the values of its own keys, so it cannot compute the sum of a shared store.
        watch.require(keys != all || sum == self.expected_sum(), || "a scan found other values".to_owned())
    }

    fn expected_sum(&self) -> u64 {
        let mut value = vec![0; self.value_bytes];
        (0..self.keys()).fold(0, |sum, key| {
            self.content(key).fill(&mut value, 0);
            sum.wrapping_add(sum_of(&value))
        })
    }
}
