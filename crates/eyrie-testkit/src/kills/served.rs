//! Kills services of a volume and their clients.
//!
//! A client whose service is killed goes on with the next service. The client repeats no change and loses
//! none. So the volume must show, for each writer, the state after the last acknowledged step or after a
//! later step.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use eyrie::{MediumChoice, Volume};
use eyrie_client::SOCKET_NAME;
use eyrie_engine::volume::has_unapplied_entries;
use eyrie_service::{ServeOptions, Service};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

use super::{DEFERRAL, Killed, StepCounts, WritingProcess, abort_on_panic, say, verify};

/// Name of the environment variable of a service: the path of its volume.
const SERVED: &str = "EYRIE_TEST_KILLED_SERVICE";
/// On average, at one of this many kills, a client is stopped (`SIGSTOP`) from up to 5 ms before the kill
/// until after the kill.
const STOPS: u32 = 8;

/// A series of kills of services and of clients.
#[derive(Clone, Copy, Debug)]
pub struct ServedKillSeries {
    /// Size of each volume, in bytes.
    pub volume_bytes: u64,
    /// Number of threads of a client that change the volume.
    pub writers: usize,
    /// Number of clients at the same time. Each has directories of its own. With `with_deferral`, all clients
    /// also make names in one directory.
    pub clients: usize,
    /// True if all steps are `StepKinds::WithDeferral`, so that clients log their changes.
    pub with_deferral: bool,
    /// Number of kills on one volume.
    pub kills: u64,
    /// Maximum random pause before a kill. The time between two kills may be longer, because a kill may also
    /// wait until all clients have opened the volume, or stop a client first.
    pub longest: Duration,
}

/// Numbers of the processes that were killed, and of the steps of all writers.
#[derive(Clone, Copy, Default, Debug)]
pub struct ServedKillCounts {
    /// Number of killed clients.
    pub clients: u64,
    /// Number of killed services.
    pub services: u64,
    /// Number of kills right after which a log had entries that were not applied.
    pub with_entries: u64,
    /// Steps of all writers.
    pub steps: StepCounts,
}

/// Serves a volume until the process is killed, if this process is a service. Otherwise returns.
pub(super) fn run_if_service() {
    let Some(path) = std::env::var_os(SERVED).map(PathBuf::from) else { return };
    abort_on_panic();
    let service = Service::start(&path, &path.join(SOCKET_NAME), ServeOptions::default());
    let service = service.expect("a volume without an owner");
    say("\nopen");
    service.run().expect("the host is sound");
}

impl ServedKillSeries {
    /// Makes a volume at `path` and kills [`ServedKillSeries::kills`] services and clients of it. `command`
    /// starts a process that calls [`run_if_child`](super::run_if_child).
    ///
    /// # Panics
    /// Panics if an acknowledged step is lost, a client or a service ends by itself, or the volume is not
    /// sound.
    pub fn run(&self, path: &Path, seed: u64, command: &dyn Fn() -> Command) -> ServedKillCounts {
        let options = Volume::options().size(self.volume_bytes).group_size(1 << 20);
        let volume = options.medium(MediumChoice::Dram).create(path).expect("room");
        volume.close().expect("the host is sound");
        let mut random = SmallRng::seed_from_u64(seed);
        let mut counts = ServedKillCounts::default();
        let mut steps = vec![0; self.writers * self.clients];
        let command = &|| {
            let mut command = command();
            if self.with_deferral {
                command.env(DEFERRAL, "1");
            }
            command
        };
        let start = |client: usize, steps: &[u64]| {
            let first = client * self.writers;
            WritingProcess::start(path, first, &steps[first..first + self.writers], command)
        };
        let mut service = start_service(path, command);
        let mut clients: Vec<_> = (0..self.clients).map(|client| start(client, &steps)).collect();
        for _ in 0..self.kills {
            let victim = random.random_range(0..self.clients);
            let kills_service = random.random_bool(0.5);
            // A program that finds no service opens the volume itself. So no service is killed while a client
            // joins it.
            if kills_service || random.random_bool(0.7) {
                clients.iter_mut().for_each(WritingProcess::wait_until_open);
            }
            let pause = random.random_range(0..self.longest.as_micros() as u64);
            std::thread::sleep(Duration::from_micros(pause));
            // While the service is stopped, clients with a grant continue to log their changes.
            let stopped_service =
                (self.with_deferral && random.random_bool(0.8)).then(|| Stopped::stop(&service));
            let stopped = random.random_ratio(1, STOPS).then(|| Stopped::stop(&clients[victim].child));
            if stopped.is_some() || stopped_service.is_some() {
                std::thread::sleep(Duration::from_micros(random.random_range(0..5000)));
            }
            if kills_service {
                service.kill();
                counts.services += 1;
                counts.with_entries += u64::from(has_unapplied_entries(path));
                service = start_service(path, command);
            } else {
                counts.clients += 1;
                let mut client = clients.remove(victim);
                client.child.kill();
                counts.with_entries += u64::from(has_unapplied_entries(path));
                counts.steps.acknowledged += self.end(client, victim, &mut steps);
                clients.insert(victim, start(victim, &steps));
            }
        }
        for (client, process) in clients.into_iter().enumerate() {
            counts.steps.acknowledged += self.end(process, client, &mut steps);
        }
        service.kill();
        let volume = Volume::open(path).expect("a volume");
        counts.steps.unheard += verify(volume, &mut steps, self.with_deferral, &format!("seed {seed}"));
        std::fs::remove_dir_all(path).expect("it is there");
        counts
    }

    /// Kills a client, and raises the steps of its writers to the steps that they acknowledged. Returns the
    /// number of newly acknowledged steps.
    fn end(&self, process: WritingProcess, client: usize, steps: &mut [u64]) -> u64 {
        let first = client * self.writers;
        let ended = process.kill();
        let mut acknowledged = 0;
        for (step, now) in steps[first..].iter_mut().zip(ended) {
            acknowledged += now - *step;
            *step = now;
        }
        acknowledged
    }
}

/// Starts a service, and returns it when clients can connect.
fn start_service(path: &Path, command: &dyn Fn() -> Command) -> Killed {
    let child = command().env(SERVED, path).stdout(Stdio::piped()).spawn();
    let mut child = Killed(child.expect("the program can be started again"));
    let mut output = BufReader::new(child.0.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while line != "open\n" {
        line.clear();
        let bytes = output.read_line(&mut line).expect("text");
        assert!(bytes > 0, "the service ended before it was ready");
    }
    child
}

/// A process that does not run until this value is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(process: &Killed) -> Stopped {
        let pid = Pid::from_child(&process.0);
        kill_process(pid, Signal::STOP).expect("it is there");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process may have been killed meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}
