//! Giving grants and taking them back.

use std::fs::File;
use std::time::{Duration, Instant};

use eyrie_engine::board::{Board, GRANTED_IN_PARTS, SessionKey, part_of, parts_beside};
use eyrie_engine::change_log::RING_BYTES;
use eyrie_engine::op::Touched;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{LogGrant, provision_log};
use eyrie_engine::{Engine, ObjectId};
use eyrie_medium::rules::{SafetyRule, broken};

use super::contention::{LogUse, RequestLane};
use super::served::ServedLog;
use super::waiting::EntryWait;
use super::{IDLE, Logs, Readiness, RequestedObjects};
use crate::clock::Clock;

/// Number of requests in a row after which a session may get the grant of the volume.
pub(super) const REQUESTS_BEFORE_GRANT: u32 = if cfg!(feature = "shuttle") { 3 } else { 32 };
/// Time without a request of another session after which a session may get the grant of the volume.
const RECENT: Duration = Duration::from_millis(100);
/// Largest number of open logs.
const MOST_OPEN: usize = 32;
/// Number of attempts to apply a log before the service ends. Storage that was retired lately is free two
/// attempts later.
const LAST_ATTEMPTS: u32 = 4;
/// Smallest budget of a log, in bytes. Tests under the scheduler have small volumes.
const LEAST_BUDGET: u64 = if cfg!(feature = "shuttle") { 40 << 10 } else { 1 << 20 };

impl Logs {
    /// Takes the grants of the objects of a request back from other sessions.
    pub(super) fn take_objects(
        &mut self,
        engine: &Scm,
        clock: &mut Clock,
        requester: RequestLane,
        objects: RequestedObjects<'_>,
    ) -> Readiness {
        let (number, _) = requester;
        let of_storage = |is_applied| if is_applied { Readiness::Ready } else { Readiness::LacksStorage };
        match objects {
            RequestedObjects::All => {
                while let Some(&other) = self.open.iter().find(|&&other| other != number) {
                    if !self.take_back(engine, clock, other) {
                        return Readiness::LacksStorage;
                    }
                }
                Readiness::Ready
            }
            RequestedObjects::Volume => {
                // All logs are sealed first, so that the service applies the state of one moment.
                let others = self.open.iter().copied().filter(|&other| other != number);
                let sealed: Vec<_> =
                    others.filter_map(|other| Some((other, self.logs.get(&other)?.seal()))).collect();
                let mut is_applied = true;
                for &(other, tail) in &sealed {
                    is_applied &= self.apply(engine, clock, other, tail, RING_BYTES);
                }
                sealed.into_iter().for_each(|(other, _)| self.reopen(other));
                of_storage(is_applied)
            }
            RequestedObjects::OwnLog => Readiness::Ready,
            RequestedObjects::One(id) => self.take(engine, clock, requester, (id, false)),
            RequestedObjects::Of(op) => {
                let mut ready = Readiness::Ready;
                op.each_touched(&mut |touched| {
                    if let (Touched::Object(id), Readiness::Ready) = (touched, ready) {
                        ready = self.take(engine, clock, requester, (id, true));
                    }
                });
                // An entry may change the object of a name. So the names are looked up last.
                op.each_touched(&mut |touched| {
                    if let Touched::Name { dir, name } = touched
                        && ready == Readiness::Ready
                        && !broken(SafetyRule::NamedObjectsAreTaken)
                        && let Ok(Some(id)) = engine.lookup(dir, name)
                    {
                        ready = self.take(engine, clock, requester, (id, true));
                    }
                });
                ready
            }
        }
    }

    /// Takes the grant of the part with an object back from another session. `is_change` is true if the
    /// request changes the object.
    fn take(
        &mut self,
        engine: &Scm,
        clock: &mut Clock,
        requester: RequestLane,
        (id, is_change): (ObjectId, bool),
    ) -> Readiness {
        self.objects.push(id);
        let (board, part, number) = (engine.volume().board(), part_of(id), requester.0);
        let Some((other, usage)) = self.other_holder(board, part, number) else { return Readiness::Ready };
        let now = Instant::now();
        // A session that changes objects also looks at them. If each look ended the grant of another session,
        // the sessions would log few changes.
        let has_turn = match is_change {
            true => self.contention.may_change(part, number, now),
            false => self.contention.changes(part, number, now),
        };
        if has_turn && self.contention.must_wait(part, requester, usage, now) {
            return Readiness::OthersKeepParts;
        }
        end_early(engine, |board| board.give_part(part, None));
        if !self.apply_all(engine, clock, other) {
            return Readiness::LacksStorage;
        }
        self.give_part(board, part, None);
        if let Some(log) = self.logs.get(&other) {
            self.contention.end_keep(part, other, log.applied, now);
        }
        if !has_turn {
            self.contention.add(part);
        }
        self.reopen(other);
        Readiness::Ready
    }

    /// True if a request must still wait for a part. This check seals no log, so other threads of the waiting
    /// client can log changes meanwhile.
    pub fn still_waits(&mut self, engine: &Scm, requester: RequestLane) -> bool {
        let Some(part) = self.contention.waits_for(requester) else { return false };
        let holder = self.other_holder(engine.volume().board(), part, requester.0);
        holder.is_some_and(|(_, usage)| self.contention.must_wait(part, requester, usage, Instant::now()))
    }

    /// Returns the session that holds a part, and the use of its log, unless this is the session `number`.
    fn other_holder(&self, board: &Board, part: usize, number: u64) -> Option<(u64, LogUse)> {
        let other = self.open_log_of(board.part_holder(part)).filter(|&other| other != number)?;
        Some((other, self.logs.get(&other)?.usage()))
    }

    /// Opens the log of a session, which then may get grants. The log stays sealed until [`Logs::reopen`].
    /// `is_whole` is true if the session then gets the grant of the volume. Returns false if the session gets
    /// no grant.
    pub(super) fn open(&mut self, engine: &Scm, number: u64, is_whole: bool) -> bool {
        let Some(log) = self.logs.get(&number).filter(|log| !log.is_useless) else { return false };
        if log.is_open {
            if let (true, Some(table)) = (is_whole, &self.table) {
                table.set_granted(log.key, LogGrant::Whole);
            }
            return true;
        }
        if self.open.len() >= MOST_OPEN {
            return false;
        }
        let promised = self.promised();
        let Some(log) = self.logs.get_mut(&number) else { return false };
        if !log.is_provisioned {
            log.is_provisioned = true;
            if let Err(error) = provision_log(&log.file) {
                tracing::warn!(%error, "a session has no change log");
                log.is_useless = true;
                return false;
            }
        }
        let budget = budget(engine, &log.file, promised, is_whole);
        let (Some(budget), Some(table)) = (budget, &self.table) else {
            // A refused session gets its next chance only after further changes.
            (log.changes, self.latest.1) = (0, 0);
            return false;
        };
        if let Err(error) = log.renew_generations(engine, table) {
            tracing::warn!(%error, "a session has no generations for new objects");
            return false;
        }
        // While the log was not open, the client may have changed the word of the log.
        log.reset();
        log.set_budget(table, budget);
        engine.promise_storage(promised + budget);
        if !broken(SafetyRule::GrantIsNoted) {
            table.set_granted(log.key, if is_whole { LogGrant::Whole } else { LogGrant::Parts });
        }
        (log.is_open, log.last_entry) = (true, Instant::now());
        self.open.push(number);
        true
    }

    /// True if a session may get the grant of the volume: the session is alone, and the pause after the
    /// latest loss of this grant is over. A session is alone if no other session has an open log or has made
    /// a request lately.
    pub(super) fn is_alone(&self, number: u64) -> bool {
        let is_quiet = |log: &ServedLog| match log.latest_request {
            // Tests under the scheduler do not depend on the time.
            Some(_) if cfg!(feature = "shuttle") => self.latest.1 >= REQUESTS_BEFORE_GRANT,
            at => at.is_none_or(|at| at.elapsed() >= RECENT),
        };
        self.open.iter().all(|&open| open == number)
            && !self.taken.is_some_and(|taken| taken.is_paused())
            && self.logs.iter().all(|(&other, log)| other == number || is_quiet(log))
    }

    /// Gives the grant of the volume to a session that is alone.
    pub(super) fn grant_whole(&mut self, engine: &Scm, number: u64) {
        if !self.open(engine, number, true) {
            return;
        }
        let Some(log) = self.logs.get(&number) else { return };
        // Until the client sees the grant on the board, it logs only changes in the parts that it holds.
        engine.volume().board().grant_to(Some(log.key));
        self.whole = Some(number);
    }

    /// Gives a session the grants of the objects of its latest request, and of objects that were probably
    /// made together with them. Leaves out the parts that another session holds, and those in a pause after a
    /// loss.
    pub(super) fn grant_parts(&mut self, engine: &Scm, clock: &mut Clock, number: u64) {
        let was_open = self.open.contains(&number);
        if !self.open(engine, number, false) {
            return;
        }
        if !was_open {
            let reserved = self.logs.get(&number).map(ServedLog::reserved).unwrap_or_default();
            self.give_reserved(engine, clock, number, &reserved);
        }
        // A failed entry closes the log.
        let Some(log) = self.logs.get_mut(&number).filter(|log| log.is_open) else { return };
        let (board, key) = (engine.volume().board(), log.key);
        log.has_parts = true;
        let (applied, now) = (log.applied, Instant::now());
        for &id in &self.objects {
            if board.is_held_by(id, key) {
                continue;
            }
            self.contention.keep(part_of(id), number, applied, now);
            for part in parts_beside(id) {
                // Before the request, the parts of its objects were taken from other sessions.
                if board.part_holder(part) == 0 && !self.contention.is_paused(part) {
                    self.give_part(board, part, Some(key));
                }
            }
        }
        if board.granted_to() != GRANTED_IN_PARTS {
            board.grant_in_parts();
        }
    }

    /// Gives the grants of reserved ids to the session that has reserved them. No other session uses these
    /// ids, but one may have used the headers before.
    pub fn give_reserved(&mut self, engine: &Scm, clock: &mut Clock, number: u64, ids: &[ObjectId]) {
        let is_in_parts = self.whole.is_none() && self.open.contains(&number);
        // The log opens again after the answer.
        if !is_in_parts || !self.seals_for_grants(engine, clock, number) {
            return;
        }
        // A failed entry closes the log.
        let Some(log) = self.logs.get_mut(&number).filter(|log| log.is_open) else { return };
        log.has_parts = true;
        let (board, key) = (engine.volume().board(), log.key);
        for part in ids.iter().copied().map(part_of) {
            match self.open_log_of(board.part_holder(part)) {
                Some(other) if other == number => {}
                // The part may have further objects, so the log of its holder is applied first.
                Some(other) if !self.apply_all(engine, clock, other) => {}
                other => {
                    self.give_part(board, part, Some(key));
                    other.into_iter().for_each(|other| self.reopen(other));
                }
            }
        }
    }

    /// Gives the grant of a part to a session, or takes it back. The log of the present holder is applied.
    fn give_part(&self, board: &Board, part: usize, key: Option<SessionKey>) {
        // The client may log changes as soon as the board names its session, and these changes outlive the
        // service.
        if let Some(table) = &self.table {
            table.set_holder(part, key);
        }
        board.give_part(part, key);
    }

    /// Returns the session with this key, as a number. `None` if its log is not open.
    fn open_log_of(&self, key: u64) -> Option<u64> {
        if key == 0 {
            return None;
        }
        let has_key = |open: &u64| self.logs.get(open).is_some_and(|log| log.key.raw() == key);
        self.open.iter().copied().find(has_key)
    }

    /// Seals the log of a session and applies it, before the session gets further grants. A thread of the
    /// client may have read an object before the session holds its grant, and the append of this thread must
    /// fail. Returns false if an entry has to wait for free storage.
    pub(super) fn seals_for_grants(&mut self, engine: &Scm, clock: &mut Clock, number: u64) -> bool {
        broken(SafetyRule::GrantsComeUnderASeal) || self.apply_all(engine, clock, number)
    }

    /// Seals the log of a session and applies it. Returns false if an entry has to wait for free storage.
    pub(super) fn apply_all(&mut self, engine: &Scm, clock: &mut Clock, number: u64) -> bool {
        let Some(tail) = self.logs.get(&number).map(ServedLog::seal) else { return true };
        self.apply(engine, clock, number, tail, RING_BYTES)
    }

    /// Takes all grants of a session back. Returns false if an entry has to wait for free storage. The log
    /// then stays sealed.
    pub(super) fn take_back(&mut self, engine: &Scm, clock: &mut Clock, number: u64) -> bool {
        if !self.open.contains(&number) {
            return true;
        }
        if self.whole.is_some() {
            end_early(engine, |board| board.grant_to(None));
        }
        if !self.apply_all(engine, clock, number) {
            return false;
        }
        self.close(engine, number);
        true
    }

    /// Takes all grants back before the service ends. No client holds a pin any more. A log with an entry
    /// that still finds no storage stays for the next owner, and so does a log that the host cannot read.
    pub fn leave_to_next_owner(&mut self, engine: &Scm, clock: &mut Clock) {
        for number in self.open.clone() {
            if let Some(log) = self.logs.get_mut(&number) {
                // The next owner waits for storage as long as necessary, so this service drops no entry.
                log.wait = EntryWait::default();
            }
            let is_applied = (0..LAST_ATTEMPTS).any(|_| {
                engine.reclaim();
                self.take_back(engine, clock, number)
            });
            if !is_applied {
                tracing::warn!("a change log stays for the next owner of the volume");
                self.open.retain(|&open| open != number);
                self.logs.remove(&number);
            }
        }
    }

    /// Takes back all grants of the sessions that have logged nothing for [`IDLE`].
    pub fn take_back_idle(&mut self, engine: &Scm, clock: &mut Clock) {
        for number in self.open.clone() {
            if self.logs.get(&number).is_some_and(|log| log.last_entry.elapsed() >= IDLE) {
                self.take_back(engine, clock, number);
            }
        }
    }

    /// Ends the grants of a session whose log is applied and sealed.
    pub(super) fn close(&mut self, engine: &Scm, number: u64) {
        self.open.retain(|&open| open != number);
        if let Some(log) = self.logs.get_mut(&number) {
            (log.is_open, log.budget) = (false, 0);
            let (key, has_parts) = (log.key, std::mem::take(&mut log.has_parts));
            if let Some(table) = &self.table {
                table.set_granted(key, LogGrant::Nothing);
            }
            if has_parts {
                let board = engine.volume().board();
                board.parts_of(key).for_each(|part| self.give_part(board, part, None));
            }
        }
        if self.whole == Some(number) {
            (self.whole, self.latest.1) = (None, 0);
        }
        engine.promise_storage(self.promised());
        if self.open.is_empty() {
            engine.volume().board().grant_to(None);
        }
    }

    /// Returns the storage that is promised to all logs, in bytes.
    pub(super) fn promised(&self) -> u64 {
        self.logs.values().map(|log| log.budget).sum()
    }
}

/// Ends a grant before the log is applied, if a test has broken the rule against this.
#[inline]
fn end_early(engine: &Scm, end: impl FnOnce(&Board)) {
    if broken(SafetyRule::GrantEndsAfterItsEntries) {
        end(engine.volume().board());
    }
}

/// Returns the storage that the changes in a log may need until they are applied, in bytes. `promised` is the
/// storage that is promised to other logs. `is_whole` is true if no other log will be open. `None` if changes
/// of the volume must not be deferred, or if the volume or the host has too little free storage.
pub(super) fn budget(engine: &Scm, log: &File, promised: u64, is_whole: bool) -> Option<u64> {
    // The log and the volume are on one file system of the host.
    let host = rustix::fs::fstatvfs(log).ok()?;
    let of_host = host.f_bavail.saturating_mul(host.f_frsize) / 4;
    let left = engine.deferral_budget_bytes()?.min(of_host).checked_sub(promised)?;
    // Further sessions need budgets, too.
    let budget = if is_whole { left } else { left / 2 };
    Some(budget).filter(|&budget| budget >= LEAST_BUDGET)
}
