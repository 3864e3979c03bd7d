//! The watchers of a session, which get notices of the changes of the volume. A change of the session itself
//! can leave out one of its watchers ([`Watchers::quietly`]).

use std::time::{Duration, Instant};

use eyrie_client::protocol::MOST_WATCHERS;
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, Error, Notice, Result, Watcher};

/// Maximum number of notices that wait for a client in one watcher. A notice takes at most 600 bytes.
const MOST_NOTICES: u64 = 2048;
/// Maximum size of the notices in one answer, in bytes.
const ANSWER_BYTES: usize = 64 << 10;

/// A watcher of a client.
struct ServedWatcher {
    /// The number that the client gave it.
    number: u64,
    watcher: Watcher,
    /// The lane whose request waits for notices, and the time at which the wait ends.
    waiting: Option<(usize, Instant)>,
    /// True if a wait has reached its deadline. The request then gets its answer, even without a notice.
    is_over: bool,
}

/// The watchers of a session.
#[derive(Default)]
pub struct Watchers(Vec<ServedWatcher>);

impl Watchers {
    fn position(&self, number: u64) -> Result<usize> {
        let found = self.0.iter().position(|served| served.number == number);
        found.ok_or(Error::Invalid("a watcher that the service does not know"))
    }

    /// Begins to watch, unless the watcher with this number exists already.
    pub fn begin(&mut self, engine: &Scm, number: u64, capacity: u64) -> Result<()> {
        if number == 0 {
            return Err(Error::Invalid("the number of a watcher is zero"));
        }
        if self.position(number).is_ok() {
            return Ok(());
        }
        if self.0.len() >= MOST_WATCHERS {
            return Err(Error::Invalid("the session has too many watchers"));
        }
        let capacity = capacity.clamp(1, MOST_NOTICES) as usize;
        let watcher = engine.watch(capacity).ok_or(Error::Unsupported("notices of changes"))?;
        self.0.push(ServedWatcher { number, watcher, waiting: None, is_over: false });
        Ok(())
    }

    /// Ends a watcher. Returns the lane whose request waits for notices of this watcher.
    pub fn end(&mut self, number: u64) -> Option<usize> {
        let ended = self.0.swap_remove(self.position(number).ok()?);
        ended.waiting.map(|(lane, _)| lane)
    }

    /// Returns the encoded notices of a watcher. Without notices, returns no bytes if the deadline has passed
    /// or `milliseconds` is 0. Otherwise returns `None`, and the request of `lane` waits for notices.
    pub fn take(&mut self, lane: usize, number: u64, milliseconds: u64) -> Result<Option<Vec<u8>>> {
        let index = self.position(number)?;
        let served = &mut self.0[index];
        let mut bytes = Vec::new();
        while bytes.len() + Notice::ENCODED_MAX <= ANSWER_BYTES
            && let Some(notice) = served.watcher.next(Duration::ZERO)
        {
            notice.encode(&mut bytes);
        }
        if std::mem::take(&mut served.is_over) || !bytes.is_empty() || milliseconds == 0 {
            return Ok(Some(bytes));
        }
        let limit = Duration::from_millis(milliseconds.min(u32::MAX.into()));
        served.waiting = Some((lane, Instant::now() + limit));
        Ok(None)
    }

    /// Makes a change. The watcher `number` of the session gets no notice of it.
    pub fn quietly<T>(&self, number: u64, change: impl FnOnce() -> T) -> T {
        match self.position(number) {
            Ok(index) => self.0[index].watcher.quietly(change),
            Err(_) => change(),
        }
    }

    /// True if the request of a lane waits for notices.
    pub fn is_waiting(&self, lane: usize) -> bool {
        self.0.iter().any(|served| served.waiting.is_some_and(|(waiting, _)| waiting == lane))
    }

    /// Returns a lane whose request waits no longer, because there are notices or its deadline has passed.
    pub fn take_ready(&mut self) -> Option<usize> {
        let now = Instant::now();
        self.0.iter_mut().find_map(|served| {
            let (lane, end) = served.waiting?;
            served.is_over = end <= now;
            if !served.is_over && !served.watcher.is_ready() {
                return None;
            }
            served.waiting = None;
            Some(lane)
        })
    }

    /// Returns the earliest deadline of the waiting requests.
    pub fn first_end(&self) -> Option<Instant> {
        self.0.iter().filter_map(|served| served.waiting).map(|(_, end)| end).min()
    }
}
