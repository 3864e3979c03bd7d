//! Measures the longest calls while a volume grows, with a histogram of all calls on Eyrie and on tmpfs.
//!
//! A call that takes longer than the limit counts against Eyrie if its thread used the processor for longer
//! than the limit. If the thread mostly slept, it may have waited for another program, for the hypervisor, or
//! for work of the kernel that Eyrie requested. Such calls count against the host only if about as many of
//! the same calls on tmpfs are slow in the same run. The time in which a hypervisor provides memory counts as
//! processor time. So each measurement first makes the hypervisor provide memory.

use std::path::Path;
use std::time::Instant;

use eyrie::{Credentials, Host, OpenFlags, Posix, PosixExt, Volume};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::figure::Figure;
use crate::run::Result;

const FILES: u32 = 1_000_000;
/// Number of files of one directory, in the load with many directories.
const IN_ONE: u32 = 1000;
const BLOCK: usize = 4096;
/// Number of blocks that are appended to one file.
const APPENDS: u32 = 1 << 18;
/// Size of each volume, in bytes. The files need two thirds of it.
const VOLUME_BYTES: u64 = 7 << 30;
/// Amount of memory that the hypervisor has to provide before a measurement, in bytes.
const WARM_BYTES: usize = 6 << 30;
/// Maximum time of a call, in ns.
const LONGEST: u64 = 5_000_000;

/// Number of calls above [`LONGEST`] in a million that may count against the host even if tmpfs has no such
/// call.
const STRAY: f64 = 5.0;

/// A kind of growth to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GrowthLoad {
    CreateInMany,
    CreateInOne,
    Append,
}

impl GrowthLoad {
    const ALL: [GrowthLoad; 3] = [GrowthLoad::CreateInMany, GrowthLoad::CreateInOne, GrowthLoad::Append];

    fn name(self) -> &'static str {
        match self {
            GrowthLoad::CreateInMany => "1,000,000 creates of 4 KiB, directories of 1,000",
            GrowthLoad::CreateInOne => "1,000,000 creates of 4 KiB, one directory",
            GrowthLoad::Append => "262,144 appends of 4 KiB to one file",
        }
    }
}

/// The measured calls of one side.
struct Calls {
    times: Histogram<u64>,
    seconds: f64,
    /// Number of calls above [`LONGEST`] in which also the processor time of the thread was above
    /// [`LONGEST`].
    own: u32,
    /// Maximum processor time of one call, in ns.
    busiest: u64,
    /// Number of times that the thread lost its processor to another thread.
    switches: u64,
}

/// Returns the processor time of this thread, in ns.
fn busy() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the number of times that this thread lost its processor to another thread.
fn switches() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    Ok(line.ok_or("no count of context switches")?.trim().parse()?)
}

impl Calls {
    fn new() -> Result<Calls> {
        Ok(Calls { times: Histogram::new(3)?, seconds: 0.0, own: 0, busiest: 0, switches: switches()? })
    }

    /// Makes a call, and records its time.
    fn time(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let (before, started) = (busy(), Instant::now());
        call()?;
        let took = started.elapsed();
        let was_busy = busy() - before;
        let nanoseconds = took.as_nanos() as u64;
        self.times.record(nanoseconds)?;
        self.seconds += took.as_secs_f64();
        self.own += u32::from(nanoseconds > LONGEST && was_busy > LONGEST);
        self.busiest = self.busiest.max(was_busy);
        Ok(())
    }

    /// Returns the number of calls that took longer than `nanoseconds`.
    fn above(&self, nanoseconds: u64) -> u64 {
        self.times.len() - self.times.count_between(0, nanoseconds)
    }

    /// Returns the number of calls above [`LONGEST`] in a million.
    fn long_in_a_million(&self) -> f64 {
        self.above(LONGEST) as f64 * 1e6 / self.times.len() as f64
    }

    /// Returns the number of calls above [`LONGEST`] that count against Eyrie. If `theirs` has about as
    /// many of them, only the calls with a busy thread count. Otherwise all of them count.
    fn not_the_hosts(&self, theirs: &Calls) -> u64 {
        let is_like_theirs = self.long_in_a_million() <= 2.0 * theirs.long_in_a_million() + STRAY;
        if is_like_theirs { u64::from(self.own) } else { self.above(LONGEST) }
    }

    fn print(&self, side: &str, load: GrowthLoad) {
        let at = |quantile| self.times.value_at_quantile(quantile) as f64 / 1e3;
        println!(
            "{}: {side}: p50 {:.2} p99 {:.2} p99.9 {:.1} max {:.0} µs; \
             above 1 ms {}, above 5 ms {} ({} of them busy; {:.1} in a million); \
             busiest {:.0} µs; {} involuntary switches; {:.2} s",
            load.name(),
            at(0.5),
            at(0.99),
            at(0.999),
            self.times.max() as f64 / 1e3,
            self.above(1_000_000),
            self.above(LONGEST),
            self.own,
            self.long_in_a_million(),
            self.busiest as f64 / 1e3,
            self.switches,
            self.seconds,
        );
    }
}

/// Runs a load on one side.
fn calls(fs: &impl Posix, load: GrowthLoad) -> Result<Calls> {
    let block = [7; BLOCK];
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let mut calls = Calls::new()?;
    if load == GrowthLoad::Append {
        let handle = fs.open("/growing", flags, 0o644)?;
        for _ in 0..APPENDS {
            calls.time(|| fs.append(&handle, &block).map(drop).map_err(Into::into))?;
        }
        fs.close(handle)?;
    } else {
        let in_one = if load == GrowthLoad::CreateInOne { FILES } else { IN_ONE };
        for number in 0..FILES {
            let dir = format!("/{:06}", number / in_one);
            if number % in_one == 0 {
                fs.create_dir(&dir)?;
            }
            let path = format!("{dir}/file-{number:07}");
            calls.time(|| {
                let handle = fs.open(&path, flags, 0o644)?;
                fs.write_at(&handle, &block, 0)?;
                Ok(fs.close(handle)?)
            })?;
        }
    }
    calls.switches = switches()? - calls.switches;
    Ok(calls)
}

/// Makes the hypervisor provide memory, which stays free in this machine.
fn warm_up() {
    drop(std::hint::black_box(vec![1_u8; WARM_BYTES]));
}

fn on_volume(path: &Path, load: GrowthLoad) -> Result<Calls> {
    let volume = Volume::create(path, VOLUME_BYTES)?;
    warm_up();
    let calls = calls(&volume.files(Credentials::of_process()), load)?;
    volume.close()?;
    Ok(calls)
}

fn on_host(path: &Path, load: GrowthLoad) -> Result<Calls> {
    std::fs::create_dir(path)?;
    let host = Host::new(path)?;
    warm_up();
    calls(&host, load)
}

/// Measures both sides below `memory`, a directory of the host.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    let path = memory.join(format!("eyrie-stalls-{}", std::process::id()));
    let mut figures = Vec::new();
    for load in GrowthLoad::ALL {
        let measure = |side: fn(&Path, GrowthLoad) -> Result<Calls>| {
            let done = side(&path, load);
            // If the directory cannot be removed, the next side fails and says why.
            let _ = std::fs::remove_dir_all(&path);
            done
        };
        let (ours, theirs) = (measure(on_volume)?, measure(on_host)?);
        ours.print("Eyrie", load);
        theirs.print("tmpfs", load);
        let name = |what: &str| format!("{}: {what}", load.name());
        let not_the_hosts = ours.not_the_hosts(&theirs) as f64;
        figures.push(Figure::at_most(name("calls above 5 ms, without the host's"), 0.0, not_the_hosts, ""));
        let ratio = theirs.seconds / ours.seconds;
        figures.push(Figure::at_least(name("first use of memory"), 1.0, ratio, " × tmpfs"));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls_with(long: u64, own: u32) -> Calls {
        let mut calls = Calls::new().expect("a thread's own status");
        calls.times.record_n(1000, 1_000_000 - long).expect("within");
        calls.times.record_n(2 * LONGEST, long).expect("within");
        calls.own = own;
        calls
    }

    #[test]
    fn slow_calls_are_the_hosts_only_if_tmpfs_has_as_many() {
        let theirs = calls_with(10, 0);
        assert_eq!(calls_with(25, 0).not_the_hosts(&theirs), 0);
        assert_eq!(calls_with(25, 2).not_the_hosts(&theirs), 2, "busy ones never are");
        assert_eq!(calls_with(26, 0).not_the_hosts(&theirs), 26);
        assert_eq!(calls_with(6, 0).not_the_hosts(&calls_with(0, 0)), 6);
    }
}
