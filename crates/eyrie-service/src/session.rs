//! One session: a client, its credentials, and the memory that it shares with the service.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use eyrie_client::packet;
use eyrie_client::protocol::{
    Hello, LANES, LIST_SESSIONS, MAGIC, MEMORY_BYTES, OPEN_SESSION, SentSession, VERSION, Welcome, head_of,
    state,
};
use eyrie_engine::access::Credentials;
use eyrie_engine::claims::Claims;
use eyrie_engine::scm::Scm;
use eyrie_engine::{Engine, Errno, Error, ObjectId};
use eyrie_medium::Fault;
use eyrie_medium::epoch::{PinWatch, watch_pins};
use eyrie_medium::host::groups_of_peer;
use eyrie_medium::shared::SharedMemory;
use rustix::net::sockopt::socket_peercred;
use zerocopy::{FromZeros, IntoBytes};

/// A connected client. Before its greeting it has no memory.
pub struct Session {
    pub socket: OwnedFd,
    pub process: u32,
    pub who: Credentials,
    pub joined: Option<Joined>,
}

/// The parts of a session that begin with the client's greeting.
pub struct Joined {
    pub lanes: SharedMemory,
    pub claims: Arc<Claims>,
    /// Ids that the client has reserved and not used.
    pub reserved: HashSet<ObjectId>,
    /// The clock of grace periods waits for the pins of the client until the session ends.
    pins: PinWatch,
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

impl Session {
    /// Accepts a connection. The kernel vouches for the credentials.
    pub fn accept(socket: OwnedFd) -> io::Result<Session> {
        let peer = socket_peercred(&socket)?;
        let groups = groups_of_peer(socket.as_fd())?;
        let who = Credentials::new(peer.uid.as_raw(), peer.gid.as_raw(), &groups);
        let process = peer.pid.as_raw_nonzero().get() as u32;
        Ok(Session { socket, process, who, joined: None })
    }

    /// Reads the greeting of the client, and answers it.
    ///
    /// # Errors
    /// If the client closed its socket or broke the protocol. The session then ends.
    pub fn greet(&mut self, engine: &Scm, segment: &File, list: &[SentSession]) -> io::Result<()> {
        let mut hello = Hello::new_zeroed();
        let (length, files) = packet::receive(self.socket.as_fd(), hello.as_mut_bytes())?;
        if length != size_of::<Hello>() || hello.magic != MAGIC {
            return Err(invalid("a greeting of another protocol"));
        }
        if hello.version != VERSION {
            let _ = self.refuse(Errno::OPNOTSUPP);
            return Err(invalid("another version of the protocol"));
        }
        if hello.purpose == LIST_SESSIONS {
            packet::send(self.socket.as_fd(), list.as_bytes(), &[])?;
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
        let lanes = SharedMemory::create(MEMORY_BYTES).map_err(io_error)?;
        let volume = engine.volume();
        let welcome = Welcome {
            magic: MAGIC,
            version: VERSION,
            errno: 0,
            volume_id: volume.volume_id(),
            root: engine.root().raw(),
            process: std::process::id(),
            reserved: 0,
        };
        let board = volume.board().file().ok_or_else(|| invalid("the volume is not shared"))?;
        let lanes_file = lanes.file().ok_or_else(|| invalid("lanes without a file"))?;
        let files = [segment.as_fd(), board.as_fd(), lanes_file.as_fd()];
        packet::send(self.socket.as_fd(), welcome.as_bytes(), &files)?;
        engine.add_claims(&claims);
        self.joined = Some(Joined { lanes, claims, reserved: HashSet::new(), pins });
        Ok(())
    }

    /// Returns the session as the list of sessions shows it.
    pub fn sent(&self) -> Option<SentSession> {
        let joined = self.joined.as_ref()?;
        let state_of = |lane: usize| joined.lanes.short_words()[head_of(lane) / 4].load(Ordering::Relaxed);
        let is_pending = |&lane: &usize| [state::REQUESTED, state::WAITING].contains(&state_of(lane));
        Some(SentSession {
            process: self.process,
            user: self.who.uid(),
            pins: joined.pins.pinned() as u32,
            pending: (0..=LANES).filter(is_pending).count() as u32,
            reserved: joined.reserved.len() as u32,
        })
    }

    /// Refuses the session.
    pub fn refuse(&self, errno: Errno) -> io::Result<()> {
        let mut welcome = Welcome::new_zeroed();
        (welcome.magic, welcome.version, welcome.errno) = (MAGIC, VERSION, i32::from(errno) as u32);
        packet::send(self.socket.as_fd(), welcome.as_bytes(), &[])
    }

    /// Ends the session: the claims and reservations of the client return.
    pub fn end(self, engine: &Scm) {
        if let Some(joined) = self.joined {
            engine.remove_claims(&joined.claims);
            for &id in &joined.reserved {
                engine.reset_reserved(id);
                engine.unreserve(id);
            }
        }
    }
}
