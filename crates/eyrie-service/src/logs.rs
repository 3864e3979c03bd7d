//! The change logs of the sessions, and the grants of the volume and of its parts.
//!
//! A session with a grant logs some of its changes and goes on without an answer. The service applies them in
//! the order of the log. A session that is alone holds the grant of the whole volume. If several sessions
//! make changes, each may hold the grants of parts: small sets of objects ([`eyrie_engine::board::part_of`]).
//! A session then logs a change only if it holds the grants of all objects of the change.
//!
//! Before a request of another session, the service takes back the grants of the objects of the request. It
//! takes back all grants of a session in three more cases. In the first case, the service finds that the
//! client has logged nothing for a while. (The service looks for such clients before it sleeps, and at each
//! look at its sockets.) In the second case, storage runs short. In the third case, the volume gets a feature
//! with which no change is deferred. Grants also end with their session, and after an entry that cannot be
//! read or applied. To take grants back, the service seals the log, applies everything up to the position
//! that it then sees, and clears the grants on the board. The client has no part in this, so it may be
//! stopped or dead.
//!
//! A session gets grants after several changes. If others look at the same objects soon after, the next grant
//! comes later, up to a second, so that looks need no request. Sessions that change the same objects keep
//! their grants in turn, each for a short time ([`contention`]).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use eyrie_client::protocol::{LOG_APPLIED, LOG_FAILED};
use eyrie_engine::access::Credentials;
use eyrie_engine::board::{SessionKey, part_of};
use eyrie_engine::change_log::{LogError, LogReader, RING_BYTES, storage_of_entry};
use eyrie_engine::scm::{BEYOND_BUDGET, LoggedEntry, Scm};
use eyrie_engine::volume::LogTable;
use eyrie_engine::{Error, ObjectId, Op, Result};
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::shared::SharedMemory;
use eyrie_medium::sync::lock;

pub use self::contention::RequestLane;
use self::contention::{Contention, Taken};
use self::grants::{REQUESTS_BEFORE_GRANT, budget};
pub use self::served::ReservedIds;
use self::served::ServedLog;
use crate::clock::Clock;

mod contention;
mod grants;
mod served;
mod waiting;

/// Number of changes by requests after which a session may get grants of parts.
const CHANGES_BEFORE_GRANT: u32 = if cfg!(feature = "shuttle") { 1 } else { 32 };
/// Maximum time for which entries wait while the service sleeps.
const ENTRY_WAIT: Duration = Duration::from_millis(10);
/// Time without an entry after which a session loses its grants.
const IDLE: Duration = Duration::from_millis(100);
/// Number of bytes of a log after which a sweep goes on to the next log, so that other sessions have their
/// turn.
const SWEEP_BYTES: u64 = 128 << 10;
/// Number of bytes of a log after which the service tells the client that they are applied. It also tells the
/// client at the end of a sweep.
const TELL_EVERY: u64 = 1 << 10;

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

/// Tells if a request can be handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Everything that others have logged about the objects of the request is applied.
    Ready,
    /// An entry of a log waits for free storage, or for a host that cannot read the log.
    LacksStorage,
    /// Another session that changes the same objects keeps their grants for a moment, or has waited for them
    /// for longer.
    OthersKeepParts,
}

/// The objects of a request.
#[derive(Clone, Copy)]
pub enum RequestedObjects<'a> {
    /// The request may change all objects, or may need storage that is promised to entries.
    All,
    /// The request is about the volume as a whole and changes no object: `statfs`, for example.
    Volume,
    /// The request reads nothing, and only needs room in the log of its session.
    OwnLog,
    /// The request depends on one object.
    One(ObjectId),
    /// The objects of an Op.
    Of(&'a Op<'a>),
}

/// The change logs of all sessions.
#[derive(Default)]
pub struct Logs {
    /// `None` if the service defers no changes.
    table: Option<LogTable>,
    /// The logs by the numbers of their sessions.
    logs: BTreeMap<u64, ServedLog>,
    /// The sessions with open logs.
    open: Vec<u64>,
    /// The session that holds the grant of the volume. No other log is open meanwhile.
    whole: Option<u64>,
    /// The latest loss of the grant of the volume to another session.
    taken: Option<Taken>,
    contention: Contention,
    /// The session that made the latest request, and the number of its requests in a row.
    latest: (u64, u32),
    /// The objects of the request that is being handled.
    objects: Vec<ObjectId>,
    reader: LogReader,
}

impl Logs {
    /// Begins to defer changes of the volume in this directory. If `has_turns` is true, a session that gets
    /// the grant of a part keeps it for a short time if other sessions change the part, too.
    ///
    /// # Errors
    /// `Fault` if the table of the logs cannot be made.
    pub fn begin(&mut self, directory: &Path, has_turns: bool) -> Result<()> {
        self.table = Some(LogTable::create(directory)?);
        self.contention.has_turns = has_turns;
        Ok(())
    }

    /// Makes the log of a session. Returns the file for its client. Without a file, the client waits for each
    /// change.
    pub fn join(
        &mut self,
        number: u64,
        key: SessionKey,
        who: &Credentials,
        memory: (&Arc<SharedMemory>, &ReservedIds),
    ) -> Option<&File> {
        let made = self.table.as_ref()?.begin(key, who);
        let file = match made {
            Ok(file) => file?,
            Err(error) => {
                tracing::warn!(%error, "a session has no change log");
                return None;
            }
        };
        self.logs.insert(number, ServedLog::new(key, who, file, memory));
        self.logs.get(&number).map(|log| &log.file)
    }

    /// Applies the log of a session that ends, and removes it. Returns false if an entry has to wait for free
    /// storage.
    pub fn end(&mut self, engine: &Scm, clock: &mut Clock, number: u64) -> bool {
        if !self.take_back(engine, clock, number) {
            return false;
        }
        if let (Some(log), Some(table)) = (self.logs.remove(&number), &self.table) {
            table.end(log.key);
        }
        self.contention.forget(number);
        true
    }

    /// True if the service must know the objects of a request of a session.
    pub fn wants_objects(&self, number: u64) -> bool {
        self.table.is_some() && self.whole != Some(number)
    }

    /// Applies some entries of all sessions.
    #[inline]
    pub fn sweep(&mut self, engine: &Scm, clock: &mut Clock) -> Swept {
        let (mut swept, mut is_full, mut at) = (Swept::Nothing, false, 0);
        while let Some(&number) = self.open.get(at) {
            at += 1;
            let Some(log) = self.logs.get_mut(&number) else { continue };
            let tail = log.word().position();
            if tail == log.applied {
                continue;
            }
            if !self.apply(engine, clock, number, tail, SWEEP_BYTES) {
                is_full = true;
                continue;
            }
            self.look_at_storage(engine, clock, number, true);
            // The budget may have become smaller, or an entry has waited for storage since a request.
            self.reopen(number);
            swept = Swept::Some;
            if self.whole.is_none()
                && self.open == [number]
                && self.is_alone(number)
                && self.seals_for_grants(engine, clock, number)
            {
                self.grant_whole(engine, number);
                self.reopen(number);
            }
        }
        if is_full { Swept::Full } else { swept }
    }

    /// Makes everything visible that clients have logged about the objects of a request, before the request
    /// of a session is handled. Takes the grants of these objects back from other sessions. Requests about
    /// the volume as a whole that change no object take no grants of parts back. If the result is not
    /// [`Readiness::Ready`], the request waits.
    #[inline]
    pub fn before_request(
        &mut self,
        engine: &Scm,
        clock: &mut Clock,
        requester: RequestLane,
        objects: RequestedObjects<'_>,
    ) -> Readiness {
        if self.table.is_none() {
            return Readiness::Ready;
        }
        let (number, _) = requester;
        if self.logs.len() > 1
            && let Some(log) = self.logs.get_mut(&number)
        {
            log.latest_request = Some(Instant::now());
        }
        if let Some(log) = self.logs.get(&number).filter(|log| log.is_open) {
            // Another thread of the client may have read the volume to decide about an entry. If this request
            // is handled meanwhile, the compare-and-exchange of that thread must fail.
            let is_unsealed = broken(SafetyRule::RequestsStopAppends);
            let tail = if is_unsealed { log.word().position() } else { log.seal() };
            if !self.apply(engine, clock, number, tail, RING_BYTES) {
                return Readiness::LacksStorage;
            }
        }
        self.objects.clear();
        match self.whole {
            Some(holder) if holder == number => return Readiness::Ready,
            Some(holder) => {
                if !self.take_back(engine, clock, holder) {
                    return Readiness::LacksStorage;
                }
                self.taken = Some(Taken::again(self.taken));
            }
            None => {}
        }
        self.take_objects(engine, clock, requester, objects)
    }

    /// Counts a request that is answered now. The attempts that had to wait do not count.
    #[inline]
    pub fn count_request(&mut self, number: u64) {
        let (latest, count) = self.latest;
        self.latest = (number, if latest == number { count.saturating_add(1) } else { 1 });
    }

    /// Notes that a request no longer waits for objects whose grants others keep.
    #[inline]
    pub fn end_wait(&mut self, requester: RequestLane) {
        self.contention.end_wait(requester);
    }

    /// Renews the budgets of all open logs and the generations of a session, before a request of the session
    /// is answered. If storage runs short, takes grants back. `takes_storage` is true for a request that may
    /// have taken storage.
    #[inline]
    pub fn before_answer(&mut self, engine: &Scm, clock: &mut Clock, number: u64, takes_storage: bool) {
        // A sweep renews the budget only if it finds an entry. A client that has spent its budget makes
        // requests and appends nothing, so the budget must be renewed here, too.
        let is_left = !takes_storage || engine.leaves_promised_storage(0);
        for at in (0..self.open.len()).rev() {
            let open = self.open[at];
            if self.look_at_storage(engine, clock, open, is_left) && open != number {
                self.reopen(open);
            }
        }
        if let (Some(log), Some(table)) = (self.logs.get_mut(&number), &self.table)
            && log.is_open
            && log.is_at_rest()
        {
            // Without further generations, the client makes a request for each new object.
            let _ = log.renew_generations(engine, table);
        }
    }

    /// Lets a client with an open log append again, after a request of its session was answered, or has found
    /// no storage and waits. A log with an entry that waits for storage stays sealed.
    #[inline]
    pub fn reopen(&mut self, number: u64) {
        if let Some(log) = self.logs.get(&number).filter(|log| log.is_open && log.is_at_rest()) {
            log.unseal();
        }
    }

    /// Notes that the service has applied a change of a session, and gives the session grants if it is time.
    #[inline]
    pub fn changed(&mut self, engine: &Scm, clock: &mut Clock, number: u64) {
        let Some(log) = self.logs.get_mut(&number) else { return };
        log.changes = log.changes.saturating_add(1);
        let changes = log.changes;
        if !self.open.is_empty() && !engine.may_defer() {
            // The change has set a feature of the volume with which nothing is deferred.
            while let Some(&open) = self.open.first() {
                if !self.take_back(engine, clock, open) {
                    return;
                }
            }
            return;
        }
        if self.whole.is_some() {
            return;
        }
        if self.contention.has_turns && self.logs.len() > 1 {
            let now = Instant::now();
            self.objects.iter().for_each(|&id| self.contention.note_change(part_of(id), number, now));
        }
        if self.latest.1 >= REQUESTS_BEFORE_GRANT && self.is_alone(number) {
            self.grant_whole(engine, number);
        } else if changes >= CHANGES_BEFORE_GRANT {
            self.grant_parts(engine, clock, number);
        }
    }

    /// Notes that the service has answered a look of a session at an object. A session that changes the
    /// object gets its grant, so the change that comes next can be logged.
    #[inline]
    pub fn looked(&mut self, engine: &Scm, clock: &mut Clock, number: u64) {
        let (Some(log), None, [id]) = (self.logs.get(&number), self.whole, &self.objects[..]) else { return };
        let now = Instant::now();
        if log.changes >= CHANGES_BEFORE_GRANT && self.contention.changes(part_of(*id), number, now) {
            self.grant_parts(engine, clock, number);
        }
    }

    /// Returns the longest time for which the service may sleep. `None` if it may sleep until a request.
    /// Takes back the grants of clients that have logged nothing for a while.
    pub fn limit_of_sleep(&mut self, engine: &Scm, clock: &mut Clock) -> Option<Duration> {
        self.take_back_idle(engine, clock);
        (!self.open.is_empty()).then_some(ENTRY_WAIT)
    }

    /// Renews the budget of an open log, if half of it is spent. `is_left` is false if less storage is free
    /// than was promised. The budget is then also renewed. If storage runs short, takes the grants of the
    /// session back. Returns true if the log is sealed now and may open again, because its budget has become
    /// smaller.
    fn look_at_storage(&mut self, engine: &Scm, clock: &mut Clock, number: u64, is_left: bool) -> bool {
        let Some(log) = self.logs.get(&number).filter(|log| log.is_open) else { return false };
        if log.storage < log.renew_budget_at && is_left {
            return false;
        }
        let others = self.promised() - log.budget;
        let Some(budget) = budget(engine, &log.file, others, self.whole == Some(number)) else {
            self.take_back(engine, clock, number);
            return false;
        };
        let is_smaller = log.storage + budget < log.limit;
        // Entries up to the earlier limit may be in the log. A failed entry closes the log.
        if is_smaller && !(self.apply_all(engine, clock, number) && self.open.contains(&number)) {
            return false;
        }
        if let (Some(log), Some(table)) = (self.logs.get_mut(&number), &self.table) {
            log.set_budget(table, budget);
            engine.promise_storage(others + budget);
        }
        is_smaller
    }

    /// Applies the entries of an open log, up to position `tail` or until about `limit` bytes are applied.
    /// Returns false if an entry found no free storage, or if the host could not read the log. The entry then
    /// waits in the log until a later call, when readers may hold back less storage.
    fn apply(&mut self, engine: &Scm, clock: &mut Clock, number: u64, tail: u64, limit: u64) -> bool {
        let (Some(table), Some(log)) = (&self.table, self.logs.get_mut(&number)) else { return true };
        if tail == log.applied {
            // Each request of a session with an open log comes here, usually without an entry.
            return true;
        }
        let (holder, mut is_full) = (self.whole.is_none().then_some(log.key), false);
        let (start, present) = (log.applied, Clock::now());
        let ServedLog { key, who, lanes, file, reserved, generations, applied, storage, .. } = log;
        let (limit_of_storage, was_useless, is_useless) = (log.limit, log.is_useless, &mut log.is_useless);
        // A log with a failed entry has waited for the host, and now ends. So this call applies all of it.
        let limit = if was_useless { RING_BYTES } else { limit };
        // If this call has applied an entry, the next entry may wait for the full time.
        let must_end = |applied: u64| log.wait.is_over() && applied == start;
        let tell = |position| lanes.word_to_store(LOG_APPLIED).store(position, Ordering::Release);
        if !broken(SafetyRule::FoundEntriesAreNoted) {
            table.set_seen(*key, tail);
        }
        let read = self.reader.read(file, *applied, tail, limit, |position, head, op| {
            if broken(SafetyRule::EntryIsAppliedBeforeItCounts) {
                table.set_applied(*key, position);
                tell(position);
            }
            let (now, new) = (clock.next_from(present), Cell::new(None));
            let entry = LoggedEntry { who, head, op, now, holder, is_of_dead_service: false };
            let needed = *storage + storage_of_entry(head.bytes.into());
            let may_use = |id, generation| {
                new.set(Some(id));
                lock(reserved).contains(&id) && generations.contains(&generation)
            };
            // The storage beyond the budget may be promised to another user.
            let fits = needed <= limit_of_storage || broken(SafetyRule::EntriesKeepToTheirBudget);
            let applied_entry = if fits { engine.apply_logged(&entry, may_use) } else { Err(BEYOND_BUDGET) };
            match applied_entry {
                Ok(None) => {}
                Ok(Some(id)) => {
                    lock(reserved).remove(&id);
                    generations.start = head.detail + 1;
                    table.set_generations(*key, generations);
                }
                // The entry finds storage as soon as nobody holds storage back.
                Err(error) if error.is_full() && !must_end(*applied) && !*is_useless => {
                    is_full = true;
                    return false;
                }
                Err(error) => {
                    if let (Error::Fault(_), Some(id), false) = (&error, new.get(), error.is_full()) {
                        // The change may have been made, so the id may be in use. Otherwise the id is leaked
                        // until the next recovery.
                        lock(reserved).remove(&id);
                    }
                    if !std::mem::replace(is_useless, true) {
                        tracing::error!(%error, "a logged change of a client could not be made");
                        // The client is told before the position is noted, because the next owner does not
                        // look at entries before the noted position.
                        lanes.word_to_store(LOG_FAILED).store(1, Ordering::Release);
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
            // The log may end with an entry without an Op, which fills the ring. The closure does not see
            // this entry.
            Ok(position) => {
                *applied = position;
                table.set_applied(*key, position);
            }
            Err(LogError::Host(_)) if !must_end(*applied) => is_full = true,
            Err(_) => {
                // The client has broken the protocol, or the host could not read the log for too long. The
                // log ends here.
                tracing::warn!("a change log is damaged or cannot be read");
                *is_useless = true;
            }
        }
        tell(*applied);
        log.wait.note_attempt(is_full, *applied != start, Instant::now());
        if *applied != start {
            // The next owner gives the rest of the log only the rest of its budget.
            table.set_budget(*key, limit_of_storage.saturating_sub(*storage));
            log.last_entry = Instant::now();
        }
        // A client that moves the end of its sealed log gets no further pass.
        let (may_pass, is_useless) = (!was_useless && read.is_ok(), *is_useless);
        if is_full && is_useless {
            log.seal();
        }
        !is_full && (!is_useless || self.end_useless(engine, clock, number, may_pass))
    }

    /// Ends the grants of a session whose log has an entry that could not be read or applied. If `may_pass`
    /// is true, first applies the entries that were added meanwhile. Returns false if one of them has to
    /// wait.
    fn end_useless(&mut self, engine: &Scm, clock: &mut Clock, number: u64, may_pass: bool) -> bool {
        let Some(log) = self.logs.get(&number) else { return true };
        log.lanes.word_to_store(LOG_FAILED).store(1, Ordering::Release);
        // The client logs nothing more, because a later change may depend on the lost one.
        let tail = log.seal();
        if may_pass && tail > log.applied {
            return self.apply(engine, clock, number, tail, RING_BYTES);
        }
        self.close(engine, number);
        true
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
