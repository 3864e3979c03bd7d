//! Answers requests of clients.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use eyrie_client::protocol::{
    ANSWER_AT, DOORBELL, LANES, LaneAnswer, LaneRequest, REQUEST_AT, SentAttributes, ServiceCall, data_of,
    head_of, send_error, sent_space, state,
};
use eyrie_engine::access::{AccessRules, Credentials, Requester};
use eyrie_engine::op::encode::decode;
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, Error, Kind, ObjectId, Op, Result, Time};
use rustix::thread::futex;
use zerocopy::{FromZeros, IntoBytes};

use crate::session::{Joined, Session};

/// Most ids that one session may have reserved.
const MOST_RESERVED: usize = 4096;
/// Most ids in one answer.
const MOST_IDS: u64 = 64;
/// Bytes of the buffer for requests that the service keeps after a large request.
const KEPT_BYTES: usize = 1 << 20;

/// The values of an answer.
#[derive(Default)]
struct Done {
    number: u64,
    other: u64,
    data: Vec<u8>,
}

impl Done {
    fn words(words: &[u64]) -> Done {
        Done { data: words.iter().flat_map(|word| word.to_le_bytes()).collect(), ..Done::default() }
    }
}

/// Answers the new requests of a session. Returns false if it had none. `buffer` is reused.
pub fn answer_all(engine: &Scm, session: &mut Session, buffer: &mut Vec<u8>) -> bool {
    let Session { who, joined: Some(joined), .. } = session else { return false };
    let doorbell = &joined.lanes.words()[DOORBELL];
    // A load first: an exchange would take the line from the client each time.
    if doorbell.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let rung = doorbell.swap(0, Ordering::SeqCst);
    for lane in (0..=LANES).filter(|lane| rung >> lane & 1 != 0) {
        answer(engine, who, joined, lane, buffer);
    }
    if buffer.capacity() > KEPT_BYTES {
        *buffer = Vec::new();
    }
    true
}

fn answer(engine: &Scm, who: &Credentials, joined: &mut Joined, lane: usize, buffer: &mut Vec<u8>) {
    let (head, (start, room)) = (head_of(lane), data_of(lane));
    let is_asked = |word: u32| [state::REQUESTED, state::WAITING].contains(&word);
    if !is_asked(joined.lanes.short_words()[head / 4].load(Ordering::Acquire)) {
        return;
    }
    // The client may change these bytes at any moment, so the service uses copies of them.
    let mut request = LaneRequest::new_zeroed();
    joined.lanes.read(head + REQUEST_AT, request.as_mut_bytes());
    let done = if request.data_bytes <= room as u64 {
        buffer.resize(request.data_bytes as usize, 0);
        joined.lanes.read(start, buffer);
        handle(engine, who, joined, &request, buffer)
    } else {
        Err(Error::Invalid("a request with more data than its lane holds"))
    };
    let (answer, data) = match done {
        Ok(done) => {
            (LaneAnswer { error: 0, data_bytes: 0, number: done.number, other: done.other }, done.data)
        }
        Err(error) => {
            let (error, number, text) = send_error(&error);
            (LaneAnswer { error, data_bytes: 0, number, other: 0 }, text.into_bytes())
        }
    };
    let data = &data[..data.len().min(room)];
    joined.lanes.write(start, data);
    let answer = LaneAnswer { data_bytes: data.len() as u32, ..answer };
    joined.lanes.write(head + ANSWER_AT, answer.as_bytes());
    let word = &joined.lanes.short_words()[head / 4];
    if word.swap(state::ANSWERED, Ordering::AcqRel) == state::WAITING {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}

fn handle(
    engine: &Scm,
    who: &Credentials,
    joined: &mut Joined,
    request: &LaneRequest,
    data: &[u8],
) -> Result<Done> {
    let call = ServiceCall::from_raw(request.call).ok_or(Error::Invalid("an unknown request"))?;
    let id = || ObjectId::from_raw(request.id).ok_or(Error::Stale);
    match call {
        ServiceCall::Apply => apply(engine, who, joined, data),
        ServiceCall::Reserve => reserve(engine, joined, request),
        ServiceCall::Unreserve => {
            // Only an id that this session has reserved goes back.
            if joined.reserved.remove(&id()?) {
                engine.reset_reserved(id()?);
                engine.unreserve(id()?);
            }
            Ok(Done::default())
        }
        ServiceCall::Attributes => {
            let attributes = engine.attributes(id()?)?;
            if !id()?.is_directory() {
                return Err(Error::NotDirectory);
            }
            let data = SentAttributes::of(&attributes).as_bytes().to_vec();
            Ok(Done { data, ..Done::default() })
        }
        ServiceCall::Version => Ok(Done::words(&engine.version(id()?)?.raw())),
        ServiceCall::Seal => {
            requester(engine, who).check_read(id()?)?;
            engine.seal(id()?).map(|()| Done::default())
        }
        ServiceCall::WaitFor => engine.wait_for(id()?).map(|()| Done::default()),
        ServiceCall::Sync => engine.sync().map(|()| Done::default()),
        ServiceCall::Space => Ok(Done::words(&sent_space(&engine.space()))),
        ServiceCall::Closed => {
            engine.close_claimed(id()?);
            Ok(Done::default())
        }
        ServiceCall::IsOrphan if engine.is_orphan(id()?) => Ok(Done::default()),
        ServiceCall::IsOrphan => Err(Error::Stale),
        ServiceCall::Reclaim => Ok(Done { number: engine.reclaim().into(), ..Done::default() }),
    }
}

fn reserve(engine: &Scm, joined: &mut Joined, request: &LaneRequest) -> Result<Done> {
    let kind = u8::try_from(request.id).ok().and_then(Kind::from_raw);
    let kind = kind.ok_or(Error::Invalid("an id of an unknown kind"))?;
    let mut ids = Vec::new();
    for _ in 0..request.number.clamp(1, MOST_IDS) {
        if joined.reserved.len() >= MOST_RESERVED {
            break;
        }
        match engine.reserve(kind) {
            Ok(id) => {
                joined.reserved.insert(id);
                ids.push(id.raw());
            }
            // Fewer ids than asked for are enough.
            Err(_) if !ids.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    if ids.is_empty() {
        return Err(Error::Invalid("the session has reserved too many ids"));
    }
    Ok(Done::words(&ids))
}

/// Applies an encoded Op if the client may make it.
fn apply(engine: &Scm, who: &Credentials, joined: &mut Joined, data: &[u8]) -> Result<Done> {
    let (decoded, length) = decode(data).map_err(|_| Error::Invalid("a damaged request"))?;
    if length != data.len() {
        return Err(Error::Invalid("bytes after the Op of a request"));
    }
    let op = decoded.op();
    let new = op.new_ids();
    let distinct: std::collections::HashSet<_> = new.iter().collect();
    if distinct.len() != new.len() || !new.iter().all(|id| joined.reserved.contains(id)) {
        return Err(Error::Invalid("an id that the session has not reserved"));
    }
    let op = requester(engine, who).authorize(&op)?;
    let applied = engine.apply(&op).inspect_err(|error| {
        for id in &new {
            // A failed Op may have written the header of its new object. Without this reset, the client could
            // give a name to the header, and give it back as well.
            match error {
                // The change may have been made, so the id may be in use. Otherwise it is leaked until the
                // next recovery.
                Error::Fault(_) => _ = joined.reserved.remove(id),
                _ => engine.reset_reserved(*id),
            }
        }
    })?;
    let uses_ids = match op {
        Op::Put { .. } => applied.created,
        // A batch also gives back the ids that it did not use.
        _ => true,
    };
    if uses_ids {
        new.iter().for_each(|id| _ = joined.reserved.remove(id));
    }
    Ok(Done { number: applied.offset, other: applied.created.into(), data: Vec::new() })
}

fn requester<'a>(engine: &'a Scm, who: &'a Credentials) -> Requester<'a, Scm> {
    Requester { engine, who, rules: AccessRules::default(), now: now() }
}

fn now() -> Time {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::new(elapsed.as_secs() as i64, elapsed.subsec_nanos())
}
