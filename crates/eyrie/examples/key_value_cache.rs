//! A cache that several threads share: conditional puts, versions, batches and scans.
//!
//! The cache keeps the results of slow computations. A result is stored once, even if several threads compute
//! it at the same time. The count of look-ups changes by compare-and-swap on the version of its value. Old
//! results are dropped in one atomic step.

use std::error::Error;
use std::thread;
use std::time::Duration;

use eyrie::{Batch, Condition, Credentials, KeyRange, Order, Outcome, PosixExt, Store, Volume};

const THREADS: usize = 4;
const NUMBERS: u64 = 50;

/// A clone is cheap and shares the store, so each thread has one.
#[derive(Clone)]
struct Cache {
    store: Store,
}

impl Cache {
    fn open(volume: &Volume) -> eyrie::Result<Cache> {
        let me = Credentials::of_process();
        volume.files(me.clone()).create_dir_all("/cache")?;
        Ok(Cache { store: volume.store("/cache", me)? })
    }

    /// Returns the value of `key`, or computes a missing value. The flag is true if this call stored a value.
    fn get_or(&self, key: &str, compute: impl FnOnce() -> String) -> eyrie::Result<(Vec<u8>, bool)> {
        if let Some(value) = self.store.get(key)? {
            return Ok((value, false));
        }
        let value = compute();
        match self.store.put_if(key, &value, Condition::Absent)? {
            Outcome::Done => Ok((value.into(), true)),
            // Another thread was faster. Its value stays, unless it was dropped before this look-up.
            _ => Ok((self.store.get(key)?.unwrap_or_else(|| value.into()), false)),
        }
    }

    /// Adds `count` to the number under `key`. No addition of another thread is lost.
    fn add(&self, key: &str, count: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
        loop {
            let (old, condition) = match self.store.get_with_version(key)? {
                Some((old, version)) => (parse(&old)?, Condition::Version(version)),
                None => (0, Condition::Absent),
            };
            if self.store.put_if(key, (old + count).to_string(), condition)? == Outcome::Done {
                return Ok(());
            }
        }
    }

    /// Drops the values under `prefix` that a scan finds, and notes their number, in one atomic batch.
    fn drop_all(&self, prefix: &str) -> eyrie::Result<usize> {
        let mut batch = Batch::new();
        for key in self.store.scan(KeyRange::prefix(prefix), Order::Unordered) {
            batch.erase(key?);
        }
        let dropped = batch.len();
        batch.put("dropped", dropped.to_string());
        self.store.commit(&batch)?;
        Ok(dropped)
    }
}

fn parse(value: &[u8]) -> Result<u64, Box<dyn Error + Send + Sync>> {
    Ok(std::str::from_utf8(value)?.parse()?)
}

fn slow_square(number: u64) -> String {
    thread::sleep(Duration::from_millis(1));
    (number * number).to_string()
}

/// Looks up every square. Returns the number of squares that this thread was the first to store.
fn work(cache: &Cache) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut stored = 0;
    for number in 0..NUMBERS {
        let (square, first) = cache.get_or(&format!("square:{number:03}"), || slow_square(number))?;
        assert_eq!(parse(&square)?, number * number);
        stored += u64::from(first);
        cache.add("look-ups", 1)?;
    }
    Ok(stored)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let scratch = tempfile::tempdir()?;
    let volume = Volume::create(scratch.path().join("volume"), 64 << 20)?;
    let cache = Cache::open(&volume)?;

    let caches = vec![cache.clone(); THREADS];
    let threads: Vec<_> = caches.into_iter().map(|cache| thread::spawn(move || work(&cache))).collect();
    let mut stored = Vec::new();
    for thread in threads {
        stored.push(thread.join().expect("no thread panicked")?);
    }
    println!("{THREADS} threads stored {stored:?} squares");
    assert_eq!(stored.iter().sum::<u64>(), NUMBERS, "each square was stored once");

    let look_ups = parse(&cache.store.get("look-ups")?.expect("it was put"))?;
    println!("look-ups: {look_ups}");
    assert_eq!(look_ups, THREADS as u64 * NUMBERS, "no addition was lost");

    for entry in cache.store.scan_values(KeyRange::new("square:010".."square:013"), Order::ByKey) {
        let (key, value) = entry?;
        println!("{} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }

    let dropped = cache.drop_all("square:")?;
    println!("dropped {dropped} squares, {} keys are left", cache.store.len()?);
    assert_eq!((dropped as u64, cache.store.len()?), (NUMBERS, 2));

    drop(cache);
    volume.close()?;
    Ok(())
}
