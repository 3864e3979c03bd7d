//! The threads of a page cache, of which the first drains in the background and keeps memory within its limit.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::drain::Drain;
use super::{Pager, ahead};
use crate::fault::Fault;
use crate::plan::host_call;

/// What the kernel is asked to tell: that some task waited 200 ms of two seconds for memory. Windows of
/// less than two seconds are for privileged processes.
const PRESSURE: &[u8] = b"some 200000 2000000\0";

/// Pages in memory from which on the kernel is asked: fewer help nobody, and to be asked no more costs it milliseconds.
pub(super) const WORTH_ASKING: usize = 4096;

/// Time between background drains, at most.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1 << 30);

/// Wakes the keeper.
pub(super) struct Bell {
    event: OwnedFd,
    stop: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        let event = host_call(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))?;
        Ok(Bell { event, stop: AtomicBool::new(false) })
    }

    /// Asks for attention.
    pub(super) fn ring(&self) {
        // It fails only when the count is full: then the keeper is awake anyway.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// A file that becomes readable (with priority) when memory is short, where the kernel gives one.
fn ask_for_pressure() -> Option<File> {
    let mut file = File::options().read(true).write(true).open("/proc/pressure/memory").ok()?;
    file.write_all(PRESSURE).ok()?;
    Some(file)
}

/// The threads, which end when this is dropped.
pub(crate) struct Keeper {
    pager: Arc<Pager>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(pager: Arc<Pager>) -> Result<Keeper, Fault> {
        let mut keeper = Keeper { pager, threads: Vec::new() };
        keeper.spawn("eyrie-keeper", keep)?;
        for _ in 0..ahead::THREADS {
            keeper.spawn("eyrie-ahead", Pager::keep_ahead)?;
        }
        Ok(keeper)
    }

    fn spawn(&mut self, name: &str, run: fn(&Pager)) -> Result<(), Fault> {
        let pager = Arc::clone(&self.pager);
        let thread = std::thread::Builder::new().name(name.to_string());
        let thread = host_call(|| thread.spawn(move || run(&pager)));
        self.threads
            .push(thread.map_err(|source| Fault::Io { what: "starting a thread".to_string(), source })?);
        Ok(())
    }

    pub(crate) fn pager(&self) -> &Pager {
        &self.pager
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // In a forked child the threads are not there.
        if std::process::id() == self.pager.process {
            self.pager.bell.stop.store(true, Ordering::Release);
            self.pager.bell.ring();
            self.pager.ahead.stop();
            for thread in self.threads.drain(..) {
                // One that panicked has nothing more to tell.
                let _ = thread.join();
            }
        }
    }
}

fn keep(pager: &Pager) {
    let mut pressure = None;
    // Time has an end.
    let interval = pager.options.drain_interval.min(LONGEST_INTERVAL);
    let mut next = Instant::now() + interval;
    loop {
        if pager.resident() > WORTH_ASKING {
            pressure.get_or_insert_with(ask_for_pressure);
        }
        let short = wait(
            pager,
            pressure.as_ref().and_then(Option::as_ref),
            next.saturating_duration_since(Instant::now()),
        );
        if pager.bell.stop.load(Ordering::Acquire) {
            return;
        }
        let due = Instant::now() >= next;
        if due || pager.is_pressing() {
            // A failure is told to whoever changes or drains next.
            let _ = pager.drain(Drain::Cut);
        }
        if due {
            next = Instant::now() + interval;
        }
        let resident = pager.resident.load(Ordering::Relaxed);
        let most = if short { resident / 4 * 3 } else { pager.low_mark() };
        if short || resident > pager.high_mark() {
            pager.make_room(most);
        }
    }
}

/// Sleeps until the bell rings, memory is short, or time is up; whether memory is short.
fn wait(pager: &Pager, pressure: Option<&File>, time: Duration) -> bool {
    let mut watched = vec![PollFd::new(&pager.bell.event, PollFlags::IN)];
    watched.extend(pressure.map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::PRI)));
    let time = time.min(Duration::from_secs(3600)).try_into().ok();
    // An interrupted wait is one that ended early.
    let _ = poll(&mut watched, time.as_ref());
    let short = watched.get(1).is_some_and(|file| file.revents().contains(PollFlags::PRI));
    let mut count = [0; 8];
    let _ = rustix::io::read(&pager.bell.event, &mut count);
    short
}

impl Pager {
    /// Whether so much was changed that a drain should not wait for its time.
    fn is_pressing(&self) -> bool {
        self.dirty_pages.load(Ordering::Relaxed) > self.limit() / 4
            || self.recorded_bytes() > self.journal_bytes / 8
    }

    /// Drops pages until at most `most` are in memory, after bringing home what pins too many.
    fn make_room(&self, most: usize) {
        if !self.shrink(most) && self.drain(Drain::Home).is_ok() {
            self.shrink(most);
        }
    }
}
