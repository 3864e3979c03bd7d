//! The parts of a volume that sessions have taken from each other.
//!
//! A session may only look at the objects of a part that another session changes. Its look takes the grant of
//! the part back at once, and then nobody gets this grant for a while, so further looks need no request.
//! Other parts are changed by several sessions, for example if all of them make files in one directory. If
//! each change took the grant back, every change would be a request. So each of these sessions keeps the
//! grant for a short time, and the requests of the others wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Shortest and longest time between the loss of a grant to another session and the next grant.
pub const PAUSES: (Duration, Duration) = if cfg!(feature = "shuttle") {
    (Duration::ZERO, Duration::ZERO)
} else {
    (Duration::from_millis(1), Duration::from_secs(1))
};
/// Time for which a session keeps the grant of a part that others change, too: several times the time to wake
/// a process, because the session may sleep when it gets the grant.
const KEPT: Duration = if cfg!(feature = "shuttle") { Duration::ZERO } else { Duration::from_micros(300) };
/// Time without a further entry after which a session no longer keeps the grant.
const UNUSED: Duration = Duration::from_micros(20);
/// Maximum time for which a request waits because other sessions keep the grants of its objects, or have
/// waited for longer.
const LONGEST_KEPT: Duration = Duration::from_millis(5);
/// Time for which a change of a part counts as recent. Tests under the scheduler do not depend on the time.
const RECENT: Duration = if cfg!(feature = "shuttle") { Duration::MAX } else { Duration::from_millis(100) };
/// Maximum number of sessions whose requests wait for one part. A request of a further session takes the
/// grant back at once, and nobody gets it for a while. So if many sessions change a part, they make requests.
const MOST_CHANGERS: usize = 8;
/// Smallest number of parts at which a table forgets those that nobody has taken or changed lately.
const MOST_PARTS: usize = 4096;

/// A time at which a session lost a grant to another session.
#[derive(Clone, Copy)]
pub struct Taken {
    at: Instant,
    /// No session gets the grant for this time.
    pause: Duration,
}

impl Taken {
    /// Notes that a session has lost a grant now. If that happens again and again, the pauses become longer.
    pub fn again(before: Option<Taken>) -> Taken {
        let at = Instant::now();
        let is_recent = |taken: &Taken| at - taken.at < 10 * taken.pause;
        let pause = before.filter(is_recent).map_or(PAUSES.0, |taken| (2 * taken.pause).min(PAUSES.1));
        Taken { at, pause }
    }

    /// True if no session gets the grant yet.
    pub fn is_paused(&self) -> bool {
        self.at.elapsed() < self.pause
    }
}

/// The recent changes of a part.
#[derive(Default)]
struct Changes {
    /// The sessions that have changed the part, with the time of their latest change.
    sessions: Vec<(u64, Instant)>,
    /// The moment until which the holder keeps the part, and the position up to which its log was applied
    /// when it got the part.
    kept: Option<(Instant, u64)>,
}

impl Changes {
    fn forget_old(&mut self, now: Instant) {
        self.sessions.retain(|&(_, at)| now - at < RECENT);
    }
}

/// A request: the number of its session, and its lane.
pub type RequestLane = (u64, usize);

/// The use that a session makes of its log.
#[derive(Clone, Copy, Debug)]
pub struct LogUse {
    /// Position up to which the log is applied.
    pub applied: u64,
    /// True if the log has entries that are not applied.
    pub has_entries: bool,
    /// Time at which the log was opened, or at which an entry was last applied.
    pub last_entry: Instant,
}

/// The parts that several sessions use.
#[derive(Default)]
pub struct Contention {
    /// The parts whose grant a session has lost to a session without turns.
    lost: HashMap<usize, Taken>,
    /// The parts that sessions have changed.
    changed: HashMap<usize, Changes>,
    /// Numbers of parts at which the two tables next forget some, if larger than [`MOST_PARTS`]. Each is
    /// twice the number of parts that were left the last time. With a fixed number, a client that uses many
    /// parts would make each request look at all of these parts.
    forget_at: (usize, usize),
    /// The part for which each waiting request waits now, and the time at which the request began to wait.
    waiting: HashMap<RequestLane, (usize, Instant)>,
    /// True if sessions keep parts in turn. False if the service shares its only processor with its clients,
    /// because the holder of a part cannot run while the service waits for the end of its turn.
    pub has_turns: bool,
}

impl Contention {
    /// Notes that a session has lost the grant of a part now to a session that has no turns at it.
    pub fn add(&mut self, part: usize) {
        if self.lost.len() >= self.forget_at.0.max(MOST_PARTS) {
            self.lost.retain(|_, taken| taken.is_paused());
            self.forget_at.0 = 2 * self.lost.len();
        }
        let before = self.lost.get(&part).copied();
        self.lost.insert(part, Taken::again(before));
    }

    /// True if no session gets the grant of the part yet, because others look at the objects of the part too
    /// often.
    pub fn is_paused(&self, part: usize) -> bool {
        self.lost.get(&part).is_some_and(Taken::is_paused)
    }

    /// Notes that a session has changed the part.
    pub fn note_change(&mut self, part: usize, session: u64, now: Instant) {
        if self.changed.len() >= self.forget_at.1.max(MOST_PARTS) {
            self.changed.retain(|_, changes| {
                changes.forget_old(now);
                !changes.sessions.is_empty()
            });
            self.forget_at.1 = 2 * self.changed.len();
        }
        let changes = self.changed.entry(part).or_default();
        if let Some((_, at)) = changes.sessions.iter_mut().find(|(by, _)| *by == session) {
            *at = now;
            return;
        }
        changes.forget_old(now);
        if changes.sessions.len() < MOST_CHANGERS {
            changes.sessions.push((session, now));
        }
    }

    /// True if the session has changed the part lately, and so gets turns at it.
    pub fn changes(&self, part: usize, session: u64, now: Instant) -> bool {
        let is_recent = |&(by, at): &(u64, Instant)| by == session && now - at < RECENT;
        self.has_turns && self.changed.get(&part).is_some_and(|it| it.sessions.iter().any(is_recent))
    }

    /// True if a change of the part by the session gets a turn. False if [`MOST_CHANGERS`] other sessions
    /// have changed the part lately.
    pub fn may_change(&self, part: usize, session: u64, now: Instant) -> bool {
        let is_other = |&&(by, at): &&(u64, Instant)| by != session && now - at < RECENT;
        let others = |changes: &Changes| changes.sessions.iter().filter(is_other).count();
        self.has_turns && self.changed.get(&part).is_none_or(|it| others(it) < MOST_CHANGERS)
    }

    /// Notes that a session has got the grant of a part. If others have changed the part lately, the session
    /// keeps the grant for a short time.
    pub fn keep(&mut self, part: usize, session: u64, applied: u64, now: Instant) {
        if let Some(changes) = self.changed.get_mut(&part) {
            let is_other = |&(by, at): &(u64, Instant)| by != session && now - at < RECENT;
            changes.kept = changes.sessions.iter().any(is_other).then_some((now + KEPT, applied));
        }
    }

    /// Notes that the holder of a part loses it now. `applied` is the position up to which its log is
    /// applied.
    pub fn end_keep(&mut self, part: usize, holder: u64, applied: u64, now: Instant) {
        let kept = self.changed.get_mut(&part).and_then(|changes| changes.kept.take());
        if kept.is_some_and(|(_, from)| applied > from) {
            self.note_change(part, holder, now);
        }
    }

    /// True if a request of a session that changes the part must wait, because the holder keeps the part or
    /// another session has waited for longer. The wait for all parts of a request has one limit, because the
    /// request may lose one part while it waits for another.
    pub fn must_wait(&mut self, part: usize, requester: RequestLane, holder: LogUse, now: Instant) -> bool {
        let since = self.waiting.get(&requester).map_or(now, |&(_, since)| since);
        let kept = self.changed.get(&part).and_then(|changes| changes.kept);
        let is_kept = kept.is_some_and(|(until, from)| {
            let is_unused = holder.applied > from && !holder.has_entries && now - holder.last_entry >= UNUSED;
            now < until && !is_unused
        });
        let is_earlier = |(&(other, _), &(waits_for, at)): (&RequestLane, &(usize, Instant))| {
            other != requester.0 && waits_for == part && at < since && now - at < LONGEST_KEPT
        };
        let waits = now - since < LONGEST_KEPT && (is_kept || self.waiting.iter().any(is_earlier));
        if waits {
            self.waiting.insert(requester, (part, since));
        }
        waits
    }

    /// Returns the part for which a request waited when the service last looked at the request.
    pub fn waits_for(&self, requester: RequestLane) -> Option<usize> {
        self.waiting.get(&requester).map(|&(part, _)| part)
    }

    /// Notes that a request no longer waits for a part.
    pub fn end_wait(&mut self, requester: RequestLane) {
        // Usually nothing waits, and the empty table needs no hash.
        if !self.waiting.is_empty() {
            self.waiting.remove(&requester);
        }
    }

    /// Forgets a session that has ended.
    pub fn forget(&mut self, session: u64) {
        self.waiting.retain(|&(waiting, _), _| waiting != session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = 5;

    /// Returns a table in which the sessions 1 to `count` have changed the part now.
    fn changed_by(count: u64) -> (Contention, Instant) {
        let mut contention = Contention { has_turns: true, ..Contention::default() };
        let now = Instant::now();
        (1..=count).for_each(|session| contention.note_change(PART, session, now));
        (contention, now)
    }

    /// Returns the use of a log. The latest entry was applied so long ago that the turn ends, unless the log
    /// has an entry that is not applied.
    fn log_use(applied: u64, has_entries: bool, now: Instant) -> LogUse {
        LogUse { applied, has_entries, last_entry: now - UNUSED }
    }

    #[test]
    fn only_sessions_that_change_a_part_keep_it() {
        let (mut alone, now) = changed_by(1);
        alone.keep(PART, 1, 0, now);
        assert!(!alone.must_wait(PART, (2, 0), log_use(0, true, now), now));
        let (mut shared, now) = changed_by(2);
        shared.keep(PART, 1, 0, now);
        assert!(shared.must_wait(PART, (2, 0), log_use(0, false, now), now));
        let changers = [(PART, 2), (PART, 3), (6, 2)];
        assert_eq!(changers.map(|(part, session)| shared.changes(part, session, now)), [true, false, false]);
        assert!(!shared.changes(PART, 2, now + RECENT));
    }

    #[test]
    fn holder_that_logs_nothing_more_keeps_nothing() {
        let (mut shared, now) = changed_by(2);
        shared.keep(PART, 1, 64, now);
        assert!(shared.must_wait(PART, (2, 0), log_use(128, true, now), now));
        assert!(!shared.must_wait(PART, (2, 0), log_use(128, false, now), now));
    }

    #[test]
    fn part_is_kept_for_a_short_time() {
        let (mut shared, now) = changed_by(2);
        shared.keep(PART, 1, 0, now);
        assert!(shared.must_wait(PART, (2, 0), log_use(64, true, now), now));
        let later = now + KEPT;
        assert!(!shared.must_wait(PART, (2, 0), log_use(64, true, later), later));
    }

    #[test]
    fn session_that_waits_longest_comes_first() {
        let (mut shared, now) = changed_by(3);
        let at = |micros| now + Duration::from_micros(micros);
        shared.keep(PART, 1, 0, now);
        let mut waits = |session, applied, micros| {
            shared.must_wait(PART, (session, 0), log_use(applied, false, at(micros)), at(micros))
        };
        assert!(waits(3, 0, 1) && waits(2, 0, 2));
        assert!(waits(2, 64, 3) && !waits(3, 64, 4));
        shared.end_wait((3, 0));
        assert!(!shared.must_wait(PART, (2, 0), log_use(64, false, at(5)), at(5)));
    }

    #[test]
    fn wait_ends_although_others_keep_the_part() {
        let (mut shared, mut now) = changed_by(2);
        let end = now + LONGEST_KEPT;
        while now < end {
            shared.keep(PART, 1, 0, now);
            assert!(shared.must_wait(PART, (2, 0), log_use(64, true, now), now));
            now += KEPT / 2;
        }
        assert!(!shared.must_wait(PART, (2, 0), log_use(64, true, end), end));
    }

    /// The lanes 0 and 1 of a session wait for two parts each, in turn.
    #[test]
    fn wait_of_each_request_ends_although_parts_are_lost_again() {
        let (mut shared, mut now) = changed_by(2);
        (1..=2).for_each(|session| shared.note_change(6, session, now));
        let end = now + LONGEST_KEPT;
        for parts in [[PART, 6], [6, PART]].into_iter().cycle() {
            for (lane, part) in parts.into_iter().enumerate() {
                shared.keep(part, 1, 0, now);
                let waits = shared.must_wait(part, (2, lane), log_use(64, true, now), now);
                assert_eq!(waits, now < end);
            }
            if now >= end {
                break;
            }
            now += KEPT / 2;
        }
        shared.forget(2);
        assert_eq!(shared.waits_for((2, 0)).or(shared.waits_for((2, 1))), None);
    }

    #[test]
    fn parts_without_recent_changes_are_forgotten() {
        let (mut shared, now) = changed_by(1);
        let mut change =
            |parts: std::ops::Range<usize>, now| parts.for_each(|part| shared.note_change(part, 1, now));
        change(0..3 * MOST_PARTS / 2, now);
        change(3 * MOST_PARTS / 2..2 * MOST_PARTS + 1, now + RECENT);
        assert_eq!((shared.changed.len(), shared.forget_at.1), (MOST_PARTS / 2 + 1, MOST_PARTS));
    }

    #[test]
    fn sessions_beyond_the_limit_do_not_wait() {
        let (shared, now) = changed_by(MOST_CHANGERS as u64 + 1);
        let last = MOST_CHANGERS as u64;
        assert!(shared.changes(PART, last, now) && shared.may_change(PART, last, now));
        assert!(!shared.changes(PART, last + 1, now) && !shared.may_change(PART, last + 1, now));
        assert!(shared.may_change(PART, last + 1, now + RECENT));
    }
}
