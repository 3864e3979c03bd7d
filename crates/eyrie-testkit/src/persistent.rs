//! Services of volumes on persistent memory, on a host that has none.
//!
//! The medium is a file that is mapped as persistent memory. [`Fences`] records the lines that the service
//! writes back, and can stop the service at its fences, so that a change is visible but not yet durable.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eyrie_engine::scm::Scm;
use eyrie_engine::{Owner, Result, Time};
use eyrie_faults::{WrittenBack, pmem_anywhere};
use eyrie_medium::shared::observe_stores;
use eyrie_medium::sync::unpoisoned;
use eyrie_medium::{Addr, Caller, Medium, Observer};
use eyrie_service::{ServeOptions, Service};
use eyrie_sim::explore::fixed_options;
use rustix::process::{Signal, getpid, kill_process};

const BYTES: u64 = 8 << 20;

/// Names of the environment variables of a service in a process of its own: the directory of its volume, and
/// the number of the store to the board before which the service is killed (see [`ServiceProcess::start`]).
const PLACE: &str = "EYRIE_TEST_PERSISTENT_PLACE";
const KILL: &str = "EYRIE_TEST_PERSISTENT_KILL";

/// The fences of a service.
pub struct Fences {
    written: WrittenBack,
    state: Mutex<FenceState>,
    changed: Condvar,
}

#[derive(Default)]
struct FenceState {
    are_held: bool,
    /// True while the service waits at a fence.
    is_waiting: bool,
    /// Number of fences that the service may still pass.
    passes: u64,
}

impl Fences {
    /// Stops the service at its next fence.
    pub fn hold(&self) {
        unpoisoned(self.state.lock()).are_held = true;
    }

    /// Waits until the service waits at a fence. Returns false if it has not come to one after 20 seconds.
    #[must_use]
    pub fn wait_until_held(&self) -> bool {
        let state = unpoisoned(self.state.lock());
        let is_on_its_way = |state: &mut FenceState| !state.is_waiting || state.passes > 0;
        let waited = self.changed.wait_timeout_while(state, Duration::from_secs(20), is_on_its_way);
        !unpoisoned(waited).1.timed_out()
    }

    /// Lets the service pass the fence at which it waits.
    pub fn pass_one(&self) {
        let mut state = unpoisoned(self.state.lock());
        state.passes = 1;
        self.changed.notify_all();
    }

    /// Lets the service go on.
    pub fn release(&self) {
        unpoisoned(self.state.lock()).are_held = false;
        self.changed.notify_all();
    }

    /// Opens the volume as a power failure at this moment would leave it.
    ///
    /// # Errors
    /// Any error of an open: the volume is not sound.
    pub fn after_power_failure(&self) -> Result<Scm> {
        Scm::open_on(Medium::memory_holding(&self.written.bytes())?)
    }
}

impl Observer for Fences {
    fn after_write_back(&self, addr: Addr, bytes: &[u8]) {
        self.written.after_write_back(addr, bytes);
    }

    fn fence(&self, caller: Caller) {
        let mut state = unpoisoned(self.state.lock());
        while state.are_held && state.passes == 0 {
            state.is_waiting = true;
            self.changed.notify_all();
            state = unpoisoned(self.changed.wait(state));
        }
        state.is_waiting = false;
        state.passes = state.passes.saturating_sub(1);
        drop(state);
        self.written.fence(caller);
    }
}

fn segment(place: &Path) -> PathBuf {
    place.join("segment")
}

/// Returns the path of the socket of a service in `place`.
pub fn socket(place: &Path) -> PathBuf {
    place.join("socket")
}

fn open(place: &Path) -> Result<(Medium, WrittenBack)> {
    let file = OpenOptions::new().read(true).write(true).open(segment(place)).expect("a volume");
    Ok(pmem_anywhere(file, BYTES)?)
}

/// Makes a volume in the directory `place`.
///
/// # Errors
/// Any error of the creation.
///
/// # Panics
/// Panics if the host refuses a file.
pub fn create(place: &Path) -> Result<()> {
    File::create(segment(place)).and_then(|file| file.set_len(BYTES)).expect("room");
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Time::new(elapsed.as_secs() as i64, elapsed.subsec_nanos());
    let owner = Owner { mode: 0o777, uid: 0, gid: 0 };
    Scm::create_on(open(place)?.0, &fixed_options(1 << 20, now), owner, now)?.close()
}

/// Starts a service of the volume in `place`.
///
/// # Errors
/// Any error of the open or of the start.
///
/// # Panics
/// Panics if there is no volume.
pub fn start(place: &Path) -> Result<(Service, Arc<Fences>)> {
    let (medium, written) = open(place)?;
    let fences = Arc::new(Fences { written, state: Mutex::default(), changed: Condvar::new() });
    let engine = Scm::open_shared_on(medium.observed_by(fences.clone()))?;
    let file = File::open(segment(place)).expect("a volume");
    Ok((Service::start_on(engine, file, &socket(place), ServeOptions::default())?, fences))
}

/// Serves the volume until the standard input ends, if this process is a [`ServiceProcess`].
///
/// # Panics
/// Panics if the service fails.
pub fn serve_if_child() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let (service, _) = start(&place).expect("sound");
    if let Some(kill) = std::env::var(KILL).ok().and_then(|text| text.parse().ok()) {
        let stores = AtomicU64::new(0);
        observe_stores(move |caller| {
            let is_board = caller.file().ends_with("board.rs");
            if is_board && stores.fetch_add(1, Ordering::SeqCst) == kill {
                let _ = kill_process(getpid(), Signal::KILL);
                // The sleep makes sure that this thread makes no further store.
                std::thread::sleep(Duration::from_secs(60));
            }
        });
    }
    let stopper = service.stopper();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        stopper.stop();
    });
    service.run().expect("the volume is saved");
    std::process::exit(0);
}

/// A service in a process of its own. The service ends when this value is dropped.
pub struct ServiceProcess {
    child: Child,
    /// The service ends when this pipe is closed.
    input: Option<ChildStdin>,
}

impl ServiceProcess {
    /// Starts a service of the volume in `place`: this program, whose test `test` calls [`serve_if_child`]
    /// first. If `kill` is n, the service is killed before its store number n to the board. The stores of the
    /// start do not count, and the first store after the start has number 0.
    ///
    /// # Panics
    /// Panics if the host starts no process.
    pub fn start(test: &str, place: &Path, kill: Option<u64>) -> ServiceProcess {
        let mut command = Command::new(std::env::current_exe().expect("the test knows its program"));
        command.args([test, "--exact", "--nocapture"]).env(PLACE, place);
        command.envs(kill.map(|kill| (KILL, kill.to_string())));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("the program can be started again");
        let input = child.stdin.take();
        ServiceProcess { child, input }
    }

    /// Sends a signal to the service.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(rustix::process::Pid::from_child(&self.child), signal);
    }

    /// True if the service has been killed.
    ///
    /// # Panics
    /// Panics if the service has ended by itself, or the host cannot report the state of the process.
    pub fn is_killed(&mut self) -> bool {
        let Some(status) = self.child.try_wait().expect("a child") else { return false };
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "the service ended by itself: {status}");
        true
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        self.input.take();
        let _ = self.child.wait();
    }
}
