//! Expels clients whose pins keep other clients from making progress. In a full volume, these are the clients
//! that keep storage from being reused. On a disk, these are the clients that keep too many pages in memory
//! for too long.

use std::time::{Duration, Instant};

use eyrie_engine::Engine;
use eyrie_medium::epoch::{self, Epoch};

use super::Service;
use crate::requests::StorageWaits;
use crate::session::Session;

/// Time for which the clock of grace periods must stand still while a request or an entry waits for storage,
/// before the service expels the clients that keep the storage from being reused.
const STORAGE_WAIT: Duration = Duration::from_millis(50);
/// Maximum time for which a request waits for storage, if the clock moves meanwhile.
const LONGEST_STORAGE_WAIT: Duration = Duration::from_millis(100);
/// Time between two answers to requests that wait for an entry of a log, if no client keeps storage from
/// being reused, or if the requests have waited long enough for such a client. A client that gets such an
/// answer repeats its call under another pin. It repeats a call at most a thousand times, which must take
/// longer than an entry waits. Tests under the scheduler do not depend on the time.
const ENTRY_PAUSE: Duration =
    if cfg!(feature = "shuttle") { Duration::ZERO } else { Duration::from_millis(2) };
/// Time for which a pin may keep an overfull page cache from evicting pages, if its process requests no page
/// meanwhile.
const IDLE_PIN: Duration = Duration::from_secs(1);
/// As [`IDLE_PIN`], for a process that continues to request pages.
const LONGEST_PIN: Duration = Duration::from_secs(30);
/// Longest sleep of the service while the page cache is overfull. Otherwise a service without requests would
/// not notice that [`IDLE_PIN`] is over.
const OVERFULL_SLEEP: Duration = Duration::from_millis(100);

/// The epoch at which the clock of grace periods stands still, and the time at which the service saw this
/// first.
#[derive(Default)]
pub(super) struct StuckClock(Option<(Epoch, Instant)>);

impl StuckClock {
    /// Returns the time for which the clock has stood still, counted from the first call with its epoch.
    fn stuck_for(&mut self, epoch: Epoch, now: Instant) -> Duration {
        match self.0 {
            Some((since_epoch, since)) if since_epoch == epoch => now.saturating_duration_since(since),
            _ => {
                self.0 = Some((epoch, now));
                Duration::ZERO
            }
        }
    }
}

/// A time during which at least one request or entry of a log has waited for storage.
pub(super) struct FullTime {
    since: Instant,
    clock: StuckClock,
    /// Time at which requests that wait for entries last got answers.
    answered: Instant,
}

impl FullTime {
    /// Begins this time, after a request or an entry has found no storage.
    pub(super) fn begin() -> FullTime {
        FullTime::at(epoch::now(), Instant::now())
    }

    fn at(epoch: Epoch, now: Instant) -> FullTime {
        // The attempt to get storage has tried to advance the clock, so the clock may stand still from now
        // on. Even if the service does not run for a while, its next look then expels clients, and does not
        // answer with `ENOSPC`.
        FullTime { since: now, clock: StuckClock(Some((epoch, now))), answered: now }
    }

    /// True if requests must still wait for entries. Once in each [`ENTRY_PAUSE`] returns false, so that they
    /// get answers.
    fn must_wait_for_entries(&mut self, now: Instant) -> bool {
        let waits = now.saturating_duration_since(self.answered) < ENTRY_PAUSE;
        if !waits {
            self.answered = now;
        }
        waits
    }
}

impl Service {
    /// Returns the requests that must wait. A request that finds no storage waits while a client keeps
    /// storage from being reused. If the clock of grace periods has stood still for [`STORAGE_WAIT`], this
    /// function expels such clients, so that their storage becomes free. If the clock moves, the pins of
    /// these clients are short, and a request waits for at most [`LONGEST_STORAGE_WAIT`]. Requests that do
    /// not wait are answered, with `ENOSPC` if they still find no storage.
    ///
    /// Does not expel a process whose own request waits for storage, because only this service can end that
    /// wait. Expels a process whose own logged change waits, because the client does not wait for it.
    #[cold]
    pub(super) fn wait_or_expel(&mut self) -> StorageWaits {
        let held = self.holding_back(|session| session.lacks_storage);
        let now = Instant::now();
        let Some(full) = &mut self.full else { return StorageWaits::ALL };
        let stuck_for = full.clock.stuck_for(epoch::now(), now);
        let is_stuck = stuck_for >= STORAGE_WAIT;
        let is_over = is_stuck || now.saturating_duration_since(full.since) >= LONGEST_STORAGE_WAIT;
        let waits = !held.is_empty() && !is_over;
        let entries = waits || full.must_wait_for_entries(now);
        if is_stuck && !held.is_empty() {
            self.expel(&held, "it kept storage from being reused in a full volume");
            self.engine.reclaim();
        }
        StorageWaits { requests: waits, entries }
    }

    /// Applies the log of a session that ends. If an entry finds no storage, and the clock of grace periods
    /// has stood still for [`STORAGE_WAIT`], expels the other clients that keep storage from being reused.
    pub(super) fn end_log(&mut self, number: u64) {
        let mut clock_of_pins = StuckClock::default();
        loop {
            let (logs, clock) = self.requests.logs();
            if logs.end(&self.engine, clock, number) {
                return;
            }
            if clock_of_pins.stuck_for(epoch::now(), Instant::now()) >= STORAGE_WAIT {
                let held = self.holding_back(|_| false);
                self.expel(&held, "it kept storage from being reused in a full volume");
            }
            self.engine.reclaim();
        }
    }

    /// Expels the clients whose pins have kept too many pages of a disk in memory for too long. A process
    /// that continues to request pages is expelled later: after [`LONGEST_PIN`] instead of [`IDLE_PIN`].
    pub(super) fn expel_from_cache(&mut self, now: Instant) {
        if !self.engine.volume().medium().is_overfull_by_pins() {
            self.pages = StuckClock::default();
            return;
        }
        let held_for = self.pages.stuck_for(epoch::now(), now);
        if held_for < IDLE_PIN {
            return;
        }
        let since = now.checked_sub(IDLE_PIN).filter(|_| held_for < LONGEST_PIN);
        let held =
            self.holding_back(|session| since.is_some_and(|since| session.asked_for_pages_since(since)));
        self.expel(&held, "it kept too many pages in memory for too long");
    }

    /// Returns the longest time for which the service may sleep while the page cache is overfull. Pins may be
    /// the reason, and then the service must expel a client. `None` if the cache is not overfull.
    pub(super) fn limit_of_sleep_beside_pins(&self) -> Option<Duration> {
        self.engine.volume().medium().is_overfull().then_some(OVERFULL_SLEEP)
    }

    /// Returns the sessions whose pins keep storage from being reused. Leaves out all sessions of a process
    /// if `is_exempt` returns true for one of them. All sessions of a process share one file of pins, so this
    /// file identifies the process. The process id does not: it is 0 for every process outside the namespace
    /// of the service.
    fn holding_back(&self, is_exempt: impl Fn(&Session) -> bool) -> Vec<u64> {
        let exempt: Vec<_> =
            self.sessions.values().filter(|session| is_exempt(session)).map(Session::pins_file).collect();
        let held = self
            .sessions
            .iter()
            .filter(|(_, session)| session.holds_back() && !exempt.contains(&session.pins_file()));
        held.map(|(&number, _)| number).collect()
    }

    /// Ends these sessions. `why` completes the message that the client was expelled.
    fn expel(&mut self, sessions: &[u64], why: &str) {
        for &number in sessions {
            // The end of an earlier session may have expelled this one.
            let Some(session) = self.sessions.get(&number) else { continue };
            tracing::warn!(process = session.process, "a client was expelled, because {why}");
            self.end(number);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// A client whose pins are short keeps no storage for long, even if it has a pin at each look.
    #[test]
    fn clock_that_moves_is_not_stuck() {
        let (mut clock, start, first) = (StuckClock::default(), Instant::now(), epoch::now());
        let mut at =
            |epoch, milliseconds| clock.stuck_for(epoch, start + Duration::from_millis(milliseconds));
        let mut second = first;
        while second == first {
            second = epoch::advance();
        }
        assert_eq!([at(first, 0), at(first, 40)], [0, 40].map(Duration::from_millis));
        assert_eq!([at(second, 60), at(second, 100)], [0, 40].map(Duration::from_millis));
    }

    /// The service does not run between the first attempt to get storage and a late look.
    #[test]
    fn clock_is_stuck_since_the_first_attempt() {
        let (start, epoch) = (Instant::now(), epoch::now());
        let mut full = FullTime::at(epoch, start);
        assert!(full.clock.stuck_for(epoch, start + LONGEST_STORAGE_WAIT) >= STORAGE_WAIT);
    }

    /// A client repeats a call at most a thousand times.
    #[test]
    fn requests_are_answered_rarely_while_an_entry_waits() {
        let start = Instant::now();
        let mut full = FullTime::at(epoch::now(), start);
        let looks = (1..=100_000).map(|look| start + look * Duration::from_micros(10));
        let answers = looks.filter(|&now| !full.must_wait_for_entries(now)).count();
        assert!((100..=500).contains(&answers), "{answers} answers in a second");
    }
}
