//! Operations on keys and values, measured on all stores in turn.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::stores::{Durability, Open, Peer};
use crate::table::Row;
use crate::values::{Random, key, value};
use crate::{Result, Rounds};

/// Number of operations that are timed together. Their results are kept, and compared afterwards.
const TIMED_CALLS: usize = 16;
/// Keys in one transaction of a load.
const LOAD: usize = 1000;
/// Keys in one transaction of a batch.
const BATCH: usize = 100;

/// The amounts of a run.
#[derive(Clone, Copy)]
pub struct Amounts {
    pub keys: usize,
    pub value_bytes: usize,
    /// Number of gets in a round.
    pub gets: usize,
    /// Number of puts, and of erases, in a round.
    pub changes: usize,
    /// Number of batches in a round.
    pub batches: usize,
    /// Rounds of gets, scans and loads.
    pub rounds: Rounds,
    /// Rounds of changes.
    pub change_rounds: Rounds,
}

/// One store, and the values that it should have.
struct Side {
    peer: Box<dyn Peer>,
    /// The number of changes of each key.
    versions: Vec<u32>,
    random: Random,
    value_bytes: usize,
    proven: Proven,
}

/// The work whose results a run has compared.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Proven {
    /// Values of which every byte was compared.
    pub values: u64,
    /// Keys that were set, and keys that were erased.
    pub changes: u64,
}

fn time(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

/// Returns µs an operation.
fn each(time: Duration, operations: usize) -> f64 {
    time.as_secs_f64() * 1e6 / operations as f64
}

impl Side {
    fn new(peer: Box<dyn Peer>, amounts: Amounts) -> Side {
        let Amounts { keys, value_bytes, .. } = amounts;
        Side { peer, versions: vec![0; keys], random: Random::new(1), value_bytes, proven: Proven::default() }
    }

    /// Compares a value with the one that the key should have.
    fn prove(&mut self, number: usize, found: &[u8], wanted: &mut Vec<u8>) -> Result<()> {
        value(number, self.versions[number], self.value_bytes, wanted);
        self.proven.values += 1;
        if found == wanted { Ok(()) } else { Err(format!("key {number} has wrong bytes").into()) }
    }

    /// Returns the next pair that a put stores, for each of `numbers`.
    fn pairs(&mut self, numbers: impl IntoIterator<Item = usize>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pair = |number: usize| {
            self.versions[number] += 1;
            self.proven.changes += 1;
            let mut bytes = Vec::new();
            value(number, self.versions[number], self.value_bytes, &mut bytes);
            (key(number), bytes)
        };
        numbers.into_iter().map(pair).collect()
    }

    fn random_numbers(&mut self, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.random.below(self.versions.len())).collect()
    }

    /// Returns `count` different numbers of keys.
    fn different_numbers(&mut self, count: usize) -> Vec<usize> {
        let keys = self.versions.len();
        let start = self.random.below(keys);
        let stride = keys / count;
        (0..count).map(|nth| (start + nth * stride) % keys).collect()
    }

    fn load(&mut self) -> Result<f64> {
        let keys = self.versions.len();
        let mut total = Duration::ZERO;
        for first in (0..keys).step_by(LOAD) {
            let pairs = self.pairs(first..(first + LOAD).min(keys));
            total += time(|| self.peer.put_all(&pairs))?;
        }
        Ok(each(total, keys))
    }

    fn gets(&mut self, count: usize) -> Result<f64> {
        let (mut outs, mut wanted) = (vec![Vec::new(); TIMED_CALLS], Vec::new());
        let mut total = Duration::ZERO;
        let repeats = count.div_ceil(TIMED_CALLS);
        for _ in 0..repeats {
            let numbers = self.random_numbers(TIMED_CALLS);
            let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
            total += time(|| {
                keys.iter().zip(&mut outs).try_for_each(|(key, out)| self.peer.get(key, out).map(drop))
            })?;
            for (number, out) in numbers.into_iter().zip(&outs) {
                self.prove(number, out, &mut wanted)?;
            }
        }
        Ok(each(total, repeats * TIMED_CALLS))
    }

    fn puts(&mut self, count: usize) -> Result<f64> {
        let mut total = Duration::ZERO;
        let repeats = count.div_ceil(TIMED_CALLS);
        for _ in 0..repeats {
            let numbers = self.random_numbers(TIMED_CALLS);
            let pairs = self.pairs(numbers);
            total += time(|| pairs.iter().try_for_each(|(key, value)| self.peer.put(key, value)))?;
        }
        Ok(each(total, repeats * TIMED_CALLS))
    }

    fn batches(&mut self, count: usize) -> Result<f64> {
        let mut total = Duration::ZERO;
        for _ in 0..count {
            let numbers = self.different_numbers(BATCH.min(self.versions.len()));
            let pairs = self.pairs(numbers);
            total += time(|| self.peer.put_all(&pairs))?;
        }
        Ok(each(total, count * BATCH.min(self.versions.len())))
    }

    /// Erases keys, proves that they are gone, and puts them again.
    fn erases(&mut self, count: usize) -> Result<f64> {
        let numbers = self.different_numbers(count);
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
        let mut erased = 0;
        let total = time(|| {
            for key in &keys {
                erased += usize::from(self.peer.erase(key)?);
            }
            Ok(())
        })?;
        self.proven.changes += erased as u64;
        let mut found = Vec::new();
        for key in &keys {
            if self.peer.get(key, &mut found)? {
                return Err("an erased key has a value".into());
            }
        }
        if erased != count {
            return Err(format!("{erased} of {count} keys were erased").into());
        }
        let pairs = self.pairs(numbers);
        self.peer.put_all(&pairs)?;
        Ok(each(total, count))
    }

    /// Visits all keys and reads each byte of the values, as a program would that needs them.
    fn scan(&mut self, ordered: bool) -> Result<f64> {
        let (mut count, mut sum) = (0, 0_u64);
        let mut visit = |_: &[u8], value: &[u8]| {
            count += 1;
            let (words, rest) = value.as_chunks::<8>();
            sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
            sum = rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
        };
        let peer = &mut self.peer;
        let total = time(|| if ordered { peer.scan(&mut visit) } else { peer.scan_unordered(&mut visit) })?;
        std::hint::black_box(sum);
        if count != self.versions.len() {
            return Err(format!("a scan found {count} keys").into());
        }
        Ok(each(total, count))
    }

    /// Compares all keys and values, and the order of the keys, with the ones that should be there.
    fn prove_all(&mut self) -> Result<()> {
        let (versions, value_bytes) = (&self.versions, self.value_bytes);
        let (mut next, mut wrong, mut wanted) = (0, 0_u64, Vec::new());
        self.peer.scan(&mut |found_key, found| {
            value(next, versions.get(next).copied().unwrap_or(0), value_bytes, &mut wanted);
            wrong += u64::from(found_key != key(next) || found != wanted);
            next += 1;
        })?;
        self.proven.values += next as u64;
        if next != self.versions.len() || wrong != 0 {
            return Err(format!("{wrong} of {next} values are wrong at the end").into());
        }
        Ok(())
    }
}

/// One measurement of a side: µs an operation.
type Measurement = fn(&mut Side, Amounts) -> Result<f64>;

/// The operations on a full store: the name, true if it changes the store, and the function.
const OPERATIONS: [(&str, bool, Measurement); 6] = [
    ("get", false, |side, amounts| side.gets(amounts.gets)),
    ("put", true, |side, amounts| side.puts(amounts.changes)),
    ("erase", true, |side, amounts| side.erases(amounts.changes)),
    ("100 puts in a transaction, each", true, |side, amounts| side.batches(amounts.batches)),
    ("scan in any order, each", false, |side, _| side.scan(false)),
    ("scan in order, each", false, |side, _| side.scan(true)),
];

/// Measures all operations on all stores below `dir`. Rounds of the stores alternate. Returns the rows and
/// the proven work.
pub fn measure(
    stores: &[(&str, Open)],
    dir: &Path,
    durability: Durability,
    amounts: Amounts,
) -> Result<(Vec<Row>, Proven)> {
    let empty = |name| Row { name, times: vec![Vec::new(); stores.len()] };
    let mut load = empty("load, 1,000 in a transaction, each");
    let mut sides: Vec<Option<Side>> = stores.iter().map(|_| None).collect();
    for round in amounts.rounds.loads() {
        for (at, (name, open)) in stores.iter().enumerate() {
            // The previous store is closed first, because its storage is needed.
            sides[at] = None;
            let place = dir.join(name);
            if place.exists() {
                std::fs::remove_dir_all(&place)?;
            }
            std::fs::create_dir(&place)?;
            let failed = |error| format!("{name}: load: {error}");
            let mut side = Side::new(open(&place, durability, amounts.value_bytes)?, amounts);
            let us = side.load().map_err(failed)?;
            if round > 0 {
                load.times[at].push(us);
            }
            sides[at] = Some(side);
        }
    }
    let mut sides: Vec<Side> = sides.into_iter().flatten().collect();
    let mut rows = vec![load];
    for (name, is_change, operation) in OPERATIONS {
        let mut row = empty(name);
        let rounds = if is_change { amounts.change_rounds } else { amounts.rounds };
        for round in rounds.all() {
            for (at, side) in sides.iter_mut().enumerate() {
                let failed = |error| format!("{}: {name}: {error}", stores[at].0);
                let us = operation(side, amounts).map_err(failed)?;
                // The first round warms caches and memory.
                if round > 0 {
                    row.times[at].push(us);
                }
            }
        }
        rows.push(row);
    }
    let mut proven = Proven::default();
    for (at, side) in sides.iter_mut().enumerate() {
        side.prove_all().map_err(|error| format!("{}: {error}", stores[at].0))?;
        proven.values += side.proven.values;
        proven.changes += side.proven.changes;
    }
    Ok((rows, proven))
}
