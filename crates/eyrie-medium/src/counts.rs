//! Counts of the calls that order stores, for each thread.

use std::cell::Cell;
use std::ops::AddAssign;

/// The barriers and publishes of one thread since it began, on all media. Only the difference of two counts
/// has a meaning.
///
/// # Examples
/// ```
/// # use eyrie_medium::OrderCounts;
/// let before = OrderCounts::of_this_thread();
/// // ... calls on a volume ...
/// let spent = OrderCounts::of_this_thread().since(before);
/// assert_eq!(spent, OrderCounts::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct OrderCounts {
    /// The barriers: each one orders the earlier stores of the thread before its later stores.
    pub barriers: u64,
    /// The words that were committed atomically. Several words of one cache line that one call commits in a
    /// fixed order count as one.
    pub publishes: u64,
}

thread_local! {
    // The initial values are constants and the cells have no destructor, so an access does not test the state
    // of the thread-local.
    static OF_THREAD: (Cell<u64>, Cell<u64>) = const { (Cell::new(0), Cell::new(0)) };
}

impl OrderCounts {
    /// Returns the counts of the calling thread.
    pub fn of_this_thread() -> OrderCounts {
        OF_THREAD.with(|(barriers, publishes)| OrderCounts {
            barriers: barriers.get(),
            publishes: publishes.get(),
        })
    }

    /// Returns the difference to an earlier count of the same thread.
    #[must_use]
    pub fn since(self, earlier: OrderCounts) -> OrderCounts {
        OrderCounts {
            barriers: self.barriers.wrapping_sub(earlier.barriers),
            publishes: self.publishes.wrapping_sub(earlier.publishes),
        }
    }
}

impl AddAssign for OrderCounts {
    fn add_assign(&mut self, other: OrderCounts) {
        self.barriers = self.barriers.wrapping_add(other.barriers);
        self.publishes = self.publishes.wrapping_add(other.publishes);
    }
}

#[inline]
pub(crate) fn count_barrier() {
    OF_THREAD.with(|(barriers, _)| barriers.set(barriers.get().wrapping_add(1)));
}

#[inline]
pub(crate) fn count_publish() {
    OF_THREAD.with(|(_, publishes)| publishes.set(publishes.get().wrapping_add(1)));
}
