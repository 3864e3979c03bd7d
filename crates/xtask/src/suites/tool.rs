//! Runs the programs of the suites with a time limit, and collects their output.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::run::Result;

/// Time between two looks at a program that is still running.
const PAUSE: Duration = Duration::from_millis(5);
/// Time that a program gets to end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(3);
/// Maximum number of lines of a program's output that its error shows.
const SHOWN_LINES: usize = 30;

/// A program that has ended, with its standard output and standard error.
pub struct Ended {
    pub name: String,
    pub status: ExitStatus,
    pub text: String,
}

impl Ended {
    /// Returns the output of a program that has succeeded. The error of a failed program has the last lines
    /// of its output.
    pub fn success(self) -> Result<String> {
        if self.status.success() { Ok(self.text) } else { Err(self.failure("failed").into()) }
    }

    /// Returns a message with a reason and the last lines of the output.
    pub fn failure(&self, reason: &str) -> String {
        format!("{} ({}): {reason}\n{}", self.name, self.status, last_lines(&self.text, SHOWN_LINES))
    }
}

/// Returns a command with messages in English and without input.
pub fn command(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Returns a file in memory with this text. The position of the file is its start, so a program can read the
/// file as its input.
pub fn text_file(text: &str) -> Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("text", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// Runs a program to its end. Ends the program and returns an error if it takes longer than `limit_s`
/// seconds. A program that fails within this time is no error here.
pub fn run(command: &mut Command, limit_s: u64) -> Result<Ended> {
    let name = command.get_program().to_string_lossy().into_owned();
    // The output goes to a file and not to a pipe. A process that the program leaves behind could keep a pipe
    // open, and the reader of the pipe would wait for this process.
    let mut output = text_file("")?;
    command.stdout(output.try_clone()?).stderr(output.try_clone()?);
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let status = wait(&mut child, Duration::from_secs(limit_s))?;
    let mut bytes = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match status {
        Some(status) => Ok(Ended { name, status, text }),
        None => Err(format!("{name}: not done in {limit_s} s\n{}", last_lines(&text, SHOWN_LINES)).into()),
    }
}

/// Runs a program that must succeed within `limit_s` seconds. Returns its output.
pub fn succeed(command: &mut Command, limit_s: u64) -> Result<String> {
    run(command, limit_s)?.success()
}

/// Waits until a process ends. Ends the process and returns `None` if it takes longer than `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    if let Some(status) = wait_until(child, limit)? {
        return Ok(Some(status));
    }
    kill_process(Pid::from_child(child), Signal::TERM)?;
    if wait_until(child, GRACE)?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(None)
}

fn wait_until(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        let status = child.try_wait()?;
        if status.is_some() || start.elapsed() >= limit {
            return Ok(status);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the last `count` lines of a text.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Returns an error unless two texts are equal. The error has the first line in which they differ.
pub fn assert_same(what: &str, found: &str, expected: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let (mut found, mut expected) = (found.lines(), expected.lines());
    loop {
        match (found.next(), expected.next()) {
            (Some(found), Some(expected)) if found == expected => {}
            (found, expected) => {
                let [found, expected] = [found, expected].map(|line| line.unwrap_or("nothing"));
                return Err(format!("{what}: found {found}, expected {expected}").into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = command("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn failed_program_shows_its_last_lines() {
        assert_eq!(succeed(&mut shell("echo out; echo err >&2"), 10).unwrap(), "out\nerr\n");
        let error = succeed(&mut shell("seq 40; exit 3"), 10).unwrap_err().to_string();
        assert!(error.starts_with("sh (exit status: 3): failed\n11\n") && error.ends_with("\n40"), "{error}");
        let error = succeed(&mut command("no-such-program"), 10).unwrap_err().to_string();
        assert!(error.starts_with("no-such-program: "), "{error}");
        assert_eq!(succeed(command("cat").stdin(text_file("input").unwrap()), 10).unwrap(), "input");
    }

    #[test]
    fn program_without_end_is_ended() {
        let start = Instant::now();
        let error = run(&mut shell("echo begun; exec sleep 100"), 1).map(drop).unwrap_err().to_string();
        assert!(error.contains("not done in 1 s\nbegun"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn first_different_line_is_named() {
        assert!(assert_same("sums", "1\n2\n", "1\n2\n").is_ok());
        let error = assert_same("sums", "1\n2\n", "1\n3\n").unwrap_err().to_string();
        assert_eq!(error, "sums: found 2, expected 3");
        let error = assert_same("sums", "1\n", "1\n3\n").unwrap_err().to_string();
        assert_eq!(error, "sums: found nothing, expected 3");
    }
}
