//! The engine of a client.

use std::cell::RefCell;
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
use eyrie_engine::notices::Notices;
use eyrie_engine::volume::VolumeView;
use eyrie_engine::{Error, ObjectId, Result};
use eyrie_medium::epoch::pin_number;
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::{ProcessLock, lock, sleep};
use eyrie_medium::{Addr, Fault, Medium, MediumKind, PageOwner, host};

use crate::channel::{Called, Reply, ServiceRequest};
use crate::log::ChangeLog;
use crate::packet;
use crate::protocol::{OUTCOME_MADE, OUTCOME_NOT_MADE, SentSession, ServiceCall, received_error};
use crate::session::{self, NoticeWaits, PATIENCE, ServiceSession, SessionLocks, bad_answer, join, may_pass};
use crate::unsynced::UnsyncedChanges;

/// Name of the socket of a service, in the directory of its volume.
pub const SOCKET_NAME: &str = "service.sock";
/// Longest pause between two attempts to join a service.
const PAUSE: Duration = Duration::from_millis(20);

eyrie_medium::sync::thread_local! {
    /// The clients that this thread has called under its latest pin.
    static PINNED: RefCell<Vec<PinnedClient>> = const { RefCell::new(Vec::new()) };
}

/// A client that a thread has called under a pin.
struct PinnedClient {
    instance: u32,
    /// Number of the pin.
    pin: u64,
    /// The session of the first call.
    key: SessionKey,
}

/// A volume that a service shares, as an engine.
///
/// A session ends with its service, or when the service expels the client. The client then joins the service
/// again, or joins the next service. It repeats the interrupted call, or returns `Stale` so that the caller
/// repeats it. A forked child joins for itself at its first call.
pub struct Client {
    pub(crate) view: VolumeView,
    pub(crate) root: ObjectId,
    /// True if the fences of the service make its stores durable. A change may then be visible before it is
    /// durable.
    pub(crate) fences_make_durable: bool,
    pub(crate) instance: u32,
    pub(crate) read_only: bool,
    service: u32,
    socket: PathBuf,
    /// Device, inode and size of the mapped file.
    segment: (u64, u64, u64),
    /// The key of the current session.
    key: AtomicU64,
    /// Counts the start and the end of each exchange of the board, so it is odd during an exchange.
    pub(crate) exchanges: AtomicU64,
    pub(crate) session: Arc<ArcSwap<ServiceSession>>,
    pub(crate) claims: Claims,
    pub(crate) joining: ProcessLock,
    /// Number of the process to which the claims belong.
    claims_of: AtomicU32,
    /// True if this client has waited for a service in vain, and has joined none since.
    has_given_up: AtomicBool,
    /// Makes the watchers, whose notices come from the service.
    pub(crate) notices: Arc<Notices>,
    pub(crate) notice_waits: ArcSwap<NoticeWaits>,
    /// Counts the calls of `directory_changes` that met an exchange of the board, so that each of them
    /// returns another number.
    pub(crate) unique: AtomicU64,
    pub(crate) unsynced: UnsyncedChanges,
    /// True if a logged change was lost. All later syncs fail.
    pub(crate) has_lost_logged: AtomicBool,
    /// True after the first lock call. Until then a close need not look at the locks.
    pub(crate) has_locked: AtomicBool,
}

impl Client {
    /// Opens a session with the service whose socket is at `path`. If `read_only` is true, every Op fails
    /// with `OpenedReadOnly`.
    ///
    /// # Errors
    /// `Fault` if this process reaches no service at `path` ([`absence`](crate::absence)), if the service
    /// does not answer in time, or if it has another version of the protocol. `Volume` if the service refuses
    /// the session: with `EACCES` if it does not serve this user, with `EAGAIN` if it has too many clients,
    /// and with `EMFILE` if it has no descriptor left. `ServiceEnded` if the service ends the connection
    /// without an answer.
    pub fn connect(path: &Path, read_only: bool) -> Result<Client> {
        // The path is made absolute, because the program may change its working directory before the client
        // joins the next service.
        let socket = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let claims = Claims::create()?;
        let joined = join(&socket, &claims)?;
        let key = joined.session.key;
        let session = Arc::new(ArcSwap::from_pointee(joined.session));
        let segment = identity_of(&joined.segment)?;
        let medium = match joined.flags {
            None => Medium::for_reading(&joined.segment, segment.2)?,
            Some(flags) => Medium::of_cache(&joined.segment, flags, segment.2, page_owner(&session))?,
        };
        let view = VolumeView::of_owner(medium, joined.board, owner_is_alive(&session))
            .map_err(|error| if owner_is_alive(&session)() { error } else { Error::ServiceEnded })?;
        if view.volume_id() != joined.welcome.volume_id {
            return Err(bad_answer("the service sent another volume"));
        }
        let root = ObjectId::from_raw(joined.welcome.root).filter(|id| id.is_directory());
        Ok(Client {
            view,
            root: root.ok_or_else(|| bad_answer("the service named no root"))?,
            fences_make_durable: joined.welcome.fences_make_durable != 0,
            instance: next_instance(),
            read_only,
            service: joined.welcome.process,
            socket,
            segment,
            key: AtomicU64::new(key.raw()),
            exchanges: AtomicU64::new(0),
            session,
            claims,
            joining: ProcessLock::default(),
            claims_of: AtomicU32::new(std::process::id()),
            has_given_up: AtomicBool::new(false),
            notices: Arc::default(),
            notice_waits: ArcSwap::from_pointee(NoticeWaits::new()),
            unique: AtomicU64::new(0),
            unsynced: UnsyncedChanges::default(),
            has_lost_logged: AtomicBool::new(false),
            has_locked: AtomicBool::new(false),
        })
    }

    /// Returns the sessions of the service whose socket is at `path`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn sessions(path: &Path) -> Result<Vec<SentSession>> {
        session::list(path)
    }

    /// Returns the process id of the first service of this client, in the namespace of that service.
    pub fn service(&self) -> u32 {
        self.service
    }

    /// Breaks the protocol, so that the service ends the session.
    #[cfg(feature = "shuttle")]
    pub fn end_session_for_test(&self) {
        let _ = packet::send(&*self.session.load().socket, &[0; 64], &[]);
    }

    /// Returns the volume as its readers see it.
    pub fn volume(&self) -> &VolumeView {
        &self.view
    }

    pub(crate) fn medium(&self) -> &Medium {
        self.view.medium()
    }

    pub(crate) fn board(&self) -> &Board {
        self.view.board()
    }

    /// True for a volume on a disk. If its service is killed, the changes after the last drain are lost.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.medium().kind() == MediumKind::Paged
    }

    fn current_key(&self) -> SessionKey {
        SessionKey::from_raw(self.key.load(Ordering::Acquire))
    }

    /// Returns the key of the session in which the ids of the caller are valid: the session of the first call
    /// under the pin of this thread. Another thread may have joined the next session since. A thread without
    /// a pin gets the key of the current session.
    #[inline]
    pub(crate) fn key(&self) -> SessionKey {
        let pin = pin_number();
        if pin == 0 {
            return self.current_key();
        }
        let of_pin = |pinned: &RefCell<Vec<PinnedClient>>| {
            let (mut pinned, instance) = (pinned.borrow_mut(), self.instance);
            if let Some(known) = pinned.iter().find(|known| known.instance == instance && known.pin == pin) {
                return known.key;
            }
            let key = self.current_key();
            pinned.retain(|known| known.pin == pin);
            pinned.push(PinnedClient { instance, pin, key });
            key
        };
        PINNED.try_with(of_pin).unwrap_or_else(|_| self.current_key())
    }

    /// True if the session with this key still protects the reads of this process: the session has not ended,
    /// and no other process owns the volume now. Callers make this check after a read, and drop the bytes if
    /// it returns false.
    #[inline(always)]
    pub(crate) fn is_current(&self, key: SessionKey) -> bool {
        // The fence orders the reads of the caller before the loads below.
        fence(Ordering::Acquire);
        self.medium().check().is_ok()
            && self.view.has_owner(|owner| key.is_of_owner(owner) || broken(SafetyRule::OwnerIsCompared))
            && self.board().has_session(key)
    }

    /// Runs `read`. If the session ended meanwhile, discards the result, as [`Client::checked_result`] does.
    #[inline(always)]
    pub(crate) fn reading<'a, T>(&'a self, read: impl FnOnce(&'a VolumeView) -> Result<T>) -> Result<T> {
        let key = self.key();
        let result = read(&self.view);
        self.checked_result(key, result)
    }

    /// Runs `read`, a read of the bytes, the size, the times or the names of the object `id`, as
    /// [`Client::reading`] does. First waits until no logged change of the object is left.
    #[inline(always)]
    pub(crate) fn reading_bytes<'a, T>(
        &'a self,
        id: ObjectId,
        read: impl FnOnce(&'a VolumeView) -> Result<T>,
    ) -> Result<T> {
        if self.board().granted_to() != 0 {
            self.wait_until_applied(id)?;
        }
        self.reading(read)
    }

    /// Returns the result of a read. If the session with this key has ended, joins the next session and
    /// returns `Stale`, because the ids of the read may name other objects there.
    #[inline(always)]
    pub(crate) fn checked_result<T>(&self, key: SessionKey, result: Result<T>) -> Result<T> {
        if self.is_current(key) && !matches!(result, Err(Error::ServiceEnded)) {
            return result;
        }
        self.rejoin(key)?;
        Err(Error::Stale)
    }

    /// Joins a service after the session with key `ended` has ended.
    ///
    /// # Errors
    /// `ServiceEnded` if no service of the volume appears. `Volume` if the service refuses the session.
    /// `Fault` if the service shares another volume, or if the volume was resized or copied.
    #[cold]
    pub(crate) fn rejoin(&self, ended: SessionKey) -> Result<()> {
        let is_forked = || match self.medium().check() {
            Err(Fault::Forked) => Ok(true),
            other => other.map(|()| false),
        };
        let started = Instant::now();
        let _joining = self.joining.lock();
        let is_child = is_forked()?;
        if !is_child && self.current_key() != ended {
            // Another thread has joined.
            return Ok(());
        }
        let process = std::process::id();
        if is_child && self.claims_of.load(Ordering::Relaxed) != process {
            // The parent keeps its own claims.
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
                    // After one wait in vain, each later call makes only one attempt, so that a program with
                    // many calls ends soon.
                    if self.has_given_up.load(Ordering::Relaxed) || started.elapsed() >= PATIENCE {
                        self.has_given_up.store(true, Ordering::Relaxed);
                        return Err(Error::ServiceEnded);
                    }
                }
                Err(error) => return Err(error),
            }
            sleep::pause(pause);
            pause = (2 * pause).min(PAUSE);
        };
        self.has_given_up.store(false, Ordering::Relaxed);
        // The page cache of each service is in new files, so only their size can be compared.
        let segment = identity_of(&joined.segment)?;
        let is_same =
            if joined.flags.is_some() { segment.2 == self.segment.2 } else { segment == self.segment };
        if joined.welcome.volume_id != self.view.volume_id() {
            return Err(bad_answer("the service shares another volume now"));
        }
        if !is_same {
            return Err(bad_answer("the volume was resized or copied: open it again"));
        }
        let key = joined.session.key;
        let is_saved = self.board().is_saved();
        let was_killed = !is_saved && !key.has_owner_of(ended);
        // The exchange of the board is the last step that can fail, because a later attempt needs the old
        // board to learn if the service was killed.
        if let Some(flags) = joined.flags {
            self.view.replace_cache(&joined.segment, flags)?;
        }
        // A path that was cached with a count of the old board must not match the same count of the new
        // board.
        self.exchanges.fetch_add(1, Ordering::SeqCst);
        let replaced = self.board().replace(joined.board);
        self.exchanges.fetch_add(1, Ordering::SeqCst);
        replaced?;
        if is_saved {
            self.unsynced.save();
        } else if was_killed && self.is_on_disk() && !broken(SafetyRule::LostChangesAreNoted) {
            self.unsynced.lose();
        }
        // A sync that loads the next session must know the loss. The old log is final, because this session
        // has joined.
        if self.session.load().log.as_ref().is_some_and(ChangeLog::has_failed) {
            self.has_lost_logged.store(true, Ordering::SeqCst);
        }
        let before = self.session.swap(Arc::new(joined.session));
        if !is_child {
            // A forked child has no locks, and a thread of its parent may have held the mutex at the fork.
            let collected = SessionLocks { are_collected: true, ..SessionLocks::default() };
            let SessionLocks { held, lost, .. } = std::mem::replace(&mut *lock(&before.locks), collected);
            let held = held.into_iter().filter(|&(_, is_held)| is_held).map(|(locks, _)| locks);
            lock(&self.session.load().locks).lost.extend(held.chain(lost));
        }
        self.key.store(key.raw(), Ordering::Release);
        if is_child {
            self.medium().accept_in_child();
        }
        Ok(())
    }

    /// True if no Op that this thread may have seen needs a wait. On persistent memory, an Op in progress may
    /// be visible before it is durable. Elsewhere a visible Op needs no wait.
    pub(crate) fn seen_ops_are_durable(&self) -> bool {
        if !self.fences_make_durable || broken(SafetyRule::ClientWaitsForOps) {
            return self.medium().check().is_ok();
        }
        // The counts of Ops are those of this session. An Op of an earlier session is durable, because each
        // owner first makes durable the changes that it finds.
        let key = self.key();
        self.board().seen_ops_are_durable() && self.is_current(key)
    }

    /// Makes a request. If the session ends before the answer, or if this process is a forked child without a
    /// session, joins the next session. Then repeats a request that does not depend on its session, and
    /// returns `Stale` for all others. For an Op, first asks the service for the result: returns it if the Op
    /// was applied, and `ServiceEnded` if the result is unknown.
    fn ask(&self, request: &ServiceRequest<'_>) -> Result<Reply> {
        let is_of_session = request.call.is_of_session();
        loop {
            let key = self.key();
            if let Err(Fault::Forked) = self.medium().check() {
                self.rejoin(key)?;
                if is_of_session {
                    return Err(Error::Stale);
                }
            }
            self.medium().check()?;
            let session = self.session.load();
            if session.key != key && is_of_session {
                return Err(Error::Stale);
            }
            let kills = self.unsynced.kills();
            let number = match session.channel.call(request)? {
                Called::Answered(reply) => {
                    // A sync promises nothing about a change that failed.
                    let is_change = request.call == ServiceCall::Apply && reply.answer.error == 0;
                    if is_change && self.is_on_disk() {
                        self.unsynced.count(kills);
                    }
                    return Ok(reply);
                }
                Called::Ended(number) => number,
            };
            self.rejoin(session.key)?;
            if !is_of_session {
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
    pub(crate) fn call(&self, call: ServiceCall, id: u64, number: u64, data: &[u8]) -> Result<Reply> {
        succeeded(self.ask(&ServiceRequest { call, id, number, data })?)
    }

    /// Checks that an object has a name, or that an open or a hold keeps it alive. The caller has counted its
    /// own open.
    pub(crate) fn check_alive(&self, id: ObjectId) -> Result<()> {
        if self.board().granted_to() != 0 {
            match self.logged_state(id) {
                // The entry that removes the name, if there will be one, comes after the caller's open.
                Some((Some(_), false)) => return Ok(()),
                Some((None, false)) => {}
                // The object may have lost its last name.
                Some((_, true)) | None => self.wait_until_applied(id)?,
            }
        }
        if !self.reading(|view| view.read_is_removed(id))? {
            return Ok(());
        }
        self.call(ServiceCall::IsOrphan, id.raw(), 0, &[]).map(drop)
    }
}

/// Returns a function that tells if the service of a session lives.
fn owner_is_alive(session: &Arc<ArcSwap<ServiceSession>>) -> impl Fn() -> bool + Send + Sync + use<> {
    let session = Arc::clone(session);
    move || !packet::is_closed(&*session.load().socket) || broken(SafetyRule::WaitingReaderAsks)
}

/// Returns the calls by which a client reads the page cache of its service.
fn page_owner(session: &Arc<ArcSwap<ServiceSession>>) -> PageOwner {
    let is_alive = Box::new(owner_is_alive(session));
    let session = Arc::clone(session);
    let bring = move |addr: Addr, bytes| {
        let session = session.load();
        if session.process != std::process::id() {
            return Err(Fault::Forked);
        }
        let request =
            ServiceRequest { call: ServiceCall::BringPages, id: addr.raw(), number: bytes, data: &[] };
        let fault = |source| Fault::Io { what: "reading a page of the shared volume".to_owned(), source };
        let reply = match session.channel.call(&request) {
            Ok(Called::Answered(reply)) => succeeded(reply).map(drop),
            // The caller finds out that the session has ended, and drops the error.
            Ok(Called::Ended(_)) => return Err(fault(std::io::ErrorKind::ConnectionReset.into())),
            Err(error) => Err(error),
        };
        reply.map_err(|error| match error {
            Error::Fault(fault) => fault,
            error => fault(std::io::Error::other(error.to_string())),
        })
    };
    PageOwner { bring: Box::new(bring), is_alive }
}

/// Returns the device, the inode and the size of a file.
fn identity_of(file: &File) -> Result<(u64, u64, u64)> {
    let found = host::metadata_of(file).map_err(|source| Fault::Io {
        what: "reading the attributes of the shared volume".to_owned(),
        source,
    })?;
    Ok((found.dev(), found.ino(), found.len()))
}

/// Returns an answer, or the error that it reports.
fn succeeded(reply: Reply) -> Result<Reply> {
    let Reply { answer, data } = &reply;
    match answer.error {
        0 => Ok(reply),
        error => Err(received_error(error, answer.number, &String::from_utf8_lossy(data))),
    }
}

/// Returns the words of an answer.
pub(crate) fn words_of<const N: usize>(data: &[u8]) -> Result<[u64; N]> {
    let (words, _) = data.as_chunks::<8>();
    let words: &[[u8; 8]; N] =
        words.first_chunk().ok_or(Error::Invalid("the service sent too short an answer"))?;
    Ok(words.map(u64::from_le_bytes))
}
