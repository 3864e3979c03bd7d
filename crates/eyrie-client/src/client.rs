//! The engine of a client.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use eyrie_engine::board::{Board, SessionKey};
use eyrie_engine::claims::Claims;
use eyrie_engine::engine::next_instance;
use eyrie_engine::op::encode::encode;
use eyrie_engine::volume::VolumeView;
use eyrie_engine::{
    Applied, Attributes, Birth, Engine, Error, FileView, Guards, Kind, ListedEntry, ObjectId, Op, Owner,
    Result, SpaceUsage, Version,
};
use eyrie_medium::epoch::Guard;
use eyrie_medium::sync::lock;
use eyrie_medium::{Fault, Medium, host};
use zerocopy::FromBytes;

use crate::channel::{Called, Reply, ServiceRequest};
use crate::packet;
use crate::protocol::{
    OUTCOME_MADE, OUTCOME_NOT_MADE, SentAttributes, SentSession, ServiceCall, received_error,
};
use crate::session::{self, PATIENCE, ProcessLock, ServiceSession, join, may_pass, refused};

/// Name of the socket of a service, in the directory of its volume.
pub const SOCKET_NAME: &str = "service.sock";
/// Ids that a client reserves at once.
const POOL: u64 = 32;
/// Most ids that a pool keeps. Further ids go back to the service.
const MOST_POOLED: usize = 2 * POOL as usize;
/// Longest pause between two attempts to join a service.
const PAUSE: Duration = Duration::from_millis(20);

/// A volume that a service shares, as an engine.
///
/// A session ends with its service, or when the service expels the client. The client then joins the service
/// again, or the next one, and repeats the call. A forked child joins for itself at its first call.
pub struct Client {
    view: VolumeView,
    root: ObjectId,
    instance: u32,
    read_only: bool,
    service: u32,
    socket: PathBuf,
    /// Device, inode and size of the mapped file.
    segment: (u64, u64, u64),
    /// The key of the session.
    key: AtomicU64,
    /// Number of steps of exchanges of the board: odd while one is in progress.
    exchanges: AtomicU64,
    session: Arc<ArcSwap<ServiceSession>>,
    claims: Claims,
    joining: ProcessLock,
    /// Number of the process to which the claims belong.
    claims_of: AtomicU32,
    /// True if the last attempt to join failed.
    has_given_up: AtomicBool,
    /// Numbers that never repeat, for directories beside an exchange of the board.
    unique: AtomicU64,
}

impl Client {
    /// Opens a session with the service whose socket is at `path`. If `read_only` is true, every Op fails
    /// with `OpenedReadOnly`.
    ///
    /// # Errors
    /// `Fault` if no service is at `path`, or if it refuses the session. The error of the host then tells the
    /// reason: `ENOENT` and `ECONNREFUSED` if no service runs, `EACCES` if it does not serve this user.
    pub fn connect(path: &Path, read_only: bool) -> Result<Client> {
        // The program may change its directory before the client joins the next service.
        let socket = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let claims = Claims::create()?;
        let joined = join(&socket, &claims)?;
        let key = joined.session.key;
        let session = Arc::new(ArcSwap::from_pointee(joined.session));
        let current = Arc::clone(&session);
        let owner_is_alive = move || !packet::is_closed(&*current.load().socket);
        let view = VolumeView::of_owner(&joined.segment, joined.board, owner_is_alive)?;
        if view.volume_id() != joined.welcome.volume_id {
            return Err(refused("the service sent another volume"));
        }
        let root = ObjectId::from_raw(joined.welcome.root).filter(|id| id.is_directory());
        Ok(Client {
            view,
            root: root.ok_or_else(|| refused("the service named no root"))?,
            instance: next_instance(),
            read_only,
            service: joined.welcome.process,
            socket,
            segment: identity_of(&joined.segment)?,
            key: AtomicU64::new(key.raw()),
            exchanges: AtomicU64::new(0),
            session,
            claims,
            joining: ProcessLock::default(),
            claims_of: AtomicU32::new(std::process::id()),
            has_given_up: AtomicBool::new(false),
            unique: AtomicU64::new(0),
        })
    }

    /// Returns the sessions of the service whose socket is at `path`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn sessions(path: &Path) -> Result<Vec<SentSession>> {
        session::list(path)
    }

    /// Returns the process id of the service with which the client began, in its own namespace.
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

    fn key(&self) -> SessionKey {
        SessionKey::from_raw(self.key.load(Ordering::Acquire))
    }

    /// True if the session with this key still protects what this process reads: it has not ended, and no
    /// other process owns the volume now. Callers ask after a read, and drop the bytes otherwise.
    #[inline(always)]
    fn is_current(&self, key: SessionKey) -> bool {
        // The reads before this call come before the loads below.
        fence(Ordering::Acquire);
        self.medium().check().is_ok()
            && self.view.owner_number().is_ok_and(|owner| key.is_of_owner(owner))
            && self.board().has_session(key)
    }

    /// Runs `read`. If the session ended meanwhile, joins the next one and returns `Stale`, because the ids
    /// of the read may name other objects there.
    #[inline(always)]
    fn reading<'a, T>(&'a self, read: impl FnOnce(&'a VolumeView) -> Result<T>) -> Result<T> {
        let key = self.key();
        let result = read(&self.view);
        if self.is_current(key) && !matches!(result, Err(Error::ServiceEnded)) {
            return result;
        }
        self.rejoin(key)?;
        Err(Error::Stale)
    }

    /// Joins a service after the session with key `ended` has ended.
    ///
    /// # Errors
    /// `ServiceEnded` if no service of the volume appears.
    #[cold]
    fn rejoin(&self, ended: SessionKey) -> Result<()> {
        let is_forked = || match self.medium().check() {
            Err(Fault::Forked) => Ok(true),
            other => other.map(|()| false),
        };
        let started = Instant::now();
        let _joining = self.joining.lock();
        let is_child = is_forked()?;
        if !is_child && self.key() != ended {
            // Another thread has joined.
            return Ok(());
        }
        let process = std::process::id();
        if is_child && self.claims_of.load(Ordering::Relaxed) != process {
            // The claims of the parent stay its own.
            self.claims.unshare_in_child()?;
            self.claims_of.store(process, Ordering::Relaxed);
            // The parent may have been in the middle of an exchange at the fork.
            self.exchanges.fetch_add(self.exchanges.load(Ordering::Relaxed) % 2, Ordering::SeqCst);
        }
        let mut pause = Duration::from_millis(1);
        let joined = loop {
            match join(&self.socket, &self.claims) {
                Ok(joined) => break joined,
                Err(error) if may_pass(&error) => {
                    // A client that has waited once in vain waits no more, so that a program with many calls
                    // ends soon.
                    if self.has_given_up.load(Ordering::Relaxed) || started.elapsed() >= PATIENCE {
                        self.has_given_up.store(true, Ordering::Relaxed);
                        return Err(Error::ServiceEnded);
                    }
                }
                Err(error) => return Err(error),
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSE);
        };
        self.has_given_up.store(false, Ordering::Relaxed);
        let is_same = identity_of(&joined.segment)? == self.segment;
        if joined.welcome.volume_id != self.view.volume_id() || !is_same {
            return Err(refused("the service shares another volume now, or one of another size"));
        }
        // A path that was cached with a count of the old board must not match the same count of the new one.
        self.exchanges.fetch_add(1, Ordering::SeqCst);
        let replaced = self.board().replace(joined.board);
        self.exchanges.fetch_add(1, Ordering::SeqCst);
        replaced?;
        let key = joined.session.key;
        self.session.store(Arc::new(joined.session));
        self.key.store(key.raw(), Ordering::Release);
        if is_child {
            self.medium().accept_in_child();
        }
        Ok(())
    }

    /// Makes a request. If the session ends before the answer, joins the next one and returns `Stale`, unless
    /// the Op of the request was applied.
    fn ask(&self, request: &ServiceRequest<'_>) -> Result<Reply> {
        loop {
            let key = self.key();
            if let Err(Fault::Forked) = self.medium().check() {
                self.rejoin(key)?;
                return Err(Error::Stale);
            }
            self.medium().check()?;
            let session = self.session.load_full();
            let number = match session.channel.call(request)? {
                Called::Answered(reply) => return Ok(reply),
                Called::Ended(number) => number,
            };
            self.rejoin(session.key)?;
            // These requests name no object, so they mean the same in the next session.
            let anywhere = [
                ServiceCall::Outcome,
                ServiceCall::Reserve,
                ServiceCall::Sync,
                ServiceCall::Space,
                ServiceCall::Reclaim,
            ];
            if anywhere.contains(&request.call) {
                continue;
            }
            if request.call == ServiceCall::Apply {
                let asked =
                    ServiceRequest { call: ServiceCall::Outcome, id: session.key.raw(), number, data: &[] };
                let mut reply = self.ask(&asked)?;
                if reply.answer.error != 0 {
                    return Ok(reply);
                }
                match words_of(&reply.data)? {
                    [OUTCOME_NOT_MADE] => {}
                    [OUTCOME_MADE] => {
                        reply.data.clear();
                        return Ok(reply);
                    }
                    _ => return Err(Error::ServiceEnded),
                }
            }
            return Err(Error::Stale);
        }
    }

    /// Makes a request, and returns its successful answer.
    fn call(&self, call: ServiceCall, id: u64, number: u64, data: &[u8]) -> Result<Reply> {
        succeeded(self.ask(&ServiceRequest { call, id, number, data })?)
    }

    /// Checks that an object has a name, or that an open keeps it. The caller has counted its own open.
    fn check_alive(&self, id: ObjectId) -> Result<()> {
        if !self.reading(|view| view.read_is_removed(id))? {
            return Ok(());
        }
        self.call(ServiceCall::IsOrphan, id.raw(), 0, &[]).map(drop)
    }
}

/// Returns the device, the inode and the size of a file.
fn identity_of(file: &File) -> Result<(u64, u64, u64)> {
    let found = host::metadata_of(file).map_err(|source| Fault::Io {
        what: "reading the attributes of the shared volume".to_owned(),
        source,
    })?;
    Ok((found.dev(), found.ino(), found.len()))
}

/// Returns an answer, or the error that it brings.
fn succeeded(reply: Reply) -> Result<Reply> {
    let Reply { answer, data } = &reply;
    match answer.error {
        0 => Ok(reply),
        error => Err(received_error(error, answer.number, &String::from_utf8_lossy(data))),
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
        self.reading(|view| view.read_lookup(dir, name))
    }

    #[inline]
    fn attributes(&self, id: ObjectId) -> Result<Attributes> {
        if !id.is_directory() {
            return self.reading(|view| view.read_object(id));
        }
        // The owner of the volume keeps the counts and times of directories, which follow from all pages.
        let reply = self.call(ServiceCall::Attributes, id.raw(), 0, &[])?;
        let (sent, _) = SentAttributes::read_from_prefix(&reply.data)
            .map_err(|_| Error::Invalid("the service sent no attributes"))?;
        Ok(sent.attributes())
    }

    fn birth(&self, id: ObjectId) -> Result<Birth> {
        self.reading(|view| view.read_birth(id))
    }

    fn owner(&self, id: ObjectId) -> Result<Owner> {
        self.reading(|view| view.read_owner(id))
    }

    fn guards(&self, id: ObjectId) -> Result<Guards> {
        self.reading(|view| view.read_guards(id))
    }

    fn parent_of(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        self.reading(|view| view.read_parent(dir))
    }

    fn is_removed(&self, id: ObjectId) -> Result<bool> {
        self.reading(|view| view.read_is_removed(id))
    }

    #[inline]
    fn read(&self, id: ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.reading(|view| view.read_data(id, offset, out))
    }

    #[inline]
    fn view<'a>(&'a self, id: ObjectId, range: (u64, u64), guard: &'a Guard) -> Result<Option<FileView<'a>>> {
        self.reading(|view| view.read_view(id, range, false, guard))
    }

    fn seal(&self, id: ObjectId) -> Result<()> {
        self.call(ServiceCall::Seal, id.raw(), 0, &[]).map(drop)
    }

    fn version(&self, id: ObjectId) -> Result<Version> {
        let reply = self.call(ServiceCall::Version, id.raw(), 0, &[])?;
        let words: [u64; 3] = words_of(&reply.data)?;
        Ok(Version::from_raw(words))
    }

    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        self.reading(|view| view.read_seek(id, offset, hole))
    }

    fn has_storage(&self, id: ObjectId) -> Result<bool> {
        self.reading(|view| view.read_has_storage(id))
    }

    fn xattr(&self, id: ObjectId, name: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.reading(|view| view.read_xattr(id, name, out))
    }

    fn xattr_names(&self, id: ObjectId, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        // Names that were visited cannot be taken back, so they are visited after the read.
        let names = self.reading(|view| {
            let mut names: Vec<Vec<u8>> = Vec::new();
            view.read_xattr_names(id, &mut |name| names.push(name.to_vec()))?;
            Ok(names)
        })?;
        names.iter().for_each(|name| visit(name));
        Ok(())
    }

    fn list(&self, dir: ObjectId, cookie: u64, visit: &mut dyn FnMut(ListedEntry<'_>) -> bool) -> Result<()> {
        let (key, mut is_lost) = (self.key(), false);
        let result = self.view.read_list(dir, cookie, &mut |entry| {
            // An entry that was visited cannot be taken back, so each one is checked before.
            is_lost = !self.is_current(key);
            !is_lost && visit(entry)
        });
        if !is_lost && self.is_current(key) && !matches!(result, Err(Error::ServiceEnded)) {
            return result;
        }
        self.rejoin(key)?;
        Err(Error::Stale)
    }

    #[inline]
    fn prefetch_bytes(&self, id: ObjectId) {
        self.view.prefetch_data(id);
    }

    fn open(&self, id: ObjectId) -> Result<()> {
        let key = self.key();
        if let Err(Fault::Forked) = self.medium().check() {
            self.rejoin(key)?;
        }
        // The claim comes before the look at the object, as in the owner's process (`scm::opens`).
        self.claims.count(id).fetch_add(1, Ordering::SeqCst);
        self.check_alive(id).inspect_err(|_| self.close(id))
    }

    fn close(&self, id: ObjectId) {
        // A forked child that has not joined yet must not change the claims of its parent, whose memory it
        // shares. If it joins later, its claims may count this open, which delays the free of an orphan.
        if self.medium().check().is_err() {
            return;
        }
        // The claims of a forked child may miss an open that its parent ended before the child joined.
        let before =
            self.claims.count(id).fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if before == Ok(1) && self.board().orphans() != 0 {
            // If the service has ended, the next one sees the claims as they are now.
            let _ = self.call(ServiceCall::Closed, id.raw(), 0, &[]);
        }
    }

    #[inline]
    fn session(&self) -> u64 {
        self.key().raw()
    }

    fn reserve(&self, kind: Kind) -> Result<ObjectId> {
        let key = self.key();
        if let Err(Fault::Forked) = self.medium().check() {
            self.rejoin(key)?;
        }
        if let Some(id) = lock(&self.session.load().pools[kind as usize]).pop() {
            return Ok(id);
        }
        let data = self.call(ServiceCall::Reserve, kind as u64, POOL, &[])?.data;
        let session = self.session.load();
        let mut pool = lock(&session.pools[kind as usize]);
        let ids = data.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw));
        pool.extend(ids.filter_map(ObjectId::from_raw).filter(|id| id.kind() == kind));
        // The first id of the answer is the next one.
        pool.reverse();
        pool.pop().ok_or(Error::Invalid("the service reserved no id"))
    }

    fn unreserve(&self, id: ObjectId) {
        let session = self.session.load();
        let mut pool = lock(&session.pools[id.kind() as usize]);
        if pool.len() < MOST_POOLED {
            pool.push(id);
            return;
        }
        drop(pool);
        let _ = self.call(ServiceCall::Unreserve, id.raw(), 0, &[]);
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
        let before = self.exchanges.load(Ordering::Acquire);
        let changes = self.board().directory_changes();
        // The board of a dead service does not change any more, although the volume may.
        if self.is_current(self.key())
            && before.is_multiple_of(2)
            && self.exchanges.load(Ordering::Acquire) == before
        {
            // Boards of different services may have the same count. Counts stay below 2^40.
            return changes ^ before << 40;
        }
        1 << 63 | 1 << 62 | self.unique.fetch_add(1, Ordering::Relaxed)
    }

    fn wait_for(&self, id: ObjectId) -> Result<()> {
        self.call(ServiceCall::WaitFor, id.raw(), 0, &[]).map(drop)
    }

    fn sync(&self) -> Result<()> {
        self.call(ServiceCall::Sync, 0, 0, &[]).map(drop)
    }

    fn space(&self) -> SpaceUsage {
        let sent = self.call(ServiceCall::Space, 0, 0, &[]).and_then(|reply| words_of(&reply.data));
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
