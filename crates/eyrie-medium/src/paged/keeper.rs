//! The threads of a page cache. The first, the keeper, drains in the background and keeps memory within its
//! limit; the others read ahead.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::drain::Drain;
use super::fetch::WORTH_ASKING;
use super::pager::Pager;
use super::read_ahead;
use crate::fault::Fault;
use crate::host;

/// The memory pressure that wakes the keeper: some task waited 200 ms of two seconds for memory. The kernel
/// permits windows of less than two seconds to privileged processes only.
const PRESSURE: &[u8] = b"some 200000 2000000\0";

/// Time between background drains, at most: `Instant` overflows beyond its range.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1 << 30);

/// A file that becomes readable (with priority) when memory is short; `None` where the kernel has no such
/// file.
fn ask_for_pressure() -> Option<File> {
    let mut file = File::options().read(true).write(true).open("/proc/pressure/memory").ok()?;
    file.write_all(PRESSURE).ok()?;
    Some(file)
}

/// The threads, which end when this value is dropped.
pub(crate) struct Keeper {
    pager: Arc<Pager>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(pager: Arc<Pager>) -> Result<Keeper, Fault> {
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
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // A forked child has none of these threads.
        if std::process::id() == self.pager.process {
            self.pager.waker.stop();
            self.pager.ahead.stop();
            for thread in self.threads.drain(..) {
                // A panic was already reported by the panic hook.
                let _ = thread.join();
            }
        }
    }
}

fn keep(pager: &Pager) {
    let mut pressure = None;
    // An instant further away would overflow.
    let interval = pager.options.drain_interval.min(LONGEST_INTERVAL);
    let mut next = Instant::now() + interval;
    loop {
        if pager.resident() > WORTH_ASKING {
            // Asked for once, on the first need: a failure would be the same next time.
            pressure.get_or_insert_with(ask_for_pressure);
        }
        let short = pager
            .waker
            .wait(pressure.as_ref().and_then(Option::as_ref), next.saturating_duration_since(Instant::now()));
        if pager.waker.is_stopped() {
            return;
        }
        let due = Instant::now() >= next;
        if due || pager.is_pressing() {
            // The next Op or drain reports a failure.
            let _ = pager.drain(Drain::Cut);
        }
        if due {
            next = Instant::now() + interval;
        }
        let resident = pager.resident.load(Ordering::Relaxed);
        // Under pressure a quarter of the pages goes, whatever the limit: another process needs the memory
        // more.
        let most = if short { resident / 4 * 3 } else { pager.low_mark() };
        if short || resident > pager.high_mark() {
            pager.make_room(most);
        }
    }
}

impl Pager {
    /// Returns true if there are so many changes that a drain should not wait for its time. The marks are a
    /// half of those at which Ops have to wait (a quarter for the journal), so the keeper usually drains in
    /// time.
    fn is_pressing(&self) -> bool {
        self.dirty_pages.load(Ordering::Relaxed) > self.limit() / 4
            || self.recorded_bytes() > self.journal_bytes / 8
    }

    /// Evicts pages until at most `most` are in memory. If too many are dirty or logged, a checkpoint first
    /// makes them clean.
    fn make_room(&self, most: usize) {
        if !self.shrink(most) && self.drain(Drain::Checkpoint).is_ok() {
            self.shrink(most);
        }
    }
}
