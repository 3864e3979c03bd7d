//! Measures calls in directories of 10 to 1,000,000 entries, on Eyrie and on tmpfs in alternation.

use std::path::Path;
use std::time::Instant;

use eyrie::{Credentials, Host, OpenFlags, Posix, PosixExt, Store, Volume};

use super::figure::{Figure, Measured, median};
use super::in_scratch;
use crate::run::Result;

/// Numbers of entries of the measured directories.
const COUNTS: [u32; 4] = [10, 1000, 100_000, 1_000_000];
/// Number of calls that are timed together.
const BATCH: u32 = 200;
const ROUNDS: u32 = 41;
/// Number of rounds of listings. There are few rounds, because a listing of a large directory takes long.
const LISTINGS: u32 = 5;
const VOLUME_BYTES: u64 = 2 << 30;
/// Maximum time of `stat` of a directory and of `len` of a store, in µs.
const STAT_US: f64 = 1.0;
/// Minimum speed of a listing, relative to tmpfs.
const LISTING: f64 = 2.0;

/// A call on one entry, or on the directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryCall {
    Open,
    Stat,
    Create,
    Unlink,
    StatDirectory,
    /// `len` of the directory as a store. The host has no such call.
    Len,
    List,
}

impl EntryCall {
    const ALL: [EntryCall; 7] = [
        EntryCall::Open,
        EntryCall::Stat,
        EntryCall::Create,
        EntryCall::Unlink,
        EntryCall::StatDirectory,
        EntryCall::Len,
        EntryCall::List,
    ];

    fn name(self) -> &'static str {
        match self {
            EntryCall::Open => "open + close",
            EntryCall::Stat => "stat",
            EntryCall::Create => "create",
            EntryCall::Unlink => "unlink",
            EntryCall::StatDirectory => "stat of the directory",
            EntryCall::Len => "len of the store",
            EntryCall::List => "listing, an entry",
        }
    }

    fn rounds(self) -> u32 {
        if self == EntryCall::List { LISTINGS } else { ROUNDS }
    }
}

/// The times of one call on both sides, in µs.
#[derive(Default)]
struct Times {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

/// Returns the number of the entry for call `number` of `round`. No count of [`COUNTS`] has a common factor
/// with 7,919. So every entry comes once before any entry comes a second time.
fn spread(round: u32, number: u32, count: u32) -> u32 {
    let nth = u64::from(round) * u64::from(BATCH) + u64::from(number);
    (nth * 7919 % u64::from(count)) as u32
}

fn dir(count: u32) -> String {
    format!("/of-{count}")
}

fn fill(fs: &impl Posix, count: u32) -> Result<()> {
    fs.create_dir(dir(count))?;
    for number in 0..count {
        create(fs, &format!("{}/file-{number:07}", dir(count)))?;
    }
    Ok(())
}

fn create(fs: &impl Posix, path: &str) -> Result<()> {
    let handle = fs.open(path.into(), OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE, 0o644)?;
    Ok(fs.close(handle)?)
}

/// Makes one batch of calls, or one listing, in a directory of `count` entries. Returns the mean time of a
/// call, or of an entry of the listing, in µs. `store` is the directory as a store. The result is `None` if
/// this side lacks the call.
fn time(
    fs: &impl Posix,
    store: Option<&Store>,
    call: EntryCall,
    count: u32,
    round: u32,
) -> Result<Option<f64>> {
    let dir = dir(count);
    let old: Vec<String> =
        (0..BATCH).map(|number| format!("{dir}/file-{:07}", spread(round, number, count))).collect();
    let new: Vec<String> =
        (0..BATCH).map(|number| format!("{dir}/new-{:07}", round * BATCH + number)).collect();
    let started = Instant::now();
    let mut done = BATCH;
    match call {
        EntryCall::Open => {
            for path in &old {
                fs.close(fs.open(path.into(), OpenFlags::READ, 0)?)?;
            }
        }
        EntryCall::Stat => old.iter().try_for_each(|path| fs.stat(path.into()).map(drop))?,
        EntryCall::Create => new.iter().try_for_each(|path| create(fs, path))?,
        EntryCall::Unlink => new.iter().try_for_each(|path| fs.unlink(path.into()))?,
        EntryCall::StatDirectory => (0..BATCH).try_for_each(|_| fs.stat((&dir).into()).map(drop))?,
        EntryCall::Len => {
            let Some(store) = store else { return Ok(None) };
            for _ in 0..BATCH {
                let len = store.len()?;
                if len != u64::from(count) {
                    return Err(format!("a store of {count} keys has the length {len}").into());
                }
            }
        }
        EntryCall::List => {
            done = 0;
            for entry in fs.read_dir(&dir)? {
                entry?;
                done += 1;
            }
            if done != count {
                return Err(format!("{done} of {count} entries were listed").into());
            }
        }
    }
    Ok(Some(started.elapsed().as_secs_f64() * 1e6 / f64::from(done)))
}

/// Measures both sides below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    in_scratch(memory, "entries", |path| compare(&path.join("volume"), &path.join("host")))
}

/// Fills the directories, measures every call on both sides, and prints the times.
fn compare(volume: &Path, host: &Path) -> Result<Vec<Figure>> {
    std::fs::create_dir_all(host)?;
    let volume = Volume::create(volume, VOLUME_BYTES)?;
    let host = Host::new(host)?;
    let files = volume.files(Credentials::of_process());
    let mut figures = Vec::new();
    println!("µs a call, Eyrie / tmpfs, in a directory of so many entries");
    println!("{:24}{}", "", COUNTS.map(|count| format!("{count:>18}")).concat());
    for count in COUNTS {
        fill(&files, count)?;
        fill(&host, count)?;
    }
    let mut rows: [[Times; COUNTS.len()]; EntryCall::ALL.len()] = Default::default();
    for (at, count) in COUNTS.into_iter().enumerate() {
        let store = volume.store(dir(count), Credentials::of_process())?;
        // Of the two calls in one list, the first makes the entries that the second removes.
        for pair in [
            &[EntryCall::Open][..],
            &[EntryCall::Stat],
            &[EntryCall::Create, EntryCall::Unlink],
            &[EntryCall::StatDirectory],
            &[EntryCall::Len],
            &[EntryCall::List],
        ] {
            for round in 0..pair[0].rounds() {
                for &call in pair {
                    let times = &mut rows[call as usize][at];
                    times.ours.extend(time(&files, Some(&store), call, count, round)?);
                    times.theirs.extend(time(&host, None, call, count, round)?);
                }
            }
        }
    }
    for (call, row) in EntryCall::ALL.into_iter().zip(rows) {
        let mut cells = String::new();
        for (times, count) in row.into_iter().zip(COUNTS) {
            let (ours, theirs) = (median(&times.ours), median(&times.theirs));
            let cell =
                if theirs.is_nan() { format!("{ours:.3}") } else { format!("{ours:.3} / {theirs:.3}") };
            cells += &format!("{cell:>18}");
            let name = format!("{}, of {count}", call.name());
            match call {
                EntryCall::StatDirectory | EntryCall::Len => {
                    figures.push(Figure::at_most(name, STAT_US, Measured::of(&times.ours), " µs"))
                }
                EntryCall::List => {
                    let ratio = Measured::of_ratios(&times.theirs, &times.ours);
                    figures.push(Figure::at_least(name, LISTING, ratio, " × tmpfs"))
                }
                EntryCall::Open | EntryCall::Stat | EntryCall::Create | EntryCall::Unlink => {}
            }
        }
        println!("{:24}{cells}", call.name());
    }
    drop(files);
    volume.close()?;
    Ok(figures)
}
