//! Gets in place, and the comparison of the lent values.

use super::{KeyWorker, TIMED_CALLS};
use crate::error::{Error, Result};
use crate::method::Stopwatch;

impl KeyWorker {
    /// Looks at values in place. Compares all of their bytes after the last timed call: a comparison between
    /// the timed calls would bring whole values into the caches.
    pub(super) fn view(&mut self, at: usize, calls: u64, watch: &mut Stopwatch) -> Result<()> {
        let mut viewed = Vec::with_capacity(calls as usize + TIMED_CALLS);
        for _ in 0..calls.div_ceil(TIMED_CALLS as u64) {
            let numbers = self.random_keys(at);
            let store = &mut self.stores[at];
            let first = store.first;
            let session = store.session()?;
            let mut found = [(0, [0; 8]); TIMED_CALLS];
            watch.time(TIMED_CALLS, |at| {
                session.view(self.key.key(first + numbers[at]), &mut |value| {
                    found[at] = (value.len(), value.first_chunk().copied().unwrap_or_default());
                })?;
                Ok(())
            })?;
            for (number, (length, word)) in numbers.into_iter().zip(found) {
                watch.touch(number);
                let head = &word[..length.min(8)];
                let right = length == store.value_bytes && store.content(number).matches(head, 0);
                watch.require(right, || format!("key {number} has a wrong value"))?;
            }
            viewed.extend(numbers);
        }
        self.compare_views(at, &viewed, watch)
    }

    fn compare_views(&mut self, at: usize, numbers: &[u64], watch: &mut Stopwatch) -> Result<()> {
        let store = &mut self.stores[at];
        let mut session = store.session.take().ok_or_else(|| Error::wrong("the store is missing"))?;
        for &number in numbers {
            let mut right = false;
            session.view(self.key.key(store.first + number), &mut |value| {
                right = store.is_right(number, value);
            })?;
            watch.require(right, || format!("key {number} has a wrong value in place"))?;
        }
        store.session = Some(session);
        Ok(())
    }
}
