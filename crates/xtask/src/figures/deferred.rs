//! Measures deferred changes: changes of the bytes of files by a client that is alone on a served volume. It
//! logs them and goes on, and the service applies them later. The calls alternate with those on a volume that
//! this process has for itself.
//!
//! A *burst* is a number of calls for which the log of the client has room, after a pause. So its time is
//! that of the client alone. *Sustained* calls are many more, and their time includes the wait until the
//! service has applied all of them.

use std::path::Path;
use std::time::{Duration, Instant};

use eyrie::{Credentials, File, Files, PosixExt, Store, Volume};

use super::figure::{Figure, Measured, median};
use super::in_scratch;
use super::shared::{Service, on_one_processor};
use crate::run::{Result, eyrie_command};

const VOLUME_BYTES: u64 = 1 << 30;
const BLOCK: usize = 4096;
/// Blocks of the file that is overwritten.
const BLOCKS: u64 = 4096;
/// Number of keys that are replaced.
const KEYS: u32 = 1000;
/// Number of calls in a burst. Their entries fill about half of a log.
const BURST: u32 = 200;
const SUSTAINED: u32 = 20_000;
const ROUNDS: usize = 15;
/// Time in which the service applies the burst before.
const PAUSE: Duration = Duration::from_millis(15);

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeferredChange {
    Append,
    Overwrite,
    Put,
    SmallPut,
}

const CHANGES: [(DeferredChange, &str); 4] = [
    (DeferredChange::Append, "append 4 KiB"),
    (DeferredChange::Overwrite, "overwrite 4 KiB"),
    (DeferredChange::Put, "replace a value of 4 KiB"),
    (DeferredChange::SmallPut, "replace a value of 100 B"),
];

/// An open volume with the files that the calls change.
struct Side {
    volume: Volume,
    files: Files,
    store: Store,
    log: File<Files>,
    large: File<Files>,
    keys: Vec<String>,
    /// Number of the next call.
    next: u64,
}

impl Side {
    fn open(path: &Path) -> Result<Side> {
        let volume = Volume::open(path)?;
        let files = volume.files(Credentials::of_process());
        Ok(Side {
            store: volume.store("/keys", Credentials::of_process())?,
            log: files.options().append(true).create(true).open("/log")?,
            large: files.options().write(true).open("/large")?,
            keys: (0..KEYS).map(|number| format!("key-{number:04}")).collect(),
            next: 0,
            files,
            volume,
        })
    }

    /// Makes this number of changes. Returns the mean time of one of them, in µs.
    fn change(&mut self, change: DeferredChange, count: u32) -> Result<f64> {
        use std::io::Write;
        let block = [self.next as u8; BLOCK];
        if change == DeferredChange::Append {
            self.log.set_len(0)?;
        }
        let started = Instant::now();
        for _ in 0..count {
            self.next += 1;
            // Neighbouring calls change places that are far apart.
            let place = self.next.wrapping_mul(0x9e37_79b9) % BLOCKS;
            let key = &self.keys[place as usize % KEYS as usize];
            match change {
                DeferredChange::Append => (&self.log).write_all(&block)?,
                DeferredChange::Overwrite => self.large.write_all_at(&block, place * BLOCK as u64)?,
                DeferredChange::Put => _ = self.store.put(key, block)?,
                DeferredChange::SmallPut => _ = self.store.put(key, &block[..100])?,
            }
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }

    /// As [`Side::change`], with the wait until the last change is applied.
    fn change_and_read(&mut self, change: DeferredChange, count: u32) -> Result<f64> {
        let us = self.change(change, count)?;
        let started = Instant::now();
        match change {
            DeferredChange::Append => _ = self.log.metadata()?,
            DeferredChange::Overwrite => _ = self.large.metadata()?,
            DeferredChange::Put | DeferredChange::SmallPut => {
                for key in &self.keys {
                    self.store.get(key)?;
                }
            }
        }
        Ok(us + started.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }

    fn close(self) -> Result<()> {
        drop((self.files, self.store, self.log, self.large));
        Ok(self.volume.close()?)
    }
}

fn fill(path: &Path) -> Result<()> {
    let volume = Volume::create(path, VOLUME_BYTES)?;
    let files = volume.files(Credentials::of_process());
    files.create_dir("/keys")?;
    let store = volume.store("/keys", Credentials::of_process())?;
    for number in 0..KEYS {
        store.put(format!("key-{number:04}"), [5; BLOCK])?;
    }
    files.write("/large", vec![5; BLOCKS as usize * BLOCK])?;
    drop((files, store));
    Ok(volume.close()?)
}

/// Measures the volumes below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    let eyrie = eyrie_command()?;
    in_scratch(memory, "deferred", |scratch| {
        std::fs::create_dir(scratch)?;
        let (embedded, served) = (scratch.join("embedded"), scratch.join("served"));
        fill(&embedded)?;
        fill(&served)?;
        let mut figures = beside(&eyrie, &embedded, &served, "")?;
        figures.extend(on_one_processor(|| beside(&eyrie, &embedded, &served, ", one processor"))?);
        Ok(figures)
    })
}

/// Compares calls on both volumes.
fn beside(eyrie: &Path, embedded: &Path, served: &Path, place: &str) -> Result<Vec<Figure>> {
    let _service = Service::start(eyrie, &["--deferred"], served)?;
    let (mut ours, mut shared) = (Side::open(embedded)?, Side::open(served)?);
    let mut figures = Vec::new();
    for (change, name) in CHANGES {
        let [mut bursts, mut sustained] = [(); 2].map(|()| Vec::new());
        for round in 0..=ROUNDS {
            std::thread::sleep(PAUSE);
            let burst = (ours.change(change, BURST)?, shared.change(change, BURST)?);
            let long = (ours.change_and_read(change, SUSTAINED)?, shared.change_and_read(change, SUSTAINED)?);
            // In the first round the client gets the grant.
            if round > 0 {
                bursts.push(burst);
                sustained.push(long);
            }
        }
        let us = median(&bursts.iter().map(|(ours, _)| *ours).collect::<Vec<_>>());
        let ratio = |pairs: &[(f64, f64)]| {
            Measured::of(&pairs.iter().map(|(ours, shared)| shared / ours).collect::<Vec<_>>())
        };
        let limit = if place.is_empty() { 1.5 } else { 2.5 };
        let limit = if change == DeferredChange::SmallPut || !place.is_empty() { limit } else { 2.0 };
        if place.is_empty() {
            let name = format!("{name}, burst ({us:.2} µs embedded)");
            figures.push(Figure::at_most(name, 1.0, ratio(&bursts), " × embedded"));
        }
        let name = format!("{name}, sustained{place}");
        figures.push(Figure::at_most(name, limit, ratio(&sustained), " × embedded"));
    }
    ours.close()?;
    shared.close()?;
    Ok(figures)
}
