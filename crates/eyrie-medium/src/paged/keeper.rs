//! The threads of a page cache. The *keeper* drains in the background, and evicts pages to keep memory within
//! its limit. The other threads read ahead.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::drain::Drain;
use super::fetch::WORTH_ASKING;
use super::holes;
use super::pager::Pager;
use super::read_ahead;
use crate::fault::Fault;
use crate::host;

/// The memory pressure that wakes the keeper: within a window of two seconds, at least one task waited for
/// memory for 200 ms in all. Two seconds are the shortest window that the kernel permits to processes without
/// privileges.
const PRESSURE: &[u8] = b"some 200000 2000000\0";

/// Minimum time between background drains. With no time between them, the keeper would never sleep, and would
/// close the gate for Ops all the time.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum time between background drains. An `Instant` plus a much longer time would overflow.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1 << 30);

/// Subscribes to memory pressure. Returns a file for which `poll` reports `POLLPRI` when memory is short, or
/// `None` if the kernel has no such file or refuses the subscription.
fn ask_for_pressure() -> Option<File> {
    let mut file = File::options().read(true).write(true).open("/proc/pressure/memory").ok()?;
    file.write_all(PRESSURE).ok()?;
    Some(file)
}

/// The threads of one page cache. They end when this value is dropped.
pub(crate) struct Keeper {
    pager: Arc<Pager>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the threads. `pages_file` is the memory file that holds the pages, or `None` if no other
    /// process may map it.
    pub(crate) fn start(pager: Arc<Pager>, pages_file: Option<File>) -> Result<Keeper, Fault> {
        pages_file.into_iter().for_each(|file| _ = pager.pages_file.set(file));
        let mut keeper = Keeper { pager, threads: Vec::new() };
        keeper.spawn("eyrie-keeper", keep)?;
        for _ in 0..read_ahead::THREADS {
            keeper.spawn("eyrie-ahead", Pager::keep_ahead)?;
        }
        Ok(keeper)
    }

    fn spawn(&mut self, name: &str, run: fn(&Pager)) -> Result<(), Fault> {
        let pager = Arc::clone(&self.pager);
        let thread = std::thread::Builder::new().name(name.to_string());
        let thread = host::call(|| thread.spawn(move || run(&pager)));
        self.threads
            .push(thread.map_err(|source| Fault::Io { what: "starting a thread".to_string(), source })?);
        Ok(())
    }

    pub(crate) fn pager(&self) -> &Pager {
        &self.pager
    }

    pub(crate) fn pages_file(&self) -> Option<&File> {
        self.pager.pages_file.get()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if std::process::id() != self.pager.process {
            // A forked child has none of these threads, so it must not wait for their end. Dropping a handle
            // would call `pthread_detach`, which could detach a thread of the child: the C library reuses
            // the memory that describes a thread.
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        self.pager.waker.stop();
        self.pager.ahead.stop();
        for thread in self.threads.drain(..) {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

/// Runs the keeper until it is stopped. The keeper drains at intervals, and earlier if many changes wait for
/// a drain. It evicts pages under memory pressure, or when the cache comes near its limit. If other processes
/// may map the pages, it also looks for memory of [`holes`] at intervals, and gives it back to the host.
fn keep(pager: &Pager) {
    let mut pressure = None;
    let interval = pager.options.drain_interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
    let mut next = Instant::now() + interval;
    let mut next_look = pager.is_shared().then(|| Instant::now() + holes::LOOK);
    loop {
        if pager.resident() > WORTH_ASKING {
            // The keeper subscribes only once. If the subscription fails, another one would fail, too.
            pressure.get_or_insert_with(ask_for_pressure);
        }
        let first = next_look.map_or(next, |look| next.min(look));
        let short = pager.waker.wait(
            pressure.as_ref().and_then(Option::as_ref),
            first.saturating_duration_since(Instant::now()),
        );
        if pager.waker.is_stopped() {
            return;
        }
        let due = Instant::now() >= next;
        if due || pager.is_pressing() {
            // A failure is not lost: the next Op or drain reports it.
            let _ = pager.drain(Drain::Cut);
        }
        if due {
            next = Instant::now() + interval;
        }
        if next_look.is_some_and(|look| Instant::now() >= look) {
            let pause = if pager.give_back_holes() { holes::NEXT_LOOK } else { holes::LOOK };
            next_look = Some(Instant::now() + pause);
        }
        let resident = pager.resident.load(Ordering::Relaxed);
        // Under memory pressure a quarter of the pages is evicted, whatever the limit, because another
        // process needs the memory.
        let most = if short { resident / 4 * 3 } else { pager.low_mark() };
        if short || resident > pager.high_mark() {
            pager.make_room(most);
        }
    }
}

impl Pager {
    /// Returns true if so many changes await a drain that the keeper should drain before its interval has
    /// passed. Each limit here is a fraction of a limit at which Ops have to wait (see [`Pager::enter`]). The
    /// fraction is a half for dirty pages, and a quarter for the bytes of the next record. For fresh pages,
    /// the limit here is half of the limit for large Ops, and a quarter of the limit for small Ops. So the
    /// keeper usually drains before an Op has to wait.
    fn is_pressing(&self) -> bool {
        self.dirty_pages.load(Ordering::Relaxed) > self.limit() / 4
            || self.recorded_bytes() > self.journal_bytes / 8
            || self.pace.is_pressing(self.options.drain_interval)
    }

    /// Evicts pages until at most `most` pages are in memory, or until no page can be evicted now. If too
    /// many pages stay because they are dirty or have lines in the journal, a checkpoint makes them clean,
    /// and this call evicts once more.
    fn make_room(&self, most: usize) {
        if !self.shrink(most) && self.drain(Drain::Checkpoint).is_ok() {
            self.shrink(most);
        }
    }
}
