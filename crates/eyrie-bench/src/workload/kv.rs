//! `kv`: calls on keys and values, at several numbers of keys.

use std::sync::Arc;

use super::micro::thousands;
use crate::error::{Error, Result};
use crate::keys::{Durability, KeySession, KeyStore};
use crate::method::{Plan, RowPlan, Stopwatch, Targets, ThreadPart, Worker};
use crate::run::Workload;
use crate::side::{SharedStorage, Side};
use crate::values::{Chooser, NumberedName, Pattern};

mod scan;
mod view;

/// Number of calls that are timed together. Their results are kept, and compared afterwards.
const TIMED_CALLS: usize = 16;
/// Keys in one transaction of a load.
const LOAD: u64 = 1000;
/// Keys in one transaction of a batch.
const BATCH: u64 = 100;
/// Maximum number of counted rounds of a load, and of a scan of more than [`MANY`] keys. Each round of a load
/// by one thread makes a new store.
const LONG_ROUNDS: u32 = 3;
/// With more keys than this, stores of files are left out (see [`KeySession::is_of_files`]), and long rows
/// have fewer rounds.
const MANY: u64 = 200_000;

/// A store of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreScale {
    /// Number of keys, for all threads together.
    pub keys: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Keys {
    scales: Vec<StoreScale>,
    durability: Durability,
    wanted: Vec<KeyOperation>,
    /// Number of gets or of single changes in a round. `None` if it follows from the number of keys.
    calls: Option<u64>,
}

/// A measured call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyOperation {
    /// Put all keys into an empty store, 1,000 in each transaction.
    Load,
    /// Copy out the value of an existing key.
    Get,
    /// Read the length and the first word of a value in place.
    View,
    /// Replace the value of an existing key.
    Put,
    /// Remove an existing key.
    Erase,
    /// Replace the values of 100 keys in one transaction.
    Batch,
    /// Visit all keys and read each byte of their values, in any order.
    Scan,
    /// As `Scan`, but in the order of the keys.
    ScanSorted,
}

use KeyOperation::{Batch, Erase, Get, Load, Put, Scan, ScanSorted, View};

const OPERATIONS: [KeyOperation; 8] = [Load, Get, View, Put, Erase, Batch, Scan, ScanSorted];

impl KeyOperation {
    /// Returns the name that tables show.
    pub fn name(self) -> &'static str {
        match self {
            Load => "load, 1,000 in a transaction, each",
            Get => "get",
            View => "get in place",
            Put => "put",
            Erase => "erase",
            Batch => "100 puts in a transaction, each",
            Scan => "scan with values, each",
            ScanSorted => "scan in order, each",
        }
    }
}

impl Keys {
    /// Makes the workload with stores of these sizes and all calls.
    pub fn new(scales: Vec<StoreScale>, durability: Durability) -> Keys {
        Keys { scales, durability, wanted: OPERATIONS.to_vec(), calls: None }
    }

    /// Makes the workload with a load and the operations `wanted`. A round makes `calls` gets, puts or
    /// erases.
    pub fn of(scales: Vec<StoreScale>, wanted: &[KeyOperation], calls: u64) -> Keys {
        let wanted = [&[Load], wanted].concat();
        Keys { scales, durability: Durability::Later, wanted, calls: Some(calls) }
    }

    /// Returns the sizes of `eyrie bench kv`.
    pub fn standard() -> Vec<StoreScale> {
        [(1000, 4096), (100_000, 4096), (1_000_000, 100)]
            .map(|(keys, value_bytes)| StoreScale { keys, value_bytes })
            .to_vec()
    }

    /// Returns sizes with which a test of the workload takes less than a second. The figures mean little.
    pub fn quick() -> Vec<StoreScale> {
        [(100, 4096), (2000, 100)].map(|(keys, value_bytes)| StoreScale { keys, value_bytes }).to_vec()
    }

    /// Returns the operations and stores of the rows, in the order of the plan.
    pub fn rows(&self) -> Vec<(KeyOperation, usize)> {
        let of = |scale| self.wanted.iter().map(move |&operation| (operation, scale));
        (0..self.scales.len()).flat_map(of).collect()
    }

    /// Returns the number of calls of an operation that a thread with `keys` keys makes in a round.
    fn calls(&self, operation: KeyOperation, keys: u64) -> u64 {
        let durable = self.durability == Durability::EachCall;
        let calls = match operation {
            Get | View => self.calls.unwrap_or((keys / 5).clamp(1000, 20_000)),
            Put | Erase if durable => (keys / 1500).clamp(16, 64),
            Put | Erase => self.calls.unwrap_or((keys / 10).clamp(500, 10_000)),
            Batch if durable => (keys / 10_000).clamp(1, 10),
            Batch => (keys / 1000).clamp(2, 100),
            Load | Scan | ScanSorted => 1,
        };
        if operation == Erase { calls.min(keys) } else { calls }
    }
}

impl Workload for Keys {
    fn title(&self) -> String {
        "bench kv".to_owned()
    }

    fn notes(&self) -> Vec<String> {
        let scale = |scale: &StoreScale| {
            let StoreScale { keys, value_bytes } = *scale;
            format!("{} keys with values of {} bytes", thousands(keys), thousands(value_bytes as u64))
        };
        let all: Vec<String> = self.scales.iter().map(scale).collect();
        let mut notes = vec![format!(
            "{}; keys have 12 bytes, and each call but a scan is one transaction; threads divide the keys",
            all.join("; ")
        )];
        if self.scales.iter().any(|scale| scale.keys > MANY) {
            let many = thousands(MANY);
            notes.push(format!("more than {many} keys: not on sides whose values are files of the kernel"));
        }
        notes
    }

    fn bytes(&self, _threads: u64) -> u64 {
        // In Eyrie a key takes 480 bytes in addition to its value, and in the other stores fewer bytes. All
        // bytes count twice: during a load, the storage of the removed store may not be free yet in Eyrie. In
        // LMDB and redb, values of 4 KiB take twice their bytes. The 64 MiB leave room for logs and tables.
        let store = |scale: &StoreScale| scale.keys * (scale.value_bytes as u64 + 480) * 2;
        self.scales.iter().map(store).sum::<u64>() + (64 << 20)
    }

    fn most_threads(&self) -> u64 {
        self.scales.iter().map(|scale| scale.keys).min().unwrap_or(u64::MAX)
    }

    fn uses_keys(&self) -> bool {
        true
    }

    fn plan(&self, threads: u64) -> Plan {
        let part = ThreadPart { threads, ..ThreadPart::WHOLE };
        let row = |(operation, scale): (KeyOperation, usize)| {
            let keys = part.share(self.scales[scale].keys);
            let targets = match operation {
                Get | View | Put => Targets::random("keys", keys),
                Load | Erase | Batch | Scan | ScanSorted => Targets::each("keys", keys),
            };
            let all = thousands(self.scales[scale].keys);
            let row = RowPlan::new(format!("{}, of {all}", operation.name()), targets);
            let is_long = self.scales[scale].keys > MANY;
            match operation {
                Load => RowPlan { once: threads > 1 || is_long, ..row }.at_most(LONG_ROUNDS),
                Scan | ScanSorted if is_long => row.at_most(LONG_ROUNDS),
                _ => row,
            }
        };
        Plan { groups: self.rows().into_iter().map(|at| vec![row(at)]).collect() }
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        let rows = Arc::new(self.rows());
        let mut stores: Vec<Vec<Option<Arc<dyn KeyStore>>>> = Vec::new();
        for part in parts {
            let new = |(number, scale): (usize, &StoreScale)| {
                let name = format!("store-{number}-{}", part.thread);
                side.storage().new_store(&name, scale.value_bytes).map(Some)
            };
            stores.push(match stores.first() {
                // With `--shared`, all threads use the stores of the first thread.
                Some(first) if part.shared => first.clone(),
                // The loads of a run with one thread make the stores.
                _ if part.threads == 1 => vec![None; self.scales.len()],
                _ => self.scales.iter().enumerate().map(new).collect::<Result<_>>()?,
            });
        }
        let worker =
            |(&part, stores): (&ThreadPart, Vec<Option<Arc<dyn KeyStore>>>)| -> Result<Box<dyn Worker>> {
                let loaded =
                    |(scale, store): (&StoreScale, Option<Arc<dyn KeyStore>>)| -> Result<LoadedStore> {
                        let keys = part.share(scale.keys);
                        let session = store.map(|store| store.session()).transpose()?;
                        let session = session.filter(|session| !has_too_many_files(&**session, scale.keys));
                        let first = if part.shared { part.thread * keys } else { 0 };
                        let versions = vec![0; keys as usize];
                        let all = if part.shared { keys * part.threads } else { keys };
                        Ok(LoadedStore {
                            session,
                            first,
                            versions,
                            all,
                            value_bytes: scale.value_bytes,
                            erased: 0,
                            batched: 0,
                        })
                    };
                Ok(Box::new(KeyWorker {
                    work: self.clone(),
                    rows: Arc::clone(&rows),
                    storage: side.storage(),
                    stores: self.scales.iter().zip(stores).map(loaded).collect::<Result<_>>()?,
                    chooser: Chooser::new(part.thread),
                    key: NumberedName::new("key-"),
                }))
            };
        parts.iter().zip(stores).map(worker).collect()
    }
}

/// One store, and the values that it should have.
struct LoadedStore {
    /// `None` if the side leaves this store out. With one thread, also `None` before the first load.
    session: Option<Box<dyn KeySession>>,
    /// The number of the first key of this thread.
    first: u64,
    /// The number of changes of each key.
    versions: Vec<u32>,
    /// Number of keys of the store, including those of other threads.
    all: u64,
    value_bytes: usize,
    /// The number of erases so far, modulo the number of keys.
    erased: u64,
    /// The key, counted from `first`, at which the next batch begins.
    batched: u64,
}

impl LoadedStore {
    fn keys(&self) -> u64 {
        self.versions.len() as u64
    }

    fn session(&mut self) -> Result<&mut Box<dyn KeySession>> {
        self.session.as_mut().ok_or_else(|| Error::wrong("there is no store before the first load"))
    }

    fn content(&self, key: u64) -> Pattern {
        Pattern::new(self.first + key, self.versions[key as usize])
    }

    fn is_right(&self, key: u64, found: &[u8]) -> bool {
        found.len() == self.value_bytes && self.content(key).matches(found, 0)
    }

    /// Returns keys with new values.
    fn pairs(&mut self, keys: impl Iterator<Item = u64>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut name = NumberedName::new("key-");
        keys.map(|key| {
            self.versions[key as usize] += 1;
            let mut value = vec![0; self.value_bytes];
            self.content(key).fill(&mut value, 0);
            (name.key(self.first + key).to_vec(), value)
        })
        .collect()
    }
}

/// Returns a step through `keys` keys. The multiples of the step, modulo `keys`, visit each key once before
/// any key twice, and are spread over all keys.
fn step_through(keys: u64) -> u64 {
    // The golden ratio spreads the first few multiples almost evenly.
    let near = (keys as f64 * 0.618) as u64;
    (near.max(1)..=keys).find(|&step| greatest_common_divisor(step, keys) == 1).unwrap_or(1)
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

/// Returns true for a store that would have too many files. A run leaves out such a store.
fn has_too_many_files(session: &dyn KeySession, keys: u64) -> bool {
    session.is_of_files() && keys > MANY
}

/// The work of one thread.
struct KeyWorker {
    work: Keys,
    rows: Arc<Vec<(KeyOperation, usize)>>,
    storage: SharedStorage,
    stores: Vec<LoadedStore>,
    chooser: Chooser,
    key: NumberedName,
}

impl Worker for KeyWorker {
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        let (operation, at) = self.rows[row];
        let calls = self.work.calls(operation, self.stores[at].keys());
        if operation == Load {
            return self.load(at, watch);
        }
        let store = &mut self.stores[at];
        let keys = store.keys();
        let Some(session) = &store.session else { return Ok(false) };
        if operation == View && !session.has_views() {
            return Ok(false);
        }
        match operation {
            Get => self.get(at, calls, watch)?,
            View => self.view(at, calls, watch)?,
            Put => self.put(at, calls, watch)?,
            Erase => self.erase(at, calls, watch)?,
            Batch => {
                for _ in 0..calls {
                    let start = store.batched;
                    let count = BATCH.min(keys);
                    store.batched = (start + count) % keys;
                    let pairs = store.pairs((start..start + count).map(|key| key % keys));
                    let session = store.session()?;
                    watch.time_whole(count, || session.put_all(&pairs))?;
                    (start..start + count).for_each(|key| watch.touch(key % keys));
                }
            }
            Load | Scan | ScanSorted => store.scan(operation == ScanSorted, watch)?,
        }
        Ok(true)
    }

    /// Compares all keys and values, and the order of the keys.
    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        for store in &mut self.stores {
            let Some(mut session) = store.session.take() else { continue };
            let (mut name, mut next, mut wrong, mut last) = (NumberedName::new("key-"), 0, 0, Vec::new());
            session.scan(true, &mut |key, found| {
                wrong += u64::from(!last.is_empty() && &last[..] >= key);
                last.clear();
                last.extend_from_slice(key);
                // A shared store also has the keys of other threads.
                if next < store.keys() && name.key(store.first + next) == key {
                    wrong += u64::from(!store.is_right(next, found));
                    next += 1;
                }
            })?;
            let right = next == store.keys() && wrong == 0;
            let keys = store.keys();
            watch.require(right, || format!("{next} of {keys} keys were found, and {wrong} are wrong"))?;
        }
        Ok(())
    }
}

impl KeyWorker {
    /// Puts all keys: with one thread into a new store, and with several threads into the store that exists.
    fn load(&mut self, at: usize, watch: &mut Stopwatch) -> Result<bool> {
        let store = &mut self.stores[at];
        let all = self.work.scales[at].keys;
        // Only the thread of a run with one thread has all keys.
        if all == store.keys() {
            let name = format!("store-{at}");
            if store.session.take().is_some() {
                self.storage.remove_store(&name)?;
            }
            let session = self.storage.new_store(&name, store.value_bytes)?.session()?;
            store.session = Some(session).filter(|session| !has_too_many_files(&**session, all));
        }
        if store.session.is_none() {
            return Ok(false);
        }
        let keys = store.keys();
        for first in (0..keys).step_by(LOAD as usize) {
            let last = (first + LOAD).min(keys);
            let pairs = store.pairs(first..last);
            let session = store.session()?;
            watch.time_whole(last - first, || session.put_all(&pairs))?;
            (first..last).for_each(|key| watch.touch(key));
        }
        Ok(true)
    }

    fn random_keys(&mut self, at: usize) -> [u64; TIMED_CALLS] {
        let keys = self.stores[at].keys();
        std::array::from_fn(|_| self.chooser.below(keys))
    }

    fn get(&mut self, at: usize, calls: u64, watch: &mut Stopwatch) -> Result<()> {
        // A buffer that is larger than the value lets a file be read with one call.
        let mut found: [Vec<u8>; TIMED_CALLS] =
            std::array::from_fn(|_| Vec::with_capacity(2 * self.stores[at].value_bytes));
        for _ in 0..calls.div_ceil(TIMED_CALLS as u64) {
            let numbers = self.random_keys(at);
            let store = &mut self.stores[at];
            let first = store.first;
            let session = store.session()?;
            watch.time(TIMED_CALLS, |at| {
                session.get(self.key.key(first + numbers[at]), &mut found[at])?;
                Ok(())
            })?;
            for (number, found) in numbers.into_iter().zip(&found) {
                watch.touch(number);
                watch.require(store.is_right(number, found), || format!("key {number} has a wrong value"))?;
            }
        }
        Ok(())
    }

    fn put(&mut self, at: usize, calls: u64, watch: &mut Stopwatch) -> Result<()> {
        for _ in 0..calls.div_ceil(TIMED_CALLS as u64) {
            let numbers = self.random_keys(at);
            let pairs = self.stores[at].pairs(numbers.into_iter());
            let session = self.stores[at].session()?;
            watch.time(TIMED_CALLS, |at| session.put(&pairs[at].0, &pairs[at].1))?;
            numbers.into_iter().for_each(|number| watch.touch(number));
        }
        Ok(())
    }

    /// Erases keys, and puts them again outside the timed part.
    fn erase(&mut self, at: usize, calls: u64, watch: &mut Stopwatch) -> Result<()> {
        let store = &mut self.stores[at];
        let (keys, first, start) = (store.keys(), store.first, store.erased);
        // The steps visit every key once before any key twice, and `calls` is at most `keys`. Therefore a
        // round erases no key twice.
        let step = step_through(keys);
        let number = |call: u64| (start + call) * step % keys;
        store.erased = (start + calls) % keys;
        let mut erased = 0;
        let session = store.session()?;
        watch.time(calls as usize, |call| {
            erased += u64::from(session.erase(self.key.key(first + number(call as u64)))?);
            Ok(())
        })?;
        let mut found = Vec::new();
        for call in 0..calls {
            watch.touch(number(call));
            let exists = session.get(self.key.key(first + number(call)), &mut found)?;
            watch.require(!exists, || format!("key {} has a value after its erase", number(call)))?;
        }
        watch.require(erased == calls, || format!("{erased} of {calls} keys were erased"))?;
        let pairs = store.pairs((0..calls).map(number));
        store.session()?.put_all(&pairs)
    }
}

#[cfg(test)]
mod tests;
