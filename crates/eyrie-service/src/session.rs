//! One session: a client, its credentials, and the memory that it shares with the service.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use eyrie_client::packet;
use eyrie_client::protocol::{
    Hello, LANES, LIST_SESSIONS, MAGIC, MEMORY_BYTES, OPEN_SESSION, SentSession, SessionState, VERSION,
    Welcome, hash_of_groups, head_of, state,
};
use eyrie_engine::access::Credentials;
use eyrie_engine::board::SessionKey;
use eyrie_engine::claims::Claims;
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, Errno, Error};
use eyrie_medium::Fault;
use eyrie_medium::epoch::{PinWatch, watch_pins};
use eyrie_medium::host::{groups_of_peer, peer_of};
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::shared::SharedMemory;
use eyrie_medium::sync::lock;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use zerocopy::{FromZeros, IntoBytes};

use crate::logs::{Logs, ReservedIds};
use crate::watchers::Watchers;

/// A connected client. Before its greeting, it shares no memory with the service.
pub struct Session {
    pub socket: OwnedFd,
    /// Id of the client's process in the pid namespace of the service. 0 if the process has no id there.
    pub process: u32,
    /// Reports the end of the process, whose forked children may keep the socket open. `None` if the process
    /// has no id in the pid namespace of the service, or if the host cannot provide such a descriptor.
    pub end_of_process: Option<OwnedFd>,
    pub who: Credentials,
    /// Time of the connection.
    pub since: Instant,
    pub joined: Option<Joined>,
    /// True if a request of the client waits for free storage.
    pub lacks_storage: bool,
}

/// The parts of a session that begin with the client's greeting.
pub struct Joined {
    /// Number of the session in its service.
    pub number: u64,
    pub key: SessionKey,
    pub lanes: Arc<SharedMemory>,
    pub claims: Arc<Claims>,
    pub reserved: ReservedIds,
    pub watchers: Watchers,
    /// Time of the last request for pages of a disk.
    pub last_page: Instant,
    /// The clock of grace periods waits for the pins of the client until [`Session::end_reads`].
    pins: Option<PinWatch>,
}

impl Joined {
    /// Returns the number of requests without an answer, except those that wait for notices.
    fn pending(&self) -> usize {
        let state_of = |lane: usize| self.lanes.short_words()[head_of(lane) / 4].load(Ordering::Relaxed);
        let is_pending = |&lane: &usize| {
            [state::REQUESTED, state::WAITING].contains(&state_of(lane)) && !self.watchers.is_waiting(lane)
        };
        (0..=LANES).filter(is_pending).count()
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn io_error(fault: Fault) -> io::Error {
    match fault {
        Fault::Io { source, .. } => source,
        fault => io::Error::other(fault.to_string()),
    }
}

/// The source of the keys of sessions.
pub struct SessionKeys {
    /// Number of the owner of the volume, which is this process.
    owner: u64,
    /// Number of sessions that began.
    serial: u64,
}

impl SessionKeys {
    pub fn new(owner: u64) -> SessionKeys {
        SessionKeys { owner, serial: 0 }
    }

    /// Returns a key that no session had before.
    fn next(&mut self, place: usize) -> SessionKey {
        self.serial += 1;
        SessionKey::new(self.owner, self.serial, place)
    }
}

impl Session {
    /// Accepts a connection. The credentials come from the kernel, so the client cannot forge them.
    pub fn accept(socket: OwnedFd) -> io::Result<Session> {
        let peer = peer_of(socket.as_fd())?;
        let groups = groups_of_peer(socket.as_fd())?;
        let who = Credentials::new(peer.uid, peer.gid, &groups);
        let process = Pid::from_raw(peer.process as i32);
        let end_of_process = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        Ok(Session {
            socket,
            process: peer.process,
            end_of_process,
            who,
            since: Instant::now(),
            joined: None,
            lacks_storage: false,
        })
    }

    /// Reads the greeting of the client, and answers it.
    ///
    /// # Errors
    /// `WouldBlock` if the client has sent nothing yet. After every other error the session ends:
    /// `UnexpectedEof` after a list of sessions, and another error if the client closed its socket or broke
    /// the protocol, or if the host failed.
    pub fn greet(
        &mut self,
        engine: &Scm,
        segment: &File,
        (keys, logs): (&mut SessionKeys, &mut Logs),
        number: u64,
        list: &[SentSession],
    ) -> io::Result<()> {
        let mut hello = Hello::new_zeroed();
        let (length, files) = packet::receive(self.socket.as_fd(), hello.as_mut_bytes())?;
        if length != size_of::<Hello>() || hello.magic != MAGIC {
            return Err(invalid("a greeting of another protocol"));
        }
        if hello.version != VERSION {
            let _ = self.refuse(Errno::OPNOTSUPP);
            return Err(invalid("another version of the protocol"));
        }
        let volume = engine.volume();
        let mut welcome = Welcome {
            magic: MAGIC,
            version: VERSION,
            errno: 0,
            volume_id: volume.volume_id(),
            root: engine.root().raw(),
            key: 0,
            process: std::process::id(),
            fences_make_durable: engine.volume().medium().fences_make_durable().into(),
            has_log: 0,
            user: self.who.uid(),
            group: self.who.gid(),
            groups: hash_of_groups(self.who.groups()),
        };
        if hello.purpose == LIST_SESSIONS {
            packet::send(self.socket.as_fd(), &[welcome.as_bytes(), list.as_bytes()].concat(), &[])?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if hello.purpose != OPEN_SESSION {
            return Err(invalid("a greeting with an unknown purpose"));
        }
        let [pins, claims]: [OwnedFd; 2] =
            files.try_into().map_err(|_| invalid("a greeting without its files"))?;
        let claims = Arc::new(Claims::map(claims.into()).map_err(|error| match error {
            Error::Fault(fault) => io_error(fault),
            error => io::Error::other(error.to_string()),
        })?);
        let pins = watch_pins(pins.into()).map_err(io_error)?;
        let lanes = Arc::new(SharedMemory::create(MEMORY_BYTES).map_err(io_error)?);
        let Some(place) = volume.board().free_place() else {
            return self.refuse(Errno::AGAIN);
        };
        let key = keys.next(place);
        welcome.key = key.raw();
        let board = volume.board().file().ok_or_else(|| invalid("the volume is not shared"))?;
        let lanes_file = lanes.file().ok_or_else(|| invalid("lanes without a file"))?;
        let mut files = vec![segment.as_fd(), board.as_fd(), lanes_file.as_fd()];
        files.extend(volume.medium().cache_files().map(|(_, flags)| flags.as_fd()));
        let reserved = ReservedIds::default();
        let log = logs.join(number, key, &self.who, (&lanes, &reserved));
        welcome.has_log = log.is_some().into();
        files.extend(log.map(File::as_fd));
        // The client may read as soon as it has the packet.
        engine.add_claims(&claims);
        volume.board().begin_session(key);
        let sent = packet::send(self.socket.as_fd(), welcome.as_bytes(), &files);
        self.joined = Some(Joined {
            number,
            key,
            lanes,
            claims,
            reserved,
            watchers: Watchers::default(),
            last_page: Instant::now(),
            pins: Some(pins),
        });
        sent
    }

    fn pins(&self) -> Option<&PinWatch> {
        self.joined.as_ref()?.pins.as_ref()
    }

    /// Returns the device and the inode of the file of the client's pins. All sessions of a process have one
    /// such file.
    pub fn pins_file(&self) -> Option<(u64, u64)> {
        let found = self.pins()?.file()?.metadata().ok()?;
        Some((found.dev(), found.ino()))
    }

    /// True if the client holds a pin that keeps storage from being reused.
    pub fn holds_back(&self) -> bool {
        self.pins().is_some_and(PinWatch::holds_back)
    }

    /// True if the client has requested pages of a disk since this time.
    pub fn asked_for_pages_since(&self, time: Instant) -> bool {
        self.joined.as_ref().is_some_and(|joined| joined.last_page >= time)
    }

    /// Returns the session as the list of sessions shows it.
    pub fn sent(&self) -> SentSession {
        let (process, user) = (self.process, self.who.uid());
        let Some(joined) = &self.joined else {
            let raw_state = SessionState::Connecting as u32;
            return SentSession { process, user, raw_state, ..SentSession::new_zeroed() };
        };
        let state = if self.lacks_storage { SessionState::LacksStorage } else { SessionState::Open };
        SentSession {
            process,
            user,
            pins: self.pins().map_or(0, PinWatch::pinned) as u32,
            pending: joined.pending() as u32,
            reserved: lock(&joined.reserved).len() as u32,
            raw_state: state as u32,
        }
    }

    /// Refuses the session.
    pub fn refuse(&self, errno: Errno) -> io::Result<()> {
        let mut welcome = Welcome::new_zeroed();
        (welcome.magic, welcome.version, welcome.errno) = (MAGIC, VERSION, i32::from(errno) as u32);
        packet::send(self.socket.as_fd(), welcome.as_bytes(), &[])
    }

    /// Ends the reads of the client, whose pins then hold nothing back.
    pub fn end_reads(&mut self, engine: &Scm) {
        if let Some(joined) = &mut self.joined {
            let mut pins = joined.pins.take();
            if broken(SafetyRule::SessionEndsBeforeItsPins) {
                pins = None;
            }
            // The client sees the end of its session before any storage that its pins protect is reused.
            engine.volume().board().end_session(joined.key);
            drop(pins);
        }
    }

    /// Ends the session after [`Session::end_reads`]: drops the claims and the locks of the client, and gives
    /// its reserved ids back. The log of the client is applied, because its entries use these ids.
    pub fn end(self, engine: &Scm) {
        if let Some(joined) = self.joined {
            engine.lock_table().end_session(joined.key.raw());
            engine.remove_claims(&joined.claims);
            // In this order, each page of a disk with headers is read only once, even if memory is short.
            let mut reserved: Vec<_> = lock(&joined.reserved).iter().copied().collect();
            reserved.sort_unstable();
            for id in reserved {
                engine.reset_reserved(id);
                engine.unreserve(id);
            }
        }
    }
}
