//! The pace of Ops while other threads synchronise.
//!
//! A drain writes all *fresh* pages (pages that the allocator gave out since the last cut), because they are
//! part of its cut. So a thread that synchronises one small change waits for the fresh pages of all other
//! threads. Therefore Ops wait, or drain, while there are too many fresh pages: more than the sum of
//! [`MIN_FRESH`] and a fixed part of all pages that were fresh in the cuts since a thread last synchronised.
//! So a sync costs a small part of the time since the sync before it.
//!
//! The thread that synchronised last has no such limit, because it waits only for its own pages. So a program
//! with one thread, and a volume that nobody synchronises, write as fast as memory permits. The limit itself
//! depends on pages and not on time, so that the speed of the disk does not decide where the cuts are. But it
//! *expires* some time after the last sync: threads that go on writing are then as fast as if nobody had
//! synchronised.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::epoch;

/// The lowest limit of fresh pages: 128 KiB, which an SSD writes in about the time of a flush.
pub(super) const MIN_FRESH: usize = 32;
/// An Op that makes at most this many pages fresh is small. A large Op never waits while at most this many
/// pages are fresh.
pub(super) const FEW: usize = 8;
/// The number of pages that were fresh in the cuts since the last sync, divided by this number, is added to
/// [`MIN_FRESH`]. Up to this sum, fresh pages delay no Op.
const PART: usize = 8;
/// Maximum number of early drains that the keeper makes in one interval of its drains. With the default
/// interval, early drains are at least a millisecond apart.
const EARLY_DRAINS: u32 = 5000;
/// The limit expires when no thread has synchronised for this many times the interval between the last two
/// syncs. A thread that synchronises at intervals is rarely later than that.
const INTERVALS: u32 = 8;
/// Least time until the limit expires. A thread that synchronises all the time may have to wait this long for
/// a processor.
const LEAST_EXPIRY: Duration = Duration::from_millis(50);
/// Longest time until the limit expires. While the limit lasts, other threads are as slow as the disk, so it
/// must end soon after the last sync.
const LONGEST_EXPIRY: Duration = Duration::from_secs(1);
/// A thread that synchronises again and again begins its next drain within this time after the last drain.
const NEXT_SYNC_DRAIN: Duration = Duration::from_micros(100);

/// The counts of fresh pages.
pub(super) struct Pace {
    /// Number of fresh pages of the next cut.
    fresh: AtomicUsize,
    /// Number of pages that were fresh in the cuts since a thread last synchronised. `usize::MAX` if no
    /// thread has synchronised yet.
    since_sync: AtomicUsize,
    /// The [index](epoch::thread_index) of the thread that synchronised last. A later thread may get the same
    /// index. That thread then writes without a limit until another thread synchronises. The reuse of an
    /// index does no other harm.
    syncer: AtomicUsize,
    opened: Instant,
    /// The end of the last sync, in µs after `opened`.
    synced_us: AtomicU64,
    /// The time at which the limit expires, in µs after `opened`.
    expires_us: AtomicU64,
    /// The end of the last drain, in µs after `opened`.
    drained_us: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace {
            fresh: AtomicUsize::new(0),
            since_sync: AtomicUsize::new(usize::MAX),
            syncer: AtomicUsize::new(usize::MAX),
            opened: Instant::now(),
            synced_us: AtomicU64::new(0),
            expires_us: AtomicU64::new(0),
            drained_us: AtomicU64::new(0),
        }
    }

    /// Counts a page that became fresh. Returns true if the keeper should look at [`Pace::is_pressing`].
    pub(super) fn one_more(&self) -> bool {
        let fresh = self.fresh.fetch_add(1, Ordering::Relaxed) + 1;
        fresh.is_multiple_of(MIN_FRESH) && fresh > self.most_fresh() / 2 && self.limits_this_thread()
    }

    /// Counts a fresh page that was freed before its cut.
    pub(super) fn one_less(&self) {
        // A thread outside the gate may free a page just after the cut, when the count is zero.
        let _ = self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |fresh| fresh.checked_sub(1));
    }

    /// Counts the fresh pages of a cut. The caller makes the cut, and no Op is in progress.
    pub(super) fn cut(&self) {
        let fresh = self.fresh.swap(0, Ordering::Relaxed);
        let before = self.since_sync.load(Ordering::Relaxed);
        self.since_sync.store(before.saturating_add(fresh), Ordering::Relaxed);
    }

    /// Notes that this thread has synchronised.
    pub(super) fn synced(&self) {
        self.since_sync.store(0, Ordering::Relaxed);
        self.syncer.store(epoch::thread_index(), Ordering::Relaxed);
        let now = self.opened.elapsed();
        let before = self.synced_us.swap(now.as_micros() as u64, Ordering::Relaxed);
        let expires = now + lifetime(now.saturating_sub(Duration::from_micros(before)));
        self.expires_us.store(expires.as_micros() as u64, Ordering::Relaxed);
    }

    /// Makes the limit last for ever, or expire now.
    #[cfg(test)]
    pub(super) fn set_lasting(&self, lasting: bool) {
        self.expires_us.store(if lasting { u64::MAX } else { 0 }, Ordering::Relaxed);
    }

    /// Notes the end of a drain.
    pub(super) fn drained(&self) {
        self.drained_us.store(self.opened.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    /// Returns the number of fresh pages of the next cut.
    #[cfg(test)]
    pub(super) fn fresh(&self) -> usize {
        self.fresh.load(Ordering::Relaxed)
    }

    /// Returns the limit of fresh pages for large Ops.
    fn most_fresh(&self) -> usize {
        MIN_FRESH + self.since_sync.load(Ordering::Relaxed) / PART
    }

    /// Returns true if an Op that may make `pages` pages fresh must wait. The thread that synchronised last
    /// never waits, and no thread waits after the limit has expired. The pages of one Op are always in one
    /// cut, so a large Op waits for a cut of its own rather than exceed the limit together with others. It
    /// does not wait if only a few pages are fresh, because an Op whose own pages exceed the limit would then
    /// wait for ever. The limit for small Ops is twice as high, so that they seldom wait because of the large
    /// Ops of other threads.
    pub(super) fn is_ahead(&self, pages: usize) -> bool {
        let fresh = self.fresh.load(Ordering::Relaxed);
        let is_over = if pages > FEW {
            fresh > FEW && fresh.saturating_add(pages) > self.most_fresh()
        } else {
            fresh > 2 * MIN_FRESH && fresh / 2 > self.most_fresh()
        };
        is_over && self.limits_this_thread()
    }

    /// Returns true if another thread synchronised last, and the limit has not expired.
    fn limits_this_thread(&self) -> bool {
        self.syncer.load(Ordering::Relaxed) != epoch::thread_index() && !self.has_expired()
    }

    /// Returns true if no thread has synchronised for some time. The call reads the clock, so callers first
    /// compare the counts of pages.
    fn has_expired(&self) -> bool {
        self.opened.elapsed() >= Duration::from_micros(self.expires_us.load(Ordering::Relaxed))
    }

    /// Returns true if the last drain ended just now. If a thread synchronises again and again, it begins its
    /// next drain soon. If an Op that is ahead of its pace began a drain first, that thread would have to
    /// wait for the drain of the Op.
    pub(super) fn has_just_drained(&self) -> bool {
        self.since_drain() < NEXT_SYNC_DRAIN
    }

    /// Returns the time since the last drain.
    fn since_drain(&self) -> Duration {
        let drained = Duration::from_micros(self.drained_us.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(drained)
    }

    /// Returns true if the keeper should drain before its `interval` has passed, because Ops will soon have
    /// to wait. The result is false shortly after a drain: if a thread synchronises again and again, a drain
    /// of the keeper would only delay the next drain of that thread.
    pub(super) fn is_pressing(&self, interval: Duration) -> bool {
        self.fresh.load(Ordering::Relaxed) > self.most_fresh() / 2
            && self.since_drain() > interval / EARLY_DRAINS
            && !self.has_expired()
    }
}

/// Returns how long the limit lasts after a sync. `interval` is the time since the sync before that. If the
/// next sync is not expected before the longest expiry, a long limit would only make other threads slow, so
/// the limit lasts for the least time.
fn lifetime(interval: Duration) -> Duration {
    match interval > LONGEST_EXPIRY {
        true => LEAST_EXPIRY,
        false => interval.saturating_mul(INTERVALS).clamp(LEAST_EXPIRY, LONGEST_EXPIRY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_lasts_for_several_intervals() {
        let ms = Duration::from_millis;
        assert_eq!(lifetime(Duration::ZERO), LEAST_EXPIRY);
        assert_eq!(lifetime(ms(20)), ms(160));
        assert_eq!(lifetime(ms(200)), LONGEST_EXPIRY);
        assert_eq!(lifetime(ms(3_600_000)), LEAST_EXPIRY, "the next sync is far away");
    }

    #[test]
    fn limit_begins_with_a_sync_of_another_thread_and_expires() {
        let pace = Pace::new();
        assert!(!pace.limits_this_thread(), "no thread has synchronised");
        // This thread claims its slot first, so that the other one gets another slot.
        drop(epoch::pin());
        let before = pace.opened.elapsed();
        std::thread::scope(|scope| scope.spawn(|| pace.synced()).join().expect("no panic"));
        let expires = Duration::from_micros(pace.expires_us.load(Ordering::Relaxed));
        assert!(expires >= before + LEAST_EXPIRY - Duration::from_micros(1));
        pace.set_lasting(true);
        assert!(pace.limits_this_thread());
        pace.set_lasting(false);
        assert!(!pace.limits_this_thread());
        pace.set_lasting(true);
        pace.synced();
        assert!(!pace.limits_this_thread(), "a thread does not wait because of its own sync");
    }
}
