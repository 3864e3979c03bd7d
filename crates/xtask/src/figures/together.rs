//! Measures processes that change a served volume at the same time, and the time in which a process takes the
//! grant of an object from another process.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Files, PosixExt, Volume};
use rustix::process::{Pid, Signal, kill_process};

use super::figure::{Figure, Measured};
use super::shared::{Service, on_one_processor, rate};
use super::{ChildStep, in_scratch};
use crate::run::{Result, eyrie_command};

const VOLUME_BYTES: u64 = 1 << 30;
/// Length of one measurement.
const CHANGING: Duration = Duration::from_secs(1);
const ROUNDS: usize = 7;
/// The directory that several processes change.
const TOGETHER: &str = "together";
const BYTES: [u8; 100] = [5; 100];
/// Number of times that a process takes a grant.
const TAKEN: usize = 101;
/// Pause between the stop of the process that has a grant and the look-up that takes the grant from it.
const PAUSE: Duration = Duration::from_millis(5);

/// The file that the holder of a grant makes last.
const HELD: &str = "/held/file";

/// Measures volumes below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    let eyrie = eyrie_command()?;
    in_scratch(memory, "together", |scratch| {
        let (volume, host) = (scratch.join("volume"), scratch.join("host"));
        fs::create_dir_all(host.join(TOGETHER))?;
        let made = Volume::create(&volume, VOLUME_BYTES)?;
        for dir in [TOGETHER, "held"] {
            made.files(Credentials::of_process()).create_dir(format!("/{dir}"))?;
        }
        made.close()?;
        let mut figures = rates(&eyrie, &volume, &host)?;
        figures.extend(grants(&eyrie, &volume)?);
        Ok(figures)
    })
}

/// Compares the rates of one and of two processes.
fn rates(eyrie: &Path, volume: &Path, host: &Path) -> Result<Vec<Figure>> {
    let (mut apart, mut together) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let one = on_one_processor(|| {
            let _service = Service::start(eyrie, &[], volume)?;
            rate("change-own", volume, 1)
        })?;
        let _service = Service::start(eyrie, &[], volume)?;
        apart.push(rate("change-own", volume, 2)? / one);
        together.push(rate("change-together", volume, 2)? / rate("change-on-host", host, 2)?);
    }
    let name =
        "two processes in separate directories, relative to one that has one processor with its service";
    Ok(vec![
        Figure::at_least(name, 1.8, Measured::of(&apart), " ×"),
        Figure::at_least("two processes in one directory", 1.0, Measured::of(&together), " × tmpfs"),
    ])
}

/// Changes names for a fixed time, in a process of [`rate`].
pub fn change(step: ChildStep, place: &Path) -> Result<()> {
    let process = std::process::id();
    let files = match step {
        ChildStep::ChangeOnHost => None,
        _ => Some(Volume::open(place)?.files(Credentials::of_process())),
    };
    let dir = match step {
        ChildStep::ChangeOwn => format!("/own-{process}"),
        ChildStep::ChangeTogether => format!("/{TOGETHER}"),
        _ => place.join(TOGETHER).to_string_lossy().into_owned(),
    };
    if step == ChildStep::ChangeOwn {
        files.as_ref().ok_or("no volume")?.create_dir(&dir)?;
    }
    let mut number = 0_u64;
    let mut change = || -> Result<()> {
        number += 1;
        let (made, moved) = (format!("{dir}/{process}-{number}"), format!("{dir}/moved-{process}-{number}"));
        match &files {
            Some(files) => {
                files.write(&made, BYTES)?;
                files.rename(&made, &moved)?;
                files.remove_file(&moved)?;
            }
            None => {
                fs::write(&made, BYTES)?;
                fs::rename(&made, &moved)?;
                fs::remove_file(&moved)?;
            }
        }
        Ok(())
    };
    (0..1000).try_for_each(|_| change())?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let (started, mut done) = (Instant::now(), 0_u32);
    while started.elapsed() < CHANGING {
        (0..100).try_for_each(|_| change())?;
        done += 100;
    }
    println!("{}", f64::from(done) / started.elapsed().as_secs_f64());
    Ok(())
}

/// A process that makes files and then waits for a line.
struct Holder {
    process: Child,
    printed: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn start(volume: &Path) -> Result<Holder> {
        let mut process = Command::new(std::env::current_exe()?);
        process.args(["child", "hold"]).arg(volume).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn()?;
        let printed = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        Ok(Holder { process, printed })
    }

    /// Waits until the process has logged changes.
    fn wait(&mut self) -> Result<()> {
        self.printed.read_line(&mut String::new())?;
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        Ok(self.process.stdin.as_mut().ok_or("no standard input")?.write_all(b"\n")?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes files, prints a line, and waits for a line on the standard input, again and again. The last file of
/// each round has the path [`HELD`].
pub fn hold(volume: &Path) -> Result<()> {
    let files: Files = Volume::open(volume)?.files(Credentials::of_process());
    loop {
        for number in 0..200 {
            files.write(format!("/held/{number}"), BYTES)?;
            files.remove_file(format!("/held/{number}"))?;
        }
        files.write(HELD, BYTES)?;
        println!("held");
        if std::io::stdin().read_line(&mut String::new())? == 0 {
            return Ok(());
        }
    }
}

/// Measures the look-up of a file that another process has just made: a running process, a stopped one, and
/// one that was killed.
fn grants(eyrie: &Path, volume: &Path) -> Result<Vec<Figure>> {
    let _service = Service::start(eyrie, &[], volume)?;
    let files = Volume::open(volume)?.files(Credentials::of_process());
    let look = |path: &PathBuf| -> Result<f64> {
        let started = Instant::now();
        files.metadata(path)?;
        Ok(started.elapsed().as_secs_f64() * 1e6)
    };
    let path = PathBuf::from(HELD);
    let mut holder = Holder::start(volume)?;
    let mut times = [(); 3].map(|()| Vec::new());
    for turn in 0..TAKEN {
        holder.wait()?;
        times[0].push(look(&path)?);
        files.remove_file(&path)?;
        if turn % 10 == 0 {
            holder.go_on()?;
            holder.wait()?;
            holder.signal(Signal::STOP)?;
            std::thread::sleep(PAUSE);
            times[1].push(look(&path)?);
            files.remove_file(&path)?;
            holder.signal(Signal::CONT)?;
            holder.go_on()?;
            holder.wait()?;
            holder.signal(Signal::KILL)?;
            times[2].push(look(&path)?);
            files.remove_file(&path)?;
            holder = Holder::start(volume)?;
        } else {
            holder.go_on()?;
        }
    }
    let [running, stopped, killed] = &times;
    Ok(vec![
        Figure::at_most(
            "look-up of a file that a running process has logged",
            100.0,
            Measured::of(running),
            " µs",
        ),
        Figure::at_most("the same, of a stopped process", 10_000.0, Measured::of(stopped), " µs"),
        Figure::at_most("the same, of a killed process", 10_000.0, Measured::of(killed), " µs"),
    ])
}
