//! Measures deferred changes: changes of the bytes of files by a client that is alone on a served volume. It
//! logs them and goes on, and the service applies them later. The calls alternate with those on a volume that
//! this process has for itself.
//!
//! A *burst* is a number of calls for which the log of the client has room, after a pause. So its time is
//! that of the client alone. *Sustained* calls are many more, and their time includes the wait until the
//! service has applied all of them.

use std::path::Path;
use std::time::{Duration, Instant};

use eyrie::{Credentials, File, Files, PosixExt, Volume};

use super::figure::{Figure, Measured, median};
use super::in_scratch;
use super::shared::{OpenVolume, Service, on_one_processor};
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
/// Pause before each burst, in which the service ends its work for the calls before.
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
    open: OpenVolume,
    log: File<Files>,
    large: File<Files>,
    keys: Vec<String>,
    /// Number of calls so far.
    next: u64,
}

impl Side {
    fn open(path: &Path) -> Result<Side> {
        let open = OpenVolume::open(path)?;
        let options = || open.files.options();
        Ok(Side {
            log: options().append(true).read(true).create(true).open("/log")?,
            large: options().write(true).read(true).open("/large")?,
            keys: (0..KEYS).map(|number| format!("key-{number:04}")).collect(),
            next: 0,
            open,
        })
    }

    /// Returns the block that the latest call has changed. Neighbouring calls change places that are far
    /// apart.
    fn place(&self) -> u64 {
        self.next.wrapping_mul(0x9e37_79b9) % BLOCKS
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
            let place = self.place();
            let key = &self.keys[place as usize % KEYS as usize];
            match change {
                DeferredChange::Append => (&self.log).write_all(&block)?,
                DeferredChange::Overwrite => self.large.write_all_at(&block, place * BLOCK as u64)?,
                DeferredChange::Put => _ = self.open.store.put(key, block)?,
                DeferredChange::SmallPut => _ = self.open.store.put(key, &block[..100])?,
            }
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }

    /// As [`Side::change`], with the wait until the last change is applied. Compares the bytes of the last
    /// change.
    fn change_and_read(&mut self, change: DeferredChange, count: u32) -> Result<f64> {
        let byte = self.next as u8;
        let us = self.change(change, count)?;
        let (started, place) = (Instant::now(), self.place());
        let mut block = vec![!byte; BLOCK];
        match change {
            DeferredChange::Append => {
                self.log.read_exact_at(&mut block, u64::from(count - 1) * BLOCK as u64)?;
            }
            DeferredChange::Overwrite => self.large.read_exact_at(&mut block, place * BLOCK as u64)?,
            DeferredChange::Put | DeferredChange::SmallPut => {
                let key = &self.keys[place as usize % KEYS as usize];
                if !self.open.store.get_into(key, &mut block)? {
                    return Err("a key is missing".into());
                }
            }
        }
        let us = us + started.elapsed().as_secs_f64() * 1e6 / f64::from(count);
        let wanted = if change == DeferredChange::SmallPut { 100 } else { BLOCK };
        if block.len() != wanted || block.iter().any(|&read| read != byte) {
            return Err("a changed block has wrong bytes".into());
        }
        Ok(us)
    }

    fn close(self) -> Result<()> {
        drop((self.log, self.large));
        self.open.close()
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
        let mut times = [(); 4].map(|()| Vec::new());
        for round in 0..=ROUNDS {
            std::thread::sleep(PAUSE);
            let us = [
                ours.change(change, BURST)?,
                shared.change(change, BURST)?,
                ours.change_and_read(change, SUSTAINED)?,
                shared.change_and_read(change, SUSTAINED)?,
            ];
            // In the first round the client gets the grant.
            if round > 0 {
                times.iter_mut().zip(us).for_each(|(times, us)| times.push(us));
            }
        }
        let [ours_burst, shared_burst, ours_long, shared_long] = &times;
        let us = median(ours_burst);
        let limit = if place.is_empty() { 1.5 } else { 2.5 };
        let limit = if change == DeferredChange::SmallPut || !place.is_empty() { limit } else { 2.0 };
        if place.is_empty() {
            let name = format!("{name}, burst ({us:.2} µs embedded)");
            figures.push(Figure::at_most(
                name,
                1.0,
                Measured::of_ratios(shared_burst, ours_burst),
                " × embedded",
            ));
        }
        let name = format!("{name}, sustained{place}");
        figures.push(Figure::at_most(
            name,
            limit,
            Measured::of_ratios(shared_long, ours_long),
            " × embedded",
        ));
    }
    ours.close()?;
    shared.close()?;
    Ok(figures)
}
