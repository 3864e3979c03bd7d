//! Measures `fsync` of one file beside a thread that writes other files and never synchronises them. A volume
//! on a disk is compared with the file system on that disk.
//!
//! Each round measures the volume and then the host's file system, each of them first alone and then beside
//! the writer. The calls beside the writer end when the writer has written all of its bytes, so every such
//! call overlaps with the writer. Each combination of a measured change and a writer gets a new volume. The
//! writer gets either storage that no file used before, or storage of removed files. New storage is the
//! slower case, because the host's file system journals the first write to each of its blocks, and a flush
//! waits for that journal.
//!
//! The times include the time in which a thread waits for a processor. So the figures need a machine with two
//! processors and little other work.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use eyrie::{Credentials, Host, MediumChoice, Posix, PosixExt, Volume};
use hdrhistogram::Histogram;

use super::figure::Figure;
use crate::run::Result;

const ROUNDS: usize = 3;
/// Number of calls of one round without a writer.
const ALONE: usize = 300;
const BLOCK: usize = 4096;
/// Size of the file that is overwritten, in bytes.
const OWN_BYTES: u64 = 64 << 20;
/// Number of bytes that the writer writes in a round.
const OTHER_BYTES: u64 = 1 << 30;
/// Number of files in one directory.
const IN_ONE: u64 = 1000;
const VOLUME_BYTES: u64 = 8 << 30;
/// The permitted latency beside the writer, as a multiple of the latency without the writer. If the host's
/// file system takes longer than this beside the same writer, its latency is the permitted one (see
/// [`figure`]).
const SLOWER: f64 = 2.0;

/// The files of the writer.
#[derive(Clone, Copy)]
struct OtherFiles {
    name: &'static str,
    /// Size of a file, in bytes.
    bytes: u64,
    /// Number of bytes of one write.
    write: usize,
}

const OTHER_FILES: [OtherFiles; 2] = [
    OtherFiles { name: "files of 64 MiB", bytes: 64 << 20, write: 128 << 10 },
    OtherFiles { name: "files of 64 KiB", bytes: 64 << 10, write: 64 << 10 },
];

/// The storage that the writer gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    New,
    Reused,
}

impl Storage {
    fn name(self) -> &'static str {
        match self {
            Storage::New => "new storage",
            Storage::Reused => "reused storage",
        }
    }
}

/// A call that is measured together with the `fsync` after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncedChange {
    Overwrite,
    Append,
}

impl SyncedChange {
    fn name(self) -> &'static str {
        match self {
            SyncedChange::Overwrite => "overwrite",
            SyncedChange::Append => "append",
        }
    }
}

/// The measured calls of one side, with times in ns, and the seconds that the writer needed.
struct Side {
    alone: Histogram<u64>,
    beside: Histogram<u64>,
    writing_s: f64,
}

impl Side {
    fn new() -> Result<Side> {
        Ok(Side { alone: Histogram::new(3)?, beside: Histogram::new(3)?, writing_s: 0.0 })
    }

    /// Makes the calls of one round.
    fn round<P: Posix + Clone + Sync>(
        &mut self,
        fs: &P,
        round: usize,
        change: SyncedChange,
        other: OtherFiles,
    ) -> Result<()> {
        let mut own = OwnFile::open(fs, change)?;
        for _ in 0..ALONE {
            own.time(&mut self.alone)?;
        }
        let is_writing = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let written = write_others(fs, round, other).map_err(|error| error.to_string());
                is_writing.store(false, Ordering::Release);
                written
            });
            let mut timed = Ok(());
            while timed.is_ok() && is_writing.load(Ordering::Acquire) {
                timed = own.time(&mut self.beside);
            }
            self.writing_s += writer.join().map_err(|_| "the writer panicked")??;
            timed
        })
    }

    /// Returns the times of the calls alone and beside the writer, in µs.
    fn times(&self, quantile: f64) -> [f64; 2] {
        [&self.alone, &self.beside].map(|times| times.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// Prints the number and the times of the calls, and the work of the writer.
    fn print(&self, name: &str, side: &str) {
        let times = |times: &Histogram<u64>| {
            let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| times.value_at_quantile(q) as f64 / 1e3);
            format!("{} calls p50 {p50:.0} p99 {p99:.0} max {max:.0} µs", times.len())
        };
        let (alone, beside) = (times(&self.alone), times(&self.beside));
        let mib = (ROUNDS as u64 * OTHER_BYTES) >> 20;
        let speed = mib as f64 / self.writing_s;
        println!(
            "{name}: {side}: alone {alone}; beside {beside}; {mib} MiB written beside, {speed:.0} MiB/s"
        );
    }
}

/// The file whose changes are synchronised.
struct OwnFile<'a, P: Posix + Clone> {
    fs: &'a P,
    file: eyrie::File<P>,
    change: SyncedChange,
    block: Vec<u8>,
    number: u64,
}

impl<'a, P: Posix + Clone> OwnFile<'a, P> {
    fn open(fs: &'a P, change: SyncedChange) -> Result<OwnFile<'a, P>> {
        let file = fs.options().read(true).write(true).create(true).open("/own")?;
        if file.metadata()?.size < OWN_BYTES {
            let filling = vec![1; 1 << 20];
            for offset in (0..OWN_BYTES).step_by(filling.len()) {
                file.write_all_at(&filling, offset)?;
            }
        }
        file.sync_all()?;
        Ok(OwnFile { fs, file, change, block: vec![5; BLOCK], number: 0 })
    }

    /// Changes the file, synchronises it, and records the time of both.
    fn time(&mut self, times: &mut Histogram<u64>) -> Result<()> {
        let started = Instant::now();
        if self.change == SyncedChange::Append {
            self.fs.append(self.file.handle(), &self.block)?;
        } else {
            let offset = (self.number * 7919) % (OWN_BYTES / BLOCK as u64) * BLOCK as u64;
            self.file.write_all_at(&self.block, offset)?;
        }
        self.file.sync_all()?;
        times.record(started.elapsed().as_nanos() as u64)?;
        self.number += 1;
        Ok(())
    }
}

fn other_directory(round: usize, number: u64) -> String {
    format!("/other-{round}-{number}")
}

/// Writes the other files of one round. Returns the time in seconds.
fn write_others(fs: &impl Posix, round: usize, other: OtherFiles) -> Result<f64> {
    let filling = vec![7; other.write];
    let started = Instant::now();
    for number in 0..OTHER_BYTES / other.bytes {
        let directory = other_directory(round, number / IN_ONE);
        if number.is_multiple_of(IN_ONE) {
            fs.create_dir(&directory)?;
        }
        let path = format!("{directory}/{number}");
        let file = fs.options().write(true).create_new(true).open(path)?;
        for offset in (0..other.bytes).step_by(other.write) {
            file.write_all_at(&filling, offset)?;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

/// Measures both sides in the directory `disk`.
pub fn measure(disk: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for other in OTHER_FILES {
        for change in [SyncedChange::Overwrite, SyncedChange::Append] {
            for storage in [Storage::New, Storage::Reused] {
                figures.extend(compare(disk, change, other, storage)?);
            }
        }
    }
    Ok(figures)
}

/// Writes the files of all rounds, and removes them. Their storage is then free, and was written before.
fn use_storage(fs: &impl Posix, other: OtherFiles, sync: impl Fn() -> Result<()>) -> Result<()> {
    for round in 0..ROUNDS {
        write_others(fs, round, other)?;
    }
    sync()?;
    for round in 0..ROUNDS {
        for directory in 0..=(OTHER_BYTES / other.bytes - 1) / IN_ONE {
            fs.remove_dir_all(other_directory(round, directory))?;
        }
    }
    sync()
}

/// Measures one change beside one kind of writer.
fn compare(disk: &Path, change: SyncedChange, other: OtherFiles, storage: Storage) -> Result<Vec<Figure>> {
    let (volume_path, host_path) = (disk.join("volume"), disk.join("host"));
    for path in [&volume_path, &host_path] {
        if path.exists() {
            std::fs::remove_dir_all(path)?;
        }
    }
    std::fs::create_dir(&host_path)?;
    let volume = Volume::options().size(VOLUME_BYTES).medium(MediumChoice::Paged).create(&volume_path)?;
    let host = Host::new(&host_path)?;
    let (mut ours, mut theirs) = (Side::new()?, Side::new()?);
    if storage == Storage::Reused {
        use_storage(&volume.files(Credentials::of_process()), other, || Ok(volume.sync()?))?;
        use_storage(&host, other, || Ok(rustix::fs::syncfs(File::open(&host_path)?)?))?;
    }
    for round in 0..ROUNDS {
        ours.round(&volume.files(Credentials::of_process()), round, change, other)?;
        volume.sync()?;
        theirs.round(&host, round, change, other)?;
        rustix::fs::syncfs(File::open(&host_path)?)?;
    }
    volume.close()?;
    for path in [&volume_path, &host_path] {
        std::fs::remove_dir_all(path)?;
    }
    rustix::fs::syncfs(File::open(disk)?)?;
    let name = format!("4 KiB {} + fsync beside {}, {}", change.name(), other.name, storage.name());
    ours.print(&name, "Eyrie");
    theirs.print(&name, "host");
    Ok([("median", 0.5), ("p99", 0.99)]
        .map(|(kind, quantile)| figure(&name, kind, quantile, &ours, &theirs))
        .into())
}

/// Makes the figure of one quantile: the latency beside the writer, divided by the permitted latency. The
/// permitted latency is the larger of two: [`SLOWER`] times the latency alone, and the latency of the host's
/// file system beside the same writer.
fn figure(name: &str, kind: &str, quantile: f64, ours: &Side, theirs: &Side) -> Figure {
    let ([alone, beside], [host_alone, host_beside]) = (ours.times(quantile), theirs.times(quantile));
    let name = format!(
        "{name}: {kind} ({alone:.0} → {beside:.0} µs, {:.1} ×; host {host_alone:.0} → {host_beside:.0} µs)",
        beside / alone
    );
    Figure::at_most(name, 1.0, beside / (SLOWER * alone).max(host_beside), " of the permitted time")
}
