//! The engine of a client.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use eyrie_engine::board::Board;
use eyrie_engine::claims::Claims;
use eyrie_engine::engine::next_instance;
use eyrie_engine::op::encode::encode;
use eyrie_engine::volume::VolumeView;
use eyrie_engine::{
    Applied, Attributes, Birth, Engine, Error, FileView, Guards, Kind, ListedEntry, ObjectId, Op, Owner,
    Result, SpaceUsage, Version,
};
use eyrie_medium::epoch::{Guard, pins_file};
use eyrie_medium::shared::{SharedAccess, SharedMemory};
use eyrie_medium::sync::{Mutex, lock};
use eyrie_medium::{Fault, Medium};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::channel::{Channel, Reply};
use crate::packet;
use crate::protocol::{
    Hello, LIST_SESSIONS, MAGIC, MEMORY_BYTES, MOST_SESSIONS, OPEN_SESSION, SentAttributes, SentSession,
    ServiceCall, VERSION, Welcome,
};

/// Name of the socket of a service, in the directory of its volume.
pub const SOCKET_NAME: &str = "service.sock";
/// Ids that a client reserves at once.
const POOL: u64 = 32;
/// Most ids that a pool keeps. Further ids go back to the service.
const MOST_POOLED: usize = 2 * POOL as usize;
const KINDS: usize = 8;
/// Time limit for the answer of the service to a greeting.
const PATIENCE: Duration = Duration::from_secs(10);

/// A volume that a service shares, as an engine.
pub struct Client {
    view: VolumeView,
    root: ObjectId,
    instance: u32,
    read_only: bool,
    service: u32,
    channel: Channel,
    claims: Claims,
    /// Reserved ids of each kind.
    pools: [Mutex<Vec<ObjectId>>; KINDS],
}

fn io_fault(what: &str, source: io::Error) -> Error {
    Error::Fault(Fault::Io { what: what.to_owned(), source })
}

fn fault(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| io_fault(what, source)
}

fn refused(what: &str) -> Error {
    io_fault(
        "opening a session with the service",
        io::Error::new(io::ErrorKind::InvalidData, what.to_owned()),
    )
}

/// Returns a socket that is connected to the service at `path`.
fn connected(path: &Path) -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|errno| io_fault("making a socket", errno.into()))?;
    let address = SocketAddrUnix::new(path)
        .map_err(|errno| io_fault("naming the socket of the service", errno.into()))?;
    connect(&socket, &address)
        .map_err(|errno| io_fault("connecting to the service of the volume", errno.into()))?;
    // A service that hangs must not hang its clients.
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))
        .map_err(|errno| io_fault("making a socket", errno.into()))?;
    Ok(socket)
}

impl Client {
    /// Opens a session with the service whose socket is at `path`. If `read_only` is true, every Op fails
    /// with `OpenedReadOnly`.
    ///
    /// # Errors
    /// `Fault` if no service is at `path`, or if it refuses the session. The error of the host then tells the
    /// reason: `ENOENT` and `ECONNREFUSED` if no service runs, `EACCES` if it does not serve this user.
    pub fn connect(path: &Path, read_only: bool) -> Result<Client> {
        Client::over(Arc::new(connected(path)?), read_only)
    }

    /// Returns the sessions of the service whose socket is at `path`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn sessions(path: &Path) -> Result<Vec<SentSession>> {
        let socket = connected(path)?;
        let hello = Hello { magic: MAGIC, version: VERSION, purpose: LIST_SESSIONS };
        packet::send(socket.as_fd(), hello.as_bytes(), &[]).map_err(fault("greeting the service"))?;
        let mut bytes = vec![0; MOST_SESSIONS * size_of::<SentSession>()];
        let (length, _) =
            packet::receive(socket.as_fd(), &mut bytes).map_err(fault("waiting for the list of sessions"))?;
        // A refusal is shorter or longer than any list.
        if let Ok(welcome) = Welcome::read_from_bytes(&bytes[..length])
            && welcome.magic == MAGIC
        {
            let source = io::Error::from_raw_os_error(welcome.errno as i32);
            return Err(io_fault("the service refused the connection", source));
        }
        let sessions = <[SentSession]>::ref_from_bytes(&bytes[..length]);
        Ok(sessions.map_err(|_| refused("the service sent no list of sessions"))?.to_vec())
    }

    fn over(socket: Arc<OwnedFd>, read_only: bool) -> Result<Client> {
        let claims = Claims::create()?;
        let pins = pins_file()?;
        let claims_file = claims.file().ok_or_else(|| refused("claims without a file"))?;
        let hello = Hello { magic: MAGIC, version: VERSION, purpose: OPEN_SESSION };
        packet::send(socket.as_fd(), hello.as_bytes(), &[pins.as_fd(), claims_file.as_fd()])
            .map_err(fault("greeting the service"))?;
        let mut welcome = Welcome::new_zeroed();
        let (length, files) = packet::receive(socket.as_fd(), welcome.as_mut_bytes())
            .map_err(fault("waiting for the service's greeting"))?;
        if length == 0 {
            return Err(Error::ServiceEnded);
        }
        if length != size_of::<Welcome>() || welcome.magic != MAGIC {
            return Err(refused("the other side of the socket is no service of Eyrie"));
        }
        if welcome.version != VERSION {
            return Err(refused("the service has another version of the protocol"));
        }
        if welcome.errno != 0 {
            let source = io::Error::from_raw_os_error(welcome.errno as i32);
            return Err(io_fault("the service refused the session", source));
        }
        let [segment, board, lanes]: [OwnedFd; 3] =
            files.try_into().map_err(|_| refused("the service sent too few files"))?;
        let peer = Arc::clone(&socket);
        let owner_is_alive = move || !packet::is_closed(peer.as_fd());
        let view = VolumeView::of_owner(&File::from(segment), File::from(board), owner_is_alive)?;
        if view.volume_id() != welcome.volume_id {
            return Err(refused("the service sent another volume"));
        }
        let root = ObjectId::from_raw(welcome.root).filter(|id| id.is_directory());
        let memory = SharedMemory::map(lanes, MEMORY_BYTES, SharedAccess::ReadWrite)?;
        Ok(Client {
            view,
            root: root.ok_or_else(|| refused("the service named no root"))?,
            instance: next_instance(),
            read_only,
            service: welcome.process,
            channel: Channel::new(memory, socket),
            claims,
            pools: Default::default(),
        })
    }

    /// Returns the process id of the service, in its own namespace.
    pub fn service(&self) -> u32 {
        self.service
    }

    /// Returns the volume as its readers see it.
    pub fn volume(&self) -> &VolumeView {
        &self.view
    }

    fn medium(&self) -> &Medium {
        self.view.medium()
    }

    fn board(&self) -> &Board {
        self.view.board()
    }

    /// Returns the result of a read, or an error if the mapping has failed or belongs to another process.
    #[inline]
    fn sound<T>(&self, result: Result<T>) -> Result<T> {
        self.medium().check()?;
        result
    }

    /// Makes a request. A forked child has no session of its own.
    fn call(&self, call: ServiceCall, id: u64, number: u64, data: &[u8]) -> Result<Reply<'_>> {
        self.medium().check()?;
        self.channel.call(call, id, number, data)
    }

    /// Checks that an object has a name, or that an open keeps it. The caller has counted its own open.
    fn check_alive(&self, id: ObjectId) -> Result<()> {
        if !self.view.read_is_removed(id)? {
            return Ok(());
        }
        self.call(ServiceCall::IsOrphan, id.raw(), 0, &[]).map(drop)
    }
}

impl Engine for Client {
    fn root(&self) -> ObjectId {
        self.root
    }

    #[inline]
    fn instance(&self) -> u32 {
        self.instance
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        self.read_only
    }

    #[inline]
    fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        self.sound(self.view.read_lookup(dir, name))
    }

    #[inline]
    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        if !id.is_directory() {
            return self.sound(self.view.read_object(id));
        }
        // The owner of the volume keeps the counts and times of directories, which follow from all pages.
        let reply = self.call(ServiceCall::Attributes, id.raw(), 0, &[])?;
        let (sent, _) = SentAttributes::read_from_prefix(&reply.data())
            .map_err(|_| Error::Invalid("the service sent no attributes"))?;
        Ok(sent.attributes())
    }

    fn birth(&self, id: ObjectId) -> Result<Birth> {
        self.sound(self.view.read_birth(id))
    }

    fn owner(&self, id: ObjectId) -> Result<Owner> {
        self.sound(self.view.read_owner(id))
    }

    fn guards(&self, id: ObjectId) -> Result<Guards> {
        self.sound(self.view.read_guards(id))
    }

    fn parent_of(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        self.sound(self.view.read_parent(dir))
    }

    fn is_removed(&self, id: ObjectId) -> Result<bool> {
        self.sound(self.view.read_is_removed(id))
    }

    #[inline]
    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.sound(self.view.read_data(id, offset, out))
    }

    #[inline]
    fn view<'a>(&'a self, id: ObjectId, range: (u64, u64), guard: &'a Guard) -> Result<Option<FileView<'a>>> {
        self.sound(self.view.read_view(id, range, false, guard))
    }

    fn seal(&self, id: ObjectId) -> Result<()> {
        self.call(ServiceCall::Seal, id.raw(), 0, &[]).map(drop)
    }

    fn version(&self, id: ObjectId) -> Result<Version> {
        let reply = self.call(ServiceCall::Version, id.raw(), 0, &[])?;
        let words: [u64; 3] = words_of(&reply.data())?;
        Ok(Version::from_raw(words))
    }

    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        self.sound(self.view.read_seek(id, offset, hole))
    }

    fn has_storage(&self, id: ObjectId) -> Result<bool> {
        self.sound(self.view.read_has_storage(id))
    }

    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.sound(self.view.read_xattr(id, name, out))
    }

    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.sound(self.view.read_xattr_names(id, visit))
    }

    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()> {
        self.sound(self.view.read_list(dir, cookie, visit))
    }

    #[inline]
    fn prefetch_bytes(&self, id: ObjectId) {
        self.view.prefetch_data(id);
    }

    fn open(&self, id: ObjectId) -> Result<()> {
        self.medium().check()?;
        // The claim comes before the look at the object, as in the owner's process (`scm::opens`).
        self.claims.count(id).fetch_add(1, Ordering::SeqCst);
        self.sound(self.check_alive(id)).inspect_err(|_| self.close(id))
    }

    fn close(&self, id: ObjectId) {
        // A forked child must not change the claims of its parent, whose memory it shares.
        if self.medium().check().is_err() {
            return;
        }
        let before = self.claims.count(id).fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.board().orphans() != 0 {
            // If the service has ended, the next owner frees the orphans.
            let _ = self.call(ServiceCall::Closed, id.raw(), 0, &[]);
        }
    }

    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        let mut pool = lock(&self.pools[kind as usize]);
        if let Some(id) = pool.pop() {
            return Ok(id);
        }
        let reply = self.call(ServiceCall::Reserve, kind as u64, POOL, &[])?;
        let data = reply.data();
        let ids = data.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw));
        pool.extend(ids.filter_map(ObjectId::from_raw).filter(|id| id.kind() == kind));
        // The first id of the answer is the next one.
        pool.reverse();
        pool.pop().ok_or(Error::Invalid("the service reserved no id"))
    }

    fn unreserve(&self, id: ObjectId) {
        let mut pool = lock(&self.pools[id.kind() as usize]);
        if pool.len() < MOST_POOLED {
            pool.push(id);
        } else {
            let _ = self.call(ServiceCall::Unreserve, id.raw(), 0, &[]);
        }
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        if self.read_only {
            return Err(Error::OpenedReadOnly);
        }
        let mut bytes = Vec::with_capacity(256);
        encode(op, &mut bytes);
        let reply = self.call(ServiceCall::Apply, 0, 0, &bytes)?;
        Ok(Applied { offset: reply.answer.number, created: reply.answer.other != 0 })
    }

    fn reclaim(&self) -> bool {
        self.call(ServiceCall::Reclaim, 0, 0, &[]).is_ok_and(|reply| reply.answer.number != 0)
    }

    #[inline]
    fn directory_changes(&self) -> u64 {
        self.board().directory_changes()
    }

    fn wait_for(&self, id: ObjectId) -> Result<()> {
        self.call(ServiceCall::WaitFor, id.raw(), 0, &[]).map(drop)
    }

    fn sync(&self) -> Result<()> {
        self.call(ServiceCall::Sync, 0, 0, &[]).map(drop)
    }

    fn space(&self) -> SpaceUsage {
        let sent = self.call(ServiceCall::Space, 0, 0, &[]).and_then(|reply| words_of(&reply.data()));
        sent.map_or(SpaceUsage::default(), |[total, free, objects]| SpaceUsage { total, free, objects })
    }
}

/// Returns the words of an answer.
fn words_of<const N: usize>(data: &[u8]) -> Result<[u64; N]> {
    let (words, _) = data.as_chunks::<8>();
    let words: &[[u8; 8]; N] =
        words.first_chunk().ok_or(Error::Invalid("the service sent too short an answer"))?;
    Ok(words.map(u64::from_le_bytes))
}

/// Returns true if a connection failed because no service runs at that place.
pub fn is_absent(error: &Error) -> bool {
    let Error::Fault(Fault::Io { source, .. }) = error else { return false };
    // A block device has no directory for a socket.
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused, io::ErrorKind::NotADirectory];
    absent.contains(&source.kind())
}
