//! Kills processes that change a volume on the host, one process after the other.
//!
//! Each process has several writers: threads that make steps, each in a directory of its own. A writer prints
//! the number of a step to acknowledge this step and the writer's earlier steps. On `paged` it does so only
//! after a sync, on other media after each step. After a kill, each directory must show the state after the
//! last acknowledged step of its writer or after a later step. Clients that log their changes also make names
//! in one directory.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{set_hook, take_hook};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use eyrie::{MediumChoice, PagedOptions, Volume};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;

use self::together::NamesOfWriter;
use crate::script::{StepDirectory, StepKinds, StepScript};

pub mod served;
mod together;

/// Names of the environment variables of a child: the path of its volume, the number of its first writer, the
/// number of steps of each writer so far, and 1 if its steps are those of [`StepKinds::WithDeferral`].
const PLACE: &str = "EYRIE_TEST_KILLED_PLACE";
const FIRST: &str = "EYRIE_TEST_KILLED_FIRST";
const STEPS: &str = "EYRIE_TEST_KILLED_STEPS";
const DEFERRAL: &str = "EYRIE_TEST_KILLED_DEFERRAL";
/// On average, one of this many steps is followed by a `sync`.
const SYNCS: u32 = 8;
/// On average, one of this many kills does not wait until the process has opened the volume. Such a kill
/// comes less than 20 ms after the start of the process.
const OPENING: u32 = 6;

/// A series of kills.
#[derive(Clone, Copy, Debug)]
pub struct KillSeries {
    /// The medium of the volumes.
    pub medium: MediumChoice,
    /// Size of each volume, in bytes.
    pub volume_bytes: u64,
    /// Number of threads that change the volume.
    pub writers: usize,
    /// Number of processes that are killed on one volume.
    pub lives: u64,
    /// Maximum time from the open of the volume to the kill. This limit does not apply to the kills that do
    /// not wait for the open.
    pub longest: Duration,
}

/// Numbers of steps of all writers.
#[derive(Clone, Copy, Default, Debug)]
pub struct StepCounts {
    /// Number of steps that the processes acknowledged.
    pub acknowledged: u64,
    /// Number of steps that the volume shows and that no process acknowledged.
    pub unheard: u64,
}

fn paged() -> PagedOptions {
    PagedOptions::new(2 << 20, Duration::from_millis(50))
}

fn place(volume: &Volume, writer: usize, with_deferral: bool) -> StepDirectory {
    let kinds = match writer {
        _ if with_deferral => StepKinds::WithDeferral,
        0 => StepKinds::All,
        _ => StepKinds::OfDirectory,
    };
    StepDirectory::new(volume, &format!("/writer-{writer}"), kinds).expect("room")
}

/// Makes a panic of any thread of this process abort the process. Otherwise the other threads would go on
/// until the kill, and nobody would notice the panic.
fn abort_on_panic() {
    let print = take_hook();
    set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Changes or serves the volume until the process is killed, if this process is a child. Otherwise returns.
/// A child aborts when one of its threads panics.
pub fn run_if_child() {
    served::run_if_service();
    let (Some(path), Ok(steps)) = (std::env::var_os(PLACE), std::env::var(STEPS)) else { return };
    abort_on_panic();
    let steps: Vec<u64> = steps.split(',').map(|number| number.parse().expect("a number")).collect();
    let first: usize = std::env::var(FIRST).expect("set").parse().expect("a number");
    let volume = Volume::open_with(Path::new(&path), paged()).expect("a volume");
    let with_deferral = std::env::var_os(DEFERRAL).is_some();
    let needs_sync = volume.information().medium == "paged";
    // The first line break ends a line that the test harness may have begun.
    let say_open = || say("\nopen");
    let have_found = Barrier::new(steps.len() + 1);
    if !with_deferral {
        say_open();
    }
    std::thread::scope(|scope| {
        for (index, &number) in steps.iter().enumerate() {
            let (volume, writer, have_found) = (&volume, first + index, &have_found);
            scope.spawn(move || {
                let place = place(volume, writer, with_deferral);
                let fail = |error: &dyn Display| -> ! {
                    eprintln!("writer {writer}: {error}");
                    std::process::exit(1)
                };
                let script = StepScript::found(writer as u64, &place, number);
                let mut script = script.unwrap_or_else(|error| fail(&error));
                let names = with_deferral.then(|| NamesOfWriter::found(volume, writer, number));
                let mut names = names.transpose().unwrap_or_else(|error| fail(&error));
                let mut random = SmallRng::seed_from_u64(number);
                have_found.wait();
                loop {
                    script.step(&place).unwrap_or_else(|error| fail(&error));
                    if let Some(names) = &mut names
                        && !names.step(script.number()).unwrap_or_else(|error| fail(&error))
                    {
                        continue;
                    }
                    let is_synced = random.random_ratio(1, SYNCS);
                    if is_synced {
                        place.sync().expect("the host is sound");
                    }
                    if is_synced || !needs_sync {
                        say(&format!("acknowledged {index} {}", script.number()));
                    }
                }
            });
        }
        have_found.wait();
        if with_deferral {
            // Most kills then come while the process logs its changes.
            say_open();
        }
    });
}

/// Checks a volume. Raises `steps` from the acknowledged steps to the steps that the volume shows, and
/// returns the number of these further steps. `context` names the volume in messages.
///
/// # Panics
/// Panics if an acknowledged step is lost, or the volume is not sound.
fn verify(volume: Volume, steps: &mut [u64], with_deferral: bool, context: &str) -> u64 {
    let report = volume.check().expect("the host is sound");
    assert!(report.is_clean(), "{context}: {:#?}", report.findings);
    let mut unheard = 0;
    for (writer, step) in steps.iter_mut().enumerate() {
        if with_deferral && let Err(error) = NamesOfWriter::found(&volume, writer, *step) {
            panic!("{context}: {error}");
        }
        let script = StepScript::found(writer as u64, &place(&volume, writer, with_deferral), *step);
        let script = script.unwrap_or_else(|error| panic!("{context}: {error}"));
        unheard += script.number() - *step;
        *step = script.number();
    }
    volume.close().expect("the host is sound");
    unheard
}

/// Prints and flushes a line. The child exits if its parent has closed the pipe.
fn say(line: &str) {
    let mut output = io::stdout().lock();
    if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
        std::process::exit(1);
    }
}

/// A child that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Errors are ignored, because the child may have exited by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Killed {
    /// Kills the child. Does nothing if this function has killed it before.
    ///
    /// # Panics
    /// Panics if anything but a kill has ended the child: an exit, an abort or a fault.
    fn kill(&mut self) {
        self.0.kill().expect("it is there");
        let status = self.0.wait().expect("it is there");
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "the child ended by itself: {status}");
    }
}

impl KillSeries {
    /// Makes a volume at `path` and kills [`KillSeries::lives`] processes on it. `command` starts a process
    /// that calls [`run_if_child`].
    ///
    /// # Panics
    /// Panics if an acknowledged step is lost, or the volume is not sound.
    pub fn run(&self, path: &Path, seed: u64, command: &dyn Fn() -> Command) -> StepCounts {
        let options = Volume::options().size(self.volume_bytes).group_size(1 << 20);
        let volume = options.medium(self.medium).paged(paged()).create(path).expect("room");
        volume.close().expect("the host is sound");
        let mut random = SmallRng::seed_from_u64(seed);
        let mut total = StepCounts::default();
        let mut steps = vec![0; self.writers];
        for kill in 0..self.lives {
            let acknowledged_steps = self.kill_one(path, &steps, command, &mut random);
            for (writer, step) in steps.iter_mut().enumerate() {
                total.acknowledged += acknowledged_steps[writer] - *step;
                *step = acknowledged_steps[writer];
            }
            // The volume is closed cleanly after a check. Without a check, the next process recovers the
            // volume that the killed process left.
            if kill + 1 < self.lives && random.random_bool(0.5) {
                continue;
            }
            let volume = Volume::open_with(path, paged()).expect("a volume");
            total.unheard += verify(volume, &mut steps, false, &format!("seed {seed}, kill {kill}"));
        }
        std::fs::remove_dir_all(path).expect("it is there");
        total
    }

    /// Starts a child, kills it after a while, and returns the last acknowledged step of each writer.
    fn kill_one(
        &self,
        path: &Path,
        steps: &[u64],
        command: &dyn Fn() -> Command,
        random: &mut SmallRng,
    ) -> Vec<u64> {
        let mut child = WritingProcess::start(path, 0, steps, command);
        let micros = if random.random_ratio(1, OPENING) {
            random.random_range(0..20_000)
        } else {
            child.wait_until_open();
            random.random_range(0..self.longest.as_micros() as u64)
        };
        std::thread::sleep(Duration::from_micros(micros));
        child.kill()
    }
}

/// A child that changes a volume, and the steps that it acknowledges.
struct WritingProcess {
    child: Killed,
    /// Gets a message when the process has opened the volume.
    opened: Receiver<()>,
    is_open: bool,
    reader: JoinHandle<Vec<(usize, u64)>>,
    /// The last acknowledged step of each writer before this process.
    steps: Vec<u64>,
}

impl WritingProcess {
    /// Starts a process whose writers have the numbers from `first` on.
    fn start(path: &Path, first: usize, steps: &[u64], command: &dyn Fn() -> Command) -> WritingProcess {
        let list = steps.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let mut program = command();
        program.env(PLACE, path).env(FIRST, first.to_string()).env(STEPS, list);
        let child = program.stdout(Stdio::piped()).spawn();
        let mut child = Killed(child.expect("the program can be started again"));
        let mut output = BufReader::new(child.0.stdout.take().expect("a pipe"));
        let (open, opened) = channel();
        let reader = std::thread::spawn(move || {
            let mut acknowledged = Vec::new();
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                line.clear();
                // The last line may be incomplete because of the kill.
                let Some(text) = text.strip_suffix('\n') else { break };
                match text.split(' ').collect::<Vec<_>>()[..] {
                    ["open"] => drop(open.send(())),
                    ["acknowledged", writer, number] => acknowledged
                        .push((writer.parse().expect("a number"), number.parse().expect("a number"))),
                    _ => {}
                }
            }
            acknowledged
        });
        WritingProcess { child, opened, is_open: false, reader, steps: steps.to_vec() }
    }

    /// Waits until the process has opened the volume.
    fn wait_until_open(&mut self) {
        if !self.is_open {
            self.opened.recv().expect("it opens the volume");
            self.is_open = true;
        }
    }

    /// Kills the process, and returns the last acknowledged step of each writer.
    ///
    /// # Panics
    /// Panics if anything but a kill has ended the process.
    fn kill(mut self) -> Vec<u64> {
        self.child.kill();
        for (writer, number) in self.reader.join().expect("lines") {
            assert!(self.steps[writer] <= number);
            self.steps[writer] = number;
        }
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Instant;

    use eyrie::{Credentials, PosixExt};

    use super::*;

    #[test]
    fn ends_other_than_a_kill_are_noticed() {
        for (script, is_killed) in [("kill -KILL $$", true), ("exit 0", false), ("kill -ABRT $$", false)] {
            let child = Command::new("sh").args(["-c", script]).spawn();
            let mut child = Killed(child.expect("a shell"));
            child.0.wait().expect("it ends");
            let killed = catch_unwind(AssertUnwindSafe(|| child.kill()));
            assert_eq!(killed.is_ok(), is_killed, "{script}");
        }
    }

    #[test]
    fn child_ends_when_a_writer_panics() {
        run_if_child();
        let host = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let path = host.path().join("volume");
        let options = Volume::options().size(4 << 20).medium(MediumChoice::Dram);
        let volume = options.create(&path).expect("room");
        // The first writer cannot make its directory.
        volume.files(Credentials::root()).write("/writer-0", b"a file").expect("room");
        volume.close().expect("the host is sound");
        let command = || {
            let mut command = Command::new(std::env::current_exe().expect("the test knows its program"));
            command.args(["kills::tests::child_ends_when_a_writer_panics", "--exact", "--nocapture"]);
            command
        };
        let mut process = WritingProcess::start(&path, 0, &[0, 0], &command);
        let started = Instant::now();
        let status = loop {
            match process.child.0.try_wait().expect("a child") {
                Some(status) => break status,
                None => assert!(started.elapsed() < Duration::from_secs(60), "the child goes on"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
    }
}
