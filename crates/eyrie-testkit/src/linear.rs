//! Checks linearizability: finds an order of the calls of several threads that explains their answers.
//!
//! Each thread records its calls as [`HistoryCall`]s, whose start and end times come from one shared
//! [`HistoryClock`]. [`explain`] looks for an order of all calls in which the model gives the same answers.
//! The order keeps a call before all calls that began after its end. The search tries orders depth first,
//! each on a fork of the model, so histories must be small (for example, three threads of four calls).

mod words;

use std::sync::atomic::{AtomicU64, Ordering};

use eyrie_engine::{Applied, Attributes, Engine, Error, InodeFlags, Model, ObjectId};
use eyrie_medium::epoch;

use crate::ops::OpRecord;
use crate::oracle::outcome;
use eyrie_sim::compare::comparable;

/// A request to an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Applies an Op.
    Apply(OpRecord),
    /// Looks up a name.
    Lookup {
        /// The directory.
        dir: ObjectId,
        /// The name.
        name: Vec<u8>,
    },
    /// Reads bytes.
    Read {
        /// The object.
        id: ObjectId,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        length: usize,
    },
    /// Gets an extended attribute, such as an ACL, of at most 256 bytes.
    Xattr {
        /// The object.
        id: ObjectId,
        /// Name of the attribute.
        name: Vec<u8>,
    },
    /// Gets attributes.
    Attributes(ObjectId),
    /// Gets inode flags.
    InodeFlags(ObjectId),
}

/// The answer of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// The answer to `Apply`, without the parts that have no meaning for its Op.
    Applied(Applied),
    /// The answer to `Lookup`.
    Found(Option<ObjectId>),
    /// The answer to `Read`.
    Bytes(Vec<u8>),
    /// The answer to `Xattr`.
    Value(Option<Vec<u8>>),
    /// The answer to `Attributes`, without the attributes in which engines may differ.
    Attributes(Attributes),
    /// The answer to `InodeFlags`.
    InodeFlags(InodeFlags),
    /// An error, as its errno.
    Refused(i32),
}

impl Request {
    /// Makes this request to `engine`, and returns the answer.
    pub fn ask(&self, engine: &dyn Engine) -> Response {
        let _pin = epoch::pin();
        let answer = match self {
            Request::Apply(record) => {
                let decoded = record.decode();
                let op = decoded.op();
                engine.apply(&op).map(|applied| Response::Applied(outcome(&op, applied)))
            }
            Request::Lookup { dir, name } => engine.lookup(*dir, name).map(Response::Found),
            Request::Read { id, offset, length } => {
                let mut bytes = vec![0xee; *length];
                engine.read(*id, *offset, &mut bytes).map(|count| {
                    bytes.truncate(count);
                    Response::Bytes(bytes)
                })
            }
            Request::Xattr { id, name } => {
                let mut value = vec![0xee; 256];
                engine.xattr(*id, name, &mut value).map(|size| {
                    Response::Value(size.map(|size| {
                        value.truncate(size);
                        value
                    }))
                })
            }
            Request::Attributes(id) => engine.attributes(*id).map(comparable).map(Response::Attributes),
            Request::InodeFlags(id) => engine.inode_flags(*id).map(Response::InodeFlags),
        };
        answer.unwrap_or_else(|error| Response::Refused(error.errno().raw_os_error()))
    }
}

/// A counter that orders the starts and ends of calls. It may be in memory that processes share.
pub type HistoryClock = AtomicU64;

/// One call of a thread, and its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryCall {
    /// The request.
    pub request: Request,
    /// The answer.
    pub response: Response,
    /// Time of the start.
    pub began: u64,
    /// Time of the end.
    pub ended: u64,
}

impl HistoryCall {
    /// Makes a request and notes the call.
    pub fn record(engine: &dyn Engine, clock: &HistoryClock, request: Request) -> HistoryCall {
        let tick = || clock.fetch_add(1, Ordering::SeqCst);
        let began = tick();
        let response = request.ask(engine);
        HistoryCall { request, response, began, ended: tick() }
    }
}

/// Counts this thread as ready, and returns when no thread is left in `waiting`.
pub fn start_together(waiting: &AtomicU64) {
    waiting.fetch_sub(1, Ordering::SeqCst);
    // The threads spin until all have started. At a `std::sync::Barrier` they would sleep, and the first
    // thread to wake could end its calls before the last thread wakes.
    while waiting.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
}

/// Runs each of `scripts` in a thread of its own, on the engine in the same pair. All pairs have the same
/// engine, or clients of one volume. Returns the calls of each thread.
pub fn run_threads(scripts: Vec<(&dyn Engine, Vec<Request>)>) -> Vec<Vec<HistoryCall>> {
    let clock = HistoryClock::default();
    let (clock, waiting) = (&clock, &AtomicU64::new(scripts.len() as u64));
    std::thread::scope(|scope| {
        let threads: Vec<_> = scripts
            .into_iter()
            .map(|(engine, script)| {
                scope.spawn(move || {
                    start_together(waiting);
                    script.into_iter().map(|request| HistoryCall::record(engine, clock, request)).collect()
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Returns the number of calls that overlapped with a call of another thread.
pub fn count_overlaps(history: &[Vec<HistoryCall>]) -> usize {
    let overlaps = |thread: usize, call: &HistoryCall| {
        let others = history.iter().enumerate().filter(|(other, _)| *other != thread);
        others.flat_map(|(_, calls)| calls).any(|other| other.began < call.ended && call.began < other.ended)
    };
    let counts = history
        .iter()
        .enumerate()
        .map(|(thread, calls)| calls.iter().filter(|call| overlaps(thread, call)).count());
    counts.sum()
}

/// Returns an order of the calls, as (thread, call) indices, in which a copy of `start` gives the answers
/// that the threads recorded. Returns `None` if no such order exists.
///
/// If the model answers `Stale`, the search accepts any recorded answer, because engines may still show a
/// removed object to a thread with a pin. The search always accepts the recorded answer `NoSpace`. A call
/// with this answer changed nothing.
pub fn explain(start: &Model, history: &[Vec<HistoryCall>]) -> Option<Vec<(usize, usize)>> {
    let mut order = Vec::new();
    search(start, history, &mut vec![0; history.len()], &mut order).then_some(order)
}

/// Asserts that [`explain`] finds an order.
///
/// # Panics
/// Panics with the history if no such order exists.
pub fn assert_explained(start: &Model, history: &[Vec<HistoryCall>]) {
    if explain(start, history).is_none() {
        let mut text = String::new();
        for (thread, calls) in history.iter().enumerate() {
            for call in calls {
                text += &format!("  thread {thread} from {} to {}: ", call.began, call.ended);
                text += &match &call.request {
                    Request::Apply(record) => format!("{:?}", record.decode().op()),
                    other => format!("{other:?}"),
                };
                text += &format!("\n    gave {:?}\n", call.response);
            }
        }
        panic!("no order explains this history:\n{text}");
    }
}

fn search(
    model: &Model,
    history: &[Vec<HistoryCall>],
    done: &mut Vec<usize>,
    order: &mut Vec<(usize, usize)>,
) -> bool {
    let pending = |done: &[usize]| -> Vec<usize> {
        (0..history.len()).filter(|&thread| done[thread] < history[thread].len()).collect()
    };
    let threads = pending(done);
    if threads.is_empty() {
        return true;
    }
    // The calls of a thread do not overlap. The earliest end of all remaining calls is therefore the end of
    // some thread's next call. A call that began after this end cannot be the next one in the order.
    let first_end =
        threads.iter().map(|&thread| history[thread][done[thread]].ended).min().unwrap_or(u64::MAX);
    for thread in threads {
        let index = done[thread];
        let call = &history[thread][index];
        if call.began > first_end {
            continue;
        }
        let next = model.fork();
        if !is_explained(&next, call) {
            continue;
        }
        done[thread] += 1;
        order.push((thread, index));
        if search(&next, history, done, order) {
            return true;
        }
        order.pop();
        done[thread] -= 1;
    }
    false
}

/// Makes `call` on `model`. Returns true if the model's answer explains the recorded answer.
fn is_explained(model: &Model, call: &HistoryCall) -> bool {
    let refused = |error: Error| Response::Refused(error.errno().raw_os_error());
    if call.response == refused(Error::NoSpace) {
        return true;
    }
    let answer = call.request.ask(model);
    answer == call.response || answer == refused(Error::Stale)
}

#[cfg(test)]
mod tests {
    use eyrie_engine::access::AclKind;
    use eyrie_engine::{AttributeChange, Content, Kind, Op, Owner, SetIds, Time};

    use super::*;
    use crate::acls::acl;

    const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
    const TIME: Time = Time::new(1, 0);
    const ROOT: ObjectId = ObjectId::new(1 << 20, Kind::Directory);
    const FILE: ObjectId = ObjectId::new(1 << 21, Kind::File);

    fn model() -> Model {
        let model = Model::new(ROOT, OWNER, TIME);
        let content = Content::Bytes(b"0");
        model
            .apply(&Op::Create { dir: ROOT, name: b"file", id: FILE, owner: OWNER, content, time: TIME })
            .unwrap();
        model
    }

    fn write(data: &[u8]) -> Request {
        Request::Apply(OpRecord::new(&Op::Write {
            id: FILE,
            offset: 0,
            data,
            set_ids: SetIds::Keep,
            time: TIME,
        }))
    }

    fn append(data: &[u8]) -> Request {
        Request::Apply(OpRecord::new(&Op::Append { id: FILE, data, set_ids: SetIds::Keep, time: TIME }))
    }

    const READ: Request = Request::Read { id: FILE, offset: 0, length: 8 };

    fn call(request: Request, response: Response, began: u64, ended: u64) -> HistoryCall {
        HistoryCall { request, response, began, ended }
    }

    fn wrote() -> Response {
        Response::Applied(Applied::default())
    }

    fn read(bytes: &[u8]) -> Response {
        Response::Bytes(bytes.to_vec())
    }

    #[test]
    fn history_of_the_model_is_explained() {
        for round in 0..20 {
            let engine = model();
            let start = engine.fork();
            let name = if round % 2 == 0 { b"file" } else { b"none" };
            let unlink = Request::Apply(OpRecord::new(&Op::Unlink { dir: ROOT, name, time: TIME }));
            let lookup = Request::Lookup { dir: ROOT, name: b"file".to_vec() };
            let scripts = vec![
                vec![write(b"a"), append(b"b"), READ, append(b"c")],
                vec![READ, write(b"d"), unlink, READ],
                vec![lookup, append(b"e"), Request::Attributes(FILE), READ],
            ];
            let scripts = scripts.into_iter().map(|script| (&engine as &dyn Engine, script)).collect();
            assert_explained(&start, &run_threads(scripts));
        }
    }

    #[test]
    fn overlapping_calls_may_happen_in_either_order() {
        let history = [
            vec![call(write(b"1"), wrote(), 0, 3)],
            vec![call(READ, read(b"0"), 1, 2), call(READ, read(b"1"), 4, 5)],
        ];
        assert_eq!(explain(&model(), &history), Some(vec![(1, 0), (0, 0), (1, 1)]));
    }

    #[test]
    fn a_read_of_old_bytes_after_the_write_ended_is_not_explained() {
        let history = [vec![call(write(b"1"), wrote(), 0, 1)], vec![call(READ, read(b"0"), 2, 3)]];
        assert_eq!(explain(&model(), &history), None);
    }

    #[test]
    fn bytes_that_come_and_go_are_not_explained() {
        let reads = vec![call(READ, read(b"1"), 1, 2), call(READ, read(b"0"), 3, 4)];
        assert_eq!(explain(&model(), &[vec![call(write(b"1"), wrote(), 0, 9)], reads]), None);
    }

    #[test]
    fn half_of_a_write_is_not_explained() {
        let history = [vec![call(write(b"12"), wrote(), 0, 9)], vec![call(READ, read(b"1"), 1, 2)]];
        assert_eq!(explain(&model(), &history), None);
    }

    #[test]
    fn two_appends_at_one_place_are_not_explained() {
        let at = |offset| Response::Applied(Applied { offset, ..Applied::default() });
        let history =
            |second| [vec![call(append(b"a"), at(1), 0, 9)], vec![call(append(b"b"), second, 0, 9)]];
        assert_eq!(explain(&model(), &history(at(1))), None);
        assert!(explain(&model(), &history(at(2))).is_some());
    }

    /// Asserts that `answer` to `request` is explained after `change`, and that `planted` is not.
    fn assert_compared(change: &[Op<'_>], request: Request, answer: Response, planted: Response) {
        let mut calls: Vec<_> = change.iter().map(|op| Request::Apply(OpRecord::new(op))).collect();
        calls.push(request);
        let history = |last: &Response| {
            let answers = change.iter().map(|_| wrote()).chain([last.clone()]);
            let calls = calls.iter().zip(answers).zip(0..);
            [calls.map(|((made, given), at)| call(made.clone(), given, 2 * at, 2 * at + 1)).collect()]
        };
        assert!(explain(&model(), &history(&answer)).is_some(), "{answer:?}");
        assert_eq!(explain(&model(), &history(&planted)), None, "{planted:?}");
    }

    #[test]
    fn first_name_of_an_unnamed_file_is_compared() {
        let (id, name) = (ObjectId::new(1 << 22, Kind::File), b"new");
        let made = Op::CreateUnnamed { dir: ROOT, id, owner: OWNER, linkable: true, time: TIME };
        let link = Op::Link { dir: ROOT, name, id, time: TIME };
        let lookup = || Request::Lookup { dir: ROOT, name: name.to_vec() };
        assert_compared(&[made, link], lookup(), Response::Found(Some(id)), Response::Found(None));
        assert_compared(&[made], lookup(), Response::Found(None), Response::Found(Some(id)));
        let linked = || Request::Apply(OpRecord::new(&link));
        let refused = || Response::Refused(Error::NotFound.errno().raw_os_error());
        assert_compared(&[made], linked(), wrote(), refused());
        let made = Op::CreateUnnamed { dir: ROOT, id, owner: OWNER, linkable: false, time: TIME };
        assert_compared(&[made], linked(), refused(), wrote());
    }

    #[test]
    fn clone_is_compared() {
        let (id, data) = (ObjectId::new(1 << 22, Kind::File), &b"cloned"[..]);
        let content = Content::Bytes(data);
        let made = Op::Create { dir: ROOT, name: b"new", id, owner: OWNER, content, time: TIME };
        let (offset, length, set_ids) = (0, 0, SetIds::Keep);
        let clone =
            Op::CloneRange { source: id, source_offset: 0, id: FILE, offset, length, set_ids, time: TIME };
        assert_compared(&[made, clone], READ, read(data), read(b"0"));
        let refused = Response::Refused(Error::Invalid("").errno().raw_os_error());
        assert_compared(&[made], Request::Apply(OpRecord::new(&clone)), wrote(), refused);
    }

    #[test]
    fn acl_is_compared() {
        let (kind, bytes) = (AclKind::Access, acl(4, 0o777));
        let set = Op::SetAcl { id: FILE, kind, acl: &bytes, drops_set_gid: false, time: TIME };
        let get = Request::Xattr { id: FILE, name: kind.name().to_vec() };
        assert_compared(&[set], get, Response::Value(Some(bytes.clone())), Response::Value(None));
    }

    #[test]
    fn inode_flags_are_compared() {
        let change = AttributeChange { flags: Some(InodeFlags::IMMUTABLE), ..AttributeChange::default() };
        let set = Op::SetAttributes { id: FILE, change, time: TIME };
        let flags = Response::InodeFlags;
        let planted = flags(InodeFlags::empty());
        assert_compared(&[set], Request::InodeFlags(FILE), flags(InodeFlags::IMMUTABLE), planted);
    }

    #[test]
    #[should_panic(expected = "no order explains this history")]
    fn a_history_without_an_order_is_reported() {
        assert_explained(&model(), &[vec![call(READ, read(b"x"), 0, 1)]]);
    }
}
