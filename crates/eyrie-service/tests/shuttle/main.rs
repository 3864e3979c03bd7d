//! A service and its clients under the scheduler of shuttle. Each is a thread of this process.
//!
//! Each sleep is a scheduling point, and so is every access to the medium, to the words of a lane, to each 16
//! bytes of a lane and to the keys on the board. Time stands still: a wake that is lost leaves no thread that
//! can run, and shuttle reports the deadlock. Neither side spins. The rest of the code is the same as in a
//! product build, with its sockets and its memory files.
//!
//! Shuttle runs one thread at a time, so these tests do not show if an access needs a stronger ordering.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../eyrie-engine/tests/shuttle/bursts.rs"]
mod bursts;
mod deferred;
mod lanes;
#[cfg(feature = "mutants")]
mod mutants;
mod order;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyrie_client::Client;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Content, Engine, Error, Kind, Op, Owner, SetIds, Time};
use eyrie_medium::PagedOptions;
use eyrie_medium::epoch;
use eyrie_medium::sync::sleep;
use eyrie_service::{ServeOptions, Service, Stopper};
use shuttle::scheduler::Scheduler;
use shuttle::thread::JoinHandle;
use shuttle::{Config, Runner};
use tempfile::TempDir;

use bursts::Bursts;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const TIME: Time = Time { seconds: 1, nanoseconds: 0 };

/// Returns a guard that makes the tests run one at a time, because the clock of epochs belongs to the whole
/// process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    #[cfg(feature = "mutants")]
    eyrie_medium::rules::break_rule_of_environment();
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(body);
}

/// A closed volume, of which each execution serves a copy.
struct Template(TempDir);

impl Template {
    fn make() -> Arc<Template> {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().to_owned();
        // Locks work only inside an execution of shuttle.
        run(Bursts::new(0, 1), move || {
            let options = Options {
                group_bytes: 256 << 10,
                hash_seed: 7,
                volume_id: [1; 16],
                created: TIME,
                medium: MediumChoice::Dram,
                overwrite: true,
                checksums: false,
                paged: PagedOptions::for_host(),
            };
            Scm::create(&path, Some(2 << 20), &options, OWNER, TIME).unwrap().close().unwrap();
        });
        Arc::new(Template(place))
    }

    fn serve(&self) -> Served {
        self.serve_with(true)
    }

    /// Serves a copy. If `defers` is true, clients may log their changes.
    fn serve_with(&self, defers: bool) -> Served {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        for entry in std::fs::read_dir(self.0.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), place.path().join(entry.file_name())).unwrap();
        }
        let (path, socket) = (place.path().to_owned(), place.path().join("socket"));
        let (stopper, thread) = start(&path, &socket, defers);
        Served { path, socket, defers, stopper, thread: Some(thread), _place: place }
    }
}

fn start(path: &Path, socket: &Path, defers: bool) -> (Stopper, JoinHandle<()>) {
    let mut options = ServeOptions::default();
    options.defers_changes = defers;
    let service = Service::start(path, socket, options).unwrap();
    (service.stopper(), shuttle::thread::spawn(move || service.run().unwrap()))
}

/// A volume that a thread of shuttle serves.
struct Served {
    path: PathBuf,
    socket: PathBuf,
    defers: bool,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
    _place: TempDir,
}

impl Served {
    fn client(&self) -> Arc<Client> {
        Arc::new(Client::connect(&self.socket, false).unwrap())
    }

    fn stop(&mut self) {
        self.stopper.stop();
        sleep::socket_changed();
        self.thread.take().unwrap().join().unwrap();
    }

    /// Stops the service, and starts the next one.
    fn replace(&mut self) {
        self.stop();
        let (stopper, thread) = start(&self.path, &self.socket, self.defers);
        (self.stopper, self.thread) = (stopper, Some(thread));
    }

    /// Stops the service, checks the volume, and returns its engine.
    fn end(&mut self) -> Scm {
        self.stop();
        let engine = Scm::open(&self.path, PagedOptions::for_host()).unwrap();
        let report = engine.check().unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
        engine
    }
}

/// Makes a file in the root directory, and appends its name to it. Repeats a call that fails because its
/// session has ended, as the library `eyrie` does.
fn make_file(client: &Client, name: &[u8]) {
    let dir = client.root();
    let create = || {
        let id = client.reserve(Kind::File)?;
        client.apply(&Op::Create { dir, name, id, owner: OWNER, content: Content::Empty, time: TIME })
    };
    repeated(create);
    repeated(|| {
        let id = client.lookup(dir, name)?.ok_or(Error::NotFound)?;
        client.apply(&Op::Append { id, data: name, set_ids: SetIds::Keep, time: TIME })
    });
}

/// Makes a call, and repeats it under another pin while its session has ended.
fn repeated<T>(mut call: impl FnMut() -> eyrie_engine::Result<T>) -> T {
    loop {
        let _pin = epoch::pin();
        match call() {
            Ok(done) => return done,
            Err(Error::Stale | Error::NotReserved) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Asserts that the file `name` has its name as its bytes, once.
fn assert_file(engine: &impl Engine, name: &[u8]) {
    assert_eq!(bytes_of(engine, name), name);
}

/// Returns the bytes of a file in the root directory, at most 64.
fn bytes_of(engine: &impl Engine, name: &[u8]) -> Vec<u8> {
    let id = engine.lookup(engine.root(), name).unwrap().expect("the call that made it has returned");
    let mut bytes = vec![0; 64];
    let count = engine.read(id, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}
