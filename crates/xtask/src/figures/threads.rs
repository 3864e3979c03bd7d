//! Measures creates by 1, 2 and 4 threads in one directory, on Eyrie and on tmpfs in alternation.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use eyrie::{Credentials, Host, OpenFlags, Posix, PosixExt, Volume};

use super::figure::{Figure, median};
use super::in_scratch;
use crate::run::Result;

/// Numbers of threads. Every count of threads is compared with the first.
const THREADS: [u32; 3] = [1, 2, 4];
/// Number of files that all threads together create. Each count of threads divides it.
const FILES: u32 = 100_000;
const ROUNDS: usize = 5;
const VOLUME_BYTES: u64 = 1 << 30;
/// Minimum rate of several threads, divided by the rate of one thread.
const SCALING: f64 = 1.7;

/// Creates [`FILES`] files by `threads` threads in a new directory, and removes them afterwards. Returns the
/// rate, in millions a second.
fn rate(fs: &(impl Posix + Sync), threads: u32) -> Result<f64> {
    fs.create_dir("/dir")?;
    let each = FILES / threads;
    let start = Barrier::new(threads as usize + 1);
    let create = |thread: u32| -> eyrie::Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        // The names share one buffer. Threads that allocate each name wait for each other in the allocator,
        // which would count as a wait in the file system.
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
    for entry in fs.read_dir("/dir")? {
        entry?;
        found += 1;
    }
    if found != FILES {
        return Err(format!("{threads} threads created {found} files, not {FILES}").into());
    }
    fs.remove_dir_all("/dir")?;
    Ok(f64::from(FILES) / seconds / 1e6)
}

/// Measures both sides below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    in_scratch(memory, "threads", |path| compare(&path.join("volume"), &path.join("host")))
}

fn compare(volume: &Path, host: &Path) -> Result<Vec<Figure>> {
    std::fs::create_dir_all(host)?;
    let volume = Volume::create(volume, VOLUME_BYTES)?;
    let host = Host::new(host)?;
    let files = volume.files(Credentials::of_process());
    let mut ours: [Vec<f64>; THREADS.len()] = Default::default();
    let mut theirs: [Vec<f64>; THREADS.len()] = Default::default();
    // The first round makes the host provide memory, so it does not count.
    for round in 0..=ROUNDS {
        for (at, threads) in THREADS.into_iter().enumerate() {
            let (on_ours, on_theirs) = (rate(&files, threads)?, rate(&host, threads)?);
            if round > 0 {
                ours[at].push(on_ours);
                theirs[at].push(on_theirs);
            }
        }
    }
    drop(files);
    volume.close()?;
    // The rates of one round are compared, because the speed of the machine changes from round to round.
    let scaling = |rates: &[Vec<f64>], at: usize| {
        median(rates[at].iter().zip(&rates[0]).map(|(several, one)| several / one).collect())
    };
    println!("creates in one directory, Eyrie / tmpfs: millions a second, and relative to one thread");
    let mut figures = Vec::new();
    for (at, threads) in THREADS.into_iter().enumerate() {
        let rates = format!("{:.2} / {:.2}", median(ours[at].clone()), median(theirs[at].clone()));
        let (on_ours, on_theirs) = (scaling(&ours, at), scaling(&theirs, at));
        println!("{threads} threads{rates:>18}{:>18}", format!("{on_ours:.2} / {on_theirs:.2}"));
        if at > 0 {
            let name = format!("creates in one directory, {threads} threads");
            figures.push(Figure::at_least(name, SCALING, on_ours, " × one thread"));
        }
    }
    Ok(figures)
}
