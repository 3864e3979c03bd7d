//! Measures creates by 1, 2 and 4 threads in one directory, on Eyrie and on tmpfs in alternation. For
//! comparison, each thread also creates files in a volume of its own. Such threads share no lock of a volume,
//! so their rates show the scaling that the machine permits.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use eyrie::{Credentials, Host, OpenFlags, Posix, PosixExt, Volume};

use super::figure::{Figure, median};
use super::in_scratch;
use crate::run::Result;

/// Numbers of threads. Every count of threads is compared with the first.
const THREADS: [usize; 3] = [1, 2, 4];
/// Number of files that all threads together create. Each count of threads divides it.
const FILES: usize = 100_000;
const ROUNDS: usize = 5;
const VOLUME_BYTES: u64 = 512 << 20;
/// Minimum rate of several threads, divided by the rate of one thread.
const SCALING: f64 = 1.7;
/// Minimum rate of several threads in one directory, divided by the rate of as many threads that each have a
/// volume of their own. With two threads the ratio is about 0.5 if both wait for one lock.
const SHARE: f64 = 0.85;

/// Creates [`FILES`] files in new directories, and removes them afterwards. Thread `n` uses the file system
/// `systems[n % systems.len()]`. Returns the rate, in millions a second.
fn rate<F: Posix + Sync>(systems: &[&F], threads: usize) -> Result<f64> {
    systems.iter().try_for_each(|fs| fs.create_dir("/dir"))?;
    let each = FILES / threads;
    let start = Barrier::new(threads + 1);
    let create = |thread: usize| -> eyrie::Result<()> {
        let fs = systems[thread % systems.len()];
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        // The names of a thread share one buffer. Threads that allocate each name wait for each other in the
        // allocator, which would count as a wait in the file system.
        let mut path = String::with_capacity(32);
        start.wait();
        for number in 0..each {
            path.clear();
            let _ = write!(path, "/dir/{thread}-{number:07}");
            fs.close(fs.open((&path).into(), flags, 0o644)?)?;
        }
        Ok(())
    };
    let seconds = std::thread::scope(|scope| -> Result<f64> {
        let create = &create;
        let creators: Vec<_> = (0..threads).map(|thread| scope.spawn(move || create(thread))).collect();
        start.wait();
        let started = Instant::now();
        for creator in creators {
            creator.join().map_err(|_| "a thread that creates files panicked")??;
        }
        Ok(started.elapsed().as_secs_f64())
    })?;
    let mut found = 0;
    for fs in systems {
        for entry in fs.read_dir("/dir")? {
            entry?;
            found += 1;
        }
        fs.remove_dir_all("/dir")?;
    }
    if found != FILES {
        return Err(format!("{threads} threads created {found} files, not {FILES}").into());
    }
    Ok(FILES as f64 / seconds / 1e6)
}

/// Measures both sides below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    in_scratch(memory, "threads", compare)
}

fn compare(scratch: &Path) -> Result<Vec<Figure>> {
    let host = scratch.join("host");
    std::fs::create_dir_all(&host)?;
    let host = Host::new(&host)?;
    let make = |number| Volume::create(scratch.join(format!("volume-{number}")), VOLUME_BYTES);
    let volumes = (0..THREADS[THREADS.len() - 1]).map(make).collect::<eyrie::Result<Vec<_>>>()?;
    let files: Vec<_> = volumes.iter().map(|volume| volume.files(Credentials::of_process())).collect();
    let systems: Vec<_> = files.iter().collect();
    let mut ours: [Vec<f64>; THREADS.len()] = Default::default();
    let mut apart: [Vec<f64>; THREADS.len()] = Default::default();
    let mut theirs: [Vec<f64>; THREADS.len()] = Default::default();
    // The first round makes the host provide memory, so it does not count.
    for round in 0..=ROUNDS {
        for (at, threads) in THREADS.into_iter().enumerate() {
            let rates = [
                rate(&systems[..1], threads)?,
                rate(&systems[..threads], threads)?,
                rate(&[&host], threads)?,
            ];
            if round > 0 {
                for (all, rate) in [&mut ours, &mut apart, &mut theirs].into_iter().zip(rates) {
                    all[at].push(rate);
                }
            }
        }
    }
    drop(files);
    volumes.into_iter().try_for_each(Volume::close)?;
    // The rates of one round are compared, because the speed of the machine changes from round to round.
    let ratio = |rates: &[f64], base: &[f64]| {
        median(rates.iter().zip(base).map(|(rate, base)| rate / base).collect())
    };
    println!("creates: millions a second, and relative to one thread");
    println!("{:>9}{:>20}{:>20}{:>20}", "threads", "one directory", "a volume each", "one of tmpfs");
    let mut figures = Vec::new();
    for (at, threads) in THREADS.into_iter().enumerate() {
        let column = |rates: &[Vec<f64>]| {
            format!("{:.2}  {:.2}", median(rates[at].clone()), ratio(&rates[at], &rates[0]))
        };
        println!("{threads:>9}{:>20}{:>20}{:>20}", column(&ours), column(&apart), column(&theirs));
        if at > 0 {
            let name = format!("creates in one directory, {threads} threads");
            figures.push(Figure::at_least(&name, SCALING, ratio(&ours[at], &ours[0]), " × one thread"));
            figures.push(Figure::at_least(&name, SHARE, ratio(&ours[at], &apart[at]), " × in a volume each"));
        }
    }
    Ok(figures)
}
