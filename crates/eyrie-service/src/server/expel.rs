//! Expels clients whose pins keep other clients from making progress. In a full volume, these are the clients
//! that keep storage from being reused. On a disk, these are the clients that keep too many pages in memory
//! for too long.

use std::time::{Duration, Instant};

use eyrie_engine::Engine;
use eyrie_medium::epoch::{self, Epoch};

use super::Service;
use crate::session::Session;

/// Time for which a request waits for storage that clients keep from being reused.
const STORAGE_WAIT: Duration = Duration::from_millis(50);
/// Time for which a pin may keep an overfull page cache from evicting pages, if its process requests no page
/// meanwhile.
const IDLE_PIN: Duration = Duration::from_secs(1);
/// As [`IDLE_PIN`], for a process that continues to request pages.
const LONGEST_PIN: Duration = Duration::from_secs(30);
/// Longest sleep of the service while the page cache is overfull. Otherwise a service without requests would
/// not notice that [`IDLE_PIN`] is over.
const OVERFULL_SLEEP: Duration = Duration::from_millis(100);

/// The time since which pins keep a page cache overfull.
#[derive(Default)]
pub(super) struct HeldPages {
    /// The epoch at which the clock stands still, and the time at which the service saw this first.
    stuck: Option<(Epoch, Instant)>,
}

impl HeldPages {
    /// Returns the time for which the clock of grace periods has stood still while the cache was overfull.
    /// `None` if the cache is not overfull now.
    fn held_for(&mut self, is_overfull: bool, now: Instant) -> Option<Duration> {
        if !is_overfull {
            self.stuck = None;
            return None;
        }
        let epoch = epoch::now();
        match self.stuck {
            Some((since_epoch, since)) if since_epoch == epoch => Some(now.saturating_duration_since(since)),
            _ => {
                self.stuck = Some((epoch, now));
                Some(Duration::ZERO)
            }
        }
    }
}

impl Service {
    /// Returns true if requests that have found no storage since `since` must wait: a client keeps storage
    /// from being reused, and less than [`STORAGE_WAIT`] has passed. After [`STORAGE_WAIT`], expels these
    /// clients, so that their storage becomes free, and returns false. Also returns false if there is no such
    /// client. The requests are then answered, with `ENOSPC` if they still find no storage.
    ///
    /// Does not expel a process whose own request waits for storage, because only this service can end that
    /// wait. Expels a process whose own logged change waits, because the client does not wait for it.
    #[cold]
    pub(super) fn wait_or_expel(&mut self, since: Instant) -> bool {
        let held = self.holding_back(|session| session.lacks_storage);
        if held.is_empty() || since.elapsed() < STORAGE_WAIT {
            return !held.is_empty();
        }
        self.expel(&held, "it kept storage from being reused in a full volume");
        self.engine.reclaim();
        false
    }

    /// Applies the log of a session that ends. If an entry finds no storage for [`STORAGE_WAIT`], expels the
    /// other clients that keep storage from being reused.
    pub(super) fn end_log(&mut self, number: u64) {
        let started = Instant::now();
        loop {
            let (logs, clock) = self.requests.logs();
            if logs.end(&self.engine, clock, number) {
                return;
            }
            if started.elapsed() >= STORAGE_WAIT {
                let held = self.holding_back(|_| false);
                self.expel(&held, "it kept storage from being reused in a full volume");
            }
            self.engine.reclaim();
        }
    }

    /// Expels the clients whose pins have kept too many pages of a disk in memory for too long. A process
    /// that continues to request pages is expelled later: after [`LONGEST_PIN`] instead of [`IDLE_PIN`].
    pub(super) fn expel_from_cache(&mut self, now: Instant) {
        let is_overfull = self.engine.volume().medium().is_overfull_by_pins();
        let Some(held_for) = self.pages.held_for(is_overfull, now) else { return };
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
