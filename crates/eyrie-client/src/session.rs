//! Sessions: a connection to the service of a volume, and all that ends with it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyrie_engine::access::Credentials;
use eyrie_engine::advisory::LockOwner;
use eyrie_engine::board::SessionKey;
use eyrie_engine::claims::Claims;
use eyrie_engine::{Errno, Error, ObjectId, Result};
use eyrie_medium::Fault;
use eyrie_medium::epoch::pins_file;
use eyrie_medium::shared::{SharedAccess, SharedMemory};
use eyrie_medium::sync::{Mutex, sleep};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use zerocopy::{FromBytes, IntoBytes};

use crate::channel::Channel;
use crate::log::ChangeLog;
use crate::packet;
use crate::protocol::{
    Hello, LIST_SESSIONS, MAGIC, MEMORY_BYTES, MOST_SESSIONS, OPEN_SESSION, SentSession, VERSION, Welcome,
    hash_of_groups, io_fault,
};

/// Length of an array that is indexed by the number of a kind. Index 0 is unused.
const KINDS: usize = 8;
/// Time for which a client that connects waits for the service. A client also waits for this time for the
/// next service after its service has ended.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A session with a service.
pub struct ServiceSession {
    pub key: SessionKey,
    /// The process that joined. A forked child must not use the lanes of its parent.
    pub process: u32,
    pub socket: Arc<OwnedFd>,
    pub channel: Channel,
    /// `None` if the service does not defer changes.
    pub log: Option<ChangeLog>,
    /// Reserved ids of each kind.
    pub pools: [Mutex<Vec<ObjectId>>; KINDS],
    /// Ids of the watchers that the service knows.
    pub watched: Mutex<Vec<u64>>,
    pub locks: Mutex<SessionLocks>,
}

/// Locks of one owner on an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnedLocks {
    pub id: ObjectId,
    /// Generation of the object. In a later session, the id may name another object.
    pub generation: u64,
    pub owner: LockOwner,
    /// True for a lock on the whole object, false for locks on ranges.
    pub is_whole: bool,
}

/// The locks of this process.
#[derive(Default)]
pub struct SessionLocks {
    /// The owners that have locked an object in this session. The value is false if the owner has unlocked
    /// everything since.
    pub held: HashMap<OwnedLocks, bool>,
    /// Locks that have ended with an earlier session. The next lock call of their owner reports the loss.
    pub lost: HashSet<OwnedLocks>,
    /// True if the session has ended, and the next session has these locks as lost ones.
    pub are_collected: bool,
}

/// The waits of one process for notices. They outlive sessions, but not a fork, because threads of the parent
/// may have waited, or may have held a lock, at the fork.
pub struct NoticeWaits {
    pub process: u32,
    /// Ids of the watchers for which a thread waits at the service.
    pub fetching: Mutex<HashSet<u64>>,
    /// For each watcher, the time at which it was last told that it misses notices.
    pub losses: Mutex<HashMap<u64, Instant>>,
}

impl NoticeWaits {
    /// Makes the value of this process.
    pub fn new() -> NoticeWaits {
        NoticeWaits { process: std::process::id(), fetching: Mutex::default(), losses: Mutex::default() }
    }
}

/// A session that begins, and the files that the service sends with its greeting.
pub struct Greeting {
    pub session: ServiceSession,
    pub welcome: Welcome,
    pub segment: File,
    pub board: File,
    /// The flags of the pages, if the segment is the page cache of a volume on a disk.
    pub flags: Option<File>,
}

/// Returns the error of an exchange of packets with the service.
fn fault(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| if has_ended(&source) { Error::ServiceEnded } else { io_fault(what, source) }
}

/// Returns the error of a service that refuses this client with this errno.
fn refusal(path: &Path, what: &str, errno: Errno) -> Error {
    let place = path.parent().unwrap_or(path).display().to_string();
    Error::Volume { place, what: format!("{what}: {}", io::Error::from(errno)), errno }
}

pub fn bad_answer(what: &str) -> Error {
    io_fault(
        "opening a session with the service",
        io::Error::new(io::ErrorKind::InvalidData, what.to_owned()),
    )
}

/// Returns a socket that is connected to the service at `path`.
fn connected(path: &Path) -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| io_fault("making a socket", errno.into()))?;
    let what = "connecting to the service of the volume";
    let address = SocketAddrUnix::new(path).map_err(|errno| io_fault(what, errno.into()))?;
    // A service that hangs must not hang a client that connects. The time limit of a send also limits a
    // connect.
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, timeout, Some(PATIENCE))
            .map_err(|errno| io_fault("making a socket", errno.into()))?;
    }
    match connect(&socket, &address) {
        Ok(()) => {
            sleep::socket_changed();
            Ok(socket)
        }
        // The service has no room for the connection.
        Err(rustix::io::Errno::AGAIN) => Err(refusal(path, what, Errno::AGAIN)),
        Err(errno) => Err(io_fault(what, errno.into())),
    }
}

/// Sends a greeting and receives the answer. A service that refuses a connection answers before it has read
/// the greeting, and closes its socket. The kernel then reports the end of the connection once, before it
/// delivers the answer.
fn greet(
    socket: &OwnedFd,
    purpose: u32,
    files: &[BorrowedFd<'_>],
    answer: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>)> {
    let hello = Hello { magic: MAGIC, version: VERSION, purpose };
    match packet::send(socket.as_fd(), hello.as_bytes(), files) {
        Err(error) if has_ended(&error) => {}
        sent => sent.map_err(fault("greeting the service"))?,
    }
    let received = match packet::await_packet(socket, answer) {
        Err(error) if has_ended(&error) => packet::await_packet(socket, answer),
        received => received,
    };
    received.map_err(fault("waiting for the service's greeting"))
}

fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Returns the sessions of the service whose socket is at `path`.
pub fn list(path: &Path) -> Result<Vec<SentSession>> {
    let socket = connected(path)?;
    let mut bytes = vec![0; size_of::<Welcome>() + MOST_SESSIONS * size_of::<SentSession>()];
    let (length, _) = greet(&socket, LIST_SESSIONS, &[], &mut bytes)?;
    let (_, list) = accepted(path, &bytes[..length])?;
    let sessions = <[SentSession]>::ref_from_bytes(list);
    Ok(sessions.map_err(|_| bad_answer("the service sent no list of sessions"))?.to_vec())
}

/// Returns the greeting of the service at `path` if it has accepted the connection, and the bytes after the
/// greeting. `packet` is the first packet of the service.
fn accepted<'a>(path: &Path, packet: &'a [u8]) -> Result<(Welcome, &'a [u8])> {
    if packet.is_empty() {
        return Err(Error::ServiceEnded);
    }
    let (welcome, rest) = Welcome::read_from_prefix(packet)
        .ok()
        .filter(|(welcome, _)| welcome.magic == MAGIC)
        .ok_or_else(|| bad_answer("the other side of the socket is no service of Eyrie"))?;
    if welcome.version != VERSION {
        return Err(bad_answer("the service has another version of the protocol"));
    }
    if welcome.errno != 0 {
        let errno = Errno::from_raw_os_error(welcome.errno as i32);
        return Err(refusal(path, "the service refused the connection", errno));
    }
    Ok((welcome, rest))
}

/// Opens a session with the service whose socket is at `path`. The service maps the claims of this client.
pub fn join(path: &Path, claims: &Claims) -> Result<Greeting> {
    let socket = Arc::new(connected(path)?);
    let pins = pins_file()?;
    let claims_file = claims.file().ok_or_else(|| bad_answer("claims without a file"))?;
    let mut bytes = [0; size_of::<Welcome>()];
    let shared = [pins.as_fd(), claims_file.as_fd()];
    let (length, files) = greet(&socket, OPEN_SESSION, &shared, &mut bytes)?;
    let (welcome, _) = accepted(path, &bytes[..length])?;
    let mut files = files.into_iter();
    let (Some(segment), Some(board), Some(lanes)) = (files.next(), files.next(), files.next()) else {
        return Err(bad_answer("the service sent too few files"));
    };
    let log = if welcome.has_log != 0 { files.next_back() } else { None };
    let flags = files.next().map(File::from);
    let memory = Arc::new(SharedMemory::map(lanes, MEMORY_BYTES, SharedAccess::ReadWrite)?);
    let who = connected_as();
    let is_known =
        (who.uid(), who.gid(), hash_of_groups(who.groups())) == (welcome.user, welcome.group, welcome.groups);
    let log = log.filter(|_| is_known);
    let log = log.map(|log| ChangeLog::map(log.into(), Arc::clone(&memory), who)).transpose()?;
    let session = ServiceSession {
        key: SessionKey::from_raw(welcome.key),
        process: std::process::id(),
        channel: Channel::new(memory, Arc::clone(&socket)),
        log,
        socket,
        pools: Default::default(),
        watched: Mutex::default(),
        locks: Mutex::default(),
    };
    Ok(Greeting { session, welcome, segment: segment.into(), board: board.into(), flags })
}

/// Returns the credentials of this process.
fn connected_as() -> Credentials {
    use rustix::process::{getegid, geteuid, getgroups};
    let groups: Vec<u32> = getgroups().unwrap_or_default().iter().map(|group| group.as_raw()).collect();
    Credentials::new(geteuid().as_raw(), getegid().as_raw(), &groups)
}

/// Returns the errno of a connection that failed because this process can reach no service at that place.
/// Returns `None` for all other errors.
pub fn absence(error: &Error) -> Option<Errno> {
    let Error::Fault(Fault::Io { source, .. }) = error else { return None };
    // A block device has no directory for a socket. A socket has a path of at most 107 bytes. A user without
    // permission to search the directory of the volume cannot connect to its socket.
    let absent =
        [Errno::NOENT, Errno::CONNREFUSED, Errno::NOTDIR, Errno::NAMETOOLONG, Errno::ACCESS, Errno::PERM];
    let errno = Errno::from_raw_os_error(source.raw_os_error()?);
    absent.contains(&errno).then_some(errno)
}

/// Returns true if a later attempt to join may succeed: if no service was reached, if this process had no
/// descriptor left, or if the service was ending, did not answer in time, or had no room.
pub fn may_pass(error: &Error) -> bool {
    let may_pass = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut, io::ErrorKind::Interrupted];
    match error {
        Error::ServiceEnded => true,
        Error::Volume { errno, .. } => [Errno::AGAIN, Errno::MFILE].contains(errno),
        Error::Fault(Fault::Io { source, .. }) => {
            let has_no_descriptor = source.raw_os_error() == Some(Errno::MFILE.into());
            absence(error).is_some() || may_pass.contains(&source.kind()) || has_no_descriptor
        }
        _ => false,
    }
}
