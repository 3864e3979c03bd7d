//! Measures the longest calls while a volume grows, with a histogram of all calls on Eyrie and on tmpfs.
//!
//! A call above the limit may be slow because of Eyrie or because of its host. Two rules tell the causes
//! apart:
//!
//! - A call is *busy* if its thread used the processor for longer than the limit. Eyrie's own work depends
//!   only on the earlier calls of the run, so this work recurs at the same place of each run. Busy calls that
//!   recur in all of [`RUNS`] runs count against Eyrie. Other busy calls come from the host: the time in
//!   which a hypervisor provides memory or runs another machine also counts as processor time.
//! - If, in most runs, clearly more calls are above the limit than in the preceding run on tmpfs, the number
//!   of calls above the limit in the worst run counts against Eyrie. A thread that sleeps may wait for
//!   another program or the hypervisor, as on tmpfs, or for work of the kernel that Eyrie requested.
//!
//! Each measurement first makes the hypervisor provide memory, so that the hypervisor causes fewer slow
//! calls.

use std::path::Path;
use std::time::Instant;

use eyrie::{Credentials, Host, OpenFlags, Posix, PosixExt, Volume};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::figure::{Figure, Measured};
use crate::run::Result;

const FILES: u32 = 1_000_000;
/// Number of files of one directory, in the load with many directories.
const IN_ONE: u32 = 1000;
const BLOCK: usize = 4096;
/// Number of blocks that are appended to one file.
const APPENDS: u32 = 1 << 18;
/// Size of each volume, in bytes. The files need at most two thirds of the volume.
const VOLUME_BYTES: u64 = 7 << 30;
/// Amount of memory that the hypervisor has to provide before a measurement, in bytes.
const WARM_BYTES: usize = 6 << 30;
/// Maximum time of a call, in ns.
const LONGEST: u64 = 5_000_000;

/// Number of runs on each side.
const RUNS: usize = 3;

/// Two calls of different runs are at the same place if their numbers differ by less than this number. A
/// segment or a group is allocated at nearly the same call of each run: the background thread may shift the
/// call by a few steps of memory.
const PLACE: u64 = 2000;

/// Even if no call on tmpfs is above [`LONGEST`], this many of a million calls on Eyrie may be above it. They
/// count against the host.
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

/// The measured calls of one run.
struct Calls {
    times: Histogram<u64>,
    seconds: f64,
    /// Numbers of the calls above [`LONGEST`] in which the processor time of the thread was also above
    /// [`LONGEST`], in increasing order.
    busy: Vec<u64>,
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
        Ok(Calls {
            times: Histogram::new(3)?,
            seconds: 0.0,
            busy: Vec::new(),
            busiest: 0,
            switches: switches()?,
        })
    }

    /// Makes a call, and records its time.
    fn time(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let (before, started) = (busy(), Instant::now());
        call()?;
        let took = started.elapsed();
        let was_busy = busy() - before;
        let nanoseconds = took.as_nanos() as u64;
        if nanoseconds > LONGEST && was_busy > LONGEST {
            self.busy.push(self.times.len());
        }
        self.times.record(nanoseconds)?;
        self.seconds += took.as_secs_f64();
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

    /// True if the rate of calls above [`LONGEST`] is at most twice the rate of `other` plus [`STRAY`].
    fn is_like(&self, other: &Calls) -> bool {
        self.long_in_a_million() <= 2.0 * other.long_in_a_million() + STRAY
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
            self.busy.len(),
            self.long_in_a_million(),
            self.busiest as f64 / 1e3,
            self.switches,
            self.seconds,
        );
    }
}

/// Returns the number of calls above [`LONGEST`] that count against Eyrie, by the two rules of this module.
fn not_the_hosts(runs: &[Calls], theirs: &[Calls]) -> u64 {
    let [first, others @ ..] = runs else { return 0 };
    let has_near = |run: &Calls, call: u64| run.busy.iter().any(|near| near.abs_diff(call) < PLACE);
    let recurs = |call: &&u64| others.iter().all(|run| has_near(run, **call));
    let recurring = first.busy.iter().filter(recurs).count() as u64;
    let pairs = runs.iter().zip(theirs);
    let slow = pairs.filter(|(run, theirs)| !run.is_like(theirs)).map(|(run, _)| run.above(LONGEST));
    // The host may cause one slow run. Eyrie counts as the cause only if most runs are slow.
    let slow: Vec<u64> = slow.collect();
    if 2 * slow.len() > runs.len() { slow.iter().copied().fold(recurring, u64::max) } else { recurring }
}

/// Runs a load on one side.
fn calls(fs: &impl Posix, load: GrowthLoad) -> Result<Calls> {
    let block = [7; BLOCK];
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let mut calls = Calls::new()?;
    if load == GrowthLoad::Append {
        let handle = fs.open("/growing".into(), flags, 0o644)?;
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
                let handle = fs.open((&path).into(), flags, 0o644)?;
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
            // If the directory cannot be removed, the next run fails and says why.
            let _ = std::fs::remove_dir_all(&path);
            done
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            theirs.push(measure(on_host)?);
            ours.push(measure(on_volume)?);
        }
        ours.iter().for_each(|run| run.print("Eyrie", load));
        theirs.iter().for_each(|run| run.print("tmpfs", load));
        let name = |what: &str| format!("{}: {what}", load.name());
        let against_us = not_the_hosts(&ours, &theirs) as f64;
        figures.push(Figure::at_most(name("calls above 5 ms, without the host's"), 0.0, against_us, ""));
        let [ours, theirs] =
            [ours, theirs].map(|runs| runs.iter().map(|run| run.seconds).collect::<Vec<_>>());
        let ratio = Measured::of_ratios(&theirs, &ours);
        figures.push(Figure::at_least(name("first use of memory"), 1.0, ratio, " × tmpfs"));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls_with(long: u64, busy: &[u64]) -> Calls {
        let mut calls = Calls::new().expect("a thread's own status");
        calls.times.record_n(1000, 1_000_000 - long).expect("within");
        calls.times.record_n(2 * LONGEST, long).expect("within");
        calls.busy = busy.to_vec();
        calls
    }

    fn against_eyrie(runs: [(u64, &[u64]); RUNS], tmpfs: u64) -> u64 {
        let runs = runs.map(|(long, busy)| calls_with(long, busy));
        not_the_hosts(&runs, &[(); RUNS].map(|()| calls_with(tmpfs, &[])))
    }

    #[test]
    fn busy_calls_count_against_eyrie_if_they_recur_in_every_run() {
        let busy: &[u64] = &[100_000, 500_000];
        let moved: &[u64] = &[101_000, 499_000];
        assert_eq!(against_eyrie([(2, busy), (2, moved), (2, busy)], 0), 2);
        assert_eq!(against_eyrie([(2, busy), (1, &moved[1..]), (2, busy)], 0), 1);
        assert_eq!(against_eyrie([(2, busy), (2, &[102_000, 600_000]), (2, busy)], 0), 0);
    }

    #[test]
    fn slow_calls_count_against_eyrie_if_most_runs_have_more_than_tmpfs() {
        assert_eq!(against_eyrie([(25, &[]); RUNS], 10), 0);
        assert_eq!(against_eyrie([(26, &[]), (25, &[]), (30, &[])], 10), 30);
        assert_eq!(against_eyrie([(26, &[]), (25, &[]), (25, &[])], 10), 0, "most of the runs decide");
        assert_eq!(against_eyrie([(6, &[]); RUNS], 0), 6);
    }
}
