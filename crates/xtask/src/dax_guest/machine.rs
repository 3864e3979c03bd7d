//! One boot of the guest in QEMU, and its console. Each boot has a time limit.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::Result;

/// Size of the emulated persistent memory, in bytes.
const MEMORY_BYTES: u64 = 512 << 20;
/// The text that the guest prints after a failure.
const FAILURE: &str = "guest: failed";
/// Number of lines at the end of the console that an error message shows.
const SHOWN_LINES: usize = 60;

/// The files that all boots share.
pub struct Machine {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    /// The file that holds the emulated persistent memory.
    pub memory: PathBuf,
}

impl Machine {
    /// Replaces the emulated persistent memory by zeros.
    pub fn clear(&self) -> Result<()> {
        let _ = fs::remove_file(&self.memory);
        Ok(File::create(&self.memory)?.set_len(MEMORY_BYTES)?)
    }

    /// Starts the guest with the text `words` at the end of the kernel's command line. Calls of
    /// [`Boot::expect`] fail when the time `patience` has passed since the start.
    pub fn boot(&self, words: &str, patience: Duration) -> Result<Boot> {
        let memory = self.memory.display();
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-machine", "q35,nvdimm=on", "-accel", "tcg", "-cpu", "max", "-smp", "1"]);
        qemu.args(["-m", "1G,slots=2,maxmem=4G"]);
        let backend = format!("memory-backend-file,id=nv0,share=on,mem-path={memory},size={MEMORY_BYTES}");
        qemu.args(["-object", &backend, "-device", "nvdimm,id=nvd0,memdev=nv0"]);
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initramfs);
        qemu.args(["-append", &format!("console=ttyS0 panic=-1 quiet {words}")]);
        qemu.args(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-display", "none"]);
        let mut child = qemu
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{qemu:?}: {error}"))?;
        let console = child.stdout.take().ok_or("QEMU has no console")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut console = BufReader::new(console);
            let mut line = Vec::new();
            // A line without a line end was cut off when QEMU was killed, so this line is dropped.
            while console.read_until(b'\n', &mut line).is_ok_and(|_| line.ends_with(b"\n")) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Ok(Boot { child, lines, deadline: Instant::now() + patience, log: Vec::new() })
    }
}

/// A running guest. Dropping this value kills QEMU.
pub struct Boot {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
    log: Vec<String>,
}

impl Boot {
    /// Waits for the next line of the console. Returns `None` at the end of the console, or at the time
    /// `until`.
    fn line(&mut self, until: Instant) -> Option<&str> {
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.log.push(line);
                self.log.last().map(String::as_str)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits for a line that contains `word`. Returns the rest of the line after `word`.
    pub fn expect(&mut self, word: &str) -> Result<String> {
        let deadline = self.deadline;
        while let Some(line) = self.line(deadline) {
            if line.contains(FAILURE) {
                break;
            }
            if let Some((_, rest)) = line.split_once(word) {
                return Ok(rest.to_owned());
            }
        }
        let late = if Instant::now() < deadline { "" } else { " in time" };
        Err(self.failure(&format!("did not say `{word}`{late}")))
    }

    /// Lets the guest run for `run_time`, and then kills QEMU. The kill stands for a power failure. Returns
    /// every line of the guest's console.
    pub fn kill_after(mut self, run_time: Duration) -> Result<Vec<String>> {
        let end = Instant::now() + run_time;
        while self.line(end).is_some() {}
        if Instant::now() < end {
            return Err(self.failure("ended by itself"));
        }
        self.child.kill()?;
        self.child.wait()?;
        // The pipe may still have lines. The loop reads them up to the end of the pipe, which the killed
        // process has closed.
        let deadline = self.deadline;
        while self.line(deadline).is_some() {}
        if self.log.iter().any(|line| line.contains(FAILURE)) {
            return Err(self.failure("failed"));
        }
        Ok(std::mem::take(&mut self.log))
    }

    /// Makes an error with the text `what` about the guest, and the last lines of its console.
    fn failure(&self, what: &str) -> Box<dyn Error> {
        let log = &self.log[self.log.len().saturating_sub(SHOWN_LINES)..];
        format!("the guest {what}. Its console:\n  {}", log.join("\n  ")).into()
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        // If the process has ended before, these calls may fail, and there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
