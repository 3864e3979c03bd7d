//! Measures changes by 1, 2 and 4 threads in one directory, on Eyrie and on tmpfs in alternation. For
//! comparison, each thread also works in a volume of its own. Such threads share no lock of a volume, so
//! their rates show the scaling that the machine permits.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use eyrie::{Credentials, Host, KeyValueStore, OpenFlags, Posix, PosixExt, RenameMode, Volume};

use super::figure::{Figure, Measured, median};
use super::in_scratch;
use crate::run::Result;

/// Numbers of threads. Every count of threads is compared with the first.
const THREADS: [usize; 3] = [1, 2, 4];
/// Number of changes of each kind that all threads together make. The number is divisible by each count of
/// threads.
const FILES: usize = 100_000;
const ROUNDS: usize = 5;
const VOLUME_BYTES: u64 = 512 << 20;
const VALUE: [u8; 100] = [7; 100];
/// Minimum rate of several threads, divided by the rate of one thread.
const SCALING: f64 = 1.7;
/// Minimum rate of several threads that create in one directory, divided by the rate of as many threads that
/// each have a volume of their own. With two threads the ratio is about 0.5 if both wait for one lock.
const SHARE: f64 = 0.85;

type BoxedStore = Box<dyn KeyValueStore>;
type OpenStore = Box<dyn Fn(&str) -> eyrie::Result<BoxedStore> + Sync>;

/// A file system, and a function that opens the store in one of its directories.
struct System<F> {
    fs: F,
    open: OpenStore,
}

/// A change of one name. The changes are made in this order. A rename and an unlink act on the names that the
/// previous change left. A put makes a key in another directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameChange {
    Create,
    Rename,
    Unlink,
    Put,
}

impl NameChange {
    const ALL: [NameChange; 4] =
        [NameChange::Create, NameChange::Rename, NameChange::Unlink, NameChange::Put];

    fn name(self) -> &'static str {
        match self {
            NameChange::Create => "creates",
            NameChange::Rename => "renames",
            NameChange::Unlink => "unlinks",
            NameChange::Put => "puts of new keys",
        }
    }

    /// Makes the change of the name with this number of this thread. The names of a thread share two buffers.
    /// Threads that allocate each name wait for each other in the allocator, which would count as a wait in
    /// the file system.
    fn make(
        self,
        (fs, store): (&impl Posix, &BoxedStore),
        (thread, number): (usize, usize),
        [old, new]: &mut [String; 2],
    ) -> eyrie::Result<()> {
        old.clear();
        new.clear();
        let _ = write!(old, "/dir/{thread}-{number:07}");
        let _ = write!(new, "/dir/renamed-{thread}-{number:07}");
        match self {
            NameChange::Create => {
                let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
                fs.close(fs.open((&*old).into(), flags, 0o644)?)
            }
            NameChange::Rename => fs.rename_with((&*old).into(), (&*new).into(), RenameMode::Replace),
            NameChange::Unlink => fs.unlink((&*new).into()),
            NameChange::Put => store.put(&old.as_bytes()["/dir/".len()..], &VALUE).map(drop),
        }
    }
}

/// Makes [`FILES`] changes of each kind in new directories, and removes the directories afterwards. Thread
/// `n` uses the file system `systems[n % systems.len()]`. Returns the rates, in millions a second.
fn rates<F: Posix + Clone + Sync>(
    systems: &[&System<F>],
    threads: usize,
) -> Result<[f64; NameChange::ALL.len()]> {
    systems.iter().try_for_each(|system| {
        system.fs.create_dir("/dir")?;
        system.fs.create_dir("/store")
    })?;
    let stores = systems.iter().map(|system| (system.open)("/store")).collect::<eyrie::Result<Vec<_>>>()?;
    let mut rates = [0.0; NameChange::ALL.len()];
    for (change, rate) in NameChange::ALL.into_iter().zip(&mut rates) {
        let seconds = time(systems, &stores, threads, change)?;
        *rate = FILES as f64 / seconds / 1e6;
        let (counted, expected) = match change {
            NameChange::Create | NameChange::Rename => ("/dir", FILES),
            NameChange::Unlink => ("/dir", 0),
            NameChange::Put => ("/store", FILES),
        };
        let mut found = 0;
        for system in systems {
            for entry in system.fs.read_dir(counted)? {
                entry?;
                found += 1;
            }
        }
        if found != expected {
            let name = change.name();
            return Err(format!("after {name} by {threads} threads {found} names exist").into());
        }
    }
    drop(stores);
    systems.iter().try_for_each(|system| {
        system.fs.remove_dir_all("/dir")?;
        system.fs.remove_dir_all("/store")
    })?;
    Ok(rates)
}

/// Returns the time in which all threads make their changes, in seconds.
fn time<F: Posix + Clone + Sync>(
    systems: &[&System<F>],
    stores: &[BoxedStore],
    threads: usize,
    change: NameChange,
) -> Result<f64> {
    let start = Barrier::new(threads + 1);
    let work = |thread: usize| -> eyrie::Result<()> {
        let at = thread % systems.len();
        let place = (&systems[at].fs, &stores[at]);
        let mut names = [String::with_capacity(64), String::with_capacity(64)];
        start.wait();
        (0..FILES / threads).try_for_each(|number| change.make(place, (thread, number), &mut names))
    };
    std::thread::scope(|scope| -> Result<f64> {
        let work = &work;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        start.wait();
        let started = Instant::now();
        for worker in workers {
            worker.join().map_err(|_| "a thread that changes names panicked")??;
        }
        Ok(started.elapsed().as_secs_f64())
    })
}

/// Measures both sides below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    in_scratch(memory, "threads", compare)
}

/// The rates of all rounds, by change and by count of threads.
type Rates = [[Vec<f64>; THREADS.len()]; NameChange::ALL.len()];

fn compare(scratch: &Path) -> Result<Vec<Figure>> {
    let host = scratch.join("host");
    std::fs::create_dir_all(&host)?;
    let host = Host::new(&host)?;
    let on_host = host.clone();
    let host = System { fs: host, open: Box::new(move |path| Ok(Box::new(on_host.store(path)?))) };
    let make = |number| Volume::create(scratch.join(format!("volume-{number}")), VOLUME_BYTES).map(Arc::new);
    let volumes = (0..THREADS[THREADS.len() - 1]).map(make).collect::<eyrie::Result<Vec<_>>>()?;
    let system = |volume: &Arc<Volume>| {
        let fs = volume.files(Credentials::of_process());
        let volume = Arc::clone(volume);
        let store = move |path: &str| volume.store(path, Credentials::of_process());
        System { fs, open: Box::new(move |path| Ok(Box::new(store(path)?))) }
    };
    let all: Vec<System<_>> = volumes.iter().map(system).collect();
    let systems: Vec<_> = all.iter().collect();
    let [mut ours, mut apart, mut theirs] = <[Rates; 3]>::default();
    // The first round makes the host provide memory, so it does not count.
    for round in 0..=ROUNDS {
        for (at, threads) in THREADS.into_iter().enumerate() {
            let found = [
                rates(&systems[..1], threads)?,
                rates(&systems[..threads], threads)?,
                rates(&[&host], threads)?,
            ];
            for (all, rates) in [&mut ours, &mut apart, &mut theirs].into_iter().zip(found) {
                for (change, rate) in all.iter_mut().zip(rates) {
                    change[at].extend((round > 0).then_some(rate));
                }
            }
        }
    }
    Ok(figures(&ours, &apart, &theirs))
}

/// Prints all rates, and returns the figures.
fn figures(ours: &Rates, apart: &Rates, theirs: &Rates) -> Vec<Figure> {
    let mut figures = Vec::new();
    println!("millions of changes a second, and relative to one thread");
    println!("{:28}{:>18}{:>18}{:>18}", "", "one directory", "a volume each", "one of tmpfs");
    for (at, change) in NameChange::ALL.into_iter().enumerate() {
        let (ours, apart, theirs) = (&ours[at], &apart[at], &theirs[at]);
        for (count, threads) in THREADS.into_iter().enumerate() {
            let column = |rates: &[Vec<f64>]| {
                let relative = Measured::of_ratios(&rates[count], &rates[0]).median;
                format!("{:.2}  {relative:.2}", median(&rates[count]))
            };
            let name = format!("{}, threads: {threads}", change.name());
            println!("{name:28}{:>18}{:>18}{:>18}", column(ours), column(apart), column(theirs));
            if count == 0 {
                continue;
            }
            let name = format!("{} in one directory, {threads} threads", change.name());
            let scaling = Measured::of_ratios(&ours[count], &ours[0]);
            figures.push(Figure::at_least(&name, SCALING, scaling, " × one thread"));
            if change == NameChange::Create {
                let share = Measured::of_ratios(&ours[count], &apart[count]);
                figures.push(Figure::at_least(&name, SHARE, share, " × in a volume each"));
            }
        }
    }
    figures
}
