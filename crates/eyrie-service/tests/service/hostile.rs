//! Clients that break the protocol, or make requests that their rights do not allow.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use eyrie_client::packet;
use eyrie_client::protocol::{
    ANSWER_AT, ASLEEP, DOORBELL, Hello, LANES, LaneAnswer, LaneRequest, MAGIC, MEMORY_BYTES, OPEN_SESSION,
    REQUEST_AT, ServiceCall, VERSION, Welcome, data_of, head_of, state,
};
use eyrie_engine::claims::Claims;
use eyrie_engine::op::encode::encode;
use eyrie_engine::{Content, Engine, FallocateMode, Kind, ObjectId, Op, Owner, SetIds, Time};
use eyrie_medium::epoch::pins_file;
use eyrie_medium::shared::{SharedAccess, SharedMemory};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, connect, listen, socket_with,
};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::disk::with_a_long_pin;

fn socket_to(served: &Served) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(&served.socket).unwrap()).unwrap();
    socket
}

/// A session whose lanes the test writes by hand.
pub struct RawSession {
    /// The files that the service has sent.
    pub files: Vec<File>,
    pub socket: OwnedFd,
    pub lanes: SharedMemory,
    pub root: ObjectId,
}

impl RawSession {
    pub fn open(served: &Served) -> RawSession {
        RawSession::with_pins(served, &pins_file().unwrap())
    }

    pub fn with_pins(served: &Served, pins: &File) -> RawSession {
        RawSession::with_files(served, pins, Claims::create().unwrap().file().unwrap())
    }

    pub fn with_files(served: &Served, pins: &File, claims: &File) -> RawSession {
        let socket = socket_to(served);
        let hello = Hello { magic: MAGIC, version: VERSION, purpose: OPEN_SESSION };
        let files = [pins.as_fd(), claims.as_fd()];
        packet::send(&socket, hello.as_bytes(), &files).unwrap();
        let mut welcome = Welcome::new_zeroed();
        let (_, files) = packet::receive(&socket, welcome.as_mut_bytes()).unwrap();
        let files: Vec<File> = files.into_iter().map(File::from).collect();
        let lanes = files[2].try_clone().unwrap().into();
        let lanes = SharedMemory::map(lanes, MEMORY_BYTES, SharedAccess::ReadWrite).unwrap();
        RawSession { files, socket, lanes, root: ObjectId::from_raw(welcome.root).unwrap() }
    }

    /// Makes a request on lane 0, and returns the answer and its data.
    pub fn ask(&self, request: LaneRequest, data: &[u8]) -> (LaneAnswer, Vec<u8>) {
        let (head, (start, room)) = (head_of(0), data_of(0));
        self.lanes.write(start, &data[..data.len().min(room)]);
        self.lanes.write(head + REQUEST_AT, request.as_bytes());
        let word = &self.lanes.short_words()[head / 4];
        word.store(state::REQUESTED, Ordering::SeqCst);
        self.ring(1);
        while word.load(Ordering::Acquire) != state::ANSWERED {
            std::thread::yield_now();
        }
        let mut answer = LaneAnswer::new_zeroed();
        self.lanes.read(head + ANSWER_AT, answer.as_mut_bytes());
        let mut data = vec![0; answer.data_bytes as usize];
        self.lanes.read(start, &mut data);
        (answer, data)
    }

    fn ring(&self, lanes: u64) {
        self.lanes.words()[DOORBELL].fetch_or(lanes, Ordering::SeqCst);
        if self.lanes.words()[ASLEEP].load(Ordering::SeqCst) != 0 {
            packet::send(&self.socket, b"w", &[]).unwrap();
        }
    }

    pub fn apply(&self, op: &Op<'_>) -> u32 {
        let mut bytes = Vec::new();
        encode(op, &mut bytes);
        self.apply_bytes(&bytes)
    }

    fn apply_bytes(&self, bytes: &[u8]) -> u32 {
        let call = ServiceCall::Apply as u32;
        let request = LaneRequest { call, data_bytes: bytes.len() as u64, ..LaneRequest::default() };
        self.ask(request, bytes).0.error
    }

    pub fn reserve(&self, kind: Kind) -> ObjectId {
        self.try_reserve(kind).unwrap()
    }

    /// Reserves an id, or returns the number of the error.
    pub fn try_reserve(&self, kind: Kind) -> Result<ObjectId, u32> {
        let call = ServiceCall::Reserve as u32;
        let (answer, data) =
            self.ask(LaneRequest { call, id: kind as u64, number: 1, ..LaneRequest::default() }, &[]);
        match answer.error {
            0 => Ok(ObjectId::from_raw(u64::from_le_bytes(data[..8].try_into().unwrap())).unwrap()),
            error => Err(error),
        }
    }
}

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const TIME: Time = Time::new(1, 0);

#[test]
fn greetings_of_other_protocols_end_only_their_connection() {
    let mut served = Served::new(8 << 20);
    let files = served.files();
    for bytes in [&b"GET / HTTP/1.1"[..], &[0; 16], &[], &[7; 4000]] {
        let socket = socket_to(&served);
        let _ = packet::send(&socket, bytes, &[]);
        assert_eq!(packet::receive(&socket, &mut [0; 64]).unwrap().0, 0, "{bytes:?}");
    }
    let newer = Hello { magic: MAGIC, version: VERSION + 1, purpose: OPEN_SESSION };
    let socket = socket_to(&served);
    packet::send(&socket, newer.as_bytes(), &[]).unwrap();
    let mut welcome = Welcome::new_zeroed();
    packet::receive(&socket, welcome.as_mut_bytes()).unwrap();
    assert_ne!(welcome.errno, 0);
    // A greeting without files, and one with ordinary files in place of memory files.
    let hello = Hello { version: VERSION, ..newer };
    let socket = socket_to(&served);
    packet::send(&socket, hello.as_bytes(), &[]).unwrap();
    assert_eq!(packet::receive(&socket, &mut [0; 64]).unwrap().0, 0);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[0; 1 << 18]).unwrap();
    let socket = socket_to(&served);
    packet::send(&socket, hello.as_bytes(), &[file.as_fd(), file.as_fd()]).unwrap();
    assert_eq!(packet::receive(&socket, &mut [0; 64]).unwrap().0, 0);
    files.write("/egg", "blue").unwrap();
    drop(files);
    served.stop();
}

/// A service that dies before its answer has sent no list. A list without sessions is another result.
#[test]
fn regression_end_of_the_connection_is_no_list_of_sessions() {
    let mut served = Served::new(8 << 20);
    assert_eq!(Client::sessions(&served.socket).unwrap(), []);
    served.stop();
    let kind = SocketType::SEQPACKET;
    let dying = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&dying, &SocketAddrUnix::new(&served.socket).unwrap()).unwrap();
    listen(&dying, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = accept(&dying).unwrap();
            packet::receive(&socket, &mut [0; 64]).unwrap();
        });
        let ended = Client::sessions(&served.socket);
        assert!(matches!(ended, Err(eyrie_engine::Error::ServiceEnded)), "{ended:?}");
    });
}

/// A service knows no process id of a client in a foreign namespace, so all of these clients have the same
/// number. The clients of this test have the same number, too. Their pins tell them apart.
#[test]
fn regression_client_with_the_process_id_of_a_waiter_is_expelled() {
    let mut served = Served::new(16 << 20);
    let files = served.files();
    files.write("/egg", vec![1; 9 << 20]).unwrap();
    let pins = {
        let _pin = eyrie_medium::epoch::pin();
        let own = pins_file().unwrap();
        let mut bytes = vec![0; own.metadata().unwrap().len() as usize];
        own.read_exact_at(&mut bytes, 0).unwrap();
        let copy = SharedMemory::create(bytes.len()).unwrap();
        copy.write(0, &bytes);
        copy
    };
    let other = RawSession::with_pins(&served, pins.file().unwrap());
    files.remove_file("/egg").unwrap();
    let start = std::time::Instant::now();
    // Pins of other tests in this process may delay the reuse of storage, too.
    while let Err(error) = files.write("/egg", vec![2; 9 << 20]) {
        assert_eq!(error.errno(), Errno::NOSPC);
        assert!(start.elapsed().as_secs() < 60, "the other client keeps the storage");
    }
    assert!(packet::is_closed(&other.socket));
    drop((files, other));
    served.stop();
}

/// A client that asks for more storage than the volume has gets an error at once, and no other client is
/// expelled because of a pin.
#[test]
fn request_for_too_much_storage_expels_nobody() {
    let mut served = Served::new(16 << 20);
    let (pinned, _pins) = with_a_long_pin(&served);
    let greedy = RawSession::open(&served);
    let (dir, id, content) = (greedy.root, greedy.reserve(Kind::File), Content::Empty);
    let owner = Owner { mode: 0o600, uid: 0, gid: 0 };
    let time = Time::new(1, 0);
    assert_eq!(greedy.apply(&Op::Create { dir, name: b"large", id, owner, content, time }), 0);
    for (mode, length) in [(FallocateMode::Allocate, 17 << 20), (FallocateMode::KeepSize, 1 << 40)] {
        let set_ids = SetIds::Keep;
        let refused = greedy.apply(&Op::Fallocate { id, mode, offset: 0, length, set_ids, time });
        assert_ne!(refused, 0);
    }
    assert!(!packet::is_closed(&pinned.socket));
    drop((pinned, greedy));
    served.stop();
}

#[test]
fn too_many_connections_are_refused() {
    let mut served = Served::new(8 << 20);
    let files = served.files();
    let connections: Vec<OwnedFd> = (0..300).map(|_| socket_to(&served)).collect();
    let mut refused = 0;
    for socket in connections.iter().rev().take(40) {
        let mut welcome = Welcome::new_zeroed();
        packet::receive(socket, welcome.as_mut_bytes()).unwrap();
        refused += usize::from(welcome.errno != 0);
    }
    assert_eq!(refused, 40);
    drop(connections);
    files.write("/egg", "blue").unwrap();
    let start = std::time::Instant::now();
    while Client::connect(&served.socket, false).is_err() {
        assert!(start.elapsed().as_secs() < 20, "ended connections still count");
    }
    drop(files);
    served.stop();
}

#[test]
fn ids_that_are_not_reserved_create_nothing() {
    let mut served = Served::new(8 << 20);
    let (mine, other) = (RawSession::open(&served), RawSession::open(&served));
    let (dir, name) = (mine.root, &b"egg"[..]);
    let foreign = other.reserve(Kind::File);
    let own = mine.reserve(Kind::File);
    let invented = ObjectId::new(own.place() + 256, Kind::File);
    let wrong_kind = ObjectId::new(own.place(), Kind::Directory);
    let create = |id| Op::Create { dir, name, id, owner: OWNER, content: Content::Empty, time: TIME };
    for id in [foreign, invented, wrong_kind, mine.root] {
        assert_ne!(mine.apply(&create(id)), 0, "{id:?}");
        let put = Op::Put { dir, name, id, owner: OWNER, data: b"blue", time: TIME };
        assert_ne!(mine.apply(&put), 0, "{id:?}");
        assert_ne!(mine.apply(&Op::Batch { dir, ops: &[put], time: TIME }), 0, "{id:?}");
    }
    let put = |name| Op::Put { dir, name, id: own, owner: OWNER, data: b"blue", time: TIME };
    assert_ne!(mine.apply(&Op::Batch { dir, ops: &[put(b"a"), put(b"b")], time: TIME }), 0, "one id twice");
    assert_eq!(mine.apply(&create(own)), 0);
    assert_ne!(mine.apply(&create(own)), 0, "an id that is used");
    // An id of another session does not go back.
    let call = ServiceCall::Unreserve as u32;
    mine.ask(LaneRequest { call, id: foreign.raw(), ..LaneRequest::default() }, &[]);
    let create =
        Op::Create { dir, name: b"stone", id: foreign, owner: OWNER, content: Content::Empty, time: TIME };
    assert_eq!(other.apply(&create), 0);
    drop((mine, other));
    served.stop();
}

/// A create in a removed directory that is still open fails after it has written the header of its object.
#[test]
fn header_of_a_failed_create_gets_no_name() {
    let mut served = Served::new(8 << 20);
    let (files, session) = (served.files(), RawSession::open(&served));
    files.create_dir("/dir").unwrap();
    let engine = files.engine();
    let dir = engine.lookup(engine.root(), b"dir").unwrap().unwrap();
    engine.open(dir).unwrap();
    files.remove_dir("/dir").unwrap();
    let id = session.reserve(Kind::File);
    let content = Content::Bytes(b"blue");
    let create = Op::Create { dir, name: b"egg", id, owner: OWNER, content, time: TIME };
    assert_ne!(session.apply(&create), 0);
    let link = Op::Link { dir: session.root, name: b"egg", id, time: TIME };
    assert_ne!(session.apply(&link), 0, "the object has no name, so it does not exist");
    let write = Op::Write { id, offset: 0, data: b"x", set_ids: SetIds::Keep, time: TIME };
    assert_ne!(session.apply(&write), 0);
    engine.close(dir);
    drop((files, session));
    served.stop();
}

#[test]
fn damaged_requests_are_errors() {
    let mut served = Served::new(8 << 20);
    let session = RawSession::open(&served);
    let mut bytes = Vec::new();
    encode(&Op::Unlink { dir: session.root, name: b"egg", time: TIME }, &mut bytes);
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1;
        assert_ne!(session.apply_bytes(&damaged), 0, "byte {index}");
    }
    assert_ne!(session.apply_bytes(&bytes[..bytes.len() - 1]), 0);
    assert_ne!(session.apply_bytes(&[&bytes[..], &[0]].concat()), 0);
    for request in [
        LaneRequest { call: 99, ..LaneRequest::default() },
        LaneRequest { call: ServiceCall::Apply as u32, data_bytes: u64::MAX, ..LaneRequest::default() },
        LaneRequest { call: ServiceCall::Reserve as u32, id: 77, number: u64::MAX, ..LaneRequest::default() },
        LaneRequest { call: ServiceCall::Attributes as u32, id: u64::MAX, ..LaneRequest::default() },
        LaneRequest { call: ServiceCall::Version as u32, id: 1 << 40 | 1, ..LaneRequest::default() },
    ] {
        assert_ne!(session.ask(request, &[]).0.error, 0, "{request:?}");
    }
    // Doorbells of lanes that do not exist, and of lanes without a request, are ignored.
    session.ring(u64::MAX);
    assert_eq!(
        session.ask(LaneRequest { call: ServiceCall::Sync as u32, ..LaneRequest::default() }, &[]).0.error,
        0
    );
    drop(session);
    served.stop();
}

/// A bell without a new request repeats no request.
#[test]
fn bell_alone_repeats_no_request() {
    let mut served = Served::new(8 << 20);
    let (files, session) = (served.files(), RawSession::open(&served));
    files.write("/egg", "blue").unwrap();
    let id = files.engine().lookup(session.root, b"egg").unwrap().unwrap();
    assert_eq!(session.apply(&Op::Append { id, data: b"egg", set_ids: SetIds::Keep, time: TIME }), 0);
    for _ in 0..100 {
        session.ring(1);
        // The service looks at the bells of all sessions in turn.
        files.engine().sync().unwrap();
    }
    assert_eq!(files.read("/egg").unwrap(), b"blueegg");
    drop((files, session));
    served.stop();
}

/// Changes the heads and the data of the ordinary lanes while the service reads them. Another client is
/// served meanwhile.
pub fn change_requests_while_they_are_read(session: &RawSession, files: &Pxfs<Client>) {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            let mut random = StdRng::seed_from_u64(2);
            for _ in 0..20_000 {
                let lane = random.random_range(0..LANES);
                let mut bytes = [0; 256];
                random.fill(&mut bytes[..]);
                session.lanes.write(data_of(lane).0 + random.random_range(0..1024), &bytes);
                session.lanes.write(head_of(lane) + REQUEST_AT, &bytes[..32]);
                let mut op = Vec::new();
                encode(&Op::Unlink { dir: session.root, name: b"a", time: TIME }, &mut op);
                session.lanes.write(data_of(lane).0, &op);
                session.lanes.short_words()[head_of(lane) / 4].store(state::REQUESTED, Ordering::SeqCst);
                session.ring(1 << lane);
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            // The forged Ops may have filled the volume, or set flags of its root.
            if let Err(error) = files.write("/beside", "still served") {
                assert!([Errno::NOSPC, Errno::PERM].contains(&error.errno()), "{error}");
            }
        }
    });
}

on_disk! {
    greetings_of_other_protocols_end_only_their_connection
    regression_end_of_the_connection_is_no_list_of_sessions
    regression_client_with_the_process_id_of_a_waiter_is_expelled too_many_connections_are_refused
    ids_that_are_not_reserved_create_nothing header_of_a_failed_create_gets_no_name
    damaged_requests_are_errors bell_alone_repeats_no_request
}
