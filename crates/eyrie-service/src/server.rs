//! The loop of the service: it accepts clients, and answers their requests in turn.

mod expel;
mod options;
mod socket;
mod turns;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use eyrie_client::packet;
use eyrie_client::protocol::{ASLEEP, MOST_SESSIONS, RUNS_ON};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::segment_path;
use eyrie_engine::{Errno, Error, Result};
use eyrie_medium::rules::{SafetyRule, broken};
use eyrie_medium::sync::sleep::{can_spin, processor, wait_for_socket};
use eyrie_medium::{Fault, MediumKind, SharedPages};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::expel::{FullTime, StuckClock};
pub use self::options::ServeOptions;
use self::socket::{SocketFile, listen_at};
use self::turns::Turns;
use crate::logs::Swept;
use crate::reach::SearchableDirectory;
use crate::requests::{Answered, Requests, StorageWaits};
use crate::session::{Session, SessionKeys};

/// Sweeps over the sessions between two looks at the clock.
const SWEEPS: u32 = 64;
/// Maximum time between two looks at the sockets while the service has requests.
const LOOK: Duration = Duration::from_millis(1);
/// Minimum time that the service gives a new connection for its greeting. A connection without a greeting is
/// ended after at most twice this time.
const GREETING: Duration = Duration::from_secs(5);
/// Maximum number of connections that wait until the service accepts them, and of connections that it accepts
/// at a time.
const BACKLOG: i32 = 64;
/// Maximum number of connections of one user other than root and the user of the service.
const MOST_OF_USER: usize = MOST_SESSIONS / 4;

/// The numbers of sources of events. Sessions have larger numbers.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST_SESSION: u64 = 2;
/// Flag in the number of an event: the process of the session has ended.
const END_OF_PROCESS: u64 = 1 << 63;

/// Stops a service from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Makes [`Service::run`] return soon.
    pub fn stop(&self) {
        // The count of an event is never so large that this write would wait.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// A volume that is being served.
pub struct Service {
    /// The directory of the volume, if the admitted users need to search it. Its mode is restored before the
    /// engine releases the lock of the volume, also if the service never runs.
    directory: Option<SearchableDirectory>,
    /// The file of the socket. It is removed before the engine releases the lock of the volume, too.
    socket: SocketFile,
    /// The table of the logs is removed before the engine releases the lock of the volume, too.
    requests: Requests,
    engine: Scm,
    segment: File,
    listener: OwnedFd,
    poll: OwnedFd,
    stop: Arc<OwnedFd>,
    sessions: BTreeMap<u64, Session>,
    next: u64,
    options: ServeOptions,
    /// The time during which at least one request or entry of a log has waited for storage.
    full: Option<FullTime>,
    keys: SessionKeys,
    /// The clock of grace periods, while pins keep the page cache overfull.
    pages: StuckClock,
    may_spin: bool,
    /// One more than the number of the processor that all clients know; 0 if a new client knows none.
    runs_on: u64,
    /// At the limit of descriptors, the service closes this descriptor, so that it can accept and refuse a
    /// connection. Otherwise the waiting connection would keep the service awake.
    spare: Option<File>,
}

fn fault(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| io_fault(what, errno.into())
}

fn io_fault(what: &str, source: io::Error) -> Error {
    Error::Fault(Fault::Io { what: what.to_owned(), source })
}

/// Returns a descriptor that can be closed when one is needed, or `None` if the host has none left.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Service {
    /// Opens the volume at `volume` and listens at `socket`. Clients can connect from then on, and
    /// [`Service::run`] serves them. If the options admit further users, and the socket is in the directory
    /// of the volume, every user may search this directory while the service lives. The files of the volume
    /// remain closed to these users.
    ///
    /// # Errors
    /// `Volume` if the volume cannot be opened. `Fault` if the host refuses the socket (`EADDRINUSE` if a
    /// file or another service is there), the table of the change logs, or the new mode of the directory.
    pub fn start(volume: &Path, socket: &Path, options: ServeOptions) -> Result<Service> {
        let engine = Scm::open_shared(volume, options.paged)?;
        let opening = |source| io_fault("opening the volume's segment for its clients", source);
        let segment = match engine.volume().medium().cache_files() {
            Some((pages, _)) => pages.try_clone().map_err(opening)?,
            None => File::open(segment_path(volume)).map_err(opening)?,
        };
        let admits_others = options.users.as_ref().is_none_or(|users| !users.is_empty());
        let defers_changes =
            options.defers_changes && engine.volume().medium().kind() == MediumKind::Dram && volume.is_dir();
        let mut service = Service::start_on(engine, segment, socket, options)?;
        if defers_changes {
            // Under the scheduler, turns have no length, so no request waits for their ends.
            let has_turns = can_spin() || cfg!(feature = "shuttle");
            service.requests.logs().0.begin(volume, has_turns)?;
        }
        if admits_others {
            service.directory = SearchableDirectory::of_volume(volume, socket)
                .map_err(|source| io_fault("letting users search the directory of the volume", source))?;
        }
        Ok(service)
    }

    /// Listens at `socket` for clients of an engine that was opened to be shared. The clients map `segment`,
    /// which holds the volume.
    ///
    /// # Errors
    /// `Fault` as for [`Service::start`].
    pub fn start_on(engine: Scm, segment: File, socket: &Path, options: ServeOptions) -> Result<Service> {
        let engine = engine.closed_on_drop();
        // The number of the owner is read now, because the page of this number may be unreadable later.
        let owner = engine.volume().owner_number()?;
        // The file is declared after the engine, so an error removes it before it drops the engine.
        let (listener, file) = listen_at(socket)?;
        // A session has up to six descriptors, and the usual limit is 1024.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        // The service checks the credentials of each client, so any user may reach the socket.
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))
            .map_err(|source| io_fault("setting the mode of the socket", source))?;
        let stop =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(fault("making an event"))?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fault("making a poll"))?;
        let (input, data) = (epoll::EventFlags::IN, epoll::EventData::new_u64);
        epoll::add(&poll, &listener, data(LISTENER), input).map_err(fault("polling the socket"))?;
        epoll::add(&poll, &stop, data(STOP), input).map_err(fault("polling the event"))?;
        Ok(Service {
            engine,
            segment,
            socket: file,
            listener,
            poll,
            stop: Arc::new(stop),
            sessions: BTreeMap::new(),
            next: FIRST_SESSION,
            options,
            requests: Requests::new(),
            full: None,
            runs_on: 0,
            keys: SessionKeys::new(owner),
            pages: StuckClock::default(),
            may_spin: can_spin(),
            spare: spare(),
            directory: None,
        })
    }

    /// Returns a value that stops the service from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// True if the open of the volume had to recover it.
    pub fn recovered(&self) -> bool {
        self.engine.recovered()
    }

    /// Serves clients until the service is stopped. Then ends all sessions and saves the volume. Logged
    /// changes for which the host has no room stay for the next owner.
    ///
    /// # Errors
    /// `Fault` if the host fails or the volume cannot be saved.
    pub fn run(mut self) -> Result<()> {
        let served = self.serve();
        self.socket.remove();
        self.sessions.values_mut().for_each(|session| session.end_reads(&self.engine));
        let (logs, clock) = self.requests.logs();
        logs.leave_to_next_owner(&self.engine, clock);
        let numbers: Vec<u64> = self.sessions.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.end(number));
        let Service { mut engine, directory, requests, .. } = self;
        drop(requests);
        // The lock of the volume is still held, so the next service finds the earlier mode of the directory.
        drop(directory);
        served?;
        engine.try_close()?;
        // The lock of the volume is still held, so the next service opens the volume after this store.
        engine.volume().board().set_saved();
        // The clients still map the pages, but their sessions have ended.
        let pages = engine.volume().medium().shared_pages();
        drop(engine);
        pages.into_iter().for_each(SharedPages::give_back);
        Ok(())
    }

    fn serve(&mut self) -> Result<()> {
        let (mut last_look, mut sweeps) = (Instant::now(), 0_u32);
        let mut turns = Turns::new(last_look);
        loop {
            let mut has_work = self.sweep();
            sweeps = sweeps.wrapping_add(1);
            if has_work || turns.is_due() || sweeps.is_multiple_of(SWEEPS) {
                self.tell_processor();
                let now = Instant::now();
                let waited = self.requests.take_waits();
                if self.may_spin && turns.ends(has_work, waited, now) {
                    std::thread::yield_now();
                }
                if now - last_look >= LOOK {
                    last_look = now;
                    self.expel_from_cache(now);
                    self.requests.take_back_idle(&self.engine);
                    if self.poll(Some(Duration::ZERO))? {
                        return Ok(());
                    }
                }
                if self.may_spin && turns.is_awake(now) {
                    continue;
                }
            } else if self.may_spin {
                std::hint::spin_loop();
                continue;
            }
            // The service is about to sleep. A client that rings its doorbell now also sends a packet.
            self.set_asleep(true);
            has_work |= !broken(SafetyRule::ServiceLooksAgain) && self.sweep();
            let (logs, clock) = self.requests.logs();
            let of_logs = logs.limit_of_sleep(&self.engine, clock);
            let of_pins = self.limit_of_sleep_beside_pins();
            let limit =
                if has_work { Some(Duration::ZERO) } else { of_logs.into_iter().chain(of_pins).min() };
            let stops = self.poll(limit)?;
            self.tell_processor();
            self.set_asleep(false);
            if stops {
                return Ok(());
            }
            last_look = Instant::now();
            self.expel_from_cache(last_look);
            turns.wake(last_look);
        }
    }

    /// Applies some logged changes, and answers the new requests of all sessions, each session in its turn.
    /// Returns false if no session had a logged change or a request. A request that waits counts.
    ///
    /// A request that finds no free storage stays unanswered while a client keeps retired storage from being
    /// reused. Each sweep tries it again. After a while the sweep expels such clients.
    fn sweep(&mut self) -> bool {
        let waits = if self.full.is_none() { StorageWaits::ALL } else { self.wait_or_expel() };
        let (logs, clock) = self.requests.logs();
        let swept = logs.sweep(&self.engine, clock);
        let (mut has_work, mut is_full) = (swept != Swept::Nothing, swept == Swept::Full);
        for session in self.sessions.values_mut() {
            let answered = self.requests.answer_all(&self.engine, session, waits);
            has_work |= answered != Answered::Nothing;
            session.lacks_storage = answered == Answered::Full;
            is_full |= session.lacks_storage;
        }
        self.full = is_full.then(|| self.full.take().unwrap_or_else(FullTime::begin));
        if has_work {
            self.answer_watchers();
        }
        has_work
    }

    /// Answers the requests for notices that have a notice, or whose deadline has passed. Returns the
    /// earliest deadline of the requests that still wait.
    fn answer_watchers(&mut self) -> Option<Instant> {
        let mut first: Option<Instant> = None;
        for session in self.sessions.values_mut() {
            self.requests.answer_watchers(&self.engine, session);
            let end = session.joined.as_ref().and_then(|joined| joined.watchers.first_end());
            first = [first, end].into_iter().flatten().min();
        }
        first
    }

    /// Ends a session.
    fn end(&mut self, number: u64) {
        let Some(mut session) = self.sessions.remove(&number) else { return };
        let _ = epoll::delete(&self.poll, &session.socket);
        // An entry of the log may need the storage that the pins of the client hold back.
        session.end_reads(&self.engine);
        self.end_log(number);
        session.end(&self.engine);
    }

    /// Ends the connections that have not greeted in time. Returns true if another connection still has to
    /// greet.
    fn expect_greetings(&mut self) -> bool {
        let late: Vec<u64> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.joined.is_none() && session.since.elapsed() >= GREETING)
            .map(|(&number, _)| number)
            .collect();
        late.into_iter().for_each(|number| self.end(number));
        self.sessions.values().any(|session| session.joined.is_none())
    }

    /// Tells the clients on which processor the service runs, if it has moved to another one.
    fn tell_processor(&mut self) {
        let runs_on = 1 + processor();
        if self.runs_on != runs_on {
            self.runs_on = runs_on;
            for joined in self.sessions.values().filter_map(|session| session.joined.as_ref()) {
                joined.lanes.word_to_store(RUNS_ON).store(runs_on, Ordering::Relaxed);
            }
        }
    }

    fn set_asleep(&self, asleep: bool) {
        let asleep = if asleep { 1 + processor() } else { 0 };
        for joined in self.sessions.values().filter_map(|session| session.joined.as_ref()) {
            joined.lanes.word_to_store(ASLEEP).store(asleep, Ordering::SeqCst);
        }
        // Every processor sees the stores before the service looks at the doorbells.
        fence(Ordering::SeqCst);
    }

    /// Answers requests for notices as `answer_watchers` does. Then waits for events on the sockets for at
    /// most `limit`, and handles the events. The wait also ends at the next deadline of a request for
    /// notices. While a connection has not greeted, the wait takes at most [`GREETING`]. Returns true if the
    /// service must stop.
    fn poll(&mut self, limit: Option<Duration>) -> Result<bool> {
        let end_of_wait = self.answer_watchers().map(|end| end.saturating_duration_since(Instant::now()));
        let greeting = self.expect_greetings().then_some(GREETING);
        let limit = [limit, end_of_wait, greeting].into_iter().flatten().min();
        let mut events = Vec::with_capacity(64);
        let look = |limit: Option<Duration>| {
            let limit =
                limit.map(|it| Timespec { tv_sec: it.as_secs() as i64, tv_nsec: it.subsec_nanos().into() });
            epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), limit.as_ref())
        };
        match wait_for_socket(limit, look, |found| *found != Ok(0)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(fault("waiting for clients")(errno)),
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(),
                STOP => return Ok(true),
                number if number & END_OF_PROCESS != 0 => self.end(number & !END_OF_PROCESS),
                number => self.handle_packet(number),
            }
        }
        Ok(false)
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        if self.spare.is_none() {
            self.spare = spare();
        }
        for _ in 0..BACKLOG {
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) if self.spare.take().is_some() => {
                    if let Ok(session) =
                        accept_with(&self.listener, flags).map_err(io::Error::from).and_then(Session::accept)
                    {
                        let _ = session.refuse(Errno::MFILE);
                        tracing::warn!(
                            "a connection was refused, because the service has no descriptor left"
                        );
                    }
                    self.spare = spare();
                    continue;
                }
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                    // The connection still waits, and the next look at the sockets finds it again at once.
                    // This pause keeps the service from spinning.
                    std::thread::sleep(LOOK);
                    return;
                }
                Err(_) => return,
            };
            let session = match Session::accept(socket) {
                Ok(session) => session,
                Err(error) => {
                    tracing::warn!(%error, "a connection was refused");
                    continue;
                }
            };
            if !self.admits(session.who.uid()) {
                let _ = session.refuse(Errno::ACCESS);
                tracing::warn!(user = session.who.uid(), "a user was refused");
                continue;
            }
            if self.sessions.len() >= MOST_SESSIONS || self.has_too_many(session.who.uid()) {
                let _ = session.refuse(Errno::AGAIN);
                tracing::warn!(
                    "a connection was refused: the service or the connecting user has too many connections"
                );
                continue;
            }
            let number = self.next;
            self.next += 1;
            let data = epoll::EventData::new_u64(number);
            if let Some(process) = &session.end_of_process {
                let data = epoll::EventData::new_u64(number | END_OF_PROCESS);
                let _ = epoll::add(&self.poll, process, data, epoll::EventFlags::IN);
            }
            if epoll::add(&self.poll, &session.socket, data, epoll::EventFlags::IN).is_ok() {
                self.sessions.insert(number, session);
            }
        }
    }

    fn admits(&self, user: u32) -> bool {
        let own = rustix::process::geteuid().as_raw();
        user == 0 || user == own || self.options.users.as_ref().is_none_or(|users| users.contains(&user))
    }

    fn has_too_many(&self, user: u32) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let count = || self.sessions.values().filter(|session| session.who.uid() == user).count();
        user != 0 && user != own && count() >= MOST_OF_USER
    }

    /// Handles a packet on the socket of a session, or the end of the socket.
    fn handle_packet(&mut self, number: u64) {
        let list: Vec<_> = match self.sessions.get(&number) {
            Some(session) if session.joined.is_none() => {
                let others = self.sessions.iter().filter(|(other, _)| **other != number);
                others.map(|(_, session)| session.sent()).collect()
            }
            _ => Vec::new(),
        };
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let result = if session.joined.is_none() {
            // The new session does not know the processor of the service yet.
            self.runs_on = 0;
            let parts = (&mut self.keys, self.requests.logs().0);
            session.greet(&self.engine, &self.segment, parts, number, &list)
        } else {
            // Later packets only wake the service.
            let mut wake = [0; 16];
            packet::receive(session.socket.as_fd(), &mut wake).and_then(|(length, _)| match length {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            })
        };
        match result {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                if session.joined.is_none() && error.raw_os_error() == Some(Errno::MFILE.into()) {
                    let _ = session.refuse(Errno::MFILE);
                }
                if error.kind() != io::ErrorKind::UnexpectedEof {
                    tracing::warn!(%error, process = session.process, "a session was ended");
                }
                self.end(number);
            }
            _ => {}
        }
    }
}
