//! Figures of a volume that a service shares. The figures of single calls come from `eyrie bench shared`,
//! which compares them with the calls on an embedded volume. This module measures the figures that the
//! benchmark lacks: the start of a client, a service that sleeps or has no requests, creates on one
//! processor, and several processes that read. In the measurements of this module the service defers no
//! change.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Files, OpenFlags, Posix, PosixExt, Volume};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::bench::Report;
use super::figure::{Figure, Measured};
use super::{ChildStep, in_scratch};
use crate::run::{Result, eyrie_command, start_service};

const VOLUME_BYTES: u64 = 1 << 30;
const BLOCK: usize = 4096;
/// Size of the file that is read, in bytes. It does not fit into the caches of the processor.
const FILE_BYTES: u64 = 256 << 20;
/// Number of creates that are timed together.
const BATCH: u32 = 1000;
const ROUNDS: u32 = 10;
/// Number of calls, each after a pause in which the service falls asleep.
const PAUSED_CALLS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);
const JOINS: u32 = 100;
/// Length of one measurement of reading processes.
const READING: Duration = Duration::from_secs(2);
const READING_ROUNDS: usize = 3;
/// Length of the time in which the service has no request.
const IDLE: Duration = Duration::from_secs(2);

/// Calls of `eyrie bench shared` that change nothing. Their time on a served volume should be close to that
/// on an embedded one.
const LOOK_UPS: [&str; 7] = [
    "open + close",
    "stat",
    "stat of a small directory",
    "read 4 KiB",
    "get 100 B",
    "listing, each name",
    "fsync without changes",
];
/// Changes of `eyrie bench shared`. On the side `synchronous`, each is one request to a service that is
/// awake.
const CHANGES: [&str; 5] = ["create + close", "rename", "unlink", "put a new key, 100 B", "erase"];

/// A service in another process. A drop ends it.
struct Service(Child);

impl Service {
    /// Starts a service of the volume that defers no change, and waits until programs can connect.
    fn start(eyrie: &Path, volume: &Path) -> Result<Service> {
        let mut serve = Command::new(eyrie);
        serve.args(["serve", "--synchronous"]);
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

/// Returns a number from 0 to `count - 1`. Numbers that follow one another are far apart.
fn spread(number: u32, count: u64) -> u64 {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) % count
}

/// Makes the file that is read in a new volume, and closes the volume.
fn fill(path: &Path) -> Result<()> {
    let volume = Volume::create(path, VOLUME_BYTES)?;
    let files = volume.files(Credentials::of_process());
    files.create_dir("/dir")?;
    let file = files.options().write(true).create_new(true).open("/large")?;
    for offset in (0..FILE_BYTES).step_by(1 << 20) {
        file.write_all_at(&vec![5; 1 << 20], offset)?;
    }
    drop((files, file));
    Ok(volume.close()?)
}

fn open(path: &Path) -> Result<Files> {
    Ok(Volume::open(path)?.files(Credentials::of_process()))
}

fn create(files: &Files, name: &str) -> eyrie::Result<()> {
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    files.close(files.open(name.into(), flags, 0o644)?)
}

/// Measures the volumes below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    let mut figures = calls(memory)?;
    let eyrie = eyrie_command()?;
    in_scratch(memory, "shared", |scratch| {
        std::fs::create_dir(scratch)?;
        let (embedded, served) = (scratch.join("embedded"), scratch.join("served"));
        fill(&embedded)?;
        fill(&served)?;
        figures.extend(asleep(&eyrie, &embedded, &served)?);
        figures.extend(on_one_processor(|| create_on_one_processor(&eyrie, &served))?);
        figures.extend(readers(&eyrie, &served)?);
        Ok(figures)
    })
}

/// Takes figures from `eyrie bench shared`.
fn calls(memory: &Path) -> Result<Vec<Figure>> {
    let reads = Report::of_shared(memory, "reads", "served")?;
    let mut figures =
        LOOK_UPS.iter().map(|row| reads.at_most(row, "served", 1.05)).collect::<Result<Vec<_>>>()?;
    let changes = Report::of_shared(memory, "changes", "synchronous")?;
    for change in CHANGES {
        let row = format!("{change}, sustained");
        let us = changes.us(&row, "eyrie")?;
        let more = changes.us(&row, "synchronous")? - us;
        let name = format!("{change}, service awake ({us:.2} µs embedded)");
        figures.push(Figure::at_most(name, 0.9, more, " µs more"));
    }
    Ok(figures)
}

/// Measures creates after pauses, joins, and a service without requests.
fn asleep(eyrie: &Path, embedded: &Path, served: &Path) -> Result<Vec<Figure>> {
    let service = Service::start(eyrie, served)?;
    let (ours, shared) = (open(embedded)?, open(served)?);
    let mut figures = Vec::new();
    // After the pause the processor of this program has to wake too, and its caches are cold.
    let mut paused = [Vec::new(), Vec::new()];
    for number in 0..PAUSED_CALLS {
        let name = format!("/dir/paused-{number}");
        for (files, times) in [&ours, &shared].into_iter().zip(&mut paused) {
            std::thread::sleep(PAUSE);
            let started = Instant::now();
            create(files, &name)?;
            times.push(started.elapsed().as_secs_f64() * 1e6);
            files.unlink((&name).into())?;
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
    Ok(figures)
}

/// Runs `measure` while this thread, and each process that it starts, may use only one processor, the same
/// for all.
fn on_one_processor<T>(measure: impl FnOnce() -> Result<T>) -> Result<T> {
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
    let _service = Service::start(eyrie, served)?;
    let files = open(served)?;
    let names: Vec<String> = (0..BATCH).map(|number| format!("/dir/new-{number:04}")).collect();
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let started = Instant::now();
        names.iter().try_for_each(|name| create(&files, name))?;
        let us = started.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH);
        names.iter().try_for_each(|name| files.unlink(name.into()))?;
        if round > 0 {
            times.push(us);
        }
    }
    let name = "create, client and service on one processor";
    Ok(vec![Figure::at_most(name, 12.0, Measured::of(&times), " µs")])
}

/// Compares the rates of one and of two processes that read the served volume, or private memory.
fn readers(eyrie: &Path, served: &Path) -> Result<Vec<Figure>> {
    let _service = Service::start(eyrie, served)?;
    let mut parts = Vec::new();
    for _ in 0..READING_ROUNDS {
        let scaling = |step: &str| -> Result<f64> { Ok(rate(step, served, 2)? / rate(step, served, 1)?) };
        parts.push(scaling("read-served")? / scaling("copy-memory")?);
    }
    let name = "two processes that read 4 KiB, relative to one process";
    Ok(vec![Figure::at_least(name, 0.95, Measured::of(&parts), " of the scaling of memcpy")])
}

/// Runs `count` processes at the same time, and returns the sum of their rates, in blocks a second.
fn rate(step: &str, volume: &Path, count: usize) -> Result<f64> {
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
    let files = (step == ChildStep::ReadServed).then(|| open(volume)).transpose()?;
    let file = files.map(|files| files.options().read(true).open("/large")).transpose()?;
    let memory = if file.is_none() { vec![5; FILE_BYTES as usize] } else { Vec::new() };
    let mut read_block = |number: u32| -> Result<()> {
        let offset = spread(number, FILE_BYTES / BLOCK as u64) * BLOCK as u64;
        match &file {
            Some(file) => file.read_exact_at(&mut block, offset)?,
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
    Ok(())
}
