//! The change logs of the sessions, and the grant of the volume.
//!
//! One session at a time may hold the grant. Its client then logs some of its changes and goes on, and the
//! service applies them in the order of the log. The service takes the grant back before a request of another
//! session, before it sleeps if the client has logged nothing for a while, when storage runs short, and when
//! the volume gets a feature with which no change is deferred. The grant also ends with its session, and
//! after an entry that cannot be applied. To take the grant back, the service seals the log, applies
//! everything up to the position that it then sees, and clears the grant on the board. The client has no part
//! in this, so it may be stopped or dead.
//!
//! A session gets the grant after several changes in a row. If others need the volume soon after, the next
//! grant comes later, up to a second, so that sessions in contention have their changes applied at once.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use eyrie_client::protocol::{LOG_APPLIED, LOG_BUDGET, LOG_FAILED, LOG_GENERATION, LOG_TAIL, LogWord};
use eyrie_engine::access::Credentials;
use eyrie_engine::board::SessionKey;
use eyrie_engine::change_log::{GENERATIONS, LogError, LogReader, RING_BYTES, storage_of_entry};
use eyrie_engine::scm::{LoggedEntry, Scm};
use eyrie_engine::volume::{LogTable, provision_log};
use eyrie_engine::{Error, ObjectId, Result};
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::shared::SharedMemory;
use eyrie_medium::sync::{Mutex, lock};

use crate::clock::Clock;

/// Number of changes in a row after which a session gets the grant.
const CHANGES_BEFORE_GRANT: u32 = if cfg!(feature = "shuttle") { 1 } else { 32 };
/// Shortest and longest time between the loss of a grant to another session and the next grant.
const PAUSES: (Duration, Duration) = if cfg!(feature = "shuttle") {
    (Duration::ZERO, Duration::ZERO)
} else {
    (Duration::from_millis(1), Duration::from_secs(1))
};
/// Maximum time for which entries wait while the service sleeps.
const LOOK: Duration = Duration::from_millis(10);
/// Time without an entry after which a service that is about to sleep takes the grant back.
const IDLE: Duration = Duration::from_millis(100);
/// Bytes of a log that one sweep applies at most, so that other sessions have their turn.
const SWEEP_BYTES: u64 = 128 << 10;
/// Maximum time for which an entry waits for free storage. The service ends the sessions that hold storage
/// back long before.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Number of bytes of a log after which the service tells the client that they are applied. It also tells the
/// client at the end of a sweep.
const TELL_EVERY: u64 = 1 << 10;
/// Smallest budget of a grant, in bytes. Tests under the scheduler have small volumes.
const LEAST_BUDGET: u64 = if cfg!(feature = "shuttle") { 64 << 10 } else { 1 << 20 };

/// Ids that a client has reserved, and that no applied change has used.
pub type ReservedIds = Arc<Mutex<HashSet<ObjectId>>>;

/// The log of a session.
struct ServedLog {
    key: SessionKey,
    who: Credentials,
    lanes: Arc<SharedMemory>,
    file: File,
    reserved: ReservedIds,
    /// Generations for new objects that no entry has used.
    generations: Range<u64>,
    /// Position up to which the log is applied.
    applied: u64,
    /// Upper bound of the storage that the applied entries have needed, in bytes.
    storage: u64,
    /// Value of `storage` from which on the service looks at the free storage again.
    look_at: u64,
    /// Largest value of `storage` that the client may reach.
    limit: u64,
    /// True once the host has provided all memory of the file.
    is_provisioned: bool,
    /// True if an entry could not be applied, or if the host has no memory for the log. The session then gets
    /// no further grant.
    is_useless: bool,
}

impl ServedLog {
    /// Returns the word of the log.
    fn word(&self) -> LogWord {
        LogWord::from_raw(self.lanes.word(LOG_TAIL).load(Ordering::Acquire))
    }

    /// Seals the log. The client appends nothing until [`ServedLog::unseal`]. An append that it has begun
    /// before fails even after that, because the number in the word changes. Returns the position after the
    /// last entry.
    fn seal(&self) -> u64 {
        let sealed = self.lanes.word_to_store(LOG_TAIL).fetch_or(LogWord::SEALED, Ordering::SeqCst);
        LogWord::from_raw(sealed).position()
    }

    /// Gives the log generations for new objects, if it has used half of the latest ones. The log is sealed
    /// and applied.
    fn renew_generations(&mut self, engine: &Scm, table: &LogTable) -> Result<()> {
        let Range { start, end } = self.generations;
        if end - start >= GENERATIONS / 2 {
            return Ok(());
        }
        self.generations = engine.generations_for_log()?;
        table.set_generations(self.key, &self.generations);
        self.lanes.word_to_store(LOG_GENERATION).store(self.generations.start, Ordering::Relaxed);
        Ok(())
    }

    /// Lets the entries from now on need this much storage.
    fn set_budget(&mut self, engine: &Scm, budget: u64) {
        engine.promise_storage(budget);
        (self.look_at, self.limit) = (self.storage + budget / 2, self.storage + budget);
        self.lanes.word_to_store(LOG_BUDGET).store(self.limit, Ordering::Relaxed);
    }

    /// True if the log is sealed and applied.
    fn is_closed(&self) -> bool {
        let word = self.word();
        word.is_sealed() && word.position() == self.applied
    }

    /// Lets the client append to its log, which is applied.
    fn unseal(&self) {
        let word = self.word().renewed(self.applied).raw();
        self.lanes.word_to_store(LOG_TAIL).store(word, Ordering::SeqCst);
    }
}

/// The result of [`Logs::sweep`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swept {
    /// No log had an entry.
    Nothing,
    /// Some entries are applied.
    Some,
    /// An entry found no free storage, and waits.
    Full,
}

/// The change logs of all sessions.
#[derive(Default)]
pub struct Logs {
    /// `None` if the service defers no changes.
    table: Option<LogTable>,
    /// The logs by the numbers of their sessions.
    logs: BTreeMap<u64, ServedLog>,
    /// The session that holds the grant.
    holder: Option<u64>,
    /// The session that made the latest change, and the number of its changes in a row.
    latest: (u64, u32),
    /// Times of the latest grant and of the latest entry. `None` before the first grant.
    granted: Option<Instant>,
    last_entry: Option<Instant>,
    /// No grant is given before this time.
    not_before: Option<Instant>,
    pause: Duration,
    /// Time since which an entry has waited for free storage.
    full_since: Option<Instant>,
    reader: LogReader,
}

impl Logs {
    /// Begins to defer changes of the volume in this directory.
    ///
    /// # Errors
    /// `Fault` if the table of the logs cannot be made.
    pub fn begin(&mut self, directory: &Path) -> Result<()> {
        (self.table, self.pause) = (Some(LogTable::create(directory)?), PAUSES.0);
        Ok(())
    }

    /// Makes the log of a session. Returns the file for its client. Without a file, the client waits for each
    /// change.
    pub fn join(
        &mut self,
        number: u64,
        key: SessionKey,
        who: &Credentials,
        (lanes, reserved): (&Arc<SharedMemory>, &ReservedIds),
    ) -> Option<&File> {
        let made = self.table.as_ref()?.begin(key, who);
        let file = match made {
            Ok(file) => file?,
            Err(error) => {
                tracing::warn!(%error, "a session has no change log");
                return None;
            }
        };
        let log = ServedLog {
            key,
            who: who.clone(),
            lanes: Arc::clone(lanes),
            file,
            reserved: Arc::clone(reserved),
            generations: 0..0,
            applied: 0,
            storage: 0,
            look_at: 0,
            limit: 0,
            is_provisioned: false,
            is_useless: false,
        };
        log.seal();
        self.logs.insert(number, log);
        self.logs.get(&number).map(|log| &log.file)
    }

    /// Applies the log of a session that ends, and removes it. Returns false if an entry has to wait for free
    /// storage.
    pub fn end(&mut self, engine: &Scm, clock: &mut Clock, number: u64) -> bool {
        if self.holder == Some(number) && !self.take_back(engine, clock) {
            return false;
        }
        if let (Some(log), Some(table)) = (self.logs.remove(&number), &self.table) {
            table.end(log.key);
        }
        true
    }

    /// Returns the session that holds the grant.
    pub fn holder(&self) -> Option<u64> {
        self.holder
    }

    /// Applies some entries of the session that holds the grant.
    #[inline]
    pub fn sweep(&mut self, engine: &Scm, clock: &mut Clock) -> Swept {
        let Some(log) = self.holder.and_then(|holder| self.logs.get(&holder)) else { return Swept::Nothing };
        let tail = log.word().position();
        if tail == log.applied {
            return Swept::Nothing;
        }
        self.last_entry = Some(Instant::now());
        if !self.apply(engine, clock, tail, SWEEP_BYTES) {
            return Swept::Full;
        }
        self.look_at_storage(engine, clock, false);
        Swept::Some
    }

    /// Makes everything visible that clients have logged, before a request of a session is handled. If
    /// another session holds the grant, takes the grant back. Returns false if an entry has to wait for free
    /// storage. The request then waits, too.
    #[inline]
    pub fn before_request(&mut self, engine: &Scm, clock: &mut Clock, number: u64) -> bool {
        match self.holder {
            None => true,
            Some(holder) if holder == number => {
                // Another thread of the client may have read the volume to decide about an entry. If this
                // request is handled meanwhile, the compare-and-exchange of that thread must fail.
                let Some(log) = self.logs.get(&holder) else { return true };
                let is_unsealed = broken(SafetyRule::RequestsStopAppends);
                let tail = if is_unsealed { log.word().position() } else { log.seal() };
                self.apply(engine, clock, tail, RING_BYTES)
            }
            Some(_) => {
                if !self.take_back(engine, clock) {
                    return false;
                }
                let held = self.granted.map_or(Duration::ZERO, |at| at.elapsed());
                let pause = if held > 10 * self.pause { PAUSES.0 } else { (2 * self.pause).min(PAUSES.1) };
                (self.pause, self.not_before) = (pause, Some(Instant::now() + pause));
                true
            }
        }
    }

    /// Renews the budget and the numbers of the client that holds the grant, before a request of its session
    /// is answered. If storage runs short, takes the grant back. `takes_storage` is true for a request that
    /// may have taken storage.
    #[inline]
    pub fn before_answer(&mut self, engine: &Scm, clock: &mut Clock, number: u64, takes_storage: bool) {
        if self.holder != Some(number) {
            return;
        }
        // A sweep renews the budget only if it finds an entry. A client that has spent its budget makes
        // requests and appends nothing, so the budget must be renewed here, too.
        self.look_at_storage(engine, clock, takes_storage);
        if let (Some(log), Some(table)) = (self.logs.get_mut(&number), &self.table)
            && log.is_closed()
        {
            // Without further numbers, the client makes a request for each new object.
            let _ = log.renew_generations(engine, table);
        }
    }

    /// Lets the client that holds the grant append again, after a request of its session was answered, or has
    /// found no storage and waits. A log with an entry that waits for storage stays sealed.
    #[inline]
    pub fn reopen(&mut self, number: u64) {
        let log = self.holder.filter(|&holder| holder == number).and_then(|it| self.logs.get(&it));
        if let Some(log) = log.filter(|log| log.is_closed()) {
            log.unseal();
        }
    }

    /// Notes that the service has applied a change of a session, and gives the session the grant if it is
    /// time.
    #[inline]
    pub fn changed(&mut self, engine: &Scm, clock: &mut Clock, number: u64) {
        if self.table.is_none() {
            return;
        }
        let (latest, count) = self.latest;
        self.latest = (number, if latest == number { count.saturating_add(1) } else { 1 });
        match self.holder {
            // The change may have set a feature of the volume with which nothing is deferred.
            Some(_) if engine.may_defer() => {}
            Some(_) => _ = self.take_back(engine, clock),
            None if self.latest.1 >= CHANGES_BEFORE_GRANT => self.grant(engine, number),
            None => {}
        }
    }

    /// Returns the longest time for which the service may sleep. `None` if it may sleep until a request.
    /// Takes back the grant of a client that has logged nothing for a while.
    pub fn limit_of_sleep(&mut self, engine: &Scm, clock: &mut Clock) -> Option<Duration> {
        self.holder?;
        if self.last_entry.is_none_or(|at| at.elapsed() >= IDLE) {
            self.take_back(engine, clock);
        }
        self.holder.map(|_| LOOK)
    }

    /// Gives the grant to a session whose log is applied.
    fn grant(&mut self, engine: &Scm, number: u64) {
        let now = Instant::now();
        if self.not_before.is_some_and(|time| now < time) {
            return;
        }
        let Some(log) = self.logs.get_mut(&number).filter(|log| !log.is_useless) else { return };
        // A refused session asks again only after further changes.
        self.latest.1 = 0;
        if !log.is_provisioned {
            log.is_provisioned = true;
            if let Err(error) = provision_log(&log.file) {
                tracing::warn!(%error, "a session has no change log");
                log.is_useless = true;
                return;
            }
        }
        let (Some(budget), Some(table)) = (budget(engine, &log.file), &self.table) else { return };
        if let Err(error) = log.renew_generations(engine, table) {
            tracing::warn!(%error, "a session has no generations for new objects");
            return;
        }
        log.set_budget(engine, budget);
        let board = engine.volume().board();
        if broken(SafetyRule::GrantComesFirst) {
            log.unseal();
        }
        if !broken(SafetyRule::GrantIsNoted) {
            table.set_granted(log.key, true);
        }
        // From the first entry on, other clients see that this session holds the grant.
        board.grant_to(Some(log.key));
        log.unseal();
        (self.holder, self.granted, self.last_entry) = (Some(number), Some(now), Some(now));
    }

    /// Takes the grant back. Returns false if an entry has to wait for free storage. The log then stays
    /// sealed.
    fn take_back(&mut self, engine: &Scm, clock: &mut Clock) -> bool {
        let Some(log) = self.holder.and_then(|holder| self.logs.get(&holder)) else { return true };
        let tail = log.seal();
        if broken(SafetyRule::GrantEndsAfterItsEntries) {
            engine.volume().board().grant_to(None);
        }
        if !self.apply(engine, clock, tail, RING_BYTES) {
            return false;
        }
        self.forget_holder(engine);
        true
    }

    /// Ends the grant of a session whose log is applied.
    fn forget_holder(&mut self, engine: &Scm) {
        engine.volume().board().grant_to(None);
        engine.promise_storage(0);
        if let (Some(log), Some(table)) = (self.holder.and_then(|it| self.logs.get(&it)), &self.table) {
            table.set_granted(log.key, false);
        }
        (self.holder, self.latest.1) = (None, 0);
    }

    /// Renews the budget of the session that holds the grant, if half of it is spent. `request_took_storage`
    /// is true after a request that may have taken storage. The budget is then also renewed if less storage
    /// is free than was promised. Takes the grant back if storage runs short.
    fn look_at_storage(&mut self, engine: &Scm, clock: &mut Clock, request_took_storage: bool) {
        let Some(log) = self.holder.and_then(|holder| self.logs.get_mut(&holder)) else { return };
        let is_left = !request_took_storage || engine.leaves_promised_storage(0);
        if log.storage < log.look_at && is_left {
            return;
        }
        match budget(engine, &log.file) {
            Some(budget) => log.set_budget(engine, budget),
            None => _ = self.take_back(engine, clock),
        }
    }

    /// Applies the entries of the session that holds the grant, up to position `tail` or until about `limit`
    /// bytes are applied. Returns false if an entry found no free storage. The entry then waits in the log
    /// until a later call, when readers may hold back less storage.
    fn apply(&mut self, engine: &Scm, clock: &mut Clock, tail: u64, limit: u64) -> bool {
        let (Some(table), Some(holder)) = (&self.table, self.holder) else { return true };
        let Some(log) = self.logs.get_mut(&holder) else { return true };
        let ServedLog { key, who, lanes, file, reserved, generations, applied, storage, .. } = log;
        let (limit_of_storage, is_useless) = (log.limit, &mut log.is_useless);
        let mut is_full = false;
        let may_wait = self.full_since.is_none_or(|since| since.elapsed() < LONGEST_WAIT);
        let tell = |position| lanes.word_to_store(LOG_APPLIED).store(position, Ordering::Release);
        let read = self.reader.read(file, *applied, tail, limit, |position, head, op| {
            if broken(SafetyRule::EntryIsAppliedBeforeItCounts) {
                table.set_applied(*key, position);
                tell(position);
            }
            let entry = LoggedEntry { who, head, op, now: clock.next(), is_left: false };
            let needed = *storage + storage_of_entry(head.bytes.into());
            let new = Cell::new(None);
            let applied_entry = engine.apply_logged(&entry, |id, generation| {
                new.set(Some(id));
                lock(reserved).contains(&id) && generations.contains(&generation)
            });
            match applied_entry {
                Ok(None) => {}
                Ok(Some(id)) => {
                    lock(reserved).remove(&id);
                    generations.start = head.detail + 1;
                    table.set_generations(*key, generations);
                }
                // A client that keeps to its budget finds storage, as soon as nobody holds it back.
                Err(Error::NoSpace) if may_wait && !*is_useless && needed <= limit_of_storage => {
                    is_full = true;
                    return false;
                }
                Err(error) => {
                    if let (Error::Fault(_), Some(id)) = (&error, new.get()) {
                        // The id may be in use. It is leaked until the next recovery.
                        lock(reserved).remove(&id);
                    }
                    if !std::mem::replace(is_useless, true) {
                        tracing::error!(%error, "a logged change of a client could not be made");
                    }
                }
            }
            *storage = needed;
            table.set_applied(*key, position);
            // The client looks at this word with each change, so each store costs both sides a cache miss.
            if position / TELL_EVERY != *applied / TELL_EVERY {
                tell(position);
            }
            *applied = position;
            true
        });
        match read {
            // An entry without an Op may be the last one.
            Ok(position) => {
                *applied = position;
                table.set_applied(*key, position);
            }
            Err(LogError::Host(_)) if may_wait => is_full = true,
            Err(_) => {
                // The client has broken the protocol, or the host could not read the log for
                // [`LONGEST_WAIT`]. The log ends here.
                tracing::warn!("a change log is damaged or cannot be read");
                *is_useless = true;
            }
        }
        tell(*applied);
        self.full_since = is_full.then(|| self.full_since.unwrap_or_else(Instant::now));
        if *is_useless {
            lanes.word_to_store(LOG_FAILED).store(1, Ordering::Release);
            // The client logs nothing more, because a later change may depend on the lost one.
            let tail = log.seal();
            if read.is_ok() && tail > log.applied {
                return self.apply(engine, clock, tail, RING_BYTES);
            }
            self.forget_holder(engine);
        }
        !is_full
    }
}

/// Returns the storage that logged changes may need until they are applied, in bytes. `None` if changes of
/// the volume must not be deferred, or if the volume or the host has too little free storage.
fn budget(engine: &Scm, log: &File) -> Option<u64> {
    let of_volume = engine.budget_of_deferral()?;
    // The log and the volume are on one file system of the host.
    let host = rustix::fs::fstatvfs(log).ok()?;
    let of_host = host.f_bavail.saturating_mul(host.f_frsize) / 4;
    Some(of_volume.min(of_host)).filter(|&budget| budget >= LEAST_BUDGET)
}
