//! Processes that change a volume on the host until they are killed, one after the other.
//!
//! Each process prints the steps that are acknowledged. The volume must then show these steps, or some more,
//! and nothing else.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use eyrie::{MediumChoice, PagedOptions, Volume};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::script::{StepDirectory, StepScript};

/// Environment of a child: its volume, and the steps of each writer so far.
const PLACE: &str = "EYRIE_TEST_KILLED_PLACE";
const STEPS: &str = "EYRIE_TEST_KILLED_STEPS";
/// One step in eight is followed by a `sync`; one kill in six comes while the volume is opened.
const SYNCS: u32 = 8;
const OPENING: u32 = 6;

/// A series of kills.
#[derive(Clone, Copy, Debug)]
pub struct KillSeries {
    /// The medium of the volumes.
    pub medium: MediumChoice,
    /// Size of each volume, in bytes.
    pub volume_bytes: u64,
    /// Threads that change the volume.
    pub writers: usize,
    /// Kills of one volume (a count).
    pub lives: u64,
    /// Longest life of a process after it has opened the volume.
    pub longest: Duration,
}

/// Steps of all writers.
#[derive(Clone, Copy, Default, Debug)]
pub struct StepCounts {
    /// Steps that the processes acknowledged.
    pub acknowledged: u64,
    /// Steps that the volume shows and no process acknowledged.
    pub unheard: u64,
}

fn paged() -> PagedOptions {
    PagedOptions { memory_bytes: 2 << 20, drain_interval: Duration::from_millis(50) }
}

fn place(volume: &Volume, writer: usize) -> StepDirectory {
    StepDirectory::new(volume, &format!("/writer-{writer}")).expect("room")
}

/// If this process is a child, changes its volume until it is killed; else returns.
pub fn run_if_child() {
    let (Some(path), Ok(steps)) = (std::env::var_os(PLACE), std::env::var(STEPS)) else { return };
    let steps: Vec<u64> = steps.split(',').map(|number| number.parse().expect("a number")).collect();
    let volume = Volume::open_with(Path::new(&path), paged()).expect("a volume");
    let needs_sync = volume.information().medium == "paged";
    say("\nopen");
    std::thread::scope(|scope| {
        for (writer, &number) in steps.iter().enumerate() {
            let volume = &volume;
            scope.spawn(move || {
                let place = place(volume, writer);
                let script = StepScript::found(writer as u64, &place, number);
                let mut script = script.unwrap_or_else(|error| {
                    eprintln!("writer {writer}: {error}");
                    std::process::exit(1)
                });
                let mut random = SmallRng::seed_from_u64(number);
                loop {
                    script.step(&place).expect("room");
                    let is_synced = random.random_ratio(1, SYNCS);
                    if is_synced {
                        place.sync().expect("the host is sound");
                    }
                    if is_synced || !needs_sync {
                        say(&format!("acknowledged {writer} {}", script.number()));
                    }
                }
            });
        }
    });
}

/// Prints a line at once. A child without a parent exits.
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
        // The child may have exited by itself; its output shows that.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl KillSeries {
    /// Makes a volume at `path` and kills [`KillSeries::lives`] processes on it. `command` starts a process
    /// that calls [`run_if_child`].
    ///
    /// # Panics
    /// Panics if a step is lost.
    pub fn run(&self, path: &Path, seed: u64, command: &dyn Fn() -> Command) -> StepCounts {
        let options = Volume::options().size(self.volume_bytes).group_size(1 << 20);
        let volume = options.medium(self.medium).paged(paged()).create(path).expect("room");
        volume.close().expect("the host is sound");
        let mut random = SmallRng::seed_from_u64(seed);
        let mut total = StepCounts::default();
        let mut steps = vec![0; self.writers];
        for kill in 0..self.lives {
            let told = self.kill_one(path, &steps, command, &mut random);
            for (writer, step) in steps.iter_mut().enumerate() {
                total.acknowledged += told[writer] - *step;
                *step = told[writer];
            }
            // A check closes the volume cleanly. Without one, the next process recovers the volume of the
            // killed one.
            if kill + 1 < self.lives && random.random_bool(0.5) {
                continue;
            }
            let volume = Volume::open_with(path, paged()).expect("a volume");
            let report = volume.check().expect("the host is sound");
            assert!(report.is_clean(), "seed {seed}, kill {kill}: {:#?}", report.findings);
            for (writer, step) in steps.iter_mut().enumerate() {
                let script = StepScript::found(writer as u64, &place(&volume, writer), *step);
                let script = script.unwrap_or_else(|error| panic!("seed {seed}, kill {kill}: {error}"));
                total.unheard += script.number() - *step;
                *step = script.number();
            }
            volume.close().expect("the host is sound");
        }
        std::fs::remove_dir_all(path).expect("it is there");
        total
    }

    /// Starts a child, kills it after a while, and returns the acknowledged step of each writer.
    fn kill_one(
        &self,
        path: &Path,
        steps: &[u64],
        command: &dyn Fn() -> Command,
        random: &mut SmallRng,
    ) -> Vec<u64> {
        let list = steps.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let child = command().env(PLACE, path).env(STEPS, list).stdout(Stdio::piped()).spawn();
        let mut child = Killed(child.expect("the program can be started again"));
        let mut output = BufReader::new(child.0.stdout.take().expect("a pipe"));
        let (opened, is_open) = channel();
        let reader = std::thread::spawn(move || {
            let mut acknowledged = Vec::new();
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                line.clear();
                // The kill may cut the last line.
                let Some(text) = text.strip_suffix('\n') else { break };
                match text.split(' ').collect::<Vec<_>>()[..] {
                    ["open"] => drop(opened.send(())),
                    ["acknowledged", writer, number] => {
                        acknowledged.push((writer.parse::<usize>(), number.parse::<u64>()));
                    }
                    _ => {}
                }
            }
            acknowledged
        });
        let longest = self.longest.as_micros() as u64;
        let micros = if random.random_ratio(1, OPENING) {
            random.random_range(0..20_000)
        } else {
            is_open.recv().expect("it opens the volume");
            random.random_range(0..longest)
        };
        std::thread::sleep(Duration::from_micros(micros));
        child.0.kill().expect("it is there");
        let status = child.0.wait().expect("it is there");
        assert_eq!(status.code(), None, "it ended by itself");
        let acknowledged = reader.join().expect("lines");
        let mut told = steps.to_vec();
        for (writer, number) in acknowledged {
            let (writer, number) = (writer.expect("a number"), number.expect("a number"));
            assert!(told[writer] <= number);
            told[writer] = number;
        }
        told
    }
}
