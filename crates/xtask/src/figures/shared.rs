//! Measures a volume that a service shares, beside a volume that this process has for itself. The calls of
//! both volumes alternate. Also measures the start of a client, and the processor time of a service without
//! requests.
//!
//! The service does not defer changes, so a call that changes the served volume waits for the service. The
//! time of the call depends on where the service is: awake on another processor, asleep, or on the processor
//! of the client.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Files, OpenFlags, Posix, PosixExt, Store, Volume};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::figure::{Figure, Measured, median};
use super::{ChildStep, in_scratch};
use crate::run::{Result, eyrie_command, start_service};

const VOLUME_BYTES: u64 = 1 << 30;
/// Number of files in the measured directory, and of keys in the measured store.
const NAMES: u32 = 1000;
const BLOCK: usize = 4096;
/// Size of the file that is read, in bytes. It does not fit into the caches of the processor.
const FILE_BYTES: u64 = 256 << 20;
/// Number of calls that are timed together.
const BATCH: u32 = 1000;
const ROUNDS: u32 = 41;
/// Number of calls, each after a pause in which the service falls asleep.
const PAUSED_CALLS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);
const JOINS: u32 = 100;
/// Length of one measurement of reading processes.
const READING: Duration = Duration::from_secs(2);
const READING_ROUNDS: usize = 3;
/// Length of the time in which the service has no request.
const IDLE: Duration = Duration::from_secs(2);

/// A call that changes nothing, whose time on a served volume is close to that on an embedded one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServedLookUp {
    Open,
    Stat,
    StatDirectory,
    Read,
    Get,
    List,
}

/// A call that changes the volume: one request to the service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServedChange {
    Create,
    Rename,
    Put,
    Erase,
    Unlink,
}

const LOOK_UPS: [(ServedLookUp, &str); 6] = [
    (ServedLookUp::Open, "open + close"),
    (ServedLookUp::Stat, "stat"),
    (ServedLookUp::StatDirectory, "stat of a directory of 100 files"),
    (ServedLookUp::Read, "read 4 KiB"),
    (ServedLookUp::Get, "get 100 B"),
    (ServedLookUp::List, "listing, an entry"),
];
/// The changes in the order of one round, at the end of which no new name is left.
const CHANGES: [(ServedChange, &str); 5] = [
    (ServedChange::Create, "create"),
    (ServedChange::Rename, "rename"),
    (ServedChange::Put, "put 100 B"),
    (ServedChange::Erase, "erase"),
    (ServedChange::Unlink, "unlink"),
];

/// A service in another process. A drop ends it.
pub(super) struct Service(Child);

impl Service {
    /// Starts a service of the volume with these arguments, and waits until programs can connect.
    pub(super) fn start(eyrie: &Path, arguments: &[&str], volume: &Path) -> Result<Service> {
        let mut serve = Command::new(eyrie);
        serve.arg("serve").args(arguments);
        Ok(Service(start_service(eyrie, serve, volume)?))
    }

    /// Returns the time for which the threads of the service have run on a processor.
    fn processor_time(&self) -> Result<Duration> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            total += text.split(' ').next().ok_or("schedstat is empty")?.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(total))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// An open volume, and its interfaces.
pub(super) struct OpenVolume {
    pub(super) files: Files,
    pub(super) store: Store,
    pub(super) volume: Volume,
}

impl OpenVolume {
    pub(super) fn open(path: &Path) -> Result<OpenVolume> {
        let volume = Volume::open(path)?;
        let files = volume.files(Credentials::of_process());
        Ok(OpenVolume { store: volume.store("/keys", Credentials::of_process())?, files, volume })
    }

    pub(super) fn close(self) -> Result<()> {
        drop((self.files, self.store));
        Ok(self.volume.close()?)
    }
}

/// An open volume with the file that the calls use.
struct Side {
    open: OpenVolume,
    file: eyrie::File<Files>,
    block: Vec<u8>,
}

/// Returns a number from 0 to `count - 1`. Numbers that follow one another are far apart.
fn spread(number: u32, count: u64) -> u64 {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) % count
}

/// Makes the files of the look-ups in a new volume, and closes it.
fn fill(path: &Path) -> Result<()> {
    let volume = Volume::create(path, VOLUME_BYTES)?;
    let files = volume.files(Credentials::of_process());
    files.create_dir("/dir")?;
    files.create_dir("/keys")?;
    files.create_dir("/small")?;
    for number in 0..100 {
        files.write(format!("/small/file-{number:02}"), [])?;
    }
    let store = volume.store("/keys", Credentials::of_process())?;
    for number in 0..NAMES {
        files.write(format!("/dir/file-{number:04}"), [5; 100])?;
        store.put(format!("key-{number:04}"), [5; 100])?;
    }
    let file = files.options().write(true).create_new(true).open("/large")?;
    for offset in (0..FILE_BYTES).step_by(1 << 20) {
        file.write_all_at(&vec![5; 1 << 20], offset)?;
    }
    drop((files, store, file));
    Ok(volume.close()?)
}

impl Side {
    fn open(path: &Path) -> Result<Side> {
        let open = OpenVolume::open(path)?;
        Ok(Side { file: open.files.options().read(true).open("/large")?, block: vec![0; BLOCK], open })
    }

    fn close(self) -> Result<()> {
        drop(self.file);
        self.open.close()
    }

    /// Makes a batch of look-ups. Returns the mean time of one of them, in µs.
    fn look_up(&mut self, call: ServedLookUp, round: u32) -> Result<f64> {
        let numbers = (round * BATCH)..((round + 1) * BATCH);
        let names: Vec<String> =
            numbers.clone().map(|number| format!("/dir/file-{:04}", spread(number, NAMES.into()))).collect();
        let started = Instant::now();
        match call {
            ServedLookUp::Open => {
                for name in &names {
                    self.open.files.close(self.open.files.open(name.into(), OpenFlags::READ, 0)?)?;
                }
            }
            ServedLookUp::Stat => {
                names.iter().try_for_each(|name| self.open.files.stat(name.into()).map(drop))?
            }
            ServedLookUp::StatDirectory => {
                for _ in numbers {
                    self.open.files.stat("/small".into())?;
                }
            }
            ServedLookUp::Read => {
                for number in numbers {
                    let offset = spread(number, FILE_BYTES / BLOCK as u64) * BLOCK as u64;
                    self.file.read_exact_at(&mut self.block, offset)?;
                }
            }
            ServedLookUp::Get => {
                for name in &names {
                    // The number of a file is that of a key.
                    let key = [b"key-", &name.as_bytes()[name.len() - 4..]].concat();
                    self.open.store.get_into(key, &mut self.block)?;
                }
            }
            ServedLookUp::List => {
                let mut found = 0;
                for entry in self.open.files.read_dir("/dir")? {
                    entry?;
                    found += 1;
                }
                if found != NAMES {
                    return Err(format!("a listing has {found} names, not {NAMES}").into());
                }
                return Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(NAMES));
            }
        }
        let us = started.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH);
        self.block.resize(BLOCK, 0);
        Ok(us)
    }

    /// Makes a batch of changes. Returns the mean time of one of them, in µs.
    fn change(&self, call: ServedChange) -> Result<f64> {
        let names = |prefix: &str| -> Vec<String> {
            (0..BATCH).map(|number| format!("{prefix}-{number:04}")).collect()
        };
        let (new, renamed, keys) = (names("/dir/new"), names("/dir/renamed"), names("new"));
        let started = Instant::now();
        match call {
            ServedChange::Create => new.iter().try_for_each(|name| self.create(name))?,
            ServedChange::Rename => {
                for (new, renamed) in new.iter().zip(&renamed) {
                    self.open.files.rename(new, renamed)?;
                }
            }
            ServedChange::Put => {
                keys.iter().try_for_each(|key| self.open.store.put(key, [6; 100]).map(drop))?
            }
            ServedChange::Erase => keys.iter().try_for_each(|key| self.open.store.erase(key).map(drop))?,
            ServedChange::Unlink => {
                renamed.iter().try_for_each(|name| self.open.files.unlink(name.into()))?
            }
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH))
    }

    fn create(&self, name: &str) -> eyrie::Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        self.open.files.close(self.open.files.open(name.into(), flags, 0o644)?)
    }
}

/// Measures the volumes below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    let eyrie = eyrie_command()?;
    in_scratch(memory, "shared", |scratch| {
        std::fs::create_dir(scratch)?;
        let (embedded, served) = (scratch.join("embedded"), scratch.join("served"));
        fill(&embedded)?;
        fill(&served)?;
        let mut figures = beside(&eyrie, &embedded, &served)?;
        figures.extend(on_one_processor(|| create_on_one_processor(&eyrie, &served))?);
        figures.extend(readers(&eyrie, &served)?);
        Ok(figures)
    })
}

/// Compares calls on both volumes, and measures joins, pauses and a service without requests.
fn beside(eyrie: &Path, embedded: &Path, served: &Path) -> Result<Vec<Figure>> {
    let service = Service::start(eyrie, &["--synchronous"], served)?;
    let (mut ours, mut shared) = (Side::open(embedded)?, Side::open(served)?);
    if !shared.open.volume.is_served() {
        return Err("the volume has no service".into());
    }
    let mut figures = Vec::new();
    for (call, name) in LOOK_UPS {
        let (mut on_ours, mut on_shared) = (Vec::new(), Vec::new());
        // The first round brings the caches to their usual state, so it does not count.
        for round in 0..=ROUNDS {
            on_ours.push(ours.look_up(call, round)?);
            on_shared.push(shared.look_up(call, round)?);
        }
        let ratio = Measured::of_ratios(&on_shared[1..], &on_ours[1..]);
        let us = median(&on_ours[1..]);
        figures.push(Figure::at_most(format!("{name} ({us:.2} µs embedded)"), 1.05, ratio, " × embedded"));
    }
    let mut times = [(); CHANGES.len()].map(|()| Vec::new());
    for round in 0..=ROUNDS {
        for ((call, _), times) in CHANGES.into_iter().zip(&mut times) {
            let pair = (ours.change(call)?, shared.change(call)?);
            if round > 0 {
                times.push(pair);
            }
        }
    }
    for ((_, name), times) in CHANGES.into_iter().zip(times) {
        let more: Vec<f64> = times.iter().map(|(ours, shared)| shared - ours).collect();
        let us = median(&times.iter().map(|(ours, _)| *ours).collect::<Vec<_>>());
        let name = format!("{name}, service awake ({us:.2} µs embedded)");
        figures.push(Figure::at_most(name, 0.9, Measured::of(&more), " µs more"));
    }
    // After the pause the processor of this program has to wake too, and its caches are cold.
    let mut paused = [Vec::new(), Vec::new()];
    for number in 0..PAUSED_CALLS {
        let name = format!("/dir/paused-{number}");
        for (side, times) in [&ours, &shared].into_iter().zip(&mut paused) {
            std::thread::sleep(PAUSE);
            let started = Instant::now();
            side.create(&name)?;
            times.push(started.elapsed().as_secs_f64() * 1e6);
            side.open.files.unlink((&name).into())?;
        }
    }
    let [us, paused] = paused.map(|times| Measured::of(&times));
    let name = format!("create, service asleep ({:.0} µs embedded)", us.median);
    figures.push(Figure::at_most(name, 60.0, paused, " µs"));
    let mut joins = Vec::new();
    for _ in 0..JOINS {
        let started = Instant::now();
        let volume = Volume::open(served)?;
        joins.push(started.elapsed().as_secs_f64() * 1e3);
        volume.close()?;
    }
    figures.push(Figure::at_most("join a session", 1.0, Measured::of(&joins), " ms"));
    // The service has gone to sleep when the measured time begins.
    std::thread::sleep(Duration::from_millis(200));
    let before = service.processor_time()?;
    std::thread::sleep(IDLE);
    let used = (service.processor_time()? - before).as_secs_f64() / IDLE.as_secs_f64();
    figures.push(Figure::at_most("processor time of a service without requests", 0.001, used, ""));
    ours.close()?;
    shared.close()?;
    Ok(figures)
}

/// Runs `measure` while this thread, and each process that it starts, may use only one processor, the same
/// for all.
pub(super) fn on_one_processor<T>(measure: impl FnOnce() -> Result<T>) -> Result<T> {
    let all = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).ok_or("no processor")?;
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one)?;
    let measured = measure();
    sched_setaffinity(None, &all)?;
    measured
}

/// Measures a create while the service and the client share one processor.
fn create_on_one_processor(eyrie: &Path, served: &Path) -> Result<Vec<Figure>> {
    let _service = Service::start(eyrie, &["--synchronous"], served)?;
    let shared = Side::open(served)?;
    let mut times = Vec::new();
    for round in 0..=ROUNDS / 4 {
        let us = shared.change(ServedChange::Create)?;
        shared.change(ServedChange::Rename)?;
        shared.change(ServedChange::Unlink)?;
        if round > 0 {
            times.push(us);
        }
    }
    shared.close()?;
    let name = "create, client and service on one processor";
    Ok(vec![Figure::at_most(name, 12.0, Measured::of(&times), " µs")])
}

/// Compares the rates of one and of two processes that read the served volume, or private memory.
fn readers(eyrie: &Path, served: &Path) -> Result<Vec<Figure>> {
    let _service = Service::start(eyrie, &["--synchronous"], served)?;
    let mut parts = Vec::new();
    for _ in 0..READING_ROUNDS {
        let scaling = |step: &str| -> Result<f64> { Ok(rate(step, served, 2)? / rate(step, served, 1)?) };
        parts.push(scaling("read-served")? / scaling("copy-memory")?);
    }
    let name = "two processes that read 4 KiB, relative to one process";
    Ok(vec![Figure::at_least(name, 0.95, Measured::of(&parts), " of the scaling of memcpy")])
}

/// Runs `count` processes at the same time, and returns the sum of their rates, in blocks a second.
pub(super) fn rate(step: &str, volume: &Path, count: usize) -> Result<f64> {
    let program = std::env::current_exe()?;
    let mut children = Vec::new();
    for _ in 0..count {
        let mut child = Command::new(&program);
        child.args(["child", step]).arg(volume).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn()?;
        let mut printed = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut ready = String::new();
        printed.read_line(&mut ready)?;
        children.push((child, printed));
    }
    for (child, _) in &mut children {
        child.stdin.take().ok_or("no standard input")?.write_all(b"\n")?;
    }
    let mut sum = 0.0;
    for (child, printed) in &mut children {
        let mut line = String::new();
        printed.read_line(&mut line)?;
        if !child.wait()?.success() {
            return Err(format!("the step {step} failed").into());
        }
        sum += line.trim().parse::<f64>()?;
    }
    Ok(sum)
}

/// Reads random blocks for a fixed time, in a process of [`rate`]. Prints a line when the process is ready,
/// begins when it gets a line on its standard input, and prints the number of blocks a second.
pub fn read(step: ChildStep, volume: &Path) -> Result<()> {
    let mut block = vec![0; BLOCK];
    let side = (step == ChildStep::ReadServed).then(|| Side::open(volume)).transpose()?;
    let memory = if side.is_none() { vec![5; FILE_BYTES as usize] } else { Vec::new() };
    let mut read_block = |number: u32| -> Result<()> {
        let offset = spread(number, FILE_BYTES / BLOCK as u64) * BLOCK as u64;
        match &side {
            Some(side) => side.file.read_exact_at(&mut block, offset)?,
            None => block.copy_from_slice(&memory[offset as usize..][..BLOCK]),
        }
        // The compiler must not leave out a copy that nothing reads.
        std::hint::black_box(&block);
        Ok(())
    };
    (0..(FILE_BYTES / BLOCK as u64) as u32).try_for_each(&mut read_block)?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let (started, mut done) = (Instant::now(), 0_u32);
    while started.elapsed() < READING {
        (done..done + 1000).try_for_each(&mut read_block)?;
        done += 1000;
    }
    println!("{}", f64::from(done) / started.elapsed().as_secs_f64());
    side.map_or(Ok(()), Side::close)
}
