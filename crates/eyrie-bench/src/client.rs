//! Programs that use a side at the same time as the run: processes of the command `eyrie`.
//!
//! A run starts such a process with the arguments that [`run`] gets. The run and the process talk by lines:
//! the process prints a line when it is ready, and goes on when it gets a line.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use eyrie::{Credentials, Host, OrderCounts, Posix, PosixExt, Volume};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};
use crate::machine;
use crate::method::ClientWork;
use crate::service::ServiceKind;
use crate::values::{NumberedName, Pattern};

/// The arguments before those that [`run`] gets.
const COMMAND: [&str; 3] = ["bench", "shared", "--client"];
/// Number of the arguments that [`run`] gets.
pub const ARGUMENTS: usize = 5;
/// Number of changes of a client that do not count. During these changes the client gets its grants.
const WARMING: u64 = 1000;
/// Changes between two readings of the clock.
const TIMED_CHANGES: u64 = 100;
/// Calls of one change: a new file, its rename, its removal.
const CALLS: u64 = 3;
/// Bytes of a changed file.
const BYTES: usize = 100;
/// Files that a holder of a grant makes and removes in a round.
const HELD_FILES: u64 = 200;
/// The name of the file that a holder makes last in a round.
pub(crate) const HELD_NAME: &str = "held";

/// The way in which a run starts clients of a side.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    command: PathBuf,
    /// A served volume. `None` for a directory of the host.
    volume: Option<PathBuf>,
    processors: Vec<usize>,
    /// The service of the volume.
    pub service: Option<ServiceKind>,
}

/// The work of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientJob {
    /// Changes names for a time, and prints the number of calls and their time.
    Change(Duration),
    /// Makes files, and waits before it makes them again.
    Hold,
}

impl Clients {
    /// Returns the clients of a directory of the host, if the path of the command is known.
    pub fn of_host(command: Option<&Path>) -> Option<Clients> {
        let processors = machine::processors();
        Some(Clients { command: command?.to_owned(), volume: None, processors, service: None })
    }

    /// Returns the clients of a served volume, if the path of the command is known.
    pub fn of_service(command: Option<&Path>, volume: &Path, kind: ServiceKind) -> Option<Clients> {
        Some(Clients {
            command: command?.to_owned(),
            volume: Some(volume.to_owned()),
            processors: kind.processors(),
            service: Some(kind),
        })
    }

    /// Starts a client that works in the existing directory `directory`: a path in the volume, or an absolute
    /// path of the host.
    pub fn start(&self, job: ClientJob, directory: &str) -> Result<ClientProcess> {
        let (name, time) = match job {
            ClientJob::Change(time) => ("change", time),
            ClientJob::Hold => ("hold", Duration::ZERO),
        };
        let processors: Vec<String> = self.processors.iter().map(usize::to_string).collect();
        let mut command = Command::new(&self.command);
        command.args(COMMAND).arg(name).arg(self.volume.as_deref().unwrap_or(Path::new("")));
        command.args([directory, &processors.join(","), &time.as_millis().to_string()]);
        // An interrupt of the terminal does not reach the client. The client ends when its standard input
        // ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().map_err(|error| Error::host("cannot start a client", error))?;
        let printed = process.stdout.take().map(BufReader::new);
        let printed = printed.ok_or_else(|| Error::wrong("a client has no standard output"))?;
        Ok(ClientProcess { process, printed })
    }
}

/// A client. A drop kills it.
pub(crate) struct ClientProcess {
    process: Child,
    printed: BufReader<ChildStdout>,
}

impl ClientProcess {
    /// Waits for a line of the client.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.printed.read_line(&mut line)? {
            0 => Err(Error::wrong("a client has ended too early")),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    pub fn go_on(&mut self) -> Result<()> {
        let input = self.process.stdin.as_mut().ok_or_else(|| Error::wrong("a client has no input"))?;
        Ok(input.write_all(b"\n")?)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let sent = kill_process(Pid::from_child(&self.process), signal);
        sent.map_err(|error| Error::host("cannot send a signal to a client", error))
    }

    /// Waits until the client has changed names. Returns the work of its calls.
    pub fn changes(&mut self) -> Result<ClientWork> {
        let line = self.line()?;
        let numbers =
            line.split_once(' ').and_then(|(calls, ns)| Some((calls.parse().ok()?, ns.parse().ok()?)));
        let (operations, ns) = numbers.ok_or_else(|| Error::wrong(format!("a client printed: {line}")))?;
        if !self.process.wait()?.success() {
            return Err(Error::wrong("a client has failed"));
        }
        Ok(ClientWork { operations, spent: Duration::from_nanos(ns), ..ClientWork::default() })
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // A client that has ended cannot be killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Does the work of a client. The run that has started this process chooses the arguments.
///
/// # Errors
/// Fails if the arguments are wrong, if a call fails or has a wrong result, and if the run has ended.
pub fn run(arguments: &[OsString]) -> Result<()> {
    let [job, volume, directory, processors, ms] = arguments else {
        return Err(Error::Request(format!("a client has {ARGUMENTS} arguments")));
    };
    let text = |text: &OsString| text.to_string_lossy().into_owned();
    let number = |number: &str| number.parse().map_err(|_| Error::Request(format!("no number: {number}")));
    let processors = text(processors).split(',').map(number).collect::<Result<Vec<usize>>>()?;
    let time = Duration::from_millis(number(&text(ms))? as u64);
    machine::pin_to(&processors);
    if volume == OsStr::new("") {
        return work(&Host::new("/")?, &text(job), &text(directory), time);
    }
    let files = Volume::open(volume)?.files(Credentials::of_process());
    work(&files, &text(job), &text(directory), time)
}

fn work<P: Posix + Clone>(fs: &P, job: &str, directory: &str, time: Duration) -> Result<()> {
    match job {
        "change" => {
            let mut changer = NameChanger::new(fs, directory, std::process::id().into());
            changer.warm_up()?;
            println!("ready");
            wait()?;
            let done = changer.change(time)?;
            changer.prove()?;
            println!("{} {}", done.operations, done.spent.as_nanos());
            Ok(())
        }
        "hold" => hold(fs, directory),
        other => Err(Error::Request(format!("a client has no job {other}"))),
    }
}

/// Waits for a line of the run.
fn wait() -> Result<()> {
    match std::io::stdin().read_line(&mut String::new())? {
        0 => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// Makes files, prints a line, and waits for a line, again and again. The last file of a round stays, until
/// the run removes it.
fn hold<P: Posix + Clone>(fs: &P, directory: &str) -> Result<()> {
    let mut names = NumberedName::new(&format!("{directory}/file-"));
    loop {
        for number in 0..HELD_FILES {
            fs.write(names.path(number), [5; BYTES])?;
            fs.remove_file(names.path(number))?;
        }
        fs.write(format!("{directory}/{HELD_NAME}"), [5; BYTES])?;
        println!("held");
        wait()?;
    }
}

/// A client that makes, renames and removes files.
pub(crate) struct NameChanger<'a, P> {
    fs: &'a P,
    made: NumberedName,
    moved: NumberedName,
    number: u64,
    data: [u8; BYTES],
}

impl<'a, P: Posix + Clone> NameChanger<'a, P> {
    /// Makes a client. Clients of one directory have different `prefix`es.
    pub fn new(fs: &'a P, directory: &str, prefix: u64) -> NameChanger<'a, P> {
        let mut data = [0; BYTES];
        Pattern::new(prefix, 0).fill(&mut data, 0);
        NameChanger {
            fs,
            made: NumberedName::new(&format!("{directory}/made-{prefix}-")),
            moved: NumberedName::new(&format!("{directory}/moved-{prefix}-")),
            number: 0,
            data,
        }
    }

    /// Makes changes that do not count.
    pub fn warm_up(&mut self) -> Result<()> {
        self.changes(WARMING)
    }

    /// Changes names for a time. Returns the work of the calls.
    pub fn change(&mut self, time: Duration) -> Result<ClientWork> {
        let before = OrderCounts::of_this_thread();
        let (started, mut done) = (Instant::now(), 0);
        loop {
            self.changes(TIMED_CHANGES)?;
            done += TIMED_CHANGES;
            let spent = started.elapsed();
            if spent >= time {
                let orders = OrderCounts::of_this_thread().since(before);
                return Ok(ClientWork { operations: done * CALLS, spent, orders });
            }
        }
    }

    fn changes(&mut self, count: u64) -> Result<()> {
        for number in self.number..self.number + count {
            let (made, moved) = (self.made.path(number), self.moved.path(number));
            self.fs.write(made, self.data)?;
            self.fs.rename(made, moved)?;
            self.fs.remove_file(moved)?;
        }
        self.number += count;
        Ok(())
    }

    /// Makes one more file, and compares its bytes after its rename.
    pub fn prove(&mut self) -> Result<()> {
        let (made, moved) = (self.made.path(self.number), self.moved.path(self.number));
        self.number += 1;
        self.fs.write(made, self.data)?;
        self.fs.rename(made, moved)?;
        let found = self.fs.read(moved)?;
        self.fs.remove_file(moved)?;
        if found == self.data { Ok(()) } else { Err(Error::wrong("the file of a client has wrong bytes")) }
    }
}
