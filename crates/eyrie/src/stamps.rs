//! Time stamps of calls, with the multigrain scheme of Linux since 6.13.
//!
//! A change gets the time of the coarse clock, which moves every few milliseconds and is cheap to read. If
//! `stat` has already returned that time for the object, a change with the same time would go unnoticed. So
//! the change gets the time of the fine clock instead.
//!
//! Objects are divided into stripes by their ids. Each stripe keeps the newest stamp that `stat` has returned
//! for one of its objects. This stamp is never cleared, because it has no effect after the coarse clock has
//! passed it. Changes of objects that share a stripe read the fine clock more often than needed, never less
//! often. The newest stamp of the fine clock is the floor: no later stamp has an earlier time. So the times
//! of different files are in the order of their changes.
//!
//! This state is volatile. All volumes of the process share it.
//!
//! All accesses are relaxed, because no atomic here guards other memory. A thread that learned a stamp from
//! another thread has synchronised with that thread, so it reads that stamp or a later one.

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::{ObjectId, Time};
use rustix::time::{ClockId, clock_gettime};

/// Number of stripes, a power of two. Their stamps take 32 KiB.
const STRIPES: usize = 4096;
/// Log2 of the 256 bytes of a header, which is the least distance between objects. The lower bits of an id
/// hold no address, so an index with them would leave stripes unused.
const HEADER_SHIFT: u32 = 8;
const NANOSECONDS: u64 = 1_000_000_000;
/// A floor or a seen stamp is ignored if it is ahead of the clock by this number of nanoseconds or more. Such
/// a stamp comes from a time before the clock was set back.
const AHEAD_MOST: u64 = NANOSECONDS;

static STAMPS: Stamps = Stamps::new();

/// The source of time stamps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The clocks of the system.
    System,
    /// A function that returns every stamp.
    #[cfg(any(test, feature = "testing"))]
    Given(fn() -> Time),
}

impl Clock {
    /// Returns the stamp for a change of these objects.
    #[inline]
    pub(crate) fn stamp<const N: usize>(self, ids: [ObjectId; N]) -> Time {
        match self {
            Clock::System => {
                let seen = ids.map(|id| STAMPS.stripe(id).load(Ordering::Relaxed));
                STAMPS.stamp(seen.into_iter().fold(0, u64::max), coarse_time(), fine_time)
            }
            #[cfg(any(test, feature = "testing"))]
            Clock::Given(clock) => clock(),
        }
    }

    /// Returns the stamp for a change of objects that the caller does not know. A stamp of the system's
    /// clocks is newer than every stamp that `stat` has returned for any object.
    #[inline]
    pub(crate) fn stamp_of_any(self) -> Time {
        match self {
            Clock::System => STAMPS.stamp(STAMPS.newest.load(Ordering::Relaxed), coarse_time(), fine_time),
            #[cfg(any(test, feature = "testing"))]
            Clock::Given(clock) => clock(),
        }
    }
}

/// Notes that a caller has seen the change time of an object.
#[inline(always)]
pub(crate) fn note_seen(id: ObjectId, changed: Time) {
    STAMPS.note_seen(id, nanoseconds(changed));
}

/// Returns the time of the clock with which the kernel stamps files. This clock moves every few milliseconds,
/// and is read without a system call.
pub(crate) fn coarse_time() -> Time {
    time_of(ClockId::RealtimeCoarse)
}

fn fine_time() -> Time {
    time_of(ClockId::Realtime)
}

fn time_of(clock: ClockId) -> Time {
    let now = clock_gettime(clock);
    Time::new(now.tv_sec, now.tv_nsec as u32)
}

/// Returns a time as one number, in nanoseconds. Times before 1970 count as 1970.
#[inline(always)]
fn nanoseconds(time: Time) -> u64 {
    (time.seconds.max(0) as u64).wrapping_mul(NANOSECONDS).wrapping_add(u64::from(time.nanoseconds))
}

fn time(nanoseconds: u64) -> Time {
    Time::new((nanoseconds / NANOSECONDS) as i64, (nanoseconds % NANOSECONDS) as u32)
}

/// The stamps that callers have seen, and the floor. All are in nanoseconds.
struct Stamps {
    seen: [AtomicU64; STRIPES],
    /// The newest stamp that a caller has seen, of any object.
    newest: AtomicU64,
    /// The newest stamp of the fine clock.
    floor: AtomicU64,
}

impl Stamps {
    const fn new() -> Stamps {
        Stamps {
            seen: [const { AtomicU64::new(0) }; STRIPES],
            newest: AtomicU64::new(0),
            floor: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn stripe(&self, id: ObjectId) -> &AtomicU64 {
        &self.seen[(id.raw() >> HEADER_SHIFT) as usize % STRIPES]
    }

    #[inline(always)]
    fn note_seen(&self, id: ObjectId, stamp: u64) {
        let stripe = self.stripe(id);
        if stripe.load(Ordering::Relaxed) < stamp {
            self.note(stripe, stamp);
        }
    }

    #[cold]
    fn note(&self, stripe: &AtomicU64, stamp: u64) {
        stripe.fetch_max(stamp, Ordering::Relaxed);
        if self.newest.load(Ordering::Relaxed) < stamp {
            self.newest.fetch_max(stamp, Ordering::Relaxed);
        }
    }

    /// Returns a stamp for a change of objects. `seen` is the newest of their stamps that a caller has seen.
    #[inline]
    fn stamp(&self, seen: u64, coarse: Time, fine: impl FnOnce() -> Time) -> Time {
        let now = nanoseconds(coarse);
        if seen < now && self.floor.load(Ordering::Relaxed) <= now {
            return coarse;
        }
        self.later_stamp(seen, now, fine)
    }

    #[cold]
    fn later_stamp(&self, seen: u64, coarse: u64, fine: impl FnOnce() -> Time) -> Time {
        let mut floor = self.floor.load(Ordering::Relaxed);
        let least = if must_be_exceeded(floor, coarse) { floor } else { coarse };
        // No caller has seen `least` as a stamp of these objects, so it can be used without a reading of the
        // fine clock.
        if seen < least {
            return time(least);
        }
        let mut stamp = nanoseconds(fine()).max(least);
        if must_be_exceeded(seen, stamp) {
            // Two readings of the fine clock may be equal.
            stamp = seen + 1;
        }
        // Raises the floor to this stamp. Another thread may have raised the floor at least as far already. A
        // floor far ahead is from a time before the clock was set back, and is replaced by the lower stamp.
        while !must_be_exceeded(floor, stamp) {
            match self.floor.compare_exchange_weak(floor, stamp, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(raised) => floor = raised,
            }
        }
        time(stamp)
    }
}

/// Returns true if a later stamp must not be `now`, because `earlier` is the same time or a newer one. An
/// earlier stamp far ahead of `now` is ignored, because the clock must have been set back.
fn must_be_exceeded(earlier: u64, now: u64) -> bool {
    earlier >= now && earlier - now < AHEAD_MOST
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_engine::Kind;

    fn file(number: u64) -> ObjectId {
        ObjectId::new(number << HEADER_SHIFT, Kind::File)
    }

    /// Returns the stamp for a change of `id` with these readings of the clocks, in nanoseconds.
    fn stamp(stamps: &Stamps, id: ObjectId, coarse: u64, fine: u64) -> u64 {
        let seen = stamps.stripe(id).load(Ordering::Relaxed);
        nanoseconds(stamps.stamp(seen, time(coarse), || time(fine)))
    }

    #[test]
    fn stamp_is_fine_only_after_a_look() {
        let stamps = Stamps::new();
        let (a, b) = (file(1), file(2));
        assert_eq!([stamp(&stamps, a, 1000, 1007), stamp(&stamps, a, 1000, 1008)], [1000, 1000]);
        stamps.note_seen(a, 1000);
        assert_eq!(stamp(&stamps, a, 1000, 1010), 1010);
        assert_eq!(
            stamp(&stamps, b, 1000, 1020),
            1010,
            "no stamp is before an earlier one, nor finer than needed"
        );
        assert_eq!(stamp(&stamps, a, 1000, 1030), 1010, "no caller has seen the last stamp");
        stamps.note_seen(a, 1010);
        assert_eq!(stamp(&stamps, a, 1000, 1040), 1040);
        assert_eq!(stamp(&stamps, a, 5000, 5001), 5000, "the coarse clock has moved on");
    }

    #[test]
    fn seen_stamp_is_never_repeated() {
        let stamps = Stamps::new();
        stamps.note_seen(file(1), 1000);
        assert_eq!(
            stamp(&stamps, file(1), 1000, 1000),
            1001,
            "both clocks have the same time as the seen stamp"
        );
        stamps.note_seen(file(1), 1001);
        assert_eq!(stamp(&stamps, file(1), 1000, 1001), 1002);
    }

    #[test]
    fn look_at_old_stamp_keeps_newer_one() {
        let stamps = Stamps::new();
        let same_stripe = file(1 + STRIPES as u64);
        stamps.note_seen(file(1), 1000);
        stamps.note_seen(same_stripe, 500);
        assert_eq!(stamp(&stamps, file(1), 1000, 1010), 1010);
    }

    #[test]
    fn clock_set_back_is_followed() {
        let stamps = Stamps::new();
        let hour = 3600 * NANOSECONDS;
        stamps.note_seen(file(1), 2 * hour);
        assert_eq!(stamp(&stamps, file(1), 2 * hour, 2 * hour + 5), 2 * hour + 5);
        stamps.note_seen(file(1), 2 * hour + 5);
        assert_eq!(stamp(&stamps, file(1), hour, hour + 7), hour + 7);
        assert_eq!(stamp(&stamps, file(2), hour, hour + 8), hour + 7);
    }

    #[test]
    fn extreme_times_do_no_harm() {
        let stamps = Stamps::new();
        for seconds in [i64::MIN, -1, i64::MAX] {
            stamps.note_seen(file(1), nanoseconds(Time::new(seconds, 999_999_999)));
        }
        assert!(stamp(&stamps, file(1), 1000, 1010) <= 1010);
        assert_eq!(stamp(&stamps, file(2), 2000, 2010), 2000);
    }
}
