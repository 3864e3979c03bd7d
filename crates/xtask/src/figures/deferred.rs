//! Measures deferred changes: changes of files and names by a client that is alone on a served volume. The
//! client logs the changes and goes on, and the service applies them later. The calls alternate with those on
//! a volume that this process has for itself.
//!
//! A *burst* is a number of calls for which the log of the client has room, after a pause. So the time of a
//! burst is that of the client alone. *Sustained* calls are many more, and their time includes the wait until
//! the service has applied all of them.

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
/// Number of changes after which a client that is alone has the grant.
const GRANTED_AFTER: u32 = 64;
const SUSTAINED: u32 = 20_000;
const ROUNDS: usize = 15;
/// Pause before each burst, in which the service finishes its work for the earlier calls.
const PAUSE: Duration = Duration::from_millis(15);

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeferredChange {
    Append,
    Overwrite,
    Put,
    SmallPut,
    NewKey,
    Create,
    Rename,
    Unlink,
}

const CHANGES: [(DeferredChange, &str); 8] = [
    (DeferredChange::Create, "create and close"),
    (DeferredChange::Rename, "rename"),
    (DeferredChange::Unlink, "unlink"),
    (DeferredChange::NewKey, "put a new key of 100 B"),
    (DeferredChange::Append, "append 4 KiB"),
    (DeferredChange::Overwrite, "overwrite 4 KiB"),
    (DeferredChange::Put, "replace a value of 4 KiB"),
    (DeferredChange::SmallPut, "replace a value of 100 B"),
];

impl DeferredChange {
    /// True for a put of a small value.
    fn is_small(self) -> bool {
        matches!(self, DeferredChange::SmallPut | DeferredChange::NewKey)
    }

    /// True for a change that logs a block.
    fn has_block(self) -> bool {
        matches!(self, DeferredChange::Append | DeferredChange::Overwrite | DeferredChange::Put)
    }
}

fn old_name(number: u32) -> String {
    format!("/names/old-{number}")
}

fn new_name(number: u32) -> String {
    format!("/names/new-{number}")
}

fn new_key(number: u32) -> String {
    format!("new-{number}")
}

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

    /// Makes the names that the next calls change. Makes sure that a client has the grant, and waits until
    /// the service has applied everything.
    fn prepare(&mut self, change: DeferredChange, count: u32) -> Result<()> {
        for _ in 0..GRANTED_AFTER {
            self.large.write_all_at(&[5], 0)?;
        }
        if change == DeferredChange::Append {
            self.log.set_len(0)?;
        }
        if matches!(change, DeferredChange::Rename | DeferredChange::Unlink) {
            for number in 0..count {
                self.create(&old_name(number))?;
            }
        }
        self.settle();
        Ok(())
    }

    fn create(&self, path: &str) -> Result<()> {
        drop(self.open.files.options().write(true).create_new(true).open(path)?);
        Ok(())
    }

    /// Waits until the service has applied all changes. One request is enough, because the service applies
    /// all changes before it handles a request.
    fn settle(&self) {
        self.open.volume.stats();
    }

    /// Removes the names that calls have made, and compares their number.
    fn clear(&self, change: DeferredChange, count: u32) -> Result<()> {
        let made = match change {
            DeferredChange::Create | DeferredChange::Rename => "/names",
            DeferredChange::NewKey => "/keys",
            _ => return Ok(()),
        };
        let names: Vec<_> = self.open.files.read_dir(made)?.collect::<std::result::Result<_, _>>()?;
        let is_new = |name: &[u8]| name.starts_with(b"new");
        let new = names.iter().filter(|entry| is_new(entry.name_bytes()));
        if new.clone().count() != count as usize {
            return Err("a change of a name is missing".into());
        }
        new.into_iter().try_for_each(|entry| Ok(self.open.files.remove_file(entry.path())?))
    }

    /// Makes this number of changes. Returns the mean time of one of them, in µs.
    fn change(&mut self, change: DeferredChange, count: u32) -> Result<f64> {
        use std::io::Write;
        let block = [self.next as u8; BLOCK];
        let started = Instant::now();
        for number in 0..count {
            self.next += 1;
            let place = self.place();
            let key = &self.keys[place as usize % KEYS as usize];
            match change {
                DeferredChange::Append => (&self.log).write_all(&block)?,
                DeferredChange::Overwrite => self.large.write_all_at(&block, place * BLOCK as u64)?,
                DeferredChange::Put => _ = self.open.store.put(key, block)?,
                DeferredChange::SmallPut => _ = self.open.store.put(key, &block[..100])?,
                DeferredChange::NewKey => _ = self.open.store.put(new_key(number), &block[..100])?,
                DeferredChange::Create => self.create(&new_name(number))?,
                DeferredChange::Rename => self.open.files.rename(old_name(number), new_name(number))?,
                DeferredChange::Unlink => self.open.files.remove_file(old_name(number))?,
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
        let mut block = vec![byte; BLOCK];
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
            DeferredChange::NewKey => {
                block.clear();
                if !self.open.store.get_into(new_key(count - 1), &mut block)? {
                    return Err("a key is missing".into());
                }
            }
            DeferredChange::Create | DeferredChange::Rename | DeferredChange::Unlink => self.settle(),
        }
        let us = us + started.elapsed().as_secs_f64() * 1e6 / f64::from(count);
        let wanted = if change.is_small() { 100 } else { BLOCK };
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
    files.create_dir("/names")?;
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
    let _service = Service::start(eyrie, &[], served)?;
    let (mut ours, mut shared) = (Side::open(embedded)?, Side::open(served)?);
    let mut figures = Vec::new();
    for (change, name) in CHANGES {
        let mut times = [(); 4].map(|()| Vec::new());
        for round in 0..=ROUNDS {
            std::thread::sleep(PAUSE);
            let mut us = [0.0; 4];
            for (us, count) in us.chunks_mut(2).zip([BURST, SUSTAINED]) {
                for (us, side) in us.iter_mut().zip([&mut ours, &mut shared]) {
                    side.prepare(change, count)?;
                    *us = match count {
                        BURST => side.change(change, count)?,
                        _ => side.change_and_read(change, count)?,
                    };
                    side.clear(change, count)?;
                }
            }
            // In the first round the client gets the grant, so this round does not count.
            if round > 0 {
                times.iter_mut().zip(us).for_each(|(times, us)| times.push(us));
            }
        }
        let [ours_burst, shared_burst, ours_long, shared_long] = &times;
        let us = median(ours_burst);
        let limit = if place.is_empty() { 1.5 } else { 2.5 };
        let limit = if change.has_block() && place.is_empty() { 2.0 } else { limit };
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
