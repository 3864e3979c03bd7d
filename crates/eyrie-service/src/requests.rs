//! Answers requests of clients.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use eyrie_client::protocol::{
    ANSWER_AT, DOORBELL, LANES, LaneAnswer, LaneRequest, OUTCOME_MADE, OUTCOME_NOT_MADE, OUTCOME_UNKNOWN,
    REQUEST_AT, ServiceCall, data_of, head_of, request_number, state,
};
use eyrie_client::sent::{SentAttributes, sent_space};
use eyrie_engine::access::{AccessRules, Credentials, Requester, may_exceed_limits};
use eyrie_engine::board::SessionKey;
use eyrie_engine::op::encode::{decode, decode_unsummed};
use eyrie_engine::scm::{RequestOutcome, Scm};
use eyrie_engine::{Engine, Error, Kind, ObjectId, Op, Result, Time};
use eyrie_medium::Addr;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::lock;
use zerocopy::{FromZeros, IntoBytes};

use self::answers::{Done, answer_of, quotas};
use self::needs::{
    has_one_object, has_room_for_ids, may_find_storage, may_set_feature, needs_applied_log, reads_volume,
    storage_of,
};
use crate::clock::Clock;
use crate::locks::LockClient;
use crate::logs::{Logs, Readiness, RequestLane, RequestedObjects};
use crate::session::{Joined, Session};

mod answers;
mod needs;

/// Maximum number of reserved ids of one session. A batch of keys needs an id for each value that it puts.
const MOST_RESERVED: usize = 1 << 16;
/// Number of reserved ids of one session above which its log is applied before it gets further ids. Most of
/// these ids belong to new objects whose entries are not applied.
const MOST_UNAPPLIED: usize = 4096;
/// Maximum number of ids in one answer.
const MOST_IDS: u64 = 512;
/// Largest buffer for requests, in bytes, that the service keeps for the next request.
const KEPT_BYTES: usize = 1 << 20;

/// Answers requests.
pub struct Requests {
    /// The private copy of a request.
    buffer: Vec<u8>,
    clock: Clock,
    logs: Logs,
    waited: Waits,
}

/// The ways in which clients have waited for their answers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Waits {
    /// True if a client has slept, and its answer has woken it.
    pub asleep: bool,
    /// True if a client has not slept.
    pub awake: bool,
}

/// The requests that stay without an answer while storage is missing.
#[derive(Clone, Copy, Default, Debug)]
pub struct StorageWaits {
    /// True if a request that finds no free storage gets no answer yet.
    pub requests: bool,
    /// True if a request that must wait for an entry of a log gets no answer yet.
    pub entries: bool,
}

impl StorageWaits {
    pub const ALL: StorageWaits = StorageWaits { requests: true, entries: true };
}

/// The result of [`Requests::answer_all`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Answered {
    /// The session had no new request.
    Nothing,
    /// Each new request has its answer, or waits for notices.
    All,
    /// A request waits for its turn at objects that other sessions change, too.
    Later,
    /// A request found no free storage, and has no answer yet.
    Full,
}

impl Requests {
    pub fn new() -> Requests {
        Requests {
            buffer: Vec::new(),
            clock: Clock::default(),
            logs: Logs::default(),
            waited: Waits::default(),
        }
    }

    /// Answers the new requests of a session, except those that must wait for storage.
    pub fn answer_all(&mut self, engine: &Scm, session: &mut Session, waits: StorageWaits) -> Answered {
        let Session { who, joined: Some(joined), .. } = session else { return Answered::Nothing };
        let doorbell = || joined.lanes.word(DOORBELL);
        // The load comes first, because an exchange would take the cache line from the client each time.
        if doorbell().load(Ordering::Relaxed) == 0 {
            return Answered::Nothing;
        }
        let rung = joined.lanes.word_to_store(DOORBELL).swap(0, Ordering::SeqCst);
        let mut answered = Answered::All;
        for lane in (0..=LANES).filter(|lane| rung >> lane & 1 != 0) {
            let of_lane = self.answer(engine, who, joined, lane, waits);
            if of_lane != Answered::All {
                joined.lanes.word_to_store(DOORBELL).fetch_or(1 << lane, Ordering::SeqCst);
            }
            answered = answered.max(of_lane);
        }
        if self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
        answered
    }

    /// Answers each request of a session that has waited for notices, if its wait has ended.
    pub fn answer_watchers(&mut self, engine: &Scm, session: &mut Session) {
        let Session { who, joined: Some(joined), .. } = session else { return };
        // A client that waits for notices has no further request soon, so this answer need not keep the
        // service awake.
        let waited = self.waited;
        while let Some(lane) = joined.watchers.take_ready() {
            self.answer(engine, who, joined, lane, StorageWaits::default());
        }
        self.waited = waited;
    }

    /// Takes back all grants of the sessions that have logged nothing for a while.
    pub fn take_back_idle(&mut self, engine: &Scm) {
        self.logs.take_back_idle(engine, &mut self.clock);
    }

    /// Returns the change logs of the sessions, and the clock that gives their changes times.
    pub fn logs(&mut self) -> (&mut Logs, &mut Clock) {
        (&mut self.logs, &mut self.clock)
    }

    /// Returns the ways in which clients have waited for the answers since the last call. Answers with
    /// notices do not count.
    pub fn take_waits(&mut self) -> Waits {
        std::mem::take(&mut self.waited)
    }

    /// Answers the request of a lane, unless it must wait.
    fn answer(
        &mut self,
        engine: &Scm,
        who: &Credentials,
        joined: &mut Joined,
        lane: usize,
        waits: StorageWaits,
    ) -> Answered {
        let (head, (start, room)) = (head_of(lane), data_of(lane));
        let is_asked = |word: u32| [state::REQUESTED, state::WAITING].contains(&word);
        if !is_asked(joined.lanes.short_word(head / 4).load(Ordering::Acquire)) {
            return Answered::All;
        }
        // The client may change these bytes at any moment, so the service uses copies of them.
        let mut request = LaneRequest::new_zeroed();
        joined.lanes.read(head + REQUEST_AT, request.as_mut_bytes());
        let (call, requester) = (ServiceCall::from_raw(request.call), (joined.number, lane));
        let needs_applied_log = call.is_some_and(|call| needs_applied_log(engine, joined, call));
        if needs_applied_log && self.logs.still_waits(engine, requester) {
            return Answered::Later;
        }
        let takes_storage = matches!(call, Some(ServiceCall::Apply | ServiceCall::Reserve));
        let has_room = request.data_bytes <= room as u64;
        self.buffer.resize(if has_room { request.data_bytes as usize } else { 0 }, 0);
        joined.lanes.read(start, &mut self.buffer);
        let ready = match needs_applied_log {
            true => self.apply_logs(engine, requester, call, request.id),
            false => Readiness::Ready,
        };
        if ready == Readiness::OthersKeepParts {
            // During the wait, other threads of the client may log changes.
            self.logs.reopen(joined.number);
            return Answered::Later;
        }
        let is_ready = ready == Readiness::Ready;
        if !is_ready && waits.entries {
            return Answered::Full;
        }
        let done = if !is_ready && call != Some(ServiceCall::Space) {
            // A logged change still waits for storage. The pin of this client may hold this storage back, so
            // the client repeats the call under another pin. A client that asks for the space repeats no
            // call, so it gets the space without the waiting change.
            Err(Error::Stale)
        } else if has_room {
            self.handle(engine, who, joined, lane, &request)
        } else {
            Err(Error::Invalid("a request with more data than its lane holds"))
        };
        let done = match done {
            Err(error)
                if error.is_full() && waits.requests && may_find_storage(engine, call, &self.buffer) =>
            {
                self.logs.before_answer(engine, &mut self.clock, joined.number, takes_storage);
                self.logs.reopen(joined.number);
                return Answered::Full;
            }
            done => done,
        };
        let Some((answer, data)) = answer_of(done) else { return Answered::All };
        let data = &data[..data.len().min(room)];
        joined.lanes.write(start, data);
        let answer = LaneAnswer { data_bytes: data.len() as u32, ..answer };
        joined.lanes.write(head + ANSWER_AT, answer.as_bytes());
        if is_ready {
            if needs_applied_log {
                self.logs.count_request(joined.number);
            }
            self.logs.before_answer(engine, &mut self.clock, joined.number, takes_storage);
        }
        let word = head / 4;
        let before = joined.lanes.short_word_to_store(word).swap(state::ANSWERED, Ordering::AcqRel);
        if request.call == ServiceCall::Apply as u32 {
            // The client has the answer, so the next service need not find out the result.
            let _ = engine.forget_request();
            if answer.error == 0 {
                self.logs.changed(engine, &mut self.clock, joined.number);
            }
        } else if request.call == ServiceCall::ApplyLogs as u32 && is_ready {
            self.logs.looked(engine, &mut self.clock, joined.number);
        }
        // The log opens only after the answer. If the service dies before the answer, the client repeats its
        // request. With an open log, the repeated write could come after a later write that the client has
        // logged.
        if is_ready {
            self.logs.reopen(joined.number);
        }
        // The wake comes last, because the host may run the woken client at once, on the processor of the
        // service. With a sealed log the client could only make requests.
        if before == state::WAITING {
            joined.lanes.wake_one(word);
            self.waited.asleep = true;
        } else {
            self.waited.awake = true;
        }
        Answered::All
    }

    /// Applies the logged changes of the objects of a request.
    fn apply_logs(
        &mut self,
        engine: &Scm,
        requester: RequestLane,
        call: Option<ServiceCall>,
        id: u64,
    ) -> Readiness {
        let Requests { logs, clock, buffer, .. } = self;
        let decoded = if call == Some(ServiceCall::Apply) && logs.wants_objects(requester.0) {
            // If the checksum is wrong, the request fails later, and to have applied the logs is harmless.
            decode_unsummed(buffer).ok()
        } else {
            None
        };
        let op = decoded.as_ref().map(|(decoded, _)| decoded.op());
        let concerns_all =
            |op: &Op<'_>| may_set_feature(op) || !engine.leaves_promised_storage(storage_of(op));
        let objects = match (&op, call.filter(|call| has_one_object(*call)), ObjectId::from_raw(id)) {
            (Some(op), ..) if !concerns_all(op) => RequestedObjects::Of(op),
            (None, Some(_), Some(id)) => RequestedObjects::One(id),
            _ if call.is_some_and(reads_volume) => RequestedObjects::Volume,
            _ if call == Some(ServiceCall::Reserve) && has_room_for_ids(engine) => RequestedObjects::OwnLog,
            _ => RequestedObjects::All,
        };
        let ready = logs.before_request(engine, clock, requester, objects);
        if ready != Readiness::OthersKeepParts {
            logs.end_wait(requester);
        }
        ready
    }

    fn handle(
        &mut self,
        engine: &Scm,
        who: &Credentials,
        joined: &mut Joined,
        lane: usize,
        request: &LaneRequest,
    ) -> Result<Done> {
        let call = ServiceCall::from_raw(request.call).ok_or(Error::Invalid("an unknown request"))?;
        let id = || ObjectId::from_raw(request.id).ok_or(Error::Stale);
        match call {
            ServiceCall::Apply => {
                return self.apply(engine, who, joined, lane, request);
            }
            ServiceCall::Reserve => {
                let done = reserve(engine, joined, request)?;
                let ids = done.data.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw));
                let ids: Vec<_> = ids.filter_map(ObjectId::from_raw).collect();
                self.logs.give_reserved(engine, &mut self.clock, joined.number, &ids);
                return Ok(done);
            }
            ServiceCall::Unreserve => {
                // Only an id that this session has reserved goes back.
                if lock(&joined.reserved).remove(&id()?) {
                    engine.reset_reserved(id()?);
                    engine.unreserve(id()?);
                }
            }
            ServiceCall::Attributes => {
                let attributes = engine.attributes(id()?)?;
                if !id()?.is_directory() {
                    return Err(Error::NotDirectory);
                }
                let data = SentAttributes::of(&attributes).as_bytes().to_vec();
                return Ok(Done { data, ..Done::default() });
            }
            ServiceCall::Version => return Ok(Done::words(&engine.version(id()?)?.raw())),
            ServiceCall::Seal => {
                requester(engine, who, Clock::now()).check_read(id()?)?;
                engine.seal(id()?)?;
            }
            ServiceCall::WaitFor => engine.wait_for(id()?)?,
            ServiceCall::Sync => engine.sync()?,
            ServiceCall::Space => return Ok(Done::words(&sent_space(&engine.space()))),
            ServiceCall::Quotas => return quotas(engine, who, request),
            ServiceCall::Closed => engine.close_claimed(id()?),
            ServiceCall::IsOrphan if engine.is_orphan(id()?) => {}
            ServiceCall::IsOrphan => return Err(Error::Stale),
            ServiceCall::Reclaim => {
                return Ok(Done { number: engine.reclaim().into(), ..Done::default() });
            }
            ServiceCall::Watch => joined.watchers.begin(engine, request.number, request.id)?,
            ServiceCall::Notices => {
                let notices = joined.watchers.take(lane, request.number, request.id)?;
                let waits = notices.is_none();
                return Ok(Done { waits, data: notices.unwrap_or_default(), ..Done::default() });
            }
            ServiceCall::Unwatch => {
                if let Some(waiting) = joined.watchers.end(request.number) {
                    // The request now fails, because the watcher is gone.
                    self.answer(engine, who, joined, waiting, StorageWaits::default());
                }
            }
            ServiceCall::Outcome => {
                let outcome = engine.request_outcome(SessionKey::from_raw(request.id), request.number)?;
                return Ok(match outcome {
                    RequestOutcome::NotMade => Done::words(&[OUTCOME_NOT_MADE]),
                    RequestOutcome::Made { number, created } => {
                        Done { number, second_number: created.into(), ..Done::words(&[OUTCOME_MADE]) }
                    }
                    RequestOutcome::Unknown => Done::words(&[OUTCOME_UNKNOWN]),
                });
            }
            ServiceCall::TryLock | ServiceCall::FindLock | ServiceCall::EndLocks => {
                let requester = requester(engine, who, Clock::now());
                let client = LockClient { requester, session: joined.key.raw() };
                let (number, data) = client.answer(call, id()?, &self.buffer)?;
                return Ok(Done { number, data, ..Done::default() });
            }
            ServiceCall::BringPages => {
                joined.last_page = Instant::now();
                engine.volume().medium().bring(Addr::from_raw(request.id), request.number)?;
            }
            // The logs are applied already.
            ServiceCall::ApplyLogs => {}
            ServiceCall::EndWait => {
                engine.lock_table().end_wait_of_client(joined.key.raw(), request.number);
            }
        }
        Ok(Done::default())
    }

    /// Applies an encoded Op if the client may make it.
    fn apply(
        &mut self,
        engine: &Scm,
        who: &Credentials,
        joined: &mut Joined,
        lane: usize,
        request: &LaneRequest,
    ) -> Result<Done> {
        let (decoded, length) = decode(&self.buffer).map_err(|_| Error::Invalid("a damaged request"))?;
        if length != self.buffer.len() {
            return Err(Error::Invalid("bytes after the Op of a request"));
        }
        let op = decoded.op();
        let new = op.new_ids();
        let distinct: HashSet<_> = new.iter().collect();
        if distinct.len() != new.len() {
            return Err(Error::Invalid("an Op that names a new object twice"));
        }
        if !new.iter().all(|id| lock(&joined.reserved).contains(id)) {
            return Err(Error::NotReserved);
        }
        let time = self.clock.next();
        let op = requester(engine, who, time).authorize(&op)?;
        if !broken(SafetyRule::RequestIsRecordedFirst) {
            engine.record_request(joined.key, request_number(lane, request.sequence), &op, time)?;
        }
        let apply = || match may_exceed_limits(who) {
            true => engine.apply_above_limits(&op),
            false => engine.apply(&op),
        };
        let volume = engine.volume();
        let apply = || match volume.medium().fences_make_durable() {
            true => volume.board().applying_op(apply),
            false => apply(),
        };
        let applied = joined.watchers.quietly(request.number, apply).inspect_err(|error| {
            for id in &new {
                // A failed Op may have written the header of its new object. Without a reset, the client
                // could give the object a name, and also give the id back.
                match error {
                    // The change may have been made, so the id may be in use. Otherwise the id is leaked
                    // until the next recovery.
                    Error::Fault(_) if !error.is_full() => _ = lock(&joined.reserved).remove(id),
                    _ => engine.reset_reserved(*id),
                }
            }
        })?;
        let uses_ids = match op {
            Op::Put { .. } | Op::Rename { .. } => applied.created,
            // A batch also gives back the ids that it did not use.
            _ => true,
        };
        if uses_ids {
            new.iter().for_each(|id| _ = lock(&joined.reserved).remove(id));
        }
        let number = match new[..] {
            [id] if applied.created => engine.birth(id).map_or(0, |birth| birth.generation),
            _ => applied.offset,
        };
        Ok(Done { number, second_number: applied.created.into(), ..Done::default() })
    }
}

fn reserve(engine: &Scm, joined: &Joined, request: &LaneRequest) -> Result<Done> {
    let kind = u8::try_from(request.id).ok().and_then(Kind::from_raw);
    let kind = kind.ok_or(Error::Invalid("an id of an unknown kind"))?;
    let (mut ids, mut reserved) = (Vec::new(), lock(&joined.reserved));
    // A request gets at most half of the ids that the session may still reserve, so that some are left for
    // other kinds.
    let most = (MOST_RESERVED.saturating_sub(reserved.len()) as u64).div_ceil(2);
    for _ in 0..request.number.clamp(1, MOST_IDS).min(most) {
        match engine.reserve(kind) {
            Ok(id) => {
                reserved.insert(id);
                ids.push(id.raw());
            }
            // Fewer ids than asked for are enough.
            Err(_) if !ids.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    if ids.is_empty() {
        // The session needs all of these ids at the same time, so it wants to make a larger change than a
        // service allows.
        return Err(Error::TooLarge);
    }
    Ok(Done::words(&ids))
}

fn requester<'a>(engine: &'a Scm, who: &'a Credentials, now: Time) -> Requester<'a, Scm> {
    Requester { engine, who, rules: AccessRules::default(), now }
}
